"""Section 5: several training jobs read all elements of one cached job, each at its own
pace.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, joined, read, some, together
from zmqdata import CrossTrainerCache, Dataset
from zmqdata.errors import InvalidArgumentError
from zmqdata.testing.cluster import await_condition

ENDLESS = Dataset.counter()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a job name that no other test uses."""
    return request.node.name  # type: ignore[no-any-return]


@pytest.fixture
def one(make_cluster: Callable[..., zmqdata.LocalCluster]) -> zmqdata.LocalCluster:
    """Return a cluster with one worker."""
    return make_cluster(1)


def reader(
    service: Any, who: str, name: str, dataset: Dataset = ENDLESS, mode: Any = OFF, **options: Any
) -> Any:
    """Return an iterator of the training job ``who``."""
    return iter(
        read(
            dataset,
            service,
            mode,
            job_name=name,
            cross_trainer_cache=CrossTrainerCache(who),
            **options,
        )
    )


@pytest.mark.claim("5.1a")
@pytest.mark.core
def test_everybody_reads_everything(one: zmqdata.LocalCluster, name: str) -> None:
    """Three training jobs read the same elements in the same order, concurrently or in
    turn.
    """
    its = [reader(one, who, name) for who in "abc"]
    for it in its[:2]:
        assert some(it, 300) == list(range(300))
    assert some(its[2], 300) == list(range(300))


@pytest.mark.claim("5.1b")
def test_elements_are_made_once(one: zmqdata.LocalCluster, name: str) -> None:
    """A second training job reads the elements that the worker made for the first."""
    ds = ENDLESS.map(lambda x: os.urandom(8))
    first, second = reader(one, "a", name, ds), reader(one, "b", name, ds)
    assert [next(first) for _ in range(50)] == [next(second) for _ in range(50)]


@pytest.mark.claim("5.1c")
def test_one_id_is_one_reader(one: zmqdata.LocalCluster, name: str) -> None:
    """Readers with the same trainer id share one copy."""
    first, second = reader(one, "a", name), reader(one, "a", name)
    found = joined(together(lambda: some(first, 300), lambda: some(second, 300)))
    assert len(set(found)) == 600


@pytest.mark.claim("5.2a")
def test_the_slow_skip_ahead(make_cluster: Callable[..., zmqdata.LocalCluster], name: str) -> None:
    """A training job that falls behind the window resumes in order at its start, and a
    faster job misses nothing.
    """
    cluster = make_cluster(1, cross_trainer_cache_size_bytes=200_000)
    ds = ENDLESS.map(lambda x: np.full(1000, x))
    fast, slow = reader(cluster, "fast", name, ds), reader(cluster, "slow", name, ds)
    assert int(next(slow)[0]) == 0
    assert [int(next(fast)[0]) for _ in range(2000)] == list(range(2000))
    late = [int(next(slow)[0]) for _ in range(200)]
    assert late == sorted(set(late))
    assert late[-1] > 1000


@pytest.mark.claim("5.2b")
def test_a_newcomer_starts_at_the_window(
    make_cluster: Callable[..., zmqdata.LocalCluster], name: str
) -> None:
    """A training job that joins late begins at the start of the window, not with
    element 0.
    """
    cluster = make_cluster(1, cross_trainer_cache_size_bytes=200_000)
    ds = ENDLESS.map(lambda x: np.full(1000, x))
    fast = reader(cluster, "fast", name, ds)
    for _ in range(1000):
        next(fast)
    assert int(next(reader(cluster, "late", name, ds))[0]) > 500


@pytest.mark.claim("5.2c")
def test_an_element_that_is_too_large_is_an_error(
    make_cluster: Callable[..., zmqdata.LocalCluster], name: str
) -> None:
    """The reader gets an error for an element that is larger than the cache."""
    cluster = make_cluster(1, cross_trainer_cache_size_bytes=10_000)
    with pytest.raises(InvalidArgumentError, match="cache"):
        next(reader(cluster, "a", name, ENDLESS.map(lambda x: np.zeros(100_000))))


@pytest.mark.claim("5.3a")
@pytest.mark.core
def test_splits_may_be_shared_out(cluster: zmqdata.LocalCluster, name: str) -> None:
    """Under DYNAMIC, each of two training jobs reads every element of the input."""
    ds = Dataset.range(100).repeat()
    its = [reader(cluster, who, name, ds, DYNAMIC) for who in "ab"]
    found = together(*(lambda it=it: some(it, 2000) for it in its))
    assert [set(one) for one in found] == [set(range(100))] * 2
    for it in its:
        it.close()


@pytest.mark.claim("5.4a", "7.16")
@pytest.mark.parametrize("stop", [0, 10])
def test_finite_datasets_are_refused(cluster: zmqdata.LocalCluster, name: str, stop: int) -> None:
    """The dispatcher refuses to cache a dataset of finite cardinality."""
    with pytest.raises(InvalidArgumentError, match="requires the input dataset to be infinite"):
        next(reader(cluster, "a", name, Dataset.range(stop)))


@pytest.mark.claim("5.4a")
def test_what_ends_after_all_is_an_error_then(cluster: zmqdata.LocalCluster, name: str) -> None:
    """The reader of a cached dataset that turns out to end gets an error at its end."""
    it = reader(cluster, "a", name, Dataset.range(10).filter(lambda x: True))
    with pytest.raises(InvalidArgumentError, match="requires the input dataset to be infinite"):
        list(it)


@pytest.mark.claim("5.4b", "7.17")
def test_only_the_first_repetition(cluster: zmqdata.LocalCluster, name: str) -> None:
    """A second iterator of a cached dataset object is refused."""
    ds = read(ENDLESS, cluster, OFF, job_name=name, cross_trainer_cache=CrossTrainerCache("a"))
    next(iter(ds))
    text = "requires infinite datasets and disallows multiple repetitions of the same dataset"
    with pytest.raises(InvalidArgumentError, match=text):
        next(iter(ds))


@pytest.mark.claim("5.4c", "7.18")
def test_no_coordinated_reads(cluster: zmqdata.LocalCluster, name: str) -> None:
    """A cache and consumers contradict each other."""
    with pytest.raises(InvalidArgumentError, match="does not support coordinated reads"):
        next(reader(cluster, "a", name, consumer_index=0, num_consumers=2))


@pytest.mark.claim("5.4d", "7.19")
def test_a_job_is_cached_for_all_or_none(cluster: zmqdata.LocalCluster, name: str) -> None:
    """A reader without a cache cannot join a cached job."""
    it = reader(cluster, "a", name)
    next(it)
    with pytest.raises(
        InvalidArgumentError, match="Existing cross-trainer cache: <enabled>; got <disabled>"
    ):
        next(iter(read(ENDLESS, cluster, OFF, job_name=name)))
    it.close()


@pytest.mark.claim("5.4e", "7.14")
@pytest.mark.parametrize(("first", "second"), [("AUTO", None), (None, "lz4")])
def test_compression_is_the_same_for_all(
    cluster: zmqdata.LocalCluster, name: str, first: str | None, second: str | None
) -> None:
    """A second training job with another compression is refused."""
    it = reader(cluster, "a", name, compression=first)
    next(it)
    with pytest.raises(InvalidArgumentError, match="Data type mismatch"):
        next(reader(cluster, "b", name, compression=second))
    it.close()


@pytest.mark.claim("5.5a")
def test_a_worker_that_is_started_again(one: zmqdata.LocalCluster, name: str) -> None:
    """A lost worker takes its window with it, and its training jobs read from a new
    worker.
    """
    its = [reader(one, who, name) for who in "ab"]
    for it in its:
        some(it, 20)
    one.workers[0].kill()
    one.add_worker()
    assert all(together(*(lambda it=it: some(it, 20_000) for it in its)))


@pytest.mark.claim("5.5b")
def test_a_reader_that_leaves_harms_nobody(one: zmqdata.LocalCluster, name: str) -> None:
    """When one training job ends, the other reads on and a third may join."""
    first, second = reader(one, "a", name), reader(one, "b", name)
    some(first, 10)
    first.close()
    assert some(second, 500) == list(range(500))
    assert len(some(reader(one, "c", name), 10)) == 10


@pytest.mark.claim("5.3b")
def test_two_workers_two_windows(cluster: zmqdata.LocalCluster, name: str) -> None:
    """Each worker has its own window, so under OFF a training job reads both copies."""
    it = reader(cluster, "a", name)
    seen: Counter[int] = Counter()

    def both_came() -> bool:
        seen.update(some(it, 200))
        return seen[0] == 2

    await_condition(both_came, what="element 0 of both workers")
    it.close()
