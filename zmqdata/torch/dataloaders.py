"""``distribute_dataloader``: a ``DataLoader`` of torch whose items are fetched and
collated by workers of the service.

Samplers and generators run in the training process, in the order in which torch runs
them, so the batches are those of the ``DataLoader``, in its order.
"""

from __future__ import annotations

import os
from typing import Any, Literal

import torch
from torch.utils.data import DataLoader

from zmqdata.config.checks import Finite, positive
from zmqdata.config.endpoints import Service
from zmqdata.errors import InvalidArgumentError
from zmqdata.recipes import names_arguments
from zmqdata.torch.dataloader_supply import DataLoaderSupply
from zmqdata.torch.loader import Loader
from zmqdata.torch.ranks import consumer_of

DISPATCHER = "ZMQDATA_DISPATCHER"
"""Environment variable with the address of the dispatcher."""


@names_arguments
def distribute_dataloader(
    dataloader: DataLoader[Any],
    service: Service | None = None,
    *,
    device: Any = None,
    pin_memory: bool | None = None,
    prefetch: int = 2,
    batches: int | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    finite: Finite | Literal["uneven"] = "drop",
    **options: Any,
) -> Loader:
    """Return a ``Loader`` that yields the batches of a ``DataLoader``, in its order and
    with its types, made by the workers of a service.

    The sampler, the batch sampler and the generators run in this process. Fetching,
    transforms and ``collate_fn`` run on workers. Batches are equal to those of the
    ``DataLoader`` if the dataset and ``collate_fn`` draw nothing at random. Draws of
    ``random``, ``numpy.random`` and torch follow from the loader's generator, and do
    not depend on the number of real workers. (Workers that are threads of this process
    draw from its generators, without a seed of their own.)

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
        consumer_index: as for ``Loader``. A loader with a ``DistributedSampler`` is
            sharded already: each rank reads all of its sampler.
        num_consumers: as for ``Loader``.
        finite: as for ``Loader``, and ``"uneven"``: nothing is left out or repeated,
            and the numbers of batches of two consumers may differ by one.
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
    count = None if batches is None else positive("batches", "batches", batches)
    consumer = consumer_of(consumer_index, num_consumers)
    supply = DataLoaderSupply(dataloader, _service_of(service), count, consumer, finite, options)
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


def _service_of(service: Service | None) -> Service:
    """Return the service that a user has named, or the environment.

    Raises:
        InvalidArgumentError: nothing names it.
    """
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
