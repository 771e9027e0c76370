"""A dispatcher and workers on real sockets in this process, for tests of what only
sockets can show.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from zmqdata import (
    Dataset,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    distribute,
)


def wait_until(condition: Callable[[], Any], what: str, deadline: float = 30.0) -> None:
    """Wait for a condition. Fail with ``what`` if it does not become true in time."""
    end = time.monotonic() + deadline
    pause = threading.Event()
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"not within {deadline} s: {what}")
        pause.wait(0.01)


@dataclass
class Service:
    """A dispatcher with workers."""

    dispatcher: DispatchServer
    workers: list[WorkerServer] = field(default_factory=list)

    @property
    def target(self) -> str:
        return self.dispatcher.target

    def add_worker(self, **options: Any) -> WorkerServer:
        worker = WorkerServer(WorkerConfig(dispatcher_address=self.target, **options))
        assert worker.wait_registered(30)
        self.workers.append(worker)
        return worker

    def read(self, dataset: Dataset, mode: str = "distributed_epoch", **options: Any) -> Dataset:
        return dataset.apply(distribute(mode, self.target, **options))


@pytest.fixture
def make_service() -> Iterator[Callable[..., Service]]:
    """Make services that end with the test."""
    made: list[Service] = []

    def make(
        workers: int = 2, worker_options: dict[str, Any] | None = None, **options: Any
    ) -> Service:
        service = Service(DispatchServer(DispatcherConfig(**options)))
        made.append(service)
        for _ in range(workers):
            service.add_worker(**(worker_options or {}))
        return service

    yield make
    for service in made:
        for worker in service.workers:
            worker.stop()
        service.dispatcher.stop()


@pytest.fixture
def service(make_service: Callable[..., Service]) -> Service:
    """A dispatcher with two workers."""
    return make_service()
