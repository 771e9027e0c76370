"""When a task runner notes where its pipeline is, and how that travels. What a state
means is the iterators' affair.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable

import msgspec

from zmqdata.core.lineage import MOST_STATE_BYTES
from zmqdata.errors import DataLossError
from zmqdata.iterators import UNFIT, ElementIterator, holds_no_state
from zmqdata.messages import TaskState
from zmqdata.worker.tasks.ledger import decisions_needed, needs_of

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds of work between two states, if they cost little."""
COST = 100
"""Noting states takes one part of so many of a runner's time."""
BYTES_PER_SECOND = 64 << 10
"""So much of a task's states goes into the dispatcher's journal. Large ones are rarer.
"""


def restore(iterator: ElementIterator, state: TaskState) -> None:
    """Has a fresh iterator go on from a state, which may have been in a file of a
    user's for long.

    Raises:
        DataLossError: it is damaged.
    """
    try:
        iterator.restore(msgspec.msgpack.decode(state.content))
    except (*UNFIT, msgspec.MsgspecError) as error:
        raise DataLossError(
            f"The state from which this task was to make element {state.number} again does not fit "
            "its pipeline "
            f"({type(error).__name__}: {error}). It is damaged: go on from an older one."
        ) from error


class StateTaker:
    """Decides when the state of a pipeline is worth having, and notes it.

    Args:
        sources: how many of them have ledgers.
        clock: the time in seconds.

    Attributes:
        due: when the next state should be noted.
    """

    def __init__(self, sources: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.due = clock() + EVERY
        self._sources = sources

    def idle(self, seconds: float) -> None:
        """The runner has waited for so long, and made nothing."""
        self.due += seconds

    def take(self, iterator: ElementIterator, number: int) -> TaskState | None:
        """Notes the state of an iterator that makes element ``number`` next; None if it
        can not, or is too large.
        """
        begun = self.clock()
        try:
            state = iterator.state()
            content = b"" if holds_no_state(state) else msgspec.msgpack.encode(state)
        except Exception:  # an operation of the user's own; the task goes on without states
            log.warning(
                "this pipeline cannot say where it is, so another worker would begin anew",
                exc_info=True,
            )
            content = b""
        if not content:
            self.due = math.inf
            return None
        needs = needs_of(state, self._sources)
        now = self.clock()
        self.due = now + max(EVERY, COST * (now - begun), len(content) / BYTES_PER_SECOND)
        return (
            TaskState(number, content, needs, decisions_needed(state))
            if len(content) <= MOST_STATE_BYTES
            else None
        )
