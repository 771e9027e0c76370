"""Test spans of OpenTelemetry: a read, and the attempts of its tasks as children."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.errors import DataServiceError
from zmqdata.testing.cluster import await_condition

REASON = "needs opentelemetry-sdk, of the extra looking-tests"
trace = pytest.importorskip("opentelemetry.trace", reason=REASON)
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=REASON)
export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=REASON)
memory = pytest.importorskip(
    "opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=REASON
)

EXPORTER = memory.InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def provider() -> Any:
    """The provider of this process, which can be set once."""
    made = sdk.TracerProvider()
    made.add_span_processor(export.SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(made)
    return made


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZMQDATA_OTEL", "1")
    EXPORTER.clear()


def finished(count: int) -> list[Any]:
    """Wait for this number of spans, and return them."""
    await_condition(lambda: len(EXPORTER.get_finished_spans()) >= count, what=f"{count} spans")
    found = list(EXPORTER.get_finished_spans())
    assert len(found) == count
    return found


def read(cluster: LocalCluster, dataset: Dataset, **options: Any) -> Dataset:
    return dataset.apply(distribute("distributed_epoch", cluster.target, "train", **options))


def test_attempts_are_children_of_their_read() -> None:
    """Each repetition has a span, a child of the program's, and a child for each task;
    they say what was made and how long it took.
    """
    with LocalCluster(2, in_process=True, otel=True) as cluster:
        dataset = read(cluster, Dataset.range(100).batch(5))
        with trace.get_tracer("test").start_as_current_span("program") as program:
            counts = [sum(1 for _ in dataset) for _ in range(2)]
        spans = finished(2 + 2 * 2 + 1)
    reads = [one for one in spans if one.name == "zmqdata read of train"]
    tasks = [one for one in spans if one.name == "zmqdata task of train"]
    assert [one.attributes["zmqdata.repetition"] for one in reads] == [0, 1]
    assert {one.parent.span_id for one in reads} == {program.get_span_context().span_id}
    assert {one.context.trace_id for one in spans} == {program.get_span_context().trace_id}
    for number, one in enumerate(reads):
        children = [task for task in tasks if task.parent.span_id == one.context.span_id]
        assert len(children) == 2
        assert sum(task.attributes["zmqdata.elements"] for task in children) == counts[number]
        assert one.attributes["zmqdata.elements"] == counts[number]
        for task in children:
            said = {name.removeprefix("zmqdata."): x for name, x in task.attributes.items()}
            assert (said["job"], said["attempt"], said["repetition"]) == ("train", 1, number)
            parts = ("making", "waiting_for_readers", "waiting_for_splits")
            seconds = sum(said[f"{part}_seconds"] for part in parts)
            assert 0 < seconds <= (task.end_time - task.start_time) / 1e9 + 0.01


class Unreadable:
    """An object that no other process can make."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


def test_an_iterator_that_is_dropped_ends_its_span() -> None:
    """A read ends with its iterator, closed or not."""
    with LocalCluster(1, in_process=True, otel=True) as cluster:
        iterator = iter(read(cluster, Dataset.range(1_000_000).batch(5)))
        next(iterator)
        assert EXPORTER.get_finished_spans() == ()
        del iterator
        [only] = finished(1)
    assert only.name == "zmqdata read of train"
    # The task waits for another reader, and ends with its worker.
    assert {one.name for one in finished(2)} == {only.name, "zmqdata task of train"}


def test_the_switch_is_of_each_side() -> None:
    """A worker without the switch makes no span, and one with it makes spans without a
    parent for a client without it.
    """
    with LocalCluster(1, in_process=True) as cluster:
        assert sum(1 for _ in read(cluster, Dataset.range(10))) == 10
        [only] = finished(1)
    assert only.name == "zmqdata read of train"
    EXPORTER.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ZMQDATA_OTEL")
        with LocalCluster(1, in_process=True, otel=True) as cluster:
            assert sum(1 for _ in read(cluster, Dataset.range(10))) == 10
            [only] = finished(1)
    assert (only.name, only.parent) == ("zmqdata task of train", None)


def test_a_failed_attempt_says_so() -> None:
    """The span of an attempt that cannot go on has the error."""
    with LocalCluster(1, in_process=True, otel=True) as cluster:
        captured = Unreadable()
        dataset = read(cluster, Dataset.range(10).map(lambda x: (x, captured)[0]))
        with pytest.raises(DataServiceError):
            list(dataset)
        spans = finished(2)
    [task] = [one for one in spans if one.name == "zmqdata task of train"]
    assert not task.status.is_ok
    assert [event.name for event in task.events] == ["exception"]
