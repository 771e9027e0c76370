"""Test pipelines that run in the client because shipping their elements costs more than
making them.
"""

from __future__ import annotations

import pickle
import sys
import threading
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from zmqdata import CrossTrainerCache, Dataset, ShardingPolicy, distribute
from zmqdata.client.auto_placement import AutoPlacement, Placing, shipping_cost
from zmqdata.client.distribute import DataServiceDataset
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.testing.clock import Clock

NOBODY = "tcp://127.0.0.1:1"


def placed(dataset: Dataset) -> Dataset:
    """Return the dataset with a stopped clock, by which nothing is costly however busy
    the machine is.
    """
    distributed = dataset.apply(distribute("distributed_epoch", NOBODY, placement="auto"))
    return Dataset(
        replace(distributed.node, placing=Placing(dataset.node, lambda: 0.0, patience=60.0))
    )


def cheap(count: int = 5000) -> Dataset:
    return Dataset.range(count).map(lambda x: x + 1)


def decided(dataset: Dataset, clock: Clock) -> AutoPlacement:
    return Placing(dataset.node, lambda: clock.now, patience=60.0).decide()


def test_a_cheap_pipeline_needs_no_service() -> None:
    """A cheap pipeline gives all elements in order without any dispatcher at its
    address.
    """
    iterator = iter(placed(cheap()))
    assert [int(x) for x in iterator] == list(range(1, 5001))
    assert iterator.placement.local


def test_a_costly_pipeline_is_left_to_workers() -> None:
    """A pipeline whose elements cost a millisecond each, by the clock, is left to the
    workers.
    """
    clock = Clock()

    def slowly(x: int) -> int:
        clock.advance(0.001)
        return x

    found = decided(Dataset.range(100_000).map(slowly), clock)
    assert not found.local
    assert found.cost == pytest.approx(0.001)


def test_a_pipeline_that_costs_nothing_runs_here() -> None:
    """A pipeline without cost on the clock runs in the client, as shipping gains
    nothing.
    """
    assert decided(cheap(), Clock()).local


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_pipeline_that_ends_at_once_runs_here(count: int) -> None:
    """A pipeline that ends at once runs in the client, as no element is worth a job."""
    assert decided(cheap(count), Clock()).local


def test_a_first_element_is_not_waited_for() -> None:
    """A pipeline with a slow start is left to the workers, and its trial ends with the
    first element.
    """
    release, ended = threading.Event(), threading.Event()

    def late(x: int) -> int:
        release.wait(30)
        ended.set()
        return x

    found = Placing(Dataset.range(3).map(late).node).decide()
    assert found == AutoPlacement(False)
    assert "took longer than 100 ms" in str(found)
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


def test_a_late_trial_makes_nothing_more() -> None:
    """A trial that exceeds its patience finishes its present element without packing
    it, and makes no further element.
    """
    release, packed, trial = threading.Event(), threading.Event(), threading.Event()
    calls: list[int] = []

    class Watched:
        def __reduce__(self) -> Any:
            packed.set()
            return Watched, ()

    def late(x: int) -> Watched:
        calls.append(x)
        trial.thread = threading.current_thread()  # type: ignore[attr-defined]
        trial.set()
        release.wait(30)
        return Watched()

    assert not Placing(Dataset.range(3).map(late).node, patience=0.0).decide().local
    assert trial.wait(10)
    release.set()
    trial.thread.join(10)  # type: ignore[attr-defined]
    assert not trial.thread.is_alive()  # type: ignore[attr-defined]
    assert (len(calls), packed.is_set()) == (1, False)


def test_of_large_elements_one_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial makes two large elements, as the first costs more than the next, and
    packs a single element to measure shipping.
    """
    made, packed = [], []

    def large(x: int) -> np.ndarray[Any, Any]:
        made.append(x)
        return np.zeros(9 << 20, np.uint8)

    def counted(elements: list[Any], *others: Any) -> float:
        packed.append(len(elements))
        return shipping_cost(elements, *others)

    monkeypatch.setattr("zmqdata.client.auto_placement.shipping_cost", counted)
    assert decided(Dataset.range(9).map(large), Clock()).local
    assert (len(made), packed) == (2, [1])


def test_what_ends_its_thread_is_said() -> None:
    """The placement reports sys.exit() in a pipeline as a failure of the trial, not as
    a slow start.
    """
    found = decided(Dataset.range(3).map(lambda x: sys.exit("enough")), Clock())
    assert "the trial in this process failed (SystemExit: enough)" in str(found)


def test_what_fails_here_is_left_to_workers() -> None:
    """A pipeline that fails in the client is left to the workers, as they may have the
    files and modules.
    """

    def fail(x: int) -> int:
        raise FileNotFoundError("/data/only-there")

    found = decided(Dataset.range(3).map(fail), Clock())
    assert found == AutoPlacement(False)
    assert "the trial in this process failed" in str(found)
    assert "FileNotFoundError: /data/only-there" in str(found)


def test_what_does_not_travel_is_left_to_workers() -> None:
    """A pipeline with unpicklable elements is left to the workers, which report the
    error.
    """
    assert decided(Dataset.range(3).map(lambda x: threading.Lock()), Clock()) == AutoPlacement(
        False
    )


def test_a_pipeline_is_tried_once() -> None:
    """The second epoch runs at the place of the first epoch without another trial."""
    calls: list[int] = []

    def count(x: int) -> int:
        calls.append(1)
        return x

    dataset = placed(Dataset.range(10).map(count))
    for _ in range(3):
        assert len(list(dataset)) == 10
    assert len(calls) == 40


def test_it_goes_on_here_from_a_state() -> None:
    """An iterator in the client resumes from its state with the same seeds."""
    dataset = placed(cheap(1000).shuffle(100))
    first = iter(dataset)
    before = [int(next(first)) for _ in range(300)]
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(first.state_dict()))
    expected = [int(x) for x in first]
    second = iter(dataset)
    second.load_state_dict(state)
    assert [int(x) for x in second] == expected
    assert sorted(before + expected) == list(range(1, 1001))


def test_a_state_of_something_else_is_refused() -> None:
    """Loading a state without a local position raises an error."""
    iterator = iter(placed(cheap()))
    state = {**iterator.state_dict(), "position": 7}
    with pytest.raises(InvalidArgumentError, match="placement='auto'"):
        iterator.load_state_dict(state)


def test_there_is_nothing_to_audit_here() -> None:
    """An audit of a local iterator raises an error with the reason, as it has no
    job.
    """
    with pytest.raises(FailedPreconditionError, match="produced in this process"):
        iter(placed(cheap())).audit()


def test_an_iterator_that_is_closed_has_ended() -> None:
    """A closed iterator has ended, also if it runs in the client."""
    iterator = iter(placed(cheap()))
    next(iterator)
    iterator.close()
    assert list(iterator) == []


def test_a_copy_decides_for_itself() -> None:
    """A copy of a dataset in another process makes its own decision, as its machine may
    differ.
    """
    node = placed(Dataset.range(5)).node
    assert isinstance(node, DataServiceDataset)
    assert node.placing is not None
    node.placing.decide()
    copy = pickle.loads(pickle.dumps(node))
    assert copy.placing is not None
    assert copy.placing is not node.placing


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"job_name": "training"}, "job_name needs the service"),
        ({"job_name": "a", "consumer_index": 0, "num_consumers": 2}, "num_consumers"),
        ({"deterministic": True}, "deterministic=True needs"),
        ({"job_name": "a", "cross_trainer_cache": CrossTrainerCache("me")}, "cross_trainer_cache"),
        ({"target_workers": "LOCAL"}, "target_workers='LOCAL'"),
        ({"on_poison": "skip"}, "on_poison='skip'"),
        ({"task_timeout": 5.0}, "task_timeout"),
        ({"processing_mode": "parallel_epochs"}, "ShardingPolicy.OFF"),
        ({"processing_mode": ShardingPolicy.FILE}, "ShardingPolicy.FILE"),
    ],
)
def test_what_only_the_service_can_keep_is_refused(options: dict[str, Any], text: str) -> None:
    """Automatic placement refuses promises about several readers, deaths and copies, as
    the pipeline may run without workers.
    """
    with pytest.raises(InvalidArgumentError, match=text):
        distribute(
            **{
                "processing_mode": "distributed_epoch",
                "service": NOBODY,
                "placement": "auto",
                **options,
            }
        )


@pytest.mark.parametrize("placement", ["local", None, True, "AUTO", np.array(["auto", "auto"])])
def test_there_are_two_placements(placement: Any) -> None:
    """Any other placement raises an error at the call."""
    with pytest.raises(ValueError, match="`placement` must be 'service' or 'auto'"):
        distribute("distributed_epoch", NOBODY, placement=placement)
