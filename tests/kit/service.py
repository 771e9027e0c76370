"""A simulated service whose cores are watched: each of its tests checks the laws."""

from __future__ import annotations

from typing import ClassVar

from tests.kit.recovery import JournalLaws
from tests.kit.runner import SimulatedPipeline
from zmqdata.core.credit import FEW_BYTES
from zmqdata.testing.service import SimulatedService
from zmqdata.updates import AssignSplitsUpdate, CutLedgerUpdate

MOST_COUNTED = 10_000
"""Maximum number of splits in an assignment for the laws to check each split."""


class ServiceLaws(JournalLaws):
    """The laws, without the check of each split for assignments of endless sources."""

    turn_bytes: ClassVar[int] = FEW_BYTES

    def _check_assigned(self, update: AssignSplitsUpdate) -> None:
        if update.split.size <= MOST_COUNTED:
            super()._check_assigned(update)

    def _take_back(self, update: CutLedgerUpdate) -> None:
        task = self.state.tasks[update.task]
        parts = task.ledger[update.source].parted(update.entries, update.stop)
        if parts and all(split.size <= MOST_COUNTED for split in parts[1]):
            super()._take_back(update)


class WatchedService(SimulatedService):
    """A simulated service that fails if its cores break a law.

    Example:
        >>> from zmqdata.dataset import Dataset
        >>> with WatchedService(workers=1) as service:
        ...     len(list(service.read(Dataset.range(20))))
        20
    """

    def _observe(self) -> ServiceLaws:
        return ServiceLaws(self.seed, self.clock, SimulatedPipeline(0))
