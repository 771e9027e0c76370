"""The times at which a task runner takes a state of its pipeline, and the encoding of
states. Their content belongs to the iterators.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from zmqdata.core.lineage import MOST_STATE_BYTES
from zmqdata.errors import DataLossError, PipelineError
from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.states import UNFIT, holds_bookmark, holds_no_state
from zmqdata.messages import TaskState
from zmqdata.worker.tasks.ledger import decisions_needed, needs_of

log = logging.getLogger(__name__)

EVERY = 1.0
"""Seconds of work between two states that cost little."""
COST = 100
"""Inverse of the share of a runner's time that states may take."""
BYTES_PER_SECOND = 64 << 10
"""Maximum rate at which a task's states enter the dispatcher's journal. Large states
are taken less often.
"""


COUNTING = "zmqdata.counting"
"""Tag of a state of a pipeline with generators: the indices of the nodes that count
elements for them follow, and the state of the iterator.
"""


class _StateContent(NamedTuple):
    """The content of a state."""

    counting: list[int]
    """Indices of the nodes that count elements for random generators."""
    iterator: Any
    """State of the iterator."""


def _opened(state: TaskState) -> _StateContent:
    try:
        content = msgspec.msgpack.decode(state.content)
    except msgspec.MsgspecError as error:
        raise _unfit(state, error) from error
    if isinstance(content, list) and len(content) == 3 and content[0] == COUNTING:
        return _StateContent(content[1], content[2])
    return _StateContent([], content)


def counting_of(state: TaskState) -> list[int]:
    """Return the indices of the nodes that count elements for random generators.

    Raises:
        DataLossError: the state is damaged.
    """
    return _opened(state).counting


def restore(iterator: ElementIterator, state: TaskState) -> None:
    """Restore a fresh iterator from a state, which may have been stored in a user's
    file for a long time.

    Raises:
        DataLossError: the state is damaged.
    """
    try:
        iterator.restore(_opened(state).iterator)
    except PipelineError:  # of a function that is called again; the state fits
        raise
    except UNFIT as error:
        raise _unfit(state, error) from error


def _unfit(state: TaskState, error: Exception) -> DataLossError:
    return DataLossError(
        f"The state from which this task was to continue at element {state.number} does not "
        f"fit its pipeline ({type(error).__name__}: {error}). It is damaged. Resume from an "
        "older state."
    )


class StateTaker:
    """Decides when to take a state of a pipeline, and takes it.

    Args:
        sources: number of sources with a ledger.
        clock: returns the time in seconds.

    Attributes:
        due: time at which the next state is due.
    """

    def __init__(self, sources: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.due = clock() + EVERY
        self._sources = sources

    def idle(self, seconds: float) -> None:
        """Postpone the next state by the seconds in which the runner waited and
        produced nothing.
        """
        self.due += seconds

    def take(
        self, iterator: ElementIterator, number: int, counting: Sequence[int] = ()
    ) -> TaskState | None:
        """Return the state of an iterator. Return None if the iterator has no state, or
        the state is too large.

        Args:
            iterator: the iterator.
            number: number of the element that it produces next.
            counting: indices of the nodes that count elements for random generators.
        """
        begun = self.clock()
        try:
            state = iterator.state()
            # A bookmark of a service is of use to its client alone.
            is_stateless = holds_no_state(state) or holds_bookmark(state)
            whole = [COUNTING, counting, state] if counting else state
            content = b"" if is_stateless else msgspec.msgpack.encode(whole)
        except Exception:  # a user-defined operation failed; the task continues without states
            log.warning(
                "the pipeline of a task cannot return its state, so another worker would "
                "start the task from its beginning",
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
