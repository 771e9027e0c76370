"""Test the leases that the dispatcher grants to clients."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.peers.lease import MOST_ASKING, SHARE, Leases, Presence
from zmqdata.core.dispatcher.peers.liveness import Member, Questions, Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.rounds import Rounds

TIMEOUT = 10.0


def iteration(mode: str = "DYNAMIC", clients: int = 1, **job: Any) -> Iteration:
    made = Iteration(1, m.JobParameters("job", "dataset", mode, **job), 0, 1, [])
    made.clients = {f"client {number}" for number in range(clients)}
    if made.job.num_consumers is not None:
        made.rounds = Rounds(made.job.num_consumers)
    return made


@pytest.mark.parametrize("mode", ["DYNAMIC", "DATA", "HINT"])
@pytest.mark.parametrize(("clients", "alone"), [(1, True), (2, False)])
def test_clients_are_told_whether_they_are_alone(mode: str, clients: int, alone: bool) -> None:
    """A lease says whether its client reads alone, and is a little shorter than the
    silence after which a client is given up.
    """
    assert Leases(TIMEOUT).grant(iteration(mode, clients), "0") == m.Lease(SHARE * TIMEOUT, alone)


def test_the_reader_of_a_local_shard_is_alone_there() -> None:
    """A client whose static shards no other client may read counts as alone, whoever
    reads other shards.
    """
    made = iteration("DATA", 3)
    for number, shard in enumerate((0, 1, 1)):
        name = f"client {number}"
        made.openings[name] = u.OpenClientUpdate(name, 1, shards=(shard,))
        made.shard_readers.setdefault(shard, set()).add(name)
    alone = [Leases(TIMEOUT).grant(made, f"client {number}").alone for number in range(3)]
    assert alone == [True, False, False]


def test_consumers_are_never_alone() -> None:
    """Consumers of a coordinated job never count as alone, as the others may be away,
    except the consumer of a job with a single place.
    """
    leases = Leases(TIMEOUT)
    assert leases.grant(iteration(num_consumers=2), "0") == m.Lease(SHARE * TIMEOUT)
    assert leases.grant(iteration("OFF", num_consumers=1), "0") == m.Lease(
        SHARE * TIMEOUT, alone=True
    )


def test_where_everybody_gets_everything_nobody_needs_a_lease() -> None:
    """Readers of copies and trainers of a shared cache get a free lease, as their
    absence costs nothing but they must be heard.
    """
    leases = Leases(TIMEOUT)
    assert leases.grant(iteration("OFF", 2), "0") == m.Lease(SHARE * TIMEOUT, free=True)
    assert leases.grant(iteration(cache=True), "0") == m.Lease(SHARE * TIMEOUT, free=True)


def test_who_believes_to_be_alone_lives_as_long_as_workers_hear_it() -> None:
    """A client that believes it reads alone stays while workers hear it. Other clients
    are given up by their silence.
    """
    leases = Leases(TIMEOUT)
    member = Member("k", b"peer", heard=0.0, noticed=8.0)
    assert not leases.is_over(member, 19.0)
    assert leases.is_over(member, 20.0)
    leases.tells(Roster(), m.WorkerHeartbeat("w", (), (), every=5.0), 8.0)
    assert not leases.is_over(member, 27.0)
    assert leases.is_over(member, 28.0)
    leases.record_belief(m.ClientHeartbeat("k", 0, 0, {}))
    assert leases.is_over(member, 10.0)
    leases.record_belief(m.ClientHeartbeat("k", 0, 0, {}, alone=True))
    assert not leases.is_over(member, 17.0)
    leases.record_belief(m.ClientHeartbeat("k", 0, 0, {}))
    leases.forget("k")
    assert not leases.is_over(member, 17.0)


def test_a_new_dispatcher_takes_those_that_share_for_aware() -> None:
    """A restarted dispatcher assumes that clients with other readers know of them, as
    the dispatcher before told them.
    """
    leases = Leases(TIMEOUT)
    leases.resume([iteration(clients=2)], 0.0)
    assert leases.is_over(Member("client 1", b"peer", heard=0.0, noticed=8.0), 10.0)
    leases = Leases(TIMEOUT)
    leases.resume([iteration(clients=1)], 0.0)
    assert not leases.is_over(Member("client 0", b"peer", heard=0.0, noticed=8.0), 10.0)


def test_time_in_which_nobody_is_heard_tells_nothing() -> None:
    """A lease holder sends three heartbeats during its lease; if all clients miss them,
    the clients or the dispatcher are cut off, not dead.
    """
    leases, shared = Leases(TIMEOUT), iteration(clients=2)
    assert leases.spoke(shared, 100.0) == 0.0
    assert leases.hears(shared, 104.0)
    assert leases.spoke(shared, 104.0) == 0.0
    assert not leases.hears(shared, 109.0)
    assert leases.spoke(shared, 130.0) == 26.0
    assert leases.hears(shared, 130.0)
    assert leases.spoke(shared, 130.5) == 0.0
    leases.forget_iteration(shared.iteration)
    assert leases.hears(shared, 200.0)


def test_who_has_no_lease_may_be_silent_together() -> None:
    """Clients without a lease send heartbeats as rarely as they like."""
    leases, copies = Leases(TIMEOUT), iteration("OFF", 2)
    assert leases.spoke(copies, 0.0) == 0.0
    assert leases.hears(copies, 100.0)
    assert leases.spoke(copies, 100.0) == 0.0


def test_a_new_dispatcher_listens_from_its_beginning() -> None:
    """A restarted dispatcher counts time from its start, so late clients are not dead
    because the first has come.
    """
    leases, shared = Leases(TIMEOUT), iteration(clients=2)
    leases.resume([shared], 50.0)
    assert leases.spoke(shared, 56.0) == 6.0


def test_who_listens_anew_has_missed_nothing() -> None:
    """Time forgiven for another reason is not discounted a second time."""
    leases, shared = Leases(TIMEOUT), iteration(clients=2)
    leases.spoke(shared, 0.0)
    assert leases.listen(0.0) == 0.0
    assert leases.listen(100.0) == 100.0
    assert leases.hears(shared, 104.0)
    assert leases.spoke(shared, 104.0) == 0.0


def test_where_only_workers_speak_their_pauses_tell_nothing() -> None:
    """Pauses between heartbeats of workers do not count as silence of all clients, so a
    dead client's job is collected in time.
    """
    leases = Leases(TIMEOUT)
    assert leases.listen(0.0) == 0.0
    leases.tells(Roster(), m.WorkerHeartbeat("w", (), (), every=6.0), 0.0)
    assert leases.listen(6.0) == 0.0
    assert leases.listen(17.0) == 0.0
    assert leases.listen(29.0) == 12.0


def test_clients_that_ask_once_take_little_memory() -> None:
    """The dispatcher remembers a bounded number of clients that ask whether a reader
    lives. The oldest of too many asks anew.
    """
    out, clients = Outbox(1), Roster()
    questions = Questions(out, clients)
    presence = Presence(questions, clients, Roster(), (), Leases(TIMEOUT))
    clients.hear("reader", "peer", 0.0)

    def ask(asker: str) -> bool | None:
        return presence.is_any_alive(["reader"], asker, 0.0)

    assert ask("first") is None
    questions.hear("reader", m.Question(out.mark, 1), done=False)
    for count, alive in ((MOST_ASKING - 1, True), (1, None)):
        for number in range(count):
            ask(f"{count} {number}")
        assert ask("first") is alive
