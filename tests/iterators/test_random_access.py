"""Tests of ``zmqdata.iterators.random_access``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import plain
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import FailedPreconditionError, PipelineError, UnimplementedError
from zmqdata.iterators.random_access import element_at
from zmqdata.nodes.base import SHARD_HINT
from zmqdata.nodes.options import Options
from zmqdata.operations.sequences import Elements


def drawn(x: Any, rng: np.random.Generator) -> float:
    return float(x + rng.normal())


TEN = Dataset.range(10)
FILES = Dataset.list_files(f"{Path(__file__).parent}/*.py", shuffle=False)
ROWS = Dataset.from_tensor_slices({"x": np.arange(6).reshape(3, 2), "y": np.array(["a", "b", "c"])})
ELEMENTS = Dataset(Elements(elements=(np.zeros(2), np.ones(2))))


@pytest.mark.parametrize(
    "dataset",
    [
        TEN,
        Dataset.range(3, 9, 2, output_type=np.float32),
        Dataset.from_tensors({"x": [1, 2]}),
        ROWS,
        ELEMENTS,
        TEN.map(lambda x: [x, x]),
        TEN.batch(4),
        TEN.batch(4, drop_remainder=True),
        TEN.batch(4, collate_fn=sum),
        TEN.batch(4, drop_remainder=True, num_parallel_calls=2, collate_fn=tuple),
        TEN.take(3),
        TEN.skip(3).take(-1),
        TEN.shard(3, 1),
        TEN.enumerate(5).map(lambda number, x: int(number + x)),
        TEN.repeat(3),
        TEN.prefetch(2),
        TEN.cache().map(int),
        TEN.batch(5, drop_remainder=True).unbatch(),
        TEN.rejection_resample(lambda x: int(x % 2), [0.5, 0.5], [0.5, 0.5]),
        Dataset.from_list([(1, np.zeros(0)), (2, np.ones(3))]),
        Dataset.from_source([5, 6, 7]).batch(2),
        TEN.with_options(Options([("deterministic", False)])),
        TEN.concatenate(Dataset.range(3)).concatenate(Dataset.range(4)),
        Dataset.zip({"a": TEN, "b": (Dataset.range(20, 25),)}),
        TEN.map(int).skip(1).batch(3).repeat(2).enumerate(),
        ROWS.map(lambda row: {"x": row["x"]}).pad_to_cardinality(5),
        TEN.map(np.arange).padded_batch(4, padding_values=-1),
        TEN.padded_batch(4, drop_remainder=True),
        TEN.map(np.arange).ragged_batch(4),
        TEN.ragged_batch(3, row_splits_dtype=np.int32),
        ROWS.ragged_batch(2),
        TEN.map_batches(lambda rows: -rows, 4),
        TEN.map_batches(lambda rows: -rows, 4, drop_remainder=True),
        TEN.batch(3, drop_remainder=True).unbatch(),
        ROWS.batch(2, drop_remainder=True).unbatch(),
        TEN.map(abs, num_parallel_calls=2, on_error="retry"),
        TEN.random_map(drawn, seed=3, rerandomize_each_iteration=False),
        TEN.shuffle(4, 5, False).random_map(drawn, 3, rerandomize_each_iteration=False),
        FILES.shuffle(9, 3, False).random_map(
            lambda name, rng: (name, rng.normal()), 3, rerandomize_each_iteration=False
        ),
        Dataset.from_list([(1, [2]), (3, [4, 5])]),
        Dataset.from_source([np.zeros(2), np.ones(3)]),
        Dataset.from_source(list(range(20)), shuffle=True, seed=5, reshuffle_each_iteration=False),
        Dataset.list_files([__file__, np.__file__], shuffle=False),
        FILES.shuffle(9, 3, False),
        TEN.assert_cardinality(10).cache(),
        TEN.shuffle(3, seed=1, reshuffle_each_iteration=False),
        TEN.shuffle(100, seed=1, reshuffle_each_iteration=False).batch(4).repeat(2),
        TEN.shuffle(UNKNOWN_CARDINALITY, seed=1, reshuffle_each_iteration=False).skip(2),
        TEN.map(abs).shuffle(2, 3, False).shuffle(4, 5, False),
        Dataset.range(300).shuffle(20, seed=7, reshuffle_each_iteration=False),
        TEN.map(np.ones, output_spec=TensorSpec((2,), "float64")).take(0).unbatch(),
    ],
)
def test_elements_are_those_of_iteration(dataset: Dataset) -> None:
    """The element with a number is the element that iteration yields at that place."""
    assert [plain(dataset.at(index)) for index in range(len(dataset))] == [
        plain(element) for element in dataset
    ]


def test_endless_datasets_have_elements_below_a_limit() -> None:
    """Endless repetitions, batches and counters have an element for any number below a
    limit, and are refused without a limit.
    """
    for endless, number, element in (
        (TEN.repeat(), 1_000_003, 3),
        (TEN.repeat().batch(4), 2, [8, 9, 0, 1]),
        (Dataset.counter(1, 2), 10**9, 2 * 10**9 + 1),
        (TEN.repeat().concatenate(TEN), 11, 1),
        (TEN.repeat().repeat(2), 12, 2),
    ):
        assert endless.take(2 * 10**9).at(number).tolist() == element
        for place in (number, 2**70):
            with pytest.raises(FailedPreconditionError, match=r"infinite cardinality.*take\(n\)"):
                endless.at(place)
        with pytest.raises(IndexError, match="the numbers 0 upwards"):
            endless.at(-1)


def test_what_is_handed_out_is_the_receivers() -> None:
    """Writing into an element changes no dataset."""
    for dataset in (
        ELEMENTS,
        Dataset.from_tensor_slices(np.zeros((2, 2))),
        Dataset.from_tensors(np.zeros(2)),
    ):
        dataset.at(0)[:] = 7
        assert dataset.at(0).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("dataset", "kind"),
    [
        (TEN.filter(lambda x: True).map(int), "Filter"),
        (TEN.shuffle(3), "Shuffle"),
        (TEN.shuffle(3, seed=1), "Shuffle"),
        (TEN.map(abs, on_error="skip"), "GuardedMap"),
        (TEN.random_map(drawn), "RandomMap"),
        (TEN.random_map(drawn, seed=1), "RandomMap"),
        (Dataset.random(), "Random"),
        (Dataset.random(1, rerandomize_each_iteration=True), "Random"),
        (Dataset.from_source("abc", shuffle=True), "FromSource"),
        (Dataset.from_source("abc", shuffle=True, seed=1), "FromSource"),
        (Dataset.list_files(__file__), "ListFiles"),
        (TEN.flat_map(lambda x: TEN).batch(2), "FlatMap"),
        (TEN.shard(SHARD_HINT, SHARD_HINT), "Shard"),
        (Dataset.from_source([1, 2], shuffle=True), "FromSource"),
        (TEN.rejection_resample(int, [0.5, 0.5]), "RejectionResample"),
    ],
)
def test_operations_that_know_an_order_only_say_so(dataset: Dataset, kind: str) -> None:
    """The error names the operation without random access, and its line."""
    with pytest.raises(
        UnimplementedError,
        match=rf"not supported for dataset of type {kind}: .* at test_random_access.py:\d+",
    ):
        element_at(dataset.node, 1)


@pytest.mark.parametrize(
    ("dataset", "kind"),
    [
        (TEN.batch(2).unbatch(), "Unbatch"),
        (TEN.batch(2).map(abs).unbatch(), "Unbatch"),
        (TEN.filter(bool).shuffle(3, seed=1, reshuffle_each_iteration=False), "Shuffle"),
        (TEN.repeat().shuffle(3, seed=1, reshuffle_each_iteration=False).take(2), "Shuffle"),
    ],
)
def test_operations_that_need_a_number_of_elements_say_so(dataset: Dataset, kind: str) -> None:
    """The error names the operation whose number of elements is unknown or infinite."""
    with pytest.raises(
        FailedPreconditionError,
        match=rf"type {kind} has (unknown|infinite) cardinality which does not support random",
    ):
        dataset.at(0)


def test_a_full_cache_has_a_number_of_elements(tmp_path: Path) -> None:
    """All operations above a full cache count its elements, whatever made them."""
    for folder in ("", tmp_path / "cache"):
        cached = TEN.filter(lambda x: x > 6).cache(folder)
        with pytest.raises(UnimplementedError, match="type Filter"):
            cached.map(int).at(0)
        assert len(list(cached)) == 3
        for dataset in (
            cached,
            cached.map(int).batch(2),
            cached.repeat(3),
            cached.concatenate(TEN).skip(1),
            TEN.concatenate(cached),
            Dataset.zip(cached, TEN),
            cached.shard(2, 1).enumerate(),
            cached.shuffle(2, seed=1, reshuffle_each_iteration=False),
            cached.take(2).cache().map(int),
        ):
            elements = [plain(element) for element in dataset]
            assert [plain(dataset.at(place)) for place in range(len(elements))] == elements
            with pytest.raises(IndexError, match=f"the numbers 0 to {len(elements) - 1}"):
                dataset.at(len(elements))


def test_a_cache_in_memory_caches_up_to_an_element() -> None:
    """A cache over operations that only run in order runs them once, up to the element
    that is asked for. Iteration continues behind it.
    """
    ran: list[int] = []
    numbers = TEN.map(lambda x: ran.append(int(x)) or x).filter(lambda x: x % 2 == 1)
    cached = numbers.cache()
    assert [int(cached.at(place)) for place in (1, 0, 1)] == [1 + 2, 1, 1 + 2]
    assert ran == [0, 1, 2, 3]
    assert [int(x) for x in cached] == [1, 3, 5, 7, 9]
    with pytest.raises(IndexError, match="the numbers 0 to 4"):
        cached.at(5)
    assert ran == list(range(10))
    with pytest.raises(IndexError, match="the numbers 0 to 4"):
        numbers.cache().at(5)
    assert int(numbers.repeat().cache().at(7)) == 5


def test_a_cache_is_filled_by_one_run_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call continues where the last call stopped, so that a generator runs once. A
    forked child shares no files with it, and runs it again.
    """
    begun: list[int] = []

    def generate() -> Iterator[int]:
        begun.append(0)
        yield from range(100)

    cached = Dataset.from_generator(generate, output_signature=TensorSpec((), np.int64)).cache()
    assert [int(cached.at(place)) for place in (0, 1, 5, 3, 4, 6)] == [0, 1, 5, 3, 4, 6]
    assert len(begun) == 1
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert [int(cached.at(place)) for place in (7, 9, 99)] == [7, 9, 99]
    assert len(begun) == 2


def test_threads_fill_a_cache_together() -> None:
    """Threads that ask a cache for its elements all receive the right ones."""
    cached = TEN.repeat(20).filter(lambda x: True).cache()

    def reader(_: int) -> list[int]:
        return [int(cached.at(place)) for place in range(200)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(reader, range(4))) == [list(range(10)) * 20] * 4


def test_a_cache_gives_the_element_of_iteration() -> None:
    """The elements of at() are those of the iterators after it, also in a drawn
    order.
    """
    cached = TEN.shuffle(10).cache()
    some = {place: int(cached.at(place)) for place in (4, 2, 9)}
    elements = [int(x) for x in cached]
    assert sorted(elements) == list(range(10))
    assert some == {place: elements[place] for place in some}


def test_at_of_a_cache_raises_the_error_of_an_element_before(tmp_path: Path) -> None:
    """An element that fails on the way is an error, as in iteration."""
    failing = TEN.filter(lambda x: 6 // int(x - 3) < 9)
    with pytest.raises(PipelineError, match="ZeroDivisionError"):
        failing.cache().at(3)
    assert int(failing.cache().at(2)) == 2
    with pytest.raises(UnimplementedError, match="type Filter"):
        failing.cache(tmp_path / "cache").at(0)


def test_failed_elements_have_no_number_in_a_full_cache() -> None:
    """A full cache lacks the elements that failed, and so has no numbers for them."""
    cached = TEN.map(lambda x: 6 // int(x - 3)).cache()
    iterator = iter(cached)
    with pytest.raises(PipelineError):
        list(iterator)
    list(iterator)
    assert cached.at(3) == 6
    with pytest.raises(IndexError, match="the numbers 0 to 8"):
        cached.at(9)


class _Broken(list[int]):
    """A sequence that promises an element and has none."""

    def __len__(self) -> int:
        return 1


def test_failures_name_their_node() -> None:
    """A failing function and a batch of mixed shapes raise the same errors as in
    iteration.
    """
    with pytest.raises(PipelineError, match=r"map\(<lambda>\)"):
        TEN.map(lambda x: 1 // int(x)).at(0)

    with pytest.raises(PipelineError, match="class_func returned the class 5"):
        TEN.rejection_resample(int, [0.5, 0.5], [0.5, 0.5]).at(5)
    with pytest.raises(PipelineError, match="from_source"):
        Dataset.from_source(_Broken()).at(0)

    def ragged(x: Any) -> Any:
        return np.zeros(int(x))

    with pytest.raises(PipelineError, match=r"batch\(2\) at"):
        TEN.map(ragged).batch(2).at(0)
    with pytest.raises(
        PipelineError, match=r"batch\(collate_fn=.*\) at .* failed for batch 2: Zero"
    ):
        TEN.batch(2, collate_fn=lambda pair: 1 // (int(pair[0]) - 4)).at(2)
    flaky = iter([ValueError(), ValueError(), 7])

    def fail_twice(x: Any) -> Any:
        outcome = next(flaky)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    retried = TEN.map(fail_twice, on_error="retry", retries=1)
    with pytest.raises(PipelineError, match=r"map\(fail_twice\) at"):
        retried.at(0)
    assert retried.at(0) == 7


def test_a_random_source_with_a_seed_has_numbers() -> None:
    """Each random number follows from the seed and its place."""
    numbers = Dataset.random(seed=4).take(2000)
    assert [numbers.at(place) for place in range(1030)][1020:] == list(numbers.take(1030))[1020:]


def test_saved_elements_are_read_at_their_place(tmp_path: Path) -> None:
    """A saved element is read from its files. Files of a later save are refused."""
    TEN.batch(3).save(tmp_path)
    loaded = Dataset.load(tmp_path)
    assert [loaded.at(index).tolist() for index in (3, 0)] == [[9], [0, 1, 2]]
    TEN.save(tmp_path)
    with pytest.raises(FailedPreconditionError, match="something else was saved"):
        loaded.at(0)


@pytest.mark.parametrize("folder", [False, True])
def test_a_cache_hands_out_what_it_has(tmp_path: Path, folder: bool) -> None:
    """A cached element is not made again. Any other element comes from the input and is
    not kept.
    """
    calls: list[int] = []
    cached = TEN.map(lambda x: calls.append(int(x)) or np.full(2, x)).cache(
        tmp_path / "cache" if folder else ""
    )
    assert cached.at(3).tolist() == cached.at(3).tolist() == [3, 3]
    assert calls == [3, 3]
    list(cached)
    calls.clear()
    cached.at(3)[:] = 9
    assert [cached.at(index).tolist() for index in (3, 9)] == [[3, 3], [9, 9]]
    assert calls == []


def test_a_cache_that_is_not_filled_yet_asks_its_input() -> None:
    """Elements beyond the place that an iterator has reached are made by the input."""
    cached = TEN.map(int).cache()
    next(iter(cached))
    assert [cached.at(index) for index in (0, 1)] == [0, 1]


def test_an_end_within_a_half_filled_cache_is_respected() -> None:
    """Elements that a cache keeps already are not those of an operation that ends
    earlier, although the number of the cache's elements is unknown yet.
    """
    cached = TEN.filter(lambda x: x < 8).cache()
    reading = iter(cached)
    assert [int(next(reading)) for _ in range(6)] == [0, 1, 2, 3, 4, 5]
    pairs = Dataset.zip(cached, TEN.take(3))
    assert [tuple(map(int, pairs.at(index))) for index in range(3)] == [(0, 0), (1, 1), (2, 2)]
    assert int(cached.take(2).map(int).at(1)) == 1
    for ended, count in ((pairs, 3), (pairs.map(lambda a, b: a), 3), (cached.take(2), 2)):
        with pytest.raises(IndexError, match=f"the numbers 0 to {count - 1}"):
            ended.at(count)
    assert pairs.batch(3).at(0)[0].tolist() == [0, 1, 2]
    for counted in (pairs.batch(2), pairs.repeat(2).skip(2), pairs.concatenate(pairs).skip(2)):
        with pytest.raises(FailedPreconditionError, match="has unknown cardinality"):
            counted.at(1)


def test_a_wrong_promise_is_told() -> None:
    """An element that assert_cardinality promises but the input lacks is an error."""
    with pytest.raises(FailedPreconditionError, match="promises element 10, and its input has 10"):
        TEN.assert_cardinality(12).at(10)


ONCE = TEN.shuffle(5, reshuffle_each_iteration=False)


@pytest.mark.parametrize(
    "dataset",
    [
        ONCE,
        ONCE.map(int).batch(3),
        ONCE.repeat(2).skip(3),
        ONCE.shuffle(4, reshuffle_each_iteration=False),
        Dataset.zip(ONCE, ONCE.enumerate()),
        Dataset.from_source("abcdef", shuffle=True, reshuffle_each_iteration=False),
        Dataset.list_files(f"{Path(__file__).parent}/*.py", shuffle=False).shuffle(
            99, reshuffle_each_iteration=False
        ),
    ],
)
def test_an_order_without_a_seed_is_that_of_iteration(dataset: Dataset) -> None:
    """An order that the program draws once is the same in at() and in iteration."""
    elements = [plain(element) for element in dataset]
    assert [plain(dataset.at(index)) for index in range(len(elements))] == elements
    assert [plain(element) for element in dataset] == elements


def test_a_full_cache_below_does_not_change_an_order() -> None:
    """The order is that of iteration also once a cache below has a number of
    elements.
    """
    dataset = TEN.filter(lambda x: True).cache().shuffle(5, reshuffle_each_iteration=False)
    elements = [int(x) for x in dataset]
    assert [int(dataset.at(index)) for index in range(10)] == elements


def test_another_order_in_each_iteration_has_no_numbers() -> None:
    """An order that each iteration draws anew is refused, with the argument to pass."""
    with pytest.raises(UnimplementedError, match="pass reshuffle_each_iteration=False"):
        TEN.shuffle(5, seed=1).at(0)
