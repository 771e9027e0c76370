"""Facts about static sharding on real sockets: which worker may have a place.
``simulated/test_static.py`` states what the policies mean.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.service.conftest import Service
from zmqdata import Dataset, ShardingPolicy, WorkerConfig, WorkerServer


def test_workers_on_the_places_of_a_list_share_out(make_service: Callable[..., Service]) -> None:
    """Three workers of one host take the three places of the list, and each element
    comes once.
    """
    service = make_service(workers=3, worker_addresses=["localhost"] * 3)
    dataset = service.read(Dataset.range(20), ShardingPolicy.DATA)
    assert sorted(map(int, dataset)) == list(range(20))


@pytest.mark.parametrize(
    ("addresses", "workers", "text"),
    [
        (["localhost:worker"] * 5, 0, "The worker's address is not configured"),
        (
            [f"fake_worker_{number}.invalid" for number in range(2)],
            0,
            "The worker's address is not configured",
        ),
        (["localhost:%port%"], 1, "other workers are already running at the configured host"),
    ],
)
def test_workers_without_a_place_do_not_start(
    make_service: Callable[..., Service], addresses: list[str], workers: int, text: str
) -> None:
    """A worker without a place fails to start with a RuntimeError that says what is
    wrong with the address.
    """
    service = make_service(workers=workers, worker_addresses=addresses)
    with pytest.raises(RuntimeError, match=text):
        WorkerServer(WorkerConfig(dispatcher_address=service.target))
