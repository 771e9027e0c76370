"""Facts about static sharding: which worker reads which part, and how each fault
reaches the reader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.service import WatchedService
from zmqdata import (
    SHARD_HINT,
    Dataset,
    ShardingPolicy,
    TFRecordDataset,
    TFRecordWriter,
)
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

WORKERS = 3
EVERYWHERE = ["localhost"] * WORKERS
HINTED = Dataset.range(20).shard(SHARD_HINT, SHARD_HINT)


@pytest.fixture
def static(make_service: Callable[..., WatchedService]) -> WatchedService:
    """Three workers on the three places of the list."""
    return make_service(workers=WORKERS, worker_addresses=EVERYWHERE)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Seven files with five records each."""
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / f"{number}.tfrecord") for number in range(7)]
    for number, path in enumerate(paths):
        with TFRecordWriter(path) as writer:
            for record in range(5):
                writer.write(b"%d:%d" % (number, record))
    return paths


def everything(files: int = 7) -> list[bytes]:
    return [b"%d:%d" % (number, record) for number in range(files) for record in range(5)]


@pytest.mark.parametrize("policy", [ShardingPolicy.DATA, ShardingPolicy.FILE_OR_DATA])
def test_numbers_are_shared_out(static: WatchedService, policy: Any) -> None:
    """Elements without files are divided; an unseeded shuffle loses and doubles none,
    and each repetition has all.
    """
    dataset = static.read(Dataset.range(20).shuffle(20).batch(3), policy)
    for _ in range(2):
        assert sorted(int(x) for batch in dataset for x in batch) == list(range(20))


@pytest.mark.parametrize(
    "policy", [ShardingPolicy.FILE, ShardingPolicy.FILE_OR_DATA, ShardingPolicy.DATA]
)
def test_files_are_shared_out(static: WatchedService, records: list[str], policy: Any) -> None:
    """Every record of every file comes once."""
    listed = Dataset.list_files(records).interleave(
        lambda name: TFRecordDataset(name), cycle_length=2
    )
    assert sorted(static.read(listed, policy)) == everything()
    assert sorted(static.read(TFRecordDataset(records), policy)) == everything()


def test_hints_are_filled_in(static: WatchedService, records: list[str]) -> None:
    """The pipeline is divided at its hint; without a hint every worker reads
    everything.
    """
    assert sorted(map(int, static.read(HINTED, ShardingPolicy.HINT))) == list(range(20))
    files = Dataset.list_files(records).shard(SHARD_HINT, SHARD_HINT).flat_map(TFRecordDataset)
    assert sorted(static.read(files, ShardingPolicy.HINT)) == everything()
    whole = Dataset.range(20).shard(num_shards=1, index=0)
    assert sorted(map(int, static.read(whole, ShardingPolicy.HINT))) == sorted(
        list(range(20)) * WORKERS
    )


@pytest.mark.parametrize(
    ("policy", "error", "text"),
    [
        (ShardingPolicy.FILE, NotFoundError, "Found an unshardable source dataset"),
        (ShardingPolicy.OFF, None, ""),
    ],
)
def test_a_range_has_no_files(
    static: WatchedService, policy: Any, error: type[Exception] | None, text: str
) -> None:
    """FILE refuses a range, which has no files; OFF accepts it."""
    dataset = static.read(Dataset.range(20), policy)
    if error is None:
        assert len(list(dataset)) == 20 * WORKERS
    else:
        with pytest.raises(error, match=text):
            list(dataset)


@pytest.mark.parametrize(
    "policy", [ShardingPolicy.OFF, ShardingPolicy.DYNAMIC, ShardingPolicy.FILE_OR_DATA]
)
def test_hints_are_for_their_policy(static: WatchedService, policy: Any) -> None:
    """Another policy than the hint's raises an error that names the policy."""
    with pytest.raises(
        FailedPreconditionError,
        match=r"tf\.data service with `ShardingPolicy\.HINT` processing mode",
    ):
        list(static.read(HINTED, policy))


@pytest.mark.parametrize(
    "policy", [ShardingPolicy.FILE, ShardingPolicy.FILE_OR_DATA, ShardingPolicy.HINT]
)
def test_each_worker_needs_a_file(static: WatchedService, records: list[str], policy: Any) -> None:
    """Two files are too few for three workers."""
    listed = Dataset.list_files(records[:2], shuffle=False)
    hinted = listed.shard(SHARD_HINT, SHARD_HINT) if policy is ShardingPolicy.HINT else listed
    with pytest.raises(InvalidArgumentError, match="not enough for the required 3 shards/workers"):
        list(static.read(hinted.flat_map(TFRecordDataset), policy))


def test_data_needs_no_files(static: WatchedService, records: list[str]) -> None:
    """Two files are enough for three workers if elements are divided."""
    listed = Dataset.list_files(records[:2], shuffle=False).flat_map(TFRecordDataset)
    assert sorted(static.read(listed, ShardingPolicy.DATA)) == everything(2)


def test_without_a_list_nobody_has_a_place(make_service: Callable[..., WatchedService]) -> None:
    """The dispatcher refuses a static policy without a list of workers, and the message
    says what to configure.
    """
    with pytest.raises(NotFoundError, match=r"Worker .* is not in the workers list\."):
        list(make_service(workers=1).read(Dataset.range(20), ShardingPolicy.FILE_OR_DATA))


def test_a_worker_that_comes_back_elsewhere_takes_the_free_place(static: WatchedService) -> None:
    """A worker of the same host at another port takes the place of a worker that has
    ended.
    """
    static.workers.pop().stop()
    static.add_worker()
    assert sorted(map(int, static.read(Dataset.range(20), ShardingPolicy.DATA))) == list(range(20))
