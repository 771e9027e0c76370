"""Where a task can be continued: which of its states are kept, which are sent to its
next host, what of ledgers goes.

Pure arithmetic over element numbers; what is in a state is the worker's affair. A gap
is a run of elements that nobody has. To make the elements of a gap again a host begins
at the newest state before it; what lies between two gaps it leaps over, if there is a
state.
"""

from __future__ import annotations

from collections.abc import Sequence

from zmqdata.core.ledger import Ledger
from zmqdata.core.ranges import RangeSet
from zmqdata.decisions import Decisions
from zmqdata.messages import TaskState

MOST_STATE_BYTES = 4 << 20
"""Larger states are not taken: a shuffle over a million elements has about this size.
"""
MOST_STATES = 16
MOST_KEPT_BYTES = 16 << 20
"""Of one task, in all of its states but the newest two."""


def without_holes(numbers: RangeSet) -> RangeSet:
    """Everything up to the last member: what counts as had where nobody misses what he
    was too slow for.

    >>> without_holes(RangeSet([(3, 5), (8, 9)]))
    RangeSet([(0, 9)])
    """
    return RangeSet([(0, stop) for _, stop in numbers.ranges[-1:]])


def keep_needed(
    states: list[TaskState],
    ledger: Sequence[Ledger],
    decisions: Decisions,
    delivered: RangeSet,
    is_cache: bool,
) -> None:
    """Forgets the states from which nothing will be made again, and the entries and
    decisions that no state needs.

    A state is for the elements from its number to that of the next one. Too many,
    because somebody is slow, are thinned out: then more is made again.

    Args:
        states: oldest first; shortened here.
        ledger: of the task; its beginnings are forgotten here.
        decisions: the same.
        delivered: what will not be made again.
        is_cache: whether holes in that are nobody's loss.
    """
    done = without_holes(delivered) if is_cache else delivered
    following = [state.number for state in states[1:]]
    needed = [
        not done.covers(state.number, stop) for state, stop in zip(states, following, strict=False)
    ]
    states[:] = [
        state for state, is_needed in zip(states, [*needed, True], strict=True) if is_needed
    ]
    _thin_out(states)
    if done.covers(0, states[0].number):
        for source, one in enumerate(ledger):
            one.trim(min(state.needs[source] for state in states))
        decisions.trim(min(state.decisions for state in states))


def _thin_out(states: list[TaskState]) -> None:
    """Drops every second state, but neither the first nor the newest two, while there
    are too many.
    """
    while len(states) > 3 and (
        len(states) > MOST_STATES
        or sum(len(state.content) for state in states[:-2]) > MOST_KEPT_BYTES
    ):
        del states[1:-2:2]


def useful_states(
    states: Sequence[TaskState], taken: RangeSet, total: int | None
) -> tuple[TaskState, ...]:
    """The states by which a host makes what is missing with the least work; none if it
    must begin at the beginning.

    Args:
        states: oldest first.
        taken: the elements that need not be made.
        total: how many there are, if that is known.
    """
    ranges = taken.ranges
    gaps = [0] if not ranges or ranges[0][0] > 0 else []
    gaps += [stop for _, stop in ranges if total is None or stop < total]
    found: list[TaskState] = []
    for gap in gaps:
        before = [state for state in states if state.number <= gap]
        if before and before[-1] not in found[-1:]:
            found.append(before[-1])
    return tuple(found)


def is_believable(
    state: TaskState,
    states: Sequence[TaskState],
    ledger: Sequence[Ledger],
    decisions: Decisions,
    total: int | None,
) -> bool:
    """Whether a state that a host has told can be one of its task: behind those known,
    within what it was given.
    """
    last = states[-1].number if states else 0
    return (
        last < state.number
        and (total is None or state.number <= total)
        and len(state.content) <= MOST_STATE_BYTES
        and len(state.needs) == len(ledger)
        and decisions.base <= state.decisions <= decisions.length
        and all(
            one.base <= need <= one.length for one, need in zip(ledger, state.needs, strict=True)
        )
    )
