"""Facts about training that resumes from a saved state, on real sockets and in threads.
``simulated/test_resuming.py`` states what a state promises.
"""

from __future__ import annotations

import threading
from base64 import b64decode
from collections import Counter
from typing import Any

import msgspec
import numpy as np

import zmqdata
from zmqdata import Dataset, LocalCluster
from zmqdata import messages as m
from zmqdata.testing.cluster import await_condition


def taken(iterator: Any, count: int) -> list[Any]:
    return [np.asarray(next(iterator)).tolist() for _ in range(count)]


def rest(iterator: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in iterator]


def numbers(elements: list[Any]) -> Counter[int]:
    flat = [
        one for element in elements for one in (element if isinstance(element, list) else [element])
    ]
    return Counter(flat)


def through_msgpack(state: dict[str, Any]) -> dict[str, Any]:
    """Encode and decode a state as a training script that saves it to disk."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(state))


def stopped(dataset: Dataset, count: int) -> tuple[list[Any], dict[str, Any]]:
    iterator = iter(dataset)
    before = taken(iterator, count)
    state = through_msgpack(iterator.state_dict())
    iterator.close()
    return before, state


def gone_on(dataset: Dataset, state: dict[str, Any]) -> list[Any]:
    iterator = iter(dataset)
    iterator.load_state_dict(state)
    return rest(iterator)


def test_a_registered_dataset_goes_on() -> None:
    """A client that reads by id alone resumes by id, from a registration of the same
    pipeline with another cluster.
    """

    def dataset(cluster: LocalCluster) -> Dataset:
        plain = Dataset.range(300).map(lambda x: x + 1).shuffle(40)
        dataset_id = zmqdata.register_dataset(cluster.target, plain, dataset_id="numbers")
        return zmqdata.from_dataset_id(
            "distributed_epoch", cluster.target, dataset_id, job_name="by id"
        )

    with LocalCluster(num_workers=2, in_process=True) as first:
        before, state = stopped(dataset(first), 111)
    with LocalCluster(num_workers=1, in_process=True) as second:
        after = gone_on(dataset(second), state)
    assert numbers(before) + numbers(after) == Counter(range(1, 301))


def test_it_goes_on_again_and_again() -> None:
    """A job that resumes on five clusters in turn, with an operation that holds
    elements, loses and repeats nothing.
    """

    def dataset(cluster: LocalCluster) -> Dataset:
        plain = Dataset.range(1000).map(lambda x: x * 2)
        return (
            plain.apply(zmqdata.distribute("distributed_epoch", cluster.target))
            .shuffle(60)
            .prefetch(2)
        )

    had: list[Any] = []
    state: dict[str, Any] | None = None
    for workers in (2, 3, 1, 2):
        with LocalCluster(num_workers=workers, in_process=True) as cluster:
            iterator = iter(dataset(cluster))
            if state is not None:
                iterator.load_state_dict(state)
            had += taken(iterator, 230)
            state = through_msgpack(iterator.state_dict())
            iterator.close()
    with LocalCluster(num_workers=2, in_process=True) as cluster:
        had += gone_on(dataset(cluster), state or {})
    assert numbers(had) == Counter(range(0, 2000, 2))


def test_consumers_in_step_go_on_together() -> None:
    """Consumers that each load their own state together get everything, and each step
    comes from a single round.
    """

    def dataset(cluster: LocalCluster, index: int) -> Dataset:
        plain = Dataset.range(240).shuffle(20).batch(2)
        return plain.apply(
            zmqdata.distribute(
                "distributed_epoch",
                cluster.target,
                job_name="step",
                consumer_index=index,
                num_consumers=2,
                finite="drop",
                consumer_timeout=30.0,
            )
        )

    with LocalCluster(num_workers=2, in_process=True) as first:
        iterators = [iter(dataset(first, index)) for index in range(2)]
        before = [one for _ in range(20) for iterator in iterators for one in taken(iterator, 1)]
        states = [through_msgpack(iterator.state_dict()) for iterator in iterators]
        for iterator in iterators:
            iterator.close()
    with LocalCluster(num_workers=3, in_process=True) as second:
        after = in_step([dataset(second, index) for index in range(2)], states)
    found, everything = numbers(before) + numbers(after), Counter(range(240))
    assert not found - everything
    assert sum((everything - found).values()) <= 5 * 2


def in_step(datasets: list[Dataset], states: list[dict[str, Any]]) -> list[Any]:
    """Return the elements of consumers that each read in a thread of their own."""
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda one=one, state=state: found.extend(gone_on(one, state)))
        for one, state in zip(datasets, states, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def test_what_a_reader_had_that_has_left_does_not_come_again() -> None:
    """The state of a reader records the elements of another that has left, as soon as
    it knows of that, so they do not come again.
    """

    def dataset(cluster: LocalCluster) -> Dataset:
        options = {"job_name": "shared", "max_outstanding_requests": 2}
        return Dataset.range(600).apply(
            zmqdata.distribute("distributed_epoch", cluster.target, **options)
        )

    with LocalCluster(num_workers=2, in_process=True, heartbeat_interval_ms=200) as cluster:
        one, other = iter(dataset(cluster)), iter(dataset(cluster))
        had = [taken(each, 3) for each in (one, other)]
        for each, elements in zip((one, other), had, strict=True):
            elements += taken(each, 60)
        one.close()
        await_condition(
            lambda: len(m.decode_checkpoint(b64decode(other.state_dict()["position"])).parts) == 1,
            what="the other one knows it",
        )
        state = through_msgpack(other.state_dict())
        other.close()
    with LocalCluster(num_workers=1, in_process=True) as cluster:
        after = gone_on(dataset(cluster), state)
    assert numbers(had[0]) + numbers(had[1]) + numbers(after) == Counter(range(600))
