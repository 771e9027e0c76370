"""Tests of the page on differences from tf.data: its tables have reasons, and say what
exists.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import zmqdata
from zmqdata import Dataset

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "tfdata-compatibility.md").read_text(
    encoding="utf-8"
)
COLUMNS = {
    ("of", "difference", "reason"),
    ("default of", "here", "in tf.data", "reason"),
    ("of", "fault of TensorFlow"),
    ("left out", "of", "reason"),
    ("added", "of", "meaning"),
}
"""The heads of the tables. Each other head is a mistake."""
GROUPS = [
    "Everywhere",
    "Sources",
    "Transformations",
    "Static sharding",
    "The service",
    "Servers",
    "Where TensorFlow fails",
    "Errors",
    "Left out",
    "What zmqdata adds",
]
ITERATOR = zmqdata.DatasetIterator
FIELDS = (zmqdata.DispatcherConfig, zmqdata.WorkerConfig)
OPERATIONS = [
    name
    for name, value in inspect.getmembers(Dataset, callable)
    if not name.startswith("_") and name != "node"
]


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    head: tuple[str, ...]
    cells: tuple[str, ...]

    def __getitem__(self, column: str) -> str:
        return self.cells[self.head.index(column)]


def cells(line: str) -> tuple[str, ...]:
    """Return the cells of a line of a table."""
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def tables(text: str) -> Iterator[Row]:
    """Yield the rows of all tables, with the head of each."""
    head: tuple[str, ...] = ()
    for line in text.splitlines():
        if not line.startswith("|"):
            head = ()
        elif not head:
            head = cells(line)
        elif set(line) - set("|- "):
            yield Row(head, cells(line))


ROWS = list(tables(TEXT))


def rows(*head: str) -> list[Row]:
    """Return the rows of the tables with a head."""
    return [row for row in ROWS if row.head == head]


def names(cell: str) -> list[str]:
    """Return the names in backticks, without what follows a parenthesis."""
    return [re.split(r"[(=]", name)[0] for name in re.findall(r"`([^`]+)`", cell)]


def found(name: str) -> Any:
    """Return what a public name stands for: of the package, its datasets, iterators,
    configurations or errors.

    Raises:
        LookupError: nothing has this name.
    """
    place, _, rest = name.partition(".")
    for owner in (zmqdata, Dataset, ITERATOR, zmqdata.errors):
        if hasattr(owner, place):
            thing = getattr(owner, place)
            return getattr(thing, rest) if rest else thing
    for config in FIELDS:
        if place in config.__dataclass_fields__:
            return config
    raise LookupError(f"nothing here is named {name}")


def parameters(of: str) -> set[str]:
    """Return the arguments of an operation or a function."""
    return set(inspect.signature(found(of)).parameters)


def test_each_group_is_a_table() -> None:
    """The page has its groups in order, with tables of known columns and no lists of
    differences beside them.
    """
    assert re.findall(r"(?m)^## (.*)$", TEXT) == GROUPS
    assert {row.head for row in ROWS} == COLUMNS
    for part in re.split(r"(?m)^## .*$", TEXT)[1:]:
        assert list(tables(part))
    assert not re.search(r"(?m)^\* ", TEXT)


def test_each_row_has_all_of_its_cells() -> None:
    """No cell is empty, and sentences are whole: what differs, and why."""
    assert [row for row in ROWS if len(row.cells) != len(row.head) or not all(row.cells)] == []
    sentences = [
        row[column]
        for row in ROWS
        for column in (row.head[1:] if row.head[0] == "of" else row.head[-1:])
    ]
    is_whole = re.compile(r"(\S+ ){2,}.*[.)]$")
    assert [text for text in sentences if not is_whole.match(text)] == []


def test_no_difference_is_told_twice() -> None:
    """The same difference has one row."""
    told = [row["difference"] for row in rows("of", "difference", "reason")]
    assert len(set(told)) == len(told)


def test_what_differs_exists() -> None:
    """A name that a difference belongs to is a public name."""
    for row in ROWS:
        for name in names(row["of"]) if row.head[0] == "of" else ():
            found(name)


@pytest.mark.parametrize("row", rows("default of", "here", "in tf.data", "reason"), ids=str)
def test_defaults_are_those_of_the_code(row: Row) -> None:
    """A default is the value that the configuration has."""
    [name] = names(row["default of"])
    [value] = names(row["here"])
    config, _, field = name.partition(".")
    made = {"WorkerConfig": lambda: zmqdata.WorkerConfig("host:1")}.get(
        config, zmqdata.DispatcherConfig
    )()
    assert repr(getattr(made, field)) == value


@pytest.mark.parametrize("row", rows("left out", "of", "reason"), ids=lambda row: row.cells[0])
def test_what_is_left_out_is_absent(row: Row) -> None:
    """No public name, argument or option is named like what is left out."""
    for name in names(row["left out"]):
        if row["of"] == "zmqdata":
            with pytest.raises(LookupError):
                found(name)
        elif row["of"] == "`Options`":
            with pytest.raises(AttributeError, match="There is no option"):
                getattr(zmqdata.Options(), name)
        else:
            every = row["of"] == "every operation"
            for of in OPERATIONS if every else names(row["of"]):
                assert name not in parameters(of), f"{of} has {name}"


@pytest.mark.parametrize("row", rows("added", "of", "meaning"), ids=lambda row: row.cells[0])
def test_what_is_added_exists(row: Row) -> None:
    """Each added name is a public name, a member or an argument of what it is added
    to.
    """
    for name in names(row["added"]):
        if row["of"] == "iterators":
            assert hasattr(ITERATOR, name)
        elif row["of"] in ("zmqdata", "`Dataset`"):
            assert hasattr(zmqdata if row["of"] == "zmqdata" else Dataset, name)
        else:
            for of in names(row["of"]):
                assert name in parameters(of), f"{of} has no {name}"


OF_TFDATA = {
    "distribute": "processing_mode service job_name consumer_index num_consumers "
    "max_outstanding_requests data_transfer_protocol compression cross_trainer_cache "
    "target_workers task_refresh_interval_hint_ms",
    "zmqdata": "AUTOTUNE AutoShardPolicy CrossTrainerCache CsvDataset Dataset DatasetIterator "
    "DatasetSpec DispatchServer DispatcherConfig ExternalStatePolicy FixedLengthRecordDataset "
    "INFINITE_CARDINALITY NoneTensorSpec Options RaggedTensor RaggedTensorSpec Reducer SHARD_HINT "
    "ShardingPolicy SqlDataset TFRecordDataset TFRecordWriter TensorSpec TextLineDataset "
    "UNKNOWN_CARDINALITY WorkerConfig WorkerServer distribute distributed_save errors "
    "from_dataset_id register_dataset set_random_seed",
    "iterators": "element_spec get_next",
}
"""Names that tf.data has as well."""


@pytest.mark.parametrize("of", OF_TFDATA)
def test_each_addition_is_told(of: str) -> None:
    """Each argument of ``distribute``, method of an iterator and public name that
    tf.data lacks is in a row of the table.
    """
    here = {
        "distribute": {*parameters("distribute")},
        "zmqdata": {*zmqdata.__all__},
        "iterators": {name for name in dir(ITERATOR) if not name.startswith("_")},
    }[of]
    told = {
        name
        for row in rows("added", "of", "meaning")
        if of in row["of"]
        for name in names(row["added"])
    }
    assert here - told == {*OF_TFDATA[of].split()}


def test_arguments_in_differences_exist() -> None:
    """An argument that a difference gives a value is an argument of some operation,
    function or configuration.
    """
    every = set().union(
        *map(parameters, [*OPERATIONS, "distribute", "from_dataset_id", "TextLineDataset"]),
        *(config.__dataclass_fields__ for config in FIELDS),
    )
    told = {
        argument
        for row in rows("of", "difference", "reason")
        for argument in re.findall(r"`([a-z_]+)=", row["difference"])
    }
    assert told
    assert told - every == set()


def test_the_helpers_see_what_is_wrong() -> None:
    """Names that do not exist, and cells that lack, are seen."""
    (row,) = tables("| of | reason |\n|---|---|\n| `map(x=1)`, `no` | |\n")
    assert (names(row["of"]), row["reason"]) == (["map", "no"], "")
    with pytest.raises(LookupError, match="nothing here is named no"):
        found("no")
    assert found("DispatchServer.stop") is zmqdata.DispatchServer.stop
    assert {"map_func", "on_error"} <= parameters("map")
