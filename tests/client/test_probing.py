"""Tests of the measurements of a connection, on servers in this process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from zmqdata import LocalCluster, messages
from zmqdata.client.calls import status
from zmqdata.client.probing import measured
from zmqdata.config.endpoints import parse_service
from zmqdata.errors import UnavailableError


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(1, in_process=True) as made:
        yield made


@pytest.mark.parametrize("role", ["dispatcher", "worker"])
def test_a_server_answers_and_is_measured(cluster: LocalCluster, role: str) -> None:
    """The status, the time of a round trip, the clock and the throughput of a server
    are known. The clocks of one machine are the same.
    """
    address = cluster.target
    if role == "worker":
        [worker] = status(cluster.target)["workers"]
        address = worker["address"]
    with measured(parse_service(address), role) as connection:
        answer = connection.answer(time.monotonic() + 30)
        rate = connection.throughput(10.0, 3 * messages.MOST_ECHO_BYTES)
    assert role in answer.status
    assert answer.status["process"]["versions"]["protocol"] == str(messages.PROTOCOL_VERSION)
    assert 0 < answer.round_trip < 30
    assert abs(answer.clock_ahead) <= answer.round_trip + 0.1
    assert rate is not None
    assert rate > 0


def test_a_measurement_ends_in_time(cluster: LocalCluster) -> None:
    """Without time, nothing arrives, and a server that is not asked in time is
    unavailable.
    """
    with measured(cluster.target, "dispatcher") as connection:
        assert connection.throughput(0.0, 1 << 40) is None
        with pytest.raises(UnavailableError):
            connection.answer(time.monotonic() - 1)
