"""The gate holds back every command that could reveal a fact the journal does not have
yet. It uses no file and no thread.

Decision 0013; protocol 1.5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from zmqdata import messages as m
from zmqdata.core.dispatcher import events as e
from zmqdata.updates import Update

REVEAL_NOTHING = (m.Probe, m.WorkerHeartbeatAnswered)
"""Messages that reveal no fact and need not wait."""
NO_SECRET = (e.LogLine, e.FindFiles, e.FindChunks, e.StorePipeline)
"""Commands that no other process observes and need not wait. A pipeline is stored
before the fact that registers it.
"""


class Gate:
    """Holds back the commands of a turn until its facts, and those of all earlier
    turns, are written.

    Turns are numbered from 1. Commands are released in the order in which they were
    decided.

    Example:
        >>> from zmqdata.updates import CloseTaskListUpdate
        >>> gate = Gate()
        >>> goodbye = e.Send("client", m.IterationClosed("client"))
        >>> commands = [e.Commit(CloseTaskListUpdate(2000)), goodbye]
        >>> gate.admit(commands)
        ([], (CloseTaskListUpdate(iteration=2000),))
        >>> gate.written(gate.turn) == commands
        True
    """

    def __init__(self) -> None:
        self.turn = 0
        self.last_written = 0
        self._held: deque[tuple[int, list[e.DispatcherCommand]]] = deque()

    @property
    def is_open(self) -> bool:
        """True if everything decided so far is written."""
        return self.last_written == self.turn

    def admit(
        self, commands: Iterable[e.DispatcherCommand]
    ) -> tuple[list[e.DispatcherCommand], tuple[Update, ...]]:
        """Accept the commands of a turn of the core.

        Returns:
            The commands that may be carried out now, and the facts to write afterwards
            as turn ``turn``.
        """
        commands = list(commands)
        updates = tuple(command.update for command in commands if isinstance(command, e.Commit))
        self.turn += bool(updates)
        if self.is_open:
            return commands, updates
        held = [command for command in commands if self._reveals(command)]
        if held:
            self._held.append((self.turn, held))
        return [command for command in commands if not self._reveals(command)], updates

    def written(self, turn: int) -> list[e.DispatcherCommand]:
        """Record that the turns up to this one are written. Return the commands that
        may be carried out now.
        """
        self.last_written = turn
        freed: list[e.DispatcherCommand] = []
        while self._held and self._held[0][0] <= turn:
            freed += self._held.popleft()[1]
        return freed

    def _reveals(self, command: e.DispatcherCommand) -> bool:
        if isinstance(command, e.Send):
            return not isinstance(command.message, REVEAL_NOTHING)
        return not isinstance(command, NO_SECRET)
