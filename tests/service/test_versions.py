"""Facts about peers with another version of the protocol: each side reports the
mismatch at once, and sends nothing more.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from benchmarks.attackers import with_key
from tests.foreign import FIRST_FRAME, ForeignContext, ForeignDispatcher
from tests.service.conftest import Service, wait_until
from zmqdata import Dataset, WorkerConfig, WorkerServer, distribute, use_key_file, wire
from zmqdata import messages as m
from zmqdata.client.calls import status
from zmqdata.errors import FailedPreconditionError, VersionMismatchError
from zmqdata.transport import keys
from zmqdata.transport.keychoice import own_key

MISMATCH = "Version mismatch, the peer speaks protocol version 8 and this process version 7: .* `zmqdata --version`"
OF_THE_OTHER = [FIRST_FRAME, b"\xc1", b"and a frame more"]


@pytest.fixture
def without_key() -> Iterator[None]:
    """This process, without a key to show."""
    use_key_file(insecure=True)
    yield
    use_key_file()


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    """The context of the sockets of a peer that has the other version and belongs to
    the same cluster.
    """
    context = ForeignContext()
    yield context
    context.destroy(linger=0)


@pytest.mark.parametrize("which", [0, 1], ids=["dispatcher", "worker"])
def test_a_peer_of_another_version_is_told_ours(
    make_service: Callable[..., Service], context: zmq.Context[zmq.Socket[bytes]], which: int
) -> None:
    """Each message of the peer gets one answer, whose first frame has the version of
    the service, and the rejects count the mismatch.
    """
    service = make_service(workers=1)
    endpoint, role = [(service.target, "dispatcher"), (service.workers[0].address, "worker")][which]
    peer = with_key(context, endpoint, own_key())
    for _ in range(3):
        peer.send_multipart(OF_THE_OTHER)
    peer.send_multipart(wire.pack(m.RequestStatus("the last")))
    found = []
    while len(found) < 4:
        assert peer.poll(10_000), found
        found.append(peer.recv_multipart())
    assert [frames[0] for frames in found] == [wire.MAGIC] * 4
    kinds = [type(wire.to_client.control(frames)) for frames in found]
    assert kinds == [m.Probe] * 3 + [m.StatusReported]
    assert "speaks protocol version 8" in str(status(endpoint, role=role)["rejected"])


def test_whose_key_is_revoked_is_told_nothing(
    make_service: Callable[..., Service], context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    """The dispatcher does not tell its version to a peer whose key is revoked."""
    for role, key in keys.new_roles().items():
        keys.save(tmp_path / f"{role}.key", key)
    client, path = keys.load(tmp_path / "client.key"), tmp_path / "dispatcher.key"
    service = make_service(workers=0, key_file=str(path))
    peer = with_key(context, service.target, client)
    peer.send_multipart(OF_THE_OTHER)
    assert peer.recv_multipart() == wire.pack(wire.NOTICE)
    kept = [
        line for line in path.read_text().splitlines(keepends=True) if client.public not in line
    ]
    keys.replace(path, keys.parse("".join(kept)))
    wait_until(
        lambda: service.dispatcher._shell.access.keyring.holder(client.public) is None,
        "the file was read",
    )
    peer.send_multipart(OF_THE_OTHER)
    peer.send_multipart(wire.pack(m.RequestStatus("the last")))
    assert isinstance(wire.to_client.control(peer.recv_multipart()), m.RequestRefused)


def test_calls_and_workers_hear_it_at_once(without_key: None) -> None:
    """Calls and workers fail with both versions, the address and the remedy, and send
    nothing more to the dispatcher.
    """
    with ForeignDispatcher() as foreign:
        text = f"{MISMATCH}.* The peer is the (server|dispatcher) at {foreign.target}"
        with pytest.raises(FailedPreconditionError, match=text):
            status(foreign.target)
        with pytest.raises(FailedPreconditionError, match=text):
            iter(Dataset.range(3).apply(distribute("distributed_epoch", foreign.target)))
        heard = foreign.heard  # each call once, or more often if the answer is late
        with pytest.raises(FailedPreconditionError, match=text):
            WorkerServer(WorkerConfig(foreign.target, insecure=True))
        wait_until(lambda: foreign.heard >= heard + 2, "a worker registers, and says goodbye")


def test_a_dispatcher_that_comes_back_in_another_version(
    without_key: None, make_service: Callable[..., Service], caplog: pytest.LogCaptureFixture
) -> None:
    """Readers deliver the elements that they hold and then raise the error without a
    goodbye that no dispatcher would hear; workers end with it.
    """
    options = {"insecure": True, "heartbeat_interval_ms": 50}
    service = make_service(1, options, insecure=True, client_timeout_ms=1_000)
    it = iter(service.read(Dataset.range(1).repeat(), "parallel_epochs", job_name="job"))
    next(it)
    service.dispatcher.stop()
    with caplog.at_level(logging.WARNING), ForeignDispatcher(service.target) as foreign:
        with pytest.raises(
            VersionMismatchError,
            match=f"{MISMATCH}.* The peer is the dispatcher at {service.target}",
        ):
            deque(it, maxlen=0)
        with pytest.raises(VersionMismatchError, match=MISMATCH):
            service.workers[0].join(10)
        service.workers[0].stop()
        assert service.workers[0].join(10)
        assert foreign.heard >= 2
    assert "dropped a message on the dispatcher link" in caplog.text
