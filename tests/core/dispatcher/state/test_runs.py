"""Test what the dispatcher knows of the incarnations of a job."""

from __future__ import annotations

from zmqdata.core.dispatcher.state.runs import Incarnation
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.ranges import RangeSet
from zmqdata.messages import JobParameters

JOB = JobParameters("job", "dataset", "DYNAMIC")


def iteration(repetition: int, *clients: str, closed: bool = False) -> Iteration:
    return Iteration(
        2000 + repetition, JOB, repetition, 7, cursors=[], clients=set(clients), closed=closed
    )


def test_an_incarnation_without_iterations_is_collected() -> None:
    """A collected incarnation has no readers, and remembers finished repetitions."""
    past = Incarnation(1, JOB, finished=RangeSet([(0, 2)]))
    assert (past.is_collected, past.is_read, past.clients, past.newest) == (True, False, [], 0)
    assert [past.has_finished(number) for number in (0, 1, 2)] == [True, True, False]


def test_readers_of_all_repetitions_count() -> None:
    """The clients of an incarnation are those of its iterations, by name."""
    incarnation = Incarnation(1, JOB, {0: iteration(0, "b"), 1: iteration(1, "c", "a")})
    assert (incarnation.is_collected, incarnation.is_read) == (False, True)
    assert incarnation.clients == ["a", "b", "c"]


def test_a_newcomer_reads_the_newest_repetition_that_is_not_finished() -> None:
    """Behind a finished repetition the next one begins."""
    incarnation = Incarnation(1, JOB, {2: iteration(2)}, begun=RangeSet([(0, 3)]))
    assert (incarnation.newest, incarnation.has_finished(2)) == (2, False)
    incarnation.begun.add(3, 4)
    incarnation.iterations[3] = iteration(3, closed=True)
    assert (incarnation.newest, incarnation.has_finished(3)) == (4, True)


def test_a_newcomer_reads_nothing_that_was_collected() -> None:
    """A repetition that was collected, finished or not, is not begun again, even if an
    older one is read again.
    """
    incarnation = Incarnation(1, JOB, begun=RangeSet([(0, 2)]))
    assert incarnation.newest == 2
    incarnation.iterations[0] = iteration(0, closed=True)
    assert incarnation.newest == 2
