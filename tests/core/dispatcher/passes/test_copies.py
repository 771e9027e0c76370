"""Test which repetition a copy of a dataset in another process reads."""

from __future__ import annotations

import math

import pytest

from tests.core.dispatcher.rundesk import Desk
from zmqdata import messages as m
from zmqdata.core.dispatcher.passes import copies
from zmqdata.core.dispatcher.passes.copies import Copies, CopiesPass
from zmqdata.core.dispatcher.state.snapshots import snapshot
from zmqdata.core.dispatcher.state.state import DispatcherState


def child(name: str, age: float = 0.0) -> tuple[m.DatasetCopy, ...]:
    return (m.DatasetCopy(name, age),)


def test_children_of_each_pass_read_the_next_repetition() -> None:
    """Children that are given a dataset after their siblings have read it to the end
    read the next repetition, pass after pass.
    """
    desk = Desk()
    for number in range(3):
        desk.now += 1.0
        for name in (f"{number}a", f"{number}b"):
            assert desk.place(name, "one", copies=child(name))[2] == number
        desk.finish(1, number, f"{number}a", f"{number}b")


def test_a_child_that_is_late_belongs_to_its_siblings() -> None:
    """A child that was made before its siblings had read a repetition reads it, too,
    although nothing is left of it.
    """
    desk = Desk()
    desk.open("a", "one", copies=child("a"))
    desk.now += 5.0
    desk.finish(1, 0, "a")
    desk.now += 1.0
    late = desk.opened("b", "one", copies=child("b", age=2.0))
    assert (late.repetition, late.finished) == (0, True)
    assert desk.place("c", "one", copies=child("c", age=0.5))[2] == 1


def test_children_that_have_left_a_repetition_do_not_come_back_to_it() -> None:
    """A child that is made after all of its siblings have stopped early begins the next
    repetition; one that is made before the last has stopped reads with that one.
    """
    desk = Desk()
    for name in "ab":
        desk.opened(name, "one", copies=child(name))
    desk.now += 1.0
    desk.close("a")
    assert desk.place("c", "one", copies=child("c"))[2] == 0
    desk.now += 1.0
    desk.close("b", "c")
    assert desk.place("d", "one", copies=child("d"))[2] == 1


def test_a_child_takes_the_place_of_one_that_died() -> None:
    """A child that is made after a sibling has died reads with the others, and the next
    repetition if all of them have died.
    """
    desk = Desk()
    for name in "ab":
        desk.opened(name, "one", copies=child(name))
    desk.lose("a")
    desk.wait(3.0, "b")
    assert desk.place("c", "one", copies=child("c")) == ("follows", 1, 0)
    desk.lose("b", "c")
    desk.wait(3.0)
    assert desk.place("d", "one", copies=child("d")) == ("follows", 1, 1)
    assert desk.place("e", "one", copies=child("e")) == ("follows", 1, 1)


def test_a_pass_that_was_left_outlives_a_dispatcher() -> None:
    """Children that are made after a restart of the dispatcher do not come back to a
    repetition that their siblings have left before the end.
    """
    desk = Desk()
    desk.open("a", "one", copies=child("a"))
    desk.close("a")
    desk.core.jobs.runs.copies = Copies()
    assert desk.place("b", "one", copies=child("b"))[2] == 1


def test_a_later_goodbye_does_not_prolong_a_pass() -> None:
    """A pass is over since the first copy has read it to the end, whoever leaves
    later.
    """
    known, one = Copies(), CopiesPass(1, "run", "member", 0)
    for client in "ab":
        known.record_opening(client, [one])
    assert known.record_leaving("a", at_end=True, now=5.0) == [one]
    assert known.record_leaving("b", at_end=False, now=9.0) == []
    assert known.over_since(one) == 5.0


def test_a_child_that_stays_counts_its_iterators() -> None:
    """A child that iterates several times reads one repetition after the other, even if
    its sibling is ahead.
    """
    desk = Desk()
    found = []
    for name in ("early", "late"):
        for turn in range(3):
            client = f"{name} {turn}"
            place = desk.place(client, "one", turn, copies=child(name, age=desk.now))
            found.append(place[2])
            desk.now += 1.0
            desk.close(client, at_end=True)
    assert found == [0, 1, 2, 0, 1, 2]


def test_a_parent_counts_on_from_its_children() -> None:
    """A process that reads its dataset after its children have read it reads the next
    repetition, and so do further children.
    """
    desk = Desk()
    found = []
    counted = 0
    for number, who in enumerate(["child", "child", "parent", "parent", "child", "parent"]):
        given = child(f"{number}") if who == "child" else ()
        found.append(desk.place(f"{number}", "one", counted, copies=given)[2])
        counted += who == "parent"
        desk.now += 1.0
        desk.close(f"{number}", at_end=True)
        desk.now += 1.0
    assert found == [0, 1, 2, 3, 4, 5]


def test_a_parent_may_read_together_with_its_children() -> None:
    """A process that reads while its children read the same pass shares it."""
    desk = Desk()
    for number in range(2):
        for name, given in (("child", child("child")), ("parent", ())):
            assert desk.place(f"{name} {number}", "one", number, copies=given)[2] == number
        desk.finish(1, number, f"child {number}", f"parent {number}")


def test_data_loaders_of_children_count_for_each_child() -> None:
    """Children with data loaders of their own read one repetition together, and the
    children that follow them read the next.
    """
    desk = Desk()
    for number in range(2):
        clients = []
        desk.now += 1.0
        for name in (f"{number}a", f"{number}b"):
            for worker in range(2):
                client = f"{name} {worker}"
                part = m.ReadingPass(hash(name), 0, worker, client)
                place = desk.place(client, "one", copies=child(name), reading_pass=part)
                assert place[2] == number
                clients.append(client)
        desk.finish(1, number, *clients)


def test_children_of_children_count_for_their_parents() -> None:
    """A copy of a copy belongs to the pass of the copy that it was made from."""
    desk = Desk()
    for number in range(2):
        desk.now += 1.0
        for part in range(2):
            line = (*child(f"child {number}", age=0.5), *child(f"{number}.{part}"))
            found = desk.place(f"{number}.{part}", "one", copies=line)[2]
            assert found == 2 * number + part
            desk.now += 0.6
            desk.close(f"{number}.{part}", at_end=True)


def test_children_of_one_rank_do_not_count_for_another() -> None:
    """Children of a rank that comes late read the repetition that those of the others
    have read, so that all ranks read the same repetitions.
    """
    desk = Desk()
    for number in range(2):
        for rank in "01":
            client = f"{rank}.{number}"
            who = {"member": rank, "process": rank, "copies": child(client)}
            assert desk.place(client, "one", **who)[2] == number
            desk.now += 1.0
            if rank == "0":
                desk.finish(1, number, client)
            else:
                desk.close(client, at_end=True)


def test_children_of_a_late_rank_have_the_same_empty_pass() -> None:
    """Children that are made together for a repetition that another rank has finished
    all read it, and those that are made later read the next.
    """
    desk = Desk()
    desk.open("0", "one", member="0", process="0")
    desk.opened("1", "one", member="1", process="1", copies=child("first"))
    desk.finish(1, 0, "0", "1")
    for name, repetition in (("a", 0), ("b", 0), ("c", 1)):
        who = {"member": "2", "process": "2", "copies": child(name, age=0.5)}
        found = desk.opened(name, "one", **who)
        assert (found.repetition, found.finished) == (repetition, repetition == 0)
        desk.now += 0.4
        if name == "b":
            desk.close("a", "b", at_end=True)
            desk.now += 1.0


def test_an_anonymous_job_stays_for_further_copies() -> None:
    """A job without a name that the main process has opened is kept between the workers
    of a data loader.
    """
    desk = Desk()
    job = m.JobParameters("job", "dataset", "DYNAMIC", anonymous=True)
    desk.open("peek", "one", job=job)
    for worker in range(2):
        part = m.ReadingPass(7, 0, worker, f"worker {worker}")
        assert desk.place(f"{worker}", "one", job=job, reading_pass=part) == ("follows", 1, 1)
        desk.close("peek", f"{worker}")


def test_passes_of_copies_outlive_a_dispatcher() -> None:
    """A dispatcher that is started again gives each copy its place, and a new copy the
    first repetition that is not finished.
    """
    desk = Desk()
    for name in "ab":
        desk.opened(name, "one", copies=child(name))
    desk.finish(1, 0, "a")
    state = DispatcherState()
    for update in snapshot(desk.core.state):
        state.apply(update)
    assert vars(state) == vars(desk.core.state)
    desk.core.jobs.runs.copies = Copies()
    desk.core.jobs.runs.resume()
    assert desk.place("b again", "one", copies=child("b"))[2] == 0
    assert desk.place("c", "one", copies=child("c"))[2] == 1


def test_too_long_a_way_is_refused() -> None:
    """A dataset that was copied through too many processes is refused."""
    desk = Desk()
    line = tuple(m.DatasetCopy(str(number), 0.0) for number in range(17))
    assert desk.open("k", "one", copies=line) is None
    assert "copied from process to process 16 times" in desk.refusal().text


def test_few_passes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the oldest pass is forgotten if too many are known."""
    monkeypatch.setattr(copies, "PASSES_TIMED", 2)
    known = Copies()
    passes = [CopiesPass(1, "run", "member", number) for number in range(3)]
    for one in passes:
        known.record_opening(f"{one.repetition}", [one])
    assert [known.over_since(one) for one in passes] == [None, math.inf, math.inf]
    known.record_leaving("0", at_end=True, now=1.0)
    assert known.over_since(passes[0]) is None


def test_few_counts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts of the oldest member are forgotten if too many are known."""
    monkeypatch.setattr(copies, "PASSES_TIMED", 1)
    known = Copies()
    for member in "ab":
        known.record_count(("job", "run", member), 3, now=5.0)
    assert known.count_at(("job", "run", "a"), 1.0, present=9) == 9
    assert known.count_at(("job", "run", "b"), 1.0, present=9) == 3
    assert known.count_at(("job", "run", "b"), 6.0, present=9) == 9
