"""Facts about data connections that break, and about data ports."""

from __future__ import annotations

import gc
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.service.conftest import Service, wait_until
from tests.service.proxy import SeveringProxy, free_ports
from zmqdata import Dataset
from zmqdata.core.client import decider
from zmqdata.errors import ResourceExhaustedError
from zmqdata.machine.threads import Background
from zmqdata.transport.folders import own_folder


@pytest.fixture
def ports() -> list[int]:
    return free_ports(6)


@pytest.fixture
def proxy(ports: list[int]) -> Iterator[SeveringProxy]:
    """A proxy in front of a worker on these ports."""
    proxy = SeveringProxy(ports)
    yield proxy
    proxy.close()


@pytest.mark.parametrize("count", [1_200, pytest.param(3_000, marks=pytest.mark.full)])
def test_a_severed_connection_loses_nothing(
    make_service: Callable[..., Service], ports: list[int], proxy: SeveringProxy, count: int
) -> None:
    """A client whose connections are severed repeatedly during the stream gets every
    element once and in order.
    """
    service = make_service(workers=0)
    service.add_worker(worker_address="127.0.0.2", port=ports[0], data_ports=(ports[1], ports[-1]))
    ds = Dataset.range(count).map(lambda x: np.full(2000, x))
    it = iter(service.read(ds, data_transfer_protocol="tcp", compression=None))
    found = []
    for number, element in enumerate(it):
        found.append(int(element[0]))
        if number % 800 == 150:
            carried = proxy.carried
            proxy.sever()
            wait_until(lambda before=carried: proxy.carried > before, "the worker is reached again")
    assert found == list(range(count))


def test_used_up_data_ports_are_said_and_waited_for(
    make_service: Callable[..., Service], ports: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """A client that finds no free data port reports it, and reads as soon as a port is
    free.
    """
    service = make_service(workers=0)
    service.add_worker(data_ports=(ports[0], ports[0]))
    first = iter(service.read(Dataset.range(10**9), data_transfer_protocol="tcp"))
    next(first)
    second = iter(service.read(Dataset.range(100), data_transfer_protocol="tcp"))
    wait_until(lambda: "--data-ports" in caplog.text, "the second client says what it waits for")
    first.close()
    assert len(list(second)) == 100


def test_used_up_data_ports_are_an_error_in_the_end(
    make_service: Callable[..., Service], ports: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client without a port for too long gets an error that says how to add ports,
    while the other client reads on.
    """
    monkeypatch.setattr(decider, "LINK_PATIENCE", 1.0)
    service = make_service(workers=0)
    service.add_worker(data_transfer_port=ports[0])
    first = iter(service.read(Dataset.range(10**9), data_transfer_protocol="tcp"))
    next(first)
    with pytest.raises(
        ResourceExhaustedError,
        match=rf"data port {ports[0]} only, of which other clients use 1, .* with --data-ports A-B",
    ):
        list(service.read(Dataset.range(100), data_transfer_protocol="tcp"))
    next(first)
    first.close()


def test_ports_are_given_back(make_service: Callable[..., Service], ports: list[int]) -> None:
    """A single data port suffices for any number of successive iterators."""
    service = make_service(workers=0)
    service.add_worker(data_ports=(ports[0], ports[0]))
    ds = service.read(Dataset.range(10), data_transfer_protocol="tcp")
    for _ in range(3):
        assert len(list(ds)) == 10


def test_a_folder_that_cannot_be_used_means_tcp(
    make_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A client that allows only ipc gets the reason why no ipc path can be bound; for
    all others the blocks go over TCP.
    """
    service = make_service(workers=1)
    own_folder()  # where pipelines are opened: of this process, which goes on
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 40)))
    assert len(list(service.read(Dataset.range(100)))) == 100


def test_a_client_that_insists_on_ipc_hears_why_not(
    make_service: Callable[..., Service],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A link that cannot be bound is refused with the real reason."""
    service = make_service(workers=1)
    own_folder()  # where pipelines are opened: of this process, which goes on
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    it = iter(service.read(Dataset.range(100), data_transfer_protocol="ipc"))
    wait_until(lambda: "over ipc" in caplog.text, "the reason is said")
    it.close()


def test_nothing_is_left_to_the_collector(service: Service) -> None:
    """Iterators that end, are closed or are dropped half-way close all of their sockets
    and files themselves.
    """
    numbers = service.read(Dataset.range(2_000), data_transfer_protocol="tcp")
    gc.collect()  # what other tests left
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        assert len(list(numbers)) == 2_000
        closed, dropped = iter(numbers), iter(numbers)
        threads = [one._shell.loop.thread for one in (closed, dropped)]
        assert [next(closed), next(dropped)]
        closed.close()
        del dropped
        wait_until(lambda: not any(map(Background.is_alive, threads)), "their ends")
        gc.collect()
    assert [str(one.message) for one in warned] == []
