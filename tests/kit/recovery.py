"""The laws of a journal: what a dispatcher knows that has read it."""

from __future__ import annotations

from collections.abc import Sequence

from tests.kit.checks import Laws, splits_of
from zmqdata import updates as u
from zmqdata.core.dispatcher import events
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.testing.nodes import AnyCommand


class JournalLaws(Laws):
    """The laws, and those of a dispatcher's journal and its snapshots."""

    found = 0.0
    """When an element was last found to be fatal."""

    def decided(self, commands: Sequence[AnyCommand]) -> None:
        """Check that a dispatcher blames only elements that kill."""
        for command in commands:
            update = command.update if isinstance(command, events.Commit) else None
            if isinstance(update, u.PoisonUpdate):
                self.found = self.clock.now
            if isinstance(update, u.CountDeathUpdate) and update.proof:
                place = update.in_progress[0].place
                if place not in self.pipeline.poison():
                    self.fail(f"{place} does not kill, and is blamed", update.task)

    def recovered(self, core: DispatcherCore, is_set_back: bool) -> None:
        """Check that a dispatcher knows all that another one has revealed, and that its
        snapshot is complete.
        """
        if is_set_back:
            self._set_back(core)
        self._check_equal(core, self.state, "what was announced and what was committed")
        self.compacted(core)

    def compacted(self, core: DispatcherCore) -> None:
        """Check that a snapshot is complete."""
        self._check_equal(core, copied_state(core), "a state and its snapshot")

    def _check_equal(self, core: DispatcherCore, state: DispatcherState, what: str) -> None:
        ours, theirs = vars(core.state), vars(state)
        for name, value in ours.items():
            if value != theirs[name]:
                self.fail(f"{what} differ in {name}: {value} and {theirs[name]}")

    def _set_back(self, core: DispatcherCore) -> None:
        """Adopt what a dispatcher knows whose journal has lost its last records.

        What only clients had reported that are gone, or unknown to it, is owed again.
        """
        state = self.state = copied_state(core)
        self.leased = {
            key: task.task
            for task in state.tasks.values()
            for source, ledger in enumerate(task.ledger)
            for split in ledger.entries
            for key in splits_of(task.iteration, source, split)
        }
        self.gone -= state.client_iteration.keys()
        self.excused |= self.gone
        self.owned = {}
        for element, owner in list(self.owners.items()):
            if owner not in state.client_iteration and not self._reported(element):
                del self.owners[element]
                self.lost.add(element)
            else:
                self.owned.setdefault(owner, set()).add(element)
        self.is_set_back = True


def copied_state(core: DispatcherCore) -> DispatcherState:
    """Return the state that the snapshot of a core describes."""
    copy = DispatcherState()
    for update in snapshot(core.state):
        copy.apply(update)
    return copy
