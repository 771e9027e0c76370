"""Tests of ``zmqdata.operations.batch``."""

from __future__ import annotations

import re
import tracemalloc
from collections import namedtuple
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.elements.attrs_classes import Marked
from tests.iterators.checks import check_restore, plain, provided, run
from zmqdata.elements.lists import array_of
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import infer_spec
from zmqdata.iterators.random_access import element_at
from zmqdata.iterators.stacking import stack
from zmqdata.nodes.base import Node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations.batch import Batch, ListBatch, RaggedBatch, ragged_axes
from zmqdata.operations.mapping import Collate, Map
from zmqdata.operations.padding import BucketBySequenceLength, PaddedBatch, Padding, padding_plan
from zmqdata.operations.parallel import ParallelCollate
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sequences import Elements
from zmqdata.operations.sources import Range, TensorSlices
from zmqdata.operations.unbatch import MapBatches, Rebatch, Unbatch
from zmqdata.splits import IndexSplits

Point = namedtuple("Point", ["x", "y"])


def batched(node: Node, size: int, drop: bool = False) -> Node:
    return Batch(inputs=(node,), batch_size=size, drop_remainder=drop, site="train.py:3")


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def unstacked(node: Node) -> Node:
    """Pass the same elements on, but no longer as rows of a source in memory."""
    return Map(inputs=(node,), function=lambda x: x)


SOURCES = st.integers(0, 9).flatmap(
    lambda n: st.sampled_from(
        [
            count(n),
            TensorSlices(
                tensors={"a": np.arange(2 * n).reshape(n, 2), "b": np.array(["x", "yz"] * n)[:n]}
            ),
        ]
    )
)


@given(SOURCES, st.integers(1, 5), st.booleans())
def test_rows_taken_together_equal_rows_stacked(node: Node, size: int, drop: bool) -> None:
    """The fast path for sources in memory and the general path give the same
    batches.
    """
    together = check_restore(batched(node, size, drop))
    one_by_one = check_restore(batched(unstacked(node), size, drop))
    assert len(together) == (node.cardinality // size if drop else -(-node.cardinality // size))
    assert [_texts_alike(batch) for batch in together] == [
        _texts_alike(batch) for batch in one_by_one
    ]


def _texts_alike(batch: Any) -> str:
    return str(batch).replace("<U2", "<U").replace("<U1", "<U")


UNEVEN = ["a" * 10] * 99 + ["b" * 5_000_000]


def test_one_long_text_does_not_pad_the_others() -> None:
    """A batch of short texts and a long one has about their size, from each kind of
    source, and its spec says texts.
    """
    tracemalloc.start()
    sources = [
        Elements(elements=UNEVEN),
        TensorSlices(tensors=array_of(UNEVEN)),
        unstacked(Elements(elements=UNEVEN)),
    ]
    for source in sources:
        (batch,) = run_values(batched(source, 100))
        assert batch.dtype == object
        assert batch.tolist() == UNEVEN
        assert infer_spec(batched(source, 100)) == TensorSpec((None,), str)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 40_000_000


@pytest.mark.parametrize("nul", ["a\0", b"a\0"], ids=repr)
def test_texts_keep_nul_at_their_end(nul: Any) -> None:
    """A batch of texts or bytes of which one ends with NUL has them as they are, at
    each resume, from each kind of source; a batch without one is an array of numpy's.
    """
    texts = [nul[:1], nul, nul[:1] * 2, nul[:1], nul[:1]]
    seen = []
    for source in (
        Elements(elements=texts),
        TensorSlices(tensors=array_of(texts)),
        unstacked(TensorSlices(tensors=array_of(texts))),
    ):
        seen.append(check_restore(batched(source, 2)))
        batches = run_values(batched(source, 2))
        assert [batch.dtype.kind for batch in batches] == ["O", *[np.array(nul).dtype.kind] * 2]
        assert [text for batch in batches for text in batch] == texts
        assert [element_at(batched(source, 2), n).dtype for n in range(3)] == [
            batch.dtype for batch in batches
        ]
        assert infer_spec(batched(source, 2)) == TensorSpec((None,), type(nul))
        assert run_values(Unbatch(inputs=(batched(source, 2),))) == texts
    assert seen[1:] == seen[:1] * 2


LONG = "b" * 5_000_000


def test_arrays_of_texts_do_not_pad() -> None:
    """Arrays of texts, of which one has a long text, become an array of objects, also
    beside such arrays, which batches of batches have.
    """
    short = np.array(["a", "c"])
    both = np.array(["a", LONG], object)
    assert stack([np.array(["a"])] * 9 + [np.array([LONG])]).dtype == object
    assert stack([np.array("a")] * 9 + [np.array(LONG)]).tolist() == ["a"] * 9 + [LONG]
    for arrays in ([short, both], [both, short]):
        stacked = stack(arrays)
        assert stacked.dtype == object
        assert stacked.tolist() == [array.tolist() for array in arrays]
    with pytest.raises(InvalidArgumentError, match="dtype"):
        stack([short, np.array([b"a", b"c"], object)])
    with pytest.raises(InvalidArgumentError, match="dtype"):
        stack([short, np.array(["a", None])])


def test_batches_of_either_form_are_joined() -> None:
    """After batch(), every operation takes batches of numpy's texts beside batches of
    objects.
    """
    batches = batched(Elements(elements=["a", "b", "c", "d\0", "e", "f"]), 3)
    texts = ["a", "b", "c", "d\0", "e", "f"]
    (whole,) = run_values(Rebatch(inputs=(batches,), batch_sizes=(6,)))
    assert (whole.tolist(), whole.dtype) == (texts, object)
    (nested,) = run_values(batched(batches, 2))
    assert nested.tolist() == [texts[:3], texts[3:]]
    cut = Map(inputs=(batches,), function=lambda x: x[:1] if x.dtype == object else x)
    (padded,) = run_values(PaddedBatch(inputs=(cut,), batch_size=2))
    assert padded.tolist() == [["a", "b", "c"], ["d\0", "", ""]]
    ragged = RaggedBatch(inputs=(cut,), batch_size=2)
    (rows,) = run_values(ragged)
    assert rows.to_list() == [["a", "b", "c"], ["d\0"]]
    assert infer_spec(ragged).dtype == np.dtype(str)
    assert RaggedTensorSpec.of(rows).dtype == np.dtype(str)
    for node in (batched(batches, 2), Rebatch(inputs=(batches,), batch_sizes=(4,)), ragged):
        check_restore(node)


def test_ragged_tensors_of_either_form_are_joined() -> None:
    """Ragged tensors of numpy's texts, of objects and of nothing are batched together;
    those of other objects are refused beside texts.
    """
    plain_texts = RaggedTensor(np.array(["a"]), [0, 1])
    objects = RaggedTensor(np.array(["b", "c\0"], object), [0, 2])
    empty = RaggedTensor(np.array([], object), [0, 0])
    for rows in ([plain_texts, objects, empty], [empty, plain_texts, objects]):
        expected = [row.to_list() for row in rows]
        assert stack(rows).to_list() == expected
        assert RaggedTensor.from_rows([row[0] for row in rows]).to_list() == [
            *map(list, [row[0] for row in rows])
        ]
        node = Rebatch(inputs=(Elements(elements=rows),), batch_sizes=(3,))
        assert run_values(node)[0].to_list() == [row[0] for row in expected]
    with pytest.raises(InvalidArgumentError, match="dtype"):
        stack([plain_texts, RaggedTensor(np.array([None], object), [0, 1])])


def run_values(node: Node) -> list[Any]:
    return list(make_iterator(node, Context()))


def test_batches_reach_over_splits() -> None:
    """Small ranges of a provider are joined to full batches."""
    read = check_restore(batched(count(9), 3), provided([[(0, 2), (4, 5), (7, 9)]]))
    assert read == [plain(np.array([0, 1, 4])), plain(np.array([7, 8]))]


def test_structures_are_stacked_leaf_by_leaf() -> None:
    """Dicts, tuples, namedtuples and attrs classes keep their kind, None stays None.
    Other objects make object arrays.
    """
    elements = [
        {"p": Point(n, (True, None)), "t": (b"a" * (n + 1), 1.5, 1j), "m": Marked(n, {n})}
        for n in range(2)
    ]
    batch = stack(elements)
    assert type(batch["p"]) is Point
    assert batch["p"].x.dtype == np.int64
    assert batch["p"].y[0].dtype == np.bool_
    assert batch["p"].y[1] is None
    assert (type(batch["m"]), batch["m"].x.tolist()) == (Marked, [0, 1])
    assert batch["m"].y.tolist() == [{0}, {1}]
    assert batch["t"][0].tolist() == [b"a", b"aa"]
    assert batch["t"][2].dtype == np.complex128


@pytest.mark.parametrize(
    ("elements", "dtype"),
    [
        ([1, np.int64(2)], "int64"),
        ([np.float32(1), np.float32(2)], "float32"),
        (["a", np.str_("bcd")], "<U3"),
        ([np.array(["a"]), np.array(["bcd"])], "<U3"),
        ([np.datetime64("2020-01-01"), np.datetime64("2020-01-02")], "M8[D]"),
        ([np.zeros(2, "i4,f8"), np.ones(2, "i4,f8")], "i4,f8"),
        ([np.array(1.5), np.float64(2)], "float64"),
        ([np.zeros(2, ">i4"), np.ones(2, ">i4")], ">i4"),
        ([np.array("a"), np.array("bcd")], "<U3"),
        ([np.array(["2020"], "M8[D]")] * 2, "M8[D]"),
    ],
)
def test_what_has_one_dtype_may_stand_together(elements: list[Any], dtype: str) -> None:
    """Numbers of Python and numpy of the same dtype, and texts of any width, make a
    single array.
    """
    stacked = stack(elements)
    assert stacked.dtype == np.dtype(dtype)
    assert stacked.tolist() == [np.asarray(element).tolist() for element in elements]


@pytest.mark.parametrize(
    ("odd", "first", "came"),
    [
        (np.zeros(4), np.zeros(3), r"shape \(4,\).*shape \(3,\)"),
        (np.zeros(3, "f4"), np.zeros(3), "dtype float32.*dtype float64"),
        (np.float64(1), np.zeros(3), r"shape \(\)"),
        ("a", np.zeros(3), "a str.*an array"),
        (1.5, 1, "dtype float64.*dtype int64"),
        ("a", 1, "a value of type str, dtype <U1"),
        (np.zeros(2), 1.5, r"shape \(2,\).*shape \(\).*"),
        (None, 1.5, "None, expected a value of type float"),
        (1.5, None, "a value of type float, expected None"),
        (None, {1}, "None, expected a value of type set"),
        (np.zeros(2), None, "a value of type ndarray, expected None"),
        (None, np.zeros(2), "None, expected an array of dtype float64"),
        (None, RaggedTensor([1], [0, 1]), "None, expected a RaggedTensor"),
        (Marked(1, 2), Marked(1, None), r"a value of type int at \.y, expected None"),
        (Point(1, 2), Marked(1, 2), "a Point, expected a Marked"),
        (np.zeros((2, 2)), np.zeros(2), r"shape \(2, 2\)"),
        (np.datetime64("2020-01-01T00"), np.datetime64("2020-01-01"), r"dtype datetime64\[h\]"),
        (2**63, 1, "the int 9223372036854775808.*64 bits|dtype uint64"),
        ({"y": 1}, {"x": 1}, r"the keys \['y'\].*the keys \['x'\]"),
        (1, {"x": 1}, "a int.*the keys"),
        ((1, 2), (1,), "a tuple of 2.*a tuple of 1"),
        (1, (1,), "a int.*a tuple of 1"),
        ({"x": (1, "a")}, {"x": (1, 2)}, r"at \['x'\]\[1\]"),
        (np.zeros(1), RaggedTensor([1], [0, 1]), r"a ndarray.*expected a RaggedTensor"),
        (RaggedTensor([1.5], [0, 1]), RaggedTensor([1], [0, 1]), r"dtype float64 .*dtype int64"),
        (RaggedTensor([[1]], [0, 1]), RaggedTensor([1], [0, 1]), r"shape \(1, None, 1\)"),
        (RaggedTensor([1], [0, 1]), np.zeros(1), "a RaggedTensor, expected an array"),
    ],
)
def test_mixed_elements_are_an_error_that_teaches(odd: Any, first: Any, came: str) -> None:
    """The error names the element, its value, what was expected, the place in the
    element, and a remedy.
    """
    with pytest.raises(
        InvalidArgumentError, match=rf"(?s)element 2 of the batch is .*({came}).*Remedy: "
    ):
        stack([first, first, odd])


@pytest.mark.parametrize(
    ("odd", "first", "remedy"),
    [
        (np.zeros(2), np.zeros(3), "padded_batch() pads"),
        (np.zeros((2, 2)), np.zeros(2), "Use one number of axes, with reshape()"),
        (np.zeros(2), 1.5, "Return scalars for all elements"),
        (None, 1.5, "Remove elements with missing values with filter()"),
        (1, 1.5, "Convert all elements to one dtype, with np.float32(x)"),
        ({"y": 1}, {"x": 1}, "Make one structure"),
    ],
)
def test_the_remedy_is_one_for_the_fault(odd: Any, first: Any, remedy: str) -> None:
    """The error advises padding if lengths differ, and not if padding would fail as
    well.
    """
    with pytest.raises(InvalidArgumentError, match=re.escape(f"Remedy: {remedy}")):
        stack([first, odd])


def test_shapes_that_differ_have_remedies_by_name() -> None:
    """The error about differing shapes names the operations that handle them."""
    with pytest.raises(
        InvalidArgumentError,
        match=r"padded_batch\(\).*ragged_batch\(\).*bucket_by_sequence_length\(\)",
    ):
        stack([np.zeros(3), np.zeros(4)])


def test_a_failing_batch_names_its_node() -> None:
    """A mixed batch is a failure of the batch node, and the batches around it are
    yielded.
    """
    ragged = Map(inputs=(count(6),), function=lambda x: np.zeros(3 if x == 3 else 2))
    node = batched(ragged, 2)
    assert [outcome[0] for outcome in check_restore(node)] == ["ndarray", "raised", "ndarray"]
    with pytest.raises(
        PipelineError, match=r"batch\(2\) at train.py:3 failed: InvalidArgumentError: Cannot batch"
    ):
        list(make_iterator(node, Context()))


def test_the_batch_of_a_failing_element_fails() -> None:
    """As in tf.data, a failure of the input discards the current batch, and the next
    batch begins after it.
    """
    node = batched(Map(inputs=(count(5),), function=lambda x: 1 // (int(x) - 1)), 2)
    read = check_restore(node)
    assert [outcome[0] for outcome in read] == ["raised", "ndarray", "ndarray"]


def test_object_arrays_hold_any_object() -> None:
    """Objects without a numpy dtype are kept unchanged."""
    made = {frozenset({1}): 1}
    first, second = stack([frozenset(made), frozenset()]).tolist()
    assert first == frozenset(made)
    assert second == frozenset()


def test_batches_are_writable() -> None:
    """A batch belongs to its receiver, even if it is a slice of a source."""
    rows = np.zeros((4, 2))
    for node in (TensorSlices(tensors=rows), count(4)):
        for batch in make_iterator(batched(node, 2), Context()):
            batch[...] = 7
    assert rows.sum() == 0
    assert run(batched(count(1), 1)) == [plain(np.array([0]))]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4), st.integers(1, 3))
def test_ragged_tensors_are_stacked(lengths: list[int], size: int) -> None:
    """A batch of ragged tensors has one more ragged axis, whether rows are taken
    together or singly.
    """
    rows = RaggedTensor.from_row_lengths(np.arange(sum(lengths)), lengths, "int32")
    source = TensorSlices(tensors=RaggedTensor(rows, np.array([0, 1, len(lengths)], np.int32)))
    together = check_restore(batched(source, size))
    assert together == check_restore(batched(unstacked(source), size))
    (stacked,) = make_iterator(batched(source, 2), Context())
    assert stacked.to_list() == [rows[:1].to_list(), rows[1:].to_list()]
    assert stacked.row_splits.dtype == np.int32


def test_the_memory_order_of_elements_does_not_matter() -> None:
    """Arrays in column-major order are stacked like any others."""
    array = np.arange(6).reshape(2, 3)
    stacked = stack([np.asfortranarray(array), array[:, ::-1], np.asfortranarray(array)])
    assert stacked.tolist() == [array.tolist(), array[:, ::-1].tolist(), array.tolist()]


class Colour(str, Enum):
    """A text whose `str` is another text."""

    RED = "red"


class Picture:
    """An image of another library."""

    array = np.arange(2)
    __array_interface__ = array.__array_interface__


def test_texts_of_enumerations_are_their_values() -> None:
    """A member that is a text is that text in a batch, not its name."""
    assert stack([Colour.RED, Colour.RED]).tolist() == ["red", "red"]


def test_images_become_arrays_in_batches() -> None:
    """An image is stacked as its array, first or beside arrays."""
    for images in ([Picture(), Picture()], [np.arange(2), Picture()]):
        assert stack(images).tolist() == [[0, 1], [0, 1]]


# --- batches that a function makes


def collated(node: Node, function: Any, size: int = 2, drop: bool = False, calls: int = 0) -> Node:
    """Return the batches that a function makes, on threads if ``calls`` is not 0."""
    lists = ListBatch(inputs=(node,), batch_size=size, drop_remainder=drop)
    if calls:
        return ParallelCollate(
            inputs=(lists,), function=function, num_parallel_calls=calls, site="train.py:3"
        )
    return Collate(inputs=(lists,), function=function, site="train.py:3")


@given(SOURCES, st.integers(1, 5), st.booleans(), st.integers(0, 2))
def test_a_function_gets_what_is_stacked_otherwise(
    node: Node, size: int, drop: bool, calls: int
) -> None:
    """A function that stacks makes the batches that are stacked without it, and any
    state continues.
    """
    made = check_restore(collated(node, stack, size, drop, calls))
    assert made == check_restore(batched(unstacked(node), size, drop))


@pytest.mark.parametrize("calls", [0, 2])
def test_a_function_gets_the_elements_as_they_are(calls: int) -> None:
    """A function gets a plain list of elements, whatever they are: nothing is unpacked,
    stacked or refused.
    """
    elements = (
        {"text": "a", "none": None},
        {"other": np.zeros(0)},
        (1, (b"b", None)),
        (2,),
        None,
        "c",
        Point(1, "d"),
        Marked(1, 2),
        frozenset({3}),
    )
    given: list[Any] = []

    def keep(some: list[Any]) -> int:
        given.append(some)
        return len(some)

    source = Elements(elements=elements)
    assert list(make_iterator(collated(source, keep, 4, calls=calls), Context())) == [4, 4, 1]
    assert {type(some) for some in given} == {list}
    assert len(given) == 3
    assert {str(some) for some in given} == {
        str([*elements[start : start + 4]]) for start in (0, 4, 8)
    }


def test_results_of_a_function_are_those_of_map() -> None:
    """A list is an array, or an error that says what to return, and a tuple keeps its
    parts.
    """

    def first(function: Any) -> Any:
        return next(make_iterator(collated(count(4), function), Context()))

    assert first(lambda some: some).tolist() == [0, 1]
    assert first(tuple) == (0, 1)
    assert first(lambda some: {"x": [some, some], "y": None})["x"].tolist() == [[0, 1], [0, 1]]
    with pytest.raises(PipelineError, match=r"failed for batch 0: .* return a tuple if"):
        first(lambda some: [some, some[0]])


def test_a_function_may_return_tensors() -> None:
    """Tensors that torch's default_collate makes become arrays of the same values and
    dtypes.
    """
    pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils.data import default_collate

    rows = TensorSlices(
        tensors={"x": np.arange(6, dtype=np.float32).reshape(3, 2), "label": np.arange(3)}
    )
    made = list(make_iterator(collated(rows, default_collate), Context()))
    expected = make_iterator(batched(rows, 2), Context())
    assert [plain(batch) for batch in made] == [plain(batch) for batch in expected]
    pairs = Map(inputs=(rows,), function=lambda row: (row["x"], row["label"]))
    images, labels = next(
        make_iterator(collated(pairs, lambda some: tuple(default_collate(some))), Context())
    )
    assert (images.dtype, images.shape, labels.tolist()) == (np.float32, (2, 2), [0, 1])


@pytest.mark.parametrize("calls", [0, 2])
def test_a_failing_function_names_its_batch(calls: int) -> None:
    """A failure says which batch it is, counted from 0 and in a restored iterator, too.
    The batches around it are yielded.
    """

    def fail_at_four(some: list[Any]) -> Any:
        if 4 in some:
            raise ValueError("four")
        return sum(some)

    node = collated(count(7), fail_at_four, calls=calls)
    read = check_restore(node)
    assert [outcome[0] for outcome in read] == ["int64", "int64", "raised", "int64"]
    iterator = make_iterator(node, Context())
    assert [next(iterator), next(iterator)] == [1, 5]
    state = iterator.state()
    iterator.close()
    restored = make_iterator(node, Context())
    restored.restore(state)
    with pytest.raises(PipelineError) as raised:
        next(restored)
    assert str(raised.value) == (
        "batch(collate_fn=fail_at_four) at train.py:3 failed for batch 2: ValueError: four"
    )
    assert isinstance(raised.value.__cause__, ValueError)
    assert next(restored) == 6
    restored.close()


def test_the_list_of_a_failing_element_fails() -> None:
    """A failure of the input discards the current list, as it discards a batch."""
    failing = Map(inputs=(count(5),), function=lambda x: 1 // (int(x) - 1))
    read = check_restore(collated(failing, len))
    assert [outcome[0] for outcome in read] == ["raised", "int", "int"]


def mapped(lengths: list[int], function: Any, spec: Any = None) -> Node:
    source = TensorSlices(tensors=np.array(lengths, np.int64))
    return Map(inputs=(source,), function=function, output_spec=spec)


def ragged(node: Node, size: int, drop: bool = False, dtype: str = "int64") -> Node:
    return RaggedBatch(inputs=(node,), batch_size=size, drop_remainder=drop, row_splits_dtype=dtype)


@given(st.lists(st.integers(0, 5), max_size=10), st.integers(1, 4), st.booleans())
def test_rows_keep_their_lengths(lengths: list[int], size: int, drop: bool) -> None:
    """Ragged batches hold the elements unchanged, and continue exactly from any
    step.
    """
    batches = [lengths[start : start + size] for start in range(0, len(lengths), size)]
    wanted = [
        RaggedTensor.from_rows([np.arange(n) for n in part])
        for part in batches
        if len(part) == size or not drop
    ]
    assert check_restore(ragged(mapped(lengths, np.arange), size, drop)) == [*map(plain, wanted)]


def test_only_what_may_vary_is_ragged() -> None:
    """A known spec stacks leaves of fixed shape and ragged leaves as ``batch`` does."""
    spec = (
        TensorSpec((None, 2), np.float64),
        TensorSpec((2,), np.float64),
        TensorSpec((), np.int64),
    )
    node = mapped([1, 2], lambda n: (np.zeros((n, 2)), np.zeros(2), n), spec)
    (batch,) = make_iterator(ragged(node, 2, dtype="int32"), Context())
    assert batch[0].shape == (2, None, 2)
    assert batch[0].row_splits.dtype == np.int32
    assert (batch[1].shape, batch[2].tolist()) == ((2, 2), [1, 2])
    (again,) = make_iterator(ragged(ragged(node, 1), 2), Context())
    assert again[0].shape == (2, None, None, 2)


def test_nothing_known_is_all_ragged() -> None:
    """After a function every axis of an array may vary, and numbers are stacked."""
    node = mapped([1, 2], lambda n: {"a": np.zeros((n, n)), "n": int(n)})
    (batch,) = make_iterator(ragged(node, 2), Context())
    assert batch["a"].ragged_rank == 2
    assert batch["n"].tolist() == [1, 2]


def test_rows_in_memory_stay_dense() -> None:
    """Rows of a source have a known shape, and are taken together."""
    rows = TensorSlices(tensors=np.arange(6).reshape(3, 2))
    assert check_restore(ragged(rows, 2)) == [
        plain(np.array([[0, 1], [2, 3]])),
        plain(np.array([[4, 5]])),
    ]
    lists = TensorSlices(tensors=RaggedTensor([1, 2, 3], [0, 1, 3]))
    assert check_restore(ragged(lists, 2)) == [plain(RaggedTensor([1, 2, 3], [0, 1, 3]))]


def test_axes_that_are_not_ragged_must_be_equal() -> None:
    """Another inner shape or dtype is a failure that names the differing element."""
    spec = TensorSpec((None, None), np.float64)
    fine = ragged(mapped([1, 2], lambda n: np.zeros((n, n)), spec), 2)
    assert check_restore(fine)[0][0] == "RaggedTensor"
    inner = ragged(mapped([1, 2], lambda n: np.zeros((1, n)), TensorSpec((None, 1), np.float64)), 2)
    assert "shape (1, 2), expected TensorSpec(shape=(None, 1)" in check_restore(inner)[0][2]
    dtypes = ragged(mapped([1, 2], lambda n: np.zeros(1, f"f{4 * n}")), 2)
    assert "dtype float64, expected dtype float32" in check_restore(dtypes)[0][2]


# --- labels, cardinalities and specs of all families of batches

INT = np.int64


class Pair(NamedTuple):
    left: Any
    right: Any


def ten() -> Range:
    return Range(start=0, stop=10)


def batches(drop: bool = True, source: Node | None = None) -> Node:
    return Batch(inputs=(source or ten(),), batch_size=4, drop_remainder=drop)


def said(spec: Any) -> Node:
    """Make a node whose spec follows by rule."""
    return Map(inputs=(ten(),), function=len, output_spec=spec)


def unsaid() -> Node:
    return Map(inputs=(ten(),), function=len)


def infer(node: Node) -> Any:
    """Infer a spec with a fixed spec in place of a trial run."""
    spec = node.spec(infer)
    return TensorSpec((3, 2), INT) if spec is None else spec


def unbatch(node: Node) -> Node:
    return Unbatch(inputs=(node,))


def rebatch(node: Node, *sizes: int, drop: bool = False) -> Node:
    return Rebatch(inputs=(node,), batch_sizes=sizes, drop_remainder=drop)


def padded(node: Node, shapes: Any = None, drop: bool = False) -> Node:
    return PaddedBatch(inputs=(node,), batch_size=4, drop_remainder=drop, padded_shapes=shapes)


def rags(node: Node, drop: bool = False) -> Node:
    return RaggedBatch(inputs=(node,), batch_size=4, drop_remainder=drop, row_splits_dtype="int32")


def bucketed(node: Node, *sizes: int, **parameters: Any) -> BucketBySequenceLength:
    return BucketBySequenceLength(
        inputs=(node,), length_function=len, boundaries=(3,), batch_sizes=sizes, **parameters
    )


def listed(node: Node, drop: bool = False) -> Node:
    return ListBatch(inputs=(node,), batch_size=4, drop_remainder=drop)


def mapped_batches(node: Node, drop: bool = False, spec: Any = None) -> Node:
    return MapBatches(
        inputs=(node,), function=len, batch_size=4, drop_remainder=drop, output_spec=spec
    )


def test_a_list_has_no_spec() -> None:
    """Lists are for a function only, which decides what its batches are."""
    assert listed(ten()).spec(infer) is None


@pytest.mark.parametrize(
    ("node", "label", "cardinality"),
    [
        (padded(ten()), "padded_batch(4)", 3),
        (padded(ten(), drop=True), "padded_batch(4)", 2),
        (listed(ten()), "batch(4)", 3),
        (listed(ten(), drop=True), "batch(4)", 2),
        (rags(ten()), "ragged_batch(4)", 3),
        (unbatch(batches()), "unbatch()", 8),
        (unbatch(batches(drop=False)), "unbatch()", UNKNOWN),
        (unbatch(unsaid()), "unbatch()", UNKNOWN),
        (unbatch(Repeat(inputs=(batches(),), count=-1)), "unbatch()", INFINITE),
        (unbatch(Range(start=0, stop=0)), "unbatch()", 0),
        (rebatch(batches(), 3), "rebatch(3)", 3),
        (rebatch(batches(), 3, drop=True), "rebatch(3)", 2),
        (rebatch(batches(), 1, 2), "rebatch(1, 2)", 6),
        (rebatch(batches(), 4, 5, drop=True), "rebatch(4, 5)", 1),
        (rebatch(batches(False), 3), "rebatch(3)", UNKNOWN),
        (bucketed(ten(), 1, 1), "bucket_by_sequence_length(len)", UNKNOWN),
        (mapped_batches(ten()), "map_batches(len)", 10),
        (mapped_batches(ten(), drop=True), "map_batches(len)", 8),
        (
            mapped_batches(Repeat(inputs=(ten(),), count=-1), drop=True),
            "map_batches(len)",
            INFINITE,
        ),
    ],
)
def test_labels_and_cardinalities(node: Node, label: str, cardinality: int) -> None:
    """The label names the argument, and the cardinality follows if the number of rows
    is known.
    """
    assert (node.label, node.cardinality) == (label, cardinality)
    assert split_sources(node) in ([IndexSplits(10)], [IndexSplits(0)])


VARYING = said(
    (TensorSpec((None, 2), INT), TensorSpec((3,), "U"), TensorSpec((), INT), TensorSpec(None, INT))
)


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (padded(ten(), drop=True), TensorSpec((4,), INT)),
        (padded(unsaid()), TensorSpec((None, None, None), INT)),
        (padded(unsaid(), [None, 5]), TensorSpec((None, None, 5), INT)),
        (
            padded(VARYING, ([7, -1], [None], [], [None])),
            (
                TensorSpec((None, 7, None), INT),
                TensorSpec((None, None), "U"),
                TensorSpec((None,), INT),
                TensorSpec((None, None), INT),
            ),
        ),
        (
            padded(VARYING),
            (
                TensorSpec((None, None, 2), INT),
                TensorSpec((None, 3), "U"),
                TensorSpec((None,), INT),
                TensorSpec(None, INT),
            ),
        ),
        (
            rags(VARYING, drop=True),
            (
                RaggedTensorSpec((4, None, 2), INT, 1, "int32"),
                TensorSpec((4, 3), "U"),
                TensorSpec((4,), INT),
                TensorSpec(None, INT),
            ),
        ),
        (rags(unsaid()), RaggedTensorSpec((None, None, None), INT, 2, "int32")),
        (
            rags(rags(said(TensorSpec((None,), INT)))),
            RaggedTensorSpec((None, None, None), INT, 2, "int32"),
        ),
        (unbatch(batches()), TensorSpec((), INT)),
        (unbatch(rags(said(TensorSpec((None,), INT)))), TensorSpec((None,), INT)),
        (rebatch(batches(), 3, drop=True), TensorSpec((3,), INT)),
        (rebatch(batches(), 3, 4, drop=True), TensorSpec((None,), INT)),
        (rebatch(rebatch(batches(), 4, drop=True), 2), TensorSpec((2,), INT)),
        (rebatch(rebatch(batches(), 4, drop=True), 3), TensorSpec((None,), INT)),
        (
            rebatch(rags(said(TensorSpec((None,), INT))), 3),
            RaggedTensorSpec((None, None), INT, 1, "int32"),
        ),
        (
            bucketed(said(TensorSpec((None, 2), INT)), 5, 5, drop_remainder=True),
            TensorSpec((5, None, 2), INT),
        ),
        (
            bucketed(said(TensorSpec((None, 2), INT)), 5, 6, drop_remainder=True),
            TensorSpec((None, None, 2), INT),
        ),
        (bucketed(said(TensorSpec((3,), INT)), 5, 5, no_padding=True), TensorSpec((None, 3), INT)),
        (mapped_batches(ten(), spec=TensorSpec((2,), INT)), TensorSpec((2,), INT)),
    ],
)
def test_specs_follow_from_the_input(node: Node, spec: Any) -> None:
    """Known lengths stay known. After a function without a spec no length is known."""
    assert infer(node) == spec


def test_a_part_of_the_padding_may_be_left_out() -> None:
    """None stands for a leaf, or for a part with all of its leaves."""
    element = {"x": 1, "y": (2, {"z": 3}), "w": Pair(4, 5)}
    values = {"x": None, "y": (7, None), "w": Pair(None, 8)}
    plan = padding_plan(element, {"x": None, "y": None, "w": Pair([], None)}, values)
    assert plan["x"] == Padding()
    assert plan["y"] == (Padding(None, 7), {"z": Padding()})
    assert plan["w"] == Pair(Padding((), None), Padding(None, 8))


def test_the_plan_has_a_padding_for_each_leaf() -> None:
    """Shapes and values are assigned to their leaves, a single value to all, and -1
    becomes None.
    """
    element = {"x": np.zeros(2), "y": (np.zeros((1, 2)), 5)}
    plan = padding_plan(element, {"x": 4, "y": ([-1, np.int64(3)], [])}, {"x": None, "y": (1, 2)})
    assert plan == {"x": Padding((4,), None), "y": (Padding((None, 3), 1), Padding((), 2))}
    assert padding_plan(element, None, 7)["y"][1] == Padding(None, 7)
    assert padding_plan((1, 2), (None, []), None) == (Padding(None, None), Padding((), None))


@pytest.mark.parametrize(
    ("shapes", "values", "text"),
    [
        (
            {"x": []},
            None,
            "padded_shapes must have the nesting of the elements, which is {'x': '\\*', 'y': "
            "'\\*'}",
        ),
        ({"x": [], "y": ["a"]}, None, "padded_shapes"),
        (None, {"z": 1}, "padding_values must have the nesting"),
    ],
)
def test_another_nesting_is_refused(shapes: Any, values: Any, text: str) -> None:
    """The error shows the nesting of the elements and the refused nesting."""
    with pytest.raises(InvalidArgumentError, match=text):
        padding_plan({"x": 1, "y": 2}, shapes, values)


def test_the_last_axis_that_varies_is_the_last_ragged_one() -> None:
    """Fixed axes before a varying axis become ragged too, while the axes after it do
    not.
    """
    assert ragged_axes(TensorSpec((3, None, 2)), True) == 2
    assert ragged_axes(TensorSpec((3, 2)), False) == 2
    assert ragged_axes(TensorSpec(()), False) == 0
    assert ragged_axes(RaggedTensorSpec((None, None)), False) == 0
