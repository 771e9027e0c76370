"""Sections 2.7, 2.8, 3.4 and 4.4: coordinated reads. Step n of every consumer comes
from one round of one worker.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, read, status, together
from zmqdata import Dataset
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
)
from zmqdata.testing.cluster import await_condition

Made = tuple[int, str]
"""An element's number, and the thread that made it."""


def made(x: Any) -> tuple[Any, str]:
    return x, f"{os.getpid()}.{threading.get_ident()}"


ENDLESS = Dataset.counter().map(made)


@pytest.fixture
def job(request: pytest.FixtureRequest) -> str:
    """Return a job name that no other test uses."""
    return request.node.name  # type: ignore[no-any-return]


def counted(count: int) -> Dataset:
    """Return a dataset of ``count`` elements and unknown cardinality."""
    return Dataset.range(count).filter(lambda x: True).map(made)


def consumer(
    service: Any, index: int, count: int, dataset: Dataset, mode: Any = OFF, **options: Any
) -> Any:
    options.setdefault("job_name", "job")
    return iter(read(dataset, service, mode, consumer_index=index, num_consumers=count, **options))


def consumers(
    service: Any, count: int, dataset: Dataset = ENDLESS, mode: Any = OFF, **options: Any
) -> list[Any]:
    return [consumer(service, index, count, dataset, mode, **options) for index in range(count)]


def take(it: Iterator[Any], count: int) -> list[Made]:
    return [(int(x), str(who)) for x, who in islice(it, count)]


def steps(readers: list[Any], count: int) -> list[tuple[Made, ...]]:
    """Take steps of all consumers concurrently."""
    taken = together(*(lambda it=it: take(it, count) for it in readers))
    assert {len(one) for one in taken} == {count}
    return list(zip(*taken, strict=True))


def rounds(taken: list[tuple[Made, ...]]) -> dict[str, list[int]]:
    """Return the elements of each worker in order; fail if a step comes from two
    workers.
    """
    found: dict[str, list[int]] = {}
    for step in taken:
        [maker] = {who for _, who in step}
        found.setdefault(maker, []).extend(x for x, _ in step)
    return found


def in_a_row(found: list[int]) -> bool:
    return found == list(range(found[0], found[0] + len(found)))


def drained(readers: list[Any]) -> list[list[int] | Exception]:
    """Return the elements of each consumer until the end, or its error."""

    def drain(it: Any) -> list[int] | Exception:
        found = []
        try:
            found.extend(int(x) for x, _ in it)
        except DataServiceError as error:
            return error
        return found

    return together(*(lambda it=it: drain(it) for it in readers))


# --- steps and rounds


@pytest.mark.claim("4.4a", "4.4b", "3.4b")
@pytest.mark.core
def test_steps_are_rounds(cluster: zmqdata.LocalCluster, job: str) -> None:
    """Each step comes from one worker in its order, and the workers take turns."""
    check_rounds(steps(consumers(cluster, 4, job_name=job), 24), 2, 4)


@pytest.mark.claim("4.4a", "4.4b", "3.4b")
@pytest.mark.parametrize(("workers", "count"), [(1, 1), (1, 3), (3, 1)])
def test_steps_are_rounds_with_any_number_of_workers(
    make_cluster: Callable[..., zmqdata.LocalCluster], workers: int, count: int
) -> None:
    """Steps are rounds also with a single worker and with a single consumer."""
    check_rounds(steps(consumers(make_cluster(workers), count), 12 * workers), workers, count)


def check_rounds(taken: list[tuple[Made, ...]], workers: int, count: int) -> None:
    found = rounds(taken)
    assert len(found) == workers
    assert all(sorted(one) == list(range(12 * count)) and in_a_row(one) for one in found.values())
    makers = [step[0][1] for step in taken]
    assert makers == makers[:workers] * 12


@pytest.mark.claim("4.4c")
@pytest.mark.core
def test_buckets_are_the_same_for_all(cluster: zmqdata.LocalCluster, job: str) -> None:
    """At each step, all consumers read batches from the same bucket of lengths."""
    sentences = Dataset.counter().map(lambda x: np.zeros(1 + int(x) * 31 % 40, np.int8))
    batches = sentences.bucket_by_sequence_length(
        len, [10, 20, 30], [3] * 4, pad_to_bucket_boundary=False
    )
    grouped = batches.group_by_window(
        lambda batch: int(np.searchsorted([10, 20, 30], batch.shape[1], side="left")),
        lambda key, ds: ds,
        2,
    )
    readers = consumers(cluster, 2, grouped, job_name=job)
    seen = together(
        *(lambda it=it: [(next(it).shape[1] - 1) // 10 for _ in range(30)] for it in readers)
    )
    assert len(seen[0]) == 30
    assert seen[0] == seen[1]


@pytest.mark.claim("4.4d")
def test_consumers_may_run_apart(cluster: zmqdata.LocalCluster, job: str) -> None:
    """A consumer that runs far ahead reads the same steps as a slower one."""
    ahead, behind = consumers(cluster, 2, job_name=job)
    both = together(lambda: take(ahead, 100), lambda: take(behind, 3))
    rest = both[1] + take(behind, 97)
    assert all(in_a_row(one) for one in rounds(list(zip(both[0], rest, strict=True))).values())


@pytest.mark.claim("4.4e", "4.7c")
def test_consumers_see_no_end() -> None:
    """The cardinality of a coordinated read is infinite."""
    options = {"job_name": "job", "consumer_index": 0, "num_consumers": 2}
    assert (
        read(Dataset.counter(), "tcp://127.0.0.1:1", OFF, **options).cardinality()
        == zmqdata.INFINITE_CARDINALITY
    )


@pytest.mark.claim("4.4f")
def test_all_consumers_must_be_there(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """The workers deliver nothing before the last consumer has joined."""
    cluster = make_cluster(1)
    first = consumer(cluster, 0, 2, ENDLESS)
    got: list[Any] = []
    waiting = threading.Thread(target=lambda: got.extend(take(first, 1)), daemon=True)
    waiting.start()
    await_condition(lambda: status(cluster)["iterations"], what="the job to be opened")
    assert got == []
    assert take(consumer(cluster, 1, 2, ENDLESS), 1)[0][0] == 1
    waiting.join(30)
    assert [x for x, _ in got] == [0]


@pytest.mark.claim("3.4e")
def test_an_error_is_its_consumers(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """A failing element raises for its consumer alone, and all consumers read on."""
    ds = Dataset.counter().map(lambda x: (12 // (int(x) - 3), "w"))
    first, second = consumers(make_cluster(1), 2, ds)
    together(lambda: take(first, 1), lambda: take(second, 1))
    with pytest.raises(PipelineError, match="ZeroDivisionError"):
        next(second)
    assert together(lambda: take(first, 2), lambda: take(second, 1)) == [
        [(-12, "w"), (12, "w")],
        [(6, "w")],
    ]


# --- arguments


@pytest.mark.claim("1.4l", "3.4c")
@pytest.mark.parametrize(
    "options",
    [
        {"consumer_index": 0},
        {"num_consumers": 2},
        {"consumer_index": 2, "num_consumers": 2},
        {"consumer_index": -1, "num_consumers": 2},
        {"consumer_index": 0, "num_consumers": 0},
        {"consumer_index": 0, "num_consumers": -1},
        {"consumer_index": 0, "num_consumers": "2"},
        {"consumer_index": "0", "num_consumers": 2},
        {"consumer_index": 0.0, "num_consumers": 2},
        {"consumer_index": True, "num_consumers": 2},
        {"consumer_index": 0, "num_consumers": 2**64},
        {"consumer_index": 0, "num_consumers": 2, "job_name": None},
        {"consumer_index": 0, "num_consumers": 2, "job_name": ""},
        {"consumer_index": 0, "num_consumers": 2, "finite": "stop"},
        {"consumer_index": 0, "num_consumers": 2, "finite": 1},
        {"consumer_index": 0, "num_consumers": 2, "consumer_timeout": 0},
        {"consumer_index": 0, "num_consumers": 2, "consumer_timeout": "5"},
        {"consumer_index": 0, "num_consumers": 2, "consumer_timeout": float("nan")},
        {"finite": "drop"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("by_id", [False, True])
def test_bad_consumers(options: dict[str, Any], by_id: bool) -> None:
    """A consumer index needs a number of consumers and a job name, and anything out of
    range is an error at the call.
    """
    fixed = {
        "processing_mode": OFF,
        "service": "tcp://127.0.0.1:1",
        "job_name": "job",
        "dispatcher_timeout": 0.2,
    }
    options = {**fixed, **options}
    call = partial(zmqdata.from_dataset_id, dataset_id="x") if by_id else zmqdata.distribute
    with pytest.raises((TypeError, ValueError)):
        call(**options)


@pytest.mark.claim("4.6e", "7.56")
@pytest.mark.parametrize(
    "options", [{"target_workers": "LOCAL"}, {"data_transfer_protocol": "local"}]
)
def test_consumers_need_remote_workers(options: dict[str, Any]) -> None:
    """A coordinated read refuses LOCAL targets."""
    with pytest.raises(InvalidArgumentError, match="Coordinated reads require non-local workers"):
        consumer("tcp://127.0.0.1:1", 0, 2, ENDLESS, **options)


@pytest.mark.claim("2.5c")
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_consumers": 3}, r"[Nn]umber of consumers: <2>; got <3>|num.consumers: <2>; got <3>"),
        ({"num_consumers": None, "consumer_index": None}, "<2>; got <None>"),
        ({"finite": "drop"}, "<None>; got <drop>"),
    ],
)
def test_one_job_has_one_number_of_consumers(
    make_cluster: Callable[..., zmqdata.LocalCluster], options: dict[str, Any], text: str
) -> None:
    """A job refuses another number of consumers or another rule for the end, and names
    both sides.
    """
    cluster = make_cluster(1)
    readers = consumers(cluster, 2)
    steps(readers, 2)
    both = {"job_name": "job", "consumer_index": 1, "num_consumers": 2}
    with pytest.raises(InvalidArgumentError, match=text):
        next(iter(read(ENDLESS, cluster, OFF, **{**both, **options})))


# --- the end


@pytest.mark.claim("3.4a", "7.13")
def test_known_finite_input_is_refused(cluster: zmqdata.LocalCluster, job: str) -> None:
    """A coordinated read of finite cardinality is refused in tf.data's words."""
    text = "Round robin reads require that the input dataset has infinite cardinality, but the dataset has card"
    with pytest.raises(FailedPreconditionError, match=text):
        next(consumer(cluster, 0, 2, Dataset.range(100), job_name=job))


@pytest.mark.claim("3.4d", "7.12")
@pytest.mark.core
def test_input_that_ends_is_an_error_for_all(cluster: zmqdata.LocalCluster, job: str) -> None:
    """Every consumer gets the same error if the input turns out to end."""
    for outcome in drained(consumers(cluster, 2, counted(11), job_name=job)):
        assert isinstance(outcome, FailedPreconditionError)
        assert "Encountered end of sequence on a round-robin read iterator" in str(outcome)


@pytest.mark.claim("3.4f")
@pytest.mark.core
@pytest.mark.parametrize("finite", ["drop", "pad"])
@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_all_get_a_round_or_none_does(
    cluster: zmqdata.LocalCluster, job: str, finite: str, mode: Any
) -> None:
    """A rule for finite input gives all consumers equally many steps, and at most the
    last rounds are missing.
    """
    outcomes = drained(consumers(cluster, 3, counted(50), mode, finite=finite, job_name=job))
    assert all(isinstance(one, list) for one in outcomes), outcomes
    assert len({len(one) for one in outcomes if isinstance(one, list)}) == 1
    given = [x for one in outcomes if isinstance(one, list) for x in one]
    copies = 2 if mode is OFF else 1
    assert set(given) <= set(range(50))
    if finite == "drop":
        assert 50 * copies - 4 <= len(given) <= 50 * copies
    else:
        assert set(given) == set(range(50))


@pytest.mark.claim("3.4f", "2.6f")
@pytest.mark.parametrize("finite", ["drop", "pad"])
def test_consumers_of_nothing(
    make_cluster: Callable[..., zmqdata.LocalCluster], finite: str
) -> None:
    """An empty input ends for all consumers at once, and an input smaller than a round
    follows the rule.
    """
    cluster = make_cluster(1)
    assert drained(consumers(cluster, 3, counted(0), finite=finite)) == [[], [], []]
    small = drained(consumers(cluster, 3, counted(2), finite=finite, job_name="small"))
    assert [len(one) for one in small if isinstance(one, list)] == (
        [0] * 3 if finite == "drop" else [1] * 3
    )


@pytest.mark.claim("4.4g")
def test_a_second_iteration_is_in_step(cluster: zmqdata.LocalCluster, job: str) -> None:
    """The second iterators of all consumers read the second iteration in step."""
    options = {"job_name": job, "num_consumers": 2, "finite": "drop"}
    datasets = [
        read(counted(40), cluster, DYNAMIC, consumer_index=index, **options) for index in range(2)
    ]
    for _ in range(2):
        outcomes = drained([iter(ds) for ds in datasets])
        assert all(isinstance(one, list) for one in outcomes), outcomes
        given = [x for one in outcomes if isinstance(one, list) for x in one]
        assert len(given) == len(set(given)) >= 38


# --- members that join and leave


@pytest.mark.claim("2.8a", "4.4h")
def test_a_worker_that_joins(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """All consumers read a new worker from the same step on."""
    cluster = make_cluster(1)
    readers = consumers(cluster, 2)
    taken = steps(readers, 10)
    cluster.add_worker()

    def both_read() -> bool:
        taken.extend(steps(readers, 50))
        return len(rounds(taken)) == 2

    await_condition(both_read, 20, what="the second worker to be read")
    assert all(in_a_row(one) for one in rounds(taken).values())


@pytest.mark.claim("2.7a", "2.8b", "4.4h")
def test_a_worker_that_is_lost(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """Another worker makes the rounds of a lost worker, so that no step is missing and
    consumers stay in step.
    """
    cluster = make_cluster(2)
    readers = consumers(cluster, 2)
    taken = steps(readers, 20)
    cluster.workers[0].kill()
    taken += steps(readers, 200)
    numbers = [x for step in taken for x, _ in step]
    assert len(taken) == 220
    assert sorted(numbers) == sorted([*range(220)] * 2)
    for step in taken:
        assert len({who for _, who in step}) <= 2
        assert abs(step[0][0] - step[1][0]) == 1


@pytest.mark.claim("2.8b", "3.4g")
def test_all_workers_are_started_again(make_cluster: Callable[..., zmqdata.LocalCluster]) -> None:
    """If the only worker is lost, the consumers wait and resume in step with the next
    worker.
    """
    cluster = make_cluster(1)
    readers = consumers(cluster, 2)
    taken = steps(readers, 20)
    cluster.workers[0].kill()
    await_condition(lambda: not status(cluster)["workers"], what="the dispatcher to notice")
    cluster.add_worker()
    taken += steps(readers, 100)
    assert [x for step in taken for x, _ in step] == list(range(240))


@pytest.mark.claim("4.4i", "7.11")
@pytest.mark.core
def test_nobody_reads_as_a_living_consumer(cluster: zmqdata.LocalCluster, job: str) -> None:
    """A second reader with the index of a living consumer is refused with the round
    that this consumer has reached.
    """
    readers = consumers(cluster, 2, job_name=job)
    steps(readers, 20)
    with pytest.raises(FailedPreconditionError, match="current round has already reached"):
        next(consumer(cluster, 1, 2, ENDLESS, job_name=job))
    assert len(steps(readers, 20)) == 20


@pytest.mark.claim("4.4j")
@pytest.mark.core
def test_a_successor_resumes(cluster: zmqdata.LocalCluster, job: str) -> None:
    """The successor of a consumer that has left resumes at its step."""
    readers = consumers(cluster, 2, job_name=job)
    taken = steps(readers, 30)
    readers[1].close()
    readers[1] = consumer(cluster, 1, 2, ENDLESS, job_name=job)
    taken += steps(readers, 30)
    assert all(in_a_row(one) for one in rounds(taken).values())


@pytest.mark.claim("4.4k")
def test_a_consumer_that_never_comes(cluster: zmqdata.LocalCluster, job: str) -> None:
    """A consumer gets an error after another consumer was absent for
    ``consumer_timeout``.
    """
    first, second = consumers(cluster, 2, consumer_timeout=5.0, job_name=job)
    steps([first, second], 5)
    second.close()
    with pytest.raises(DataServiceError):
        together(lambda: [None for _ in first])
