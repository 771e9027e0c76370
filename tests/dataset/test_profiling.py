"""Tests of ``zmqdata.dataset.profiling``."""

from __future__ import annotations

import re
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from zmqdata import LocalCluster, distribute
from zmqdata.dataset import Dataset, profiling
from zmqdata.elements.specs import AUTOTUNE
from zmqdata.errors import PipelineError
from zmqdata.testing import check_iterator
from zmqdata.testing.clock import Clock

PAUSE = threading.Event()


def slowly(x: Any) -> Any:
    PAUSE.wait(0.005)
    return x


@pytest.mark.parametrize(
    ("dataset", "bottleneck", "advice"),
    [
        (Dataset.range(50).map(slowly).batch(2), "map(slowly)", "num_parallel_calls=AUTOTUNE"),
        (
            Dataset.range(50).map(slowly, num_parallel_calls=2).batch(2).prefetch(2),
            "map(slowly)",
            "keeps the threads busy",
        ),
        (Dataset.range(50).map(slowly).prefetch(AUTOTUNE), "map(slowly)", "num_parallel_calls"),
        (
            Dataset.from_generator(lambda: map(slowly, range(30))).take(20),
            "from_generator(",
            "prefetch(AUTOTUNE)",
        ),
        (
            Dataset.range(9).flat_map(lambda n: Dataset.range(9).map(slowly)),
            "map(slowly)",
            "interleave(",
        ),
        (
            Dataset.range(20).flat_map(lambda n: Dataset.range(slowly(n) * 0 + 3)),
            "flat_map(",
            "interleave(",
        ),
        (
            Dataset.range(9).interleave(
                lambda n: Dataset.range(9).map(slowly), num_parallel_calls=2
            ),
            "map(slowly)",
            "num_parallel_calls",
        ),
        (
            Dataset.range(30).interleave(
                lambda n: Dataset.range(slowly(n) * 0 + 1), num_parallel_calls=2
            ),
            "interleave(",
            "raise cycle_length",
        ),
        (
            Dataset.range(50).batch(2, collate_fn=slowly),
            "batch(collate_fn=slowly)",
            "num_parallel_calls=AUTOTUNE. If it is Python: distribute()",
        ),
        (
            Dataset.range(50).batch(2, num_parallel_calls=2, collate_fn=slowly),
            "batch(collate_fn=slowly)",
            "keeps the threads busy",
        ),
        (Dataset.range(50).filter(lambda x: slowly(x) > 9), "filter(", "filter before"),
    ],
)
def test_the_slow_operation_is_found(
    dataset: Dataset, bottleneck: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The profile names the slowest operation, even on threads, with a remedy. It is
    printed and returned.
    """
    found = dataset.profile()
    assert found.bottleneck.label.startswith(bottleneck)
    assert advice in found.advice
    assert found.elements == sum(1 for _ in dataset)
    printed = capsys.readouterr().out
    unit = "elements" if dataset.node.batch_rows is None else "batches"
    assert printed.startswith(f"{found.elements} {unit} in ")
    assert f"bottleneck: {bottleneck}" in printed


def test_elements_are_named_by_what_they_are() -> None:
    """The profile counts batches from ``batch`` on, and elements before it."""
    text = str(Dataset.range(3).map(slowly).batch(3).profile())
    assert text.startswith("1 batch in ")
    assert re.search(r"batch\(3\).*, 1 batch, ", text)
    assert re.search(r"map\(slowly\).*, 3 elements, ", text)


def test_it_ends_in_time() -> None:
    """An endless pipeline is run for the given time."""
    found = Dataset.range(3).repeat().profile(0.05)
    assert 0.05 <= found.seconds < 10
    assert found.elements > 0


def test_each_operation_is_counted() -> None:
    """The profile lists elements and time of each operation, the last first. Rows taken
    together count as rows.
    """
    found = Dataset.from_tensor_slices(np.zeros(100)).batch(10).map(slowly).profile()
    assert [(one.label.split("(")[0], one.elements) for one in found.operations] == [
        ("map", 10),
        ("batch", 10),
        ("from_tensor_slices", 100),
    ]
    assert found.operations[0].seconds > 2 * found.operations[1].seconds
    empty = Dataset.range(0).profile(0.0)
    assert (empty.elements, empty.operations[0].elements) == (0, 0)


def test_nested_datasets_are_counted_on_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    """The profile lists each operation of nested datasets, summed over all of them."""

    def rows(n: Any) -> Dataset:
        return Dataset.range(int(n)).map(slowly).flat_map(lambda x: Dataset.range(2))

    found = Dataset.range(5).flat_map(rows).profile()
    assert [(one.label.split("(")[0], one.elements) for one in found.operations] == [
        ("flat_map", 20),
        ("range", 5),
        ("flat_map", 20),
        ("map", 10),
        ("range", 10),
        ("range", 20),
    ]
    assert found.operations[3].seconds >= 10 * 0.005
    assert sum(one.seconds for one in found.operations) <= found.seconds
    assert capsys.readouterr().out.count("in the datasets that flat_map(") == 2
    groups = (
        Dataset.range(4)
        .group_by_window(lambda x: int(x) % 2, lambda key, group: group.batch(2), 2)
        .profile()
    )
    assert [one.label.split("(")[0] for one in groups.operations] == [
        "group_by_window",
        "range",
        "batch",
        "elements",
    ]


def test_a_function_that_makes_no_dataset_is_told() -> None:
    """The profile raises the same error as a run without clocks."""
    with pytest.raises(PipelineError, match="must return a Dataset, it returned a int64"):
        Dataset.range(3).flat_map(lambda x: x).profile()


def test_even_loads_have_no_culprit(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no operation takes a third of the time, the advice concerns the whole
    pipeline.
    """
    clock = Clock()
    monkeypatch.setattr(profiling, "time", SimpleNamespace(perf_counter=lambda: clock.now))

    def evenly(x: Any) -> Any:
        clock.advance(0.005)
        return x

    dataset = Dataset.range(20)
    for _ in range(9):
        dataset = dataset.map(evenly)
    assert "No operation stands out" in dataset.profile().advice


def test_the_clocks_change_nothing() -> None:
    """The pipeline with clocks yields the same elements and can be restored."""
    from zmqdata.dataset.profiling import _clocked

    dataset = Dataset.range(9).map(int).batch(2)
    assert check_iterator(_clocked(dataset.node, {}, {})) == check_iterator(dataset)


def test_a_profile_tells_what_the_workers_do(capsys: pytest.CaptureFixture[str]) -> None:
    """The profile of a distributed dataset names the function that its workers run, and
    that it waits, also if it is read to its end, and what to move to them.
    """
    with LocalCluster(1, in_process=True) as cluster:
        on_workers = distribute("distributed_epoch", cluster)
        found = Dataset.range(240).map(slowly).batch(4).apply(on_workers).profile()
        assert found.elements == 60
        assert found.bottleneck.label.startswith("distribute(")
        assert found.verdict == "INPUT-BOUND"
        assert found.advice.startswith("map(slowly) at test_profiling.py")
        _, title, rows = capsys.readouterr().out.partition("on the workers of distribute(")
        assert title
        assert re.search(r"% map\(slowly\) at .* waits \(\d+ % processor\)", rows)
        behind = Dataset.range(120).apply(on_workers).map(slowly).profile(60.0)
    assert behind.bottleneck.label.startswith("map(slowly)")
    assert "Move it before distribute()" in behind.advice


def test_headspace_tells_how_fast_training_could_be() -> None:
    """The loop takes elements from memory as fast as its step allows, however slow the
    pipeline is.
    """
    found = Dataset.range(50).map(slowly).profile(0.5, step=lambda element: None, headspace=True)
    assert found.headspace is not None
    assert found.headspace > 2 * found.elements / found.seconds
    assert "so much faster could training be" in found.text
    idle = Dataset.range(3).profile(0.2, headspace=True)
    assert "pass step=" in idle.text
