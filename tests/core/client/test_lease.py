"""Test a client's side of its lease."""

from __future__ import annotations

import math

import pytest

from zmqdata.core.client.lease import BEATS_KEPT, ClientLease
from zmqdata.messages import Lease


def test_a_lease_counts_from_what_was_said() -> None:
    """A lease begins when the heartbeat was sent, not when its answer came."""
    lease = ClientLease()
    beat = lease.speak(10.0)
    lease.record_answer(beat, Lease(15.0), 20.0)
    assert lease.holds(24.9)
    assert not lease.holds(25.0)


def test_an_older_answer_changes_nothing() -> None:
    """The newest answer decides when answers overtake each other, and the client
    ignores a repeated or unknown answer.
    """
    lease = ClientLease()
    first, second = lease.speak(0.0), lease.speak(1.0)
    lease.record_answer(second, Lease(10.0), 1.5)
    for beat in (first, second, 77):
        lease.record_answer(beat, Lease(100.0, alone=True), 2.0)
    assert (lease.until, lease.alone) == (11.0, False)


def test_a_lease_says_when_the_dispatcher_is_silent() -> None:
    """The dispatcher counts as silent after half of the lease, whatever workers renew;
    without a lease the client expects no answer.
    """
    lease = ClientLease()
    assert not lease.is_unanswered(1000.0)
    lease.record_answer(lease.speak(10.0), Lease(15.0, alone=True), 10.5)
    assert not lease.is_unanswered(17.4)
    lease.renew(17.0, 17.2)
    assert lease.is_unanswered(17.5)
    lease.record_answer(lease.speak(18.0), Lease(15.0, alone=True), 18.5)
    assert not lease.is_unanswered(25.4)
    lease.free()
    assert not lease.is_unanswered(1000.0)


def test_a_dispatcher_that_closes_revives_no_ended_lease() -> None:
    """A lease that has expired holds again if its dispatcher closes for good. It does
    not if other clients have the elements.
    """
    for is_ended in (False, True):
        lease = ClientLease()
        lease.begin(Lease(10.0), 0.0, 0.0)
        if is_ended:
            lease.end()
        lease.keep()
        assert lease.holds(100.0) is not is_ended


def test_nothing_is_remembered_of_a_dispatcher_that_is_away_for_long() -> None:
    """The client forgets heartbeats without an answer, and its lease ends."""
    lease = ClientLease()
    lease.begin(Lease(10.0), 0.0, 0.0)
    beats = [lease.speak(float(at)) for at in range(3 * BEATS_KEPT)]
    lease.record_answer(beats[0], Lease(1e9), 300.0)
    assert not lease.holds(10.0)
    lease.record_answer(beats[-1], Lease(10.0), 300.0)
    assert lease.until == 309.0


def test_workers_are_enough_for_who_reads_alone() -> None:
    """A lone client reads on for hours without a dispatcher, as workers renew its lease
    from the time at which it sent a message.
    """
    lease = ClientLease()
    lease.begin(Lease(10.0, alone=True), 0.0, 0.0)
    for now in range(1, 10_000, 5):
        lease.renew(float(now) - 1.0, float(now))
    assert lease.until == 10_005.0


def test_a_lease_that_is_over_is_not_renewed_by_workers() -> None:
    """A worker does not renew an expired lease, as it may not know yet that the
    dispatcher gave the client up.
    """
    lease = ClientLease()
    lease.begin(Lease(10.0, alone=True), 0.0, 0.0)
    lease.renew(10.5, 11.0)
    assert not lease.holds(11.0)


@pytest.mark.parametrize("sent", [9.0, math.nan, math.inf])
def test_a_worker_cannot_vouch_for_what_is_to_come(sent: float) -> None:
    """The client ignores a worker that claims to have heard a message never sent."""
    lease = ClientLease()
    lease.begin(Lease(10.0, alone=True), 0.0, 0.0)
    lease.renew(sent, 5.0)
    assert lease.until == 10.0


def test_an_answer_takes_back_nothing_from_who_stays_alone() -> None:
    """An answer keeps the lease that a worker has renewed after the answered
    heartbeat.
    """
    lease = ClientLease()
    lease.begin(Lease(10.0, alone=True), 0.0, 0.0)
    beat = lease.speak(1.0)
    lease.renew(4.0, 5.0)
    lease.record_answer(beat, Lease(10.0, alone=True), 6.0)
    assert lease.until == 14.0


def test_others_make_the_lease_count_at_once() -> None:
    """A client that learns of other readers holds its lease only from its last answered
    heartbeat.
    """
    lease = ClientLease()
    lease.begin(Lease(10.0, alone=True), 0.0, 0.0)
    beat = lease.speak(1.0)
    lease.renew(7.0, 8.0)
    lease.record_answer(beat, Lease(10.0), 8.0)
    lease.renew(8.5, 9.0)
    assert lease.until == 11.0


def test_where_nothing_could_be_given_away_no_lease_is_needed() -> None:
    """Without a lease the client may hand out elements at any time, and the user
    decides how often it sends heartbeats.
    """
    lease = ClientLease()
    lease.begin(None, 0.0, 0.0)
    assert lease.holds(1e12)
    assert lease.pause(30.0) == 30.0


def test_a_free_lease_says_how_often_to_be_heard() -> None:
    """A free lease never ends, and its holder sends several heartbeats within it even
    if the user wants fewer.
    """
    lease = ClientLease()
    lease.begin(Lease(9.0, free=True), 0.0, 0.0)
    assert lease.holds(1e12)
    assert lease.pause(30.0) == 3.0
    assert lease.pause(1.0) == 1.0
    assert not lease.alone


def test_heartbeats_come_before_the_lease_ends() -> None:
    """Several heartbeats fit into a lease."""
    lease = ClientLease()
    lease.begin(Lease(0.9), 0.0, 0.0)
    assert abs(lease.pause(30.0) - 0.3) < 1e-9
    assert lease.pause(0.1) == 0.1


def test_a_lease_may_be_ended_or_needed_no_more() -> None:
    """A client never hands out elements of an ended lease, and always hands out
    elements that no other client can get.
    """
    lease = ClientLease()
    lease.begin(Lease(10.0, alone=True), 0.0, 0.0)
    lease.end()
    lease.renew(0.5, 1.0)
    assert not lease.holds(1.0)
    lease.free()
    assert lease.holds(1e12)


def test_a_client_that_is_joined_is_alone_no_more() -> None:
    """A client that sees another reader for the first time counts as alone again only
    when the dispatcher says so.
    """
    lease = ClientLease()
    lease.begin(Lease(15.0, alone=True), 0.0, 0.0)
    lease.read_with(["me"])
    assert lease.alone
    lease.read_with(["me", "other"])
    assert not lease.alone
    lease.record_answer(lease.speak(1.0), Lease(15.0, alone=True), 1.1)
    lease.read_with(["me"])
    assert lease.alone
