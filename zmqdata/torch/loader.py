"""``Loader``: batches of a dataset as tensors, with what training programs ask of a
``DataLoader``.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Generic, NamedTuple, get_args

import msgspec
import torch

from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.dataset.arguments import positive
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.recipes import names_arguments
from zmqdata.torch.devices import Copier, checked_device
from zmqdata.torch.iterables import Batch, LoaderDataset
from zmqdata.torch.lightning import takes_ahead
from zmqdata.torch.ranks import consumer_of
from zmqdata.torch.supplies import DatasetSupply, LoaderState, Pass, Supply, read_by, short, unread
from zmqdata.words import Finite

VERSION = 1
"""Version of the form of states. A change of their content increments it."""
SPAN = "zmqdata.next"
"""Name under which torch's profiler shows the wait of a loop for a batch."""


class Loader(Generic[Batch]):
    """Batches of a dataset as tensors.

    Each ``iter(loader)`` begins the next pass. Elements keep their nesting. Arrays and
    numbers are tensors that the loop may write to; texts and objects stay what they
    are. What arrives from the service is not copied. A type checker learns the type of
    a batch from you: ``loader: Loader[tuple[Tensor, Tensor]] = Loader(dataset)``.

    Equivalent of torch's ``DataLoader``, without being one: it has the attributes and
    methods that training libraries ask for, and they leave it alone.

    Args:
        dataset: a dataset whose elements are batches, distributed or not.
        device: device on which batches arrive. They are copied ahead of the loop. None:
            they stay in main memory.
        pin_memory: True to copy batches into pinned memory. None: if ``device`` is an
            accelerator.
        prefetch: number of batches that are converted and copied ahead.
        batches: number of batches of a pass, exactly. None: all that the dataset has.
        consumer_index: number of this consumer among those that share the batches.
            None: the rank of this process.
        num_consumers: number of consumers that share the batches. None: the number of
            ranks; 1: this process reads all of them.
        finite: what happens if the last batches do not suffice for a batch of each
            consumer: ``"drop"`` leaves them out, fewer than there are consumers;
            ``"pad"`` repeats batches. All consumers have equally many batches.

    Raises (from the constructor and from ``iter``):
        TypeError: ``dataset`` is not a ``Dataset``.
        InvalidArgumentError: the device does not exist, an argument has an invalid
            value, or the dataset has too few batches.

    Example:
        >>> import zmqdata
        >>> from zmqdata.torch import Loader
        >>> loader = Loader(zmqdata.Dataset.range(5).batch(2))
        >>> [batch.tolist() for batch in loader], len(loader)
        ([[0, 1], [2, 3], [4]], 3)
    """

    sampler: Any = None
    batch_sampler: Any = None
    batch_size: int | None = None
    drop_last = False
    num_workers = 0

    @names_arguments
    def __init__(
        self,
        dataset: Dataset,
        *,
        device: Any = None,
        pin_memory: bool | None = None,
        prefetch: int = 2,
        batches: int | None = None,
        consumer_index: int | None = None,
        num_consumers: int | None = None,
        finite: Finite = "drop",
    ) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"`dataset` must be a zmqdata Dataset, got {type(dataset).__name__}. A DataLoader "
                "of torch becomes a Loader by `zmqdata.torch.distribute_dataloader`"
            )
        count = None if batches is None else positive("batches", "batches", batches)
        if finite not in get_args(Finite):
            raise InvalidArgumentError(f"`finite` must be 'drop' or 'pad', got {finite!r}")
        consumer = consumer_of(consumer_index, num_consumers)
        self._set_up(DatasetSupply(dataset, count, consumer, finite), device, pin_memory, prefetch)

    def _set_up(self, supply: Supply, device: Any, pin_memory: bool | None, prefetch: int) -> None:
        self.device, self.pin_memory = checked_device(device, pin_memory)
        self.prefetch_factor = positive("prefetch", "prefetch", prefetch)
        self._latest_supply = supply
        self._epoch = 0
        self._resumed: LoaderState | None = None
        self._skips_empty = False
        self._have_no_iterators()

    def _have_no_iterators(self) -> None:
        self._started: LoaderIterator | None = None
        self._started_from: LoaderState | None = None
        self._current: LoaderIterator | None = None
        self._stream: DatasetIterator | None = None  # of a dataset without an end
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs. Iterators stay where they are."""
        left_out = ("_started", "_current", "_stream", "_iterators")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._have_no_iterators()

    @property
    def _supply(self) -> Supply:
        """The supply of batches for the rank that this process is now."""
        supply = self._latest_supply
        if supply.consumer.is_alone and not supply.consumer.is_given:
            consumer = consumer_of(None, None)
            if not consumer.is_alone:  # its launcher has made it a rank
                self._drop_started()
                self._current = self._stream = None
                self._latest_supply = supply = read_by(supply, consumer)
        return supply

    # --- what training libraries ask for

    @property
    def dataset(self) -> Any:
        """The dataset that is read: of the ``DataLoader``, if it comes from one."""
        return self._latest_supply.dataset

    def __len__(self) -> int:
        """Return the number of batches of a pass.

        Raises:
            TypeError: it is not known before the pass has been read.
        """
        count = self._supply.length()
        if count is None:
            raise TypeError(
                "the number of batches is not known before they have been read. It is known of a "
                "local dataset with a known cardinality, with deterministic=True and with batches=n"
            )
        return count

    def __iter__(self) -> Iterator[Batch]:
        supply = self._supply
        if self._started is not None:
            iterator, self._started = self._started, None
        else:
            iterator = self._begin()
        if self._skips_empty and iterator.resumed is not None and not iterator.has_batch(supply):
            iterator = self._begin()
        self._skips_empty = False
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if iterator.count is None and takes_ahead(caller):
            iterator.look_back(supply)
        self._current = iterator
        # The reader of a dataset around this loader may take batches ahead of the loop.
        is_read_by_loop = caller != LoaderDataset.__module__
        return AcceleratedIterator(iterator) if _gradients() and is_read_by_loop else iterator

    def start(self) -> None:
        """Begin the next pass now: batches are made while the program does something
        else, such as restoring a model. The next ``iter`` continues with it.
        """
        if self._started is None:
            self._started_from = self._resumed
            self._started = self._begin()

    def _begin(self) -> LoaderIterator:
        state, self._resumed = self._resumed, None
        if state is None:
            read = self._supply.begin(self._epoch)
        else:
            self._epoch, read = state.epoch, self._supply.resume(state.epoch, state)
        stream = self._stream if read.is_endless and state is None else None
        copier = Copier(self.device, self.pin_memory)
        iterator = LoaderIterator(read, self._epoch, self.prefetch_factor, copier, stream)
        iterator.resumed = None if state is None else self._supply.present()
        self._stream = iterator.elements if read.is_endless else None
        self._epoch += 1
        self._iterators.add(iterator)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass, for samplers and datasets that draw by it.

        Equivalent of ``DistributedSampler.set_epoch``. A pass that ``start`` has begun
        goes on if it has this number, and no sampler or dataset could change it.

        Args:
            epoch: number of the pass, from 0.
        """
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
            raise InvalidArgumentError(f"`epoch` must be a number of at least 0, got {epoch!r}")
        supply, started = self._supply, self._started
        is_same = started is not None and started.epoch == epoch
        if not (is_same and supply.knows_epoch(self._started_from is not None)):
            self._drop_started()
            if self._resumed is None or self._resumed.epoch != epoch:
                self._epoch = epoch
            # Otherwise the state knows this pass, and only the dataset has to be told.
        supply.set_epoch(epoch)

    def _drop_started(self) -> None:
        """End a pass that no loop has asked for yet. The next pass begins where it has
        begun.
        """
        if self._started is not None:
            if not self._started.is_endless:  # the stream goes on
                self._started.close()
            self._epoch, self._resumed = self._started.epoch, self._started_from
            self._started = None

    def stats(self, *, scalars: bool = False) -> dict[str, Any]:
        """Return why the loop waits, as a flat dict for W&B, TensorBoard or MLflow. It
        tells of the present pass, or of the last one.

        Args:
            scalars: True to leave out texts, for trackers that take numbers only.

        Returns:
            A dict as of ``DatasetIterator.stats``.

        Raises:
            FailedPreconditionError: no pass has begun, or the batches do not come from
                the service.

        Example:
            >>> import zmqdata
            >>> from zmqdata.torch import Loader
            >>> with zmqdata.LocalCluster(1, in_process=True) as cluster:
            ...     read = zmqdata.distribute("distributed_epoch", cluster.target)
            ...     loader = Loader(zmqdata.Dataset.range(5).batch(2).apply(read))
            ...     _ = list(loader)
            ...     int(loader.stats()["data/elements"])
            3

        Has no counterpart in torch.
        """
        if self._current is None:
            raise unread()
        return self._current.elements.stats(scalars=scalars)

    # --- states

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop stands: behind the last batch that it has received.

        Batches that were made or copied ahead count as not received. At the end of a
        pass, the state is that of the beginning of the next.

        Returns:
            A dict of numbers and texts, which ``torch.load`` reads with
            ``weights_only=True``. It has the same keys at any time.
        """
        return self._state_now()

    def trainer_state(self, ahead: int = 0, is_over: bool = False) -> dict[str, Any]:
        """Return the state for a training library that counts steps itself. For it, a
        pass is over with its last batch, and not when the loop asks for another one.

        Args:
            ahead: number of batches that the library has taken for later steps, 0 or 1.
            is_over: True if the library has ended the pass before its last batch.

        Raises:
            FailedPreconditionError: the place before the last batch is not known.
        """
        current = self._current
        is_full = current is not None and not ahead and current.is_full()
        return self._state_now(ahead, is_over or is_full)

    def settle(self) -> None:
        """Set the global generators as they were when the pass continued from a state,
        after a training library has drawn from them.
        """
        if self._current is not None and self._current.resumed is not None:
            self._supply.settle(self._current.resumed)

    def _state_now(self, ahead: int = 0, is_over: bool = False) -> dict[str, Any]:
        supply, current = self._supply, self._current
        if current is None or current.is_over or is_over:
            current, ahead = self._started, 0
        if current is not None:
            place = current.place(supply, ahead)
            return self._state(current.epoch, place, current.source(), current.generators)
        if self._resumed is not None:
            return dict(msgspec.to_builtins(self._resumed))
        place, before = LoopPlace(0, b""), self._current
        if before is not None and supply.is_continued:
            position = before.place(supply).position
            place = LoopPlace(0, position, is_next=not before.is_endless)
        return self._state(self._epoch, place, "", supply.present())

    def _state(
        self, epoch: int, place: LoopPlace, source: str, generators: bytes
    ) -> dict[str, Any]:
        supply = self._supply
        state = LoaderState(
            VERSION,
            supply.name,
            epoch,
            place.batches,
            supply.consumer.count,
            place.position,
            place.is_next,
            source,
            generators,
            supply.rank_states(generators, source),
        )
        return dict(msgspec.to_builtins(state))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the next ``iter`` where a state was taken.

        Args:
            state: the result of ``state_dict``, of any process of the program that
                reads this dataset.

        Raises:
            InvalidArgumentError: it is not a state of a loader.
            FailedPreconditionError: it is a state of another kind of loader, or of
                another dataset. The latter may also be raised by ``iter``.
        """
        saved = _checked(state)
        if saved.kind != self._supply.name:
            raise FailedPreconditionError(
                f"this state is of a loader of kind {saved.kind!r}, and this loader is of kind "
                f"{self._supply.name!r}: it reads something else"
            )
        self._supply.check(saved)
        self._drop_started()
        self._current = None
        self._resumed = saved

    def load_trainer_state(self, state: dict[str, Any]) -> None:
        """Load a state for a training library that counts steps itself, and takes a
        pass without a batch for the end of the training. If the state was taken behind
        the last batch of a pass, continue with the next pass.

        Args:
            state: the result of ``trainer_state``.

        Raises:
            InvalidArgumentError: as ``load_state_dict``.
            FailedPreconditionError: as ``load_state_dict``.
        """
        self.load_state_dict(state)
        self._skips_empty = True

    @property
    def is_resumed(self) -> bool:
        """True if a state is loaded from which no pass has begun yet."""
        return self._resumed is not None

    @property
    def is_divided(self) -> bool:
        """True if each batch goes to one of the processes that hold a copy of this
        loader.
        """
        return self._supply.is_divided

    def as_iterable_dataset(self) -> LoaderDataset:
        """Return the batches as an iterable-style dataset, for a program that needs a
        ``DataLoader``. A ``Loader`` needs none around it.

        Both the dataset and its iterators have ``state_dict`` and ``load_state_dict``,
        so a ``StatefulDataLoader`` of torchdata resumes exactly. Pass
        ``batch_size=None``, and ``num_workers=0`` or 1. With more processes, each batch
        comes once if the dataset is distributed without an order, and reading anything
        else is refused.

        A process of a ``DataLoader`` that does not live on counts no passes. With
        ``num_workers=1`` and a ``DataLoader`` that has a ``generator``, pass
        ``persistent_workers=True``; otherwise each pass has the order of the first.

        Example:
            >>> import torch, zmqdata
            >>> from zmqdata.torch import Loader
            >>> loader = Loader(zmqdata.Dataset.range(4).batch(2))
            >>> dataset = loader.as_iterable_dataset()
            >>> around = torch.utils.data.DataLoader(dataset, batch_size=None)
            >>> [batch.tolist() for batch in around]
            [[0, 1], [2, 3]]
        """
        return LoaderDataset(self)

    @property
    def is_padding(self) -> bool:
        """True if the last batch repeats one that another consumer has had, because
        ``finite="pad"`` fills the last step. An evaluation leaves it out.

        Raises:
            FailedPreconditionError: it is not known of a ``Dataset`` that is read with
                ``finite="pad"``.
        """
        return self._current is not None and self._current.is_padding

    def skip(self, count: int) -> None:
        """Leave out the next batches of the running pass, or of the next pass.

        Args:
            count: number of batches.

        Raises:
            InvalidArgumentError: the pass has fewer batches.
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidArgumentError(f"`count` must be a number of at least 0, got {count!r}")
        if self._current is None or self._current.is_over:
            self.start()
            assert self._started is not None
            iterator = self._started
        else:
            iterator = self._current
        for skipped in range(count):
            if next(iterator, _END) is _END:
                raise InvalidArgumentError(
                    f"`skip({count})` reached the end of the pass after {skipped} batches"
                )

    def close(self) -> None:
        """End all iterators of this loader. Idempotent."""
        self._drop_started()
        for iterator in list(self._iterators):
            iterator.close()

    def __enter__(self) -> Loader[Batch]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_END = object()


class LoopPlace(NamedTuple):
    """A place in a pass, as far as a state knows it."""

    batches: int
    """Number of batches of the pass that were received."""
    position: bytes
    """Position in the pass."""
    is_next: bool = False
    """True if the position is the end of the pass before."""


class _Copied:
    """A batch on its way to its device, as an element that operations leave alone."""

    __slots__ = ("batch", "copying")

    def __init__(self, batch: Any, copying: Any) -> None:
        self.batch = batch
        self.copying = copying


class LoaderIterator:
    """An iterator over a pass of a ``Loader``.

    Threads may share it: each batch goes to one of them, and all learn of the end.

    Args:
        read: the pass.
        epoch: number of the pass.
        prefetch: number of batches to convert and copy ahead.
        copier: copies batches to their device.
        stream: elements to go on with; None: those of the pass.

    Attributes:
        epoch: number of the pass.
        elements: the batches as elements.
        is_over: True after the last batch.
        resumed: generators as they were when the pass continued from a state; None if
            it did not.
    """

    def __init__(
        self,
        read: Pass,
        epoch: int,
        prefetch: int,
        copier: Copier,
        stream: DatasetIterator | None = None,
    ) -> None:
        self._read = read
        self.epoch = epoch
        self._copier = copier
        self._prefetch = prefetch
        self._count = read.first
        self.is_over = False
        self.resumed: bytes | None = None
        self._lock = threading.Lock()
        self._looks_back: Supply | None = None
        self._before: LoopPlace | None = None
        self._ahead: list[Any] = []
        self.elements = self._begun() if stream is None else stream

    def _begun(self) -> DatasetIterator:
        """Return the elements of the pass, from its position on."""
        read, copier = self._read, self._copier
        batches = read.batches
        if not copier.is_idle:
            content = read.content
            batches = batches.map(lambda *element: _Copied(*copier.begin(content(_one(element)))))
            batches = batches.prefetch(self._prefetch)
        elements = _resumed(batches, read.position) if read.position else None
        if elements is not None and not read.is_next:
            return elements
        if elements is not None:
            # The end of the pass before says which repetition of which job follows.
            elements.close()
        # As in a program that was not interrupted:
        batches._iterations = self.epoch
        return iter(batches)

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        with torch.autograd.profiler.record_function(SPAN), self._lock:
            if self._ahead:
                self._count += 1
                return self._ahead.pop()
            if self.is_over or self.is_full():
                self._end()
            if self._looks_back is not None:
                self._before = self._place(self._looks_back)
            return self._take()

    def _take(self) -> Any:
        """Return the next batch, and count it."""
        try:
            element = next(self.elements)
            if isinstance(element, _Copied):
                batch = self._copier.arrived(element.batch, element.copying)
            else:
                batch = self._read.content(element)
        except StopIteration:
            self._end()
        except Exception as error:
            if not getattr(error, "final", False):
                self._count += 1  # The error stands for a batch.
            raise
        self._count += 1
        return batch

    def has_batch(self, supply: Supply) -> bool:
        """Return True if the pass has another batch, which is kept for the loop."""
        if self.is_full():
            return False
        with self._lock:
            self._before = self._place(supply)
            try:
                batch = self._take()
            except StopIteration:
                return False
            self._count -= 1
            self._ahead.append(batch)
            return True

    def is_full(self) -> bool:
        """Return True if all batches of the pass have been received."""
        return self._read.count is not None and self._count >= self._read.count

    def _end(self) -> None:
        """Raise StopIteration, or the error for a pass that has too few batches."""
        is_first = not self.is_over
        self.is_over = True
        if is_first:
            if not self._read.is_endless:
                self.elements.close()
            if self._read.count is not None and self._count < self._read.count:
                raise short(self._read.count, self._count)
        raise StopIteration

    def look_back(self, supply: Supply) -> None:
        """Keep the place before the last batch from now on."""
        self._looks_back = supply

    def place(self, supply: Supply, ahead: int = 0) -> LoopPlace:
        """Return the place of the loop in the pass.

        Args:
            supply: the supply of the pass.
            ahead: number of the last batches that do not count as received, 0 or 1.

        Raises:
            FailedPreconditionError: the place before these batches is not known.
        """
        with self._lock:
            if not ahead:
                return self._place(supply)
            if ahead > 1 or self._before is None:
                raise FailedPreconditionError(
                    f"the training library has taken {ahead} batches for later steps, and the "
                    "place before them is not known. Pass `batches=` to the Loader, with the "
                    "number of batches of a pass: a library takes nothing ahead if it knows that"
                )
            return self._before

    def _place(self, supply: Supply) -> LoopPlace:
        if self._ahead:
            assert self._before is not None
            return self._before
        return LoopPlace(self._count, supply.position(self.elements, self._read, self._count))

    @property
    def count(self) -> int | None:
        """Number of batches of the whole pass; None if unknown."""
        return self._read.count

    @property
    def is_endless(self) -> bool:
        """True if the next pass goes on where this one has ended."""
        return self._read.is_endless

    def source(self) -> str:
        """Return by what a state knows again what is read."""
        return self._read.source()

    @property
    def generators(self) -> bytes:
        """Generators of torch as they were when the pass began."""
        return self._read.generators

    @property
    def is_padding(self) -> bool:
        """True if another consumer has had the last batch, too."""
        count, padding = self._read.count, self._read.padding
        if padding is None:
            raise FailedPreconditionError(
                "which batches of a Dataset repeat others is not known with `finite='pad'`. Mark "
                "them by a number in the elements, such as that of `enumerate()`, or wrap a "
                "DataLoader by `distribute_dataloader`"
            )
        return count is not None and self._count > count - padding

    def close(self) -> None:
        """End the pass, and release its threads and connections. Idempotent."""
        self.is_over = True
        self.elements.close()


class AcceleratedIterator:
    """An iterator over a pass, from which accelerate learns of the end of the pass, as
    from its own loaders. It knows the iterator until the loop drops it.

    Args:
        iterator: the iterator.
    """

    remainder = 0
    """Number of samples that the last batch repeats, as accelerate asks for it."""

    def __init__(self, iterator: LoaderIterator) -> None:
        self._iterator = iterator
        _show_accelerate(self)
        weakref.finalize(self, _show_accelerate).atexit = False

    @property
    def end_of_dataloader(self) -> bool:
        """True if the loop has the last batch of a pass whose length is known."""
        return self._iterator.is_full()

    def __iter__(self) -> AcceleratedIterator:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._iterator)
        except StopIteration:
            _show_accelerate(without=self)
            raise


def _gradients() -> Any:
    """Return the state in which accelerate knows the loaders that are read; None if the
    program does not use it.
    """
    kind = getattr(sys.modules.get("accelerate.state"), "GradientState", None)
    return kind() if kind is not None and kind._shared_state else None


def _show_accelerate(
    read: AcceleratedIterator | None = None, without: AcceleratedIterator | None = None
) -> None:
    """Tell accelerate that an iterator is read, or is read no more."""
    gradients = _gradients()
    if gradients is not None:
        known = gradients.dataloader_references
        # Those that were dropped are None, and so is the first, which stays.
        still = [one for one in known if one is not None and one is not without]
        gradients.dataloader_references = [None, *still, *([] if read is None else [read])]


def _resumed(batches: Dataset, position: bytes) -> DatasetIterator:
    """Return an iterator that continues at a position.

    Raises:
        FailedPreconditionError: the position belongs to another pipeline.
    """
    try:
        return batches._resumed(msgspec.msgpack.decode(position))
    except InvalidArgumentError as error:
        raise FailedPreconditionError(
            "this state is of a loader over other operations. A loader with `device=` or "
            "`pin_memory=` has operations of its own: load its state into a loader that has "
            f"one of them, too, such as `device='cpu'`. {error}"
        ) from None


def _one(element: tuple[Any, ...]) -> Any:
    return element[0] if len(element) == 1 else element


def _checked(state: Any) -> LoaderState:
    try:
        saved = msgspec.convert(state, LoaderState)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(
            f"a state must be a dict that state_dict() of a Loader returned, got a "
            f"{type(state).__name__}: {error}"
        ) from None
    if saved.version > VERSION:
        raise InvalidArgumentError(
            f"the state has version {saved.version}, and this zmqdata reads up to {VERSION}"
        )
    return saved
