"""Test the client's record of each task that it reads, with blocks in any order."""

from __future__ import annotations

from typing import Any

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.coordinated import CachedReading
from zmqdata.core.client.tasks import ALIKE, KNOWN, LoopPace, Reading
from zmqdata.core.credit import FIRST_BYTES, FIRST_ELEMENTS, FIRST_SHARED
from zmqdata.core.ranges import RangeSet


class Client:
    """The reading of a client, and its deliveries."""

    def __init__(self, *tasks: int, max_outstanding: int | None = None) -> None:
        self.done: list[Any] = []
        self.reading = Reading(max_outstanding, self.done.append)
        self.reading.begin(5)
        self.places(*(m.TaskPlace(task, 1, "w", "w") for task in tasks))

    def places(self, *places: m.TaskPlace) -> None:
        self.reading.list(m.TaskList(1, places, False))

    def arrives(
        self,
        task: int,
        first: int,
        count: int = 1,
        skip: int = 0,
        attempt: int = 1,
        size: int = 10,
        recall: int = 0,
    ) -> str:
        self.reading.grants("w")
        header = m.Block(1, task, attempt, first, count, skip, size, recall=recall)
        found = self.reading.current(header)
        return "not current" if found is None else self.reading.store(found, header, "content")

    def take(
        self, task: int, first: int, stop: int, size: int = 0, attempt: int = 1
    ) -> m.StreamGrant | None:
        grants = self.reading.hand_out(e.TakenElements(task, attempt, first, stop, size))
        return grants["w"][0] if "w" in grants else None


def test_blocks_are_delivered_as_they_come() -> None:
    """The client delivers each block at once, without elements that other clients had,
    and keeps it until it is taken.
    """
    client = Client(1)
    assert client.arrives(1, 4, 3, skip=1) == ""
    assert [(one.skip, one.stop, one.content) for one in client.done] == [
        (1, 2, "content"),
        (2, 3, "content"),
    ]
    assert client.reading.waiting == client.reading.tasks[1].waiting == 2


def test_what_came_before_is_not_delivered_again() -> None:
    """The client delivers nothing when a new link repeats a block."""
    client = Client(1)
    client.arrives(1, 0, 2)
    assert client.arrives(1, 0, 2) == ""
    assert [(one.skip, one.stop) for one in client.done] == [(0, 1), (1, 2)]


def test_more_than_was_granted_is_a_breach() -> None:
    """The client rejects a block beyond the credit, and the text says what was sent and
    granted.
    """
    client = Client(1)
    client.arrives(1, 0, FIRST_ELEMENTS)
    text = client.arrives(1, FIRST_ELEMENTS, 1)
    assert "task 1 has sent 1 elements (10 bytes)" in text
    assert client.reading.tasks[1].window.breaches == 1
    assert client.done[-1].stop == len(client.done) == FIRST_ELEMENTS


def test_only_listed_tasks_of_the_present_attempt_count() -> None:
    """The client ignores messages of other attempts, of tasks that left the list, and
    of unknown tasks.
    """
    client = Client(1, 2)
    assert client.arrives(1, 0, attempt=2) == client.arrives(3, 0) == "not current"
    client.places(m.TaskPlace(2, 1, "w", "w"))
    assert client.arrives(1, 0) == "not current"
    assert client.reading.unended == {2}


def test_a_task_that_moves_begins_with_new_credit() -> None:
    """A task that moves keeps its received elements, but windows and ends belong to a
    single attempt.
    """
    client = Client(1)
    client.arrives(1, 0, 2)
    client.reading.end(client.reading.tasks[1], 2)
    assert client.reading.is_over(True) is False
    client.places(m.TaskPlace(1, 2, "v", "v"))
    assert client.reading.addresses == ["v"]
    assert client.reading.unended == {1}
    assert client.reading.grants("w") == ()
    [grant] = client.reading.grants("v")
    assert (grant.attempt, grant.handed_out, grant.first) == (2, 0, 0)
    assert client.take(1, 0, 2, 10) is None
    assert client.reading.waiting == 0


def test_an_older_place_is_ignored() -> None:
    """The client ignores an older attempt of a task."""
    client = Client(1)
    client.places(m.TaskPlace(1, 2, "v", "v"))
    client.places(m.TaskPlace(1, 1, "w", "w"))
    assert client.reading.tasks[1].place.worker == "v"


def test_it_is_over_when_nothing_is_owed_and_nothing_waits() -> None:
    """The client finishes when all tasks have ended, everything was taken, and no
    further task will come.
    """
    client = Client(1)
    client.arrives(1, 0, 1)
    assert not client.reading.is_over(True)
    client.reading.end(client.reading.tasks[1], 2)
    client.take(1, 0, 1, 10)
    assert client.reading.is_over(True)
    assert not client.reading.is_over(False)
    client.arrives(1, 1, 1)
    assert not client.reading.is_over(True)


def test_a_worker_is_told_when_it_should_know_at_once() -> None:
    """The client tells a worker at once when nothing of its task waits or a good part
    of the grant was used.
    """
    client = Client(1)
    client.arrives(1, 0, FIRST_ELEMENTS)
    assert client.take(1, 0, 1) is None
    grant = client.take(1, 1, 4)
    assert grant is not None
    assert grant.elements == 4 + FIRST_ELEMENTS
    grant = client.take(1, 4, FIRST_ELEMENTS, 10)
    assert grant is not None
    assert (grant.handed_out, grant.elements) == (FIRST_ELEMENTS, 3 * FIRST_ELEMENTS)


def test_a_limit_bounds_what_is_on_its_way() -> None:
    """The client grants at most ``max_outstanding`` elements beyond the taken
    elements.
    """
    client = Client(1, max_outstanding=3)
    assert [grant.elements for grant in client.reading.grants("w")] == [3]


def test_a_limit_is_shared_by_all_tasks() -> None:
    """Each task has its share of ``max_outstanding``: a slow task does not hold all of
    it, and the share of a task without a worker is kept for it.
    """
    client = Client(1, 2, max_outstanding=5)
    assert [grant.elements for grant in client.reading.grants("w")] == [2, 2]
    assert client.reading.spread()["w"][0].elements == 3
    alone = Client(max_outstanding=5)
    alone.places(m.TaskPlace(1, 1, "w", "w"), m.TaskPlace(2, 1, "", ""))
    assert [grant.elements for grant in alone.reading.grants("w")] == [2]
    assert alone.reading.spread()["w"][0].elements == 3
    alone.places(m.TaskPlace(1, 1, "w", "w"), m.TaskPlace(2, 1, "w", "w"))
    assert [grant.elements for grant in alone.reading.grants("w")] == [3, 2]


def test_reports_are_repeated_until_they_are_acknowledged() -> None:
    """The client reports merged ranges per task until they are acknowledged, and then
    tells the worker that they are counted.
    """
    client = Client(1)
    client.arrives(1, 0, 6)
    client.take(1, 0, 2)
    client.reading.next_report()
    client.reading.next_report()
    client.take(1, 2, 4)
    client.reading.next_report()
    assert (client.reading.report, client.reading.unreported) == (2, {1: ((0, 4),)})
    client.reading.acknowledge(1)
    assert client.reading.unreported == {1: ((2, 4),)}
    [grant] = client.reading.grants("w")
    assert (grant.handed_out, grant.reported) == (4, 2)
    client.places(m.TaskPlace(1, 2, "w", "w"))
    client.reading.acknowledge(2)
    [grant] = client.reading.grants("w")
    assert (grant.attempt, grant.reported) == (2, 0)


def test_whoever_is_no_consumer_has_no_steps() -> None:
    """Only numbered consumers have steps and horizons."""
    client = Client(1)
    assert (client.reading.steps, client.reading.near) == (0, 0)


def test_a_task_without_a_host_has_no_address() -> None:
    """A task between two hosts has no address and needs no link."""
    client = Client(1)
    client.places(m.TaskPlace(1, 2, "", ""))
    assert client.reading.addresses == []


# --- where it stands


def test_elements_that_were_handed_out_once_come_in_that_order_again() -> None:
    """The client repeats the order of its state by keeping early elements back, and
    then delivers elements as they come.
    """
    client = Client(1, 2)
    client.reading.keep_order([(0, 0, 2), (1, 0, 1)], {1: 0, 2: 1})
    client.arrives(2, 0, 2)
    assert client.done == []
    assert not client.reading.is_over(closed=True)
    client.arrives(1, 0, 3)
    came = [(one.header.task, one.skip, one.stop) for one in client.done]
    assert came[:3] == [(1, 0, 1), (1, 1, 2), (2, 0, 1)]
    assert sorted(came[3:]) == [(1, 2, 3), (2, 1, 2)]
    assert client.reading.ordering is None


def test_a_task_that_has_ended_is_not_waited_for() -> None:
    """The order goes on without the elements of an ended task, which another client
    has.
    """
    client = Client(1, 2)
    client.reading.keep_order([(0, 0, 2), (1, 0, 1)], {1: 0, 2: 1})
    client.arrives(2, 0)
    client.reading.end(client.reading.tasks[1], 2)
    assert [(one.header.task, one.skip, one.stop) for one in client.done] == [(2, 0, 1)]


def test_a_place_says_what_was_handed_out_and_what_is_known_of_ends() -> None:
    """A position has the elements handed out before it, which are settled once no
    reader goes back behind it, and the known totals.
    """
    client = Client(1)
    client.arrives(1, 0, 4)
    client.take(1, 0, 3)
    client.reading.settle(2)
    assert client.reading.at(2) == ({1: RangeSet([(0, 2)])}, [(1, 2, 3)], 0)
    assert client.reading.settled(1) == RangeSet([(0, 2)])
    client.reading.settle(None)
    assert client.reading.settled(1) == RangeSet([(0, 3)])
    assert client.reading.totals == {}
    client.reading.end(client.reading.tasks[1], 4)
    assert client.reading.totals == {1: 4}


def test_elements_of_an_older_attempt_count_as_repeats() -> None:
    """Elements of an older attempt count as repeats, as a host makes or has made them
    again.
    """
    client = Client(1)
    client.places(m.TaskPlace(1, 2, "v", "v"))
    assert client.arrives(1, 0, 3, skip=1) == "not current"
    assert client.reading.repeats == 2


# --- the pace of the loop


def test_the_pace_leaves_out_waits() -> None:
    """The pace is the time between two elements while there is something to take. An
    element in work counts from when the loop came back.
    """
    pace = LoopPace()
    assert pace.present(0.0, busy=True) == 0.0
    pace.begin(10.0)
    assert pace.present(10.5, busy=True) == 0.5, "not even the first is done"
    pace.took(1)
    pace.came_back(11.0)
    assert pace.seconds == 1.0
    pace.begin(20.0)
    pace.took(2)
    pace.came_back(22.0)
    assert pace.seconds == 1.0
    assert pace.present(25.0, busy=False) == 1.0
    assert pace.present(25.0, busy=True) == 3.0, "it has paused"


def test_what_a_loop_takes_early_counts_when_it_comes_back() -> None:
    """Elements that a loop has taken and works on take as long as it stays away."""
    pace = LoopPace()
    pace.begin(0.0)
    pace.took(1)
    pace.at_work = True
    pace.begin(0.1)
    pace.came_back(1.0)
    assert (pace.seconds, pace.at_work) == (1.0, False)


def test_pieces_last_a_few_milliseconds() -> None:
    """The client delivers a block in pieces of some milliseconds of work. While the
    pace is unknown, pieces begin with one element and grow.
    """
    pace = LoopPace()
    pieces = [pace.piece for _ in range(4 * ALIKE)]
    assert pieces == [1] * (2 * ALIKE) + [2] * ALIKE + [4] * ALIKE
    pace.took(1000)
    pace.came_back(KNOWN / 2)
    assert pace.piece == 8, "too little to know it"
    pace.took(1000)
    pace.came_back(1.0)
    assert pace.piece == 4
    pace.seconds = 1.0
    assert pace.piece == 1


# --- giving back


def test_what_is_given_back_was_never_received() -> None:
    """Elements that were given back are no holdings, wait no more, and may come again,
    which is no repeat.
    """
    client = Client(1)
    client.arrives(1, 0, 6, size=60)
    task = client.reading.tasks[1]
    client.reading.asked_back(task, m.TakeBackElements(2, 1, 1, 1, keep=2))
    assert client.done[-1] == e.DropUnbegun(1, 1, 1, 4)
    grants = client.reading.give_back(e.UnbegunDropped(1, 1, 1, ((5, 6), (3, 5))))
    assert grants["w"][0] == m.StreamGrant(1, 1, 8, FIRST_BYTES, 0, recall=1, kept=3)
    assert task.received == RangeSet([(0, 3)])
    assert (client.reading.waiting, client.reading.given_back) == (3, 3)
    assert client.arrives(1, 4, 2, recall=1) == ""
    assert (client.reading.waiting, client.reading.repeats) == (5, 0)


def test_a_block_from_before_the_request_is_dropped() -> None:
    """A block that comes again over another link, after its elements were given back,
    brings none of them.
    """
    client = Client(1)
    client.arrives(1, 0, 2)
    client.reading.give_back(e.UnbegunDropped(1, 1, 1, ((0, 2),)))
    assert client.arrives(1, 0, 2) == ""
    assert client.reading.waiting == 0


def test_nothing_is_given_back_that_has_to_come_in_order() -> None:
    """A client that reads in the order of its state keeps all that it has."""
    client = Client(1)
    client.reading.keep_order([(1, 0, 1)], {1: 0})
    client.arrives(1, 0, 4)
    client.reading.asked_back(client.reading.tasks[1], m.TakeBackElements(2, 1, 1, 1, keep=0))
    assert client.done == [e.DropUnbegun(1, 1, 1, 0)]


def test_all_workers_learn_that_the_loop_waits() -> None:
    """A client tells each worker that may get elements back as soon as its loop has
    nothing left, once, and not while the loop is at work.
    """
    client = Client(1)
    client.places(*(m.TaskPlace(task, 1, name, name) for task, name in enumerate("wxy", 1)))
    for task in (1, 2):
        client.reading.note_ending(client.reading.tasks[task])
    client.arrives(1, 0, 1)
    client.reading.hand_out(e.TakenElements(1, 1, 0, 1, 10))
    client.reading.loop_seen(at_work=True)
    assert client.reading.ask_back({}) == {}
    assert client.reading.loop()[1] is False
    client.reading.loop_seen(at_work=False)
    assert set(client.reading.ask_back({})) == {"w", "x"}
    assert client.reading.loop()[1] is True
    client.reading.now += 1.0
    assert client.reading.ask_back({}) == {}, "it has said so"
    client.places(*(m.TaskPlace(task, 2, "z", "z") for task in (1, 2)))
    client.reading.note_ending(client.reading.tasks[2])
    assert set(client.reading.ask_back({})) == {"z"}


# --- a limit of all streams together


def test_a_limit_holds_for_all_workers_together() -> None:
    """A client with a limit of one lets a single worker send a single element, and then
    the next worker.
    """
    client = Client(max_outstanding=1)
    client.places(m.TaskPlace(1, 1, "w", "w"), m.TaskPlace(2, 1, "x", "x"))
    granted = [client.reading.grants(name)[0].elements for name in "wx"]
    assert granted == [1, 0]
    assert client.arrives(1, 0, 1) == ""
    assert client.reading.spread() == {}
    [grant] = client.reading.hand_out(e.TakenElements(1, 1, 0, 1, 10))["x"]
    assert (grant.task, grant.elements) == (2, 1)
    assert client.arrives(1, 1, 1) != "", "its turn is over"


def test_what_an_ended_task_was_granted_goes_to_others() -> None:
    """A worker whose task has ended needs no grant, so another gets it."""
    client = Client(max_outstanding=1)
    client.places(m.TaskPlace(1, 1, "w", "w"), m.TaskPlace(2, 1, "x", "x"))
    client.reading.grants("w")
    client.reading.end(client.reading.tasks[1], 0)
    [grant] = client.reading.spread()["x"]
    assert (grant.task, grant.elements) == (2, 1)


def test_a_client_that_is_asked_may_get_some_of_it_again() -> None:
    """A task of which elements are given back has not ended for the client that gives
    them.
    """
    client = Client(1)
    client.arrives(1, 0, 4)
    client.reading.end(client.reading.tasks[1], 4)
    client.reading.asked_back(client.reading.tasks[1], m.TakeBackElements(2, 1, 1, 1, keep=2))
    assert (client.reading.tasks[1].ended, client.reading.unended) == (False, {1})


def test_windows_shrink_when_others_come() -> None:
    """A window that has grown while the client read alone begins small again."""
    client = Client(1)
    window = client.reading.tasks[1].window
    window.widen(1)
    client.reading.share(True)
    assert window.elements == FIRST_SHARED


def test_a_lost_window_is_said_to_be_missing() -> None:
    """A trainer of a shared cache logs how many elements lie between its last one and
    the first one of the next host, and nothing if it had all of them.
    """
    client = Client(1)
    client.reading = CachedReading(None, client.done.append)
    client.places(m.TaskPlace(1, 1, "w", "w"))
    client.arrives(1, 0, 4)
    client.places(m.TaskPlace(1, 2, "w", "w"))
    client.arrives(1, 4, 2, attempt=2)
    assert [one for one in client.done if isinstance(one, e.LogLine)] == []
    client.places(m.TaskPlace(1, 3, "w", "w"))
    client.arrives(1, 9, 1, attempt=3)
    client.arrives(1, 20, 1, attempt=3)
    [line] = [one for one in client.done if isinstance(one, e.LogLine)]
    assert line.text.startswith("up to 3 elements of task 1 are missing here")


def test_everything_delivered_can_be_told_again() -> None:
    """A client reports acknowledged deliveries again, but not what it still holds."""
    client = Client(1)
    client.arrives(1, 0, 4)
    client.take(1, 0, 3)
    client.reading.acknowledge(client.reading.next_report()[0])
    assert client.reading.next_report()[1] == {}
    client.reading.retell()
    assert client.reading.next_report()[1] == {1: ((0, 3),)}
