"""Tests of ``zmqdata.dataset.surface``: running and describing pipelines, and text
files.
"""

from __future__ import annotations

import gzip
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

from tests.dataset.reading import ints
from zmqdata.dataset import Dataset, TextLineDataset
from zmqdata.elements.specs import (
    AUTOTUNE,
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    NoneTensorSpec,
    TensorSpec,
)
from zmqdata.errors import PipelineError
from zmqdata.operations.sources import Range


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Dataset([1]), TypeError, "takes a node, got a list"),
        (
            lambda: Dataset.range(1).apply(lambda ds: None),
            TypeError,
            "must return a Dataset; got None",
        ),
        (lambda: Dataset.range(1).apply(7), TypeError, "transformation_func must be callable"),
        (lambda: Dataset.range(1).reduce(0, 7), TypeError, "reduce_func must be callable"),
        (lambda: TextLineDataset("x", "BZ2"), ValueError, "GZIP"),
        (lambda: TextLineDataset(7), TypeError, "a file name"),
        (lambda: TextLineDataset(["x", 7]), TypeError, "a file name must be a str or path, got 7"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(
    make: Callable[[], object], error: type[Exception], text: str
) -> None:
    """The error names what came and what was expected, before anything runs."""
    with pytest.raises(error, match=text):
        make()


def test_a_pipeline_reads_as_it_is_written() -> None:
    """Each iteration runs the pipeline from its beginning, any number of times."""
    dataset = Dataset.range(10).filter(lambda x: x % 2 == 0).batch(2)
    assert [batch.tolist() for batch in dataset] == [[0, 2], [4, 6], [8]]
    assert [batch.tolist() for batch in dataset] == [[0, 2], [4, 6], [8]]


def test_nested_elements_keep_their_nesting() -> None:
    """Dicts in tuples in dicts keep their nesting in batches."""
    dataset = Dataset.from_tensor_slices({"a": ([1, 2], ["x", "y"])}).batch(2)
    (batch,) = dataset
    assert batch["a"][0].tolist() == [1, 2]
    assert batch["a"][1].tolist() == ["x", "y"]
    assert dataset.element_spec == {"a": (TensorSpec((None,), np.int64), TensorSpec((None,), str))}


def test_line_and_function_are_in_labels() -> None:
    """An operation knows the file and line of the user's code that made it."""
    dataset = Dataset.range(3).map(lambda x: 1 // int(x))
    assert dataset.node.site.startswith("test_surface.py:")
    with pytest.raises(PipelineError, match=r"map\(<lambda>\) at test_surface.py:\d+ failed: "):
        ints(dataset.map(lambda x: [][0]))
    apart = TextLineDataset(__file__).apply(lambda ds: ds.take(1))
    assert apart.node.inputs[0].site.startswith("test_surface.py:")


def test_len_is_the_cardinality_where_it_is_known() -> None:
    """An endless or unknown length is a TypeError with the remedy. A dataset is true
    even when empty.
    """
    assert len(Dataset.range(7).batch(2)) == 4
    with pytest.raises(TypeError, match=r"infinite.*take"):
        len(Dataset.range(1).repeat())
    with pytest.raises(TypeError, match="unknown"):
        len(Dataset.range(1).filter(bool))
    assert Dataset.range(1).repeat().cardinality() == INFINITE_CARDINALITY
    assert Dataset.range(1).filter(bool).cardinality() == UNKNOWN_CARDINALITY
    assert bool(Dataset.range(0)) is True


def test_a_bar_has_the_total_where_it_is_known() -> None:
    """``tqdm(dataset)`` knows its total where the cardinality is known, and counts
    without one elsewhere.
    """
    quiet = {"file": io.StringIO()}
    assert tqdm(Dataset.range(7).batch(2), **quiet).total == 4
    for unknown in (Dataset.range(3).filter(bool), Dataset.range(1).repeat()):
        assert tqdm(unknown, **quiet).total is None
    assert sum(1 for _ in tqdm(Dataset.range(3).filter(bool), **quiet)) == 2


def test_the_spec_is_found_once() -> None:
    """A function runs for the spec once, at the first access, and never if the spec is
    given.
    """
    calls: list[int] = []
    dataset = Dataset.range(3).map(lambda x: calls.append(1))
    assert calls == []
    assert dataset.element_spec == dataset.element_spec == NoneTensorSpec()
    assert calls == [1]
    assert Dataset.range(0).map(str, output_spec=TensorSpec((), str)).element_spec == TensorSpec(
        (), str
    )


def test_repr_shows_the_last_operation_and_what_is_known() -> None:
    """The representation runs nothing."""
    assert repr(Dataset.range(3)).startswith("range(3) at test_surface.py:")
    assert repr(Dataset.range(3)).endswith(": int64")
    assert repr(Dataset.range(3).map(str)).splitlines()[0].endswith(": known when it runs")
    assert repr(TextLineDataset("x")).startswith("TextLineDataset(")


def test_relative_names_become_absolute_at_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative name refers to the folder in which the dataset was made, wherever it
    runs.
    """
    (tmp_path / "a.txt").write_text("x\n")
    monkeypatch.chdir(tmp_path)
    listed, lines = Dataset.list_files("*.txt"), TextLineDataset(Path("a.txt"))
    monkeypatch.chdir("/")
    assert list(listed) == [str(tmp_path / "a.txt")]
    assert list(lines) == ["x"]
    assert len(listed) == 1


def test_text_lines_of_several_files_and_of_a_dataset_of_names(tmp_path: Path) -> None:
    """Names may be a list in any order, or the elements of another dataset, and the
    compression applies to all.
    """
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(gzip.compress(f"{name}1\n{name}2".encode()))
    names = [str(tmp_path / "b"), tmp_path / "a"]
    assert list(TextLineDataset(names, "GZIP")) == ["b1", "b2", "a1", "a2"]
    found = Dataset.list_files(os.fspath(tmp_path / "*"), shuffle=False)
    assert list(TextLineDataset(found, compression_type="GZIP")) == ["a1", "a2", "b1", "b2"]
    nested = found.interleave(lambda name: TextLineDataset(name, "GZIP"), cycle_length=2)
    assert list(nested) == ["a1", "b1", "a2", "b2"]


def test_reduce_folds_structures() -> None:
    """The state may be any structure, and an empty dataset returns the initial
    state.
    """
    assert Dataset.range(4).reduce((0, 0), lambda s, x: (s[0] + 1, s[1] + int(x))) == (4, 6)
    assert Dataset.range(0).reduce("nothing", lambda s, x: s) == "nothing"


def test_reduce_closes_its_iterator_when_the_function_raises() -> None:
    """The error is raised unchanged, and no iterator stays open."""
    closed = []

    def generate() -> Any:
        try:
            yield from range(3)
        finally:
            closed.append(True)

    with pytest.raises(ZeroDivisionError):
        Dataset.from_generator(generate).reduce(0, lambda s, x: 1 // 0)
    assert closed == [True]


def test_numpy_iterators_yield_numpy() -> None:
    """Python numbers become numpy scalars at any depth, and texts stay."""
    (element,) = Dataset.range(1).map(lambda x: {"i": 1, "t": (1.5, "a")}).as_numpy_iterator()
    assert [type(leaf) for leaf in (element["i"], *element["t"])] == [np.int64, np.float64, str]


def test_arrays_of_numpy_iterators_are_read_only() -> None:
    """Writing to an array is an error, and the dataset's own array is unchanged by the
    view.
    """
    rows = np.array([1, 2, 3])
    dataset = Dataset.from_tensors({"x": rows})
    element = next(dataset.as_numpy_iterator())
    with pytest.raises(ValueError, match="read-only"):
        element["x"][0] = 0
    assert rows.flags.writeable
    assert next(iter(dataset))["x"].flags.writeable


def test_numpy_iterators_are_saved_and_restored(tmp_path: Path) -> None:
    """The states of a numpy iterator and of the dataset's iterator fit each other."""
    dataset = Dataset.range(10).shuffle(5).map(int)
    iterator = dataset.as_numpy_iterator()
    before = [next(iterator), iterator.get_next()]
    assert [type(number) for number in before] == [np.int64, np.int64]
    iterator.save(tmp_path / "state")
    rest = list(iterator)
    assert list(iterator) == []
    again, plain = dataset.as_numpy_iterator(), iter(dataset)
    again.restore(tmp_path / "state")
    plain.load_state_dict(again.state_dict())
    assert list(again) == list(plain) == rest
    iterator.restore(tmp_path / "state")
    assert next(iterator) == rest[0]
    iterator.close()
    assert list(iterator) == []


def test_numpy_iterators_have_no_attributes_of_their_own() -> None:
    """An attribute that the dataset's iterator lacks is an AttributeError, in a copy
    that is not yet filled, too.
    """
    iterator = Dataset.range(3).as_numpy_iterator()
    assert iterator.element_spec == iter(Dataset.range(3)).element_spec
    with pytest.raises(AttributeError, match="nothing"):
        iterator.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="_elements"):
        object.__new__(type(iterator)).anything  # noqa: B018


def test_a_source_from_elsewhere_fits_in() -> None:
    """Any node with a registered iterator can be wrapped."""
    assert ints(Dataset(Range(start=0, stop=2)).batch(2).flat_map(Dataset.from_tensor_slices)) == [
        0,
        1,
    ]


def test_datasets_can_be_pickled() -> None:
    """A pickled function may refer to datasets, including datasets that were read."""
    dataset = Dataset.range(3).batch(2)
    assert ints(dataset.map(len)) == [2, 1]
    assert dataset.element_spec == TensorSpec((None,), np.int64)
    again = pickle.loads(pickle.dumps(dataset))
    assert again.node == dataset.node
    assert again.element_spec == dataset.element_spec


def test_a_fingerprint_tells_pipelines_apart_and_is_found_once() -> None:
    """Equal pipelines have equal fingerprints, different pipelines have different ones,
    and a dataset returns the same object again.
    """
    dataset = Dataset.range(3).batch(2)
    found = dataset.fingerprint()
    assert dataset.fingerprint() is found
    assert Dataset.range(3).batch(2).fingerprint() == found
    assert Dataset.range(3).batch(3).fingerprint() != found


def test_a_description_runs_nothing_and_tells_more_than_repr() -> None:
    """describe() has a line for each operation and a line for the state, and calls no
    function.
    """
    calls: list[int] = []
    told = Dataset.range(6).map(calls.append).describe()
    assert "map(" in told
    assert "range(6) at test_surface.py:" in told
    assert "\nstate: " in told
    assert calls == []


def test_a_profile_is_printed_and_returned(capsys: pytest.CaptureFixture[str]) -> None:
    """profile() runs a short pipeline to its end, then prints and returns its
    result.
    """
    seen: list[int] = []
    found = Dataset.range(20).map(lambda x: seen.append(int(x))).profile(30)
    assert seen == list(range(20))
    printed = capsys.readouterr().out
    assert printed == f"{found}\n"
    assert printed.startswith("20 elements in ")
    assert len(found.operations) == 2


def test_text_files_may_be_read_side_by_side(tmp_path: Path) -> None:
    """``num_parallel_reads`` reads lines of that number of files in turn, and
    ``AUTOTUNE`` chooses the number.
    """
    names = [str(tmp_path / name) for name in "ab"]
    for name in names:
        Path(name).write_text(f"{name[-1]}1\n{name[-1]}2\n")
    one_by_one = ["a1", "a2", "b1", "b2"]
    for filenames in (names, Dataset.from_tensor_slices(names)):
        assert [str(x) for x in TextLineDataset(filenames).as_numpy_iterator()] == one_by_one
        assert [str(x) for x in TextLineDataset(filenames, num_parallel_reads=2)] == [
            "a1",
            "b1",
            "a2",
            "b2",
        ]
        assert (
            sorted(str(x) for x in TextLineDataset(filenames, num_parallel_reads=AUTOTUNE))
            == one_by_one
        )
    with pytest.raises(ValueError, match="num_parallel_reads must be at least 1"):
        TextLineDataset(names, num_parallel_reads=0)
