"""Facts about a client's side of its lease."""

from __future__ import annotations

from zmqdata.core.lease import BEATS_KEPT, LEAST_ALONE, ClientLease
from zmqdata.messages import Lease


def test_a_lease_counts_from_what_was_said() -> None:
    """It begins when the heartbeat was sent, not when its answer came."""
    lease = ClientLease()
    beat = lease.speak(10.0)
    lease.answered(beat, Lease(15.0), 20.0)
    assert lease.holds(24.9)
    assert not lease.holds(25.0)


def test_an_older_answer_changes_nothing() -> None:
    """Answers that overtake each other leave the newest lease; a repeated or an unknown one is ignored."""
    lease = ClientLease()
    first, second = lease.speak(0.0), lease.speak(1.0)
    lease.answered(second, Lease(10.0), 1.5)
    for beat in (first, second, 77):
        lease.answered(beat, Lease(100.0, alone=True), 2.0)
    assert (lease.until, lease.alone) == (11.0, False)


def test_nothing_is_remembered_of_a_dispatcher_that_is_away_for_long() -> None:
    """Heartbeats that were never answered are forgotten, and the lease is over."""
    lease = ClientLease()
    lease.opened(Lease(10.0), 0.0, 0.0)
    beats = [lease.speak(float(at)) for at in range(3 * BEATS_KEPT)]
    lease.answered(beats[0], Lease(1e9), 300.0)
    assert not lease.holds(10.0)
    lease.answered(beats[-1], Lease(10.0), 300.0)
    assert lease.until == 309.0


def test_who_reads_alone_holds_its_lease_by_being_there() -> None:
    """Without any answer it goes on for hours, but not after it was stopped for longer than the lease."""
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    for now in range(0, 10_000, 5):
        lease.look(float(now))
    assert lease.holds(10_004.0)
    lease.look(10_006.0)
    assert not lease.holds(10_006.0)


def test_who_reads_alone_may_be_busy_for_a_moment() -> None:
    """However short the lease, a client alone is not asked to look after it all the time."""
    lease = ClientLease()
    lease.opened(Lease(0.01, alone=True), 0.0, 0.0)
    assert lease.holds(LEAST_ALONE / 2)


def test_others_make_the_lease_count_at_once() -> None:
    """Told that it is not alone any more, a client holds no longer than from what it said last."""
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    beat = lease.speak(1.0)
    lease.look(8.0)
    lease.answered(beat, Lease(10.0), 8.0)
    lease.look(9.0)
    assert lease.until == 11.0


def test_where_nothing_could_be_given_away_no_lease_is_needed() -> None:
    """Without one, elements may be handed out at any time, and heartbeats are as rare as the user wants."""
    lease = ClientLease()
    lease.opened(None, 0.0, 0.0)
    assert lease.holds(1e12)
    assert lease.pause(30.0) == 30.0


def test_a_free_lease_says_how_often_to_be_heard() -> None:
    """It never ends, and its holder is heard of several times within it, however rarely the user wants that."""
    lease = ClientLease()
    lease.opened(Lease(9.0, free=True), 0.0, 0.0)
    assert lease.holds(1e12)
    assert lease.pause(30.0) == 3.0
    assert lease.pause(1.0) == 1.0
    assert not lease.alone


def test_heartbeats_come_before_the_lease_ends() -> None:
    """Several fit into a lease."""
    lease = ClientLease()
    lease.opened(Lease(0.9), 0.0, 0.0)
    assert abs(lease.pause(30.0) - 0.3) < 1e-9
    assert lease.pause(0.1) == 0.1


def test_a_lease_may_be_ended_or_needed_no_more() -> None:
    """What belongs to others is never handed out, what nobody else wants always is."""
    lease = ClientLease()
    lease.opened(Lease(10.0, alone=True), 0.0, 0.0)
    lease.end()
    lease.look(1.0)
    assert not lease.holds(1.0)
    lease.free()
    assert lease.holds(1e12)
