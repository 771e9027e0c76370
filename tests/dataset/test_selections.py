"""Tests of ``zmqdata.dataset.selections``."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import SHARD_HINT, Dataset, Options
from zmqdata.elements.specs import INFINITE_CARDINALITY, TensorSpec
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.operations.selections import Shard
from zmqdata.operations.sources import Range

TEN = Dataset.range(10)
DICTS = Dataset.from_tensor_slices({"a": [1, 2]})


def ints(dataset: Dataset) -> list[int]:
    return [int(x) for x in dataset]


def test_selections_read_as_they_are_written() -> None:
    """Methods chain, and the site of each is the user's line."""
    dataset = (
        TEN.shard(2, 0).take_while(lambda x: x < 7).unique().ignore_errors().assert_cardinality(4)
    )
    assert ints(dataset) == [0, 2, 4, 6]
    assert len(dataset) == 4
    node = dataset.node
    while node.inputs:
        assert node.site.startswith("test_selections.py:")
        node = node.inputs[0]


@pytest.mark.parametrize("index", [SHARD_HINT, 0, 5])
def test_a_hint_is_kept(index: int) -> None:
    """SHARD_HINT for the number of shards stays in the node for the service, whatever
    the index.
    """
    node = TEN.shard(SHARD_HINT, index=index).node
    assert isinstance(node, Shard)
    assert node.is_hint
    assert node.index == SHARD_HINT


def test_scan_turns_lists_into_arrays() -> None:
    """The function receives a list given as the first state as an array."""
    assert ints(TEN.take(2).scan([1, 2], lambda state, x: (state * 2, state.sum()))) == [3, 6]


def test_padding_has_the_structure_of_elements() -> None:
    """Padding has zeros of each leaf's shape and dtype, marked as not valid, and the
    spec follows by rule.
    """
    rows = Dataset.from_tensor_slices(
        {"x": np.ones((1, 2), np.float32), "y": ["a"]}
    ).pad_to_cardinality(3, "real")
    assert len(rows) == 3
    first, *padding = rows
    assert (first["real"], first["x"].tolist(), first["y"]) == (True, [1, 1], "a")
    assert [(row["real"], row["x"].tolist(), row["x"].dtype, row["y"]) for row in padding] == [
        (False, [0, 0], np.float32, "")
    ] * 2
    assert rows.element_spec["real"] == TensorSpec((), np.bool_)
    assert [row["valid"] for row in DICTS.pad_to_cardinality(2)] == [True, True]


def test_shapes_may_be_unknown_without_padding() -> None:
    """A dataset that has the number of elements already needs no zeros, and so no
    shape.
    """
    ragged = TEN.take(2).map(lambda x: {"x": np.ones(int(x) + 1)}).padded_batch(1)
    assert None in ragged.element_spec["x"].shape
    padded = list(ragged.pad_to_cardinality(2))
    assert [(row["valid"], row["x"].shape) for row in padded] == [(True, (1, 1)), (True, (1, 2))]
    with pytest.raises(ValueError, match="Give all elements the same shape"):
        ragged.pad_to_cardinality(3)


def test_options_hold_for_the_whole_pipeline() -> None:
    """Any dataset of a pipeline returns its options, which cannot be set, because that
    would have no effect. Later options win with a warning.
    """
    options = Options()
    options.deterministic = False
    dataset = TEN.with_options(options).map(int)
    options.deterministic = True
    assert dataset.options().deterministic is False
    with pytest.raises(ValueError, match="to set or update dataset options"):
        dataset.options().deterministic = True
    with pytest.raises(ValueError, match="has no effect"):
        dataset.options().autotune.enabled = True
    assert dataset.options().deterministic is False
    with pytest.warns(UserWarning, match="deterministic from False to True"):
        assert dataset.with_options(options).options().deterministic is True
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset.with_options(Options([("dataset_name", "x")]))


def test_iterators_run_with_the_options() -> None:
    """The context of an iterator holds the options of the whole pipeline."""
    seen: list[Any] = []

    class Probe(Range):
        """A source that records its context."""

    @make_iterator.register(Probe)
    def _(node: Any, context: Any) -> Any:
        seen.append(context.options)
        return make_iterator(Range(start=0, stop=1), context)

    assert ints(
        Dataset(Probe(start=0, stop=1)).map(int).with_options(Options([("dataset_name", "x")]))
    ) == [0]
    assert seen == [Options([("dataset_name", "x")])]


def test_a_single_element() -> None:
    """A single element is returned, while none and several are errors."""
    assert TEN.take(1).get_single_element() == 0
    with pytest.raises(InvalidArgumentError, match="Dataset was empty"):
        TEN.take(0).get_single_element()
    with pytest.raises(InvalidArgumentError, match="more than one element: range"):
        TEN.get_single_element()


@pytest.mark.parametrize(
    ("dataset", "index"), [(TEN, 10), (TEN, -1), (TEN.take(0), 0), (TEN.filter(bool), -1)]
)
def test_numbers_that_no_element_has(dataset: Dataset, index: int) -> None:
    """The error lists the valid numbers."""
    with pytest.raises(IndexError, match=r"numbers (0 to 9|none|0 upwards)"):
        dataset.at(index)
    assert TEN.at(np.int64(9)) == 9


def test_resampling_is_the_same_with_a_seed() -> None:
    """A seed fixes which elements each iteration yields, and each yields others."""

    def iterations() -> list[list[int]]:
        dataset = TEN.repeat(9).rejection_resample(lambda x: int(x) % 2, [0.8, 0.2], seed=4)
        return [[int(x) for _, x in dataset] for _ in range(2)]

    first, second = iterations()
    assert iterations() == [first, second]
    assert first != second


def test_resampling_passes_each_element_in_some_repetition() -> None:
    """Each repetition draws anew with a seed, so that no element is left out of all."""
    once = TEN.rejection_resample(lambda x: 0, [1.0, 0.0], [0.5, 0.5], seed=4)
    thinned = TEN.rejection_resample(lambda x: int(x != 3), [0.5, 0.5], [0.9, 0.1], seed=4)
    assert len(list(once)) == 10
    assert {int(x) for _, x in thinned.repeat(100)} == set(range(10))


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: TEN.shard(0, 0), ValueError, "num_shards must be at least 1"),
        (
            lambda: TEN.shard(2, 2),
            ValueError,
            r"Index must be between 0 and 1 \(currently index = 2\)\.",
        ),
        (
            lambda: TEN.shard(5, SHARD_HINT),
            InvalidArgumentError,
            r"between 0 and 4 \(currently index = -1\)\.",
        ),
        (
            lambda: TEN.shard(5, SHARD_HINT),
            InvalidArgumentError,
            "SHARD_HINT is meant for num_shards",
        ),
        (lambda: TEN.shard(SHARD_HINT, "0"), TypeError, "index must be an int"),
        (lambda: TEN.shard("2", 0), TypeError, "num_shards must be an int"),
        (lambda: TEN.take_while(1), TypeError, "predicate must be callable"),
        (lambda: TEN.scan(0, None), TypeError, "scan_func must be callable"),
        (lambda: TEN.ignore_errors(1), TypeError, "log_warning must be a bool"),
        (
            lambda: TEN.assert_cardinality(-2),
            ValueError,
            "expected_cardinality must be at least -1",
        ),
        (
            lambda: TEN.pad_to_cardinality(20),
            ValueError,
            "elements that are dicts, these are TensorSpec",
        ),
        (
            lambda: DICTS.pad_to_cardinality(1),
            ValueError,
            "a dataset of 2 elements, expected at most 1",
        ),
        (
            lambda: DICTS.repeat().pad_to_cardinality(9),
            ValueError,
            "known cardinality, but has cardinality -1",
        ),
        (
            lambda: DICTS.batch(9).pad_to_cardinality(9),
            ValueError,
            r"the shape of .*\(None,\).* is unknown",
        ),
        (
            lambda: TEN.rejection_resample(int, [0.5]),
            ValueError,
            "target_dist must hold a probability",
        ),
        (lambda: TEN.rejection_resample(int, [1.5, -0.5]), ValueError, "target_dist"),
        (lambda: TEN.rejection_resample(int, []), ValueError, "target_dist"),
        (
            lambda: TEN.rejection_resample(int, [1.0], [0.5, 0.5]),
            ValueError,
            "initial_dist has 2 classes, expected 1",
        ),
        (lambda: TEN.rejection_resample(1, [1.0]), TypeError, "class_func must be callable"),
        (
            lambda: TEN.with_options({"deterministic": True}),
            TypeError,
            "options must be an Options",
        ),
        (lambda: TEN.at("1"), TypeError, "index must be an int"),
        (
            lambda: list(TEN.assert_cardinality(INFINITE_CARDINALITY)),
            FailedPreconditionError,
            "only 10 elements",
        ),
        (lambda: list(TEN.map(float).unique()), PipelineError, r"unique\(\) at test_selections.py"),
    ],
)
def test_arguments_are_checked_at_the_call(make: Any, error: type[Exception], text: str) -> None:
    """The error names what came and what was expected."""
    with pytest.raises(error, match=text):
        make()
