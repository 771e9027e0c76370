"""Facts about the laws of coordinated reads: each law catches a core that breaks it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.checks import LawBroken, Laws
from tests.kit.runner import SimulatedPipeline
from tests.kit.steps import StepLaws
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.splits import IndexSplits
from zmqdata.testing import Clock

DESCRIPTION = m.DatasetDescription(
    "digest", "print", (IndexSplits(4),), "", None, -1, None, "3.11", "0"
)


class Court:
    """Laws over a job of the consumers ``k`` and ``l``, which may read six steps of the
    tasks 1 and 2.
    """

    def __init__(self, **job: Any) -> None:
        self.laws = Laws(1, Clock(), SimulatedPipeline(splits=4, most=1))
        self.steps = StepLaws(self.laws)
        job = {"num_consumers": 2, "finite": "drop", **job}
        self.says(
            u.RegisterDatasetUpdate("dataset", DESCRIPTION),
            u.BeginIncarnationUpdate(1, m.JobParameters("job", "dataset", "DYNAMIC", **job)),
            u.CreateIterationUpdate(2000, 1, 0, 1),
            u.OpenClientUpdate("k", 2000, (), 0),
            u.OpenClientUpdate("l", 2000, (), 1),
            u.CreateTaskUpdate(1, 2000, 1),
            u.CreateTaskUpdate(2, 2000, 1),
            u.CreateViewUpdate(2000, ((1, 0), (2, 0))),
            u.ExtendHorizonUpdate(2000, 6),
        )

    def says(self, *updates: u.Update) -> None:
        for update in updates:
            self.laws._check_update(update)

    def takes(self, client: str, step: int, name: int, task: int = 0, number: int = -1) -> None:
        """Have a training loop take the element of a step, or an element that is
        claimed to belong to it.
        """
        consumer = {"k": 0, "l": 1, "n": 1}[client]
        task, number = task or 1 + step % 2, step // 2 if number < 0 else number
        header = m.Block(1, task, 1, number, 1, 0, 1)
        self.steps.handed_out(client, consumer, step, header, ((0, name, 0),), number)


def test_a_step_is_the_same_for_all() -> None:
    """Two consumers may not have another task, or another round, at the same step."""
    court = Court()
    court.takes("k", 0, 0)
    for wrong in ({"task": 2}, {"number": 1}):
        with pytest.raises(LawBroken, match="step 0 is"):
            court.takes("l", 0, 1, **wrong)
    court.takes("l", 0, 1)


def test_no_consumer_gets_a_step_twice_or_goes_back() -> None:
    """Steps of a client grow, and another client of the same consumer gets only
    unreported steps.
    """
    court = Court()
    court.takes("k", 1, 0)
    for step in (0, 1):
        with pytest.raises(LawBroken, match="follows 1"):
            court.takes("k", step, 0)
    court.takes("l", 0, 1)
    court.takes("l", 1, 2)
    court.says(
        u.PassStepsUpdate(2000, 1, 1),
        u.CloseClientUpdate("l"),
        u.OpenClientUpdate("n", 2000, (), 1),
    )
    with pytest.raises(LawBroken, match="step 0 of consumer 1 was handed out by l and by n"):
        court.takes("n", 0, 1)
    court.takes("n", 1, 2)


def test_nobody_reads_at_the_horizon() -> None:
    """No client may read the step at the horizon yet."""
    court = Court()
    court.takes("k", 5, 0)
    with pytest.raises(LawBroken, match="reads step 6 at the horizon 6"):
        court.takes("k", 6, 0)


def test_a_round_is_made_again_as_it_was() -> None:
    """A successor gets the same element as its predecessor."""
    court = Court()
    court.takes("l", 0, 1)
    court.says(u.CloseClientUpdate("l"), u.OpenClientUpdate("n", 2000, (), 1))
    with pytest.raises(LawBroken, match="was"):
        court.takes("n", 0, 2)


def test_what_the_dead_take_does_not_count() -> None:
    """A client that was given up takes only for itself."""
    court = Court()
    court.says(u.CloseClientUpdate("l"))
    court.takes("l", 0, 1)
    assert court.steps.of_consumer(1) == {}


def ended(first: int, second: int, dropped: int = 0, **job: Any) -> Court:
    """Return laws whose tasks have both ended after so many rounds, with everything
    reported.
    """
    court = Court(**job)
    court.says(u.EndTaskUpdate(1, first + dropped, dropped), u.EndTaskUpdate(2, second))
    court.says(u.CloseTaskListUpdate(2000))
    court.says(u.PassStepsUpdate(2000, 0, 6), u.PassStepsUpdate(2000, 1, 6))
    return court


def test_every_consumer_has_every_step_at_the_end() -> None:
    """The laws report a skipped step that others had, and a task that was not read to
    its end.
    """
    court = ended(1, 1)
    for client, step, name in (("k", 0, 0), ("l", 0, 1), ("k", 1, 2)):
        court.takes(client, step, name)
    names: list[Any] = [(0, number, 0) for number in range(4)]
    with pytest.raises(LawBroken, match=r"consumer 1 has skipped steps \[1\]"):
        court.steps.check_end(names)
    court.takes("l", 1, 3)
    court.steps.check_end(names)
    with pytest.raises(LawBroken, match="1 elements are missing"):
        court.steps.check_end([*names, (0, 9, 0)])
    with pytest.raises(LawBroken, match="1 surplus"):
        court.steps.check_end(names[:3])
    with pytest.raises(LawBroken, match="not settled"):
        ended(9, 1).steps.check_end([])


@pytest.mark.parametrize(("finite", "dropped", "missing"), [("drop", 1, 1), ("pad", 0, -1)])
def test_only_the_last_round_may_be_dropped_or_filled(
    finite: str, dropped: int, missing: int
) -> None:
    """A task drops or adds at most one element with two consumers, and drops are
    counted.
    """
    court = ended(1, 0, dropped, finite=finite)
    court.takes("k", 0, 0)
    court.takes("l", 0, 1)
    names: list[Any] = [(0, number, 0) for number in range(2 + missing)]
    court.steps.check_end(names)
