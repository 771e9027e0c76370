"""Tests of ``zmqdata.elements.declared``, and of ``output_spec``, which uses it."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import Dataset, RaggedTensor, RaggedTensorSpec, TensorSpec
from zmqdata.elements.declared import conformer
from zmqdata.elements.specs import DatasetSpec, NoneTensorSpec, merge_specs, spec_of

Pair = namedtuple("Pair", ["x", "y"])
INT, FLOATS = TensorSpec((), "int64"), TensorSpec((None,), "float32")
DTYPES = ["?", "i1", "u1", "i4", "u8", "f2", "f4", "f8", "c8", ">i4", "M8[s]", "m8[ms]", "U", "S"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 300)
    | st.floats()
    | st.sampled_from(
        ["", "a", "b\0", b"c", 1j, np.datetime64("2026", "s"), np.timedelta64(1, "D")]
    )
)


@given(
    st.one_of(LEAVES, st.lists(LEAVES, max_size=3), st.lists(st.integers(0, 9), max_size=3)),
    st.sampled_from(DTYPES),
    st.sampled_from([(), (None,), (2,), None]),
)
def test_an_element_matches_its_spec_or_is_an_error(value: Any, dtype: str, shape: Any) -> None:
    """Whatever a function returns, what arrives is admitted by the declared spec."""
    spec = TensorSpec(shape, dtype)
    element, error = None, ""
    try:
        element = conformer({"x": spec}, "odd")({"x": value})
    except TypeError as raised:
        error = str(raised)
    if element is None:
        assert error.startswith("odd: at element['x']: ")
        return
    assert merge_specs({"x": spec}, spec_of(element)) == {"x": spec}


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (
            {"x": 1.5},
            {"x": INT},
            r"at element\['x'\]: the float 1.5 cannot be represented in dtype",
        ),
        ({"x": (None,)}, {"x": (INT,)}, r"at element\['x'\]\[0\]: the NoneType None cannot"),
        ((2**64, 1), (INT, INT), r"at element\[0\]: the int 18446744073709551616 cannot"),
        ({"y": 1}, {"x": INT}, r"got the dict \{'y': 1\}, expected an element nested as \{'x'"),
        ((1, 2, 3), (INT, INT), r"got the tuple \(1, 2, 3\), expected an element nested as"),
        (5, TensorSpec((), str), "the int 5 cannot be represented in dtype str"),
        (b"a", TensorSpec((), str), "the bytes b'a' cannot"),
        (["a"], TensorSpec((), str), r"got the list \['a'\] of shape \(1,\), expected"),
        (np.zeros((2, 1)), FLOATS, r"shape \(2, 1\), expected TensorSpec\(shape=\(None,\)"),
        (np.ma.masked_array([1.0], [True]), FLOATS, "would lose its mask"),
        (5, DatasetSpec(INT), "got the int 5, expected a dataset"),
        (5, NoneTensorSpec(), "got the int 5, expected None"),
    ],
    ids=str,
)
def test_what_does_not_match_is_named(value: Any, spec: Any, text: str) -> None:
    """The error names the place, the value and the dtype, for every kind of map."""
    source = Dataset.range(4)
    for dataset in (
        source.map(lambda _: value, output_spec=spec),
        source.map(lambda _: value, output_spec=spec, num_parallel_calls=2),
        source.map(lambda _: value, output_spec=spec, on_error="retry", retries=1),
        source.random_map(lambda _, rng: value, output_spec=spec),
        Dataset.from_generator(lambda: iter([value]), output_signature=spec),
    ):
        with pytest.raises(Exception, match=text):
            next(iter(dataset))
    assert [*source.map(lambda _: value, output_spec=spec, on_error="skip")] == []


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        ([], FLOATS),
        (np.arange(3), FLOATS),
        (np.float64(0.1), TensorSpec((), "float32")),
        ([[], []], TensorSpec((None, None), "int8")),
        (OrderedDict(x=1), {"x": INT}),
        (Pair(1, [2]), Pair(INT, FLOATS)),
        (RaggedTensor.from_rows([[1], []]), RaggedTensorSpec((None, None), "float32")),
        (np.array(["a", "b"], object), TensorSpec((2,), str)),
        ((1, 2.5), TensorSpec((), "i4,f8")),
        (Dataset.range(2), DatasetSpec(INT)),
        ({1}, TensorSpec((), object)),
        (None, TensorSpec((), object)),
    ],
    ids=str,
)
def test_values_are_cast_to_a_declared_spec(value: Any, spec: Any) -> None:
    """A value that keeps its meaning in the declared dtype has that dtype."""
    (element,) = Dataset.range(1).map(lambda _: value, output_spec=spec)
    assert merge_specs(spec, spec_of(element)) in (spec, spec_of(element))


@pytest.mark.parametrize(
    "batched",
    [
        lambda dataset: dataset.padded_batch(2),
        lambda dataset: dataset.ragged_batch(2).map(lambda ragged: ragged.to_tensor()),
        lambda dataset: dataset.map_batches(
            lambda batch: batch, 1, output_spec=TensorSpec((None,), "float32")
        ).padded_batch(2),
    ],
)
def test_empty_lists_beside_others_have_the_declared_dtype(batched: Callable[[Any], Any]) -> None:
    """Lists of integers beside an empty one become the declared floats."""
    rows = [[], [1, 2]]
    dataset = batched(Dataset.range(2).map(lambda index: rows[index], output_spec=FLOATS))
    (batch,) = dataset
    assert (batch.dtype, batch.tolist()) == (np.float32, [[0, 0], [1, 2]])


def test_a_declared_spec_is_met_at_random_places() -> None:
    """``at()`` casts as iteration does."""
    floats = Dataset.range(3).map(int, output_spec=TensorSpec((), "float32"))
    assert [type(floats.at(1)), type(next(iter(floats)))] == [np.float32] * 2
    assert [
        type(row)
        for row in Dataset.range(2).map_batches(
            lambda batch: batch, 2, output_spec=TensorSpec((), "float32")
        )
    ] == [np.float32] * 2


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        ("aé", (), b"a\xc3\xa9"),
        (np.str_("a"), (), b"a"),
        (["a", "bé"], (2,), [b"a", b"b\xc3\xa9"]),
        (np.array([["a"], ["bc"]]), (None, 1), [[b"a"], [b"bc"]]),
        (np.array([], str), (None,), []),
        (["a\0", "é"], (2,), [b"a\0", b"\xc3\xa9"]),
        (np.array(["a"], object), (1,), [b"a"]),
        (np.array([], object), (None,), []),
    ],
)
def test_a_text_is_utf_8_where_the_spec_says_bytes(value: Any, shape: Any, expected: Any) -> None:
    """Text for a declared leaf of bytes is encoded as tf.data does, also in arrays."""
    made = conformer(TensorSpec(shape, bytes), "odd")(value)
    assert (made.tolist() if isinstance(made, np.ndarray) else made) == expected


@pytest.mark.parametrize("value", ["\ud800", ["\ud800"], 3, None])
def test_what_has_no_bytes_is_refused(value: Any) -> None:
    """A text without UTF-8, and numbers, are no bytes."""
    spec = TensorSpec((1,) if isinstance(value, list) else (), bytes)
    with pytest.raises(TypeError, match="at element: "):
        conformer(spec, "odd")(value)
