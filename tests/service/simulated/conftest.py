"""A service in simulated time, with the fixture names of the service on sockets. Tests
of what a job promises read alike on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zmqdata.testing import SimulatedService


@pytest.fixture
def make_service() -> Iterator[Callable[..., SimulatedService]]:
    """Make services that end with the test."""
    made: list[SimulatedService] = []

    def make(workers: int = 2, **options: Any) -> SimulatedService:
        made.append(SimulatedService(workers, **options))
        return made[-1]

    yield make
    for service in made:
        service.stop()


@pytest.fixture
def service(make_service: Callable[..., SimulatedService]) -> SimulatedService:
    """A dispatcher with two workers."""
    return make_service()
