"""Tests of ``operations.packing``: which pieces share a bin, what comes out of a bin,
and that nothing is lost or repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import zmqdata
from tests.counts import how_many
from tests.iterators.checks import check_restore, outcomes, provided, run
from zmqdata.dataset import Dataset
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import FailedPreconditionError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.inputs import UnaryIterator
from zmqdata.iterators.states import Bookmark, plain_state
from zmqdata.nodes.base import Node, Unary, every_node
from zmqdata.operations.pack_plan import Segment
from zmqdata.operations.sharding import shard_statically
from zmqdata.pipelines.fingerprints import fingerprint

POLICIES = st.one_of(
    st.tuples(
        st.sampled_from(["first_fit", "next_fit"]),
        st.sampled_from(["error", "split", "truncate", "drop"]),
    ),
    st.just(("concat", None)),
)
SIZES = st.lists(st.integers(0, 14), max_size=50)


class Documents:
    """Documents of given lengths, each token of which says where it belongs."""

    def __init__(self, sizes: Sequence[int], with_targets: bool = False) -> None:
        self.sizes, self.with_targets = sizes, with_targets

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, number: int) -> dict[str, Any]:
        tokens = np.arange(self.sizes[number], dtype=np.int32) + 100 * number + 1
        found = {"tokens": tokens, "name": number}
        if self.with_targets:
            found["targets"] = (tokens[: len(tokens) // 2]).astype(np.int64)
        return found


def documents(sizes: Sequence[int], with_targets: bool = False) -> Dataset:
    return Dataset.from_source(Documents(sizes, with_targets))


def arrays(*sizes: int) -> Dataset:
    return documents(sizes).map(lambda one: one["tokens"])


def rows(dataset: Dataset, context: Context | None = None) -> tuple[list[Any], list[str]]:
    """Return the elements of a dataset, and the texts of its errors."""
    iterator, found, errors = make_iterator(dataset.node, context or Context()), [], []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found, errors
        except PipelineError as error:
            errors.append(str(error))


def pieces(found: list[Any], leaf: str = "tokens") -> dict[int, list[int]]:
    """Return the tokens of each document, in order, after checking the rows: segments
    count from 1, positions fit, and what is left is padding.
    """
    whole = defaultdict(list)
    for row in found:
        tokens, segments, positions = (
            row[leaf + end] for end in ("", "_segment_ids", "_positions")
        )
        used = int((segments > 0).sum())
        assert (segments[:used] > 0).all()
        assert not np.concatenate([one[used:] for one in (tokens, segments, positions)]).any()
        assert (np.diff(segments[:used]) >= 0).all()
        assert set(segments[:used].tolist()) <= {*range(1, len(row["name"]) + 1)}
        for segment, name in enumerate(row["name"].tolist(), 1):
            mine = segments == segment
            assert (tokens[mine] == positions[mine] + 100 * name + 1).all()
            if mine.any():
                whole[name].append(tokens[mine].tolist())
    return {name: [*chain.from_iterable(sorted(parts))] for name, parts in whole.items()}


@settings(max_examples=how_many(60, 300), deadline=None)
@given(
    SIZES,
    POLICIES,
    st.tuples(st.integers(1, 9), st.integers(1, 5)),
    st.integers(1, 4),
    st.sampled_from([None, 1, 3]),
)
def test_no_token_is_lost_or_repeated(
    sizes: list[int],
    way: tuple[Any, Any],
    lengths: tuple[int, int],
    bins: int,
    most: int | None,
) -> None:
    """Each token comes once, in the order of its document, in rows that hold together,
    whatever the policy; only what the policy leaves out is missing. Leaves that differ
    in length share segments.
    """
    policy, overflow = way
    packed = documents(sizes, with_targets=True).pack(
        dict(zip(("tokens", "targets"), lengths, strict=True)),
        policy=policy,
        overflow=overflow,
        bins=bins,
        max_sequences=most,
        meta=("name",),
    )
    context = Context()
    found, errors = rows(packed, context)
    long = [size > lengths[0] or size // 2 > lengths[1] for size in sizes]
    whole = [
        number
        for number, size in enumerate(sizes)
        if size and not (long[number] and overflow in ("error", "drop"))
    ]
    total = 0
    for leaf, length, part in zip(("tokens", "targets"), lengths, (1, 2), strict=True):
        most_tokens = length if overflow == "truncate" else 99
        kept = {number: min(sizes[number] // part, most_tokens) for number in whole}
        counted = {name: len(tokens) for name, tokens in pieces(found, leaf).items()}
        assert counted == {number: size for number, size in kept.items() if size}
        total += sum(counted.values())
    assert len(errors) == sum(long) * (overflow == "error")
    counts = context.counts
    assert counts.get("pack/empty", 0) == sizes.count(0)
    assert counts.get("pack/tokens", 0) == total
    assert counts.get("pack/room", 0) == sum(lengths) * len(found)
    assert counts.get("pack/bins", 0) == len(found)
    assert counts.get("pack/sequences", 0) == sum(len(row["name"]) for row in found)
    assert counts.get("pack/truncated", 0) == sum(long) * (overflow == "truncate")
    assert counts.get("pack/dropped", 0) == sum(long) * (overflow == "drop")
    assert most is None or all(len(row["name"]) <= most for row in found)


@settings(max_examples=how_many(12, 60), deadline=None)
@given(
    st.lists(st.integers(0, 14), min_size=50, max_size=50),
    POLICIES,
    st.integers(2, 9),
    st.integers(1, 4),
    st.sampled_from(["yield", "drop"]),
    st.booleans(),
)
def test_it_resumes_exactly_at_every_element(
    sizes: list[int], way: tuple[Any, Any], length: int, bins: int, rest: Any, in_splits: bool
) -> None:
    """Restored after any element of 50 documents, also within one that is being split,
    what follows is equal; with and without splits.
    """
    policy, overflow = way
    packed = documents(sizes).pack(
        length,
        policy=policy,
        overflow=overflow,
        bins=bins,
        rest=rest,
        eos=99,
        meta=("name",),
    )
    if in_splits:
        check_restore(packed.node, provided([[(0, 20), (30, 50)]]))
    else:
        check_restore(packed.node)


@dataclass(frozen=True, kw_only=True)
class OneWay(Unary):
    """Yields its input, as a client that shares a job: it cannot return to a place
    after it went on.
    """


@make_iterator.register(OneWay)
class OneWayIterator(UnaryIterator):
    """Yields its input, and counts the elements."""

    def __init__(self, node: OneWay, context: Context) -> None:
        super().__init__(node, context)
        self.place = 0

    def __next__(self) -> Any:
        element = next(self._input)
        self.place += 1
        return element

    def state(self) -> Any:
        return OneWayBookmark(self)


class OneWayBookmark(Bookmark):
    """Place that is known as long as the iterator is there."""

    def __init__(self, iterator: OneWayIterator) -> None:
        self._iterator, self._place = iterator, iterator.place
        self._state = iterator._input.state()

    def plain(self) -> Any:
        if self._iterator.place != self._place:
            raise FailedPreconditionError("it went on")
        return self._state


@settings(max_examples=how_many(10, 60), deadline=None)
@given(
    st.lists(st.integers(0, 14), min_size=50, max_size=50),
    POLICIES,
    st.integers(2, 9),
    st.integers(1, 4),
    st.lists(st.integers(0, 6), max_size=12),
)
def test_documents_that_cannot_come_again_are_in_the_state(
    sizes: list[int], way: tuple[Any, Any], length: int, bins: int, pauses: list[int]
) -> None:
    """Behind an input that cannot go back, a state has the contents of the documents
    held, and no others; restored again and again, what follows is equal.
    """
    policy, overflow = way
    whole = documents(sizes, with_targets=True)
    node = Dataset(OneWay(inputs=(whole.node,))).pack(
        {"tokens": length, "targets": length},
        policy=policy,
        overflow=overflow,
        bins=bins,
        eos=99,
        meta=("name",),
    )
    iterator, expected = make_iterator(node.node, Context()), run(node.node, Context(), 9999)
    seen: list[Any] = []
    for pause in [*pauses, 999]:
        seen += islice(outcomes(iterator), pause)
        state = msgspec.msgpack.encode(plain_state(iterator.state()))
        iterator = make_iterator(node.node, Context())
        iterator.restore(msgspec.msgpack.decode(state))
    assert seen == expected


def test_contents_without_a_plain_form_are_refused() -> None:
    """If documents can be neither pulled again nor saved, the reason of the input is
    the error.
    """
    node = OneWay(inputs=(documents([3, 3]).map(with_object).node,))
    iterator = make_iterator(Dataset(node).pack(8, meta=("name",), rest="drop").node, Context())
    assert list(iterator) == []
    state = make_iterator(Dataset(node).pack(4, meta=("name",)).node, Context())
    next(state)
    with pytest.raises(FailedPreconditionError, match="it went on"):
        plain_state(state.state())


def with_object(one: dict[str, Any]) -> dict[str, Any]:
    return {**one, "name": np.array([{1}], object)}


def test_first_fit_takes_the_oldest_bin_with_room() -> None:
    """A document goes into the oldest bin with room. Without one, the oldest bin comes
    out, and a bin that is full comes out at once.
    """
    packed = documents([5, 6, 3, 7, 2, 8]).pack(8, bins=2, meta=("name",))
    found, _ = rows(packed)
    assert [row["name"].tolist() for row in found] == [[0, 2], [1, 4], [5], [3]]


def test_next_fit_keeps_the_order() -> None:
    """Documents stay in order with ``next_fit``."""
    found, _ = rows(documents([5, 6, 3, 7, 1]).pack(8, policy="next_fit", meta=("name",)))
    assert [row["name"].tolist() for row in found] == [[0], [1], [2], [3, 4]]


def test_concat_cuts_where_a_row_ends() -> None:
    """``concat`` fills each row, and the positions of a document go on in the next."""
    found, _ = rows(arrays(5, 6).pack(4, policy="concat"))
    assert [row["tokens"].tolist() for row in found] == [
        [1, 2, 3, 4],
        [5, 101, 102, 103],
        [104, 105, 106, 0],
    ]
    assert [row["tokens_segment_ids"].tolist() for row in found] == [
        [1] * 4,
        [1, 2, 2, 2],
        [1, 1, 1, 0],
    ]
    assert [row["tokens_positions"].tolist() for row in found] == [
        [0, 1, 2, 3],
        [4, 0, 1, 2],
        [3, 4, 5, 0],
    ]


def test_marks_and_padding() -> None:
    """``bos`` and ``eos`` stand around each document and count for its length; a
    truncated document has lost its end. Padding has the given value, and dtypes stay.
    """
    found, _ = rows(arrays(2, 5, 0).pack(6, overflow="truncate", bos=7, eos=8, pad=-1))
    assert [row["tokens"].tolist() for row in found] == [
        [7, 101, 102, 103, 104, 105],
        [7, 1, 2, 8, -1, -1],
    ]
    assert {array.dtype.name for row in found for array in row.values()} == {"int32"}
    [row], _ = rows(
        documents([4], with_targets=True).pack(
            {"tokens": 6, "targets": 4}, eos={"targets": 9}, pad={"tokens": 5}, meta=["name"]
        )
    )
    assert row["tokens"].tolist() == [1, 2, 3, 4, 5, 5]
    assert row["targets"].tolist() == [1, 2, 9, 0]
    assert row["targets"].dtype == np.int64


def test_bools_are_packed() -> None:
    """A leaf of bools, such as the mask of a loss, stays one."""
    dataset = Dataset.range(1, 3).map(lambda n: {"tokens": np.full(n, n), "loss": np.full(n, True)})
    [row], _ = rows(dataset.pack({"tokens": 4, "loss": 4}))
    assert row["loss"].tolist() == [True, True, True, False]
    assert row["loss"].dtype == bool


def test_values_of_meta_belong_to_segments() -> None:
    """A leaf of ``meta`` has a row for each segment: an array of single values, a
    ragged tensor of arrays. Pieces of a document have its value each.
    """
    dataset = documents([3, 7]).map(
        lambda one: {**one, "text": f"t{int(one['name'])}", "places": one["tokens"] * 2}
    )
    found, _ = rows(dataset.pack(4, overflow="split", meta=("name", "text", "places")))
    assert [row["name"].tolist() for row in found] == [[1], [0], [1]]
    assert [row["text"].tolist() for row in found] == [["t1"], ["t0"], ["t1"]]
    assert all(type(row["places"]) is RaggedTensor for row in found)
    assert found[1]["places"].to_list() == [[2, 4, 6]]


def test_the_spec_is_exact() -> None:
    """The spec of packed elements follows from that of the documents, and each element
    fits; it can be batched.
    """
    spec = {
        "tokens": TensorSpec((None,), "int16"),
        "name": TensorSpec((), "int64"),
        "places": TensorSpec((None, 2), "float32"),
    }
    dataset = Dataset.range(6).map(
        lambda n: {
            "tokens": np.ones(n, np.int16),
            "name": n,
            "places": np.zeros((n, 2), np.float32),
        },
        output_spec=spec,
    )
    packed = dataset.pack(5, meta=("name", "places"))
    ints = TensorSpec((5,), "int32")
    expected = {
        "tokens": TensorSpec((5,), "int16"),
        "tokens_segment_ids": ints,
        "tokens_positions": ints,
        "name": TensorSpec((None,), "int64"),
        "places": RaggedTensorSpec((None, None, 2), "float32", 1),
    }
    assert packed.element_spec == expected
    assert packed.node.cardinality == UNKNOWN_CARDINALITY
    assert Dataset.range(3).repeat().batch(2).pack(2).node.cardinality == -1
    batches = list(packed.ragged_batch(2))
    assert batches[0]["tokens"].shape == (2, 5)
    assert type(batches[0]["name"]) is RaggedTensor


def test_the_rest_of_each_repetition() -> None:
    """Open bins come out at the end of each repetition before ``pack``'s, or are left
    out and counted; after ``repeat`` the repetitions run on.
    """
    one = arrays(3, 4)
    assert len(list(one.pack(8).repeat(3))) == 3
    assert len(list(one.repeat(3).pack(8))) == 3
    assert len(list(one.repeat(4).pack(14))) == 2
    context = Context()
    found, _ = rows(one.pack(8, rest="drop").repeat(3), context)
    assert (found, context.counts["pack/dropped"]) == ([], 6)


def test_states_are_small() -> None:
    """A state at 64 bins has 4 bytes for each document in them, and far less than
    100 KB. Restoring pulls the documents again since the oldest bin was opened, and at
    most 64 more.
    """
    random, pulled = np.random.default_rng(0), [0]
    sizes = np.minimum(random.lognormal(5.5, 1.0, 3000).astype(int) + 1, 2048)

    class Counted(Documents):
        def __getitem__(self, number: int) -> Any:
            pulled[0] += 1
            return super().__getitem__(number)

    node = Dataset.from_source(Counted(sizes)).pack(2048, meta=("name",)).node
    first, again = make_iterator(node, Context()), make_iterator(node, Context())
    for _ in range(200):
        next(first)
    state, before = msgspec.msgpack.encode(first.state()), pulled[0]
    again.restore(msgspec.msgpack.decode(state))
    restoring = pulled[0] - before
    following, expected = [
        [next(iterator)["name"].tolist() for _ in range(100)] for iterator in (again, first)
    ]
    assert following == expected
    assert len(state) < 4_000
    assert restoring <= before - min(map(min, following)) + 64


NUMBERS = Dataset.from_list([np.arange(3), np.arange(5)])
NAMED = Dataset.from_list([{"tokens": [1, 2], "name": 0}])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: NUMBERS.pack(0), "Length of a row must be greater than zero"),
        (lambda: NUMBERS.pack({}), "length must be an int, or a dict"),
        (lambda: NUMBERS.pack("x"), "length must be an int"),
        (lambda: NUMBERS.pack(4, bins=0), "Number of bins must be greater than zero"),
        (lambda: NUMBERS.pack(4, policy="best"), "`policy` must be one of"),
        (lambda: NUMBERS.pack(4, overflow="cut"), "`overflow` must be one of"),
        (lambda: NUMBERS.pack(4, policy="concat", overflow="drop"), "`overflow` must be"),
        (lambda: NUMBERS.pack(4, max_sequences=0), "Number of sequences must be greater"),
        (lambda: NUMBERS.pack(4, rest="x"), "`rest` must be 'yield' or 'drop'"),
        (lambda: NUMBERS.pack(4, pad=1.5), "pad must be an int, got 1.5"),
        (lambda: NUMBERS.pack(4, pad=None), "pad must be an int, got None"),
        (lambda: NUMBERS.pack(4, bos=[1]), "bos must be an int"),
        (lambda: NUMBERS.pack(4, pad=2**70), "Invalid `pad`"),
        (lambda: NUMBERS.pack(4, eos={"x": 1}), "eos has values for"),
        (lambda: NUMBERS.pack(4, meta="x"), "meta must be a list or tuple"),
        (lambda: NUMBERS.pack(4, meta=7), "meta must be a list or tuple"),
        (lambda: NUMBERS.pack(4, meta=("tokens",)), "two leaves the names"),
        (lambda: NUMBERS.pack({"x": 4}), "takes the leaves .'x'."),
        (lambda: NAMED.pack(4), "would lose the leaves .'name'."),
        (lambda: NAMED.pack(4, meta=("nam",)), "takes the leaves .'nam'."),
        (lambda: NUMBERS.map(lambda x: x / 2, output_spec=TensorSpec((None,))).pack(4), "float32"),
        (lambda: NUMBERS.padded_batch(2).pack(9), "of shape"),
        (lambda: Dataset.range(3).pack(9), "of shape"),
        (lambda: Dataset.range(3).enumerate().pack(9), "tuple of 2 parts"),
        (lambda: NUMBERS.ragged_batch(2).pack(9), r"got RaggedTensorSpec.*with unbatch\(\)"),
        (lambda: Dataset.range(3).pack(9), "Make a sequence of the value"),
        (lambda: Dataset.range(9).batch(3, drop_remainder=True).pack(2), "has 3 tokens"),
    ],
)
def test_bad_input_is_refused_at_the_call(wrong: Any, text: str) -> None:
    """Each mistake that is known at the call is an error there, which names it."""
    with pytest.raises((TypeError, ValueError), match=text):
        wrong()


@pytest.mark.parametrize(
    ("broken", "text"),
    [
        (np.zeros(2), "float64"),
        (np.zeros((1, 2), int), "of shape"),
        (np.zeros(2, np.int8), "int8"),
        (np.zeros(9, int), "'tokens' has 9 tokens"),
        (3, "Make a sequence of the value in a map()"),
        (None, "got None in the leaf"),
        ({1}, "got a value of type set in the leaf"),
        (Segment(0, (0,), (0,)), "got a value of type Segment in the leaf"),
        (RaggedTensor.from_rows([[1]]), "Take batches apart with unbatch()"),
        ({"x": 1}, "takes the leaves"),
        ((1, 2), "tuple of 2"),
    ],
)
def test_a_bad_element_fails_alone(broken: Any, text: str) -> None:
    """An element that cannot be packed raises an error that names it, and all others
    are packed.
    """
    dataset = Dataset.range(4).map(lambda n: broken if n == 1 else np.full(2, n))
    found, [error] = rows(dataset.pack(8))
    assert text in error
    assert "pack(tokens=8)" in error
    assert "element 1" in error
    assert found[0]["tokens"].tolist() == [0, 0, 2, 2, 3, 3, 0, 0]
    check_restore(dataset.pack(4).node)


def test_bad_values_of_meta_fail_alone() -> None:
    """A value of ``meta`` of another kind than those that wait is an error for its
    document alone.
    """
    for value in (None, "text", np.zeros(2), {"x": 1}, 2**70, np.ma.array(1, mask=True)):
        dataset = Dataset.range(3).map(
            lambda n, value=value: {"tokens": np.full(2, n), "name": value if n == 1 else n}
        )
        found, [error] = rows(dataset.pack(8, meta=("name",)))
        assert "pack(tokens=8)" in error
        assert "element 1" in error
        assert found[0]["name"].tolist() == [0, 2]
    masked = np.ma.array([1, 1], mask=[0, 1])
    dataset = Dataset.range(3).map(
        lambda n: {"tokens": np.full(2, n), "name": masked if n == 1 else np.array([n, n])}
    )
    found, [error] = rows(dataset.pack(8, meta=("name",)))
    assert "element 1: TypeError: a masked array would lose its mask" in error
    assert found[0]["name"].to_list() == [[0, 0], [2, 2]]


@pytest.mark.parametrize(
    ("values", "joined"),
    [
        ([np.array(1), np.array(2), 3], np.array([1, 2, 3])),
        ([1, np.int64(2), np.array(3)], np.array([1, 2, 3])),
        ([np.str_("a"), "bb", np.array("ccc")], np.array(["a", "bb", "ccc"])),
        (["a", "b\0", np.array("c")], np.array(["a", "b\0", "c"], object)),
        ([np.array(n, ">i4") for n in range(3)], np.arange(3, dtype=">i4")),
        ([np.datetime64("2026-01-01")] * 3, np.array(["2026-01-01"] * 3, "M8[D]")),
        ([{1}, None, {2}], None),
    ],
)
def test_single_values_of_meta_are_joined(values: list[Any], joined: Any) -> None:
    """Scalars and arrays without axes are the same values, in the dtype of the spec. A
    value of another kind fails alone, and its row comes.
    """
    dataset = Dataset.range(3).map(lambda n: {"tokens": np.full(2, n), "m": values[n]})
    found, errors = rows(dataset.pack(8, meta=("m",)))
    if joined is None:
        assert (found[0]["m"].tolist(), len(errors)) == ([{1}, {2}], 1)
        assert "element 1" in errors[0]
        return
    assert errors == []
    assert (found[0]["m"].dtype, found[0]["m"].tolist()) == (joined.dtype, joined.tolist())


def test_rows_have_one_dtype() -> None:
    """The dtype of the first document is that of all rows, also if no bin is open when
    another dtype comes, and after a restore. Documents that are left out count for
    nothing.
    """
    kinds = [np.int8, np.int64, np.int8, np.int16, np.int64]
    sizes = [9, 8, 8, 4, 8]
    dataset = Dataset.range(5).map(lambda n: np.full(sizes[n], n, kinds[n]))
    packed = dataset.pack(8, overflow="drop")
    found, errors = rows(packed)
    assert [row["tokens"].tolist() for row in found] == [[1] * 8, [4] * 8]
    assert {row["tokens"].dtype for row in found} == {np.dtype(np.int64)}
    assert all(f"element {n}" in error for n, error in zip((2, 3), errors, strict=True))
    assert "is int16 of shape (None,), and was int64 of shape (None,)" in errors[1]
    check_restore(packed.node)


def test_empty_lists_fit_every_dtype() -> None:
    """Documents that are empty lists, and empty lists in ``meta``, fit those that come
    later, also while the spec of what follows is found.
    """
    lists = Dataset.range(6).map(lambda n: {"tokens": list(range(n)), "m": list(range(n % 3))})
    packed = lists.pack(5, meta=("m",)).map(lambda row: row)
    assert packed.element_spec["tokens"] == TensorSpec((5,), "int64")
    found, errors = rows(packed)
    assert (len(found), errors) == (4, [])
    assert {row[leaf].dtype.name for row in found for leaf in ("tokens", "m")} == {"int64"}
    texts = Dataset.range(6).map(lambda n: {"tokens": [n], "m": ["a"] * n})
    packed = texts.pack(2, meta=("m",)).map(lambda row: row)
    assert packed.element_spec["m"].dtype == np.dtype("U")
    assert next(iter(packed))["m"].to_list() == [[], ["a"]]


@pytest.mark.parametrize("marks", [{}, {"bos": 1}, {"eos": 1}, {"bos": 1, "eos": 2}])
def test_the_order_of_bytes_stays(marks: Any) -> None:
    """Rows have the dtype of the spec to the order of its bytes, also with ``bos`` and
    ``eos``.
    """
    packed = Dataset.from_list([np.arange(3, dtype=">i4")]).pack(8, **marks)
    [row], _ = rows(packed)
    assert row["tokens"].dtype.str == packed.element_spec["tokens"].dtype.str == ">i4"


@pytest.mark.parametrize(
    ("options", "before", "after"),
    [
        ({"bins": 3, "overflow": "split"}, [3, 4], [5, 9]),
        ({"policy": "concat"}, [14, 3], [5, 3]),
        ({"bins": 3}, [5, 5], [5, 10]),
        ({"bins": 3}, [5, 5], [5, 0]),
        ({"bins": 2}, [5, 5], [9, 9]),
    ],
)
def test_documents_of_other_lengths_are_refused(
    options: Any, before: list[int], after: list[int]
) -> None:
    """If the documents in a state have other lengths now and do not fit, restoring says
    so and names one.
    """
    sizes = [*before]
    dataset = Dataset.range(12).map(lambda n: np.full(sizes[n % 2], n)).pack(9, **options)
    iterator, again = iter(dataset), iter(dataset)
    next(iterator)
    state = iterator.state_dict()
    sizes[:] = after
    with pytest.raises(FailedPreconditionError, match=r"Element \d+ .*on the same input only"):
        again.load_state_dict(state)


def test_documents_of_other_dtypes_are_refused() -> None:
    """A document of another dtype than before is refused when a state is restored."""
    kind = ["int64"]
    dataset = Dataset.range(9).map(lambda n: np.full(5, n).astype(kind[0])).pack(9, bins=2)
    iterator, again = iter(dataset), iter(dataset)
    next(iterator)
    state, kind[0] = iterator.state_dict(), "int8"
    with pytest.raises(FailedPreconditionError, match=r"Element 1 .* is int8"):
        again.load_state_dict(state)


def test_one_long_document_does_not_hide_the_spec() -> None:
    """A document that is too long fails alone, also if the spec is found from it."""
    packed = Dataset.range(9, 6, -1).map(lambda n: np.zeros(n, int)).pack(8)
    assert packed.element_spec["tokens"] == TensorSpec((8,), "int64")
    found, errors = rows(packed)
    assert (len(found), len(errors)) == (2, 1)


def test_files_can_be_shared_below_it() -> None:
    """Sharding by files passes through ``pack``."""
    lines = zmqdata.TextLineDataset(["a", "b", "c"]).map(lambda text: np.zeros(3, int))
    half = shard_statically(lines.pack(8).node, "FILE", num_workers=2, index=0)
    source: Any = every_node(half)[-1]
    assert [Path(name).name for name in source.filenames] == ["a", "c"]


def test_a_failing_input_is_passed_on() -> None:
    """An element that fails before ``pack`` fails, and the others are packed."""

    def fail(n: Any) -> Any:
        if n == 1:
            raise ValueError("one")
        return np.full(2, n)

    found, errors = rows(Dataset.range(4).map(fail).pack(8))
    assert (len(errors), found[0]["tokens"].tolist()) == (1, [0, 0, 2, 2, 3, 3, 0, 0])


def test_the_parameters_are_in_the_fingerprint() -> None:
    """Each parameter distinguishes pipelines, so that no state is loaded into another
    packing.
    """
    made: list[Node] = [
        arrays(3).pack(8, **options).node  # type: ignore[arg-type]  # of different types
        for options in (
            {},
            {"bins": 2},
            {"policy": "next_fit"},
            {"policy": "concat"},
            {"overflow": "split"},
            {"max_sequences": 3},
            {"pad": 1},
            {"bos": 1},
            {"eos": 1},
            {"rest": "drop"},
        )
    ]
    assert len({fingerprint(node).structure for node in made}) == len(made)
    assert run(made[0]) == run(made[0])
