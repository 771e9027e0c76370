"""``Loader``: batches of a dataset as tensors, with what training programs ask of a
``DataLoader``.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from functools import partial
from typing import Any, Generic, get_args

import msgspec

from zmqdata.config.checks import Finite, positive
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.recipes import names_arguments
from zmqdata.torch.accelerated import AcceleratedIterator, around, gradients, is_remade
from zmqdata.torch.devices import Copier, checked_device
from zmqdata.torch.iterables import Batch, LoaderDataset
from zmqdata.torch.iterator import LoaderIterator, LoopPlace
from zmqdata.torch.lightning import probes, takes_ahead
from zmqdata.torch.ranks import consumer_of
from zmqdata.torch.supplies import DatasetSupply, LoaderState, Supply, read_by, unread

VERSION = 1
"""Version of the form of states. A change of their content increments it."""


class Loader(Generic[Batch]):
    """Batches of a dataset as tensors.

    Each ``iter(loader)`` reads the next pass, which begins with its first batch. A
    dropped iterator costs what it costs in torch.

    Elements keep their nesting. Arrays and numbers are tensors that the loop may write
    to; texts and objects stay what they are. What arrives from the service is not
    copied. A type checker learns the type of a batch from you:
    ``loader: Loader[tuple[Tensor, Tensor]] = Loader(dataset)``.

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

    Raises (from the constructor, from ``iter`` and with the first batch):
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
    _is_accelerate_prepared = True  # by accelerate, which then leaves it alone

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
        self._next: weakref.ref[LoaderIterator] | None = None  # its pass may not have begun
        self._stream: DatasetIterator | None = None  # of a dataset without an end
        self._iterators: weakref.WeakSet[LoaderIterator] = weakref.WeakSet()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs. Iterators stay where they are."""
        left_out = ("_started", "_current", "_next", "_stream", "_iterators")
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
                self._current = self._next = self._stream = None
                self._latest_supply = supply = read_by(supply, consumer)
        return supply

    # --- what training libraries ask for

    def __getattribute__(self, name: str) -> Any:
        return getattr(around(self), name) if is_remade(name) else super().__getattribute__(name)

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
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if probes(caller):
            return self._undrawn()
        if self._started is not None:
            iterator, self._started = self._started, None
        else:
            iterator = self._drawn()
        if self._skips_empty and iterator.resumed is not None and not iterator.has_batch(supply):
            iterator = self._drawn()
        self._skips_empty = False
        if supply.length() is None and takes_ahead(caller):
            iterator.look_back(supply)
        self._next = weakref.ref(iterator)
        if iterator.is_begun:
            self._current = iterator
        # The reader of a dataset around this loader may take batches ahead of the loop.
        is_read_by_loop = caller != LoaderDataset.__module__
        return AcceleratedIterator(iterator) if gradients() and is_read_by_loop else iterator

    def start(self) -> None:
        """Begin the next pass now: batches are made while the program does something
        else, such as restoring a model. The next ``iter`` continues with it.
        """
        if self._started is None:
            self._started_from = self._resumed
            self._started = self._drawn()
            self._started.ensure_begun()

    def _undrawn(self) -> LoaderIterator:
        """Return an iterator over the next pass that has cost nothing."""
        supply, state = self._supply, self._resumed
        draw = supply.following if state is None else partial(supply.resumed, state)
        iterator = LoaderIterator(draw, self._begin, state)
        self._iterators.add(iterator)
        return iterator

    def _drawn(self) -> LoaderIterator:
        """Return an iterator over the next pass, at the cost that it has in torch."""
        iterator = self._undrawn()
        if iterator.drawn and iterator.state is not None:
            iterator.resumed = self._supply.present()
        return iterator

    def _begin(self, iterator: LoaderIterator) -> None:
        """Begin the pass of an iterator."""
        state = iterator.state
        epoch = self._epoch if state is None else state.epoch
        read = iterator.drawn.begin()
        stream = self._stream if read.is_endless and state is None else None
        copier = Copier(self.device, self.pin_memory)
        iterator.begin(read, epoch, self.prefetch_factor, copier, stream)
        self._stream = iterator.elements if read.is_endless else None
        self._epoch = epoch + 1
        if state is self._resumed:
            self._resumed = None
        if iterator is not self._started:
            self._current = iterator

    def _newest(self) -> LoaderIterator | None:
        """Return the iterator that the loop has, whose pass may not have begun."""
        found = None if self._next is None else self._next()
        return self._current if found is None else found

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
        newest = self._newest()
        if newest is not None and newest.resumed is not None:
            self._supply.settle(newest.resumed)

    def _state_now(self, ahead: int = 0, is_over: bool = False) -> dict[str, Any]:
        supply = self._supply
        current = newest = self._newest()
        if current is None or not current.is_begun or current.is_over or is_over:
            current, ahead = self._started, 0
        if current is not None:
            place = current.place(supply, ahead)
            return self._state(current.epoch, place, current.source(), current.generators)
        if self._resumed is not None:
            return dict(msgspec.to_builtins(self._resumed))
        drawn = None if newest is None or newest.is_begun else newest.drawn
        place, before = LoopPlace(0, b""), self._current
        if before is not None and supply.is_continued:
            position = before.place(supply).position
            place = LoopPlace(0, position, is_next=not before.is_endless)
        generators = drawn.generators() if drawn else supply.present()
        return self._state(self._epoch, place, "", generators)

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
                another dataset. The latter may also be raised by ``iter`` or with the
                first batch.
        """
        saved = _checked(state)
        if saved.kind != self._supply.name:
            raise FailedPreconditionError(
                f"this state is of a loader of kind {saved.kind!r}, and this loader is of kind "
                f"{self._supply.name!r}: it reads something else"
            )
        self._supply.check(saved)
        self._drop_started()
        self._current = self._next = None
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
        iterator = self._newest()
        if iterator is None or iterator.is_over:
            self.start()
            iterator = self._started
            assert iterator is not None
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
