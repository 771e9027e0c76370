"""Facts about static sharding on real sockets: which worker may have a place, and what
readers of a COLOCATED deployment get.
``simulated/test_static.py`` states what the policies mean.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.conftest import Service
from zmqdata import (
    SHARD_HINT,
    Dataset,
    ShardingPolicy,
    TFRecordDataset,
    TFRecordWriter,
    WorkerConfig,
    WorkerServer,
)
from zmqdata.transport.local import withdraw_worker

PLACES = 4
HOME = 2
"""Place of the only worker that counts as the client's own."""


@pytest.fixture
def colocated(make_service: Callable[..., Service]) -> Service:
    """A COLOCATED deployment with four places and three workers, of which only the last
    is in the client's process.
    """
    service = make_service(
        workers=HOME + 1, worker_addresses=["localhost"] * PLACES, deployment_mode="COLOCATED"
    )
    for worker in service.workers[:HOME]:
        withdraw_worker(worker.address)
    return service


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


@pytest.mark.parametrize(
    ("dataset", "policy", "part"),
    [
        (Dataset.range(12), ShardingPolicy.DATA, [2, 6, 10]),
        (Dataset.range(12), ShardingPolicy.FILE_OR_DATA, [2, 6, 10]),
        (Dataset.range(12).shard(SHARD_HINT, SHARD_HINT), ShardingPolicy.HINT, [2, 6, 10]),
        (Dataset.range(12).shard(1, 0), ShardingPolicy.HINT, list(range(12))),
        (Dataset.range(2), ShardingPolicy.DATA, []),
    ],
)
def test_a_colocated_reader_gets_the_part_of_its_worker(
    colocated: Service, dataset: Dataset, policy: Any, part: list[int]
) -> None:
    """A reader gets the part of the worker in its process, in order and in each
    repetition, and waits neither for other workers nor for a place without a worker.
    """
    read = colocated.read(dataset, policy, job_name="shared")
    for _ in range(2):
        assert list(map(int, read)) == part


def test_a_colocated_reader_gets_the_files_of_its_worker(
    colocated: Service, tmp_path: Path
) -> None:
    """FILE gives a reader whole files: each fourth name of the sorted list."""
    names = [str(tmp_path / f"{number}.tfrecord") for number in range(PLACES + HOME + 1)]
    for name in names:
        with TFRecordWriter(name) as writer:
            for record in range(2):
                writer.write(b"%d of %s" % (record, Path(name).stem.encode()))
    dataset = Dataset.list_files(names, shuffle=False).flat_map(TFRecordDataset)
    expected = [b"%d of %d" % (record, file) for file in (HOME, HOME + PLACES) for record in (0, 1)]
    assert list(colocated.read(dataset, ShardingPolicy.FILE)) == expected


@pytest.mark.parametrize(
    ("mode", "target", "copies"),
    [("OFF", "AUTO", HOME + 1), ("OFF", "LOCAL", 1), ("DYNAMIC", "AUTO", 1)],
)
def test_a_colocated_deployment_restricts_static_policies_only(
    colocated: Service, mode: str, target: str, copies: int
) -> None:
    """OFF and DYNAMIC read the workers that ``target_workers`` names, wherever they
    are.
    """
    read = colocated.read(Dataset.range(20), ShardingPolicy[mode], target_workers=target)
    assert sorted(map(int, read)) == sorted([*range(20)] * copies)
