"""Facts about transformations of a split pipeline: each transforms the elements of its
worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from tests.service.simulated.parts import by_task, together
from zmqdata import Dataset, Options, RaggedTensor, Reducer
from zmqdata.errors import FailedPreconditionError

COUNT = 200


def numbers() -> Dataset:
    """Return the numbers below ``COUNT``, of which each of two workers has a part."""
    return Dataset.range(COUNT)


def flat(element: Any) -> list[int]:
    if isinstance(element, RaggedTensor):
        return list(map(int, element.flat_values))
    return np.asarray(element).ravel().tolist()


# --- operations that give each element once, however the input is split

ROWS = [1, 2, 3]
EACH_ONCE: dict[str, Callable[[], Dataset]] = {
    "batch": lambda: numbers().batch(7),
    "batch by a function": lambda: numbers().batch(7, collate_fn=np.array),
    "batch by a function in any order": lambda: numbers().batch(
        7, num_parallel_calls=4, deterministic=False, collate_fn=np.array
    ),
    "bucket_by_sequence_length": lambda: (
        numbers()
        .map(lambda x: np.full(1 + x % 3, x))
        .bucket_by_sequence_length(len, [2, 3], [4, 4, 4])
        .map(lambda batch: batch[:, 0])
    ),
    "cache": lambda: numbers().cache(),
    "filter": lambda: numbers().filter(lambda x: True),
    "group_by_window": lambda: numbers().group_by_window(
        lambda x: x % 3, lambda key, group: group.batch(4), 4
    ),
    "ignore_errors": lambda: numbers().ignore_errors(),
    "map": lambda: numbers().map(lambda x: x, num_parallel_calls=4),
    "map_batches": lambda: numbers().map_batches(lambda batch: batch, 8),
    "map in any order": lambda: numbers().map(
        lambda x: x, num_parallel_calls=4, deterministic=False
    ),
    "padded_batch": lambda: (
        numbers().map(lambda x: np.full(1 + x % 2, x)).padded_batch(6).map(lambda b: b[:, 0])
    ),
    "prefetch": lambda: numbers().prefetch(10),
    "ragged_batch": lambda: numbers().map(lambda x: np.full(x % 2, x)).ragged_batch(6),
    "random_map": lambda: numbers().random_map(lambda x, rng: x),
    "rebatch": lambda: numbers().batch(7).rebatch(4),
    "repeat": lambda: numbers().repeat(1),
    "shard": lambda: numbers().shard(1, 0),
    "shuffle": lambda: numbers().shuffle(50),
    "skip": lambda: numbers().skip(0),
    "take": lambda: numbers().take(COUNT),
    "take_while": lambda: numbers().take_while(lambda x: True),
    "unbatch": lambda: numbers().batch(7).unbatch(),
    "unique": lambda: numbers().unique(),
    "window": lambda: numbers().window(5).flat_map(lambda group: group.batch(5)),
    "with_options": lambda: numbers().with_options(Options()),
    "scan": lambda: numbers().scan(0, lambda state, x: (state + 1, x)),
    "rejection_resample": lambda: (
        numbers().rejection_resample(lambda x: x % 2, [0.5, 0.5], [0.5, 0.5]).map(lambda kind, x: x)
    ),
    "apply": lambda: numbers().apply(lambda dataset: dataset.batch(3)),
}


@pytest.mark.parametrize("name", EACH_ONCE)
def test_splits_go_through(service: WatchedService, name: str) -> None:
    """Every worker's part goes through its own copy of the operation, and together the
    parts are complete.
    """
    parts = by_task(service, EACH_ONCE[name]())
    found = [number for part in parts for element in part for number in flat(element)]
    if name == "ragged_batch":  # every second row is empty
        assert sum(batch.shape[0] for part in parts for batch in part) == COUNT
        assert sorted(found) == list(range(1, COUNT, 2))
    else:
        assert sorted(found) == list(range(COUNT))


# --- operations that depend on the number of workers


def test_each_worker_has_a_remainder(service: WatchedService) -> None:
    """batch(n) leaves only the last batch of each worker short, and drop_remainder
    drops up to one batch per worker.
    """
    sizes = [[len(batch) for batch in part] for part in by_task(service, numbers().batch(7))]
    assert all(set(part[:-1]) <= {7} and part[-1] <= 7 for part in sizes)
    assert sum(map(sum, sizes)) == COUNT
    full = by_task(service, numbers().batch(7, drop_remainder=True))
    assert {len(batch) for part in full for batch in part} <= {7}
    assert COUNT - 12 <= 7 * sum(map(len, full)) <= COUNT


def test_ragged_batches_are_of_one_worker_each(service: WatchedService) -> None:
    """ragged_batch keeps rows of any length as they were, and each worker has its own
    remainder.
    """
    dataset = numbers().map(lambda x: np.full(x % 4, x)).ragged_batch(8)
    for part in by_task(service, dataset):
        assert all(batch.shape[0] == 8 for batch in part[:-1])
        for batch in part:
            assert all(
                set(row.tolist()) <= {int(row[0])} and len(row) == row[0] % 4
                for row in batch
                if len(row)
            )


def test_take_and_skip_count_on_each_worker(service: WatchedService) -> None:
    """take(n) gives at most n elements per worker, and skip(n) omits n elements of each
    worker.
    """
    taken = by_task(service, numbers().take(3))
    assert [len(part) for part in taken] == [3, 3]
    assert len(together(by_task(service, numbers().skip(3)))) == COUNT - 6


def test_take_while_ends_on_each_worker(service: WatchedService) -> None:
    """Each worker ends with the first of its own elements that fails the predicate, and
    loses the elements after it.
    """
    for part in by_task(service, numbers().enumerate().take_while(lambda index, x: index < 2)):
        assert [int(index) for index, _ in part] == [0, 1]


def test_shard_counts_on_each_worker(service: WatchedService) -> None:
    """shard(n, i) takes every n-th element of the worker."""
    for part in by_task(service, numbers().enumerate().shard(2, 1), each=2):
        assert [int(index) for index, _ in part] == list(range(1, 2 * len(part), 2))


def test_unique_holds_on_each_worker(service: WatchedService) -> None:
    """Two workers may both have seen a value."""
    assert by_task(service, numbers().map(lambda x: x * 0).unique()) == [[0], [0]]


def test_scan_has_a_state_on_each_worker(service: WatchedService) -> None:
    """Every worker starts with the initial state."""
    parts = by_task(service, numbers().scan(0, lambda state, x: (state + 1, state)), each=3)
    assert all(part == list(range(len(part))) for part in parts)
    assert sum(map(len, parts)) == COUNT


def test_enumerate_counts_on_each_worker(service: WatchedService) -> None:
    """Each worker starts with the first index, because indices are not split."""
    parts = by_task(service, numbers().enumerate(start=10), each=3)
    assert all(
        [int(index) for index, _ in part] == list(range(10, 10 + len(part))) for part in parts
    )
    assert sorted(int(x) for part in parts for _, x in part) == list(range(COUNT))


def test_folds_are_of_each_worker(service: WatchedService) -> None:
    """group_by_reducer gives its results once for each worker."""
    count = Reducer(lambda key: 0, lambda state, x: state + 1, lambda state: state)
    parts = by_task(service, numbers().group_by_reducer(lambda x: np.int64(0), count))
    assert [len(part) for part in parts] == [1, 1]
    assert sum(together(parts)) == COUNT


def test_cardinality_is_of_each_worker(service: WatchedService) -> None:
    """assert_cardinality sees only the part of its worker, and its error says so."""
    told = r"expected to contain 200 elements .*each worker sees only a part"
    with pytest.raises(FailedPreconditionError, match=told):
        list(service.read(numbers().assert_cardinality(COUNT)))


def test_padding_is_split(service: WatchedService) -> None:
    """pad_to_cardinality pads the whole, and its padding is shared out like other
    elements.
    """
    padded = list(service.read(numbers().map(lambda x: {"x": x}).pad_to_cardinality(COUNT + 5)))
    assert sorted(int(one["x"]) for one in padded if one["valid"]) == list(range(COUNT))
    assert len(padded) == COUNT + 5


def test_draws_differ_between_workers(service: WatchedService) -> None:
    """random_map gives no two elements the same draws, on any workers."""
    found = list(service.read(numbers().random_map(lambda x, rng: (x, rng.integers(2**62)))))
    assert sorted(int(x) for x, _ in found) == list(range(COUNT))
    assert len({int(draw) for _, draw in found}) == COUNT


def test_a_seeded_shuffle_is_alike_on_all_workers(service: WatchedService) -> None:
    """A seed gives each worker's buffer the same order of positions, over other
    elements.
    """
    shuffled = Dataset.range(COUNT).enumerate().take(9).shuffle(9, seed=3)
    first, second = by_task(service, shuffled)
    assert [int(index) for index, _ in first] == [int(index) for index, _ in second]
    assert not {int(x) for _, x in first} & {int(x) for _, x in second}


# --- several inputs


def test_zip_pairs_what_a_worker_has(service: WatchedService) -> None:
    """Inputs are split independently, so a worker may pair any of their elements, each
    at most once.
    """
    pairs = Dataset.zip(numbers(), Dataset.range(1000, 1000 + COUNT))
    parts = by_task(service, pairs, each=3)
    first, second = zip(*together(parts), strict=True)
    assert len(set(first)) == len(set(second)) == len(first) <= COUNT


@pytest.mark.parametrize("lengths", [(4, 1000), (1000, 4)])
def test_zip_ends_with_its_shortest_input(
    service: WatchedService, lengths: tuple[int, int]
) -> None:
    """The iteration ends with the shortest input, and the rest of the others is
    discarded.
    """
    pairs = list(service.read(Dataset.zip(*map(Dataset.range, lengths))))
    shorter = lengths.index(4)
    assert sorted(int(pair[shorter]) for pair in pairs) == list(range(4))
    assert len({int(pair[1 - shorter]) for pair in pairs}) == 4


def test_zip_begins_each_repetition_anew(make_service: Callable[..., WatchedService]) -> None:
    """The longer input starts at its beginning, and on one worker repetitions are as in
    a local pipeline.
    """
    pairs = Dataset.zip(Dataset.range(4), Dataset.range(1000)).repeat(3)
    assert [tuple(map(int, pair)) for pair in make_service(workers=1).read(pairs)] == [
        (n, n) for n in range(4)
    ] * 3


def test_zip_repeats_on_several_workers(service: WatchedService) -> None:
    """Each element comes at most once in a repetition; a worker that is late for a
    repetition finds it over.
    """
    pairs = list(service.read(Dataset.zip(Dataset.range(40), Dataset.range(1000)).repeat(3)))
    first, second = (Counter(int(pair[side]) for pair in pairs) for side in (0, 1))
    assert max(first.values()) <= 3
    assert max(second.values()) <= 3
    assert first.keys() == set(range(40))


def test_zip_with_an_endless_input(service: WatchedService) -> None:
    """An endless input does not keep a finite input from ending; counters count on each
    worker.
    """
    parts = by_task(service, Dataset.zip(numbers(), Dataset.counter()), each=3)
    assert sorted(int(x) for part in parts for x, _ in part) == list(range(COUNT))
    assert all([int(count) for _, count in part] == list(range(len(part))) for part in parts)


def test_one_dataset_zipped_with_itself(service: WatchedService) -> None:
    """A dataset zipped with itself is two sources, which are split independently."""
    dataset = Dataset.range(100)
    pairs = list(service.read(Dataset.zip(dataset, dataset)))
    assert (
        max(Counter(int(a) for a, _ in pairs).values())
        == max(Counter(int(b) for _, b in pairs).values())
        == 1
    )


def test_concatenate_goes_in_order_on_each_worker(service: WatchedService) -> None:
    """Each worker reads the first input and then the second, and each element comes
    once.
    """
    parts = by_task(service, numbers().concatenate(Dataset.range(COUNT, 2 * COUNT)), each=3)
    assert together(parts) == list(range(2 * COUNT))
    assert all(
        [x < COUNT for x in part] == sorted((x < COUNT for x in part), reverse=True)
        for part in parts
    )


def test_choices_are_not_split(service: WatchedService) -> None:
    """Each worker makes all choices, and the inputs to choose from are split."""
    choices = Dataset.from_list([0, 1, 1]).repeat(2)
    dataset = Dataset.choose_from_datasets([numbers(), Dataset.range(COUNT, 2 * COUNT)], choices)
    parts = by_task(service, dataset)
    assert [[int(x >= COUNT) for x in part] for part in parts] == [[0, 1, 1] * 2] * 2
    assert len(set(together(parts))) == 12


def test_choosing_until_all_have_ended(service: WatchedService) -> None:
    """Each element of all inputs comes once with stop_on_empty_dataset=False."""
    inputs = [Dataset.range(start, start + 50) for start in (0, 50, 100)]
    dataset = Dataset.choose_from_datasets(
        inputs, Dataset.range(3).repeat(), stop_on_empty_dataset=False
    )
    assert sorted(map(int, service.read(dataset))) == list(range(150))


@pytest.mark.parametrize("weights", [None, [0.2, 0.3, 0.5]])
def test_samples_are_split(service: WatchedService, weights: list[float] | None) -> None:
    """Each worker samples its own part of the inputs, and together they give each
    element once.
    """
    inputs = [Dataset.range(0, 50), Dataset.range(50, 100), Dataset.range(100, 150)]
    parts = by_task(service, Dataset.sample_from_datasets(inputs, weights))
    assert together(parts) == list(range(150))


def test_samples_repeat(service: WatchedService) -> None:
    """All inputs start anew with a repetition."""
    dataset = Dataset.sample_from_datasets([Dataset.range(0, 50), Dataset.range(50, 100)]).repeat(3)
    assert Counter(map(int, service.read(dataset))) == dict.fromkeys(range(100), 3)


def test_trees_of_inputs(service: WatchedService) -> None:
    """Sources are numbered from left to right through all levels."""
    pair = Dataset.zip(Dataset.range(10), Dataset.range(10, 1000)).map(lambda a, b: a)
    sampled = Dataset.sample_from_datasets(
        [Dataset.range(20, 30), Dataset.range(30, 40).enumerate().map(max)]
    )
    dataset = pair.concatenate(Dataset.range(10, 20)).concatenate(sampled)
    assert sorted(map(int, service.read(dataset))) == list(range(40))


# --- datasets that functions make


def test_flat_map_runs_nested_datasets_in_full(service: WatchedService) -> None:
    """An outer element goes to one worker, with all elements that the function makes of
    it.
    """
    dataset = Dataset.range(20).flat_map(lambda x: Dataset.range(5).map(lambda y: 5 * x + y))
    parts = by_task(service, dataset)
    assert together(parts) == list(range(100))
    assert all(
        part[i : i + 5] == list(range(part[i], part[i] + 5))
        for part in parts
        for i in range(0, len(part), 5)
    )


@pytest.mark.parametrize("parallel", [None, 2])
def test_interleave_runs_nested_datasets_in_full(
    service: WatchedService, parallel: int | None
) -> None:
    """interleave runs nested datasets in full, also on threads."""
    dataset = Dataset.range(20).interleave(
        lambda x: Dataset.range(5).map(lambda y: 5 * x + y),
        cycle_length=3,
        num_parallel_calls=parallel,
    )
    assert together(by_task(service, dataset)) == list(range(100))


def test_flat_map_in_flat_map(service: WatchedService) -> None:
    """Datasets that a function returns are not split, at any depth."""
    dataset = Dataset.range(4).flat_map(
        lambda x: Dataset.range(3).flat_map(
            lambda y: Dataset.from_tensors(y).repeat(2).map(lambda z: 10 * x + z)
        )
    )
    expected = {10 * x + y: 2 for x in range(4) for y in range(3)}
    assert Counter(map(int, service.read(dataset))) == expected


def test_group_by_window_runs_nested_datasets_in_full(service: WatchedService) -> None:
    """Sources in the function of group_by_window are not split, and groups have
    elements of one worker.
    """
    dataset = numbers().group_by_window(
        lambda x: x % 2,
        lambda key, group: Dataset.zip(group.batch(100), Dataset.range(7, 9)),
        window_size=10,
    )
    found = [pair for part in by_task(service, dataset) for pair in part]
    assert {int(number) for _, number in found} == {7}
    assert sorted(int(x) for batch, _ in found for x in batch) == list(range(COUNT))
    assert all(len(set(batch % 2)) == 1 for batch, _ in found)


def test_windows_are_of_one_worker(service: WatchedService) -> None:
    """window(n) collects elements of its worker, and its windows can run beside other
    sources in full.
    """
    dataset = (
        numbers()
        .window(10, drop_remainder=True)
        .flat_map(lambda group: Dataset.zip(group.batch(10), Dataset.range(3)))
    )
    parts = by_task(service, dataset)
    assert {len(batch) for part in parts for batch, _ in part} == {10}
    rows = [x for part in parts for batch, _ in part for x in batch.tolist()]
    assert COUNT - 18 <= len(rows) == len(set(rows))


def test_repeat_in_a_function_is_its_own(service: WatchedService) -> None:
    """repeat in a function repeats only the function's dataset, and repeat outside
    repeats everything.
    """
    dataset = Dataset.range(20).flat_map(lambda x: Dataset.from_tensors(x).repeat(3))
    assert Counter(map(int, service.read(dataset))) == dict.fromkeys(range(20), 3)
    assert Counter(map(int, service.read(dataset.repeat(2)))) == dict.fromkeys(range(20), 6)
