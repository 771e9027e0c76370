"""Tests of ``zmqdata.core.job_rules``."""

from __future__ import annotations

import pytest

from tests.definitions import define
from zmqdata.core.job_rules import effective_target, is_static, may_read, outlives_host
from zmqdata.messages import JobParameters

HERE, THERE = "tcp://here:1", "tcp://there:1"


@pytest.mark.parametrize(
    ("target", "tags", "reads"),
    [
        ("ANY", (), (True, True)),
        ("ANY", ("COLOCATED",), (True, True)),
        ("AUTO", (), (True, True)),
        ("AUTO", ("GPU",), (True, True)),
        ("AUTO", ("Colocated",), (True, False)),
        ("LOCAL", (), (True, False)),
        ("LOCAL", ("COLOCATED",), (True, False)),
    ],
)
def test_targets_choose_between_local_and_remote(
    target: str, tags: tuple[str, ...], reads: tuple[bool, bool]
) -> None:
    """LOCAL reads in its own process only, AUTO leaves out colocated workers of others,
    and ANY reads from all workers.
    """
    assert tuple(may_read(target, address, tags, {HERE}) for address in (HERE, THERE)) == reads


@pytest.mark.parametrize(
    ("mode", "colocated", "target", "effective"),
    [
        ("DATA", True, "AUTO", "LOCAL"),
        ("DATA", False, "AUTO", "AUTO"),
        ("DATA", True, "ANY", "ANY"),
        ("DYNAMIC", True, "AUTO", "AUTO"),
        ("OFF", True, "AUTO", "AUTO"),
        ("OFF", False, "LOCAL", "LOCAL"),
    ],
)
def test_static_parts_are_local_in_pairs(
    mode: str, colocated: bool, target: str, effective: str
) -> None:
    """If clients and workers are deployed in pairs, static sharding with AUTO reads
    locally.
    """
    assert (
        effective_target(JobParameters("job", "dataset", mode, target_workers=target), colocated)
        == effective
    )


@pytest.mark.parametrize(
    ("target", "consumers", "tasks", "effective"),
    [
        ("AUTO", 2, None, "ANY"),
        ("AUTO", 1, None, "ANY"),
        ("AUTO", 2, 4, "ANY"),
        ("AUTO", 1, 4, "AUTO"),
        ("LOCAL", 2, None, "LOCAL"),
    ],
)
@pytest.mark.parametrize(("mode", "colocated"), [("OFF", False), ("DYNAMIC", True)])
def test_consumers_in_step_leave_out_no_worker(
    mode: str, colocated: bool, target: str, consumers: int, tasks: int | None, effective: str
) -> None:
    """AUTO leaves out no worker if clients read in step. The only reader of a promised
    order leaves out colocated workers of others, as any reader alone does.
    """
    job = JobParameters(
        "job",
        "dataset",
        mode,
        target_workers=target,
        num_consumers=consumers,
        num_tasks=tasks,
    )
    assert effective_target(job, colocated) == effective


@pytest.mark.parametrize("mode", ["FILE", "DATA", "FILE_OR_DATA", "HINT"])
def test_four_modes_are_static(mode: str) -> None:
    """All modes except OFF and DYNAMIC give each worker a fixed part."""
    assert is_static(JobParameters("job", "dataset", mode))
    assert not is_static(JobParameters("job", "dataset", "DYNAMIC"))


@pytest.mark.parametrize(
    ("mode", "num_consumers", "moves"),
    [("DYNAMIC", None, True), ("DATA", None, True), ("OFF", 1, True), ("OFF", None, False)],
)
def test_only_copies_end_with_their_worker(
    mode: str, num_consumers: int | None, moves: bool
) -> None:
    """Static parts and coordinated tasks move to another worker and copies do not, and
    workers know this, too.
    """
    assert (
        outlives_host(JobParameters("job", "dataset", mode, num_consumers=num_consumers)) == moves
    )
    definition = define(
        1, 1, 1, "dataset", "digest", mode, 1, None, (), (), num_consumers=num_consumers
    )
    assert outlives_host(definition.job) == moves
