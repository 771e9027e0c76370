"""Program of Keras that the tests start once for each back end. It prints what models
were trained on, as JSON.
"""

from __future__ import annotations

import doctest
import gc
import json
import pickle
import sys
import threading
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

import zmqdata.keras
from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.keras import PyDataset

Pair = namedtuple("Pair", "x y")


def numbered(count: int) -> Dataset:
    """Return batches of two rows, in which x and y are the number of the batch."""

    def batch(number: Any) -> Any:
        return np.full((2, 1), number, np.float32), np.full((2, 1), number, np.float32)

    return Dataset.range(count).map(batch)


def zero_model() -> Any:
    """Return a model whose loss is y, and which learns nothing."""
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros")])
    model.compile(loss="mae", optimizer=keras.optimizers.SGD(0.0))
    return model


class Seen(keras.callbacks.Callback):  # type: ignore[misc]
    """Lists the batches that a model was trained on, and acts after some of them."""

    def __init__(self, act: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.act = act
        self.sum = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        # The loss is the mean since the beginning of the pass.
        total = float(logs["loss"]) * (batch + 1)
        self.sum = total - (self.sum if batch else 0.0)
        self.batches.append(round(self.sum))
        self.sum = total
        if self.act is not None:
            self.act(batch)


def fitted(dataset: PyDataset, model: Any = None, act: Any = None, **options: Any) -> list[int]:
    """Return the batches that a model was trained on."""
    seen = Seen(act)
    options.setdefault("epochs", 1)
    (model or zero_model()).fit(dataset, verbose=0, callbacks=[seen], **options)
    return seen.batches


def finite() -> Any:
    model, dataset = zero_model(), PyDataset(numbered(10), 10)
    return [fitted(dataset, model, epochs=2), fitted(dataset, model)]


def endless() -> Any:
    model, dataset = zero_model(), PyDataset(numbered(10).repeat(), 4)
    return [fitted(dataset, model, epochs=3), fitted(dataset, model)]


def longer() -> Any:
    return fitted(PyDataset(numbered(12), 4), epochs=4)


def steps() -> Any:
    return [
        fitted(PyDataset(numbered(10), 10), epochs=passes, steps_per_epoch=count)
        for count, passes in ((1, 3), (2, 3), (4, 2))
    ]


def small() -> Any:
    """Train in epochs of one batch and of two, finite and endless."""
    found = []
    for count in (1, 2):
        found.append(fitted(PyDataset(numbered(count), count), epochs=3))
        model, dataset = zero_model(), PyDataset(numbered(9).repeat(), count)
        found.append(fitted(dataset, model, epochs=2) + fitted(dataset, model, epochs=1))
    return found


def broken_off() -> Any:
    """Stop after the first or fifth batch of a finite dataset and of an endless one,
    and train again.
    """
    found = []
    for last in (0, 4):
        for dataset in (PyDataset(numbered(10), 10), PyDataset(numbered(1000).repeat(), 10)):
            model = zero_model()

            def stop(batch: int, model: Any = model, last: int = last) -> None:
                model.stop_training = batch == last

            found.append([fitted(dataset, model, stop), fitted(dataset, model)])
    return found


def validated() -> Any:
    valid = PyDataset(numbered(5), 5)
    model = zero_model()
    history = model.fit(
        PyDataset(numbered(4), 4), validation_data=valid, epochs=3, verbose=0
    ).history
    return [history["val_loss"], model.evaluate(valid, verbose=0)]


def predicted() -> Any:
    model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="ones")])
    dataset = PyDataset(numbered(5).map(lambda x, y: x), 5)
    return [model.predict(dataset, verbose=0).ravel().tolist() for _ in range(2)]


def trained_from(dataset: Dataset, state: dict[str, Any], passes: int) -> list[int]:
    """Return the batches that follow a state in a training of some passes."""
    again = PyDataset(dataset, 8)
    again.load_state_dict(pickle.loads(pickle.dumps(state)))
    model, had = zero_model(), []
    if again.remaining:
        had = fitted(again.rest(), model)
    return had + fitted(again, model, epochs=passes - 1)


def resumed() -> Any:
    """Train over three passes, and again in parts from states, on shuffled batches."""
    found = []
    for dataset in (numbered(8).shuffle(8), numbered(8).shuffle(8).repeat()):
        whole = PyDataset(dataset, 8)
        states = [whole.state_dict()]

        def note(step: int, whole: Any = whole, states: Any = states) -> None:
            states.append(whole.state_dict(step + 1))

        batches = fitted(whole, act=note, epochs=3)
        parts = {
            at: trained_from(dataset, states[at], 3 - max(at - 1, 0) // 8) == batches[at:]
            for at in (0, 3, 6, 7, 8, 13, 22, 23)
        }
        found.append([sorted(batches[:8]), batches[:8] != batches[8:16], parts])
    return found


def resumed_twice() -> Any:
    """Train until the second batch, then until the fifth, and then to the end of the
    second pass, each time in a dataset of its own.
    """
    found = []
    for dataset in (numbered(8).shuffle(8), numbered(8).shuffle(8).repeat()):
        states: list[Any] = []

        def note(step: int, whole: PyDataset, states: list[Any] = states) -> None:
            states.append(whole.state_dict(step + 1))

        whole = PyDataset(dataset, 8)
        batches = fitted(whole, act=lambda step, whole=whole: note(step, whole), epochs=2)
        again = PyDataset(dataset, 8)
        again.load_state_dict(states[1])
        states.clear()
        fitted(again.rest(), act=lambda step, again=again: note(step, again))
        found.append(trained_from(dataset, states[2], 2) == batches[5:])
    return found


def asked_ahead() -> Any:
    """Return the state before training, and that after the second batch."""
    dataset = PyDataset(numbered(8), 8)
    states: list[int] = []

    class Noting(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            states.append(dataset.state_dict()["given"])
            states.append(dataset.remaining)

    zero_model().fit(dataset, verbose=0, callbacks=[Noting()])
    return states


def looked_at() -> Any:
    """Ask for the number of batches in the middle of an epoch."""
    dataset = PyDataset(numbered(8), 8)
    return fitted(dataset, act=lambda step: (dataset.num_batches, len(dataset)))


def forms() -> Any:
    rows, flat = np.ones((2, 3), np.float32), np.ones((2, 1), np.float32)
    by_name = keras.Input((3,), name="a"), keras.Input((3,), name="b")
    named = keras.Model(
        dict(zip("ab", by_name, strict=True)), keras.layers.Dense(1)(keras.layers.Add()(by_name))
    )
    named.compile(loss="mse")
    elements: dict[str, tuple[Any, Any]] = {
        "pair": (zero_model(), (rows, flat)),
        "weights": (zero_model(), (rows, flat, np.ones(2, np.float32))),
        "none": (zero_model(), (rows, flat, None)),
        "named": (zero_model(), Pair(rows, flat)),
        "big-endian": (zero_model(), (rows.astype(">f8"), flat.astype(">i4"))),
        "dict": (named, ({"a": rows, "b": rows}, flat)),
        "dict out of order": (named, ({"b": rows, "a": rows}, flat)),
    }
    found: dict[str, Any] = {}
    for name, (model, element) in elements.items():
        dataset = PyDataset(Dataset.from_list([element] * 2), 2)
        found[name] = len(model.fit(dataset, verbose=0).history["loss"])
    for name, element in {"x": rows, "(x,)": (rows,), "(x, None)": (rows, None)}.items():
        made = zero_model().predict(PyDataset(Dataset.from_list([element] * 2), 2), verbose=0)
        found[name] = made.shape
    return found


def error_of(make: Callable[[], Any]) -> str:
    try:
        make()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def errors() -> Any:
    def fails(x: Any, y: Any) -> Any:
        if x[0, 0] == 2:
            raise ValueError("asked for")
        return x, y

    few = numbered(20).filter(lambda x, y: x[0, 0] < 7)
    return {
        "short": error_of(lambda: fitted(PyDataset(few, 10))),
        "short later": error_of(lambda: fitted(PyDataset(few, 5), epochs=2)),
        "empty": error_of(lambda: fitted(PyDataset(few.filter(lambda x, y: False), 10))),
        "pipeline": error_of(lambda: fitted(PyDataset(numbered(4).map(fails), 4))),
        "text": error_of(
            lambda: fitted(PyDataset(numbered(4).map(lambda x, y: (np.array(["a", "b"]), y)), 4))
        ),
    }


def distributed() -> Any:
    with LocalCluster(num_workers=2) as cluster:
        read = distribute("distributed_epoch", cluster.target)
        dataset = PyDataset(numbered(30).apply(read), 30)
        batches = fitted(dataset, epochs=2)
        dataset.close()
        return batches


def of_tensorflow() -> Any:
    """Train on a dataset of TensorFlow, and one that is dropped."""
    from zmqdata.tensorflow import to_tf_dataset

    return fitted(to_tf_dataset(numbered(6)), epochs=2)


def examples() -> Any:
    """Run the examples of the docstrings."""
    ran = doctest.testmod(zmqdata.keras)
    return [ran.failed, ran.attempted]


def left_over() -> Any:
    gc.collect()
    return sorted({one.name for one in threading.enumerate() if "zmqdata" in one.name})


CASES = [
    finite,
    endless,
    longer,
    steps,
    small,
    broken_off,
    validated,
    predicted,
    resumed,
    resumed_twice,
    asked_ahead,
    looked_at,
    forms,
    errors,
    distributed,
    of_tensorflow,
    examples,
    left_over,
]


def told() -> Iterator[tuple[str, Any]]:
    for case in CASES:
        yield case.__name__, case()


if __name__ == "__main__":
    chosen = sys.argv[1:]
    CASES = [case for case in CASES if not chosen or case.__name__ in chosen]
    print("FOUND", json.dumps({"backend": keras.backend.backend(), **dict(told())}))
