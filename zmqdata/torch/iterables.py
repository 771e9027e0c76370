"""A ``Loader`` as an iterable-style dataset, for programs that need a ``DataLoader``
around it.
"""

from __future__ import annotations

import os
import typing
from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

from torch.utils.data import IterableDataset, get_worker_info

from zmqdata.errors import FailedPreconditionError, InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Batch = TypeVar("Batch", default=Any)
else:
    Batch = typing.TypeVar("Batch")


class StatefulBatches(Protocol):
    """The part of a ``Loader`` that a dataset needs. Copies have no iterators."""

    device: Any
    pin_memory: bool

    @property
    def is_resumed(self) -> bool:
        """True if a state is loaded from which no pass has begun yet."""

    @property
    def is_divided(self) -> bool:
        """True if each batch goes to one of the processes that hold a copy."""

    def __iter__(self) -> Iterator[Any]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class LoaderDataset(IterableDataset[Any]):
    """The batches of a ``Loader`` as an iterable-style dataset of torch.

    It has the ``Stateful`` protocol of torchdata, and so do its iterators.

    Args:
        loader: the loader; use ``Loader.as_iterable_dataset`` instead.
    """

    def __init__(self, loader: StatefulBatches) -> None:
        self._loader = loader
        self._process = os.getpid()

    @property
    def loader(self) -> StatefulBatches:
        """The loader, or its copy in a process of a ``DataLoader``.

        Raises:
            FailedPreconditionError: a state was loaded before the process began.
        """
        if self._process != os.getpid():  # the threads of its iterators are not here
            if self._loader.is_resumed:
                raise FailedPreconditionError(
                    "A state was loaded into the Loader, and processes of a DataLoader read copies "
                    "of it, so each pass would begin at that state again. Load the state of a "
                    "StatefulDataLoader into the StatefulDataLoader, or pass `num_workers=0`"
                )
            self._loader, self._process = copy(self._loader), os.getpid()
        return self._loader

    def __iter__(self) -> LoaderDatasetIterator:
        _check_worker(self.loader)
        return LoaderDatasetIterator(self.loader)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader.

        Raises:
            FailedPreconditionError: several processes of a ``DataLoader`` share the
                batches, so none of them knows the state.
        """
        _check_alone()
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue with the next ``iter`` where a state was taken.

        Args:
            state: as for ``Loader.load_state_dict``.

        Raises:
            FailedPreconditionError: as for ``state_dict``, or the state is of another
                kind of loader or of another dataset.
            InvalidArgumentError: it is not a state of a loader.
        """
        _check_alone()
        self.loader.load_state_dict(state)


class LoaderDatasetIterator:
    """An iterator over a pass of a ``LoaderDataset``. The pass begins with the first
    batch, so a state may be loaded before that.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: StatefulBatches) -> None:
        self._loader = loader
        self._batches: Iterator[Any] | None = None

    def __iter__(self) -> LoaderDatasetIterator:
        return self

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = iter(self._loader)
        return next(self._batches)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader, as ``LoaderDataset.state_dict``."""
        _check_alone()
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a state was taken, as ``LoaderDataset.load_state_dict``."""
        _check_alone()
        self._loader.load_state_dict(state)
        self._batches = None


def _check_worker(loader: StatefulBatches) -> None:
    """Raise an error if processes of a ``DataLoader`` would have batches twice, or
    would put them on a device that they cannot use.
    """
    worker = get_worker_info()
    if worker is None:
        return
    if loader.pin_memory or (loader.device is not None and loader.device.type != "cpu"):
        raise InvalidArgumentError(
            f"A process of a DataLoader cannot copy batches to the device {loader.device} or into "
            "pinned memory. Make the Loader without `device=` and `pin_memory=`, and pass "
            "`pin_memory=True` to the DataLoader, or pass `num_workers=0` to it"
        )
    if worker.num_workers > 1 and not loader.is_divided:
        raise FailedPreconditionError(
            f"Each of the {worker.num_workers} processes of the DataLoader would read all batches, "
            "or count batches of its own, because they are not all those of one job of the service "
            "that its clients share. Pass `num_workers=1` or 0 to the DataLoader: the workers of "
            "the service do the work. Only a dataset whose last operation is "
            "`zmqdata.distribute(...)`, without `deterministic=True`, consumers, a cache and "
            "`batches=`, can be shared by several processes. After it, `map`, `filter`, `batch` "
            "and `prefetch` may follow"
        )


def _check_alone() -> None:
    """Raise an error in one of several processes of a ``DataLoader``."""
    worker = get_worker_info()
    if worker is not None and worker.num_workers > 1:
        raise FailedPreconditionError(
            f"{worker.num_workers} processes of a DataLoader share the batches, and which of them "
            "has had which batch is not a state that could be resumed. Pass `num_workers=1` or 0 "
            "to the StatefulDataLoader, or use torch's DataLoader, which takes no states"
        )
