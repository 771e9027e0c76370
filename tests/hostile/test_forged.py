"""Tests of peers with a client's key that act for other clients or want their elements:
they change and get nothing.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.hostile.conftest import NOTHING_COMES, Peer, Service, check_serves, servers, wait_until
from zmqdata import Dataset, wire
from zmqdata import messages as m
from zmqdata.client.calls import status
from zmqdata.transport import connections, sockets
from zmqdata.transport.keychoice import own_key

COUNT = 20_000
MOST = 1 << 53
SIZE = 4 << 20


@pytest.fixture
def reading(service: Service) -> Any:
    """An iterator in the middle of its job, which is read to its end after the test."""
    elements = Dataset.range(COUNT).map(lambda x: x)
    # So few elements are in flight that the task and its link exist until the end.
    told = {"data_transfer_protocol": "tcp", "max_outstanding_requests": 1000}
    it = iter(service.read(elements, job_name="own", **told))
    found = [int(next(it))]
    yield it
    found += [int(x) for x in it]
    assert sorted(found) == list(range(COUNT))


def tasks_of(service: Service) -> list[tuple[int, int]]:
    """Return the numbers and attempts of all tasks, which are easy to guess."""
    return [(task["task"], task["attempt"]) for task in status(service.target)["tasks"]]


def names_for(service: Service) -> list[str]:
    """Return names of clients of a job that a peer may guess or read."""
    shown = status(service.workers[0].address, role="worker")["clients"]
    return [*shown, *(f"{one}-1" for one in shown), secrets.token_hex(16), "", "client", "0"]


def test_a_made_up_client_is_unknown(
    service: Service, reading: Any, make_peer: Callable[..., Peer]
) -> None:
    """The goodbyes, reports and heartbeats of an invented client are refused, or change
    nothing.
    """
    peer = make_peer(service.target)
    everything = dict.fromkeys((task for task, _ in tasks_of(service)), ((0, MOST),))
    before = status(service.target)["jobs"]
    for name in names_for(service):
        assert isinstance(
            peer.ask(m.ClientHeartbeat(name, 0, 1, everything, done=1)), m.RequestRefused
        )
        assert isinstance(peer.ask(m.CloseIteration(name, 1, everything)), m.IterationClosed)
        for task, attempt in tasks_of(service):
            peer.say(m.HoldingsReported(name, task, attempt, ((0, MOST),)))
    assert all(isinstance(one, m.IterationClosed | m.RequestRefused) for one in peer.answers())
    (job,) = status(service.target)["jobs"]
    assert (job["clients"], job["finished"]) == (before[0]["clients"], False)


def test_reports_count_for_ones_own_job_only(
    service: Service, reading: Any, make_peer: Callable[..., Peer]
) -> None:
    """A reader of another job cannot report elements of this job as handed out."""
    peer = make_peer(service.target)
    dataset_id = status(service.target)["jobs"][0]["dataset_id"]
    opened = peer.ask(
        m.OpenIteration("thief", m.JobParameters("another", dataset_id, "DYNAMIC"), 0)
    )
    assert isinstance(opened, m.IterationOpened)
    mine = {place.task for place in opened.task_list.tasks}
    others = [task for task, _ in tasks_of(service) if task not in mine]
    assert others
    beat = m.ClientHeartbeat("thief", 0, 1, dict.fromkeys(others, ((0, MOST),)))
    peer.say(beat)
    peer.say(m.HoldingsReported("thief", others[0], 1, ((0, MOST),)))
    peer.say(m.CloseIteration("thief", 2, beat.delivered))
    wait_until(
        lambda: any(isinstance(one, m.IterationClosed) for one in peer.answers()), "it is heard"
    )


def test_links_are_spoken_for_by_their_clients_alone(
    service: Service, reading: Any, make_peer: Callable[..., Peer]
) -> None:
    """A peer that guesses names closes no link, moves no credit, and takes over no
    link.
    """
    shell = servers(service)[1]
    wait_until(lambda: shell.links._links, "a link")
    peer = make_peer(service.workers[0].address)
    before = set(shell.core.links.by_name)
    grant = tuple(m.StreamGrant(*key, MOST, MOST, MOST, MOST) for key in tasks_of(service))
    for name in names_for(service):
        peer.say(m.Grant(name, MOST, grant))
        peer.say(m.CloseLink(name))
    answers = peer.answers()
    assert {type(one) for one in answers} == {m.LinkRefused}
    assert shell.core.links.by_name.keys() == before
    assert not any(link.peer == peer for link in shell.core.links.by_name.values())


def test_another_jobs_elements_are_not_given_away(
    service: Service, reading: Any, make_peer: Callable[..., Peer]
) -> None:
    """A worker gives no element for a guessed task, for a ticket of another job, or for
    a guessed ticket.
    """
    dataset_id = status(service.target)["jobs"][0]["dataset_id"]
    asker = make_peer(service.target)
    opened = asker.ask(
        m.OpenIteration("other", m.JobParameters("another", dataset_id, "DYNAMIC"), 0)
    )
    assert isinstance(opened, m.IterationOpened)
    mine = {place.task for place in opened.task_list.tasks}
    keys = [key for key in tasks_of(service) if key[0] not in mine]
    pulls = []
    for number, ticket in enumerate(
        [0, 1, opened.task_list.ticket, opened.task_list.ticket + 1, opened.iteration]
    ):
        peer = make_peer(service.workers[0].address)
        name = f"thief-{number}"
        pulls.append(peer.link(f"{name}-1", name, ticket))
        grants = tuple(m.StreamGrant(*key, MOST, MOST, 0) for key in keys)
        assert isinstance(peer.ask(m.Grant(f"{name}-1", 0, grants)), m.LinkReported | m.LinkRefused)
    assert not any(pull.poll(NOTHING_COMES) for pull in pulls)
    thieves = {f"thief-{number}" for number in range(len(pulls))}
    tasks = servers(service)[1].core.tasks.values()
    assert not any(thieves & task.dealing.streams.keys() for task in tasks)
    asker.say(m.CloseIteration("other", 0, {}))


def test_a_link_lets_its_client_in_once(service: Service, make_peer: Callable[..., Peer]) -> None:
    """The secret of a link admits a single connection; a worker refuses a second
    one.
    """
    peer = make_peer(service.workers[0].address)
    opened = peer.ask(m.OpenLink("me", "me-1", "", 0, "", ("tcp",)))
    assert isinstance(opened, m.LinkOpened)
    with sockets.new_context() as context:
        told = (context, opened.address, "me-1", opened.secret, own_key().server("worker"))
        first = sockets.link_pull(*told)
        wait_until(lambda: servers(service)[1].links._links["me-1"].taken, "its client")
        again = sockets.link_pull(*told)
        assert again.poll(10_000)
        assert sockets.is_end(again.recv_multipart(copy=False))
        assert not first.poll(NOTHING_COMES)
        for pull in (first, again):
            sockets.close_pull(pull)
    assert servers(service)[1].rejects.counts["a data socket: its key is not admitted"] == 1


def test_a_joined_job_is_read_with_its_ticket(
    service: Service, make_peer: Callable[..., Peer]
) -> None:
    """Another implementation of a client gets elements as ours does."""
    it = iter(service.read(Dataset.range(10), "parallel_epochs", job_name="shared"))
    next(it)
    dataset_id = status(service.target)["jobs"][0]["dataset_id"]
    asker, peer = make_peer(service.target), make_peer(service.workers[0].address)
    job = m.JobParameters("mine", dataset_id, "OFF")
    opened = asker.ask(m.OpenIteration("me", job, 0))
    assert isinstance(opened, m.IterationOpened)
    while not (
        places := [
            one for one in opened.task_list.tasks if one.address == service.workers[0].address
        ]
    ):
        opened = asker.ask(m.OpenIteration("me", job, 0))
        assert isinstance(opened, m.IterationOpened)
    pull = peer.link("me-1", "me", opened.task_list.ticket)
    peer.say(
        m.Grant("me-1", 0, (m.StreamGrant(places[0].task, places[0].attempt, 10, 1 << 20, 0),))
    )
    assert pull.poll(10_000)
    asker.say(m.CloseIteration("me", 0, {}))
    it.close()


@pytest.mark.parametrize(
    "stream",
    [
        (-1, -1, -1, -1, -1),
        (MOST, MOST, MOST, MOST, MOST),
        (-MOST, -MOST, -MOST, -MOST, -MOST),
        (MOST, -1, -1, MOST, -MOST),
        (0, MOST, MOST, 0, MOST),
    ],
)
def test_no_grant_does_harm(
    service: Service, make_peer: Callable[..., Peer], stream: tuple[int, ...]
) -> None:
    """Any numbers in a grant, also for a job of its own, leave all other clients
    served.
    """
    it = iter(service.read(Dataset.range(1_000_000), job_name="own"))
    next(it)
    shell = servers(service)[1]
    (ticket,) = {task.definition.ticket for task in shell.core.tasks.values()}
    peer = make_peer(service.workers[0].address)
    for name, reader in (
        ("a", m.Reader()),
        ("b", m.Reader(-1)),
        ("c", m.Reader(MOST)),
        ("d", m.Reader(0, "x")),
    ):
        peer.link(f"{name}-1", name, ticket, reader=reader)
        for task, attempt in [*tasks_of(service), (-1, -1), (MOST, MOST)]:
            for links in (0, MOST):
                peer.say(
                    m.Grant(f"{name}-1", MOST, (m.StreamGrant(task, attempt, *stream),), links)
                )
        # The client of this link has opened no job. Once the dispatcher hears of it, it
        # has the worker end the link.
        assert {type(one) for one in peer.answers()} <= {m.LinkReported, m.LinkRefused}
    negative = min(stream) < 0
    assert (shell.rejects.total > 0) == negative
    it.close()
    check_serves(service)


def test_no_report_does_harm(service: Service, make_peer: Callable[..., Peer]) -> None:
    """Any report of a peer on a job of its own leaves all other clients served and
    informed.
    """
    it = iter(service.read(Dataset.range(1_000_000), job_name="own"))
    next(it)
    dataset_id = status(service.target)["jobs"][0]["dataset_id"]
    most, least = MOST, -MOST
    for mode, consumers in (("DYNAMIC", None), ("OFF", None), ("DYNAMIC", 2)):
        name, peer = f"{mode}{consumers}", make_peer(service.target)
        job = m.JobParameters(
            name, dataset_id, mode, consumers, finite="drop" if consumers else None
        )
        opened = peer.ask(m.OpenIteration(name, job, 0, m.Reader(0 if consumers else None)))
        assert isinstance(opened, m.IterationOpened), opened
        for numbers in (
            (most, most, most, most),
            (least, least, least, least),
            (0, most, least, 1),
        ):
            for ranges in (
                ((0, most), (least, 0)),
                ((5, 2),),
                ((most, least),),
                ((0, 0),),
                ((0, most),) * 100,
            ):
                delivered = dict.fromkeys(
                    (task["task"] for task in status(service.target)["tasks"]), ranges
                )
                peer.say(
                    m.ClientHeartbeat(
                        name, numbers[0], numbers[1], delivered, *numbers[1:], repeats=numbers[0]
                    )
                )
        peer.say(m.OpenIteration(f"{name}-2", job, most, m.Reader(most if consumers else None)))
        peer.say(m.OpenIteration(f"{name}-3", job, least, m.Reader(-1)))
        assert peer.answers()
    assert status(service.target)["jobs"]
    it.close()
    check_serves(service)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_consumers": 1 << 40, "finite": "drop"},
        {"num_consumers": 1, "finite": "drop", "num_tasks": 1 << 40},
        {"num_consumers": -1},
        {"num_consumers": 1, "finite": "drop", "num_tasks": -(1 << 40)},
    ],
)
def test_no_job_is_of_any_size(
    service: Service, make_peer: Callable[..., Peer], changes: dict[str, Any]
) -> None:
    """A request whose numbers would take all memory is refused before any
    allocation.
    """
    peer = make_peer(service.target)
    registered = peer.ask(_dataset())
    assert isinstance(registered, m.DatasetRegistered)
    job = m.JobParameters("large", registered.dataset_id, "DYNAMIC", **changes)
    assert isinstance(peer.ask(m.OpenIteration("c", job, 0, m.Reader(0))), m.RequestRefused)
    assert not servers(service)[0].core.state.living
    check_serves(service)


def test_numbers_beyond_64_bits_are_no_numbers(
    service: Service, make_peer: Callable[..., Peer]
) -> None:
    """No field takes integers beyond 64 bits, infinities, texts, nil or booleans as a
    number: none of them is decoded.
    """
    peer = make_peer(service.workers[0].address)
    shell = servers(service)[1]
    beyond = b"\xc4\x09" + b"\xff" * 9
    for number in (b"\xcb\x7f\xf0\0\0\0\0\0\0", beyond, b"\xa1x", b"\xc0", b"\xc3"):
        grant = b"\x84\xa4type\xa5Grant\xa4link\xa1l\xa4seen" + number + b"\xa7streams\x90"
        peer.send(wire.MAGIC, grant)
    wait_until(lambda: shell.rejects.total == 5, "all were dropped")
    check_serves(service)


def test_names_are_short(service: Service, make_peer: Callable[..., Peer]) -> None:
    """Neither dispatcher nor worker keeps a name of megabytes, or repeats it in its
    refusal.
    """
    long = "x" * 1_000_001
    peer = make_peer(service.workers[0].address)
    for link, client, reader in (
        (long, "c", m.Reader()),
        ("l", long, m.Reader()),
        ("l", "c", m.Reader(None, long)),
    ):
        refused = peer.ask(m.OpenLink(client, link, "", 0, "", ("tcp",), reader))
        assert isinstance(refused, m.LinkRefused)
        assert (refused.error, len(refused.link + refused.text) < 3_000) == (
            "InvalidArgumentError",
            True,
        )
    assert not servers(service)[1].core.links.by_client
    asker = make_peer(service.target)
    registered = asker.ask(_dataset())
    assert isinstance(registered, m.DatasetRegistered)
    job = m.JobParameters(long, registered.dataset_id, "DYNAMIC")
    short = m.JobParameters("j", registered.dataset_id, "DYNAMIC")
    for ask in (m.OpenIteration("c", job, 0), m.OpenIteration(long, short, 0)):
        assert isinstance(asker.ask(ask), m.RequestRefused)
    assert not servers(service)[0].core.state.living


def test_answers_repeat_no_long_texts(service: Service, make_peer: Callable[..., Peer]) -> None:
    """Answers stay small, however large the requests were, as unread answers wait in
    the server.
    """
    long = "x" * 1_000_001
    job = m.JobParameters("j", long, "DYNAMIC")
    asks: list[m.Message] = [
        m.RequestStatus(long),
        m.RequestAudit("r", long),
        m.RequestTrace(long, "t"),
        m.DescribeDataset(long, "d"),
        m.DescribeDataset("r", long),
        m.DrainWorker("r", long),
        m.StartSave("r", "d", "/p", "run", on_poison=long),
        structs.replace(_dataset(), request=long),
        m.OpenIteration("c", job, 0),
        m.OpenIteration("c", structs.replace(job, dataset_id="d", on_poison=long), 0),
        m.OpenIteration(long, structs.replace(job, dataset_id="d"), 0),
        m.CloseIteration(long, 0, {}),
    ]
    peer = make_peer(service.target)
    for ask in asks:
        refused = peer.ask(ask)
        assert isinstance(refused, m.RequestRefused)
        assert (refused.error, len(refused.request + refused.text) < 3_000) == (
            "InvalidArgumentError",
            True,
        )
    peer = make_peer(service.workers[0].address)
    assert len(wire.pack(peer.ask(m.RequestStatus(long)))[1]) < 100_000
    assert len(wire.pack(peer.ask(m.RequestTrace(long, "t")))[1]) < 3_000
    assert len(wire.pack(peer.ask(m.Grant(long, 0, ())))[1]) < 3_000


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts what a connection has carried"
)
def test_large_answers_that_nobody_takes_are_few(
    service: Service, make_peer: Callable[..., Peer]
) -> None:
    """A peer that reads no answers gets at most as many as may wait; once it reads, the
    server answers again.
    """
    asker, other = make_peer(service.target, takes=1), make_peer(service.target)
    small = _dataset()
    large = structs.replace(small.description, sources=None, unsplittable="x" * SIZE)
    registered = asker.ask(structs.replace(small, description=large))
    assert isinstance(registered, m.DatasetRegistered)
    describe = m.DescribeDataset("r", registered.dataset_id)
    for _ in range(100):
        asker.say(describe)
    for _ in range(200):
        other.ask(
            m.RequestStatus("r")
        )  # peers take turns, so all hundred requests are handled by then
    count = 0
    while asker.hears(5.0):
        assert isinstance(asker.answer(), m.DatasetDescribed)
        count += 1
    # To the server, an answer in a buffer of the kernel counts as taken.
    assert connections.MOST_UNTAKEN // SIZE <= count < 2 * connections.MOST_UNTAKEN // SIZE
    assert isinstance(asker.ask(describe), m.DatasetDescribed)


def _dataset() -> m.RegisterDataset:
    pipeline = b"nobody opens this"
    digest = hashlib.sha256(pipeline).hexdigest()
    description = m.DatasetDescription(digest, "f:1", (), "", None, -2, None, "3.11", "0")
    return m.RegisterDataset("r", None, description, pipeline)
