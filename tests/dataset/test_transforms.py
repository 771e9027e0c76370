"""Tests of ``zmqdata.dataset.transforms``: the methods of ``Dataset`` and how they
check their arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.dataset.reading import ints
from zmqdata.dataset import Dataset, TextLineDataset
from zmqdata.dataset.transforms import DEFAULT_CYCLE_LENGTH
from zmqdata.elements.specs import AUTOTUNE, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError, UnimplementedError
from zmqdata.operations.mapping import Collate
from zmqdata.operations.parallel import ParallelCollate


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: Dataset.range(1).map(7),
            TypeError,
            "map_func must be callable, got 7 of type int",
        ),
        (lambda: Dataset.range(1).filter(None), TypeError, "predicate must be callable"),
        (lambda: Dataset.range(1).flat_map(1), TypeError, "map_func must be callable"),
        (lambda: Dataset.range(1).interleave(1), TypeError, "map_func must be callable"),
        (
            lambda: Dataset.range(1).interleave(Dataset.range, np.arange(2)),
            TypeError,
            "cycle_length must be an int",
        ),
        (
            lambda: Dataset.range(1).interleave(Dataset.range, 0),
            ValueError,
            "Cycle length must be greater than zero, but got 0: cycle_length",
        ),
        (
            lambda: Dataset.range(1).interleave(Dataset.range, 1, 0),
            ValueError,
            "block_length must be at least 1",
        ),
        (lambda: Dataset.range(1).batch(0), ValueError, "batch_size must be at least 1"),
        (lambda: Dataset.range(1).batch("2"), TypeError, "batch_size must be an int"),
        (lambda: Dataset.range(1).batch(2, 1), TypeError, "drop_remainder must be a bool"),
        (lambda: Dataset.range(1).shuffle(0), ValueError, "buffer_size must be greater than zero"),
        (lambda: Dataset.range(1).shuffle(-1), ValueError, "UNKNOWN_CARDINALITY"),
        (lambda: Dataset.range(1).shuffle(1, "x"), TypeError, "seed must be an int"),
        (
            lambda: Dataset.range(1).shuffle(1, 1, 1),
            TypeError,
            "reshuffle_each_iteration must be a bool",
        ),
        (lambda: Dataset.range(1).skip(1.5), TypeError, "count must be an int"),
        (lambda: Dataset.range(1).enumerate("a"), TypeError, "start must be an int"),
        (lambda: Dataset.range(1).prefetch(-2), ValueError, "buffer_size must be at least -1"),
        (lambda: Dataset.range(1).concatenate([1]), TypeError, "must be a Dataset"),
        (lambda: Dataset.range(1).concatenate(TextLineDataset("x")), TypeError, "specs do not fit"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(
    make: Callable[[], object], error: type[Exception], text: str
) -> None:
    """The error names what came and what was expected, before anything runs."""
    with pytest.raises(error, match=text):
        make()


def test_methods_chain_and_change_nothing() -> None:
    """Each method returns a new dataset and leaves its own dataset unchanged."""
    base = Dataset.range(10)
    dataset = base.filter(lambda x: x % 2 == 0).map(lambda x: x * x).skip(1).take(3).batch(2)
    assert [batch.tolist() for batch in dataset] == [[4, 16], [36]]
    assert ints(base) == list(range(10))


def test_functions_make_datasets_of_elements() -> None:
    """flat_map joins the datasets of a function one after the other, interleave in turn
    and in blocks.
    """
    starts = Dataset.range(0, 20, 10)
    assert ints(starts.flat_map(lambda n: Dataset.range(n, n + 3))) == [0, 1, 2, 10, 11, 12]
    turns = starts.interleave(lambda n: Dataset.range(n, n + 3), cycle_length=2, block_length=2)
    assert ints(turns) == [0, 1, 10, 11, 2, 12]


def test_enumerate_may_start_anywhere() -> None:
    """Numbers continue from the start, which may be negative."""
    pairs = [(int(number), int(x)) for number, x in Dataset.range(5, 7).enumerate(start=-1)]
    assert pairs == [(-1, 5), (0, 6)]


def test_numpys_ints_are_sizes() -> None:
    """Sizes and flags may be values of numpy."""
    assert len(Dataset.range(np.int64(6)).batch(np.int32(4), drop_remainder=np.bool_(True))) == 1


def test_autotune_and_unknown_are_taken_where_tf_takes_them() -> None:
    """AUTOTUNE and None choose a size, and UNKNOWN_CARDINALITY shuffles everything."""
    assert ints(Dataset.range(9).prefetch(AUTOTUNE)) == list(range(9))
    assert ints(Dataset.range(9).prefetch(None)) == list(range(9))
    assert ints(Dataset.range(2).interleave(lambda x: Dataset.range(2), AUTOTUNE)) == [0, 0, 1, 1]
    everything = Dataset.range(9).shuffle(UNKNOWN_CARDINALITY, reshuffle_each_iteration=None)
    assert sorted(ints(everything)) == list(range(9))
    assert ints(Dataset.range(2).repeat(None).take(5)) == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("calls", "cycle"), [(None, 16), (AUTOTUNE, 16), (4, 4), (np.int64(4), 4), (40, 16)]
)
@pytest.mark.parametrize("length", [None, AUTOTUNE])
def test_the_chosen_cycle_length_is_a_constant(length: int | None, calls: Any, cycle: int) -> None:
    """Without a cycle length, the order of interleave does not depend on the machine:
    it follows from the number of parallel calls, or is a constant.
    """
    made = Dataset.range(2).interleave(Dataset.range, length, num_parallel_calls=calls).node
    assert getattr(made, "cycle_length", None) == cycle <= DEFAULT_CYCLE_LENGTH


def test_iterators_reshuffle_unless_told_otherwise() -> None:
    """Two iterators over the same dataset have different orders, or the same with
    reshuffle_each_iteration=False.
    """
    for arguments in ({}, {"seed": 3}):
        anew = Dataset.range(50).shuffle(50, **arguments)
        assert ints(anew) != ints(anew)
        same = Dataset.range(50).shuffle(50, reshuffle_each_iteration=False, **arguments)
        assert ints(same) == ints(same)


def test_a_fixed_seed_is_the_same_in_each_run() -> None:
    """Datasets made alike with a seed have the same first order, and the same second
    order.
    """
    orders = [
        [ints(dataset), ints(dataset)]
        for dataset in (Dataset.range(50).shuffle(50, 3) for _ in range(2))
    ]
    assert orders[0] == orders[1]


def test_concatenate_joins_what_may_fit() -> None:
    """Specs that require a trial run are not checked."""
    calls: list[int] = []
    joined = Dataset.range(2).concatenate(Dataset.range(2).map(lambda x: calls.append(1) or int(x)))
    assert calls == []
    assert ints(joined) == [0, 1, 0, 1]
    assert joined.element_spec == TensorSpec((), np.int64)


def test_datasets_may_be_joined_in_a_loop() -> None:
    """A thousand datasets joined one by one do not exceed Python's stack."""
    joined = Dataset.range(1)
    for number in range(1, 1000):
        joined = joined.concatenate(Dataset.range(number, number + 1))
    iterator = iter(joined)
    assert [int(next(iterator)) for _ in range(600)] == list(range(600))
    again = iter(joined)
    again.load_state_dict(iterator.state_dict())
    assert [int(x) for x in again] == list(range(600, 1000))
    assert (len(joined), int(joined.at(999))) == (1000, 999)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"num_parallel_calls": 0}, ValueError, "at least 1, AUTOTUNE or None, got 0"),
        ({"num_parallel_calls": 1.5}, TypeError, "num_parallel_calls must be an int"),
        ({"num_parallel_calls": 2, "deterministic": 1}, TypeError, "deterministic must be a bool"),
        ({"on_error": "ignore"}, ValueError, "got 'ignore'"),
        ({"retries": 2}, ValueError, "retries needs"),
        ({"on_error": "retry", "max_errors": 2}, ValueError, "max_errors needs"),
        ({"on_error": "retry", "retries": -1}, ValueError, "at least 0, got -1"),
    ],
)
def test_arguments_of_map_are_checked(arguments: Any, error: type[Exception], text: str) -> None:
    """An invalid argument is an error at the call that names what came and what was
    expected.
    """
    with pytest.raises(error, match=text):
        Dataset.range(3).map(int, **arguments)


def test_an_argument_without_effect_is_warned_about() -> None:
    """deterministic without threads has no effect, and a warning at the user's line
    says so, as in tf.data.
    """
    with pytest.warns(UserWarning, match="no effect") as caught:
        assert ints(Dataset.range(3).map(int, deterministic=False)) == [0, 1, 2]
    assert caught[0].filename == __file__


def test_maps_with_threads_and_draws() -> None:
    """map on threads keeps order and spec, and random_map repeats its draws with its
    seed.
    """
    dataset = Dataset.range(20).map(lambda x: x * 2, num_parallel_calls=AUTOTUNE).batch(5)
    assert [batch.tolist() for batch in dataset] == [
        [n * 10 + m for m in (0, 2, 4, 6, 8)] for n in range(4)
    ]
    assert dataset.cardinality() == 4
    assert dataset.element_spec == TensorSpec((None,), np.int64)
    drawn = (
        Dataset.range(5).enumerate().random_map(lambda i, x, rng: rng.integers(0, 100) + i, seed=3)
    )
    assert drawn.element_spec == TensorSpec((), np.int64)
    assert ints(drawn.take(3)) == ints(drawn.take(3).repeat(2).take(3))
    threads = (
        Dataset.range(5)
        .enumerate()
        .random_map(
            lambda i, x, rng: rng.integers(0, 100) + i,
            seed=3,
            num_parallel_calls=2,
            deterministic=True,
        )
    )
    assert ints(threads) == ints(drawn)
    assert ints(Dataset.range(4).map(lambda x: 6 // int(x), on_error="skip")) == [6, 3, 2]


def test_batch_takes_the_arguments_of_a_parallel_one() -> None:
    """The arguments for parallel batches are checked, and change nothing."""
    parallel = Dataset.range(5).batch(2, False, AUTOTUNE, False)
    assert [batch.tolist() for batch in parallel] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError, match="num_parallel_calls must be at least 1"):
        Dataset.range(5).batch(2, num_parallel_calls=0)


@pytest.mark.parametrize("calls", [None, AUTOTUNE])
def test_a_function_makes_batches_of_lists(calls: int | None) -> None:
    """collate_fn makes an element of any nesting of each list of elements. Number and
    label of the batches are known, and their spec is found by running a batch.
    """
    words = Dataset.from_list(["a", "bc", "def", "g", "h"])
    dataset = words.batch(2, False, calls, collate_fn=lambda some: {"n": len(some), "all": some})
    assert [(one["n"], one["all"].tolist()) for one in dataset] == [
        (2, ["a", "bc"]),
        (2, ["def", "g"]),
        (1, ["h"]),
    ]
    assert len(dataset) == dataset.cardinality() == 3
    assert len(words.batch(2, True, calls, collate_fn=len)) == 2
    assert dataset.element_spec == {
        "n": TensorSpec((), np.int64),
        "all": TensorSpec((2,), np.str_),
    }
    kind = Collate if calls is None else ParallelCollate
    assert type(dataset.node) is kind
    assert "batch(collate_fn=<lambda>) at test_transforms.py:" in str(dataset.describe())
    assert "batch(2) at test_transforms.py:" in str(dataset.describe())


def test_a_declared_spec_of_batches_holds() -> None:
    """Batches are cast to output_spec, and a batch that does not match it is an
    error.
    """
    spec = TensorSpec((None,), np.float32)
    dataset = Dataset.range(5).batch(2, collate_fn=lambda some: some, output_spec=spec)
    assert dataset.element_spec == spec
    assert [(batch.dtype, batch.tolist()) for batch in dataset] == [
        (np.float32, [0, 1]),
        (np.float32, [2, 3]),
        (np.float32, [4]),
    ]
    with pytest.raises(
        PipelineError, match=r"failed for batch 0: .*does not match its output_spec"
    ):
        list(Dataset.range(5).batch(2, collate_fn=len, output_spec=spec))
    with pytest.raises(InvalidArgumentError, match=r"pass the spec as batch\(..., output_spec=\)"):
        _ = Dataset.range(0).batch(2, collate_fn=len).element_spec


@pytest.mark.parametrize("calls", [None, 2])
def test_a_state_between_batches_continues_with_the_next(calls: int | None) -> None:
    """A state of any step yields the remaining batches, and a state of another function
    gives a warning.
    """

    def batches(factor: int) -> Dataset:
        return Dataset.range(9).batch(2, False, calls, collate_fn=lambda some: factor * sum(some))

    iterator = iter(batches(1))
    for step in range(6):
        again = iter(batches(1))
        again.load_state_dict(iterator.state_dict())
        assert ints(again) == [1, 5, 9, 13, 8][step:]
        next(iterator, None)
    with pytest.warns(UserWarning, match="code of a function"):
        iter(Dataset.range(9).batch(2, False, calls, collate_fn=max)).load_state_dict(
            iter(Dataset.range(9).batch(2, False, calls, collate_fn=min)).state_dict()
        )


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda ds: ds.enumerate(2**70),
            "start must be at most 9223372036854775807, got 1180591620717411303424",
        ),
        (lambda ds: ds.enumerate(-(2**70)), "start must be at least -9223372036854775808"),
        (
            lambda ds: ds.interleave(lambda x: ds, cycle_length=2**70),
            "cycle_length must be at most 1048576",
        ),
        (
            lambda ds: ds.interleave(lambda x: ds, 2**21, num_parallel_calls=2),
            "cycle_length must be at most 1048576",
        ),
        (lambda ds: Dataset.counter(2**70), "start of counter.. is 1180591620717411303424"),
        (lambda ds: Dataset.counter(0, -(2**63) - 1), "step of counter.. is -9223372036854775809"),
    ],
)
def test_numbers_beyond_64_bits_are_refused_at_the_call(make: Any, text: str) -> None:
    """Numbers that no element can hold, and too many open datasets, are a ValueError
    before anything runs.
    """
    with pytest.raises(ValueError, match=text):
        make(Dataset.range(3))


@pytest.mark.parametrize("threads", [None, 2])
def test_a_random_map_may_leave_elements_out(threads: int | None) -> None:
    """random_map has the policies of map, and the draws of the other elements stay
    unchanged.
    """

    def draw(x: Any, rng: np.random.Generator) -> Any:
        return int(rng.integers(1000)) if x != 2 else 1 // 0

    given: dict[str, Any] = {
        "seed": 1,
        "rerandomize_each_iteration": False,
        "num_parallel_calls": threads,
    }
    expected = list(Dataset.range(5).random_map(lambda x, rng: int(rng.integers(1000)), **given))
    iterator = iter(Dataset.range(5).random_map(draw, on_error="skip", **given))
    assert list(iterator) == expected[:2] + expected[3:]
    assert [left_out.number for left_out in iterator.quarantine] == [2]
    with pytest.raises(PipelineError, match="max_errors allows no more"):
        list(Dataset.range(5).random_map(draw, on_error="skip", max_errors=0, **given))
    with pytest.raises(ValueError, match="on_error must be"):
        Dataset.range(5).random_map(draw, on_error="never")


@pytest.mark.parametrize("threads", [None, 2])
def test_a_retried_random_map_draws_the_same(threads: int | None) -> None:
    """Neither a retry nor access by number changes the draws of an element."""
    failed: set[int] = set()

    def draw(x: Any, rng: np.random.Generator) -> int:
        drawn = int(rng.integers(1000))
        if int(x) not in failed:
            failed.add(int(x))
            raise OSError("busy")
        return drawn

    given: dict[str, Any] = {
        "seed": 1,
        "rerandomize_each_iteration": False,
        "num_parallel_calls": threads,
    }
    expected = list(Dataset.range(5).random_map(lambda x, rng: int(rng.integers(1000)), **given))
    retried = Dataset.range(5).random_map(draw, on_error="retry", retries=1, **given)
    assert list(retried) == expected
    assert [retried.at(index) for index in range(5)] == expected
    with pytest.raises(UnimplementedError, match="each iteration draws anew"):
        Dataset.range(5).random_map(draw, on_error="retry", num_parallel_calls=threads).at(0)
    with pytest.raises(UnimplementedError):
        Dataset.range(5).random_map(draw, on_error="skip", **given).at(0)


def test_a_batch_may_be_larger_than_any() -> None:
    """A size beyond any machine word makes a single batch of all elements."""
    assert [batch.tolist() for batch in Dataset.range(3).map(abs).batch(2**70)] == [[0, 1, 2]]


@pytest.mark.parametrize("count", [-1, -2, -(2**63)])
def test_a_negative_count_means_all(count: int) -> None:
    """Each negative count stands for -1, as in tf.data: endless, all, all skipped."""
    three = Dataset.range(3)
    assert three.repeat(count).cardinality() == -1
    assert [int(x) for x in three.repeat(count).take(4)] == [0, 1, 2, 0]
    assert [int(x) for x in three.take(count)] == [0, 1, 2]
    assert list(three.skip(count)) == []
    assert three.skip(count).cardinality() == 0
