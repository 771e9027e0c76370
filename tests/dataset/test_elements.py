"""Tests of elements of every nesting on their way through whole pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.elements.attrs_classes import Marked
from zmqdata import NoneTensorSpec
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.errors import PipelineError

TEN = Dataset.range(10)
INT = TensorSpec((), np.int64)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_datasets_are_zipped_in_any_structure() -> None:
    """Zipped elements have the nesting of the datasets: attrs classes and namedtuples,
    in each other and in dicts.
    """
    zipped = Dataset.zip({"m": Marked(TEN, Pair(TEN, (TEN,)))})
    assert zipped.element_spec == {"m": Marked(INT, Pair(INT, (INT,)))}
    assert list(zipped)[3] == {"m": Marked(3, Pair(3, (3,)))} == zipped.at(3)
    assert zipped.map(lambda element: element["m"].y.left).element_spec == INT
    for lists in ([TEN, TEN], (TEN, [TEN]), Marked(TEN, [TEN])):
        with pytest.raises(TypeError, match="`list` is not supported and you should use `tuple`"):
            Dataset.zip(lists)


def test_attrs_classes_are_structures_everywhere(tmp_path: Path) -> None:
    """A function gets an instance as one argument, and each operation treats its fields
    as it treats those of a namedtuple.
    """
    slices = Dataset.from_tensor_slices(Marked([1, 2, 3], {"z": [[1], [2], [3]]}))
    assert slices.element_spec == Marked(INT, {"z": TensorSpec((1,), np.int64)})
    assert list(slices.map(lambda marked: int(marked.x))) == [1, 2, 3]
    returned = TEN.map(lambda x: Marked(x, np.full(x % 3, x)))
    assert returned.at(7).y.tolist() == [7]
    for batched in (
        returned.padded_batch(4, padding_values=Marked(None, -1)),
        returned.padded_batch(4, Marked([], [3]), Marked(None, np.int64(-1))),
        returned.ragged_batch(4),
        returned.bucket_by_sequence_length(lambda marked: len(marked.y), [9], [4, 4]),
    ):
        first = next(iter(batched))
        assert type(first) is Marked is type(batched.element_spec)
        assert first.x.tolist() == [0, 1, 2, 3]
    kept = slices.batch(2).cache().unbatch().shuffle(3, seed=1).repeat(2).prefetch(1)
    assert sorted(int(marked.x) for marked in kept) == [1, 1, 2, 2, 3, 3]
    windows = slices.window(2)
    assert windows.element_spec == Marked(
        DatasetSpec(INT), {"z": DatasetSpec(TensorSpec((1,), np.int64))}
    )
    assert [[int(x) for x in window.x] for window in windows] == [[1, 2], [3]]
    slices.save(tmp_path)
    loaded = Dataset.load(tmp_path)
    assert list(loaded.map(lambda marked: marked.x)) == [1, 2, 3]
    assert loaded.element_spec == slices.element_spec
    summed = slices.scan(Marked(0, None), lambda state, one: (Marked(state.x + one.x, None), state))
    assert [int(state.x) for state in summed] == [0, 1, 3]


def test_none_stays_none() -> None:
    """A leaf that is always None is None in batches, in their rows, and in specs."""
    pairs = TEN.map(lambda x: {"x": x, "label": None})
    assert pairs.element_spec == {"x": INT, "label": NoneTensorSpec()}
    batched = pairs.batch(4)
    assert batched.element_spec == {"x": TensorSpec((None,), np.int64), "label": NoneTensorSpec()}
    for made in (
        batched,
        pairs.padded_batch(4),
        pairs.ragged_batch(4),
        batched.rebatch(3),
        batched.batch(2),
        batched.unbatch(),
        pairs.map_batches(lambda batch: batch, 4),
        pairs.group_by_window(lambda pair: pair["x"] % 2, lambda key, group: group.batch(2), 2),
        pairs.bucket_by_sequence_length(lambda pair: pair["x"], [5], [2, 2]),
        pairs.window(3).flat_map(lambda window: Dataset.zip(window)),
        Dataset.from_tensor_slices({"x": [1, 2, 3], "label": None}).batch(2),
        Dataset.from_generator(
            lambda: iter([{"x": 1, "label": None}]),
            output_signature={"x": INT, "label": NoneTensorSpec()},
        ),
        pairs.pad_to_cardinality(12),
    ):
        assert all(element["label"] is None for element in made)
        assert made.element_spec["label"] == NoneTensorSpec()
    assert "label: None" not in repr(batched)
    assert Dataset.from_tensor_slices(([1, 2], None)).at(1) == (2, None)
    assert Dataset.from_tensors(([1, 2], None)).unbatch().cardinality() == 2


@pytest.mark.parametrize("value", [5, "a", np.zeros(2), {5}])
@pytest.mark.parametrize("odd", [0, 1])
def test_none_beside_values_is_an_error_that_names_the_leaf(value: Any, odd: int) -> None:
    """A batch in which a leaf is sometimes None is an error, whichever comes first."""
    mixed = TEN.map(lambda x: {"x": x, "label": (value if x % 2 == odd else None,)})
    for batched in (mixed.batch(4), mixed.padded_batch(4), mixed.ragged_batch(4)):
        with pytest.raises(PipelineError, match=r"None.* at \['label'\]\[0\]|\[0\], expected None"):
            next(iter(batched))


def test_a_generator_yields_none_where_its_signature_says_so() -> None:
    """A value in the place of None is an error of the element."""
    yielding = Dataset.from_generator(lambda: iter([5]), output_signature=NoneTensorSpec())
    with pytest.raises(PipelineError, match="got the int 5, expected None"):
        list(yielding)


def test_a_signature_says_none_by_none() -> None:
    """None in a signature or in an output_spec means a leaf that is always None."""
    spec = (INT, NoneTensorSpec())
    yielding = Dataset.from_generator(lambda: iter([(1, None)]), output_signature=(INT, None))
    mapped = TEN.map(lambda x: (x, None), output_spec=(INT, None))
    assert yielding.element_spec == mapped.element_spec == spec
    assert list(yielding) == [(1, None)]


class Named(dict[str, Any]):
    """A subclass of dict."""


class Numbered(tuple[Any, ...]):
    """A subclass of tuple that is no namedtuple."""


def test_subclasses_of_structures_are_structures() -> None:
    """A subclass of dict or tuple becomes that, so that specs say what batches are."""
    mapped = TEN.map(lambda x: {"n": Named(a=[x], b=Numbered((x, Named(c=x))))})
    spec = {"n": {"a": TensorSpec((1,), np.int64), "b": (INT, {"c": INT})}}
    assert mapped.element_spec == spec
    assert [type(mapped.at(1)["n"]), type(mapped.at(1)["n"]["b"])] == [dict, tuple]
    batch = next(iter(mapped.batch(2)))["n"]
    assert batch["b"][1]["c"].tolist() == [0, 1]
    unpacked = TEN.map(lambda x: Numbered((x, x))).map(lambda left, right: left + right)
    assert unpacked.at(3) == 6
