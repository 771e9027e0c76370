"""Test which peers count as alive."""

from __future__ import annotations

import heapq

import pytest

from zmqdata.core.dispatcher.peers.liveness import Beats, Hearing, Roster

MOST = 3.0


def test_who_speaks_is_alive() -> None:
    """A peer is known from its first message until it is removed, and reachable over
    the connection of that message.
    """
    roster = Roster()
    roster.hear("a", "peer", 1.0)
    assert ("a" in roster, len(roster), roster.peer("a")) == (True, 1, "peer")
    roster.remove("a")
    roster.remove("a")
    assert ("a" in roster, len(roster), roster.peer("a")) == (False, 0, None)


def test_several_may_speak_through_one_connection() -> None:
    """Several peers may share a connection, which stays for the others when a peer is
    removed.
    """
    roster = Roster()
    for name in ("a", "b", "b"):
        roster.hear(name, "peer", 1.0)
    assert (roster.num_of("peer"), roster.num_of("nobody")) == (2, 0)
    roster.remove("a")
    roster.lose_contact("peer", 2.0)
    assert [member.name for member in roster.disconnected(9.0, 1.0)] == ["b"]
    roster.hear("b", "other", 10.0)
    assert (roster.num_of("peer"), roster.num_of("other")) == (0, 1)


def test_who_was_only_heard_of_is_expected() -> None:
    """An expected peer is a member without an address, and is lost after enough
    silence.
    """
    roster = Roster()
    roster.expect("a", 10.0, 5.0)
    roster.hear("b", 2, 10.0)
    assert ("a" in roster, roster.peer("a"), len(roster), roster.num_present) == (True, None, 2, 1)
    assert roster.disconnected(16.0, 1.5) == []
    assert [member.name for member in roster.disconnected(16.5, 1.5)] == ["a"]
    roster.hear("a", 1, 17.0)
    assert (roster.peer("a"), roster.num_present, roster.disconnected(99.0, 1.5)) == (1, 2, [])


def test_silence_is_counted_from_the_last_word() -> None:
    """A peer without a message for the given time is silent."""
    roster = Roster()
    roster.hear("a", 1, 0.0)
    roster.hear("b", 2, 0.0)
    roster.hear("b", 2, 3.0)
    assert [member.name for member in roster.silent(4.0, 2.0)] == ["a"]


def test_a_lost_connection_is_counted_from_when_it_was_first_noticed() -> None:
    """A peer without a connection for the given time is disconnected, until its next
    message.
    """
    roster = Roster()
    roster.hear("a", 1, 0.0)
    roster.lose_contact(1, 1.0)
    roster.lose_contact(1, 2.0)
    roster.lose_contact("nobody", 2.0)
    assert [member.name for member in roster.disconnected(2.5, 1.5)] == ["a"]
    roster.hear("a", 1, 3.0)
    assert roster.disconnected(9.0, 1.5) == []


def test_a_peer_that_speaks_from_elsewhere_is_reached_there() -> None:
    """After a peer has changed its connection, the old connection says nothing about
    it.
    """
    roster = Roster()
    roster.hear("a", "old", 0.0)
    roster.hear("a", "new", 1.0)
    roster.lose_contact("old", 1.0)
    assert roster.peer("a") == "new"
    assert roster.disconnected(9.0, 1.0) == []


def test_a_sign_of_life_may_come_from_others() -> None:
    """A report of other peers counts as a sign of life but not as a message, and adds
    no peer.
    """
    roster = Roster()
    roster.hear("a", 1, 1.0)
    roster.notice({"a": 5.0, "b": 5.0})
    (member,) = roster.silent(4.0, 3.0)
    assert (member.sign, "b" in roster) == (5.0, False)
    roster.forgive(2.0, 9.0)
    assert member.sign == 7.0
    roster.hear("a", 1, 9.0)
    assert member.sign == 9.0


def test_time_in_which_nobody_listened_is_forgiven() -> None:
    """The dispatcher's own pause shortens each silence and each disconnection by as
    much.
    """
    roster = Roster()
    roster.hear("a", 1, 0.0)
    roster.hear("b", 2, 0.0)
    roster.lose_contact(1, 0.0)
    roster.forgive(10.0, 11.0)
    assert roster.silent(11.0, 2.0) == []
    assert roster.disconnected(11.0, 2.0) == []


def test_those_asked_longest_ago_are_asked_first() -> None:
    """The dispatcher probes a bounded number of silent peers in turn, and no peer that
    has just sent a message.
    """
    roster = Roster()
    for number, name in enumerate("abcd"):
        roster.hear(name, name, float(number))
    asked = [
        [member.name for member in roster.doubtful(now, 2.0, 2)] for now in (4.0, 4.5, 5.0, 5.5)
    ]
    assert asked == [["a", "b"], ["c", "a"], ["d", "b"], ["a", "c"]]


def test_forgiven_silence_does_not_hide_that_of_others() -> None:
    """Forgiven silence never dates a message in the future, and does not hide other
    silent peers.
    """
    roster = Roster()
    roster.hear("a", 1, 0.0)
    roster.hear("b", 2, 1.0)
    roster.forgive(50.0, 10.0, ["a"])
    assert [member.name for member in roster.silent(12.0, 5.0)] == ["b"]
    assert [member.name for member in roster.silent(15.0, 5.0)] == ["b", "a"]


def test_who_hears_nobody_for_long_is_cut_off_itself() -> None:
    """A listener without messages beyond its patience is deaf, and learns the duration
    with the next message. Time before the first message does not count.
    """
    hearing = Hearing(patience=5.0)
    assert not hearing.is_deaf(100.0)
    assert [hearing.hear(now) for now in (100.0, 104.0)] == [0.0, 0.0]
    assert (hearing.is_deaf(108.0), hearing.is_deaf(109.0)) == (False, True)
    assert [hearing.hear(now) for now in (120.0, 121.0)] == [16.0, 0.0]


@pytest.mark.parametrize(("workers", "heard"), [(10, 10), (90, 90), (200, 100), (290, 100)])
def test_so_many_are_heard_in_a_second(workers: int, heard: int) -> None:
    """The dispatcher hears workers at their own rate up to its limit per second, even
    if all started at once.
    """
    assert rates(workers) == pytest.approx([heard] * 20, abs=heard / 10)


@pytest.mark.parametrize("workers", [400, 2000])
def test_no_worker_is_silent_for_too_long(workers: int) -> None:
    """The dispatcher hears more workers per second above that limit, spread evenly even
    if all started at once.
    """
    found = rates(workers)
    assert sum(found) / len(found) <= 1.25 * workers / MOST
    assert max(found) <= 3 * workers / MOST


def rates(workers: int) -> list[int]:
    """Return the number of heartbeats in each of 20 seconds."""
    beats = Beats(share=0.01, most=MOST)
    turns = [(0.0, number) for number in range(workers)]
    when = []
    while turns[0][0] < 30.0:
        now, number = turns[0]
        pause = max(1.0, beats.next(now))
        assert pause <= MOST
        heapq.heapreplace(turns, (now + pause, number))
        when.append(now)
    return [sum(second <= now < second + 1 for now in when) for second in range(10, 30)]
