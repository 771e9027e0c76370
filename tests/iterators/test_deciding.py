"""Facts about skipped elements: the next attempt skips the same elements, whatever
fails then.
"""

from __future__ import annotations

import gzip
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from tests.iterators.checks import provided
from tests.iterators.watch import RecordingWatch
from zmqdata.dataset import Dataset
from zmqdata.decisions import Decision, Decisions
from zmqdata.errors import DataLossError, PipelineError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.deciding import Decider, Deciding, Failures
from zmqdata.nodes.base import Node
from zmqdata.operations.batch import Batch, ListBatch
from zmqdata.operations.cache import Cache
from zmqdata.operations.files import TextLines
from zmqdata.operations.folds import Scan
from zmqdata.operations.grouping import GroupByWindow
from zmqdata.operations.limits import Skip, Take, TakeWhile
from zmqdata.operations.mapping import Collate, Filter, GuardedMap, Map
from zmqdata.operations.nested import FlatMap, Interleave
from zmqdata.operations.padding import BucketBySequenceLength
from zmqdata.operations.parallel import ParallelInterleave, ParallelMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.random_map import RandomMap
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.selections import IgnoreErrors, Shard
from zmqdata.operations.sequences import FromSource
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import Range
from zmqdata.operations.unbatch import MapBatches
from zmqdata.worker.tasks.ledger import decisions_needed

Function = Callable[[Any], Any]
SOURCE = Range(start=0, stop=40)


def nested(function: Function, **arguments: Any) -> Function:
    """Make a function that returns a dataset of three elements and skips failures."""

    def opened(x: Any) -> Any:
        return Dataset.range(3).map(
            lambda y: function(10 * int(x) + int(y)), on_error="skip", **arguments
        )

    return opened


def mapped(function: Function, source: Node = SOURCE) -> Node:
    return GuardedMap(inputs=(source,), function=function, on_error="skip", site="a.py:7")


def failing(function: Function, source: Node = SOURCE) -> Node:
    return Map(inputs=(source,), function=function, site="a.py:7")


def failing_inside(function: Function) -> Function:
    """Make a function that fails, or returns a dataset of three elements, some of which
    fail.
    """

    def opened(x: Any) -> Any:
        function(x + 1000)
        return Dataset.range(3).map(lambda y: function(10 * int(x) + int(y))).batch(2)

    return opened


def ignoring(node: Node) -> Node:
    return ahead(IgnoreErrors(inputs=(node,), log_warning=False))


def ahead(node: Node) -> Node:
    return Prefetch(inputs=(node,), buffer_size=5)


PIPELINES: dict[str, Callable[[Function], Node]] = {
    "map": mapped,
    "two maps": lambda function: mapped(function, ahead(mapped(function))),
    "behind a batch": lambda function: Batch(inputs=(ahead(mapped(function)),), batch_size=3),
    "behind a shuffle": lambda function: Shuffle(inputs=(mapped(function),), buffer_size=8, seed=4),
    "parallel": lambda function: ahead(
        ParallelMap(
            inputs=(SOURCE,),
            function=function,
            on_error="skip",
            num_parallel_calls=3,
            site="a.py:7",
        )
    ),
    "ignored": lambda function: ahead(
        IgnoreErrors(
            inputs=(Map(inputs=(SOURCE,), function=function, site="a.py:7"),),
            log_warning=False,
        )
    ),
    "ignored behind a filter": lambda function: ignoring(
        Filter(inputs=(SOURCE,), predicate=lambda x: int(function(x)) % 3 != 1, site="a.py:7")
    ),
    "ignored behind batches of some": lambda function: ignoring(
        Batch(
            inputs=(
                Filter(
                    inputs=(failing(function),), predicate=lambda x: int(x) % 3 != 1, site="a.py:7"
                ),
            ),
            batch_size=3,
        )
    ),
    "ignored behind lists of some": lambda function: ignoring(
        Batch(
            inputs=(
                Collate(
                    inputs=(ListBatch(inputs=(failing(function),), batch_size=2),),
                    function=lambda pair: function(pair[0] + 1000),
                    site="a.py:7",
                ),
            ),
            batch_size=2,
        )
    ),
    "ignored behind a shuffle": lambda function: ignoring(
        Shuffle(inputs=(failing(function),), buffer_size=8, seed=4)
    ),
    "ignored behind a parallel map": lambda function: ignoring(
        Batch(
            inputs=(
                ParallelMap(
                    inputs=(failing(function),),
                    function=function,
                    num_parallel_calls=3,
                    site="a.py:7",
                ),
            ),
            batch_size=2,
        )
    ),
    "ignored behind retries": lambda function: ignoring(
        Batch(
            inputs=(GuardedMap(inputs=(SOURCE,), function=function, retries=1, site="a.py:7"),),
            batch_size=2,
        )
    ),
    "ignored behind skips": lambda function: ignoring(
        Batch(inputs=(mapped(function),), batch_size=2)
    ),
    "ignored behind random draws": lambda function: ignoring(
        Batch(
            inputs=(
                RandomMap(
                    inputs=(SOURCE,),
                    function=lambda x, rng: function(x) + rng.integers(9),
                    seed=4,
                    site="a.py:7",
                ),
            ),
            batch_size=2,
        )
    ),
    "ignored behind a scan": lambda function: ignoring(
        Scan(
            inputs=(failing(function),),
            initial_state=np.int64(0),
            function=lambda state, x: (state + function(x + 100), state),
            site="a.py:7",
        )
    ),
    "ignored behind an end": lambda function: ignoring(
        TakeWhile(
            inputs=(failing(function),), predicate=lambda x: function(x + 100) < 138, site="a.py:7"
        )
    ),
    "ignored behind lengths": lambda function: ignoring(
        BucketBySequenceLength(
            inputs=(
                Map(
                    inputs=(SOURCE,),
                    function=lambda x: np.zeros(int(x) % 7, np.int64),
                    site="a.py:7",
                ),
            ),
            length_function=lambda x: int(function(len(x))),
            boundaries=(4,),
            batch_sizes=(2, 3),
            padded_shapes=None,
            padding_values=None,
            pad_to_bucket_boundary=False,
            no_padding=False,
            drop_remainder=False,
            site="a.py:7",
        )
    ),
    "ignored behind mapped batches": lambda function: ignoring(
        MapBatches(
            inputs=(failing(function),),
            function=lambda x: x + function(x[0] + 100),
            batch_size=3,
            drop_remainder=False,
            site="a.py:7",
        )
    ),
    "ignored behind groups": lambda function: ignoring(
        GroupByWindow(
            inputs=(failing(function),),
            key_function=lambda x: function(x + 100) % 2,
            function=lambda key, group: group.batch(3),
            window_size=3,
            wrap=Dataset._wrap,
            site="a.py:7",
        )
    ),
    "ignored behind nested ones": lambda function: ignoring(
        FlatMap(inputs=(SOURCE,), function=failing_inside(function))
    ),
    "ignored behind nested ones in turn": lambda function: ignoring(
        Interleave(
            inputs=(SOURCE,), function=failing_inside(function), cycle_length=3, block_length=2
        )
    ),
    "ignored behind nested ones read ahead": lambda function: ignoring(
        ParallelInterleave(
            inputs=(SOURCE,),
            function=failing_inside(function),
            cycle_length=3,
            block_length=1,
            num_parallel_calls=2,
            deterministic=True,
        )
    ),
    "ignored behind repetitions": lambda function: ignoring(
        Batch(
            inputs=(Repeat(inputs=(failing(function, Range(start=0, stop=7)),), count=5),),
            batch_size=3,
        )
    ),
    "ignored behind shards": lambda function: ignoring(
        Shard(inputs=(Skip(inputs=(failing(function),), count=3),), num_shards=2, index=1)
    ),
    "again and again": lambda function: Repeat(
        inputs=(mapped(function, Range(start=0, stop=7)),), count=5
    ),
    "nested": lambda function: ahead(FlatMap(inputs=(SOURCE,), function=nested(function))),
    "nested in turn": lambda function: ahead(
        Interleave(inputs=(SOURCE,), function=nested(function), cycle_length=3, block_length=2)
    ),
    "nested and read ahead": lambda function: ParallelInterleave(
        inputs=(SOURCE,),
        function=nested(function, num_parallel_calls=2),
        cycle_length=3,
        block_length=1,
        num_parallel_calls=2,
        deterministic=True,
    ),
}


FEW = Range(start=0, stop=9)
OF_REPETITIONS: dict[str, Callable[[Function], Node]] = {
    "an endless one": lambda function: Repeat(
        inputs=(Take(inputs=(Repeat(inputs=(mapped(function, FEW),), count=-1),), count=20),),
        count=3,
    ),
    "a cache": lambda function: Repeat(
        inputs=(Cache(inputs=(mapped(function, FEW),), filename=""),), count=6
    ),
}


class Life:
    """Run a task again and again, from the beginning or from a state, with other faults
    each time.

    Args:
        make: its pipeline, of the function that fails.
        seed: decides what fails when, and where attempts begin and end.
        is_split: whether it is given splits, or reads all of its source.
    """

    def __init__(self, make: Callable[[Function], Node], seed: int, is_split: bool = True) -> None:
        self.make, self.is_split = make, is_split
        self.random = random.Random(seed)
        self.truth: list[Any] = []
        self.states: list[tuple[int, Any, int]] = []
        self.decisions = Decisions()

    def live(self) -> None:
        """Run an attempt, which repeats the known elements and makes some more."""
        begin = self.random.choice([None, *self.states])
        known = Decisions(list(self.decisions.entries))
        if begin is not None:
            known.trim(begin[2])  # the dispatcher has dropped the others
        deciding = Deciding(known.base, tuple(known.entries), lambda seconds: None)
        if begin is not None:
            deciding.leap(begin[2])
        providers = provided([[(0, 20), (20, 40)]])().providers if self.is_split else None
        node = self.make(self._faulty())
        iterator = make_iterator(node, Context(seed=7, providers=providers, deciding=deciding))
        number = 0
        if begin is not None:
            number = begin[0]
            iterator.restore(begin[1])
        try:
            self._run(iterator, deciding, number, number + self.random.randrange(1, 25))
        finally:
            iterator.close()

    def _run(self, iterator: ElementIterator, deciding: Deciding, number: int, stop: int) -> None:
        for at in range(number, stop):
            if self.random.random() < 0.3:
                self._keep(deciding)
                deciding.seal()
                state = iterator.state()
                content = msgspec.msgpack.decode(msgspec.msgpack.encode(state))
                self.states.append((at, content, decisions_needed(state)))
            element = np.asarray(next(iterator, -1)).tolist()
            self._keep(deciding)
            self.truth[at:] = self.truth[at:] or [element]
            assert self.truth[at] == element, f"element {at}"

    def _keep(self, deciding: Deciding) -> None:
        news = deciding.news()
        if news is not None:
            self.decisions.take(*news)

    def _faulty(self) -> Function:
        """Make a function that fails for some elements at their first call."""
        odds, seed, seen = self.random.choice([0.0, 0.2, 0.5]), self.random.random(), set()

        def function(x: Any) -> Any:
            fails = random.Random(f"{seed}/{x}").random() < odds and int(x) not in seen
            seen.add(int(x))
            if fails:
                raise OSError(f"no {x} today")
            return np.int64(x)

        return function


@pytest.mark.parametrize("make", PIPELINES.values(), ids=PIPELINES)
@settings(max_examples=how_many(5, 15), deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_attempt_makes_the_same(make: Callable[[Function], Node], seed: int) -> None:
    """An attempt from any state makes the same elements, with only the decisions that
    the state needs.
    """
    life = Life(make, seed)
    for _ in range(4):
        life.live()


@pytest.mark.parametrize("make", OF_REPETITIONS.values(), ids=OF_REPETITIONS)
@settings(max_examples=how_many(10, 30), deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_attempt_makes_the_same_again_and_again(
    make: Callable[[Function], Node], seed: int
) -> None:
    """Each repetition within another decides for itself. Elements that a cache pulls
    again keep their decisions.
    """
    life = Life(make, seed, is_split=False)
    for _ in range(6):
        life.live()


def test_a_dataset_that_is_opened_again_is_read_from_its_place_only() -> None:
    """An interleave does not read a reopened dataset from its beginning, as this would
    decide again what follows its place.
    """
    called: list[int] = []
    node = ParallelInterleave(
        inputs=(SOURCE,),
        function=lambda x: Dataset.range(60).map(
            lambda y: called.append(100 * int(x) + int(y)) or y
        ),
        cycle_length=1,
        block_length=1,
        num_parallel_calls=1,
        deterministic=True,
    )
    first = make_iterator(node, Context())
    assert [int(next(first)) for _ in range(40)] == list(range(40))
    state = first.state()
    first.close()
    called.clear()
    again = make_iterator(node, Context())
    again.restore(state)
    assert [int(next(again)) for _ in range(25)] == [*range(40, 60), *range(5)]
    again.close()
    assert 0 not in called


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 32))
def test_every_attempt_makes_the_same_of_generators(seed: int) -> None:
    """An attempt makes the same elements or reports data loss, as a failed generator
    cannot be called again.
    """

    def opened(function: Function, x: Any) -> Any:
        return Dataset.from_generator(lambda: (function(10 * x + y) for y in range(4))).batch(3)

    life = Life(
        lambda function: ignoring(
            FlatMap(inputs=(SOURCE,), function=lambda x: opened(function, x))
        ),
        seed,
    )
    for _ in range(4):
        with suppress(DataLossError):
            life.live()


def of_files(folder: Path, kind: str) -> Callable[..., Dataset]:
    """Write six files of seven rows each, and return what makes their dataset."""
    for number in range(6):
        rows, path = range(number * 7, number * 7 + 7), folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table({"n": [*rows]}), path, row_group_size=3)
        else:
            path.write_text("".join(f'{{"n": {n}}}\n' for n in rows))
    make = Dataset.from_parquet if kind == "parquet" else Dataset.from_jsonl
    return partial(make, folder, on_error="skip")


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("parquet", {}),
        ("parquet", {"split": "file"}),
        ("parquet", {"shuffle": True, "open_splits": 5}),
        ("parquet", {"shuffle": True, "open_splits": 2, "split": "file", "batch_rows": 4}),
        ("jsonl", {}),
        ("jsonl", {"batch_rows": 4}),
        ("jsonl", {"shuffle": True, "open_splits": 3}),
    ],
    ids=str,
)
def test_every_attempt_reads_the_same_of_files(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    """An attempt reads the same rows or reports data loss, whichever files can be read
    in it.
    """
    rows = failing(lambda row: row["n"], of_files(tmp_path, kind)(**options).node)
    hidden, lost = tmp_path / "hidden", 0
    hidden.mkdir()

    class Attempts(Life):
        def _faulty(self) -> Function:
            for path in [*hidden.iterdir()]:
                path.rename(tmp_path / path.name)
            paths = sorted(tmp_path.glob(f"*.{kind}"))
            for path in self.random.sample(paths, self.random.choice([0, 0, 1, 3])):
                path.rename(hidden / path.name)
            return int

    for seed in range(how_many(10, 300)):
        attempts = Attempts(lambda function: ahead(rows), seed, is_split=False)
        for _ in range(5):
            try:
                attempts.live()
            except DataLossError:
                lost += 1
    assert lost


@pytest.mark.parametrize("content", ["", "b0\nb1\n"], ids=["empty", "full"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_file_that_could_not_be_read_is_not_read_later(
    tmp_path: Path, content: str, nested: bool
) -> None:
    """An unreadable file stays skipped below ignore_errors, as its lines would move all
    later elements. A readable file must remain.
    """
    files = [tmp_path / name for name in "abc"]
    names = tuple(map(str, files))
    files[0].write_text("a0\na1\n")
    files[2].write_text("c0\nc1\n")

    def outcome(deciding: Deciding) -> list[list[str]]:
        node: Node = TextLines(filenames=names, site="a.py:7")
        if nested:
            source = FromSource(sequence=names, site="a.py:7")
            node = FlatMap(inputs=(source,), function=lambda name: Dataset._wrap(node_of(name)))
        batches = Batch(inputs=(Shuffle(inputs=(node,), buffer_size=2, seed=4),), batch_size=3)
        return [
            batch.tolist() for batch in make_iterator(ignoring(batches), Context(deciding=deciding))
        ]

    def node_of(name: str) -> Node:
        return TextLines(filenames=(name,), site="a.py:7")

    first = deciding_on()
    found = outcome(first)
    assert len(found) == 1  # a batch was discarded
    news = first.news()
    assert news is not None
    files[1].write_text(content)
    assert outcome(deciding_on(*news[1])) == found
    files[2].unlink()
    with pytest.raises(DataLossError, match="was produced in an earlier attempt and fails now"):
        outcome(deciding_on(*news[1]))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"b": b""}, {"c": b"c0\nc1\n"}),
        ({"b": b"", "c": b""}, {"e": b"e0\n"}),
        ({"b": b"b0\n"}, {"c": b"\xff\nc1\nc2\n"}),
        ({"b": b"b0\n\xff\nb2\n"}, {"b": b"b0\nb1\nb2\n"}),
        ({"b": b"\xff\nb1\n", "c": b"c0\n"}, {"b": b"b0\nb1\n"}),
        ({"b": b"", "c": b"\xff\nc1\n"}, {"c": b"c0\nc1\n"}),
    ],
    ids=[
        "behind an empty one",
        "behind two",
        "damaged now",
        "mended line",
        "mended beginning",
        "mended behind",
    ],
)
def test_what_failed_in_files_fails_alone_again(
    tmp_path: Path, before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    """A missing file stays skipped as a whole, and a damaged line stays skipped alone,
    wherever they are.
    """
    names = [tmp_path / name for name in "abcdef"]

    def write(files: dict[str, bytes]) -> None:
        for name, content in files.items():
            (tmp_path / name).write_bytes(content)

    def outcome(deciding: Deciding) -> list[str]:
        lines = TextLines(filenames=tuple(map(str, names)), site="a.py:7")
        shuffled = Shuffle(inputs=(lines,), buffer_size=2, seed=4)
        return list(make_iterator(ignoring(shuffled), Context(deciding=deciding)))

    write({"a": b"a0\na1\n", "d": b"d0\nd1\n", "f": b"f0\n"} | before)
    first = deciding_on()
    found = outcome(first)
    assert {"a0", "a1", "d0", "d1", "f0"} <= set(found)
    news = first.news()
    assert news is not None
    write(after)
    assert outcome(deciding_on(*news[1])) == found


def test_a_file_that_was_whole_and_is_not_ends_the_task(tmp_path: Path) -> None:
    """The elements after the file have other numbers now, even if an element is missing
    without a failure.
    """
    names = [tmp_path / name for name in "ab"]
    names[0].write_text("a0\na1\n")
    names[1].write_text("b0\n")
    node = ignoring(TextLines(filenames=tuple(map(str, names)), site="a.py:7"))
    first = deciding_on()
    assert len(list(make_iterator(node, Context(deciding=first)))) == 3
    news = first.news()
    assert news is not None
    names[1].write_text("")
    with pytest.raises(DataLossError, match="the input has ended"):
        list(make_iterator(node, Context(deciding=deciding_on(*news[1]))))


def test_the_rest_of_a_damaged_file_is_not_read_later(tmp_path: Path) -> None:
    """Below ignore_errors, the readable part of a damaged file stays, and nothing after
    it is read.
    """
    whole = gzip.compress(b"".join(b"%d\n" % number for number in range(20_000)))
    name = tmp_path / "a.gz"
    other = tmp_path / "b.gz"
    other.write_bytes(gzip.compress(b"the other\n"))
    name.write_bytes(whole[:-2000])
    node = ignoring(
        TextLines(filenames=(str(name), str(other)), compression_type="GZIP", site="a.py:7")
    )
    first = deciding_on()
    found = list(make_iterator(node, Context(deciding=first)))
    assert 1000 < len(found) < 20_000
    assert found[-1] == "the other"
    news = first.news()
    assert news is not None
    name.write_bytes(whole)
    assert list(make_iterator(node, Context(deciding=deciding_on(*news[1])))) == found


def deciding_on(*past: Decision) -> Deciding:
    pauses: list[float] = []
    made = Deciding(0, past, pauses.append)
    made.pauses = pauses  # type: ignore[attr-defined]  # for the test
    return made


def run(node: Node, deciding: Deciding, stop: int) -> list[int]:
    context = provided([[(0, stop)]])()
    return list(
        map(int, make_iterator(node, type(context)(providers=context.providers, deciding=deciding)))
    )


def test_what_was_left_out_is_not_called_for() -> None:
    """A skipped element is not passed to the function again, even if it would succeed.
    The quarantine gives the reason.
    """
    called: list[int] = []
    deciding = deciding_on(Decision("/", 0, 9, (3, 7)))
    found = run(mapped(lambda x: called.append(int(x)) or x), deciding, 10)
    assert found == [0, 1, 2, 4, 5, 6, 8, 9] == called
    assert deciding.news() == (1, (Decision("/", 9, 10),))


def test_what_came_before_is_called_for_again() -> None:
    """The function is retried with growing pauses. If it keeps failing, the task ends,
    and the element is neither skipped nor postponed.
    """
    failures = {4: 2, 6: 99}

    def function(x: Any) -> Any:
        failures[int(x)] = failures.get(int(x), 0) - 1
        if failures[int(x)] >= 0:
            raise OSError("the disk is away")
        return x

    deciding = deciding_on(Decision("/", 0, 6))
    found = run(mapped(function), deciding, 6)
    assert found == [0, 1, 2, 3, 4, 5]
    assert deciding.pauses == [0.1, 0.5]  # type: ignore[attr-defined]
    with pytest.raises(
        DataLossError, match=r"Element 6 that came to map.*fails now.*the disk is away"
    ):
        run(mapped(function), deciding_on(Decision("/", 0, 7)), 8)


def test_below_ignored_errors_a_fault_is_decided_where_it_comes() -> None:
    """An element that failed in a filter fails again without a call. An element that
    passed is retried if it fails now.
    """

    def make(bad: int, faults: int) -> Node:
        left = [faults]

        def predicate(x: Any) -> Any:
            if x == bad and left[0]:
                left[0] -= 1
                raise ValueError("bad")
            return x != 3

        source = Filter(inputs=(SOURCE,), predicate=predicate, site="a.py:7")
        return IgnoreErrors(inputs=(source,), log_warning=False)

    first = deciding_on()
    assert run(make(2, 1), first, 6) == [0, 1, 4, 5]
    news = first.news()
    assert news is not None
    assert Decision("/0", 0, 6, (2,)) in news[1]
    assert run(make(-1, 0), deciding_on(*news[1]), 6) == [0, 1, 4, 5]
    again = deciding_on(*news[1])
    assert run(make(4, 2), again, 6) == [0, 1, 4, 5]
    assert again.pauses == [0.1, 0.5]  # type: ignore[attr-defined]
    with pytest.raises(DataLossError, match=r"Element 4 that came to filter.*fails now: bad"):
        run(make(4, 9), deciding_on(*news[1]), 6)


@pytest.mark.parametrize("calls", [None, 2], ids=["sequential", "parallel"])
def test_what_failed_in_front_has_a_number_too(calls: int | None) -> None:
    """A failure of the input has a number. If it succeeds next time, its element takes
    that place, and the same elements stay skipped.
    """

    def make(bad: set[int], worse: set[int]) -> Node:
        def function(x: Any, bad: set[int]) -> Any:
            if int(x) in bad:
                raise OSError("not now")
            return x

        source = Map(inputs=(SOURCE,), function=lambda x: function(x, bad), site="a.py:7")
        if calls is None:
            return mapped(lambda x: function(x, worse), source)
        arguments = {"on_error": "skip", "num_parallel_calls": calls, "site": "a.py:8"}
        return ParallelMap(inputs=(source,), function=lambda x: function(x, worse), **arguments)

    def outcomes(deciding: Deciding, node: Node) -> list[int | str]:
        context = provided([[(0, 6)]])()
        iterator = make_iterator(
            node, type(context)(providers=context.providers, deciding=deciding)
        )
        found: list[int | str] = []
        while True:
            try:
                found.append(int(next(iterator)))
            except PipelineError:
                found.append("failed")
            except StopIteration:
                return found

    first = deciding_on()
    assert outcomes(first, make({2, 5}, {3})) == [0, 1, "failed", 4, "failed"]
    news = first.news()
    assert news == (0, (Decision("/", 0, 6, (3,)),))
    assert outcomes(deciding_on(*news[1]), make(set(), set())) == [0, 1, 2, 4, 5]
    with pytest.raises(DataLossError, match="Element 5"):
        outcomes(deciding_on(*news[1]), make(set(), {5}))


@pytest.mark.parametrize(
    "arguments", [{"num_parallel_calls": 2}, {"on_error": "retry", "retries": 1}]
)
def test_what_is_poison_does_not_fail_below_ignored_errors(arguments: dict[str, Any]) -> None:
    """A poisoned element is skipped from its batch, which is repeated unchanged and not
    discarded.
    """
    batches = Dataset.range(12).map(lambda x: x, **arguments).batch(3).ignore_errors()

    def outcome(deciding: Deciding) -> list[list[int]]:
        context = Context(deciding=deciding, watch=RecordingWatch({"/0.0": {4}}))
        return [batch.tolist() for batch in make_iterator(batches._node, context)]

    first = deciding_on()
    found = outcome(first)
    assert found == [[0, 1, 2], [3, 5, 6], [7, 8, 9], [10, 11]]
    news = first.news()
    assert news is not None
    assert outcome(deciding_on(*news[1])) == found


def test_too_many_faults_are_too_many_again() -> None:
    """``max_errors`` counts the elements that earlier attempts skipped."""
    node = GuardedMap(
        inputs=(SOURCE,), function=lambda x: x, on_error="skip", max_errors=1, site="a.py:7"
    )
    with pytest.raises(PipelineError, match="max_errors"):
        run(node, deciding_on(Decision("/", 0, 6, (1, 3))), 6)


def test_decisions_grow_until_they_are_sealed() -> None:
    """Each place has a single growing decision; a seal begins another."""
    deciding = deciding_on()
    one, other = Decider("map(f)", "/0", deciding), Decider("map(g)", "/1", deciding)
    one.keep(0)
    other.leave_out(0)
    assert deciding.news() == (0, (Decision("/0", 0, 1), Decision("/1", 0, 1, (0,))))
    assert deciding.news() is None
    one.leave_out(1)
    assert deciding.news() == (0, (Decision("/0", 0, 2, (1,)), Decision("/1", 0, 1, (0,))))
    deciding.seal()
    other.keep(1)
    assert deciding.news() == (2, (Decision("/1", 1, 2),))


def test_what_is_told_again_stays_small() -> None:
    """Repeated news stay small, however many elements an operation skips or decides in
    nested datasets before a state.
    """
    deciding = deciding_on()
    known = Decisions()
    decider = Decider("map(f)", "/0", deciding)
    told = []
    for number in range(3000):
        decider.leave_out(number)
        nested = Decider("map(g)", f"/1[{number}]/", deciding)
        nested.keep(0)
        del nested
        news = deciding.news()
        assert news is not None
        told.append(sum(1 + len(decision.left_out) for decision in news[1]))
        known.take(*news)
    assert max(told) < 70
    assert known.base == 0
    assert [one for decision in known.entries for one in decision.left_out] == list(range(3000))


def test_very_many_datasets_may_be_decided_between_two_blocks() -> None:
    """The decisions of all datasets are reported in a single pass."""
    deciding = deciding_on()
    for number in range(30_000):
        Decider("map(f)", f"/0[{number}]/", deciding).keep(0)
    news = deciding.news()
    assert news is not None
    assert len(news[1]) == 30_000
    assert deciding._runs == []


def test_an_operation_that_is_gone_has_said_all() -> None:
    """The last decisions of an operation are reported even after its iterator is gone,
    and then dropped.
    """
    deciding = deciding_on()
    one = Decider("map(f)", "/0[7]/", deciding)
    one.leave_out(0)
    del one
    assert deciding.news() == (0, (Decision("/0[7]/", 0, 1, (0,)),))
    assert deciding._runs == []


def test_a_state_that_is_taken_while_all_is_made_again_needs_what_lies_ahead() -> None:
    """A past decision follows every state until its place is passed or skipped."""
    past = (Decision("/0", 0, 5), Decision("/1[3]/", 0, 4), Decision("/0", 5, 9))
    deciding = deciding_on(*past)
    assert deciding.mark()[1] == 0
    one = Decider("map(f)", "/0", deciding)
    for number in range(8):
        one.keep(number)
    assert deciding.mark()[1] == 0
    one.keep(8)
    assert deciding.mark()[1] == 1
    Decider("map(g)", "/1[4]/", deciding)
    assert deciding.mark()[1] == 3
    again = deciding_on(*past)
    again.leap(2)
    assert again.mark()[1] == 2


def test_failures_that_a_task_hands_over_come_again_or_end_it() -> None:
    """A replay fails at the numbers of the first attempt. It ends with a loss if it
    succeeds there, or fails elsewhere, among the elements that clients may have.
    """
    node, broken = Batch(inputs=(SOURCE,), batch_size=2), PipelineError("no", node="range(40)")
    first = Failures(node, begun := deciding_on(), range(0))
    for number in (3, 7):
        first.failed(number, broken)
    assert first.due == sys.maxsize
    news = begun.news()
    assert news is not None
    again = Failures(node, deciding_on(*news[1]), range(9))
    assert again.due == 3
    for number in range(3):
        again.made(number)
    again.failed(3, broken)
    assert again.due == 7
    with pytest.raises(DataLossError, match=r"Element 5 that came to .* fails now: no"):
        again.failed(5, broken)
    with pytest.raises(DataLossError, match=r"Element 7 of this task failed .* succeeds now"):
        again.made(7)
    assert Failures(node, deciding_on(*news[1]), range(4, 7)).due == sys.maxsize
    Failures(node, deciding_on(*news[1]), range(4, 7)).failed(8, broken)


def test_failures_of_functions_move_nothing_where_elements_stay_apart() -> None:
    """A map that fails in one attempt only keeps its task, unless batches are made of
    its elements. A source that fails ends the task in both.
    """
    apart = failing(int)
    failed, lost = PipelineError("no", node=apart.label), PipelineError("no", node=SOURCE.label)
    batches = Batch(inputs=(apart,), batch_size=2)
    behind = Map(inputs=(batches,), function=int, site="a.py:9")
    Failures(apart, deciding_on(), range(9)).failed(5, failed)
    Failures(behind, deciding_on(), range(9)).failed(5, PipelineError("no", node=behind.label))
    for node, error in ((apart, lost), (batches, failed), (batches, lost)):
        with pytest.raises(DataLossError, match="Element 5 that came to"):
            Failures(node, deciding_on(), range(9)).failed(5, error)
