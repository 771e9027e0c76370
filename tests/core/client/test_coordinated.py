"""Test how a numbered consumer reads in the order of its steps."""

from __future__ import annotations

from typing import Any

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.coordinated import Stepping
from zmqdata.core.ranges import RangeSet

V = m.View


def turns_of(command: e.Deliver | e.Weave) -> list[tuple[int, e.Deliver, int]]:
    """Return the order of delivered elements as tuples of turn, part of a block and
    stop.
    """
    if isinstance(command, e.Deliver):
        return [(0, command, command.stop)]
    length = command.parts[0].stop - command.parts[0].skip
    return [(turn, part, part.skip + 1) for turn in range(length) for part in command.parts]


class Consumer:
    """The reading of a consumer with tasks at worker ``w``, and its deliveries."""

    def __init__(
        self, *views: V, horizon: int = 100, step: int = 0, tasks: tuple[int, ...] = (7, 8)
    ) -> None:
        self.delivered: list[e.Deliver] = []
        self.reading = Stepping(None, lambda command: self.delivered.append(command))  # type: ignore[arg-type]
        self.attempt = 1
        self.tasks = tasks
        self.reading.begin(step)
        self.told(*views, horizon=horizon)

    def told(
        self, *views: V, horizon: int, version: int = 1, closed: bool = False, **plan: Any
    ) -> None:
        places = tuple(m.TaskPlace(task, self.attempt, "w", "w") for task in self.tasks)
        totals = plan.pop("totals", {})
        self.reading.list(
            m.TaskList(version, places, closed, m.Plan(views, horizon, totals, **plan))
        )

    def arrives(
        self,
        task: int,
        first: int,
        count: int = 1,
        skip: int = 0,
        attempt: int = 0,
        size: int = 10,
        *,
        rest: bool = False,
    ) -> str:
        attempt = attempt or self.attempt
        header = m.Block(1, task, attempt, first, count, skip, size * count, rest=rest)
        found = self.reading.current(header)
        self.reading.grants("w")
        assert found is not None
        return self.reading.store(found, header, f"content of {task}")

    def ends(self, task: int, total: int, rest: int) -> None:
        """Hear that a task has ended, and that its rest is not dealt yet."""
        end = m.EndOfTask(2, task, self.attempt, total, held=True, rest=rest)
        self.reading.hear_end(self.reading.task(task), end)

    @property
    def elements(self) -> list[tuple[int, int, int]]:
        """Return task, first and stop of the deliveries since the last check."""
        found = [
            (one.header.task, one.header.first + one.skip + turn, one.header.first + stop + turn)
            for command in self.delivered
            for turn, one, stop in turns_of(command)
        ]
        self.delivered.clear()
        return found

    def take(self, task: int, first: int, count: int = 1, size: int = 0) -> list[tuple[int, int]]:
        """Return the tasks whose worker is told at once, each with its number of taken
        elements.
        """
        grants = self.reading.hand_out(
            e.TakenElements(task, self.attempt, first, first + count, size)
        )
        return [(grant.task, grant.handed_out) for grant in grants.get("w", [])]


def test_elements_come_in_the_order_of_steps() -> None:
    """The consumer delivers each element at its step, in whatever order blocks
    arrive.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    consumer.arrives(8, 0, 3)
    assert consumer.elements == []
    consumer.arrives(7, 0, 2)
    assert consumer.elements == [(7, 0, 1), (8, 0, 1), (7, 1, 2), (8, 1, 2)]
    assert consumer.reading.step == 4
    consumer.arrives(7, 2)
    assert consumer.elements == [(7, 2, 3), (8, 2, 3)]


def test_nothing_is_delivered_at_the_horizon() -> None:
    """The consumer keeps elements beyond the horizon until it moves, and continues with
    the next view's positions.
    """
    consumer = Consumer(V(0, ((7, 0),)), horizon=3)
    consumer.arrives(7, 0, 10)
    consumer.arrives(8, 0, 10)
    assert consumer.elements == [(7, 0, 3)]
    consumer.told(V(0, ((7, 0),)), V(3, ((7, 3), (8, 0))), horizon=6, version=2)
    assert consumer.elements == [(7, 3, 4), (8, 0, 1), (7, 4, 5)]


def test_steps_of_a_task_that_has_ended_are_passed() -> None:
    """All consumers skip the steps of an ended task alike, once the dispatcher has told
    its total.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))), horizon=8)
    consumer.arrives(7, 0)
    consumer.arrives(8, 0, 4)
    assert consumer.elements == [(7, 0, 1), (8, 0, 1)]
    consumer.told(V(0, ((7, 0), (8, 0))), horizon=8, version=2, totals={7: 1})
    assert consumer.elements == [(8, 1, 2), (8, 2, 3), (8, 3, 4)]
    assert consumer.reading.step == 8


def test_a_step_is_passed_when_it_was_handed_out() -> None:
    """The consumer reports the step of the first element that the training loop has not
    taken.
    """
    consumer = Consumer(V(0, ((7, 0),)))
    consumer.arrives(7, 0, 4)
    assert (consumer.reading.steps, consumer.reading.waiting) == (0, 4)
    consumer.take(7, 0, 3)
    assert (consumer.reading.steps, consumer.reading.waiting) == (3, 1)
    consumer.take(7, 3)
    assert consumer.reading.steps == 4
    assert consumer.reading.unreported == {}


def test_the_horizon_is_asked_for_half_way() -> None:
    """The consumer reports that it is near in the second half of the new steps."""
    consumer = Consumer(V(0, ((7, 0),)), horizon=8)
    consumer.arrives(7, 0, 8)
    consumer.take(7, 0, 3)
    assert consumer.reading.near == 0
    consumer.take(7, 3)
    assert consumer.reading.near == 8
    consumer.told(V(0, ((7, 0),)), horizon=16, version=2)
    assert consumer.reading.near == 0


def test_a_successor_lacks_what_was_not_reported() -> None:
    """A successor tells each worker the round with which its stream begins."""
    consumer = Consumer(V(0, ((7, 0), (8, 0))), step=5, tasks=(7, 8, 9))
    assert [(grant.task, grant.first) for grant in consumer.reading.grants("w")] == [
        (7, 3),
        (8, 2),
        (9, 0),
    ]
    consumer.arrives(8, 2)
    assert consumer.elements == [(8, 2, 3)]


def test_who_was_asked_before_it_began_lacks_no_more_than_others() -> None:
    """A successor cannot name the round with which a stream begins before it is told
    its step.
    """
    consumer = Consumer(step=5, tasks=())
    consumer.reading.move(consumer.reading.task(7), m.TaskPlace(7, 1, "", ""))
    consumer.tasks = (7, 8)
    consumer.told(V(0, ((7, 0), (8, 0))), horizon=100)
    assert [(grant.task, grant.first) for grant in consumer.reading.grants("w")] == [(7, 3), (8, 2)]


def test_a_new_host_is_told_what_is_here() -> None:
    """A new host begins behind the elements that have come, which the consumer delivers
    in their turn.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    consumer.arrives(8, 0, 3)
    consumer.attempt = 2
    consumer.told(V(0, ((7, 0), (8, 0))), horizon=100, version=2)
    assert [(grant.attempt, grant.first) for grant in consumer.reading.grants("w")] == [
        (2, 0),
        (2, 3),
    ]
    consumer.arrives(7, 0)
    assert consumer.elements == [(7, 0, 1), (8, 0, 1)]
    assert consumer.arrives(8, 3) == ""


def test_it_is_over_at_the_end_that_the_dispatcher_tells() -> None:
    """The consumer ends after it has taken everything, and only when the dispatcher
    says that no task is missing in the views.
    """
    consumer = Consumer(V(0, ((7, 0),)))
    consumer.arrives(7, 0, 2)
    consumer.told(V(0, ((7, 0),)), horizon=100, version=2, totals={7: 2}, closed=True)
    assert not consumer.reading.is_over(True)
    consumer.take(7, 0, 2)
    assert not consumer.reading.is_over(True)
    consumer.told(V(0, ((7, 0),)), horizon=100, version=3, totals={7: 2}, closed=True, end=2)
    assert consumer.reading.is_over(True)


def test_a_list_without_a_plan_changes_no_steps() -> None:
    """The consumer reads nothing before the dispatcher sends the plan."""
    consumer = Consumer(V(0, ((7, 0),)), horizon=5)
    consumer.reading.list(m.TaskList(2, (m.TaskPlace(7, 1, "w", "w"),), False))
    consumer.arrives(7, 0)
    assert consumer.elements == [(7, 0, 1)]


def test_whole_cycles_are_woven() -> None:
    """A single command delivers the next blocks of all tasks, element by element in
    turn.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 3))))
    consumer.arrives(8, 3, 3)
    consumer.arrives(7, 0, 5)
    woven, _ = consumer.delivered
    assert isinstance(woven, e.Weave)
    assert (woven.steps, woven.cycle) == ((0, 1), 2)
    assert consumer.elements == [
        (7, 0, 1),
        (8, 3, 4),
        (7, 1, 2),
        (8, 4, 5),
        (7, 2, 3),
        (8, 5, 6),
        (7, 3, 4),
    ]
    consumer.arrives(8, 6, 4)
    assert consumer.elements == [(8, 6, 7), (7, 4, 5), (8, 7, 8)]


def test_tasks_that_have_ended_are_left_out_of_a_weave() -> None:
    """A weave skips the steps of ended tasks, at most up to the beginning of the next
    view.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0), (9, 0))), V(7, ((7, 3),)), horizon=8, tasks=(7, 8, 9))
    consumer.told(
        V(0, ((7, 0), (8, 0), (9, 0))), V(7, ((7, 3),)), horizon=8, version=2, totals={8: 0}
    )
    consumer.arrives(9, 0, 9)
    consumer.arrives(7, 0, 9)
    assert consumer.elements == [(7, 0, 1), (9, 0, 1), (7, 1, 2), (9, 1, 2), (7, 2, 3), (7, 3, 4)]
    assert consumer.reading.step == 8


def test_a_weave_is_reported_element_by_element() -> None:
    """The step behind a weave counts the taken elements, in whatever order its tasks
    report them.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0), (9, 0))), tasks=(7, 8, 9))
    consumer.told(V(0, ((7, 0), (8, 0), (9, 0))), horizon=100, version=2, totals={8: 0})
    consumer.arrives(9, 0, 3)
    consumer.arrives(7, 0, 3)
    consumer.take(7, 0, 2)
    assert consumer.reading.steps == 3
    consumer.take(9, 0)
    assert consumer.reading.steps == 5
    consumer.take(9, 1, 2)
    consumer.take(7, 2)
    assert (consumer.reading.steps, consumer.reading.waiting) == (9, 0)


def test_workers_are_told_together_when_nothing_is_left() -> None:
    """The consumer widens all used windows together when nothing is left to take, and
    does not wait for a single task.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    consumer.arrives(7, 0, 2)
    consumer.arrives(8, 0, 2)
    assert [consumer.take(7, 0), consumer.take(8, 0), consumer.take(7, 1, size=20)] == [[], [], []]
    widths = {task: window.window.bytes for task, window in consumer.reading.tasks.items()}
    assert sorted(consumer.take(8, 1, size=20)) == [(7, 2), (8, 2)]
    assert all(
        task.window.bytes == 2 * widths[number] for number, task in consumer.reading.tasks.items()
    )
    consumer.arrives(7, 2)
    assert consumer.take(7, 2) == [(7, 3)]


def test_much_that_was_taken_is_told_at_once() -> None:
    """The consumer tells a worker at once when a quarter of the limit in flight was
    taken, even if elements are left.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    consumer.arrives(7, 0, size=1 << 18)
    consumer.arrives(7, 1)
    consumer.arrives(8, 0, 2)
    assert consumer.take(7, 0, size=1 << 18) == [(7, 1)]


# --- where it stands


def test_a_place_is_a_step() -> None:
    """A position is a step: the rounds of each task before it were passed, and a
    settled task is never replayed behind it.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    for task in (7, 8):
        consumer.arrives(task, 0, 2)
    for task, number in ((7, 0), (8, 0), (7, 1)):
        consumer.take(task, number)
    reading = consumer.reading
    assert reading.steps == 3
    assert reading.at(3) == ({7: RangeSet([(0, 2)]), 8: RangeSet([(0, 1)])}, [], 3)
    assert reading.at(1) == ({7: RangeSet([(0, 1)]), 8: RangeSet()}, [], 1)
    reading.settle(1)
    assert (reading.settled(7), reading.settled(8)) == (RangeSet([(0, 1)]), RangeSet())
    assert reading.at(2)[2] == 2
    reading.settle(None)
    assert (reading.settled(7), reading.settled(8)) == (RangeSet([(0, 2)]), RangeSet([(0, 1)]))
    assert reading.at(4)[2] == reading.step == 4


def test_a_total_counts_when_all_of_the_task_was_passed() -> None:
    """A total counts when all of its task was passed, as the plan may be ahead of the
    task's lineage.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    for task in (7, 8):
        consumer.arrives(task, 0, 2)
    consumer.told(V(0, ((7, 0), (8, 0))), horizon=100, version=2, totals={7: 1})
    assert consumer.reading.totals == {}
    for task in (7, 8):
        consumer.take(task, 0)
    consumer.reading.settle(None)
    assert consumer.reading.totals == {7: 1}


def test_a_rest_is_no_round() -> None:
    """An element after the last full round of a task is delivered at its own step of
    the last rounds, even if it comes before the plan that says so.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    consumer.arrives(7, 0)
    consumer.arrives(7, 1, rest=True)
    consumer.arrives(8, 0)
    assert consumer.elements == [(7, 0, 1), (8, 0, 1)]
    consumer.ends(7, 2, 1)
    consumer.ends(8, 1, 0)
    assert consumer.elements == []
    consumer.told(
        V(0, ((7, 0), (8, 0))), horizon=5, totals={7: 1, 8: 1}, rests={7: 1}, last=4, end=5
    )
    assert consumer.elements == [(7, 1, 2)]
    assert consumer.reading.step == 5
    assert not consumer.reading.is_over(True)
    consumer.take(7, 0)
    consumer.take(8, 0)
    consumer.take(7, 1)
    assert consumer.reading.is_over(True)


def test_empty_steps_of_a_task_with_a_rest_wait_for_its_end() -> None:
    """A consumer passes no empty step of a task with a rest before the worker has told
    of its end, because a state has to say what makes the rest.
    """
    consumer = Consumer(V(0, ((7, 0), (8, 0))))
    consumer.arrives(8, 0)
    consumer.told(V(0, ((7, 0), (8, 0))), horizon=9, totals={7: 0}, rests={7: 1})
    assert consumer.elements == []
    consumer.ends(7, 1, 1)
    assert consumer.elements == [(8, 0, 1)]
    assert consumer.reading.totals[7] == 1
    assert consumer.reading.rests == {7: 1}


def test_the_rest_of_a_task_is_known_with_its_total() -> None:
    """A consumer at the end knows the rests that the plan tells, before the workers
    have told it of the ends of their tasks.
    """
    consumer = Consumer(V(0, ((7, 0),)), tasks=(7,))
    consumer.arrives(7, 0)
    consumer.take(7, 0)
    consumer.told(V(0, ((7, 0),)), horizon=1, totals={7: 1}, rests={7: 1}, end=1)
    consumer.reading.settle(None)
    assert (consumer.reading.totals, consumer.reading.rests) == ({7: 2}, {7: 1})
