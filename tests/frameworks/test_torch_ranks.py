"""Ranks of torchrun share the batches of a loader: ``make test-torch``."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.launches import environment
from zmqdata import LocalCluster

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.realprocess,
    pytest.mark.timeout(600),
]
PROGRAM = str(Path(__file__).with_name("ranks.py"))
COUNT, BATCH = 103, 5
BATCHES = 21


@pytest.fixture(scope="module", params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster of one and of three worker processes."""
    with LocalCluster(num_workers=request.param) as made:
        yield made


def ranks(
    cluster: LocalCluster, case: str, *arguments: str, world: int = 2, group: str = "group"
) -> list[Any]:
    """Return what each rank has printed."""
    launch = ["-m", "torch.distributed.run", f"--nproc-per-node={world}", "--standalone"]
    done = subprocess.run(
        [sys.executable, *launch, PROGRAM, case, cluster.target, group, *arguments],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    told = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    found = {int(rank): json.loads(text) for _, rank, text in told}
    assert sorted(found) == list(range(world))
    return [found[rank] for rank in range(world)]


def rows(*passes: list[list[int]]) -> list[int]:
    return sorted(row for one in passes for batch in one for row in batch)


@pytest.mark.parametrize("group", ["group", "alone"])
def test_a_loader_is_dealt_in_equal_steps(cluster: LocalCluster, group: str) -> None:
    """Both ranks read as many batches, none of them twice, and less than one batch per
    rank is left out, with a process group and without one.
    """
    one, other = ranks(cluster, "dealt", "drop", group=group)
    for number in range(2):
        assert len(one[number]) == len(other[number]) == one[2] == BATCHES // 2
        found = rows(one[number], other[number])
        assert len(found) == len(set(found)) >= COUNT - BATCH
    assert one[0] != one[1]


def test_padding_fills_the_last_step(cluster: LocalCluster) -> None:
    """Both ranks read as many batches, and together all rows."""
    one, other = ranks(cluster, "dealt", "pad")
    assert len(one[0]) == len(other[0]) == one[2] == BATCHES // 2 + 1
    assert {*rows(one[0], other[0])} == {*range(COUNT)}


def test_uneven_ranks_lose_and_repeat_nothing(cluster: LocalCluster) -> None:
    """The ranks together read each row once, and ``len`` is what each of them reads."""
    one, other = ranks(cluster, "dealt", "uneven")
    assert rows(one[0], other[0]) == list(range(COUNT))
    assert (one[2], other[2]) == (len(one[0]), len(other[0]))


NAMES = [{}, {"job_name": "train"}, {"deterministic": True}]
NAMES.append({"deterministic": True, "job_name": "both"})


def test_ranks_share_whatever_the_user_names(cluster: LocalCluster) -> None:
    """Ranks that read at one time share a distributed dataset with and without a job
    name and a promised order. A DataLoader refuses both at the call, and says what to
    do instead. So who reads is said only by the arguments for it.
    """
    kinds = [(kind, options) for kind in ("Dataset", "DataLoader") for options in NAMES]
    one, other = ranks(cluster, "named", *map(json.dumps, kinds))
    for (kind, options), found, others in zip(kinds, one, other, strict=True):
        if kind == "DataLoader" and options:
            assert found == others
            assert re.search("`(job_name|deterministic)` cannot be passed.* Leave it out", found)
            assert ("save `loader.state_dict()`" in found) == ("job_name" in options)
        else:
            assert len(found) == len(others) > 1
            shared = rows(found, others)
            assert len(shared) == len({*shared}) >= COUNT - BATCH


def test_ranks_read_as_the_consumers_that_the_user_names(cluster: LocalCluster) -> None:
    """Ranks whose dataset names consumers read as these, with its rule for the end, in
    a promised order and without one.
    """
    place = {"consumer_index": "rank", "num_consumers": 2, "finite": "pad"}
    named = [{**place, "job_name": "mine"}, {**place, "job_name": "our", "deterministic": True}]
    one, other = ranks(cluster, "named", *(json.dumps(("Dataset", each)) for each in named))
    for found, others in zip(one, other, strict=True):
        assert len(found) == len(others) > 1
        assert {*rows(found, others)} == {*range(COUNT)}


def test_accelerate_gathers_each_sample_once(cluster: LocalCluster) -> None:
    """``gather_for_metrics`` returns the samples of all ranks, each once: all of them
    with "pad", and fewer than a batch per rank less with "drop", whatever the sizes of
    the last batches, and also behind batches that were skipped.
    """
    pytest.importorskip("accelerate")
    wanted = [
        (count, size, finite, skipped)
        for count in (1, 7, 8, 9, 10, 11, 12)
        for size in (2, 3)
        for finite in ("pad", "drop")
        for skipped in (0, 1)
    ]
    for found in ranks(cluster, "gathered", *map(json.dumps, wanted)):
        for (count, size, finite, skipped), had in zip(wanted, found, strict=True):
            first = min(count, skipped * 2 * size)
            kept = len(had) if finite == "drop" else count - first
            assert had == [*range(first, first + kept)]
            assert count - first - kept < 2 * size


def test_a_loader_that_one_rank_makes_alone_shifts_nothing(cluster: LocalCluster) -> None:
    """After rank 0 has read a loader of its own, and made one over other data, all
    ranks share the next.
    """
    one, other = ranks(cluster, "alone")
    found = rows(one, other)
    assert len(one) == len(other)
    assert len(found) == len(set(found)) >= COUNT - BATCH


def test_a_distributed_sampler_is_left_alone(cluster: LocalCluster) -> None:
    """Each rank reads the batches of its own sampler, in the epochs that it sets."""
    for first, plain, second, plain_again in ranks(cluster, "sharded"):
        assert (first, second) == (plain, plain_again)
        assert first != second


@pytest.mark.parametrize("case", [["streams"], ["dataset", "drop"], ["dataset", "pad"]])
def test_rounds_are_read_in_equal_steps(cluster: LocalCluster, case: list[str]) -> None:
    """Ranks of an iterable-style loader and of a distributed dataset read as many
    batches in each pass, and less than one batch per rank is left out.
    """
    for one, other in zip(*ranks(cluster, *case), strict=True):
        assert len(one) == len(other)
        found = rows(one, other)
        if case[-1] == "pad":
            assert {*found} == {*range(COUNT)}
        else:
            assert len(found) == len(set(found)) >= COUNT - BATCH


def test_the_length_of_a_promised_order_is_known(cluster: LocalCluster) -> None:
    """``len`` is the number of batches that each rank reads."""
    one, other = ranks(cluster, "ordered")
    assert len(one[0]) == len(other[0]) == one[1] == other[1]


def test_the_state_of_rank_0_resumes_all_ranks(cluster: LocalCluster) -> None:
    """Each rank reads the rest of its pass again, from the state of rank 0."""
    for found in ranks(cluster, "resumed"):
        for rest, again in found:
            assert rest == again != []


@pytest.mark.parametrize("kind", ["map", "promised"])
def test_ranks_that_outlive_another_end_with_the_same_error(
    cluster: LocalCluster, kind: str
) -> None:
    """After rank 0 was killed, the two others end within the time that consumers wait
    for each other, with the same error. Their launcher, which the test plays, has the
    store and lets them live.
    """
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    started = [
        subprocess.Popen(
            [sys.executable, PROGRAM, "bereaved", cluster.target, "alone", kind],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(
                RANK=str(rank), WORLD_SIZE="3", TORCHELASTIC_USE_AGENT_STORE="True", **place
            ),
        )
        for rank in range(3)
    ]
    told = [one.communicate(timeout=240)[0] for one in started]
    assert started[0].returncode == -signal.SIGKILL
    first, second = (json.loads(text.split(" ", 2)[2]) for text in told[1:])
    assert first[0] == second[0] != "no error"
    assert re.sub(r"Consumer \d", "", first[1]) == re.sub(r"Consumer \d", "", second[1])
    assert max(first[2], second[2]) < 60.0  # of 300 where nothing is said


def test_ranks_that_are_one_consumer_read_the_same(cluster: LocalCluster) -> None:
    """The ranks of a tensor-parallel pair get the same batches, and the pairs share
    them.
    """
    found = ranks(cluster, "copies", world=4)
    assert found[0] == found[1] != found[2] == found[3]
    for number in range(2):
        shared = rows(found[0][number], found[2][number])
        assert len(shared) == len(set(shared)) >= COUNT - 3 * BATCH
