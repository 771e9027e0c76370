"""Tests of every method of ``Dataset`` with arguments of every wrong kind."""

from __future__ import annotations

import contextlib
import io
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata
from zmqdata.dataset import (
    CsvDataset,
    Dataset,
    FixedLengthRecordDataset,
    SqlDataset,
    TextLineDataset,
    set_random_seed,
)
from zmqdata.errors import DataServiceError
from zmqdata.operations.folds import Reducer

WRONG: list[Any] = [
    None,
    0,
    -1,
    -5,
    1.5,
    "x",
    True,
    [1],
    (),
    object,
    object(),
    np.int64(0),
    float("nan"),
    b"x",
    {},
]
T = Dataset.range(4)
HERE = __file__
CALLS: dict[str, Callable[[Any], Any]] = {
    "range(v)": lambda v: Dataset.range(v),
    "range(output_type=v)": lambda v: Dataset.range(3, output_type=v),
    "from_tensor_slices(v)": lambda v: Dataset.from_tensor_slices(v),
    "from_generator(v)": lambda v: Dataset.from_generator(v),
    "from_generator(args=v)": lambda v: Dataset.from_generator(range, args=v),
    "from_generator(output_signature=v)": lambda v: Dataset.from_generator(range, (3,), v),
    "list_files(v)": lambda v: Dataset.list_files(v),
    "list_files(shuffle=v)": lambda v: Dataset.list_files(HERE, v),
    "list_files(seed=v)": lambda v: Dataset.list_files(HERE, seed=v),
    "zip(v)": lambda v: Dataset.zip(v),
    "zip(datasets=v)": lambda v: Dataset.zip(datasets=v),
    "from_list(v)": lambda v: Dataset.from_list(v),
    "from_iterable(v)": lambda v: Dataset.from_iterable(v),
    "from_source(v)": lambda v: Dataset.from_source(v),
    "from_source(shuffle=v)": lambda v: Dataset.from_source("abc", shuffle=v),
    "random(v)": lambda v: Dataset.random(v),
    "counter(v)": lambda v: Dataset.counter(v),
    "counter(step=v)": lambda v: Dataset.counter(0, v),
    "counter(dtype=v)": lambda v: Dataset.counter(dtype=v),
    "sample_from_datasets(v)": lambda v: Dataset.sample_from_datasets(v),
    "sample_from_datasets(weights=v)": lambda v: Dataset.sample_from_datasets([T, T], v),
    "choose_from_datasets(v)": lambda v: Dataset.choose_from_datasets(v, T),
    "choose_from_datasets(choice_dataset=v)": lambda v: Dataset.choose_from_datasets([T], v),
    "load(v)": lambda v: Dataset.load(v),
    "map(v)": lambda v: T.map(v),
    "map(num_parallel_calls=v)": lambda v: T.map(abs, v),
    "map(deterministic=v)": lambda v: T.map(abs, 2, v),
    "map(on_error=v)": lambda v: T.map(abs, on_error=v),
    "map(retries=v)": lambda v: T.map(abs, on_error="retry", retries=v),
    "map(max_errors=v)": lambda v: T.map(abs, on_error="skip", max_errors=v),
    "map(output_spec=v)": lambda v: T.map(abs, output_spec=v),
    "random_map(v)": lambda v: T.random_map(v),
    "random_map(seed=v)": lambda v: T.random_map(abs, v),
    "random_map(rerandomize_each_iteration=v)": lambda v: T.random_map(abs, 1, v),
    "batch(v)": lambda v: T.batch(v),
    "batch(drop_remainder=v)": lambda v: T.batch(2, v),
    "batch(collate_fn=v)": lambda v: T.batch(2, collate_fn=v),
    "batch(output_spec=v)": lambda v: T.batch(2, collate_fn=len, output_spec=v),
    "padded_batch(v)": lambda v: T.padded_batch(v),
    "padded_batch(padded_shapes=v)": lambda v: T.batch(2).padded_batch(2, v),
    "padded_batch(padding_values=v)": lambda v: T.batch(2).padded_batch(2, None, v),
    "ragged_batch(v)": lambda v: T.ragged_batch(v),
    "ragged_batch(row_splits_dtype=v)": lambda v: T.ragged_batch(2, row_splits_dtype=v),
    "rebatch(v)": lambda v: T.batch(2).rebatch(v),
    "bucket(v)": lambda v: T.bucket_by_sequence_length(v, [1], [1, 1]),
    "bucket(bucket_boundaries=v)": lambda v: T.bucket_by_sequence_length(len, v, [1, 1]),
    "bucket(bucket_batch_sizes=v)": lambda v: T.bucket_by_sequence_length(len, [1], v),
    "map_batches(v)": lambda v: T.map_batches(v, 2),
    "map_batches(batch_size=v)": lambda v: T.map_batches(abs, v),
    "map_batches(output_spec=v)": lambda v: T.map_batches(abs, 2, output_spec=v),
    "repeat(v)": lambda v: T.repeat(v),
    "take(v)": lambda v: T.take(v),
    "skip(v)": lambda v: T.skip(v),
    "filter(v)": lambda v: T.filter(v),
    "enumerate(v)": lambda v: T.enumerate(v),
    "flat_map(v)": lambda v: T.flat_map(v),
    "interleave(v)": lambda v: T.interleave(v),
    "interleave(cycle_length=v)": lambda v: T.interleave(abs, v),
    "interleave(block_length=v)": lambda v: T.interleave(abs, 1, v),
    "shuffle(v)": lambda v: T.shuffle(v),
    "shuffle(seed=v)": lambda v: T.shuffle(2, v),
    "prefetch(v)": lambda v: T.prefetch(v),
    "concatenate(v)": lambda v: T.concatenate(v),
    "shard(v, 0)": lambda v: T.shard(v, 0),
    "shard(2, v)": lambda v: T.shard(2, v),
    "take_while(v)": lambda v: T.take_while(v),
    "scan(0, v)": lambda v: T.scan(0, v),
    "ignore_errors(v)": lambda v: T.ignore_errors(v),
    "assert_cardinality(v)": lambda v: T.assert_cardinality(v),
    "pad_to_cardinality(v)": lambda v: T.map(as_dict).pad_to_cardinality(v),
    "pad_to_cardinality(mask_key=v)": lambda v: T.map(as_dict).pad_to_cardinality(9, v),
    "rejection_resample(v)": lambda v: T.rejection_resample(v, [1.0]),
    "rejection_resample(target_dist=v)": lambda v: T.rejection_resample(abs, v),
    "rejection_resample(initial_dist=v)": lambda v: T.rejection_resample(abs, [0.5, 0.5], v),
    "with_options(v)": lambda v: T.with_options(v),
    "at(v)": lambda v: T.at(v),
    "window(v)": lambda v: T.window(v),
    "window(shift=v)": lambda v: T.window(2, v),
    "window(stride=v)": lambda v: T.window(2, 1, v),
    "group_by_window(v)": lambda v: T.group_by_window(v, first, 2),
    "group_by_window(reduce_func=v)": lambda v: T.group_by_window(abs, v, 2),
    "group_by_window(window_size=v)": lambda v: T.group_by_window(abs, first, v),
    "group_by_reducer(reducer=v)": lambda v: T.group_by_reducer(abs, v),
    "Reducer(v)": lambda v: Reducer(v, max, abs),
    "cache(v)": lambda v: T.cache(v),
    "snapshot(v)": lambda v: T.snapshot(v),
    "snapshot(compression=v)": lambda v: T.snapshot("x", v),
    "save(compression=v)": lambda v: T.save(tempfile.mkdtemp(), v),
    "profile(v)": lambda v: T.profile(v),
    "TextLineDataset(v)": lambda v: TextLineDataset(v),
    "TextLineDataset(compression_type=v)": lambda v: TextLineDataset(HERE, v),
    "TextLineDataset(buffer_size=v)": lambda v: TextLineDataset(HERE, None, v),
    "FixedLengthRecordDataset(record_bytes=v)": lambda v: FixedLengthRecordDataset(HERE, v),
    "CsvDataset(record_defaults=v)": lambda v: CsvDataset(HERE, v),
    "CsvDataset(select_cols=v)": lambda v: CsvDataset(HERE, [int], select_cols=v),
    "CsvDataset(exclude_cols=v)": lambda v: CsvDataset(HERE, [int], exclude_cols=v),
    "CsvDataset(field_delim=v)": lambda v: CsvDataset(HERE, [int], field_delim=v),
    "SqlDataset(v)": lambda v: SqlDataset(v, "x", "q", (int,)),
    "SqlDataset(data_source_name=v)": lambda v: SqlDataset("sqlite", v, "q", (int,)),
    "SqlDataset(query=v)": lambda v: SqlDataset("sqlite", "x", v, (int,)),
    "SqlDataset(output_types=v)": lambda v: SqlDataset("sqlite", "x", "q", v),
    "set_random_seed(v)": lambda v: set_random_seed(v),
    "load_state_dict(v)": lambda v: iter(T).load_state_dict(v),
    "restore(v)": lambda v: iter(T).restore(v),
}
OWN_WORDS = re.compile(
    r"not iterable|not understood|[Cc]annot interpret|could not convert|has no attribute|unhashable|real number"
    r"|2- or 3-tuples|Tuple must have|expected str, bytes|not subscriptable|unsupported operand|positional argument"
)


def as_dict(x: Any) -> dict[str, Any]:
    return {"x": x}


def first(key: Any, group: Any) -> Any:
    return group


@pytest.mark.parametrize("call", CALLS)
def test_a_bad_argument_is_answered_in_our_words(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is a TypeError, a ValueError or an error of the package, without the
    words of Python or numpy.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").mkdir()
    answers = {}
    for value in WRONG:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                CALLS[call](value)
        except (TypeError, ValueError, IndexError, DataServiceError) as error:
            answers[repr(value)] = str(error)
    assert answers
    assert {
        value: text for value, text in answers.items() if OWN_WORDS.search(text) or len(text) < 20
    } == {}


@pytest.mark.parametrize("bad", ["", "a\0b"])
@pytest.mark.parametrize(
    "use",
    [
        zmqdata.TextLineDataset,
        zmqdata.TFRecordDataset,
        lambda name: zmqdata.FixedLengthRecordDataset([name], 4),
        lambda name: zmqdata.CsvDataset(name, ["int64"]),
        lambda name: zmqdata.SqlDataset("sqlite", name, "select 1", ("int64",)),
        zmqdata.Dataset.list_files,
        zmqdata.Dataset.load,
        lambda name: zmqdata.Dataset.range(3).save(name),
        lambda name: zmqdata.Dataset.range(3).snapshot(name),
    ],
)
def test_names_of_files_are_names(use: Any, bad: str) -> None:
    """An empty name would be the current folder, and a name with a NUL is invalid."""
    with pytest.raises(ValueError, match="a file name must not be empty, nor contain a NUL"):
        use(bad)


@pytest.mark.parametrize(
    ("query", "types"), [("", ("int64",)), (" ", ("int64",)), ("select 1", ()), ("select 1", [])]
)
def test_a_query_has_a_text_and_columns(query: str, types: Any) -> None:
    """A query that could never return a row is refused at the call."""
    with pytest.raises(ValueError, match="must not be empty"):
        zmqdata.SqlDataset("sqlite", "x.db", query, types)
