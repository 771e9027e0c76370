"""``distribute_dataloader``: a ``DataLoader`` of torch whose items are fetched and
collated by workers of the service.

Samplers and generators run in the training process, in the order in which torch runs
them, so the batches are those of the ``DataLoader``, in its order.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec
import torch
from torch.nn import Module
from torch.utils.data import DataLoader, IterableDataset

from zmqdata.client.calls import status
from zmqdata.client.distribute import distribute
from zmqdata.config.endpoints import Service
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.errors import InvalidArgumentError
from zmqdata.torch.fetching import BatchFetcher, LoaderParts, StreamFetcher
from zmqdata.torch.loader import Loader
from zmqdata.torch.orders import (
    BatchIndices,
    Draw,
    Generators,
    draw,
    generators,
    restore,
    restore_global,
    samplers,
)
from zmqdata.torch.packing import unpack
from zmqdata.torch.supplies import LoaderState, Pass, short

DISPATCHER = "ZMQDATA_DISPATCHER"
"""Environment variable with the address of the dispatcher."""
_OURS = frozenset(
    {
        "processing_mode",
        "deterministic",
        "consumer_index",
        "num_consumers",
        "finite",
        "job_name",
        "on_existing",
        "cross_trainer_cache",
        "placement",
        "allow_objects",
    }
)
"""Options of ``distribute`` that follow from the loader."""


def distribute_dataloader(
    dataloader: DataLoader[Any],
    service: Service | None = None,
    *,
    device: Any = None,
    pin_memory: bool | None = None,
    prefetch: int = 2,
    batches: int | None = None,
    **options: Any,
) -> Loader:
    """Return a ``Loader`` that yields the batches of a ``DataLoader``, in its order and
    with its types, made by the workers of a service.

    The sampler, the batch sampler and the generators run in this process. Fetching,
    transforms and ``collate_fn`` run on workers. Batches are equal to those of the
    ``DataLoader`` if the dataset and ``collate_fn`` draw nothing at random. Draws of
    ``random``, ``numpy.random`` and torch follow from the loader's generator, and do
    not depend on the number of real workers.

    An iterable-style dataset is read by ``dataloader.num_workers`` virtual workers, for
    which ``get_worker_info()`` and ``worker_init_fn`` are as in torch, whatever the
    number of real workers.

    Has no counterpart in torch. The interface is that of ``DataLoader``.

    Args:
        dataloader: the loader. It is not read, and its attributes are taken when a pass
            begins.
        service: address of the dispatcher, or a ``LocalCluster``. None: the environment
            variable ``ZMQDATA_DISPATCHER``.
        device: as for ``Loader``.
        pin_memory: as for ``Loader``; None: as the ``DataLoader`` says, if there is an
            accelerator.
        prefetch: as for ``Loader``.
        batches: number of batches of a pass, exactly; None: all of the sampler.
        **options: further arguments of ``zmqdata.distribute``, such as ``ship``,
            ``num_tasks`` or ``compression``.

    Raises:
        TypeError: ``dataloader`` is not a ``DataLoader``, or holds what cannot be sent
            to another process; the text says what.
        InvalidArgumentError: no dispatcher is named, or the loader holds what cannot
            move to another process, such as a sampler that holds a model.

    Example:
        >>> import torch, zmqdata
        >>> from zmqdata.torch import distribute_dataloader
        >>> numbers = torch.utils.data.TensorDataset(torch.arange(4))
        >>> with zmqdata.LocalCluster(num_workers=1, in_process=True) as cluster:
        ...     loader = torch.utils.data.DataLoader(numbers, batch_size=2)
        ...     loader = distribute_dataloader(loader, cluster)
        ...     [batch[0].tolist() for batch in loader]
        [[0, 1], [2, 3]]
    """
    if not isinstance(dataloader, DataLoader):
        raise TypeError(
            f"`dataloader` must be a torch.utils.data.DataLoader, got "
            f"{type(dataloader).__name__}. A Dataset of zmqdata becomes a Loader by "
            "`zmqdata.torch.Loader`"
        )
    supply = DataLoaderSupply(dataloader, _address(service), batches, options)
    if pin_memory is None and dataloader.pin_memory and device is None:
        pin_memory = torch.accelerator.is_available()
    return DataLoaderLoader(supply, device, pin_memory, prefetch)


class DataLoaderLoader(Loader):
    """A ``Loader`` in place of a ``DataLoader``.

    Args:
        supply: begins its passes.
        device: as for ``Loader``.
        pin_memory: as for ``Loader``.
        prefetch: as for ``Loader``.
    """

    def __init__(
        self, supply: DataLoaderSupply, device: Any, pin_memory: bool | None, prefetch: int
    ) -> None:
        self._set_up(supply, device, pin_memory, prefetch)
        loader = supply.loader
        self.batch_size = loader.batch_size
        self.drop_last = loader.drop_last
        self.num_workers = loader.num_workers
        self.collate_fn = loader.collate_fn
        self.generator = loader.generator
        self.worker_init_fn = loader.worker_init_fn
        self._loader = loader

    @property
    def sampler(self) -> Any:
        """The sampler of the ``DataLoader``."""
        return self._loader.sampler

    @property
    def batch_sampler(self) -> Any:
        """The batch sampler of the ``DataLoader``."""
        return self._loader.batch_sampler


class DataLoaderSupply:
    """Passes over the batches of a ``DataLoader``.

    Args:
        loader: the loader.
        service: the service whose workers make the batches.
        batches: number of batches of a pass, or None for all.
        options: further arguments of ``distribute``.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        service: Service,
        batches: int | None,
        options: dict[str, Any],
    ) -> None:
        wrong = sorted(_OURS & options.keys())
        if wrong:
            raise InvalidArgumentError(
                f"`{wrong[0]}` cannot be passed to distribute_dataloader: it follows from the "
                "loader, whose batches come in its own order, each once. Leave it out"
            )
        self.loader = loader
        self._service = service
        self._batches = batches
        self._options = options
        self._is_stream = isinstance(loader.dataset, IterableDataset)
        _check_samplers(loader)
        # The first refusal of what cannot be sent comes from here, and not from a pass.
        self._distributed(self._source(Draw(0, None if self._is_stream else BatchIndices([])), 0))

    @property
    def name(self) -> str:
        return "iterable" if self._is_stream else "map"

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    def length(self) -> int | None:
        try:
            count = len(self.loader)
        except (TypeError, NotImplementedError):
            return self._batches
        if self._batches is None:
            return count if not self._is_stream else None
        return self._batches

    def begin(self, epoch: int) -> Pass:
        before = generators(self.loader)
        drawn = draw(self.loader, self._batches)
        return self._pass(drawn, msgspec.msgpack.encode(before), 0, b"")

    def resume(self, epoch: int, state: LoaderState) -> Pass:
        present = msgspec.msgpack.decode(state.present, type=Generators)
        restore(self.loader, msgspec.msgpack.decode(state.generators, type=Generators))
        if not state.batches:
            return self.begin(epoch)
        drawn = draw(self.loader, self._batches)
        restore_global(present)
        return self._pass(drawn, state.generators, state.batches, state.position)

    def _pass(self, drawn: Draw, before: bytes, first: int, position: bytes) -> Pass:
        count = self._batches
        source = self._source(drawn, first)
        if drawn.order is None:
            batches = self._distributed(source)
        else:
            found = len(drawn.order)
            if count is not None and found < count:
                raise short(count, found)
            count = found
            # Nothing is left of a pass whose state was taken behind its last batch.
            batches = self._distributed(source) if first < count else source
        return Pass(batches, unpack, count, first, position if self._is_stream else b"", before)

    def _source(self, drawn: Draw, first: int) -> Dataset:
        """Return the pipeline that workers run."""
        loader = self.loader
        parts = LoaderParts(
            loader.dataset,
            loader.collate_fn,
            loader._auto_collation,
            loader.num_workers,
            loader.worker_init_fn,
            loader.batch_size,
            loader.drop_last,
        )
        if self._is_stream:
            streams = Dataset.range(max(1, loader.num_workers))
            return streams.flat_map(StreamFetcher(parts, drawn.seed))
        assert drawn.order is not None
        numbers = Dataset.range(first, len(drawn.order))
        return numbers.map(BatchFetcher(parts, drawn.order, drawn.seed))

    def _distributed(self, source: Dataset) -> Dataset:
        options = {"num_tasks": self._tasks(), **self._options}
        read = distribute("distributed_epoch", self._service, deterministic=True, **options)
        return source.apply(read)

    def _tasks(self) -> int:
        """Return a number of tasks of which each serves a single virtual worker, with
        enough of them for all real workers.
        """
        virtual = max(1, int(self.loader.num_workers))
        if self._is_stream:
            return virtual
        workers = len(status(self._service, 30.0)["workers"])
        return virtual * max(1, -(-workers // virtual))

    def position(self, elements: DatasetIterator) -> bytes:
        # The number of batches says all of a pass whose order is known.
        return msgspec.msgpack.encode(elements.state_dict()) if self._is_stream else b""

    def present(self) -> bytes:
        return msgspec.msgpack.encode(generators(self.loader))

    def set_epoch(self, epoch: int) -> None:
        told = [*samplers(self.loader), self.loader.dataset]
        for one in told:
            if callable(getattr(one, "set_epoch", None)):
                one.set_epoch(epoch)


def _address(service: Service | None) -> Service:
    if service is not None:
        return service
    address = os.environ.get(DISPATCHER)
    if not address:
        raise InvalidArgumentError(
            f"no dispatcher is named: `service` is None, and the environment variable {DISPATCHER} "
            "is not set. Pass `service=` with the address of a dispatcher, such as "
            "'tcp://host:5050', or a LocalCluster"
        )
    return address


def _check_samplers(loader: DataLoader[Any]) -> None:
    """Raise an error for a sampler that looks at what the model makes of the batches,
    because the order of a pass is drawn before the first batch.
    """
    for sampler in samplers(loader):
        for name, value in getattr(sampler, "__dict__", {}).items():
            if isinstance(value, Module):
                raise InvalidArgumentError(
                    f"the sampler {type(sampler).__name__} holds a model in `{name}`, so its order "
                    "may depend on results of the training. The order of a pass is drawn when "
                    "the pass begins. Let the sampler draw from numbers that are computed before"
                )
