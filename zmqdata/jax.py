"""JAX: the elements of a dataset on devices, copied ahead of the training loop.

This module needs JAX (``pip install 'zmqdata[jax]'``), and no other module imports it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np

from zmqdata.config.checks import at_least, refuse
from zmqdata.config.settings import warn_user
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.dataset.feeding import Feed, State
from zmqdata.elements.nesting import EqualNesting, leaves_of, map_structure, nesting_of, places_of
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.specs import DatasetSpec, NoneTensorSpec
from zmqdata.elements.tensors import as_stackable
from zmqdata.errors import CancelledError, FailedPreconditionError
from zmqdata.machine.threads import this_thread
from zmqdata.nodes.base import known_spec
from zmqdata.recipes import names_arguments
from zmqdata.transport.forks import check_process

try:
    import jax
except ModuleNotFoundError as error:
    if error.name != "jax":
        raise
    raise ImportError(
        "`zmqdata.jax` needs JAX, which is not installed in this environment. Install it: "
        "`pip install 'zmqdata[jax]'`"
    ) from None

_enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64

_ACCELERATORS = frozenset({"gpu", "cuda", "rocm", "tpu"})
"""Platforms whose devices have memory of their own. An array on another platform may
share the memory of the numpy array that it was made from.
"""


@names_arguments
def device_iterator(
    ds: Dataset, sharding: Any = None, prefetch: int = 2, dtypes: Literal["jax", "strict"] = "jax"
) -> DeviceIterator:
    """Return an iterator over the elements of a dataset as JAX arrays on devices.

    A thread reads elements and starts their copies, so that the training loop waits for
    neither. The nesting of elements stays: dicts, tuples, namedtuples, and None.

    Args:
        ds: the dataset, read in this process or distributed. Its leaves are numbers or
            arrays of numbers.
        sharding: how a batch is divided among devices: a ``jax.sharding.Sharding``, a
            device, or a nesting of them as the elements have it. The rows that this
            process reads are its part of a global array, with one process and with
            several. All processes must read equally many batches of equal shapes, by
            coordinated reads of batches with ``drop_remainder=True``. None: the default
            device.
        prefetch: limit of the batches that are held ahead of the loop. 0: no thread;
            each batch is read when the loop asks for it.
        dtypes: ``"jax"`` lets JAX narrow 64-bit numbers to 32 bits unless
            ``jax_enable_x64`` is set; a warning names the leaves, once. ``"strict"``
            refuses such leaves.

    Returns:
        An iterator over one repetition. No array shares memory with the dataset or with
        another array, so a jitted function may donate it.

    Raises:
        TypeError: ``ds`` is not a dataset, or a leaf is known to be a text, an object,
            a ragged tensor or of another dtype that JAX does not have. The text names
            the leaf. Leaves that become known later raise it from ``next``.
        ValueError: ``prefetch`` is negative, or ``dtypes`` is another word.

    >>> dataset = Dataset.range(5).map(np.float32).batch(3)
    >>> with device_iterator(dataset) as batches:
    ...     print([batch.sum().item() for batch in batches])
    [3.0, 7.0]

    Has no counterpart in tf.data. Grain has ``grain.experimental.device_put``.
    """
    if not isinstance(ds, Dataset):
        refuse("ds", ds, "a Dataset")
    most = at_least("prefetch", prefetch, 0)
    if dtypes not in ("jax", "strict"):
        raise ValueError(f'dtypes must be "jax" or "strict", got {dtypes!r}')
    transfer = _Transfer(sharding, strict=dtypes == "strict", copies=not ds.node.runs_elsewhere)
    narrowed = transfer.check(known_spec(ds.node))
    if narrowed:
        warn_user(_narrowing(narrowed))
    return DeviceIterator(iter(ds), transfer, most, is_told=bool(narrowed))


class DeviceIterator:
    """Iterator over the elements of a dataset as JAX arrays, as ``device_iterator``
    makes it.

    An element that was read ahead counts as not read, in ``state_dict`` and for
    ``close``. An error in the pipeline is raised after the elements before it, and the
    next call returns the element after it. At the end, every call raises StopIteration.
    An iterator that is dropped ends its thread.

    Threads may share it: each element goes to one of them.

    Args:
        source: the dataset's iterator.
        transfer: puts an element on devices.
        prefetch: limit of elements that are held ahead.
        is_told: True if the user was warned of narrowed leaves.
    """

    def __init__(
        self, source: DatasetIterator, transfer: _Transfer, prefetch: int, *, is_told: bool
    ) -> None:
        self._source = source
        self._make_feed = partial(Feed, source, transfer.put, prefetch, _settings_of_thread())
        self._feed = self._make_feed()
        self._finalizer = weakref.finalize(self, self._feed.end)
        self._is_told = is_told
        self._closed_by: int | None = None
        self._process = os.getpid()

    def __iter__(self) -> DeviceIterator:
        return self

    def __next__(self) -> Any:
        self._check_process()
        if self._closed_by is not None:
            self._raise_closed()
        element, narrowed = self._feed.take()
        if narrowed and not self._is_told:
            self._is_told = True
            warn_user(_narrowing(narrowed))
        return element

    def state_dict(self) -> State:
        """Return the position after the last element that ``next`` returned, as plain
        values. It is a state of ``iter(ds)``, too.

        Raises:
            DataServiceError: an operation cannot save its position.

        >>> batches = device_iterator(Dataset.range(8).map(np.int32).batch(2))
        >>> _ = next(batches)
        >>> state = batches.state_dict()
        >>> again = device_iterator(Dataset.range(8).map(np.int32).batch(2))
        >>> # In another program, where the code of the pipeline is the same:
        >>> again.load_state_dict(state, strict=False); next(again).tolist()
        [2, 3]
        """
        self._check_process()
        return self._feed.place()

    def stats(self, *, scalars: bool = False) -> dict[str, Any]:
        """Return why the loop waits, as ``DatasetIterator.stats``: of the thread that
        reads ahead, which waits as long as the loop does, but for ``prefetch`` batches.

        Args:
            scalars: True to leave out texts.

        Raises:
            FailedPreconditionError: the dataset is not distributed.
        """
        self._check_process()
        return self._source.stats(scalars=scalars)

    def load_state_dict(self, state: State, *, strict: bool = True) -> None:
        """Continue at the position at which ``state_dict`` was called. Elements that
        were read ahead are dropped.

        Args:
            state: the result of ``state_dict``, or of ``iter(ds).state_dict()``.
            strict: as of ``DatasetIterator.load_state_dict``.

        Raises:
            FailedPreconditionError: the state belongs to another pipeline, or this
                iterator was closed.
            DataServiceError: the state is damaged or refused, as the dataset's own
                iterator says. This iterator continues where it was.
        """
        self._check_process()
        if self._closed_by is not None:
            raise FailedPreconditionError(
                "This device iterator was closed and reads no more. Make a new one with "
                "`device_iterator(ds)` and load the state there."
            )
        before = self._feed
        before.pause()
        try:
            self._source.load_state_dict(state, strict=strict)
        except BaseException:
            before.resume()
            raise
        before.end()
        self._finalizer.detach()
        self._feed = self._make_feed()
        self._finalizer = weakref.finalize(self, self._feed.end)

    def close(self) -> None:
        """Stop reading and end the thread. Idempotent.

        Elements that were read ahead are dropped; ``state_dict`` still returns the
        position. Another thread that waits for an element gets a ``CancelledError``.
        """
        if self._process != os.getpid():
            return  # the thread and the source belong to the parent of this process
        if self._closed_by is None:
            self._closed_by = this_thread()
        self._finalizer.detach()
        self._feed.end()
        self._source.close()
        self._feed.join()

    def __enter__(self) -> DeviceIterator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _raise_closed(self) -> NoReturn:
        if self._closed_by == this_thread():
            raise StopIteration
        raise CancelledError("The device iterator was closed by another thread")

    def _check_process(self) -> None:
        check_process(
            self._process, "device iterator", "Make a new one in this process, or use 'spawn'."
        )


def _settings_of_thread() -> Callable[[], AbstractContextManager[Any]]:
    """Return what gives another thread the settings that JAX keeps for this one."""
    device, x64 = jax.config.jax_default_device, jax.config.jax_enable_x64

    @contextmanager
    def settings() -> Iterator[None]:
        with jax.default_device(device), _enable_x64(x64):
            yield

    return settings


class _Transfer:
    """Puts elements on devices.

    Args:
        sharding: as of ``device_iterator``.
        strict: True to refuse leaves that JAX would narrow.
        copies: True if a function of the pipeline may write to an array that it has
            returned, which a device may still be reading.
    """

    def __init__(self, sharding: Any, *, strict: bool, copies: bool) -> None:
        self._strict = strict
        self._copies = copies
        self._shardings = map_structure(_as_sharding, sharding)
        self._parts: dict[tuple[Any, int], int] = {}
        self._rows: dict[str, int] = {}
        self._nesting = EqualNesting()
        self._places: list[str] = []
        self._targets: list[Any] | None = None  # shardings, once the nesting is known
        self._dtypes: dict[np.dtype[Any], np.dtype[Any] | None] = {}

    def check(self, spec: Any) -> tuple[str, ...]:
        """Check a spec, or None, and return the places of the leaves that are narrowed.

        Raises:
            TypeError: JAX has no arrays for a leaf, or ``strict`` refuses its dtype.
        """
        narrowed = []
        for place, leaf in zip(places_of(spec, "element"), leaves_of(spec), strict=True):
            if leaf is None or isinstance(leaf, NoneTensorSpec):
                continue
            if isinstance(leaf, (RaggedTensorSpec, DatasetSpec)):
                _refuse_leaf(place, leaf)
            if leaf.shape == () and leaf.dtype.hasobject:
                continue  # it may be None
            if self._dtype(place, leaf.dtype) != leaf.dtype.newbyteorder("="):
                narrowed.append(place)
        return tuple(narrowed)

    def put(self, element: Any) -> tuple[Any, tuple[str, ...]]:
        """Return an element on devices, and the places of its leaves that were
        narrowed.

        Raises:
            TypeError: JAX has no arrays for a leaf, or ``strict`` refuses its dtype.
            InvalidArgumentError: the element is not nested as the first.
            ValueError: the shape of a leaf does not fit its sharding.
            OverflowError: an integer has no value in the narrower dtype.
        """
        nesting = self._nesting.check(element)
        if self._targets is None:
            self._targets = self._shardings_for(nesting)
            self._places = places_of(element, "element")
        arrays: list[Any] = []
        narrowed: list[str] = []
        targets = self._targets
        for place, leaf, sharding in zip(self._places, leaves_of(element), targets, strict=True):
            if leaf is None:
                arrays.append(None)
                continue
            array = self._array(place, leaf)
            dtype = self._dtype(place, array.dtype)
            if dtype != array.dtype.newbyteorder("="):
                narrowed.append(place)
                _check_fits(place, array, dtype)
            is_copied = self._copies or _shares(sharding)
            arrays.append(np.array(array, dtype) if is_copied else np.asarray(array, dtype))
            self._check_rows(place, array.shape, sharding)
        return nesting.unflatten(self._on_devices(arrays, targets)), tuple(narrowed)

    def _shardings_for(self, nesting: Any) -> list[Any]:
        """Return the sharding of each leaf of an element."""
        given = nesting_of(self._shardings)
        if given.is_leaf():
            return [self._shardings] * nesting.num_leaves
        if given != nesting:
            raise ValueError(
                f"`sharding` is nested as {given}, and the element is nested as {nesting}. Pass "
                "one sharding for all leaves, or one for each leaf in the nesting of the elements"
            )
        return leaves_of(self._shardings)

    def _array(self, place: str, leaf: Any) -> Any:
        stackable = as_stackable(leaf)
        if isinstance(stackable, np.ma.MaskedArray):
            raise TypeError(
                f"{place} is a masked array, and JAX has none. Fill it in the pipeline: "
                "`map(lambda x: x.filled(0))`"
            )
        if not isinstance(stackable, (np.ndarray, np.generic, bool, int, float, complex)):
            _refuse_leaf(place, leaf)
        return np.asarray(stackable)

    def _dtype(self, place: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype that JAX gives to an array of a dtype."""
        if dtype not in self._dtypes:
            try:
                found = jax.device_put(np.zeros((), dtype.newbyteorder("="))).dtype
            except (TypeError, ValueError, RuntimeError):
                found = None
            self._dtypes[dtype] = found
        found = self._dtypes[dtype]
        if found is None:
            _refuse_dtype(place, dtype)
        if self._strict and found != dtype.newbyteorder("="):
            raise TypeError(
                f"{place} is {dtype_name(dtype)}, which JAX would narrow to {found}, and "
                f'dtypes="strict" refuses that. {_WIDEN}'
            )
        return found

    def _on_devices(self, arrays: list[Any], targets: list[Any]) -> list[Any]:
        """Put the arrays of an element on devices; None stays None."""
        if all(sharding is None for sharding in targets):
            put: list[Any] = jax.device_put(arrays)  # once, as each call costs as much as a copy
            return put
        return [
            None if array is None else self._placed(place, array, sharding)
            for place, array, sharding in zip(self._places, arrays, targets, strict=True)
        ]

    def _placed(self, place: str, array: Any, sharding: Any) -> Any:
        if sharding is None:
            return jax.device_put(array)
        try:
            return jax.make_array_from_process_local_data(sharding, array)
        except (ValueError, IndexError, AssertionError) as error:
            reason = str(error).rstrip(".") or "it divides more axes than there are"
            raise ValueError(
                f"{place} of shape {array.shape} does not fit its sharding {sharding}: {reason}. "
                "Batch the elements first, or pass a sharding for each leaf, in the nesting of the "
                "elements"
            ) from error

    def _check_rows(self, place: str, shape: tuple[int, ...], sharding: Any) -> None:
        """Raise if the rows of a leaf cannot be divided evenly among devices, or other
        processes may have another number of rows.
        """
        if sharding is None or not shape:
            return
        parts = self._parts_of(sharding, len(shape))
        if parts > 1 and shape[0] % parts:
            raise ValueError(
                f"{place} has {shape[0]} rows, which cannot be divided evenly among {parts} "
                "devices. Batches of `batch(n, drop_remainder=True)` with n a multiple of "
                f"{parts} can; without `drop_remainder` the last batch has fewer rows"
            )
        if not sharding.is_fully_addressable and shape[0] != self._rows.setdefault(place, shape[0]):
            raise ValueError(
                f"{place} has {shape[0]} rows, and it had {self._rows[place]} before. A global "
                "array has equally many rows from each process, and a process that gets another "
                "number would wait for ever. Use `batch(n, drop_remainder=True)`"
            )

    def _parts_of(self, sharding: Any, ndim: int) -> int:
        """Return the number of parts into which this process divides the first axis."""
        key = (sharding, ndim)
        if key not in self._parts:
            count = len(sharding.device_set)
            try:
                # Each axis can be divided, whatever the sharding.
                places = sharding.addressable_devices_indices_map((count,) * ndim)
                begins = {index[0].start for index in places.values()} if ndim else {0}
            except (ValueError, IndexError):  # the sharding is for more axes
                begins = {0}
            self._parts[key] = len(begins)
        return self._parts[key]


_WIDEN = (
    "Convert it in the pipeline, for example by `map(lambda x: x.astype(np.int32))`, or let JAX "
    'have 64 bits: `jax.config.update("jax_enable_x64", True)`'
)


def _narrowing(places: tuple[str, ...]) -> str:
    return (
        f"JAX narrows 64-bit numbers to 32 bits, because `jax_enable_x64` is not set: "
        f"{', '.join(places)}. {_WIDEN}. This is said once for an iterator"
    )


def _as_sharding(leaf: Any) -> Any:
    if leaf is None or isinstance(leaf, jax.sharding.Sharding):
        return leaf
    if isinstance(leaf, jax.Device):
        return jax.sharding.SingleDeviceSharding(leaf)
    return refuse("sharding", leaf, "a jax.sharding.Sharding, a device, a nesting of them, or None")


def _shares(sharding: Any) -> bool:
    """Return True if an array with this sharding may share memory with the numpy array
    that it is made from.
    """
    if sharding is None:
        device = jax.config.jax_default_device or jax.local_devices()[0]
        return getattr(device, "platform", device) not in _ACCELERATORS
    if sharding.memory_kind not in (None, "device"):
        return True
    return any(device.platform not in _ACCELERATORS for device in sharding.device_set)


def _check_fits(place: str, array: Any, dtype: np.dtype[Any]) -> None:
    """Raise if an array has an integer that a narrower dtype does not have."""
    if dtype.kind not in "iu" or not array.size:
        return
    limits, least, most = np.iinfo(dtype), int(array.min()), int(array.max())
    if least < limits.min or most > limits.max:
        beyond = most if most > limits.max else least
        raise OverflowError(
            f"{place} is {dtype_name(array.dtype)} and has the value {beyond}, which {dtype} "
            f"cannot hold. {_WIDEN}"
        )


def _refuse_dtype(place: str, dtype: np.dtype[Any]) -> NoReturn:
    raise TypeError(
        f"{place} is {dtype_name(dtype)}, and JAX has arrays of numbers and bools only. "
        "Make numbers of it in the pipeline, or leave it out: "
        '`map(lambda element: {"x": element["x"]})`'
    )


def _refuse_leaf(place: str, leaf: Any) -> NoReturn:
    if isinstance(leaf, (RaggedTensor, RaggedTensorSpec)):
        raise TypeError(
            f"{place} is a ragged tensor, and JAX has arrays of one shape only. Pad it: use "
            "`padded_batch` in place of `ragged_batch`, or `map(lambda x: x.to_tensor())`"
        )
    if isinstance(leaf, (DatasetSpec, Dataset)):
        raise TypeError(
            f"{place} is a dataset, as `window` makes it. Make a batch of it: "
            "`flat_map(lambda window: window.batch(n))`"
        )
    kind = "text" if isinstance(leaf, (str, bytes)) else "an object"
    raise TypeError(
        f"{place} is {kind} of type {type(leaf).__name__}, and JAX has arrays of numbers and bools "
        "only. Make numbers of it in the pipeline, or leave it out: "
        '`map(lambda element: {"x": element["x"]})`'
    )
