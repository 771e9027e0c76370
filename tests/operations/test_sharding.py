"""Tests of ``operations.sharding``: the part that each worker of a static policy
reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.dataset import (
    SHARD_HINT,
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    Options,
    TextLineDataset,
    TFRecordDataset,
)
from zmqdata.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
)
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context, mixed_seed
from zmqdata.nodes.base import Node
from zmqdata.operations.files import ListFiles, TFRecords
from zmqdata.operations.mapping import Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.selections import StaticShard, WithOptions
from zmqdata.operations.sharding import shard_statically
from zmqdata.operations.shuffle import Shuffle

FILES, RECORDS = 10, 4
TEN = Dataset.range(10)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Ten text files of four lines, each line ``file:line``."""
    folder = tmp_path_factory.mktemp("lines")
    paths = [folder / f"{number}.txt" for number in range(FILES)]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{number}:{line}\n" for line in range(RECORDS)))
    return list(map(str, paths))


def expected(files: Any = range(FILES)) -> list[str]:
    return [f"{file}:{line}" for file in files for line in range(RECORDS)]


def plain(element: Any) -> Any:
    if isinstance(element, tuple):
        return tuple(map(plain, element))
    return element.tolist() if isinstance(element, (np.ndarray, np.generic)) else element


def part_of(dataset: Any, policy: str, count: int, index: int, seed: int | None = 3) -> list[Any]:
    """Read the elements of worker ``index`` of ``count``, whose task has its own
    seed.
    """
    node = shard_statically(dataset.node, policy, count, index, seed)
    iterator = make_iterator(node, Context(seed=mixed_seed(99, index) if seed is not None else 7))
    try:
        return list(map(plain, iterator))
    finally:
        iterator.close()


def parts_of(dataset: Any, policy: str, count: int) -> list[list[Any]]:
    return [part_of(dataset, policy, count, index) for index in range(count)]


def assert_whole(dataset: Any, policy: str, count: int) -> None:
    """Check that the parts are disjoint and together are the elements of a single
    worker.
    """
    parts = Counter(
        element for part in parts_of(dataset, policy, count) for element in map(repr, part)
    )
    assert parts == Counter(map(repr, map(plain, dataset)))


# --- DATA


def test_data_takes_every_nth_element() -> None:
    """Worker i of n gets elements i, i + n and so on."""
    assert part_of(Dataset.range(20), "DATA", 5, 1) == [1, 6, 11, 16]


def test_data_shards_whole_batches() -> None:
    """The shard comes last, so that batches stay whole."""
    assert part_of(Dataset.range(20).batch(3), "DATA", 5, 1) == [[3, 4, 5], [18, 19]]


def test_data_goes_before_what_only_prefetches() -> None:
    """A prefetch and options at the end stay at the end."""
    dataset = TEN.map(int).prefetch(2).with_options(Options()).prefetch(3)
    node = shard_statically(dataset.node, "DATA", 2, 1)
    kinds = []
    while node.inputs:
        kinds.append(type(node))
        node = node.inputs[0]
    assert kinds == [
        Prefetch,
        WithOptions,
        Prefetch,
        StaticShard,
        Map,
    ]


def test_data_may_leave_a_worker_without_elements() -> None:
    """Fewer elements than workers are not an error."""
    assert parts_of(Dataset.range(2), "DATA", 3) == [[0], [1], []]


@given(st.integers(0, 40), st.integers(1, 6), st.integers(1, 7))
def test_data_shares_out_everything_once(size: int, batch: int, count: int) -> None:
    """The parts are disjoint and complete, for any numbers."""
    assert_whole(Dataset.range(size).batch(batch).shuffle(5, seed=1), "DATA", count)


@pytest.mark.parametrize(
    "dataset",
    [
        TEN.shuffle(10),
        TEN.map(int, num_parallel_calls=3, deterministic=False),
        TEN.random_map(lambda x, rng: int(rng.integers(1 << 30))),
        Dataset.sample_from_datasets([TEN, TEN.map(lambda x: x + 100)]),
        TEN.interleave(
            lambda x: Dataset.range(x, x + 3),
            num_parallel_calls=2,
            deterministic=False,
            cycle_length=4,
        ),
    ],
    ids=["shuffle", "map", "random_map", "sample", "interleave"],
)
def test_workers_agree_on_what_is_counted(dataset: Any) -> None:
    """Random and unordered operations below the shard run alike on all workers, so that
    no element is lost or doubled.
    """
    parts = parts_of(dataset, "DATA", 3)
    whole = part_of(dataset, "DATA", 1, 0)
    merged = [parts[number % 3][number // 3] for number in range(len(whole))]
    assert merged == whole


def test_without_a_seed_that_of_the_task_holds() -> None:
    """Tasks with equal seeds also agree."""
    parts = [part_of(TEN.shuffle(10), "DATA", 2, index, seed=None) for index in range(2)]
    assert sorted(parts[0] + parts[1]) == list(range(10))


# --- FILE


def readers(names: list[str]) -> dict[str, Any]:
    listed = Dataset.list_files(names, shuffle=False)
    return {
        "reader": TextLineDataset(names),
        "reader of a dataset": TextLineDataset(Dataset.from_tensor_slices(names)),
        "flat_map of a class": listed.flat_map(TextLineDataset),
        "flat_map of a partial": listed.flat_map(partial(TextLineDataset, buffer_size=9)),
        "flat_map of a lambda": listed.flat_map(lambda name: TextLineDataset(name).map(str)),
        "interleave": listed.interleave(TextLineDataset, cycle_length=3),
        "parallel interleave": listed.interleave(
            TextLineDataset, num_parallel_calls=2, deterministic=False
        ),
        "shuffled": Dataset.list_files(names).flat_map(TextLineDataset),
        "nested": listed.flat_map(
            lambda name: Dataset.from_tensor_slices([name]).flat_map(TextLineDataset)
        ),
        "zipped inside": listed.flat_map(
            lambda name: Dataset.zip(TextLineDataset(name), Dataset.range(99))
        ),
        "behind much": listed.flat_map(TextLineDataset)
        .map(str)
        .filter(bool)
        .shuffle(9)
        .batch(1)
        .unbatch()
        .prefetch(2),
        "over another": listed.flat_map(TextLineDataset).flat_map(
            lambda x: Dataset.from_tensors(x)
        ),
        "counted": listed.flat_map(TextLineDataset).assert_cardinality(FILES * RECORDS),
    }


@pytest.mark.parametrize("policy", ["FILE", "FILE_OR_DATA"])
@pytest.mark.parametrize("kind", readers([__file__]))
def test_files_are_shared_out(names: list[str], kind: str, policy: str) -> None:
    """Worker 3 of 5 gets files 3 and 8 whole, and all files are read once, whatever
    reads them.
    """
    dataset = readers(names)[kind]
    assert_whole(dataset, policy, 5)
    if kind != "shuffled":
        lines = [
            line[0] if isinstance(line, tuple) else line for line in part_of(dataset, policy, 5, 3)
        ]
        assert sorted(lines) == expected([3, 8])


def test_the_order_of_files_stays(names: list[str]) -> None:
    """Without a shuffle a worker reads its files in their order."""
    dataset = Dataset.list_files(names, shuffle=False).flat_map(TextLineDataset)
    assert part_of(dataset, "FILE", 5, 3) == expected([3, 8])


def test_interleaved_files_are_interleaved(names: list[str]) -> None:
    """The files of a worker take turns."""
    dataset = (
        Dataset.list_files(names, shuffle=False)
        .interleave(TextLineDataset, cycle_length=10)
        .prefetch(2)
    )
    assert part_of(dataset, "FILE_OR_DATA", 5, 3) == [
        f"{file}:{line}" for line in range(RECORDS) for file in (3, 8)
    ]


def test_all_inputs_of_zip_and_concatenate_are_shared_out(names: list[str]) -> None:
    """Each input is divided separately, even if both are the same dataset."""
    lines = Dataset.list_files(names, shuffle=False).flat_map(TextLineDataset)
    zipped = Dataset.zip(lines, TextLineDataset(names))
    assert part_of(zipped, "FILE", 5, 3) == [(line, line) for line in expected([3, 8])]
    assert_whole(zipped, "FILE", 5)
    twice = lines.concatenate(lines)
    assert part_of(twice, "FILE_OR_DATA", 5, 3) == expected([3, 8, 3, 8])


def test_names_are_shuffled_after_they_are_shared_out(names: list[str]) -> None:
    """The first shuffle of the names moves after the shard with its parameters, and the
    others are removed.
    """
    listed = Dataset.list_files(names, seed=4).map(str).shuffle(7, seed=5)
    node = shard_statically(listed.flat_map(TextLineDataset).node, "FILE", 2, 1)
    shuffle = node.inputs[0]
    assert isinstance(shuffle, Shuffle)
    assert (shuffle.buffer_size, shuffle.seed) == (None, 4)
    shard = shuffle.input
    assert isinstance(shard, StaticShard)
    assert (shard.num_shards, shard.index, shard.of_files) == (2, 1, True)
    assert isinstance(shard.input, Map)
    source = shard.input.input
    assert isinstance(source, ListFiles)
    assert not source.shuffle


def test_parts_of_names_are_those_of_a_local_reading(names: list[str]) -> None:
    """Shards of the files that take and skip leave of an order are, together, those of
    a local reading.
    """
    listed = Dataset.list_files(names, shuffle=False)
    whole = listed.shuffle(10, seed=4, reshuffle_each_iteration=False)
    for part in (whole.take(4), whole.skip(4)):
        assert_whole(part.flat_map(TextLineDataset), "FILE", 2)


def test_shuffled_names_come_in_another_order(names: list[str]) -> None:
    """The shuffle remains, and shuffles only the files of this worker."""
    dataset = Dataset.list_files(names, seed=4).flat_map(TextLineDataset)
    part = part_of(dataset, "FILE", 2, 0)
    assert sorted(part) == expected(range(0, 10, 2))
    assert part != sorted(part)


@pytest.mark.parametrize(("endless", "size"), [(True, FILES), (False, None)])
def test_shuffling_endless_names_has_an_end(
    names: list[str], endless: bool, size: int | None
) -> None:
    """A shuffle of names that moves after an endless repeat has a buffer for all
    names.
    """
    repeated = Dataset.list_files(names).repeat(-1 if endless else 2)
    shuffle = shard_statically(repeated.flat_map(TextLineDataset).node, "FILE", 2, 0).inputs[0]
    assert isinstance(shuffle, Shuffle)
    assert shuffle.buffer_size == size
    lines = make_iterator(shuffle, Context())
    assert {next(lines) for _ in range(FILES)} <= set(names)


def test_shuffling_endless_names_of_unknown_number_has_an_end(names: list[str]) -> None:
    """The buffer has a large size then."""
    kept = Shuffle(
        inputs=(Dataset.list_files(names, shuffle=False).filter(bool).node,), buffer_size=None
    )
    dataset = FlatMap(inputs=(Repeat(inputs=(kept,), count=-1),), function=TextLineDataset)
    shuffle = shard_statically(dataset, "FILE", 2, 0).inputs[0]
    assert isinstance(shuffle, Shuffle)
    assert shuffle.buffer_size == 10_000


def test_all_readers_of_files_are_known(tmp_path: Path) -> None:
    """Fixed-length records and TFRecords are sharded as lines are."""
    paths = [tmp_path / str(number) for number in range(3)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 2)
    assert parts_of(FixedLengthRecordDataset(paths, 1), "FILE", 3) == [
        [bytes([number])] * 2 for number in range(3)
    ]
    records = shard_statically(TFRecordDataset(paths).node, "FILE", 3, 1)
    assert isinstance(records, TFRecords)
    assert records.filenames == (str(paths[1]),)


@pytest.mark.parametrize("policy", ["FILE", "FILE_OR_DATA"])
@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("listed", [True, False])
def test_each_worker_needs_a_file(names: list[str], policy: str, index: int, listed: bool) -> None:
    """Each worker fails once if files are fewer than workers, and names the operation
    and its number of files.
    """
    few = (
        Dataset.list_files(names[:4]).flat_map(TextLineDataset)
        if listed
        else TextLineDataset(names[:4])
    )
    with pytest.raises(
        InvalidArgumentError,
        match=r"test_sharding.* has 4 files, not enough for the required 5 sha",
    ):
        part_of(few, policy, 5, index)
    if listed:
        iterator = make_iterator(shard_statically(few.node, policy, 5, index), Context())
        with pytest.raises(InvalidArgumentError):
            next(iterator)
        assert list(iterator) == []


def test_no_file_is_enough_for_nobody() -> None:
    """An empty list of names yields nothing on every worker, as in tf.data."""
    assert parts_of(TextLineDataset([]), "FILE", 3) == [[], [], []]
    empty = Dataset.from_tensor_slices(np.array([], np.str_)).flat_map(TextLineDataset)
    assert parts_of(empty, "FILE", 3) == [[], [], []]


class Words:
    """A sequence with random access."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    "dataset",
    [
        TEN,
        Dataset.from_tensors(1),
        Dataset.from_tensor_slices([1, 2, 3]),
        Dataset.from_generator(lambda: iter([1, 2, 3])),
        Dataset.from_list([1, 2, 3]),
        Dataset.from_source(Words()),
        Dataset.from_iterable([1, 2, 3]),
        Dataset.list_files(__file__),
        TEN.flat_map(Dataset.from_tensors),
        TEN.batch(2).prefetch(1),
        TEN.enumerate(),
        CsvDataset(__file__, [""]),
    ],
    ids=lambda dataset: dataset.node.operation,
)
def test_other_sources_cannot_be_shared_out_by_file(dataset: Any) -> None:
    """FILE names the operation and the policies that work, and FILE_OR_DATA divides the
    elements.
    """
    with pytest.raises(
        NotFoundError,
        match=r"(Found an unshardable source dataset: |walked to ).*test_sharding.*DATA",
    ):
        part_of(dataset, "FILE", 2, 0)
    node = shard_statically(dataset.node, "FILE_OR_DATA", 2, 0)
    assert any(
        isinstance(inner, StaticShard) and not inner.of_files for inner in (node, *node.inputs)
    )


def test_an_operation_over_all_elements_is_not_looked_through(names: list[str]) -> None:
    """``unique`` and the like would yield other elements than the whole, so
    FILE_OR_DATA takes DATA.
    """
    dataset = TextLineDataset(names).map(lambda line: line[-1]).unique()
    with pytest.raises(
        NotFoundError,
        match=r"Did not find a shardable source, walked to unique\(\) at test_sharding",
    ):
        part_of(dataset, "FILE", 2, 0)
    assert_whole(dataset, "FILE_OR_DATA", 2)


def test_one_source_without_files_is_enough_for_data(names: list[str]) -> None:
    """FILE_OR_DATA divides the elements of a zip of files and numbers, and leaves the
    files whole.
    """
    dataset = Dataset.zip(TextLineDataset(names), Dataset.range(99))
    assert part_of(dataset, "FILE_OR_DATA", 20, 3) == [("0:3", 3), ("5:3", 23)]


def test_one_worker_takes_all() -> None:
    """A single worker has nothing to share: FILE leaves any pipeline unchanged, as in
    tf.data.
    """
    assert shard_statically(TEN.node, "FILE", 1, 0) is TEN.node
    assert part_of(TEN, "FILE_OR_DATA", 1, 0) == list(range(10))


def test_a_function_that_fails_is_an_error(names: list[str]) -> None:
    """A failure for the first name is raised with the place of the operation, and does
    not select DATA instead.
    """

    def failing(name: str) -> Any:
        raise KeyError(name)

    dataset = Dataset.list_files(names).interleave(failing)
    with pytest.raises(PipelineError, match=r"interleave\(failing\) at test_sharding.*KeyError"):
        part_of(dataset, "FILE_OR_DATA", 2, 0)


def test_a_function_is_called_once_more_than_for_reading(names: list[str]) -> None:
    """The function is called with the first name, and with no other, to see what it
    opens.
    """
    called: list[str] = []

    def opened(name: str) -> Any:
        called.append(name)
        return TextLineDataset(name)

    dataset = Dataset.list_files(names, shuffle=False).flat_map(opened)
    shard_statically(dataset.node, "FILE", 2, 1)
    assert called == names[:1]


def test_names_that_fail_count(names: list[str]) -> None:
    """A failing name keeps its place in a shard and counts as a file. Workers that
    later pass it raise it, too.
    """

    def checked(name: str) -> str:
        if name in (names[1], names[7]):
            raise ValueError(name)
        return name

    kept = Map(inputs=(Dataset.list_files(names, shuffle=False).node,), function=checked)
    shards = [
        StaticShard(inputs=(kept,), num_shards=5, index=index, of_files=True) for index in range(5)
    ]
    outcomes = [_outcomes(shard) for shard in shards]
    assert outcomes[1] == ["raised", names[6], "raised"]
    assert outcomes[2] == ["raised", names[2], "raised"]
    assert [name for part in outcomes for name in part if name != "raised"] == [
        names[number] for number in (0, 5, 6, 2, 3, 8, 4, 9)
    ]


def _outcomes(node: Node) -> list[Any]:
    iterator, found = make_iterator(node, Context()), []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except PipelineError:
            found.append("raised")


# --- HINT


def test_hints_are_filled_in(names: list[str]) -> None:
    """A hint before the reader shares out whole files, and after it every nth line. A
    real shard stays.
    """
    listed = Dataset.list_files(names, shuffle=False)
    assert part_of(Dataset.range(20).shard(SHARD_HINT, SHARD_HINT), "HINT", 5, 1) == [1, 6, 11, 16]
    by_file = listed.shard(SHARD_HINT, SHARD_HINT).flat_map(TextLineDataset)
    assert part_of(by_file, "HINT", 5, 3) == expected([3, 8])
    by_line = listed.flat_map(TextLineDataset).shard(SHARD_HINT, SHARD_HINT)
    assert part_of(by_line, "HINT", 4, 3) == [f"{file}:3" for file in range(FILES)]
    assert part_of(Dataset.range(6).shard(2, 1).shard(SHARD_HINT, 0), "HINT", 3, 1) == [3]


def test_without_a_hint_all_workers_read_all() -> None:
    """The pipeline stays the same object."""
    node = Dataset.range(20).shard(1, 0).node
    assert shard_statically(node, "HINT", 5, 1) is node


@pytest.mark.parametrize("shuffled", [True, False])
def test_hints_share_out_shuffled_names_once(names: list[str], shuffled: bool) -> None:
    """An order drawn below the hint is the same for all workers."""
    hinted = (
        Dataset.list_files(names, shuffle=shuffled)
        .shard(SHARD_HINT, SHARD_HINT)
        .interleave(TextLineDataset)
    )
    assert sorted(line for part in parts_of(hinted, "HINT", 3) for line in part) == expected()


def test_a_hint_for_files_needs_a_file_for_each_worker(names: list[str]) -> None:
    """A hint for files needs a file for each worker, as FILE does. A hint for elements
    has no such need.
    """
    listed = Dataset.list_files(names[:4], shuffle=False).shard(SHARD_HINT, SHARD_HINT)
    with pytest.raises(
        InvalidArgumentError, match="4 files, not enough for the required 5 shards/workers"
    ):
        part_of(listed.map(str).flat_map(TextLineDataset), "HINT", 5, 0)
    assert part_of(listed.map(str), "HINT", 5, 4) == []
    assert part_of(listed.flat_map(Dataset.from_tensors), "HINT", 5, 4) == []


def test_hints_are_found_everywhere_in_the_tree() -> None:
    """Hints are filled in below a zip that uses a dataset twice, and in the dataset of
    choices.
    """
    hinted = Dataset.range(6).shard(SHARD_HINT, SHARD_HINT)
    assert part_of(Dataset.zip(hinted, hinted), "HINT", 2, 1) == [(1, 1), (3, 3), (5, 5)]
    choices = Dataset.from_tensor_slices([0, 1, 0, 1]).shard(SHARD_HINT, SHARD_HINT)
    chosen = Dataset.choose_from_datasets([TEN, TEN.map(lambda x: x + 100)], choices)
    assert part_of(chosen, "HINT", 2, 1) == [100, 101]


def test_parts_are_kept_in_places_of_their_own(tmp_path: Path) -> None:
    """Files that are written after a shard hold a part, so that workers on the same
    disk do not read each other's.
    """
    hinted = Dataset.range(6).shard(SHARD_HINT, SHARD_HINT)
    for dataset in (
        hinted.cache(str(tmp_path / "cache")),
        hinted.snapshot(str(tmp_path / "snapshot")),
    ):
        assert parts_of(dataset, "HINT", 2) == [[0, 2, 4], [1, 3, 5]]
        assert parts_of(dataset, "HINT", 2) == [[0, 2, 4], [1, 3, 5]]
    assert part_of(hinted.cache(), "HINT", 2, 1) == [1, 3, 5]


# --- arguments


@pytest.mark.parametrize("policy", ["OFF", "DYNAMIC", "FILE", "DATA", "FILE_OR_DATA"])
@pytest.mark.parametrize(
    "dataset",
    [
        TEN.shard(SHARD_HINT, SHARD_HINT),
        Dataset.zip(TEN, TEN.shard(SHARD_HINT, SHARD_HINT).batch(2)),
    ],
)
def test_hints_are_for_their_policy_only(dataset: Any, policy: str) -> None:
    """Under another policy the error names the operation and the policy that it
    needs.
    """
    with pytest.raises(
        FailedPreconditionError,
        match=r"test_sharding.*tf\.data service with `ShardingPolicy\.HINT` processing mode",
    ):
        shard_statically(dataset.node, policy, 5, 1)


@pytest.mark.parametrize("policy", ["OFF", "DYNAMIC"])
def test_other_policies_change_nothing(policy: str) -> None:
    """Other policies have no shards, so that the numbers do not matter."""
    assert shard_statically(TEN.node, policy, 0, 0) is TEN.node


@pytest.mark.parametrize(
    ("policy", "count", "index", "text"),
    [
        ("DATA", 0, 0, "num_workers should be >= 1, currently 0"),
        ("FILE_OR_DATA", 2, 5, "index should be >= 0 and < 2, currently 5"),
        ("HINT", 2, -1, "index should be >= 0 and < 2, currently -1"),
        (
            "NONE",
            2,
            0,
            "no sharding policy 'NONE'; expected one of OFF, DYNAMIC, FILE, DATA, FILE_OR_DATA, "
            "HINT",
        ),
    ],
)
def test_arguments_are_checked(policy: str, count: int, index: int, text: str) -> None:
    """The error names what came and what was expected."""
    with pytest.raises(InvalidArgumentError, match=text):
        shard_statically(TEN.node, policy, count, index)


def test_a_tree_with_very_many_paths_is_rewritten_at_once() -> None:
    """A node that many paths reach is visited once."""
    dataset: Any = TEN.shard(SHARD_HINT, SHARD_HINT)
    for _ in range(40):
        dataset = Dataset.zip(dataset, dataset)
    node = shard_statically(dataset.node, "HINT", 2, 0)
    assert node.inputs[0] is node.inputs[1]
    with pytest.raises(FailedPreconditionError):
        shard_statically(dataset.node, "DATA", 2, 0)


STEPS: list[Callable[[Any], Any]] = [
    lambda x: x.map(str),
    lambda x: x.shuffle(3),
    lambda x: x.batch(2).unbatch(),
    lambda x: x.prefetch(2),
    lambda x: x.filter(lambda line: not line.endswith("2")),
    lambda x: x.concatenate(x),
    lambda x: x.flat_map(lambda line: Dataset.from_tensors(line)),
    lambda x: x.repeat(2),
    lambda x: x.with_options(Options()),
]


@given(
    st.lists(st.sampled_from(STEPS), max_size=4),
    st.integers(1, 5),
    st.sampled_from(["FILE", "DATA", "FILE_OR_DATA"]),
)
def test_chains_are_shared_out_once(
    names: list[str], steps: list[Any], count: int, policy: str
) -> None:
    """No line is lost or doubled, whatever follows the reader."""
    dataset: Any = Dataset.list_files(names[:5]).flat_map(TextLineDataset)
    for step in steps:
        dataset = step(dataset)
    assert_whole(dataset, policy, count)


def test_rewriting_leaves_the_pipeline_as_it_was(names: list[str]) -> None:
    """The given tree is not changed."""
    node = TextLineDataset(names).node
    before = replace(node)
    shard_statically(node, "FILE", 2, 1)
    assert node == before
