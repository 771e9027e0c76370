"""Tests of ``zmqdata.dataset.describing``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.iterators.checks import outcomes
from tests.iterators.kinds import kinds, sample_pipelines
from zmqdata.dataset import Dataset, Options, TextLineDataset
from zmqdata.dataset.describing import brief_spec
from zmqdata.elements.specs import TensorSpec
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node, every_node


def test_the_drawing_runs_nothing() -> None:
    """repr has a line for each operation, with the known facts about its elements, and
    runs nothing.
    """
    ran: list[int] = []
    dataset = Dataset.range(3).map(lambda x: ran.append(int(x))).enumerate()
    lines = repr(dataset).splitlines()
    assert [line.split(" at ")[0] for line in lines] == [
        "enumerate(0)",
        "└─ map(<lambda>)",
        "└─ range(3)",
    ]
    assert [line.split(": ")[1] for line in lines] == [
        "known when it runs",
        "known when it runs",
        "int64",
    ]
    assert "test_describing.py:" in lines[0]
    assert ran == []


def test_specs_that_do_not_fit_are_drawn() -> None:
    """A pipeline that will fail can be displayed."""
    floats = TensorSpec((), "float64")
    odd = (
        Dataset.range(3)
        .map(int)
        .concatenate(Dataset.range(3).map(int, output_spec=floats))
        .unbatch()
    )
    assert repr(odd).splitlines()[0].endswith("known when it runs")


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (TensorSpec((), str), "str"),
        (TensorSpec(None, "int8"), "int8[...]"),
        ((TensorSpec((2, None), bool),), "(bool[2, ?],)"),
        (None, "known when it runs"),
        ("other", "'other'"),
    ],
)
def test_specs_are_brief(spec: Any, text: str) -> None:
    """A leaf is shown as its dtype and its shape, with ? for a length that varies."""
    assert brief_spec(spec) == text


def told(dataset: Dataset) -> dict[str, str]:
    """Return the facts at the end of a description."""
    lines = dataset.describe().splitlines()
    return dict(line.split(": ", 1) for line in lines[lines.index("") + 1 :])


def test_a_description_has_the_facts(tmp_path: Path) -> None:
    """A description names number, splits, order, size of the state, and the cost of
    restoring.
    """
    rows = Dataset.from_tensor_slices(np.zeros((8, 2)))
    facts = told(rows.shuffle(1000).batch(2))
    assert facts["elements"] == "4 elements"
    assert facts["splits"] == "by 8 indices"
    assert facts["order"] == "follows from the seed"
    assert 4000 < int(facts["state"].split()[1]) < 4100
    assert told(rows.repeat())["elements"] == "endless"
    assert told(rows.filter(bool))["elements"] == "number not known"
    loose = rows.map(str, num_parallel_calls=2, deterministic=False)
    assert "by map(str) at test_describing.py" in told(loose)["order"]
    assert "in any order" in loose.describe()
    nested = rows.interleave(lambda x: rows, 4, num_parallel_calls=2, deterministic=False)
    assert "opens up to" in nested.describe()
    (tmp_path / "a").write_text("x\n")
    assert told(Dataset.list_files(str(tmp_path / "*")))["splits"] == "by files of this machine"
    one = "a single one in 1 file of this machine"
    assert told(TextLineDataset(tmp_path / "a"))["splits"] == one
    assert told(Dataset(Node()))["splits"].startswith("cannot be split, because of Node()")
    assert repr(rows.describe()) == str(rows.describe())
    assert "pulls up to 6 buffers" in rows.shuffle(3).describe()
    assert told(Dataset.counter())["splits"] == "by indices without end"


def test_a_description_names_stores_and_files(tmp_path: Path) -> None:
    """The splits of files come with their unit, the number of files and their
    stores.
    """
    urls = ["https://me:x@host/a?sig=x", "https://host/b", "memory://bucket/c"]
    assert told(TextLineDataset(urls))["splits"] == "by 3 files of https://host and memory://bucket"
    for name in "ab":
        pq.write_table(pa.table({"n": range(40)}), tmp_path / f"{name}.parquet", row_group_size=10)
    rows = Dataset.from_parquet(tmp_path)
    assert told(rows)["splits"] == "by 8 row groups in 2 files of this machine"


@pytest.mark.parametrize("kind", sorted(kinds(), key=lambda kind: kind.__name__))
def test_every_kind_of_node_says_what_restoring_costs(kind: type[Node]) -> None:
    """A kind of node states the cost itself, or inherits it from a specific kind."""
    stated = [base for base in kind.__mro__ if base.__dict__.get("restoring")]
    assert stated, (
        f"{kind.__name__} needs `restoring: ClassVar[str]`: what an iterator does when it is "
        "restored"
    )


COSTS = "repeats continues pulls calls opens reopens lists runs"
FACTS = (
    r"\d+ elements|endless|number not known",
    r"by (files|the chunks of a save|indices without end|\d+ .*)( of .*)?|a single one.*|cannot be split, .*|split as its inputs?(, all of .*)?",
    r"in (any )?order",
    r"state \d+ bytes( and .*)?",
    rf"restoring ({'|'.join(COSTS.split())}) .*",
)


@pytest.mark.parametrize("index", range(len(sample_pipelines())))
def test_every_operation_is_described_in_full(index: int) -> None:
    """Each operation has its number of elements, splits, order, the size of its state,
    and the cost of restoring.
    """
    for line in sample_pipelines()[index].describe().splitlines():
        if not line:
            break
        if "(as in line" not in line:
            facts = line.split(" | ")[1:]
            assert all(re.fullmatch(*pair) for pair in zip(FACTS, facts, strict=True)), line


STEADY = [
    dataset.node
    for dataset in sample_pipelines()
    if not any(inner.state_growth for inner in every_node(dataset.node))
]


@pytest.mark.parametrize("node", STEADY, ids=[node.operation for node in STEADY])
def test_states_are_not_larger_than_described(node: Node) -> None:
    """Encoded states stay within the stated bytes, unless a state is described as
    growing.
    """
    every = every_node(node)
    iterator = make_iterator(node, Context(seed=2**62, fixed_seed=2**61))
    following = outcomes(iterator)
    for _ in range(5):
        assert len(msgspec.msgpack.encode(iterator.state())) <= sum(
            inner.state_bytes for inner in every
        )
        next(following, None)
    iterator.close()


def test_what_a_state_grows_with_is_said() -> None:
    """If the size is not known beforehand, the total names the growth, its cause and
    the operation.
    """
    facts = told(Dataset.range(9).unique())
    assert facts["state"].startswith(
        "about 16 bytes, and 16 bytes for each distinct element (unique() at test_desc"
    )


def test_the_order_follows_the_options() -> None:
    """Operations on threads without a setting of their own follow the options of the
    pipeline.
    """
    options = Options()
    options.deterministic = False
    threaded = Dataset.range(3).map(str, num_parallel_calls=2)
    assert told(threaded)["order"] == "follows from the seed"
    assert "by map(str) at" in told(threaded.with_options(options))["order"]
    forced = Dataset.range(3).map(str, num_parallel_calls=2, deterministic=True)
    assert told(forced.with_options(options))["order"] == "follows from the seed"


def test_splits_are_those_that_a_service_would_hand_out(tmp_path: Path) -> None:
    """A snapshot hides its sources, a choice dataset is run in full, and a source with
    two consumers is listed once.
    """
    rows = Dataset.range(5)
    assert told(rows.snapshot(tmp_path).batch(2))["splits"].startswith(
        "cannot be split, because of snapshot("
    )
    chosen = Dataset.choose_from_datasets([rows, rows.map(abs)], Dataset.range(2).repeat())
    assert told(chosen)["splits"] == "by 5 indices"
    assert "split as its inputs, all of repeat() at test_describing.py" in chosen.describe()
    nest = rows
    for _ in range(9):
        nest = nest.concatenate(nest)
    assert told(nest)["splits"] == "by 5 indices"


def test_what_an_operation_does_not_say_is_not_made_up() -> None:
    """The description shows that a foreign node does not state the cost of
    restoring.
    """
    assert "restoring is not described" in Dataset(Node()).describe()
