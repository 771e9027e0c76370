"""Test the number of workers on a small model: jobs that are fed by workers which start
late, and whose needs are measured late.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest

from zmqdata.measures.scaling import DOWN_AFTER, PAUSE_KEPT, JobNeed, Scaling, ScalingDecision
from zmqdata.measures.verdict import (
    COMPUTE_BOUND,
    INPUT_BOUND,
    LINK_BOUND,
    STRAGGLER,
    UNKNOWN,
    VERDICTS,
)

LAG = 4.0
"""Seconds until a change of pace shows in the needs."""
STARTING = 7.0
"""Seconds until a process that is started makes elements."""
EVER = 1e9


@dataclass(frozen=True)
class SimulatedJob:
    """A job whose loop would be fed by a number of workers that changes over time."""

    needs: Callable[[float], int] = lambda now: 3
    """Workers that would feed the loop at a time."""
    reads: tuple[float, float] = (0.0, EVER)
    """When a loop reads it."""
    pauses: tuple[float, float] = (EVER, EVER)
    """When its loop takes nothing, although elements are there."""
    between: tuple[float, float] = (EVER, EVER)
    """When its run is between two passes."""
    link: int = 1_000
    """Number of workers beyond which the link is the limit."""
    most: int | None = None
    """Splits or tasks that it has."""

    def wants(self, now: float) -> int:
        """Return the workers that it wants at a time, if all is known at once."""
        is_read = self.reads[0] <= now < self.reads[1]
        return min(self.needs(now), self.most or 1_000) if is_read else 0

    def told(self, now: float, present: int, since: float) -> JobNeed:
        """Return what is measured of it.

        Args:
            now: present time.
            present: workers that run.
            since: time since which one runs.
        """
        pauses = self.pauses[0] <= now < self.pauses[1]
        between = self.between[0] <= now < self.between[1]
        readers = int(self.reads[0] <= now < self.reads[1] and not between)
        begun = max(self.reads[0], since) if now < self.between[1] else self.between[1]
        if not readers or pauses or not present or now - begun < 1.0:
            return JobNeed(0, UNKNOWN, readers, pauses or between, self.most)
        need = self.needs(max(begun, now - LAG))
        word = INPUT_BOUND if present < need else COMPUTE_BOUND
        return JobNeed(
            need, LINK_BOUND if present >= self.link else word, readers, False, self.most
        )


@dataclass(frozen=True)
class Moment:
    """A decision of a simulation."""

    now: float
    """Its time."""
    decision: ScalingDecision
    """The decision."""
    wanted: int
    """Workers that the jobs want at this time."""


def simulate(
    jobs: list[SimulatedJob], seconds: int, host: int = 1_000, present: int = 0
) -> list[Moment]:
    """Return the decisions of one second each, by a host that follows them.

    Args:
        jobs: the jobs.
        seconds: how long it lasts.
        host: most workers that the host can start.
        present: workers that run at the start.
    """
    scaling, ready, since = Scaling(), [0.0] * present, 0.0 if present else EVER
    found = []
    for now in map(float, range(seconds)):
        running = sum(one <= now for one in ready)
        since = min(since, now) if running else EVER
        decision = scaling.decide([job.told(now, running, since) for job in jobs], running, now)
        goal = min(host, decision.workers)
        ready = sorted(ready)[:goal] + [now + STARTING] * (goal - len(ready))
        found.append(Moment(now, decision, sum(job.wants(now) for job in jobs)))
    return found


def step_up_and_down(now: float) -> int:
    return 12 if 100 <= now < 200 else 2


def sawtooth(now: float) -> int:
    return 2 + int(now) // 5 % 6


SIMULATIONS = {
    "step": ([SimulatedJob(step_up_and_down)], 400),
    "sawtooth": ([SimulatedJob(sawtooth)], 300),
    "steady": ([SimulatedJob(lambda now: 5)], 200),
    "two jobs that share processes": (
        [SimulatedJob(lambda now: 3), SimulatedJob(lambda now: 4, reads=(80.0, 200.0))],
        400,
    ),
    "16 tasks of a promised order": ([SimulatedJob(lambda now: 40, most=16)], 200),
    "one job pauses while the other reads": (
        [SimulatedJob(lambda now: 3, pauses=(80.0, 140.0)), SimulatedJob(step_up_and_down)],
        400,
    ),
    "a loop that comes late": ([SimulatedJob(lambda now: 6, reads=(50.0, 90.0))], 250),
}


@pytest.mark.parametrize("name", SIMULATIONS)
def test_the_number_follows_the_need(name: str) -> None:
    """Once a need is measured, three decisions suffice to rise to it. The number falls
    to what is wanted within ``down_after`` and one decision, and is never fewer than
    feed the loop.
    """
    jobs, seconds = SIMULATIONS[name]
    moments = simulate(jobs, seconds)
    begun = next(one.now for one in moments if one.wanted)
    for at, one in enumerate(moments):
        lately = [x.wanted for x in moments[max(0, at - int(LAG) - 2) : at + 1]]
        # Nothing is measured before the first worker has run for a second.
        if one.now >= begun + STARTING + 1 + 3:
            assert one.decision.workers >= min(lately), one
        held = [x.wanted for x in moments[max(0, at - int(LAG + DOWN_AFTER) - 1) : at + 1]]
        assert one.decision.workers <= max(held), one
    assert max(one.decision.workers for one in moments) == max(one.wanted for one in moments)


def numbers(moments: list[Moment], begin: float = 0.0, end: float = EVER) -> list[int]:
    return [one.decision.workers for one in moments if begin <= one.now < end]


def changes(counts: list[int]) -> int:
    return sum(one != other for one, other in pairwise(counts))


def test_a_steady_load_changes_nothing() -> None:
    """From no workers, one is started, then as many as are needed, and never any more
    or fewer.
    """
    found = numbers(simulate([SimulatedJob(lambda now: 4)], 500))
    assert found[0] == 1
    assert (found[-1], changes(found)) == (4, 1)


def test_a_sawtooth_stops_no_worker() -> None:
    """A load that rises and falls within a minute keeps what it needs at its
    height.
    """
    found = numbers(simulate([SimulatedJob(sawtooth)], 600), begin=60.0)
    assert set(found) == {7}


def test_a_slow_link_keeps_the_number() -> None:
    """Once the link is the limit, the number stays as it is, whatever is measured."""

    def needs(now: float) -> int:
        return 4 if now < 60 else 30

    found = numbers(simulate([SimulatedJob(needs, link=4)], 300), begin=30.0)
    assert set(found) == {4}
    found = numbers(simulate([SimulatedJob(needs, link=1)], 300))
    assert set(found) == {1}


@pytest.mark.parametrize("word", [LINK_BOUND, STRAGGLER, UNKNOWN])
def test_without_a_verdict_on_workers_the_number_stays(word: str) -> None:
    """A job that more workers would not help keeps its last number, and has at least
    one. If none was ever known, no worker that is there is taken away.
    """
    scaling = Scaling()
    known = JobNeed(3, INPUT_BOUND, 1, False, None)
    other = JobNeed(9, word, 1, False, None)
    assert scaling.decide([other], 0, 0.0).workers == 1
    assert scaling.decide([known], 1, 1.0).workers == 3
    assert {scaling.decide([other], 3, 2.0 + now).workers for now in range(200)} == {3}
    assert Scaling().decide([other], 5, 0.0).workers == 5


def test_a_starved_loop_is_no_pause() -> None:
    """A loop that waits because the host cannot start more workers needs as many as
    before.
    """
    found = numbers(simulate([SimulatedJob(lambda now: 8)], 900, host=2), begin=30.0)
    assert set(found) == {8}


def test_a_pause_takes_no_worker() -> None:
    """A loop that pauses for 60 seconds has all its workers afterwards, and while it
    pauses.
    """
    job = SimulatedJob(lambda now: 5, pauses=(100.0, 160.0))
    assert set(numbers(simulate([job], 400), begin=30.0)) == {5}


def test_validation_between_passes_takes_no_worker() -> None:
    """Three minutes between two passes of a run leave the number as it is. A run that
    does not come back keeps it for ten minutes, and ``down_after``.
    """
    job = SimulatedJob(lambda now: 5, between=(100.0, 280.0))
    assert set(numbers(simulate([job], 500), begin=30.0)) == {5}
    for gone in (
        replace(job, between=(100.0, EVER)),
        replace(job, between=(EVER, EVER), pauses=(100.0, EVER)),
    ):
        found = numbers(simulate([gone], 1_000), begin=30.0)
        end = int(100 - 30 + PAUSE_KEPT + DOWN_AFTER)
        assert set(found[: end - 1]) == {5}
        assert set(found[end:]) == {0}


def test_nobody_reads() -> None:
    """The number falls to 0 when nobody has read for ``down_after``, and is 0 from the
    beginning if nobody ever did.
    """
    found = numbers(simulate([SimulatedJob(lambda now: 5, reads=(0.0, 100.0))], 300), begin=30.0)
    assert found == [5] * int(70 + DOWN_AFTER - 1) + [0] * int(200 - DOWN_AFTER + 1)
    assert set(numbers(simulate([], 100, present=3))) == {0}
    between = JobNeed(0, UNKNOWN, 0, True, None)
    assert Scaling().decide([between], 3, 0.0).workers == 0


def test_the_number_grows_at_most_fourfold() -> None:
    """From no worker to one, then to four, and so on."""
    scaling = Scaling()
    need = [JobNeed(100, INPUT_BOUND, 1, False, None)]
    found = [scaling.decide(need, 0, float(now)).workers for now in range(5)]
    assert found == [1, 4, 16, 64, 100]


def test_jobs_are_found_again_by_name() -> None:
    """A job keeps its own need while jobs before it end."""
    scaling = Scaling()
    first = JobNeed(2, INPUT_BOUND, 1, False, None, "first")
    second = JobNeed(3, INPUT_BOUND, 1, False, None, "second")
    assert scaling.decide([first, second], 5, 0.0).workers == 5
    pause = replace(second, needed=0, word=UNKNOWN, paused=True)
    assert [scaling.decide([pause], 5, now).workers for now in (1.0, 59.9, 60.0)] == [5, 5, 3]


@pytest.mark.parametrize(
    ("needs", "present", "reason"),
    [
        ([], 2, "No training loop reads a job."),
        ([JobNeed(1, COMPUTE_BOUND, 1, False, None)], 1, "1 job needs 1 worker."),
        (
            [JobNeed(0, UNKNOWN, 1, False, None)] * 2,
            3,
            "2 jobs have no known need yet, so no worker is taken away.",
        ),
        (
            [JobNeed(5, INPUT_BOUND, 1, False, None)] * 2,
            4,
            "2 jobs need 10 workers; the number grows at most 4 times at once.",
        ),
    ],
)
def test_a_decision_has_a_reason(needs: list[JobNeed], present: int, reason: str) -> None:
    """The reason is one sentence with the numbers."""
    assert Scaling().decide(needs, present, 0.0).reason == reason


def test_a_number_that_is_held_says_why() -> None:
    """While the number is larger than what is wanted, the reason names the larger
    number.
    """
    scaling = Scaling()
    scaling.decide([JobNeed(4, INPUT_BOUND, 1, False, None)], 4, 0.0)
    found = scaling.decide([JobNeed(1, COMPUTE_BOUND, 1, False, None)], 4, 1.0)
    assert found == ScalingDecision(4, "1 job needs 1 worker; 4 were wanted in the last 60 s.")
    paused = scaling.decide([JobNeed(0, UNKNOWN, 1, True, None)], 4, 70.0)
    assert paused == ScalingDecision(1, "1 job needs 1 worker as last measured.")
    one = JobNeed(2, INPUT_BOUND, 1, False, None)
    both = scaling.decide([JobNeed(0, LINK_BOUND, 1, False, None), one], 3, 140.0)
    assert both == ScalingDecision(3, "2 jobs need 3 workers, 1 of the jobs as last measured.")


def test_no_job_gets_more_than_it_has_splits() -> None:
    """Whatever is measured, in 2,000 seeded runs the number never exceeds the splits
    that all jobs had together at some time of the last ``down_after``. While one of
    them reads and has splits, there is a worker.
    """
    for seed in range(2_000):
        draws = random.Random(seed)
        scaling, room = Scaling(), list[tuple[float, int]]()
        limits = [draws.choice((1, 2, 5, 16)) for _ in range(draws.choice((1, 1, 2, 3)))]
        is_fixed, now = draws.random() < 0.5, 0.0
        for _ in range(12):
            now += draws.choice((0.1, 1.0, 1.0, 15.0, 61.0))
            limits = limits if is_fixed else [draws.randint(0, 16) for _ in limits]
            needs = [
                JobNeed(
                    draws.choice((0, 1, 3, 40)),
                    draws.choice(VERDICTS),
                    draws.choice((0, 1, 1, 2)),
                    draws.random() < 0.2,
                    limit,
                )
                for limit in limits
            ]
            found = scaling.decide(needs, draws.choice((0, 1, 4, 50)), now).workers
            room.append((now, sum(limits)))
            assert found <= max(most for at, most in room if now - at < DOWN_AFTER), seed
            if any(one.readers and one.most and not one.paused for one in needs):
                assert found >= 1, seed
