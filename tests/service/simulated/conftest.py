"""A service in simulated time, with the fixture names of the service on sockets. Tests
of what a job promises read alike on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.service import WatchedService


@pytest.fixture
def make_service() -> Iterator[Callable[..., WatchedService]]:
    """Make services that end with the test."""
    made: list[WatchedService] = []

    def make(workers: int = 2, **options: Any) -> WatchedService:
        made.append(WatchedService(workers, **options))
        return made[-1]

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def service(make_service: Callable[..., WatchedService]) -> WatchedService:
    """A dispatcher with two workers."""
    return make_service()
