"""Tests of ``zmqdata.operations.sources``."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, provided, run
from tests.nodes.samples import INT, STR, empty, infer, parse, slices, ten
from zmqdata.dataset import Dataset
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import DatasetSpec, TensorSpec
from zmqdata.errors import FailedPreconditionError, PipelineError
from zmqdata.iterators.base import Stackable, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.files import ListFiles, TextLines
from zmqdata.operations.sources import FromGenerator, Range, Tensors, TensorSlices
from zmqdata.splits import FileSplits, IndexSplits, SplitSource

Point = namedtuple("Point", ["x", "y"])


def values(node: Node, context: Context | None = None) -> list[Any]:
    return list(make_iterator(node, context or Context()))


def test_range_counts_like_python() -> None:
    """Start, stop and step have the meaning of Python's range, and elements are numpy
    scalars of the dtype.
    """
    assert values(Range(start=5, stop=-4, step=-3)) == [5, 2, -1]
    assert [type(x) for x in values(Range(start=0, stop=1))] == [np.int64]
    assert [type(x) for x in values(Range(start=0, stop=1, dtype="float32"))] == [np.float32]


@pytest.mark.parametrize("step", [1, 3, -2])
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_range_stacks_what_it_would_yield(step: int, dtype: str) -> None:
    """Rows taken together equal rows taken singly, in number and dtype."""
    node = Range(start=1, stop=20 * step, step=step, dtype=dtype)
    single = values(node)
    iterator = make_iterator(node, Context())
    stacked = []
    for size in (1, 4, 100):
        count, rows = iterator.next_stacked(size)  # type: ignore[attr-defined]
        assert rows.dtype == dtype
        assert len(rows) == count <= size
        stacked += list(rows)
    assert stacked == single
    with pytest.raises(StopIteration):
        iterator.next_stacked(1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "node",
    [
        Range(start=0, stop=7),
        Tensors(tensors={"x": np.arange(3)}),
        TensorSlices(tensors=np.arange(10).reshape(5, 2)),
        FromGenerator(generator=range, args=(4,)),
    ],
)
def test_sources_restore_at_every_step(node: Node) -> None:
    """Each source continues exactly from any of its states."""
    assert check_restore(node)


@pytest.mark.parametrize(
    "node",
    [Range(start=0, stop=9), TensorSlices(tensors=np.arange(9))],
)
def test_sources_read_the_splits_that_they_are_given(node: Node) -> None:
    """A source with a provider yields its ranges in the order of the ledger, and
    restores within them.
    """
    read = check_restore(node, provided([[(4, 7), (0, 2)]]))
    assert read == [plain(np.int64(x)) for x in (4, 5, 6, 0, 1)]


@pytest.mark.parametrize("node", [Tensors(tensors=1), FromGenerator(generator=range, args=(3,))])
def test_indivisible_sources_need_their_one_split(node: Node) -> None:
    """A source of a single split yields everything to the receiver of the split, and
    nothing to others.
    """
    assert check_restore(node, provided([[(0, 1)]])) == run(node)
    assert check_restore(node, provided([[]])) == []


def test_the_number_of_providers_must_fit() -> None:
    """A source without a provider, or with two, raises an error before anything is
    read.
    """
    with pytest.raises(FailedPreconditionError, match="got 2"):
        make_iterator(Range(start=0, stop=1), provided([[]], [[]])())


def test_slices_keep_the_structure() -> None:
    """Rows have the nesting of the arrays: dicts, tuples and namedtuples, with texts
    and structured rows.
    """
    records = np.array([(1, 2.0), (3, 4.0)], dtype="i4,f8")
    tensors = {"p": Point(np.arange(2), np.array(["a", "b"])), "t": (records, np.zeros((2, 1)))}
    second = values(TensorSlices(tensors=tensors))[1]
    assert second["p"] == Point(1, "b")
    assert type(second["p"]) is Point
    assert second["t"][0].tolist() == (3, 4.0)
    assert second["t"][1].shape == (1,)


@pytest.mark.parametrize("dtype", ["int64", "i4,f8"])
def test_what_is_handed_out_belongs_to_the_receiver(dtype: str) -> None:
    """Writing into an element changes neither the source nor the next iteration."""
    array = np.zeros((2, 3), dtype)
    for node in (TensorSlices(tensors=array), Tensors(tensors=array)):
        for element in make_iterator(node, Context()):
            element[...] = 7
    iterator: Any = make_iterator(TensorSlices(tensors=array), Context())
    iterator.next_stacked(2)[1][...] = 7
    assert array.tolist() == np.zeros((2, 3), dtype).tolist()


def failing(count: int) -> Iterator[int]:
    yield from range(count)
    raise ValueError("broken")


def test_a_generator_that_raised_is_ended() -> None:
    """The exception is raised at its place, with the node's name and the original as
    cause, and the end follows.
    """
    iterator = make_iterator(FromGenerator(generator=failing, args=(1,), site="a.py:3"), Context())
    assert next(iterator) == 0
    with pytest.raises(
        PipelineError, match=r"from_generator\(failing\) at a.py:3 failed: ValueError: broken"
    ) as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.node == "from_generator(failing) at a.py:3"
    assert list(iterator) == []


def test_a_generator_that_cannot_be_called_is_ended() -> None:
    """A failing call is a single failure, not a failure for each requested element."""
    iterator = make_iterator(FromGenerator(generator=range, args=("x",)), Context())
    with pytest.raises(PipelineError, match="TypeError"):
        next(iterator)
    assert list(iterator) == []


@pytest.mark.parametrize("signature", [None, {"x": TensorSpec((2,), "float64")}])
def test_a_generator_may_fill_its_arrays_again(signature: Any) -> None:
    """Yielded elements stay unchanged, as in tf.data, however many a consumer holds."""

    def fill() -> Iterator[Any]:
        buffer = np.zeros(2)
        for number in range(3):
            buffer[:] = number
            yield {"x": buffer}

    elements = values(FromGenerator(generator=fill, output_signature=signature))
    assert [element["x"].tolist() for element in elements] == [[0, 0], [1, 1], [2, 2]]


def test_closing_closes_the_generator() -> None:
    """The generator's own clean-up runs when the iterator is closed."""
    closed = []

    def generate() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    iterator = make_iterator(FromGenerator(generator=generate), Context())
    next(iterator)
    iterator.close()
    iterator.close()
    assert closed == [True]
    assert list(iterator) == []


def yields(value: Any, signature: Any) -> Any:
    return values(FromGenerator(generator=lambda: [value], output_signature=signature))[0]


def test_a_signature_converts_python_values() -> None:
    """Lists and Python numbers are converted to the signature, while texts and objects
    stay.
    """
    signature = {
        "x": TensorSpec((None,), "float32"),
        "n": TensorSpec((), "int8"),
        "s": TensorSpec((), str),
    }
    element = yields({"x": [1, 2], "n": 3, "s": "a"}, signature)
    assert plain(element) == plain({"x": np.array([1, 2], "float32"), "n": np.int8(3), "s": "a"})


def test_without_a_signature_lists_become_arrays() -> None:
    """An element of a generator is treated like any other element."""
    assert plain(yields([1, 2], None)) == plain(np.array([1, 2]))


@pytest.mark.parametrize("value", [[1, 2, 3], np.full(2, 1e300), {"x": 1}, [[1], [2]], "text"])
def test_what_breaks_the_signature_is_refused(value: Any) -> None:
    """Another shape, dtype or nesting is an error that quotes the signature, and the
    generator continues.
    """
    node = FromGenerator(
        generator=lambda: [value, [1, 2]], output_signature=TensorSpec((2,), "float32")
    )
    iterator = make_iterator(node, Context())
    with pytest.raises(
        PipelineError, match=r"output_signature is TensorSpec\(shape=\(2,\), dtype=float32\)"
    ):
        next(iterator)
    assert [x.tolist() for x in iterator] == [[1, 2]]


@pytest.mark.parametrize("made", [5, None])
def test_a_generator_returns_what_can_be_iterated_over(made: Any) -> None:
    """The error shows what a function returned, and asks it to yield."""
    node = FromGenerator(generator=lambda: made)
    with pytest.raises(
        PipelineError,
        match=rf"must return an iterable, it returned {made} of type .*: yield the elem",
    ):
        next(make_iterator(node, Context()))


def test_a_state_is_restored_where_ranges_come_in_other_pieces() -> None:
    """The elements read from a single range may be spread over several ranges the next
    time.
    """
    node = Range(start=0, stop=6)
    before = make_iterator(node, provided([[(0, 6)]])())
    assert [int(next(before)) for _ in range(3)] == [0, 1, 2]
    after = make_iterator(node, provided([[(0, 2), (2, 4), (4, 6)]])())
    after.restore(before.state())
    assert [int(x) for x in after] == [3, 4, 5]


def test_rows_of_ragged_tensors_are_slices() -> None:
    """A row is an array that belongs to the receiver."""
    ragged = RaggedTensor(np.arange(3), [0, 1, 3])
    rows = values(TensorSlices(tensors={"r": ragged}))
    assert [row["r"].tolist() for row in rows] == [[0], [1, 2]]
    rows[1]["r"][...] = 7
    assert ragged.values.tolist() == [0, 1, 2]


def test_a_signature_may_be_ragged() -> None:
    """Only a ragged tensor that the spec admits passes; its values are cast."""
    ragged, spec = RaggedTensor(np.arange(3), [0, 1, 3]), RaggedTensorSpec((2, None), "int64")
    assert yields({"r": ragged}, {"r": spec})["r"].equals(ragged)
    whole = RaggedTensor(np.arange(3.0), [0, 1, 3])
    assert yields({"r": whole}, {"r": spec})["r"].equals(ragged)
    for other, words in (
        (np.zeros((2, 1), "int64"), "expected RaggedTensorSpec"),
        (RaggedTensor(np.arange(3), [0, 3]), "expected RaggedTensorSpec"),
        (RaggedTensor(np.full(3, 0.5), [0, 1, 3]), "cannot be represented in dtype int64"),
    ):
        with pytest.raises(PipelineError, match=rf"at element\['r'\]: .*{words}"):
            yields({"r": other}, {"r": spec})


@pytest.mark.parametrize(
    "tensors",
    [
        np.arange(7),
        np.array(["a", "bc", "", "d", "e", "f", "g"]),
        np.arange(14.0).reshape(7, 2),
        np.array([(1, 2.0)] * 7, [("a", "i4"), ("b", "f8")]),
        {"x": np.arange(7), "y": (np.zeros((7, 3), np.uint8),)},
        (np.arange(7), {"z": np.arange(7) > 3}),
        Point(np.arange(7), np.arange(7)),
        RaggedTensor.from_rows([[1], [8], [2, 3], [4], [5], [6], [7]]),
    ],
    ids=str,
)
def test_rows_taken_together_are_those_taken_one_by_one(tensors: Any) -> None:
    """Types, nesting and values are the same, from any place and in any number of
    pieces.
    """
    node = TensorSlices(tensors=tensors)
    single, iterator, together = values(node), make_iterator(node, Context()), []
    assert isinstance(iterator, Stackable)
    for size in (1, 3, 2, 9):
        rows = iterator.next_rows(size)
        assert 1 <= len(rows) <= size
        together += rows
    assert [plain(row) for row in together] == [plain(row) for row in single]
    assert [kinds(row) for row in together] == [kinds(row) for row in single]
    with pytest.raises(StopIteration):
        iterator.next_rows(1)


def kinds(element: Any) -> Any:
    if isinstance(element, dict):
        return {key: kinds(value) for key, value in element.items()}
    return (
        (type(element), [kinds(value) for value in element])
        if isinstance(element, tuple)
        else type(element)
    )


def test_rows_taken_together_belong_to_the_receiver() -> None:
    """Writing to a row changes neither the other rows nor the source."""
    array = np.zeros((4, 2))
    iterator = make_iterator(TensorSlices(tensors=array), Context())
    assert isinstance(iterator, Stackable)
    first, *others = iterator.next_rows(4)
    first[...] = 1
    assert not array.any()
    assert not np.any(others)


@pytest.mark.parametrize("state", [[47, -1], -1, None, "1", 1.0])
def test_what_is_no_place_is_refused_at_once(state: object) -> None:
    """restore() refuses an invalid place, as a consumer that skips failing elements
    would otherwise never end.
    """
    with pytest.raises((TypeError, ValueError)):
        make_iterator(Range(start=0, stop=10), Context()).restore(state)


class Shared:
    """Iterable whose passes share an iterator."""

    def __init__(self) -> None:
        self.values = iter(range(3))

    def __iter__(self) -> Iterator[int]:
        return self.values


class Rewinding:
    """Iterator that begins anew when it is asked for one."""

    def __iter__(self) -> Rewinding:
        self.values = iter(range(3))
        return self

    def __next__(self) -> int:
        return next(self.values)


@pytest.mark.parametrize("values", [iter(range(3)), (x for x in range(3)), Shared()])
def test_an_iterator_that_is_returned_again_is_refused(values: Any) -> None:
    """A second pass says that elements would be missing, after any first pass."""
    dataset = Dataset.from_generator(lambda: values)
    assert dataset.element_spec == TensorSpec((), int)
    with pytest.raises(PipelineError, match=r"`element_spec` or an earlier pass.*new one"):
        list(dataset)


def test_an_iterator_may_begin_anew() -> None:
    """An iterator with an ``__iter__`` of its own may be returned in each pass."""
    values = Rewinding()
    dataset = Dataset.from_generator(lambda: values)
    assert dataset.element_spec == TensorSpec((), int)
    assert [*dataset] == [*dataset] == [0, 1, 2]


def datasets(*contents: Any) -> Any:
    """Return an array of datasets of one element each."""
    rows = np.empty(len(contents), object)
    rows[:] = [Dataset.from_tensors(content) for content in contents]
    return rows


@pytest.mark.parametrize(
    ("node", "label"),
    [
        (ten(), "range(10)"),
        (Range(start=2, stop=9, step=3), "range(2, 9, 3)"),
        (Range(start=0, stop=9, step=3), "range(0, 9, 3)"),
        (Tensors(tensors=1), "from_tensors()"),
        (TensorSlices(tensors=np.zeros(1)), "from_tensor_slices()"),
        (FromGenerator(generator=parse), "from_generator(parse)"),
        (ListFiles(patterns=("/a",), shuffle=True), "list_files('/a')"),
        (ListFiles(patterns=("/a", "/b"), shuffle=True), "list_files('/a', ...)"),
        (TextLines(filenames=("/a",)), "TextLineDataset('/a')"),
        (TextLines(filenames=("/a", "/b")), "TextLineDataset('/a', ...)"),
        (TextLines(filenames=()), "TextLineDataset()"),
    ],
)
def test_labels_say_where_elements_come_from(node: Node, label: str) -> None:
    """A label is the method of Dataset and its main argument, or the first of many
    files.
    """
    assert node.label == label


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (ten(), 10),
        (Range(start=5, stop=0, step=-2), 3),
        (Range(start=5, stop=0), 0),
        (empty(), 0),
        (Tensors(tensors=1), 1),
        (slices(4), 4),
        (slices(0), 0),
        (FromGenerator(generator=parse), UNKNOWN),
        (TextLines(filenames=("/a",)), UNKNOWN),
    ],
)
def test_cardinalities_are_known_where_nothing_has_to_be_read(node: Node, cardinality: int) -> None:
    """Numbers and arrays can be counted, while elements of a generator or a file
    cannot.
    """
    assert node.cardinality == cardinality


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (ten(), INT),
        (Range(start=0, stop=1, dtype="int8"), TensorSpec((), np.int8)),
        (Tensors(tensors={"a": np.zeros(3)}), {"a": TensorSpec((3,), np.float64)}),
        (Tensors(tensors=(1, Dataset.range(2))), (INT, DatasetSpec(INT))),
        (TensorSlices(tensors=datasets(2, 3)), DatasetSpec(INT)),
        (TensorSlices(tensors=datasets(2, "a")), TensorSpec((), object)),
        (slices(4), {"x": TensorSpec((2,), np.int8), "y": INT}),
        (FromGenerator(generator=parse), None),
        (FromGenerator(generator=parse, output_signature=STR), STR),
        (ListFiles(patterns=(), shuffle=True), STR),
        (TextLines(filenames=()), STR),
    ],
)
def test_specs_follow_from_the_arguments(node: Node, spec: Any) -> None:
    """Only a generator without a signature has to run before its spec is known."""
    assert node.spec(infer) == spec


@pytest.mark.parametrize(
    ("node", "splits"),
    [
        (Range(start=5, stop=0, step=-2), IndexSplits(3)),
        (slices(4), IndexSplits(4)),
        (Tensors(tensors=np.zeros(9)), IndexSplits(1)),
        (FromGenerator(generator=parse), IndexSplits(1)),
        (TextLines(filenames=("/a", "/b")), IndexSplits(2)),
        (ListFiles(patterns=("/a/*",), shuffle=True, seed=3), FileSplits(("/a/*",), True, 3)),
    ],
)
def test_what_is_indivisible_is_one_split(node: Node, splits: SplitSource) -> None:
    """Rows and numbers are split by index, and lines by file. A single worker reads a
    tensor or a generator.
    """
    assert node.split_source == splits


def test_arrays_are_not_printed() -> None:
    """The representation of a source stays short, however large its content is."""
    assert repr(Tensors(tensors=np.arange(3))) == "Tensors(inputs=())"
    assert repr(slices(100)) == "TensorSlices(inputs=())"


def test_files_are_counted_anew_each_time(tmp_path: Path) -> None:
    """The number of files is the current number, so that a file that appears later
    counts.
    """
    node = ListFiles(patterns=(f"{tmp_path}/*.txt",), shuffle=True)
    assert node.cardinality == 0
    (tmp_path / "a.txt").touch()
    assert node.cardinality == 1


@pytest.mark.parametrize("kind", [Tensors, TensorSlices])
def test_nodes_with_arrays_are_equal_to_themselves_only(kind: type[Node]) -> None:
    """Two nodes over arrays are never equal, and can be members of a set."""
    one, other = kind(tensors=np.zeros(2)), kind(tensors=np.ones(2))  # type: ignore[call-arg]
    assert one == one
    assert one != other
    assert len({one, other}) == 2
