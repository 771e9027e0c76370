"""The parts with which a dispatcher of a simulated world begins: places for its first
workers, and the dataset of its job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zmqdata import messages as m
from zmqdata.core import events
from zmqdata.core.dispatcher.peers.worker_addresses import WorkerAddresses
from zmqdata.splits import IndexSplits

DATASET = "dataset"
"""Id of the dataset."""


def registration(splits: int) -> events.Received:
    """Return the request that registers a dataset of so many splits."""
    description = m.DatasetDescription(
        "d" * 64, "fingerprint", (IndexSplits(splits),), "", None, -2, None, "3.11", "0"
    )
    ask = m.RegisterDataset("request", DATASET, description, b"pipeline")
    return events.Received("somebody", ask)


class FirstAddresses(WorkerAddresses):
    """Configured addresses that the first workers take in the order in which they join,
    whatever their own address.
    """

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self._indices: dict[str, int] = {}

    def __len__(self) -> int:
        return self._count

    def place(self, address: str) -> int | None:
        """Return the next free place, or None if all are taken."""
        if address not in self._indices and len(self._indices) < self._count:
            self._indices[address] = len(self._indices)
        return self._indices.get(address)

    def restore(self, held: Mapping[int, str], present: Collection[str]) -> None:
        """Restore the places as they were held."""
        self._indices = {address: index for index, address in held.items()}

    def index(self, address: str) -> int | None:
        """Return the place of the worker at an address, or None."""
        return self._indices.get(address)
