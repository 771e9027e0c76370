"""Tests of the metrics of real servers whose processes are killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.scraped import beside, get, samples, total
from tests.processes.test_keeper import running as keeping
from zmqdata import Dataset, distribute
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import await_condition

pytest.importorskip("prometheus_client", reason="prometheus-client (extra `metrics`) is missing")
pytestmark = pytest.mark.realprocess

START = 30.0
COUNT = 4000
READY = re.compile(r"listening on (\S+), metrics at (http://127\.0\.0\.1:\d+/metrics)\n")


@contextlib.contextmanager
def running(role: str, *options: str, ready: int = 1) -> Iterator[ServerProcess]:
    server = ServerProcess(
        f"zmqdata.{role}", ["--metrics-port=0", "--log-level=error", *options], ready
    )
    with contextlib.closing(server):
        server.launch()
        server.await_ready(START)
        yield server


def shown_by(server: ServerProcess) -> list[str]:
    """Return the addresses of metrics that the ready lines of a server name."""
    return [shown for _, shown in READY.findall(server.said)]


def elements(address: str) -> Iterator[Any]:
    dataset = Dataset.range(COUNT).map(lambda x: (x, os.getpid()))
    read = distribute("distributed_epoch", address, "train", max_outstanding_requests=64)
    return iter(dataset.apply(read))


@pytest.mark.full
def test_totals_are_exact_after_kills() -> None:
    """Worker processes die by SIGKILL while a loop reads. The counter of the dispatcher
    is what the loop got, the deaths are counted, and each successor answers at the
    address of its predecessor.
    """
    with (
        running("dispatcher") as dispatcher,
        running("worker", f"--dispatcher={dispatcher.address}", "--processes=2", ready=2) as worker,
    ):
        (shown,), of_workers = shown_by(dispatcher), shown_by(worker)
        assert len(set(of_workers)) == 2
        assert total(shown, "zmqdata_workers", state="connected") == 2
        assert all(get(beside(one, "/readyz"))[0] == 200 for one in (shown, *of_workers))
        found: list[int] = []
        read = elements(dispatcher.address)
        for deaths in (1, 2):
            for _ in range(1000):
                number, pid = next(read)
                found.append(int(number))
            os.kill(int(pid), signal.SIGKILL)
            await_condition(
                lambda deaths=deaths: total(shown, "zmqdata_worker_losses_total") == deaths,  # type: ignore[misc]
                what="the loss",
            )
            await_condition(
                lambda: total(shown, "zmqdata_workers", state="connected") == 2, what="a successor"
            )
        found += [int(number) for number, _ in read]
        assert sorted(found) == list(range(COUNT))
        await_condition(
            lambda: total(shown, "zmqdata_elements_total", job_name="train") == COUNT,
            what="all elements in the counter",
        )
        assert total(shown, "zmqdata_client_first_element_seconds_count") == 1
        for address in of_workers:
            assert samples(address)["zmqdata_worker_registered", ()] == 1


def test_a_restarted_dispatcher_answers_at_the_same_address(tmp_path: Path) -> None:
    """A dispatcher that is killed and started again answers scrapes at the address of
    its predecessor, and knows what was delivered.
    """
    journal = tmp_path / "journal"
    with keeping(tmp_path, f"--work-dir={journal}", "--metrics-port=0") as command:
        command.await_lives(1)
        ((address, shown),) = READY.findall(command.output.read_text())
        with running("worker", f"--dispatcher={address}"):
            read = elements(address)
            found = [int(next(read)[0]) for _ in range(1000)]
            (child,) = command.served_by
            os.kill(child, signal.SIGKILL)
            command.await_lives(2)
            found += [int(number) for number, _ in read]
            assert sorted(found) == list(range(COUNT))
            await_condition(
                lambda: total(shown, "zmqdata_elements_total", job_name="train") == COUNT,
                what="all elements in the counter",
            )
        assert READY.findall(command.output.read_text()) == [(address, shown)] * 2


def test_the_memory_limit_of_a_worker_is_shown() -> None:
    """A worker shows its memory and the limit that it has."""
    with (
        running("dispatcher") as dispatcher,
        running("worker", f"--dispatcher={dispatcher.address}", "--memory-limit=1GiB") as worker,
    ):
        (shown,) = shown_by(worker)
        found = samples(shown)
        assert found["zmqdata_worker_memory_limit_bytes", ()] == 1 << 30
        assert 0 < found["zmqdata_worker_private_bytes", ()] < 1 << 30
