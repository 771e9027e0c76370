"""``zmqdata.keras``: models of Keras with each back end are trained on exactly the
batches of a dataset: ``make test-torch``.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError

if importlib.util.find_spec("keras") is None:
    pytest.skip("keras is not installed", allow_module_level=True)
if all(importlib.util.find_spec(name) is None for name in ("jax", "torch", "tensorflow")):
    pytest.skip("each back end of keras is not installed", allow_module_level=True)
os.environ["KERAS_BACKEND"] = os.environ.get("KERAS_BACKEND") or next(
    name for name in ("jax", "torch", "tensorflow") if importlib.util.find_spec(name) is not None
)

import keras

from zmqdata.keras import PyDataset

pytestmark = pytest.mark.timeout(300)
BACKENDS = [
    name for name in ("jax", "torch", "tensorflow") if importlib.util.find_spec(name) is not None
]
TRAININGS = str(Path(__file__).with_name("trainings.py"))
TEN = list(range(10))
ROWS = np.ones((12, 3), np.float32)


@functools.cache
def trained(backend: str) -> dict[str, Any]:
    """Return what the program of trainings found with a back end."""
    ran = subprocess.run(
        [sys.executable, TRAININGS],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert ran.returncode == 0, ran.stderr
    line = next(line for line in ran.stdout.splitlines() if line.startswith("FOUND "))
    found: dict[str, Any] = json.loads(line[6:])
    assert found["backend"] == backend
    return found


@pytest.fixture(params=BACKENDS)
def found(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return what models were trained on with a back end."""
    return trained(request.param)


def test_examples_of_the_docstrings(found: dict[str, Any]) -> None:
    """Each example of the module gives what is written below it."""
    failed, attempted = found["examples"]
    assert (failed, attempted > 10) == (0, True)


def test_each_pass_reads_a_finite_dataset(found: dict[str, Any]) -> None:
    """Each batch is trained on once in each pass, in order, and in a second ``fit``."""
    assert found["finite"] == [TEN * 2, TEN]


def test_an_endless_dataset_goes_on(found: dict[str, Any]) -> None:
    """Each pass reads the next batches, also in a second ``fit``."""
    assert found["endless"] == [[*TEN, 0, 1], [2, 3, 4, 5]]


def test_a_dataset_of_several_passes(found: dict[str, Any]) -> None:
    """A repetition of 12 batches is three passes of 4, and then begins again."""
    assert found["longer"] == [*range(12), 0, 1, 2, 3]


def test_steps_of_a_pass_read_on(found: dict[str, Any]) -> None:
    """``steps_per_epoch=`` reads the next batches of the same repetition."""
    assert found["steps"] == [[0, 1, 2], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 6, 7]]


def test_passes_of_one_or_two_batches(found: dict[str, Any]) -> None:
    """No batch is lost or doubled though Keras has asked for all of them before it
    trains.
    """
    assert found["small"] == [[0, 0, 0], [0, 1, 2], [0, 1] * 3, [0, 1, 2, 3, 4, 5]]


def test_after_a_pass_that_was_broken_off(found: dict[str, Any]) -> None:
    """A finite dataset begins again, and an endless one reads on. TensorFlow may have
    read ahead.
    """
    for at, last in ((0, 0), (2, 4)):
        assert found["broken_off"][at] == [list(range(last + 1)), TEN]
        had, following = found["broken_off"][at + 1]
        assert had == list(range(last + 1))
        begin = following[0]
        assert following == list(range(begin, begin + 10))
        assert begin == last + 1 or (found["backend"] == "tensorflow" and begin <= last + 20)


def test_validation_and_evaluation(found: dict[str, Any]) -> None:
    """Each validation and each evaluation is over all batches, 0 to 4."""
    assert found["validated"] == [[2.0, 2.0, 2.0], 2.0]


def test_predictions_are_in_order(found: dict[str, Any]) -> None:
    """Each prediction has a row for each row, in the order of the dataset."""
    assert found["predicted"] == [[float(at // 2) for at in range(10)]] * 2


@pytest.mark.parametrize("kind", [0, 1], ids=["finite", "endless"])
def test_a_training_resumes_exactly(found: dict[str, Any], kind: int) -> None:
    """From the state at the beginning, within and at the end of a pass, the batches are
    those of the whole training, which shuffles each pass anew.
    """
    first, differs, parts = found["resumed"][kind]
    assert (first, differs) == (list(range(8)), True)
    assert parts == dict.fromkeys(parts, True)
    assert len(parts) == 8


def test_a_training_resumes_twice_within_a_pass(found: dict[str, Any]) -> None:
    """A state that was saved in the rest of a pass counts the batches before it."""
    assert found["resumed_twice"] == [True, True]


def test_what_was_asked_for_to_learn_shapes_counts_as_not_read(found: dict[str, Any]) -> None:
    """Before the training, a state is at the beginning, and all batches remain."""
    assert found["asked_ahead"] == [0, 8]


def test_questions_of_the_user_change_nothing(found: dict[str, Any]) -> None:
    """A callback may ask for the number of batches."""
    assert found["looked_at"] == list(range(8))


def test_forms_of_batches(found: dict[str, Any]) -> None:
    """Pairs, weights, None, namedtuples, dicts and x alone, of any byte order, are
    accepted.
    """
    forms = found["forms"]
    rows = {name: forms.pop(name) for name in ("x", "(x,)", "(x, None)")}
    assert forms == dict.fromkeys(forms, 1)
    assert [*rows.values()] == [[4, 1]] * 3


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("short", r"ended after 7 batches of an epoch of batches=10: 3 are missing.*repeat\(\)"),
        ("short later", "ended after 2 batches of an epoch of batches=5: 3 are missing"),
        ("empty", "the dataset has ended without a single batch"),
        ("pipeline", r"map\(fails\) at .*asked for"),
        ("text", r"element\[0\] is str, and Keras takes arrays .*to_tf_dataset"),
    ],
)
def test_errors_reach_the_training(found: dict[str, Any], name: str, words: str) -> None:
    """``fit`` raises them, with their text."""
    assert re.search(words, found["errors"][name], re.DOTALL)


def test_a_distributed_dataset(found: dict[str, Any]) -> None:
    """Each pass has all batches of a repetition of the service."""
    batches = found["distributed"]
    assert sorted(batches[:30]) == sorted(batches[30:]) == list(range(30))


def test_a_dataset_of_tensorflow_is_trained_on(found: dict[str, Any]) -> None:
    """Each back end accepts what ``to_tf_dataset`` returns."""
    if "tensorflow" not in BACKENDS:
        pytest.skip("tensorflow is not installed")
    assert found["of_tensorflow"] == [0, 1, 2, 3, 4, 5] * 2


def test_no_thread_is_left(found: dict[str, Any]) -> None:
    """Datasets that are dropped or closed have no thread."""
    assert found["left_over"] == []


# --- without training


def batched(element: Any) -> Dataset:
    return Dataset.from_tensors(element)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (batched((ROWS,) * 4), r"tuple of 4 parts, and Keras takes x, \(x, y\) or"),
        (batched(()), "tuple of 0 parts"),
        (Dataset.from_tensor_slices((ROWS, ROWS[:, 0])), r"element\[1\] is a single value of dtype float32.*batch\(n\)"),
        (batched((np.array(["a"]), ROWS)), r"element\[0\] is str.*Make numbers"),
        (batched({"x": np.array(["2020-01-01"], "M8[D]")}), r"element\['x'\] is datetime64\[D\]"),
        (Dataset.from_list([[1], [2, 3]]).ragged_batch(2), "element is a ragged tensor.*padded_batch"),
        (Dataset.range(4).window(2), "element is a dataset.*flat_map"),
    ],
    ids=["four", "none", "rows", "text", "date", "ragged", "window"],
)  # fmt: skip
def test_forms_are_refused_at_once(dataset: Dataset, words: str) -> None:
    """Nothing is read where the spec is known, and the error names the part."""
    with pytest.raises(TypeError, match=words):
        PyDataset(dataset, 1)


@pytest.mark.parametrize(
    ("element", "words"),
    [
        ((ROWS, 1.0), r"element\[1\] is a single float, .*batch\(n\)"),
        ((ROWS, "a"), r"element\[1\] is a single str"),
        ((ROWS, None, ROWS), r"element\[1\] is None.*only the last ones"),
        (None, "element is None"),
        (np.ma.array([1, 2], mask=[0, 1]), r"masked array.*filled"),
        (np.zeros(2, [("a", "i4")]), "and Keras takes arrays of rows"),
        (np.array([b"a"]), "element is bytes"),
        (np.array([None]), "element is object"),
    ],
    ids=["number", "text", "none between", "none", "masked", "fields", "bytes", "objects"],
)
def test_late_forms_are_refused(element: Any, words: str) -> None:
    """A batch that no spec showed is refused when it is asked for."""
    with pytest.raises(TypeError, match=words):
        PyDataset(Dataset.range(2).map(lambda _: element), 2)[0]


def test_batches_that_are_nested_otherwise_are_refused() -> None:
    """A batch that is not nested as the first is an error that shows both."""
    mixed = Dataset.range(2).map(lambda n: {"xy"[n]: ROWS})
    batches = PyDataset(mixed, 2)
    assert [*batches[0]] == ["x"]
    with pytest.raises(InvalidArgumentError, match=r"one has element\['y'\], and the first had"):
        batches[1]


@pytest.mark.parametrize(
    ("count", "batches", "words"),
    [
        (10, 4, r"has 10 batches, and epochs of batches=4 .*batches=10, .*repeat\(\).*take\(8\)"),
        (3, 4, "has 3 batches, and epochs of batches=4 would end within them"),
        (0, 4, "the dataset is empty"),
    ],
)
def test_a_length_that_does_not_fit(count: int, batches: int, words: str) -> None:
    """A dataset that is known to end within a pass is refused at once, with both
    numbers.
    """
    with pytest.raises(InvalidArgumentError, match=words):
        PyDataset(Dataset.from_tensor_slices(np.ones((count, 2, 3))), batches)


def test_bad_arguments() -> None:
    """Each error has what came, and threads of Keras cannot be asked for."""
    rows = Dataset.from_tensor_slices(ROWS).batch(4)
    with pytest.raises(TypeError, match=r"ds must be a Dataset, got \[1\]"):
        PyDataset([1], 1)  # type: ignore[arg-type]
    for batches in (0, -1):
        with pytest.raises(
            InvalidArgumentError, match=f"batches must be at least 1, got {batches}"
        ):
            PyDataset(rows, batches)
    with pytest.raises(TypeError, match="batches must be an int"):
        PyDataset(rows, 1.5)  # type: ignore[arg-type]
    dataset = PyDataset(rows, 3)
    assert isinstance(dataset, keras.utils.PyDataset)
    assert (dataset.workers, dataset.use_multiprocessing, len(dataset)) == (1, False, 3)
    with pytest.raises(AttributeError):
        dataset.workers = 4  # type: ignore[misc]


def test_a_loop_of_ones_own() -> None:
    """A loop over the dataset is a pass, also if the loop before was left."""
    dataset = PyDataset(Dataset.range(12).batch(2), 6)
    for _ in range(2):
        assert [batch.tolist() for batch in dataset] == [[at, at + 1] for at in range(0, 12, 2)]
    assert next(iter(dataset)).tolist() == [0, 1]


def test_states_that_do_not_fit() -> None:
    """A state of something else, of other passes, and of another pipeline are errors
    that change nothing.
    """
    dataset = PyDataset(Dataset.range(12).batch(2), 6)
    assert dataset[0].tolist() == [0, 1]
    with pytest.raises(InvalidArgumentError, match="a state must be a dict that state_dict"):
        dataset.load_state_dict({"position": 1})
    with pytest.raises(InvalidArgumentError, match=r"epochs of 3 batches.*make it with batches=3"):
        dataset.load_state_dict(PyDataset(Dataset.range(12).batch(2), 3).state_dict())
    with pytest.raises(FailedPreconditionError, match="another pipeline"):
        dataset.load_state_dict(PyDataset(Dataset.range(18).batch(3), 6).state_dict())
    with pytest.raises(InvalidArgumentError, match="steps=4: Keras has asked for 1 batches"):
        dataset.state_dict(4)
    assert dataset[1].tolist() == [2, 3]
    assert (dataset.remaining, len(dataset.rest())) == (4, 4)
    for index in range(2, 6):
        dataset[index]
    with pytest.raises(FailedPreconditionError, match="epoch of 6 batches is complete"):
        dataset.rest()


def test_closing() -> None:
    """After ``close``, another repetition begins."""
    dataset = PyDataset(Dataset.range(12).batch(2).prefetch(2), 6)
    assert [dataset[index].tolist() for index in range(2)] == [[0, 1], [2, 3]]
    dataset.close()
    dataset.close()
    assert dataset.remaining == 6
    assert dataset[0].tolist() == [0, 1]
    dataset.close()


def test_it_tells_why_the_training_waits() -> None:
    """The dataset has the numbers of the reading from the service, and says why it has
    none before it was read.
    """
    rows = Dataset.from_tensor_slices((ROWS, ROWS[:, 0])).batch(4, drop_remainder=True)
    with LocalCluster(num_workers=1, in_process=True) as cluster:
        dataset = PyDataset(rows.apply(distribute("distributed_epoch", cluster.target)), 3)
        with pytest.raises(FailedPreconditionError, match="no batch of this dataset was read"):
            dataset.stats()
        assert len(list(dataset)) == 3
        assert dataset.stats(scalars=True)["data/elements"] >= 3.0
        dataset.close()
