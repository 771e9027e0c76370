"""Tests of ``zmqdata.iterators.inference``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.iterators.inference import infer_spec
from zmqdata.nodes.base import Node, known_spec
from zmqdata.operations.batch import Batch
from zmqdata.operations.grouping import GroupByWindow
from zmqdata.operations.limits import Enumerate
from zmqdata.operations.mapping import Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.selections import Shard
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import Range

INT = TensorSpec((), int)


@dataclass
class Nested:
    """An object with a node."""

    node: Node


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def mapped(function: Any, node: Node | None = None) -> Node:
    return Map(inputs=(node or count(3),), function=function)


def test_functions_are_run_on_one_element() -> None:
    """The spec after a function is that of its first result, and later specs follow by
    rules.
    """
    calls: list[int] = []

    def pair(x: Any) -> Any:
        calls.append(int(x))
        return {"x": np.zeros((2, 3), np.float32)}

    node = Batch(inputs=(Shuffle(inputs=(mapped(pair),), buffer_size=2),), batch_size=2)
    assert known_spec(node) is None
    assert infer_spec(node) == {"x": TensorSpec((None, 2, 3), np.float32)}
    assert calls == [0]


def test_buffers_are_neither_filled_nor_threads_started() -> None:
    """The trial run bypasses shuffles and prefetches."""
    made: list[int] = []
    source = mapped(lambda x: made.append(int(x)) or x, count(100))
    ahead = Prefetch(inputs=(Shuffle(inputs=(source,), buffer_size=None),), buffer_size=50)
    before = threading.active_count()
    assert infer_spec(mapped(lambda x: float(x), ahead)) == TensorSpec((), np.float64)
    assert made == [0]
    assert threading.active_count() == before


def test_nested_datasets_tell_by_their_own_rules() -> None:
    """The spec of flat_map is that of the first nested dataset, with lengths that
    vary.
    """
    node = FlatMap(
        inputs=(count(3),), function=lambda x: Nested(Batch(inputs=(count(3),), batch_size=2))
    )
    assert infer_spec(node) == TensorSpec((None,), np.int64)


def test_without_an_element_the_remedy_is_named() -> None:
    """An empty input cannot reveal the result of a function, and the error names the
    remedy.
    """
    with pytest.raises(InvalidArgumentError, match="output_spec="):
        infer_spec(mapped(str, count(0)))


def test_a_failing_function_is_a_failure_of_its_node() -> None:
    """The trial run raises the same error as the run."""
    with pytest.raises(PipelineError, match=r"map\(<lambda>\)"):
        infer_spec(mapped(lambda x: 1 // 0))


def test_rules_alone_run_nothing() -> None:
    """A spec that is given or follows from rules is known without running anything."""
    given = Map(inputs=(count(0),), function=str, output_spec=TensorSpec((), str))
    assert known_spec(Enumerate(inputs=(given,))) == (
        TensorSpec((), np.int64),
        TensorSpec((), str),
    )


def test_the_spec_of_groups_is_that_of_what_a_function_makes() -> None:
    """group_by_window passes its function a group of a single element. Operations that
    only the service can run are bypassed.
    """
    batched = GroupByWindow(
        inputs=(Range(start=0, stop=3),),
        key_function=int,
        function=lambda key, dataset: dataset.batch(2),
        window_size=2,
        wrap=Dataset,
    )
    assert infer_spec(batched) == TensorSpec((None,), np.int64)
    hinted = Shard(inputs=(Range(start=0, stop=3),), num_shards=-1, index=-1)
    assert infer_spec(Map(inputs=(hinted,), function=float)) == TensorSpec((), np.float64)


def nothing(*x: Any) -> Iterator[int]:
    yield from ()


@pytest.mark.parametrize(
    ("dataset", "label", "remedy"),
    [
        (
            Dataset.from_generator(nothing),
            "from_generator",
            "from_generator(..., output_signature=",
        ),
        (Dataset.from_iterable([]), "from_iterable", "append a map()"),
        (Dataset.range(2).flat_map(nothing), "flat_map", "append a map()"),
        (Dataset.range(2).interleave(nothing), "interleave", "append a map()"),
        (Dataset.range(0).map(int), "map", "map(..., output_spec="),
        (Dataset.range(0).random_map(max), "random_map", "random_map(..., output_spec="),
        (Dataset.range(0).map_batches(len, 2), "map_batches", "map_batches(..., output_spec="),
        (Dataset.range(0).scan(0, divmod), "scan", "append a map()"),
    ],
)
def test_a_spec_without_elements_has_a_remedy(dataset: Dataset, label: str, remedy: str) -> None:
    """The error names an argument that the operation has, or another operation."""
    with pytest.raises(InvalidArgumentError) as raised:
        dataset.element_spec  # noqa: B018
    assert str(raised.value).startswith(f"The element_spec of {label}(")
    assert remedy in str(raised.value)


def test_the_remedy_for_operations_without_a_spec_works() -> None:
    """A map with a declared spec states it for a dataset without elements."""
    dataset = Dataset.range(2).flat_map(nothing)
    assert dataset.map(lambda x: x, output_spec=INT).element_spec == INT


@pytest.mark.parametrize(
    ("windows", "function", "spec"),
    [
        (Dataset.range(0).window(2), lambda w: w.batch(2), TensorSpec((None,), int)),
        (
            Dataset.range(5).map(float).window(9, drop_remainder=True),
            lambda w: w.batch(9, drop_remainder=True),
            TensorSpec((9,), float),
        ),
        (
            Dataset.from_tensor_slices({"a": [1, 2], "b": [[1.0], [2.0]]}).repeat(0).window(2),
            lambda w: Dataset.zip(w["a"].batch(2), w["b"].batch(2)),
            (TensorSpec((None,), int), TensorSpec((None, 1), float)),
        ),
        (
            Dataset.range(9).filter(lambda x: x > 9).window(2).map(lambda w: w.batch(2)),
            lambda batches: batches,
            TensorSpec((None,), int),
        ),
        (Dataset.range(300).window(2), lambda w: w.skip(2).batch(2), TensorSpec((None,), int)),
    ],
)
def test_functions_of_windows_are_called_without_elements(
    windows: Dataset, function: Any, spec: Any
) -> None:
    """Without windows, or with empty ones only, the spec is that of what the function
    makes of empty windows: tf.data's spec.
    """
    assert windows.flat_map(function).element_spec == spec
    assert windows.interleave(function).element_spec == spec


def test_a_function_that_needs_an_element_of_a_window_has_a_remedy() -> None:
    """The error is that of any function without an element."""
    windows = Dataset.range(0).window(2)
    with pytest.raises(InvalidArgumentError, match="pass the spec as map"):
        windows.map(lambda window: window.get_single_element()).element_spec  # noqa: B018
