"""Keras 3: a dataset of zmqdata for ``fit``, ``evaluate`` and ``predict``.

This module needs Keras (``pip install 'zmqdata[keras]'``) and a back end for it. No
other module imports it.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

import msgspec
import numpy as np

from zmqdata.config.checks import at_least, refuse
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.elements.nesting import EqualNesting, leaves_of, map_arrays, places_of
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.specs import (
    ANY_OBJECT,
    INFINITE_CARDINALITY,
    DatasetSpec,
    NoneTensorSpec,
    TensorSpec,
)
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.machine.exiting import ForeignCalls
from zmqdata.nodes.base import known_spec
from zmqdata.recipes import names_arguments

try:
    import keras
except ModuleNotFoundError as error:
    if error.name != "keras":
        raise  # the back end that KERAS_BACKEND names, most likely
    raise ImportError(
        "`zmqdata.keras` needs Keras 3, which is not installed in this environment. Install it: "
        "`pip install 'zmqdata[keras]'`"
    ) from None
if not hasattr(keras.utils, "PyDataset"):
    raise ImportError(
        f"`zmqdata.keras` needs Keras 3, and this environment has {keras.__version__}. Install it: "
        "`pip install 'zmqdata[keras]'`"
    )

_KEPT = 2
"""Limit of batches that Keras asks for before it trains, to learn their shapes."""
_PLACES = 64
"""Limit of batches that a back end may read ahead of the training."""
_CLOSE_WITHIN = 2.0
"""Seconds for which ``close`` waits for a function of the user."""


class PyDataset(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types here
    """The batches of a dataset, for ``fit``, ``validation_data=``, ``evaluate`` and
    ``predict`` of Keras 3.

    Each epoch reads the next ``batches`` elements. If the dataset ends there, the next
    epoch reads its next repetition. The order is that of the dataset, so ``shuffle=``
    of ``fit`` has no effect. Batches that Keras asks for before it trains are given
    again.

    After an epoch that was broken off, the next call of ``fit`` begins another
    repetition, or reads on if the dataset is infinite. With ``steps_per_epoch=``, a
    repetition extends over several epochs, as Keras does it for each dataset.

    Args:
        ds: the dataset, read in this process or distributed. Its elements are batches:
            ``x``, ``(x,)``, ``(x, y)`` or ``(x, y, sample_weight)``, each an array or a
            nesting of dicts and tuples of arrays.
        batches: number of batches in an epoch.

    Raises:
        TypeError: the elements are known to have another form; the text says which.
        InvalidArgumentError: the dataset is known to end within an epoch.

    Raises (while it is read):
        FailedPreconditionError: the dataset ended within an epoch. The text has the
            number of batches that came.

    >>> rows = np.ones((12, 3), np.float32)
    >>> ds = Dataset.from_tensor_slices((rows, rows[:, 0])).batch(4)
    >>> model = keras.Sequential([keras.layers.Dense(1)])
    >>> model.compile(loss="mse")
    >>> history = model.fit(PyDataset(ds, batches=3), epochs=2, verbose=0)
    >>> len(history.history["loss"])
    2

    Has no counterpart in tf.data. Keras has ``keras.utils.PyDataset``.
    """

    @names_arguments
    def __init__(self, ds: Dataset, batches: int) -> None:
        super().__init__()
        if not isinstance(ds, Dataset):
            refuse("ds", ds, "a Dataset")
        self._batches = at_least("batches", batches, 1)
        self._cardinality = ds.cardinality()
        _check_count(self._cardinality, self._batches)
        spec = known_spec(ds.node)
        if spec is not None:
            _check_form(spec)
        # The number shows where a repetition begins. A single iterator reads all
        # repetitions, so that its state determines the order of the following ones.
        self._numbered = ds.enumerate().repeat()
        self._source: DatasetIterator | None = None
        self._nesting = EqualNesting()
        self._turn = threading.Lock()  # held by the thread that reads
        self._lock = threading.Lock()  # held for moments, since back ends read ahead
        self._begin(0)
        _calls.add(self)

    def _begin(self, given: int) -> None:
        """Continue behind the first batches of an epoch, with nothing read ahead."""
        self._given = given  # batches of the epoch that Keras has
        self._steps_from = 0  # batches of the epoch before those that Keras counts
        self._read_count = given  # batches of the epoch that the source has given
        self._handed_out = 0  # batches since the epoch, or this position, began
        self._kept: list[_Batch] = []  # those batches, while they are few
        self._back: deque[_Batch] = deque()  # batches to give again
        self._is_counted_anew = self._is_untrained = self._is_reset = self._has_ended = False
        self._places: dict[int, Callable[[], dict[str, Any]]] = {}  # by number in the epoch
        if self._source is not None:
            self._places[given] = self._source.bookmark()

    @property
    def workers(self) -> int:
        """1: Keras asks for one batch after the other. It cannot be set."""
        return 1

    @property
    def use_multiprocessing(self) -> bool:
        """False: the dataset is read in this process. It cannot be set."""
        return False

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self._batches

    @property
    def num_batches(self) -> int:
        """Number of batches in an epoch."""
        self._note_question(sys._getframe(1))
        return self._batches

    def _note_question(self, asking: FrameType) -> None:
        """Note that Keras begins to count batches from 0, if it asks for their number.

        Keras asks after it has learned the shapes, for each epoch, and for each call of
        ``fit``. The index of a batch does not show it, because ``shuffle=True`` is the
        default and draws the indices. Questions of the user do not count.
        """
        package = asking.f_globals.get("__name__", "").partition(".")[0]
        if package != "keras" or self._is_counted_anew:
            return
        caller = asking.f_back.f_code.co_name if asking.f_back is not None else ""
        self._is_counted_anew = True
        # A call of fit makes its iterator, learns the shapes, and resets it.
        self._is_untrained = not self._has_ended and caller != "__init__"
        self._is_reset = caller == "reset"

    @property
    def remaining(self) -> int:
        """Number of batches left of the present epoch: 0 at its end, and all of them
        before the first batch.
        """
        with self._lock:
            return self._batches - self._trained()

    def rest(self) -> keras.utils.PyDataset:
        """Return the batches left of the present epoch, for ``fit`` after
        ``load_state_dict``.

        Raises:
            FailedPreconditionError: the epoch is complete.

        >>> dataset = PyDataset(Dataset.from_tensor_slices(np.arange(6)).batch(1), 6)
        >>> state = {**dataset.state_dict(), "given": 4}
        >>> dataset.load_state_dict(state)
        >>> len(dataset.rest()), len(dataset)
        (2, 6)
        """
        if not self.remaining:
            raise FailedPreconditionError(
                f"the epoch of {self._batches} batches is complete. Go on with the dataset itself, "
                "and with the next `initial_epoch`"
            )
        self._steps_from = self._batches - self.remaining
        return _Remainder(self, self.remaining)

    def on_epoch_begin(self) -> None:
        """Do nothing: Keras also calls it before it asks for a batch to learn
        shapes.
        """

    def on_epoch_end(self) -> None:
        """Note that Keras has trained on the batches that it has asked for."""
        self._has_ended = True

    def __iter__(self) -> Iterator[Any]:
        """Yield the batches of an epoch."""
        for index in range(self._batches):
            yield self[index]

    def __getitem__(self, index: int) -> Any:
        """Return the next batch, whatever the index is.

        Raises:
            FailedPreconditionError: the dataset ended within an epoch.
            TypeError: the batch has a form that Keras does not accept.
        """
        with _calls, self._turn:
            if self._is_counted_anew:
                self._count_anew()
            batch = self._back.popleft() if self._back else self._read()
            with self._lock:
                self._hand_out(batch)
            return batch.content

    def _hand_out(self, batch: _Batch) -> None:
        if self._given == self._batches:
            self._places = {0: self._places[self._given]}
            self._given = self._handed_out = self._steps_from = 0
            self._kept = []
        self._given += 1
        self._handed_out += 1
        self._has_ended = False
        self._places[self._given] = batch.place
        self._places.pop(self._given - _PLACES, None)
        if self._handed_out <= _KEPT:
            self._kept.append(batch)
        else:
            self._kept = []

    def _trained(self) -> int:
        """Return the number of batches of this epoch that do not come again."""
        return self._given - (self._handed_out if self._come_again() else 0)

    def _come_again(self) -> bool:
        """Return True if Keras has asked for the last batches to learn their shapes.

        A whole epoch of one or two batches counts as trained, unless Keras says that it
        resets its iterator.
        """
        return (
            self._is_counted_anew
            and self._is_untrained
            and 0 < self._handed_out == len(self._kept)
            and (self._given < self._batches or self._is_reset)
        )

    def _count_anew(self) -> None:
        """Prepare the first batch after Keras has begun to count from 0."""
        with self._lock:
            come_again, before = self._come_again(), self._trained()
            self._is_counted_anew = False
            if come_again:
                self._back.extendleft(reversed(self._kept))
                self._given, self._handed_out, self._kept = before, 0, []
                return
            if self._given == self._batches or not self._handed_out:
                return
            # The epoch was broken off.
            if self._cardinality == INFINITE_CARDINALITY:
                self._places = {0: self._places[self._given]}
                self._given, self._steps_from, self._read_count = 0, 0, len(self._back)
                self._handed_out, self._kept = 0, []
                return
        self._drop_source()

    def _open(self) -> DatasetIterator:
        if self._source is None:
            self._source = iter(self._numbered)
            self._places[self._given] = self._source.bookmark()
        return self._source

    def _drop_source(self) -> None:
        if self._source is not None:
            self._source.close()
        with self._lock:
            self._source = None
            self._begin(0)

    def _read(self) -> _Batch:
        source = self._open()
        if self._read_count == self._batches:
            self._read_count = 0
        numbered = next(source, None)
        if numbered is None or (numbered[0] == 0 and self._read_count):
            count = self._read_count
            self._drop_source()
            _refuse_end(count, self._batches)
        self._read_count += 1
        self._nesting.check(numbered[1])
        return _Batch(_batch_for_keras(numbered[1]), source.bookmark())

    def stats(self, *, scalars: bool = False) -> dict[str, Any]:
        """Return why the training waits, as ``DatasetIterator.stats``.

        Args:
            scalars: True to leave out texts.

        Raises:
            FailedPreconditionError: no batch was read, or the dataset is not
                distributed.
        """
        if self._source is None:
            raise FailedPreconditionError(
                "`stats` tells why a training waits, and no batch of this dataset was read since "
                "it was opened or closed. Call it during `fit`, from a callback"
            )
        return self._source.stats(scalars=scalars)

    def state_dict(self, steps: int | None = None) -> dict[str, Any]:
        """Return the position as plain values.

        Args:
            steps: number of batches of the present epoch, or of its ``rest()``, that
                count as read. None: all that Keras has asked for. This is exact at the
                end of an epoch, and at any time with PyTorch, and with JAX on CPU.
                TensorFlow, and JAX on an accelerator, read ahead: pass ``batch + 1`` in
                a callback's ``on_train_batch_end(batch)``.

        Raises:
            InvalidArgumentError: Keras has not asked for so many batches, or for too
                many since.
            DataServiceError: an operation cannot save its position.

        >>> numbers = Dataset.from_tensor_slices(np.arange(6)).batch(1)
        >>> first, again = PyDataset(numbers, 6), PyDataset(numbers, 6)
        >>> _ = first[0], first[1]
        >>> again.load_state_dict(first.state_dict())
        >>> again[2], again.remaining
        (array([2]), 3)
        """
        if self._source is None:
            with self._turn:
                self._open()
        with self._lock:
            count = self._trained()
            if steps is not None:
                count = self._steps_from + at_least("steps", steps, 0)
            place = self._places.get(count)
        if place is None:
            raise InvalidArgumentError(
                f"steps={steps}: Keras has asked for {self._given} batches of this epoch, and the "
                f"positions of the last {_PLACES} are kept. Pass the number of steps that this "
                "epoch has had"
            )
        state = _PyDatasetState(batches=self._batches, given=count, iterator=place())
        return msgspec.structs.asdict(state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the position at which ``state_dict`` was called.

        If batches of the epoch ``e`` remain, as ``remaining`` says, train on them with
        ``fit(dataset.rest(), initial_epoch=e, epochs=e + 1)``. Go on with the dataset
        itself, with ``initial_epoch=e + 1``.

        Raises:
            InvalidArgumentError: the argument is not a state of a ``PyDataset``, or of
                one with another number of batches.
            FailedPreconditionError: the state belongs to another pipeline.
        """
        try:
            saved = msgspec.convert(state, _PyDatasetState)
        except msgspec.ValidationError as error:
            raise InvalidArgumentError(
                f"a state must be a dict that state_dict() of a PyDataset returned: {error}"
            ) from None
        if saved.batches != self._batches:
            raise InvalidArgumentError(
                f"the state is of epochs of {saved.batches} batches, and this PyDataset has epochs "
                f"of {self._batches}: make it with batches={saved.batches}"
            )
        with self._turn:
            self._open().load_state_dict(saved.iterator)
            with self._lock:
                self._begin(saved.given)

    def close(self) -> None:
        """Stop reading. A batch asked for afterwards is of another repetition.
        Idempotent; also called when the dataset is garbage-collected. TensorFlow keeps
        datasets that a model was trained on until the end of the program.
        """
        source = self._source
        if source is not None:
            source.close()  # ends the wait of a thread that has the turn
        if self._turn.acquire(timeout=_CLOSE_WITHIN):  # a function of the user may run on
            try:
                self._drop_source()
            finally:
                self._turn.release()


class _Remainder(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types here
    """The batches left of an epoch of a ``PyDataset``, with which it shares the
    position.
    """

    def __init__(self, whole: PyDataset, count: int) -> None:
        super().__init__()
        self._whole, self._count = whole, count

    def __len__(self) -> int:
        return self._count

    @property
    def num_batches(self) -> int:
        """Number of batches left when this object was made."""
        self._whole._note_question(sys._getframe(1))
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._whole[index]

    def on_epoch_end(self) -> None:
        """Note that Keras has trained on the batches that it has asked for."""
        self._whole.on_epoch_end()


_calls = ForeignCalls()


@dataclass(frozen=True)
class _Batch:
    """A batch, and the position behind it."""

    content: Any
    """The batch, as Keras gets it."""
    place: Callable[[], dict[str, Any]]
    """Returns the state of the source after it."""


class _PyDatasetState(msgspec.Struct, frozen=True):
    """The content of a state dict, as it is validated when it is loaded."""

    batches: int
    """Number of batches in an epoch."""
    given: int
    """Number of batches of the epoch that were read."""
    iterator: dict[str, Any]
    """State of the dataset's iterator."""


def _check_count(cardinality: int, batches: int) -> None:
    """Raise if a dataset of known length ends within an epoch."""
    if cardinality == 0:
        raise InvalidArgumentError("the dataset is empty, and Keras needs at least one batch")
    if cardinality > 0 and cardinality % batches:
        whole = cardinality // batches * batches
        instead = f", or take({whole}) of it" if whole else ""
        raise InvalidArgumentError(
            f"the dataset has {cardinality} batches, and epochs of batches={batches} would end "
            f"within them. Pass batches={cardinality}, or a dataset that goes on, as repeat() "
            f"makes it{instead}"
        )


def _refuse_end(count: int, batches: int) -> NoReturn:
    if not count:
        raise FailedPreconditionError(
            "the dataset has ended without a single batch. Is its input empty, or was it read by "
            "others?"
        )
    raise FailedPreconditionError(
        f"the dataset has ended after {count} batches of an epoch of batches={batches}: "
        f"{batches - count} are missing. Pass the number that a repetition has, or a dataset that "
        "goes on, as repeat() makes it"
    )


def _batch_for_keras(element: Any) -> Any:
    """Return an element in a form that each back end accepts.

    Raises:
        TypeError: Keras does not take it; the text names the part.
    """
    if isinstance(element, tuple) and element and element[-1] is None:
        # TensorFlow's back end does not take None in the place of weights.
        return _batch_for_keras(tuple(element[:-1]))
    _check_form(element)
    return map_arrays(_native, element)


def _native(array: Any) -> Any:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _check_form(element: Any) -> None:
    """Raise a TypeError if Keras does not take an element, or elements with a spec."""
    if isinstance(element, tuple) and len(element) not in (1, 2, 3):
        raise TypeError(
            f"an element is a tuple of {len(element)} parts, and Keras takes x, (x, y) or "
            "(x, y, sample_weight). Several inputs are a dict or a tuple in the place of x: "
            "`map(lambda a, b, y: ((a, b), y))`"
        )
    for place, leaf in zip(places_of(element, "element"), leaves_of(element), strict=True):
        if isinstance(leaf, NoneTensorSpec) or (
            isinstance(leaf, TensorSpec) and leaf == ANY_OBJECT
        ):
            continue  # it may be a weight that is always None
        remedy = _remedy(leaf)
        if remedy:
            raise TypeError(f"{place} is {_kind(leaf)}, and Keras takes arrays of rows. {remedy}")


def _remedy(leaf: Any) -> str:
    """Return what to do about a leaf that Keras does not take; "" if Keras takes it."""
    if isinstance(leaf, (RaggedTensor, RaggedTensorSpec)):
        return (
            "Pad it: use `padded_batch` in place of `ragged_batch`, or "
            "`map(lambda x: x.to_tensor())`"
        )
    if isinstance(leaf, (Dataset, DatasetSpec)):
        return "Make a batch of it: `flat_map(lambda window: window.batch(n))`"
    if isinstance(leaf, np.ma.MaskedArray):
        return "Fill it in the pipeline: `map(lambda x: x.filled(0))`"
    if leaf is None:
        return "Leave it out: of the parts, only the last ones may be None"
    if not isinstance(leaf, (np.ndarray, TensorSpec)) or leaf.shape == ():
        return "Make batches with `batch(n)`, or leave it out"
    if leaf.dtype.kind in "USOMm" or leaf.dtype.names:
        return (
            "Make numbers of it in the pipeline. With TensorFlow's back end, texts reach a model "
            "by `fit(zmqdata.tensorflow.to_tf_dataset(ds))`"
        )
    return ""


def _kind(leaf: Any) -> str:
    if isinstance(leaf, (RaggedTensor, RaggedTensorSpec)):
        return "a ragged tensor"
    if isinstance(leaf, (Dataset, DatasetSpec)):
        return "a dataset"
    if isinstance(leaf, np.ma.MaskedArray):
        return "a masked array"
    if not isinstance(leaf, (np.ndarray, TensorSpec)):
        return "None" if leaf is None else f"a single {type(leaf).__name__}"
    single = "a single value of dtype " if leaf.shape == () else ""
    return f"{single}{dtype_name(leaf.dtype)}"
