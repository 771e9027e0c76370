"""Facts about keys on real sockets: a service with roles, with a wrong key, or without
keys.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.service.conftest import Service, wait_until
from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    use_key_file,
    wire,
)
from zmqdata import messages as m
from zmqdata.client.calls import status
from zmqdata.client.probing import measured
from zmqdata.errors import FailedPreconditionError, PermissionDeniedError
from zmqdata.transport import keys, sockets


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a key for each role."""
    for role, key in keys.new_roles().items():
        keys.save(tmp_path / f"{role}.key", key)
    keys.save(tmp_path / "other.key", keys.new_key())
    return tmp_path


@pytest.fixture
def cluster(make_service: Callable[..., Service], folder: Path) -> Iterator[Service]:
    """A service whose processes have the keys of their roles. This process has the key
    of a client.
    """
    key_file = {role: str(folder / f"{role}.key") for role in keys.ROLES}
    options: dict[str, Any] = {"worker_options": {"key_file": key_file["worker"]}}
    use_key_file(key_file["client"])
    yield make_service(key_file=key_file["dispatcher"], **options)
    use_key_file()


@pytest.mark.parametrize("protocol", ["tcp", "ipc", None])
def test_everybody_does_what_the_role_is_for(cluster: Service, protocol: str | None) -> None:
    """A client with the key of its role reads elements, and both kinds of servers
    answer its status requests.
    """
    ds = cluster.read(Dataset.range(1000).map(lambda x: x), data_transfer_protocol=protocol)
    assert sorted(int(x) for x in ds) == list(range(1000))
    assert len(status(cluster.target)["workers"]) == 2
    assert status(cluster.workers[0].address, role="worker")["tasks"] is not None


def test_a_clients_key_is_no_workers(cluster: Service, folder: Path) -> None:
    """The dispatcher refuses a worker that has a client's key, and the message says
    so.
    """
    worker = WorkerConfig(dispatcher_address=cluster.target, key_file=str(folder / "client.key"))
    with pytest.raises(
        PermissionDeniedError, match="a client's key may not be used for RegisterWorker"
    ):
        WorkerServer(worker)
    assert cluster.dispatcher.num_workers() == 2


@pytest.mark.parametrize("role", ["worker", "client"])
def test_a_dispatcher_does_not_start_with_the_key_of_another_role(folder: Path, role: str) -> None:
    """A dispatcher with the key of another role does not start, because it would refuse
    every peer and users would look for the fault there.
    """
    with pytest.raises(
        PermissionDeniedError, match=rf"{role}\.key seems to be that of a {role}: .*dispatcher\.key"
    ):
        DispatchServer(DispatcherConfig(key_file=str(folder / f"{role}.key")))
    DispatchServer(DispatcherConfig(key_file=str(folder / "dispatcher.key"))).stop()


def test_a_dispatchers_key_is_no_workers(cluster: Service, folder: Path) -> None:
    """A worker refuses to start with a dispatcher's key, which does not identify a
    dispatcher; it contacts none to find out.
    """
    worker = WorkerConfig(
        dispatcher_address=cluster.target, key_file=str(folder / "dispatcher.key")
    )
    with pytest.raises(
        PermissionDeniedError, match=r"dispatcher\.key has no line `known dispatcher KEY`"
    ):
        WorkerServer(worker)


def ask_to_record(endpoint: str, role: str) -> None:
    """Let a server begin a trace."""
    ask = partial(m.RequestTrace, trace="t", seconds=1.0)
    with measured(endpoint, role) as connection:
        connection.ask(ask, m.TraceRecorded, time.monotonic() + 30)


def test_a_workers_key_opens_no_job(cluster: Service, folder: Path) -> None:
    """A worker's key does not allow a client to read a job, to register a pipeline or
    to request the status.
    """
    use_key_file(folder / "worker.key")
    with pytest.raises(
        PermissionDeniedError, match="a worker's key may not be used for RegisterDataset"
    ):
        iter(cluster.read(Dataset.range(10)))
    with pytest.raises(PermissionDeniedError, match="RequestStatus"):
        status(cluster.target)
    with pytest.raises(PermissionDeniedError, match="RequestTrace"):
        ask_to_record(cluster.target, "dispatcher")


def test_a_dispatchers_key_is_no_clients(cluster: Service, folder: Path) -> None:
    """A client refuses to start with a dispatcher's key at once, because the key does
    not identify a dispatcher.
    """
    use_key_file(folder / "dispatcher.key")
    with pytest.raises(
        PermissionDeniedError, match=r"dispatcher\.key has no line `known dispatcher KEY`"
    ):
        iter(cluster.read(Dataset.range(10)))
    with pytest.raises(PermissionDeniedError, match="file of its own role"):
        status(cluster.target)


def test_a_key_file_without_workers_is_told_before_anything_is_read(
    cluster: Service, folder: Path
) -> None:
    """A client refuses a key file without that line, because it could connect to no
    worker and would wait for elements.
    """
    path = folder / "client.key"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("known worker")))
    use_key_file(path)
    with pytest.raises(PermissionDeniedError, match="has no line `known worker KEY`"):
        iter(cluster.read(Dataset.range(10)))


def test_a_worker_is_heard_at_once_on_a_new_connection(cluster: Service) -> None:
    """A worker speaks at once on a new connection, however long its heartbeat interval,
    because the dispatcher waits only a second for it.
    """
    shell, worker = cluster.dispatcher._shell, cluster.workers[0]._shell
    assert shell is not None
    assert worker is not None
    worker.core.heartbeats.usual = worker.core.heartbeats.pause = 1000.0
    shell.core.times = replace(
        shell.core.times, disconnect_grace=60.0
    )  # so that the timeout alone does not end the worker
    member = shell.core.workers.members[worker.core.profile.worker]
    wait_until(lambda: worker.registered.is_set() and member.spoke > 0, "the worker")
    before = member.spoke
    shell.loop.post(lambda: shell._entrance._begin_anew(0.0, "a test wants it"))
    wait_until(lambda: member.spoke > before, "its word")


def test_a_wrong_key_is_an_error_within_seconds(
    cluster: Service, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A wrong key ends a client and a worker with an error that names the file, and the
    server logs the refusal.
    """
    use_key_file(folder / "other.key")
    for ask in (
        lambda: status(cluster.target),
        lambda: next(iter(cluster.read(Dataset.range(10)))),
    ):
        with pytest.raises(
            PermissionDeniedError, match=r"has another key than key file .*other\.key"
        ):
            ask()
    with pytest.raises(PermissionDeniedError, match="has another key"):
        WorkerServer(
            WorkerConfig(dispatcher_address=cluster.target, key_file=str(folder / "other.key"))
        )
    wait_until(
        lambda: "it has the key file of another cluster: copy ours to its machine" in caplog.text,
        "a warning",
    )


def test_a_revoked_client_reads_no_more(cluster: Service, folder: Path) -> None:
    """A client whose line is deleted while it reads has its next requests refused, and
    cannot join again.
    """
    it = iter(cluster.read(Dataset.range(10_000_000), job_name="job"))
    next(it)
    path = folder / "dispatcher.key"
    public = keys.load(folder / "client.key").public
    keys.replace(
        path, keys.parse("".join(x for x in path.read_text().splitlines(True) if public not in x))
    )
    wait_until(
        lambda: cluster.dispatcher._shell.access.keyring.holder(public) is None,
        "the file was read again",
    )
    with pytest.raises(PermissionDeniedError, match="does not admit"):
        status(cluster.target)
    with pytest.raises(PermissionDeniedError, match="no longer admitted"):
        for _ in it:
            pass


def test_a_client_that_only_a_worker_has_revoked_is_told(cluster: Service, folder: Path) -> None:
    """A client that only a worker has revoked ends the iteration with an error that
    names the worker, and does not wait.
    """
    it = iter(cluster.read(Dataset.range(10_000_000).map(lambda x: x)))
    next(it)
    path, public = folder / "worker.key", keys.load(folder / "client.key").public
    keys.replace(
        path, keys.parse("".join(x for x in path.read_text().splitlines(True) if public not in x))
    )
    with pytest.raises(
        PermissionDeniedError, match=r"worker at tcp://.* refuses: .* no longer admitted"
    ):
        for _ in it:
            pass


def test_a_worker_says_whom_it_does_not_tell_how_things_stand(
    cluster: Service, folder: Path
) -> None:
    """A worker refuses a status request made with the key of another role at once, as
    the dispatcher does.
    """
    use_key_file(folder / "dispatcher.key")
    with pytest.raises(
        PermissionDeniedError, match="a dispatcher's key may not be used for RequestStatus"
    ):
        status(cluster.workers[0].address, role="worker")
    with pytest.raises(PermissionDeniedError, match="may not be used for RequestTrace"):
        ask_to_record(cluster.workers[0].address, "worker")
    assert not cluster.workers[0]._shell.measuring.recorder.is_on


def test_a_key_of_the_cluster_opens_no_others_link(cluster: Service, folder: Path) -> None:
    """A link over TCP has a key of its own, which only its client knows."""
    it = iter(cluster.read(Dataset.range(1_000_000).map(lambda x: x), data_transfer_protocol="tcp"))
    next(it)
    shell = cluster.workers[0]._shell
    wait_until(lambda: shell.links._links, "a link")
    (link,) = shell.links._links.values()
    client, worker = keys.load(folder / "client.key"), keys.load(folder / "worker.key")
    with sockets.new_context() as context:
        for secret in (client.secret, zmq.curve_keypair()[1].decode()):
            pull = sockets.link_pull(context, link.endpoint, "me", secret, worker.pair[0])
            assert pull.poll(10_000)
            while pull.poll(50):
                assert sockets.is_end(pull.recv_multipart(copy=False))
            sockets.close_pull(pull)
    assert shell.rejects.counts["a data socket: its key is not admitted"] == 2


def test_who_takes_the_port_of_a_worker_that_is_gone_is_left_alone(
    make_service: Callable[..., Service],
) -> None:
    """A foreign server at the port of a worker that has ended does not fail the
    iteration, and the client stops connecting to it.
    """
    service = make_service()
    it = iter(
        service.read(
            Dataset.range(1).repeat().map(lambda x: x),
            "parallel_epochs",
            data_transfer_protocol="tcp",
        )
    )
    next(it)
    servers, gone = it._shell.servers, service.workers.pop()
    address = gone.address
    wait_until(lambda: address in servers, "it speaks to it")
    gone.stop()
    with sockets.new_context() as context:
        stranger, _ = sockets.control_router(context, address, 10_000)
        wait_until(lambda: address not in servers, "it is forgotten")
        assert [int(next(it)) for _ in range(100)] == [0] * 100
        stranger.close(linger=0)
    it.close()


def test_a_worker_that_does_not_let_a_client_in_is_told(cluster: Service, folder: Path) -> None:
    """A worker whose file lacks the line of a client known to the dispatcher ends that
    client's iteration with an error that says so.
    """
    path, public = folder / "worker.key", keys.load(folder / "client.key").public
    keys.replace(
        path, keys.parse("".join(x for x in path.read_text().splitlines(True) if public not in x))
    )
    keyrings = [worker._shell.access.keyring for worker in cluster.workers]
    wait_until(
        lambda: not any(keyring.holder(public) for keyring in keyrings), "the file was read again"
    )
    with pytest.raises(PermissionDeniedError, match="does not admit the holder of key file"):
        next(iter(cluster.read(Dataset.range(1000).map(lambda x: x), data_transfer_protocol="tcp")))


def test_nothing_secret_is_told(
    cluster: Service, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Logs and states contain neither keys nor the secrets of links."""
    with caplog.at_level(logging.DEBUG):
        it = iter(cluster.read(Dataset.range(20_000), data_transfer_protocol="tcp"))
        next(it)
        told = str(status(cluster.target)) + str(status(cluster.workers[0].address, role="worker"))
        told += "".join(
            repr(server._shell.__dict__) for server in (cluster.dispatcher, *cluster.workers)
        )
        list(it)
    secrets = [keys.load(folder / f"{role}.key").secret for role in keys.ROLES]
    assert not [one for one in secrets if one in told + caplog.text]


def test_without_a_key_everybody_is_warned(caplog: pytest.LogCaptureFixture) -> None:
    """An insecure service warns at start and in its status; a client that has a key
    does not read from it.
    """
    with (
        caplog.at_level(logging.WARNING),
        DispatchServer(DispatcherConfig(insecure=True)) as dispatcher,
    ):
        assert "insecure: without a key" in caplog.text
        with pytest.raises(PermissionDeniedError, match="does without a key"):
            status(dispatcher.target)
        use_key_file(insecure=True)
        assert status(dispatcher.target)["config"]["insecure"]
        use_key_file()


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
def test_nobody_listens_beyond_the_machine_without_a_key(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dispatcher and a worker without a key name the command to run; on the loopback
    address they make the key at once.
    """
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    if host == "127.0.0.1":
        with DispatchServer() as dispatcher:
            assert dispatcher.num_workers() == 0
        return
    for make in (
        lambda: DispatchServer(DispatcherConfig(host=host)),
        lambda: WorkerServer(WorkerConfig(dispatcher_address="tcp://127.0.0.1:1", host=host)),
    ):
        with pytest.raises(FailedPreconditionError, match="run `zmqdata keygen`"):
            make()
    DispatchServer(DispatcherConfig(host=host, insecure=True)).stop()


def test_a_message_of_another_role_does_nothing(cluster: Service, folder: Path) -> None:
    """The dispatcher refuses a message of another role even if it needs no answer: a
    worker's goodbye from a client changes nothing.
    """
    client = keys.load(folder / "client.key")
    name = next(iter(cluster.dispatcher._shell.core.hosting.facts))
    with sockets.new_context() as context:
        dealer, handshakes = sockets.control_dealer(context, cluster.target, client, "dispatcher")
        dealer.send_multipart(wire.pack(m.WorkerStopped(name)))
        assert dealer.poll(10_000)
        answer = wire.to_client.control(dealer.recv_multipart())
        handshakes.close()
        dealer.close(linger=0)
    assert isinstance(answer, m.RequestRefused)
    assert answer.error == "PermissionDeniedError"
    assert cluster.dispatcher.num_workers() == 2
