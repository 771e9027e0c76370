"""Tests of peers that share a name with another peer, whose connections a server cannot
hear.
"""

from __future__ import annotations

import sys
from contextlib import closing

import pytest
import zmq

from benchmarks.attackers import with_key
from tests.hostile.conftest import Service, check_serves, endpoints, wait_until
from zmqdata import Dataset, wire
from zmqdata.transport import entrance
from zmqdata.transport.keychoice import own_key

COUNT = 5_000
PATIENCE = 30.0
LARGE = bytes(900_000)
UNHEARD_BYTES = 16 << 20
"""Unread bytes that make a server of these tests listen anew."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux counts what a connection has carried"
)


@pytest.mark.parametrize(
    ("mode", "which"),
    [
        pytest.param("distributed_epoch", 0, id="distributed_epoch-dispatcher"),
        pytest.param("parallel_epochs", 1, id="parallel_epochs-worker", marks=pytest.mark.full),
        pytest.param("distributed_epoch", 1, id="distributed_epoch-worker", marks=pytest.mark.full),
        pytest.param("parallel_epochs", 0, id="parallel_epochs-dispatcher", marks=pytest.mark.full),
    ],
)
def test_a_server_that_listens_anew_loses_nothing(
    service: Service,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    which: int,
) -> None:
    """A reader gets everything once while a server listens anew: all reconnect, and no
    worker, client or task is given up.
    """
    monkeypatch.setattr(entrance, "MOST_UNHEARD_BYTES", UNHEARD_BYTES)
    endpoint = endpoints(service)[which]
    elements = iter(
        service.read(Dataset.range(COUNT), mode, job_name="read", max_outstanding_requests=4)
    )
    found = [int(next(elements)) for _ in range(100)]
    with (
        zmq.Context() as context,
        closing(with_key(context, endpoint, own_key(), name=b"x")) as first,
        closing(with_key(context, endpoint, own_key(), name=b"x")) as second,
    ):
        first.send_multipart([wire.MAGIC, b"it is me"])
        for _ in range(UNHEARD_BYTES // len(LARGE) + 2):
            for socket in (first, second):
                assert socket.poll(PATIENCE * 1000, zmq.POLLOUT)
                socket.send_multipart([wire.MAGIC, LARGE], copy=False)
        wait_until(lambda: "Listening anew" in caplog.text, "the server to listen anew", PATIENCE)
    found += [int(element) for element in elements]
    assert sorted(found) == sorted(list(range(COUNT)) * (1 if mode == "distributed_epoch" else 2))
    assert "is gone" not in caplog.text
    assert "is lost" not in caplog.text
    check_serves(service)
