"""Both libraries behind a common interface, and their elements and specs in comparable
form.

The module imports TensorFlow, so only the differential test loads it.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import tensorflow as tf

import zmqdata
from zmqdata.elements.nesting import field_names, leaves_of, map_structure

TEXT = "text"
Point = namedtuple("Point", "x y")


def whole(parts: Any) -> Any:
    """Return the element that a function received as its arguments."""
    return parts[0] if len(parts) == 1 else parts


class NumpySide:
    """zmqdata, with functions on numpy elements."""

    Dataset = zmqdata.Dataset
    TextLineDataset = zmqdata.TextLineDataset
    TFRecordDataset = zmqdata.TFRecordDataset
    FixedLengthRecordDataset = zmqdata.FixedLengthRecordDataset
    CsvDataset = zmqdata.CsvDataset
    SqlDataset = zmqdata.SqlDataset
    Options = zmqdata.Options
    int64 = np.int64
    int32 = np.int32

    def dtype(self, dtype: Any) -> Any:
        return dtype

    def constant(self, value: Any, dtype: Any) -> Any:
        return value if dtype is str else dtype(value)

    def all_equal(self, one: Any, other: Any) -> Any:
        return np.all(one == other)

    def leaves(self, element: Any) -> list[Any]:
        return [np.asarray(leaf) for leaf in leaves_of(element)]

    def total(self, element: Any) -> Any:
        return np.int64(sum(int(_summed(leaf)) for leaf in self.leaves(element)))

    def map_leaves(self, function: Any, element: Any) -> Any:
        return map_structure(
            lambda leaf: function(leaf, np.asarray(leaf).dtype.kind in "iuf"), element
        )

    def arange(self, stop: Any) -> Any:
        return np.arange(int(stop))

    def stack(self, numbers: list[Any], dtype: Any) -> Any:
        return np.array(numbers).astype(dtype)

    def zeros(self, rows: Any, columns: Any) -> Any:
        return np.zeros((int(rows), int(columns)), np.int32)

    def text(self, number: Any) -> Any:
        return str(int(number))

    def fail_if(self, condition: Any, element: Any) -> Any:
        if condition:
            raise ValueError("asked for")
        return element

    def length(self, array: Any) -> Any:
        return len(array)

    def signature(self, shape: Any, dtype: Any) -> Any:
        return zmqdata.TensorSpec(shape, dtype)

    def reducer(self, *functions: Any) -> Any:
        return zmqdata.Reducer(*functions)

    def pad_to_cardinality(self, dataset: Any, count: int) -> Any:
        return dataset.pad_to_cardinality(count)

    def assert_cardinality(self, dataset: Any, count: int) -> Any:
        return dataset.assert_cardinality(count)

    def group_by_reducer(self, dataset: Any, key: Any, reducer: Any) -> Any:
        return dataset.group_by_reducer(key, reducer)

    def from_list(self, elements: list[Any]) -> Any:
        return zmqdata.Dataset.from_list(elements)

    def at(self, dataset: Any, index: int) -> Any:
        return dataset.at(index)

    def slices(self, *batch: Any) -> Any:
        return zmqdata.Dataset.from_tensor_slices(whole(batch))

    def padded(self, ragged: Any) -> Any:
        return ragged.to_tensor() if isinstance(ragged, zmqdata.RaggedTensor) else ragged


class TensorSide:
    """TensorFlow, with the same functions on tensors."""

    Dataset = tf.data.Dataset
    TextLineDataset = tf.data.TextLineDataset
    TFRecordDataset = tf.data.TFRecordDataset
    FixedLengthRecordDataset = tf.data.FixedLengthRecordDataset
    CsvDataset = tf.data.experimental.CsvDataset
    SqlDataset = tf.data.experimental.SqlDataset
    Options = tf.data.Options

    def dtype(self, dtype: Any) -> Any:
        return tf.string if dtype is str else tf.as_dtype(dtype)

    def constant(self, value: Any, dtype: Any) -> Any:
        return tf.constant(value, self.dtype(dtype))

    def all_equal(self, one: Any, other: Any) -> Any:
        return tf.reduce_all(tf.equal(one, other))

    def int32(self, number: Any) -> Any:
        return tf.cast(number, tf.int32)

    def int64(self, number: Any) -> Any:
        return tf.cast(number, tf.int64)

    def total(self, element: Any) -> Any:
        return tf.add_n([tf.constant(0, tf.int64), *map(_tensor_summed, tf.nest.flatten(element))])

    def map_leaves(self, function: Any, element: Any) -> Any:
        return tf.nest.map_structure(
            lambda leaf: function(leaf, leaf.dtype.is_integer or leaf.dtype.is_floating), element
        )

    def arange(self, stop: Any) -> Any:
        return tf.range(tf.cast(stop, tf.int64))

    def stack(self, numbers: list[Any], dtype: Any) -> Any:
        return tf.cast(tf.stack(numbers), dtype)

    def zeros(self, rows: Any, columns: Any) -> Any:
        return tf.zeros(tf.stack([tf.cast(rows, tf.int64), tf.cast(columns, tf.int64)]), tf.int32)

    def text(self, number: Any) -> Any:
        return tf.strings.as_string(number)

    def fail_if(self, condition: Any, element: Any) -> Any:
        with tf.control_dependencies(
            [tf.debugging.Assert(tf.logical_not(condition), ["asked for"])]
        ):
            return tf.nest.map_structure(tf.identity, element)

    def length(self, array: Any) -> Any:
        return tf.shape(array)[0]

    def signature(self, shape: Any, dtype: Any) -> Any:
        return tf.TensorSpec(shape, dtype)

    def reducer(self, *functions: Any) -> Any:
        return tf.data.experimental.Reducer(*functions)

    def pad_to_cardinality(self, dataset: Any, count: int) -> Any:
        return dataset.apply(tf.data.experimental.pad_to_cardinality(count))

    def assert_cardinality(self, dataset: Any, count: int) -> Any:
        return dataset.apply(tf.data.experimental.assert_cardinality(count))

    def group_by_reducer(self, dataset: Any, key: Any, reducer: Any) -> Any:
        return dataset.apply(tf.data.experimental.group_by_reducer(key, reducer))

    def from_list(self, elements: list[Any]) -> Any:
        return tf.data.experimental.from_list(elements)

    def slices(self, *batch: Any) -> Any:
        return tf.data.Dataset.from_tensor_slices(whole(batch))

    def at(self, dataset: Any, index: int) -> Any:
        return tf.nest.map_structure(
            lambda leaf: leaf.numpy(), tf.data.experimental.at(dataset, index)
        )

    def padded(self, ragged: Any) -> Any:
        return ragged.to_tensor() if isinstance(ragged, tf.RaggedTensor) else ragged


NUMPY, TENSOR = NumpySide(), TensorSide()


def _summed(leaf: Any) -> Any:
    return np.char.str_len(leaf).sum() if leaf.dtype.kind in "US" else leaf.astype(np.int64).sum()


def _tensor_summed(leaf: Any) -> Any:
    return tf.reduce_sum(
        tf.cast(tf.strings.length(leaf) if leaf.dtype == tf.string else leaf, tf.int64)
    )


def plain(value: Any, leaf: Any) -> Any:
    """Return a nesting as comparable tuples, with a function applied to its leaves."""
    if isinstance(value, dict):
        return ("dict", *((key, plain(child, leaf)) for key, child in sorted(value.items())))
    if isinstance(value, tuple) and not isinstance(value, tf.compat.v1.ragged.RaggedTensorValue):
        kind = type(value).__name__ if hasattr(value, "_fields") else "tuple"
        return (kind, *(plain(child, leaf) for child in value))
    if (names := field_names(type(value))) is not None:
        return (type(value).__name__, *(plain(getattr(value, name), leaf) for name in names))
    return leaf(value)


def plain_element(element: Any, loose: bool) -> Any:
    """Return the dtype, shape and values of each leaf of an element. A loose comparison
    treats every number as having 64 bits.
    """

    def leaf(value: Any) -> Any:
        if hasattr(value, "to_list"):
            return ("ragged", _bytes(value.to_list()))
        array = np.asarray(value)
        if array.dtype == object and not all(isinstance(one, (bytes, str)) for one in array.flat):
            return ("ragged", _bytes(array.tolist()))
        return (_dtype_name(array.dtype, loose), array.shape, _bytes(array.tolist()))

    return plain(element, leaf)


def lists(element: Any) -> Any:
    """Return an element without dtypes and shapes. Ragged tensors then compare equal to
    arrays with the same rows.
    """
    if len(element) == 2 and element[0] == "ragged":
        return element[1]
    if (
        len(element) == 3
        and isinstance(element[0], str)
        and isinstance(element[1], tuple)
        and _is_shape(element[1])
    ):
        return element[2]
    return tuple(child if isinstance(child, str) else lists(child) for child in element)


def _is_shape(value: tuple[Any, ...]) -> bool:
    return all(type(length) is int for length in value)


def _bytes(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return tuple(map(_bytes, value))
    return value.encode() if isinstance(value, str) else value


def _dtype_name(dtype: Any, loose: bool) -> str:
    if dtype.kind in "USO":
        return TEXT
    wide = {"i": "int64", "f": "float64"}
    return wide.get(dtype.kind, dtype.name) if loose else dtype.name


def plain_spec(spec: Any, loose: bool) -> Any:
    """Return the dtype and shape of each leaf of either library's spec."""

    def leaf(one: Any) -> Any:
        dtype = one.dtype.as_numpy_dtype if isinstance(one.dtype, tf.DType) else one.dtype
        shape = one.shape
        if isinstance(shape, tf.TensorShape):
            shape = None if shape.rank is None else tuple(shape.as_list())
        rank = getattr(one, "ragged_rank", 0)
        return (_dtype_name(np.dtype(dtype), loose), shape, rank)

    return plain(spec, leaf)


def specs_agree(one: Any, other: Any) -> bool:
    """Return True for equal nestings and dtypes, and shapes that an array can share."""
    if (
        isinstance(one[0], str)
        and one[0] == other[0]
        and len(one) == len(other) == 3
        and isinstance(one[2], int)
    ):
        mine, theirs = one[1], other[1]
        if mine is None or theirs is None:
            return True
        return len(mine) == len(theirs) and all(
            None in (a, b) or a == b for a, b in zip(mine, theirs, strict=True)
        )
    if len(one) != len(other):
        return False
    return all(
        a == b if isinstance(a, str) else specs_agree(a, b) for a, b in zip(one, other, strict=True)
    )
