"""Sections 2.5 and 2.6: readers that share a job and its iterations, and parameters
that contradict each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, joined, numbers, read, some, status, together
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.testing.cluster import await_condition

RANGE = zmqdata.Dataset.range(1000)
ENDLESS = zmqdata.Dataset.counter()
CACHE = zmqdata.CrossTrainerCache("first")


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Return a job name that no other test uses."""
    return request.node.name  # type: ignore[no-any-return]


# --- parameters


DIFFERENT: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    (
        "mode",
        {"mode": OFF},
        {"mode": DYNAMIC},
        r"Existing processing mode: <.*OFF.*>; got <.*DYNAMIC.*>",
    ),
    ("target", {}, {"target_workers": "ANY"}, "Existing target workers: <AUTO>; got <ANY>"),
    (
        "cache",
        {"cross_trainer_cache": CACHE},
        {},
        "Existing cross-trainer cache: <enabled>; got <disabled>",
    ),
    (
        "no cache",
        {},
        {"cross_trainer_cache": CACHE},
        "Existing cross-trainer cache: <disabled>; got <enabled>",
    ),
    ("compression", {}, {"compression": None}, "Existing compression: <AUTO>; got <None>"),
    (
        "dataset",
        {},
        {"dataset": zmqdata.Dataset.counter(start=5)},
        "Existing dataset: <.*>; got <.*>",
    ),
    (
        "function",
        {"dataset": ENDLESS.map(lambda x: x * 2)},
        {"dataset": ENDLESS.map(lambda x: x * 3)},
        "Existing dataset: <counter.*, map.*>; got <the same with other functions or arguments>",
    ),
    (
        "consumers",
        {"consumer_index": 0, "num_consumers": 1},
        {"consumer_index": 0, "num_consumers": 2},
        "Existing number of consumers: <1>; got <2>",
    ),
    (
        "rule for the end",
        {"consumer_index": 0, "num_consumers": 1, "finite": "drop"},
        {"consumer_index": 0, "num_consumers": 1, "finite": "pad"},
        "Existing rule for finite input: <drop>; got <pad>",
    ),
]


@pytest.mark.claim("2.5a", "7.19", "7.30", "7.55")
@pytest.mark.parametrize(
    ("first", "second", "text"), [case[1:] for case in DIFFERENT], ids=[c[0] for c in DIFFERENT]
)
def test_one_name_has_one_set_of_parameters(
    cluster: zmqdata.LocalCluster,
    name: str,
    first: dict[str, Any],
    second: dict[str, Any],
    text: str,
) -> None:
    """A second reader with other parameters is refused, with both values."""
    both = {"job_name": name, "mode": OFF, "dataset": ENDLESS}
    it = iter(read(service=cluster, **{**both, **first}))
    next(it)
    begins = f"Tried to create job with name {name}, but found an existing job with different parameters: "
    with pytest.raises(InvalidArgumentError) as told:
        next(iter(read(service=cluster, **{**both, **second})))
    assert begins.replace("[", "").split(",")[0] in str(told.value).replace("[", "")
    with pytest.raises(InvalidArgumentError, match=text):
        next(iter(read(service=cluster, **{**both, **second})))
    assert next(it) is not None
    it.close()


@pytest.mark.claim("2.5b")
def test_some_parameters_are_each_readers_own(cluster: zmqdata.LocalCluster, name: str) -> None:
    """Readers of a job may differ in outstanding requests, transport, heartbeat
    interval and time-out.
    """
    options: list[dict[str, Any]] = [
        {},
        {"data_transfer_protocol": "tcp"},
        {"max_outstanding_requests": 3},
        {"task_refresh_interval_hint_ms": 50},
        {"dispatcher_timeout": 10.0},
    ]
    found = together(
        *(lambda own=own: numbers(read(RANGE, cluster, job_name=name, **own)) for own in options)
    )
    assert sorted(joined(found)) == list(range(1000))


@pytest.mark.claim("7.30")
def test_a_zip_of_two_modes_needs_two_names(cluster: zmqdata.LocalCluster, name: str) -> None:
    """A zip of two distributed datasets with different modes needs two job names."""
    off, dynamic = (
        (lambda job: read(RANGE, cluster, OFF, job_name=job)),
        lambda job: read(RANGE, cluster, job_name=job),
    )
    assert len(list(zmqdata.Dataset.zip(off(f"{name} a"), dynamic(f"{name} b")))) == 1000
    with pytest.raises(InvalidArgumentError, match="but found an existing job with diff"):
        list(zmqdata.Dataset.zip(off(name), dynamic(name)))


# --- sharing


@pytest.mark.claim("2.6a", "2.6e")
@pytest.mark.core
@pytest.mark.parametrize("readers", [2, 5])
def test_readers_of_a_job_share_its_elements(
    cluster: zmqdata.LocalCluster, name: str, readers: int
) -> None:
    """Readers that name one job get each element once among them."""
    calls = [lambda: numbers(read(RANGE, cluster, job_name=name))] * readers
    assert sorted(joined(together(*calls))) == list(range(1000))


@pytest.mark.claim("2.6a")
@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_readers_share_in_every_mode(cluster: zmqdata.LocalCluster, name: str, mode: Any) -> None:
    """Readers of a job share the copies of all workers under OFF, and one copy under
    DYNAMIC.
    """
    found = together(*[lambda: numbers(read(RANGE, cluster, mode, job_name=name))] * 2)
    assert Counter(joined(found)) == Counter(dict.fromkeys(range(1000), 2 if mode is OFF else 1))


@pytest.mark.claim("2.6b")
@pytest.mark.core
def test_a_job_that_was_read_is_over(cluster: zmqdata.LocalCluster, name: str) -> None:
    """A reader that joins a finished iteration ends at once without an element."""
    first, *others = (read(RANGE, cluster, job_name=name) for _ in range(3))
    assert len(numbers(first)) == 1000
    assert [numbers(other) for other in others] == [[], []]


@pytest.mark.claim("2.6b")
def test_a_dataset_made_after_the_end_is_an_error(cluster: zmqdata.LocalCluster, name: str) -> None:
    """A dataset that is made after its process has read the iteration raises an error
    that names the remedies.
    """
    assert len(numbers(read(RANGE, cluster, job_name=name))) == 1000
    with pytest.raises(FailedPreconditionError, match="Make the dataset once and call iter"):
        numbers(read(RANGE, cluster, job_name=name))


@pytest.mark.claim("2.6b")
def test_a_late_reader_gets_the_rest(cluster: zmqdata.LocalCluster, name: str) -> None:
    """A reader that joins in the middle shares the remaining elements."""
    big = zmqdata.Dataset.range(20_000)
    first = iter(read(big, cluster, job_name=name, max_outstanding_requests=10))
    found = some(first, 100)
    found += joined(
        together(lambda: numbers(first), lambda: numbers(read(big, cluster, job_name=name)))
    )
    assert sorted(found) == list(range(20_000))


@pytest.mark.claim("2.6c")
@pytest.mark.core
def test_each_iterator_is_a_new_iteration(cluster: zmqdata.LocalCluster) -> None:
    """Each loop over a dataset object reads all elements again."""
    ds = read(RANGE, cluster)
    for _ in range(3):
        assert sorted(numbers(ds)) == list(range(1000))


@pytest.mark.claim("2.6c")
def test_each_iterator_of_a_named_job_is_a_new_iteration(
    cluster: zmqdata.LocalCluster, name: str
) -> None:
    """Two readers that loop twice share the first iteration and the second."""
    datasets = [read(RANGE, cluster, job_name=name) for _ in range(2)]
    for _ in range(2):
        found = together(*(lambda ds=ds: numbers(ds) for ds in datasets))
        assert sorted(joined(found)) == list(range(1000))


@pytest.mark.claim("2.6c")
@pytest.mark.parametrize("times", [0, 1, 3])
def test_repeat_after_distribute(cluster: zmqdata.LocalCluster, times: int) -> None:
    """Each repetition of a ``repeat`` after ``distribute`` is a separate iteration."""
    found = numbers(read(zmqdata.Dataset.range(20), cluster).repeat(times))
    assert Counter(found) == Counter(dict.fromkeys(range(20), times) if times else {})


@pytest.mark.claim("2.6c", "2.10f")
@pytest.mark.parametrize(("mode", "copies"), [(OFF, 6), (DYNAMIC, 3)])
def test_repeat_before_distribute(cluster: zmqdata.LocalCluster, mode: Any, copies: int) -> None:
    """A ``repeat`` before ``distribute`` runs on the workers, within one iteration."""
    found = numbers(read(zmqdata.Dataset.range(20).repeat(3), cluster, mode))
    assert Counter(found) == Counter(dict.fromkeys(range(20), copies))


@pytest.mark.claim("2.6c")
def test_repeats_on_both_sides(cluster: zmqdata.LocalCluster) -> None:
    """A ``repeat`` before ``distribute`` and a ``repeat`` after it multiply."""
    found = numbers(read(zmqdata.Dataset.range(5).repeat(2), cluster).repeat(3))
    assert Counter(found) == Counter(dict.fromkeys(range(5), 6))


@pytest.mark.claim("2.6d", "1.4m")
def test_anonymous_jobs_are_private(cluster: zmqdata.LocalCluster) -> None:
    """Dataset objects without a job name each read all elements, concurrently."""
    found = together(*[lambda: numbers(read(RANGE, cluster))] * 3)
    assert [sorted(one) for one in found] == [list(range(1000))] * 3


@pytest.mark.claim("2.6d")
def test_two_iterators_of_one_dataset(cluster: zmqdata.LocalCluster) -> None:
    """Two concurrent iterators of one dataset object read two iterations."""
    ds = read(RANGE, cluster)
    first, second = iter(ds), iter(ds)
    pairs = list(zip(first, second, strict=True))
    for side in zip(*pairs, strict=True):
        assert sorted(numbers(side)) == list(range(1000))


@pytest.mark.claim("2.6f")
@pytest.mark.core
@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_nothing_to_read_ends_at_once(cluster: zmqdata.LocalCluster, name: str, mode: Any) -> None:
    """Every iteration of an empty dataset is empty, in private and in shared jobs."""
    for empty in (zmqdata.Dataset.range(0), RANGE.filter(lambda x: x < 0), RANGE.take(0)):
        ds = read(empty, cluster, mode)
        assert numbers(ds) == numbers(ds) == []
    assert together(
        *[lambda: numbers(read(zmqdata.Dataset.range(0), cluster, mode, job_name=name))] * 2
    ) == [[], []]


@pytest.mark.claim("2.6f")
def test_fewer_elements_than_workers(cluster: zmqdata.LocalCluster) -> None:
    """Two workers deliver a single element once."""
    assert numbers(read(zmqdata.Dataset.range(1), cluster)) == [0]
    assert numbers(read(zmqdata.Dataset.from_tensors(7), cluster)) == [7]


@pytest.mark.claim("2.6g")
def test_a_worker_that_joins_gets_a_task(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """New workers join an iteration that began with no worker or with one."""
    cluster = make_cluster(0)
    it = iter(read(ENDLESS, cluster, OFF, job_name="open"))
    cluster.add_worker()
    assert next(it) == 0
    cluster.add_worker()
    zeros = 0
    while not zeros:
        zeros += int(next(it)) == 0
    assert len(status(cluster)["tasks"]) == 2
    it.close()


@pytest.mark.claim("2.6h")
def test_iterations_are_numbered_by_job_and_repetition(
    cluster: zmqdata.LocalCluster, name: str
) -> None:
    """The dispatcher lists each repetition of a job, and marks it as finished."""
    ds = read(zmqdata.Dataset.range(10), cluster, job_name=name)
    numbers(ds)
    numbers(ds)
    await_condition(
        lambda: _iterations(cluster, name) == [(0, True), (1, True)], what="two finished iterations"
    )


def _iterations(cluster: zmqdata.LocalCluster, name: str) -> list[tuple[int, bool]]:
    found = [one for one in status(cluster)["iterations"] if one["job"] == name]
    return [(one["repetition"], one["finished"]) for one in found]


@pytest.mark.claim("2.6i")
@pytest.mark.parametrize("count", [1, 13])
def test_batches_and_structures_arrive_as_they_were(
    cluster: zmqdata.LocalCluster, count: int
) -> None:
    """Nested elements keep structure, types and values."""
    ds = zmqdata.Dataset.range(count).map(
        lambda x: {
            "a": (np.float32(x), [int(x)] * 3),
            "b": b"x" * int(x),
            "c": None,
            "d": str(x),
            "e": bool(x % 2),
        }
    )
    for element in sorted(read(ds, cluster), key=lambda one: float(one["a"][0])):
        x = int(element["a"][0])
        assert element["a"][0].dtype == np.float32
        assert element["a"][1].tolist() == [x] * 3
        assert (element["b"], element["c"], element["d"], element["e"]) == (
            b"x" * x,
            None,
            str(x),
            bool(x % 2),
        )


@pytest.mark.claim("2.6j")
def test_a_reader_that_leaves_early_harms_nobody(cluster: zmqdata.LocalCluster, name: str) -> None:
    """Elements that a closed reader did not hand out go to the other readers."""
    big = zmqdata.Dataset.range(5000)
    # The limit leaves elements for the second reader. Without it, all the rest is in
    # flight to the first, and the second ends before the first closes.
    first = iter(read(big, cluster, job_name=name, max_outstanding_requests=100))
    found = some(first, 10)
    second = iter(read(big, cluster, job_name=name))
    found += some(second, 10)
    first.close()
    assert sorted(found + numbers(second)) == list(range(5000))
