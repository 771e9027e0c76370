"""Section 2.11: static sharding. Each worker has a place in a list, and a fixed part of
the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, numbers, read, rows, some, status
from zmqdata import SHARD_HINT, Dataset, ShardingPolicy, TFRecordDataset
from zmqdata.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)

WORKERS = 3
PLACES = ["127.0.0.1"] * WORKERS
STATIC = [
    ShardingPolicy.FILE,
    ShardingPolicy.DATA,
    ShardingPolicy.FILE_OR_DATA,
    ShardingPolicy.HINT,
]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the paths of seven files with four records each."""
    folder = tmp_path_factory.mktemp("records")
    paths = [str(folder / f"{number}.tfrecord") for number in range(7)]
    for number, path in enumerate(paths):
        with zmqdata.TFRecordWriter(path) as writer:
            for record in range(4):
                writer.write(b"%d:%d" % (number, record))
    return paths


def contents(files: int = 7) -> list[bytes]:
    return [b"%d:%d" % (number, record) for number in range(files) for record in range(4)]


@pytest.fixture(scope="module")
def static_clusters() -> Any:
    """Yield the clusters of this module by kind, whose workers have places."""
    made: dict[str, zmqdata.LocalCluster] = {}
    yield made
    for cluster in made.values():
        cluster.close()


@pytest.fixture
def static(
    host_kind: str, static_clusters: dict[str, zmqdata.LocalCluster]
) -> zmqdata.LocalCluster:
    """Return a cluster with three workers on the three places of the list."""
    if host_kind not in static_clusters:
        options = {"heartbeat_interval_ms": 100, "worker_addresses": PLACES}
        static_clusters[host_kind] = zmqdata.LocalCluster(
            WORKERS, in_process=host_kind == "threads", **options
        )
    return static_clusters[host_kind]


# --- policies


@pytest.mark.claim("2.11a")
@pytest.mark.parametrize("policy", [ShardingPolicy.DATA, ShardingPolicy.FILE_OR_DATA])
def test_elements_are_shared_out(static: zmqdata.LocalCluster, policy: ShardingPolicy) -> None:
    """DATA divides elements or whole batches among workers, as FILE_OR_DATA does for a
    source without files.
    """
    ds = Dataset.range(20)
    assert sorted(numbers(read(ds, static, policy))) == list(range(20))
    batches = sorted(batch.tolist() for batch in read(ds.batch(4), static, policy))
    assert batches == [list(range(first, first + 4)) for first in range(0, 20, 4)]


@pytest.mark.claim("2.11b")
@pytest.mark.parametrize("policy", [ShardingPolicy.FILE, ShardingPolicy.FILE_OR_DATA])
def test_files_are_shared_out(
    static: zmqdata.LocalCluster, records: list[str], policy: ShardingPolicy
) -> None:
    """FILE divides file names, wherever the pipeline reads the files."""
    listed = Dataset.list_files(records, shuffle=False)
    for ds in (
        TFRecordDataset(records),
        listed.flat_map(TFRecordDataset),
        listed.interleave(lambda name: TFRecordDataset(name), cycle_length=4),
        Dataset.list_files(records)
        .shuffle(7)
        .flat_map(TFRecordDataset)
        .map(lambda x: x)
        .prefetch(2),
        TFRecordDataset(records).shuffle(100).batch(3).unbatch(),
    ):
        assert sorted(map(bytes, read(ds, static, policy))) == contents()


@pytest.mark.claim("2.11b")
def test_files_stay_whole(static: zmqdata.LocalCluster, records: list[str]) -> None:
    """Under FILE, all records of a file come from one worker."""
    ds = Dataset.list_files(records, shuffle=False).flat_map(
        lambda name: TFRecordDataset(name).batch(4)
    )
    for batch in read(ds, static, ShardingPolicy.FILE):
        assert len({bytes(record).split(b":")[0] for record in batch}) == 1


@pytest.mark.claim("2.11c")
def test_several_inputs_are_each_divided(static: zmqdata.LocalCluster, records: list[str]) -> None:
    """FILE divides each input of ``concatenate`` and ``zip``."""
    both = TFRecordDataset(records[:3]).concatenate(TFRecordDataset(records[3:]))
    assert sorted(map(bytes, read(both, static, ShardingPolicy.FILE))) == contents()
    pairs = Dataset.zip(TFRecordDataset(records), TFRecordDataset(records))
    assert (
        sorted(bytes(a) for a, b in read(pairs, static, ShardingPolicy.FILE) if a == b)
        == contents()
    )


@pytest.mark.claim("2.11d")
def test_hints_are_filled_in(static: zmqdata.LocalCluster, records: list[str]) -> None:
    """HINT divides at the hint of the pipeline, and without a hint each worker reads
    everything.
    """
    hinted = Dataset.range(20).shard(SHARD_HINT, SHARD_HINT)
    assert sorted(numbers(read(hinted, static, ShardingPolicy.HINT))) == list(range(20))
    early = Dataset.range(20).shard(SHARD_HINT, SHARD_HINT).map(lambda x: x).batch(2)
    assert sorted(rows(read(early, static, ShardingPolicy.HINT))) == list(range(20))
    files = (
        Dataset.list_files(records, shuffle=False)
        .shard(SHARD_HINT, SHARD_HINT)
        .flat_map(TFRecordDataset)
    )
    assert sorted(map(bytes, read(files, static, ShardingPolicy.HINT))) == contents()
    plain = read(Dataset.range(20), static, ShardingPolicy.HINT)
    assert Counter(numbers(plain)) == Counter(dict.fromkeys(range(20), WORKERS))


@pytest.mark.claim("2.11e")
@pytest.mark.parametrize(
    "policy", [ShardingPolicy.DATA, ShardingPolicy.FILE, ShardingPolicy.FILE_OR_DATA]
)
def test_every_repetition_has_everything(
    static: zmqdata.LocalCluster, records: list[str], policy: ShardingPolicy
) -> None:
    """A second iteration, and a ``repeat`` before or after ``distribute``, divide in
    the same way.
    """
    ds = read(TFRecordDataset(records), static, policy)
    for _ in range(2):
        assert sorted(map(bytes, ds)) == contents()
    assert Counter(map(bytes, ds.repeat(2))) == Counter(dict.fromkeys(contents(), 2))
    inner = read(TFRecordDataset(records).repeat(2), static, policy)
    assert Counter(map(bytes, inner)) == Counter(dict.fromkeys(contents(), 2))


@pytest.mark.claim("2.11e")
def test_readers_share_a_static_job(static: zmqdata.LocalCluster) -> None:
    """Readers of a named static job share its elements."""
    name = f"static job of {static.target}"
    first = iter(
        read(
            Dataset.range(3000),
            static,
            ShardingPolicy.DATA,
            job_name=name,
            max_outstanding_requests=5,
        )
    )
    found = some(first, 20)
    found += numbers(read(Dataset.range(3000), static, ShardingPolicy.DATA, job_name=name))
    found += numbers(first)
    assert sorted(found) == list(range(3000))


@pytest.mark.claim("2.11e")
@pytest.mark.parametrize(("policy", "copies"), [(OFF, WORKERS), (DYNAMIC, 1)])
def test_other_policies_do_not_mind_the_list(
    static: zmqdata.LocalCluster, policy: Any, copies: int
) -> None:
    """A cluster whose workers have places also serves OFF and DYNAMIC."""
    assert Counter(numbers(read(Dataset.range(20), static, policy))) == Counter(
        dict.fromkeys(range(20), copies)
    )


@pytest.mark.claim("2.11e")
def test_empty_input_is_shared_out(static: zmqdata.LocalCluster) -> None:
    """Three workers divide an empty input, and an input of one element."""
    assert numbers(read(Dataset.range(0), static, ShardingPolicy.DATA)) == []
    assert numbers(read(Dataset.range(1), static, ShardingPolicy.DATA)) == [0]


# --- input that cannot be divided


@pytest.mark.claim("2.11f", "7.1")
@pytest.mark.parametrize(
    "ds",
    [
        Dataset.range(20),
        Dataset.from_tensors(5),
        Dataset.from_tensor_slices([1, 2, 3, 4]),
        Dataset.from_generator(
            lambda: iter(range(4)), output_signature=zmqdata.TensorSpec((), "int64")
        ),
        Dataset.range(20).map(lambda x: x).batch(2),
    ],
)
def test_sources_without_files(static: zmqdata.LocalCluster, ds: Dataset) -> None:
    """FILE refuses a source without files, and FILE_OR_DATA divides its elements."""
    with pytest.raises(NotFoundError, match="Found an unshardable source dataset"):
        list(read(ds, static, ShardingPolicy.FILE))
    assert len(list(read(ds, static, ShardingPolicy.FILE_OR_DATA))) == len(list(ds))


@pytest.mark.claim("2.11g", "7.2")
def test_a_hint_is_for_both_arguments(static: zmqdata.LocalCluster) -> None:
    """A hint as index with a real number of shards is refused."""
    with pytest.raises(
        InvalidArgumentError, match=r"[Ii]ndex must be between 0 and 4 \(currently index = -1\)"
    ):
        list(read(Dataset.range(20).shard(5, SHARD_HINT), static, ShardingPolicy.HINT))


@pytest.mark.claim("2.11g", "7.3")
@pytest.mark.parametrize("policy", [OFF, DYNAMIC, ShardingPolicy.FILE_OR_DATA, ShardingPolicy.DATA])
def test_hints_are_for_their_policy(static: zmqdata.LocalCluster, policy: ShardingPolicy) -> None:
    """A hint under another policy than HINT is an error that names HINT."""
    with pytest.raises(
        FailedPreconditionError,
        match=r"tf\.data service with `ShardingPolicy\.HINT` processing mode",
    ):
        list(read(Dataset.range(20).shard(SHARD_HINT, SHARD_HINT), static, policy))


@pytest.mark.claim("2.11h", "7.4")
@pytest.mark.parametrize("policy", [ShardingPolicy.FILE, ShardingPolicy.FILE_OR_DATA])
@pytest.mark.parametrize("listed", [True, False])
def test_too_few_files(
    static: zmqdata.LocalCluster, records: list[str], policy: ShardingPolicy, listed: bool
) -> None:
    """Two files are not enough for three workers."""
    names = records[:2]
    ds = (
        Dataset.list_files(names, shuffle=False).flat_map(TFRecordDataset)
        if listed
        else TFRecordDataset(names)
    )
    with pytest.raises(
        InvalidArgumentError, match=r"not enough for the required 3 shards/workers\."
    ):
        list(read(ds, static, policy))


@pytest.mark.claim("2.11h", "7.5")
def test_too_few_files_for_a_hint(static: zmqdata.LocalCluster, records: list[str]) -> None:
    """A hint over too few file names is refused."""
    names = Dataset.list_files(records[:2], shuffle=False).shard(SHARD_HINT, SHARD_HINT)
    with pytest.raises(
        InvalidArgumentError, match=r"not enough for the required 3 shards/workers\."
    ):
        list(read(names.flat_map(TFRecordDataset), static, ShardingPolicy.HINT))


@pytest.mark.claim("2.11h")
def test_as_many_files_as_workers_do(static: zmqdata.LocalCluster, records: list[str]) -> None:
    """Three files are enough for three workers."""
    found = read(TFRecordDataset(records[:3]), static, ShardingPolicy.FILE)
    assert sorted(map(bytes, found)) == contents(3)


# --- places


REFUSED = (FailedPreconditionError, UnavailableError)
"""Errors of a cluster whose worker is refused, on threads and on processes."""


@pytest.mark.claim("2.11i", "7.7")
@pytest.mark.parametrize("policy", STATIC)
def test_an_empty_list_has_no_places(cluster: zmqdata.LocalCluster, policy: ShardingPolicy) -> None:
    """A static policy without a list of workers is refused at the read."""
    with pytest.raises(NotFoundError, match=r"Worker .* is not in the workers list\."):
        list(read(Dataset.range(20), cluster, policy))


@pytest.mark.claim("2.11j", "7.6", "7.8")
@pytest.mark.parametrize(
    "entry",
    [
        "localhost:worker",
        "127.0.0.1:1",
        "no-such-host.invalid",
        "10.255.0.1:%port%",
        "[::1]:%port%",
    ],
)
def test_a_worker_without_a_place_does_not_start(
    make_cluster: Callable[..., zmqdata.LocalCluster], entry: str
) -> None:
    """A worker whose address is not in the list does not start."""
    with pytest.raises(REFUSED, match="The worker's address is not configured"):
        make_cluster(1, worker_addresses=[entry])


@pytest.mark.claim("2.11j", "7.9")
def test_more_workers_than_places(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """The dispatcher refuses a second worker for its only place."""
    cluster = make_cluster(1, worker_addresses=["127.0.0.1:%port%"])
    with pytest.raises(REFUSED, match="other workers are already running at the configured host"):
        cluster.add_worker()
    assert len(status(cluster)["workers"]) == 1


@pytest.mark.claim("2.11k")
@pytest.mark.parametrize(
    "entries",
    [
        ["127.0.0.1"] * 2,
        ["127.0.0.1:%port%"] * 2,
        ["127.0.0.1:%port_a%", "127.0.0.1:%port_b%"],
        ["localhost", "localhost:%port%"],
        ["tcp://127.0.0.1", "127.0.0.1"],
    ],
)
def test_every_form_of_a_place(
    make_cluster: Callable[..., zmqdata.LocalCluster], entries: list[str]
) -> None:
    """A place is a host alone, or a host with an open or a named port."""
    cluster = make_cluster(len(entries), worker_addresses=entries)
    assert sorted(numbers(read(Dataset.range(20), cluster, ShardingPolicy.DATA))) == list(range(20))


@pytest.mark.claim("2.11k")
def test_places_are_taken_in_their_order(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """The first worker of a host gets the first part."""
    cluster = make_cluster(1, worker_addresses=["127.0.0.1"] * 2)
    it = iter(read(Dataset.range(10), cluster, ShardingPolicy.DATA))
    found = some(it, 5)
    assert found == [0, 2, 4, 6, 8]
    assert len(status(cluster)["workers"]) == 1
    cluster.add_worker()
    assert numbers(it) == [1, 3, 5, 7, 9]


@pytest.mark.claim("2.11k")
def test_a_port_that_is_named_is_kept(make_dispatcher: Any, make_worker: Any) -> None:
    """A worker takes the place with its own port, even if an earlier place has its
    host.
    """
    with zmqdata.DispatchServer() as free:
        port = int(free.target.rpartition(":")[2])
    dispatcher = make_dispatcher(worker_addresses=["127.0.0.1", f"127.0.0.1:{port}"])
    make_worker(dispatcher.target, port=port)
    found = some(iter(read(Dataset.range(10), dispatcher, ShardingPolicy.DATA)), 5)
    assert found == [1, 3, 5, 7, 9]


@pytest.mark.claim("2.11k")
def test_ipv6_places(make_dispatcher: Any, make_worker: Any) -> None:
    """A place with an IPv6 address has brackets."""
    import socket

    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6")
    dispatcher = make_dispatcher(worker_addresses=["[::1]:%port%"])
    make_worker(dispatcher.target, host="::1")
    assert numbers(read(Dataset.range(5), dispatcher, ShardingPolicy.DATA)) == list(range(5))


@pytest.mark.claim("2.11l")
def test_a_static_job_waits_for_its_worker(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """A static job has a part for each place, and waits for a worker that has not yet
    joined.
    """
    cluster = make_cluster(1, worker_addresses=["127.0.0.1"] * 2)
    it = iter(read(Dataset.range(10), cluster, ShardingPolicy.DATA))
    found = some(it, 5)
    cluster.add_worker()
    assert sorted(found + numbers(it)) == list(range(10))


@pytest.mark.claim("2.11l")
@pytest.mark.core
def test_a_worker_that_comes_back_goes_on(
    make_cluster: Callable[..., zmqdata.LocalCluster],
) -> None:
    """A static job delivers each element once, although a worker restarts in the middle
    of it.
    """
    cluster = make_cluster(2, worker_addresses=["127.0.0.1"] * 2)
    it = iter(
        read(
            Dataset.range(5_000),
            cluster,
            ShardingPolicy.DATA,
            job_name="on",
            max_outstanding_requests=16,
        )
    )
    found = some(it, 500)
    cluster.workers[0].kill()
    cluster.workers[0].restart()
    found += numbers(it)
    assert sorted(found) == list(range(5_000))


@pytest.mark.claim("2.11m", "7.10")
@pytest.mark.realprocess
@pytest.mark.full
@pytest.mark.parametrize("policy", STATIC[1:])
def test_colocated_static_jobs_need_local_workers(policy: ShardingPolicy) -> None:
    """A COLOCATED deployment refuses a static policy without a local worker."""
    options = {
        "heartbeat_interval_ms": 100,
        "deployment_mode": "COLOCATED",
        "worker_addresses": ["127.0.0.1"],
    }
    with (
        zmqdata.LocalCluster(1, **options) as cluster,
        pytest.raises(
            InvalidArgumentError,
            match=f"Static sharding policy <{policy.name}> requires local tf.data w",
        ),
    ):
        list(read(Dataset.range(20), cluster, policy))


@pytest.mark.claim("2.11m")
def test_colocated_static_jobs_read_local_workers(make_dispatcher: Any, make_worker: Any) -> None:
    """A COLOCATED deployment reads a static policy from a local worker."""
    dispatcher = make_dispatcher(deployment_mode="COLOCATED", worker_addresses=["127.0.0.1"])
    make_worker(dispatcher.target)
    assert numbers(read(Dataset.range(20), dispatcher, ShardingPolicy.DATA)) == list(range(20))
