"""``Loader``: batches of a dataset as tensors, with what training programs ask of a
``DataLoader``.

Methods check arguments, and leave the passes to ``passes``. What a training library
asks for beyond that is in the module for the library.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import copy
from typing import Any, Generic, get_args

from zmqdata.config.checks import Finite, positive
from zmqdata.dataset import Dataset
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.recipes import names_arguments
from zmqdata.torch.accelerated import dataloader_around, rebuilds_loader, wrap_iterator
from zmqdata.torch.devices import checked_device
from zmqdata.torch.iterables import Batch, LoaderDataset
from zmqdata.torch.lightning import prefetches, probes
from zmqdata.torch.passes import PassSequence
from zmqdata.torch.ranks import consumer_of
from zmqdata.torch.supplies import DatasetSupply, Supply, checked_state


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
        self._passes = PassSequence(supply, self.device, self.pin_memory, self.prefetch_factor)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs. Iterators stay where they are."""
        return {**self.__dict__, "_passes": copy(self._passes)}

    # --- what training libraries ask for

    def __getattribute__(self, name: str) -> Any:
        if rebuilds_loader(name):
            return getattr(dataloader_around(self), name)
        return super().__getattribute__(name)

    @property
    def dataset(self) -> Any:
        """The dataset that is read: of the ``DataLoader``, if it comes from one."""
        return self._passes.latest_supply.dataset

    def __len__(self) -> int:
        """Return the number of batches of a pass.

        Raises:
            TypeError: it is not known before the pass has been read.
        """
        count = self._passes.supply().length()
        if count is None:
            raise TypeError(
                "the number of batches is not known before they have been read. It is known of a "
                "local dataset with a known cardinality, with deterministic=True and with batches=n"
            )
        return count

    def __iter__(self) -> Iterator[Batch]:
        passes = self._passes
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if probes(caller):
            return passes.make_iterator()
        iterator = passes.next_iterator()
        if passes.supply().length() is None and prefetches(caller):
            iterator.keeps_previous_place = True
        # The reader of a dataset over this loader may prefetch: its place says nothing.
        return iterator if caller == LoaderDataset.__module__ else wrap_iterator(iterator)

    def start(self) -> None:
        """Begin the next pass now: batches are made while the program does something
        else, such as restoring a model. The next ``iter`` continues with it.
        """
        self._passes.start()

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next pass, for samplers and datasets that draw by it.

        Equivalent of ``DistributedSampler.set_epoch``. A pass that ``start`` has begun
        goes on if it has this number, and no sampler or dataset could change it.

        Args:
            epoch: number of the pass, from 0.
        """
        if not isinstance(epoch, int) or isinstance(epoch, bool) or epoch < 0:
            raise InvalidArgumentError(f"`epoch` must be a number of at least 0, got {epoch!r}")
        self._passes.set_epoch(epoch)

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
        if self._passes.current is None:
            raise FailedPreconditionError(
                "`stats` tells why a loop waits, and no pass of this loader has begun in this "
                "process. Call it within `for batch in loader:`, or after it"
            )
        return self._passes.current.elements.stats(scalars=scalars)

    # --- states

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop stands: behind the last batch that it has received.

        Batches that were made or copied ahead count as not received. At the end of a
        pass, the state is that of the beginning of the next.

        Returns:
            A dict of numbers and texts, which ``torch.load`` reads with
            ``weights_only=True``. It has the same keys at any time.
        """
        return self._passes.state()

    def trainer_state(self, prefetched: int = 0, is_over: bool = False) -> dict[str, Any]:
        """Return the state for a training library that counts steps itself. For it, a
        pass is over with its last batch, and not when the loop asks for another one.

        Args:
            prefetched: number of batches that the library has taken for later steps, 0
                or 1.
            is_over: True if the library has ended the pass before its last batch.

        Raises:
            FailedPreconditionError: the place before the last batch is not known.
        """
        current = self._passes.current
        is_full = current is not None and not prefetched and current.is_full()
        return self._passes.state(prefetched, is_over or is_full)

    def settle(self) -> None:
        """Set the global generators as they were when the pass continued from a state,
        after a training library has drawn from them.
        """
        self._passes.settle()

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
        self._passes.load(checked_state(state))

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
        self._passes.load(checked_state(state), skips_empty=True)

    @property
    def is_resumed(self) -> bool:
        """True if a state is loaded from which no pass has begun yet."""
        return self._passes.loaded is not None

    @property
    def is_divided(self) -> bool:
        """True if each batch goes to one of the processes that hold a copy of this
        loader.
        """
        return self._passes.supply().is_divided

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
        current = self._passes.current
        return current is not None and current.is_padding

    def skip(self, count: int) -> None:
        """Leave out the next batches of the running pass, or of the next pass.

        Args:
            count: number of batches.

        Raises:
            InvalidArgumentError: the pass has fewer batches.
        """
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise InvalidArgumentError(f"`count` must be a number of at least 0, got {count!r}")
        iterator = self._passes.newest_iterator()
        if iterator is None or iterator.is_over:
            iterator = self._passes.start()
        for skipped in range(count):
            if next(iterator, _END) is _END:
                raise InvalidArgumentError(
                    f"`skip({count})` reached the end of the pass after {skipped} batches"
                )

    def close(self) -> None:
        """End all iterators of this loader. Idempotent."""
        self._passes.close()

    def __enter__(self) -> Loader[Batch]:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_END = object()
