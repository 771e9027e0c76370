"""The places from which a task can be continued: which of its states are kept, which
are sent to its next host, and which ledger entries are forgotten.

Pure arithmetic over element numbers; only workers interpret the content of a state. A
gap is a run of elements that no client has. To make the elements of a gap again, a host
starts at the newest state before it. Between two gaps it continues from a later state,
if there is any.

``WrittenBefore`` records how much dispatchers had written of each iteration. A journal
may lose its last records, by a disk that did not keep them or by a backup that was
restored while peers ran. A peer that tells a dispatcher what an earlier one had written
shows that the journal is older than the world.

Decisions 0015 and 0048; protocol 5.11, 8.4, 8.5 and 8.7.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from zmqdata.core.ledger import Ledger
from zmqdata.core.ranges import RangeSet
from zmqdata.decisions import Decisions
from zmqdata.messages import JournalCounts, TaskState

MARKS_KEPT = 4
"""Number of starts of dispatchers that are remembered."""
ITERATIONS_KEPT = 100
"""Number of iterations of a start whose counts are remembered."""
MOST_STATE_BYTES = 4 << 20
"""Maximum size of a state; larger states are not taken. A shuffle over a million
elements has about this size.
"""
MOST_STATES = 16
MOST_KEPT_BYTES = 16 << 20
"""Maximum size of all states of one task except the newest two."""


def without_holes(numbers: RangeSet) -> RangeSet:
    """Return every number up to the last member. In a shared cache, elements that a
    slow trainer missed count as taken.

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
    """Forget the states from which no element will be made again, and the entries and
    decisions that no state needs.

    A state serves the elements from its number to that of the next state. If a slow
    client keeps too many states alive, every second state is dropped. Then more
    elements must be made again after a failure.

    Args:
        states: oldest first; shortened here.
        ledger: ledgers of the task; their leading entries are forgotten here.
        decisions: decisions of the task; the leading ones are forgotten here.
        delivered: the elements that will not be made again.
        is_cache: True if gaps in ``delivered`` count as delivered.
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
    """Drop every second state while too many are kept. The first and the newest two
    always stay.
    """
    while len(states) > 3 and (
        len(states) > MOST_STATES
        or sum(len(state.content) for state in states[:-2]) > MOST_KEPT_BYTES
    ):
        del states[1:-2:2]


def useful_states(
    states: Sequence[TaskState], taken: RangeSet, total: int | None
) -> tuple[TaskState, ...]:
    """Return the states by which a host makes the missing elements with the least work;
    none if it must start at the beginning.

    Args:
        states: oldest first.
        taken: the elements that need not be made.
        total: the number of elements, if known.
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
    """Return True if a state reported by a host can belong to its task: it must follow
    the known states and lie within what the task was given.
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


class WrittenBefore:
    """The highest counts that a peer has heard, by start of the dispatcher and by
    iteration.

    Example:
        >>> heard = WrittenBefore()
        >>> heard.record(JournalCounts(1, 2000, 7, 3))
        False
        >>> heard.record(JournalCounts(2, 2000, 6, 3))
        True
        >>> [(one.mark, one.records) for one in heard.heard]
        [(1, 7), (2, 6)]
    """

    def __init__(self) -> None:
        self._counts: dict[int, dict[int, JournalCounts]] = {}

    def record(self, written: JournalCounts | None) -> bool:
        """Record the number of facts that a dispatcher has written. Return True if this
        is the first message of another start.
        """
        if written is None:
            return False
        is_new = bool(self._counts) and written.mark not in self._counts
        counts = self._counts.setdefault(written.mark, {})
        known = counts.pop(written.iteration, written)
        counts[written.iteration] = written if written.records > known.records else known
        if len(counts) > ITERATIONS_KEPT:
            del counts[next(iter(counts))]
        if len(self._counts) > MARKS_KEPT:
            del self._counts[next(iter(self._counts))]
        return is_new

    def of(self, iterations: Collection[int]) -> tuple[JournalCounts, ...]:
        """Return the counts of these iterations, and all counts of former starts."""
        newest = next(reversed(self._counts), None)
        return tuple(one for one in self.heard if one.iteration in iterations or one.mark != newest)

    @property
    def heard(self) -> tuple[JournalCounts, ...]:
        """All counts."""
        return tuple(one for counts in self._counts.values() for one in counts.values())
