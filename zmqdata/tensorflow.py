"""TensorFlow: a dataset of zmqdata as a ``tf.data.Dataset``.

This module needs TensorFlow (``pip install 'zmqdata[tensorflow]'``), and no other
module imports it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from zmqdata.config.checks import refuse
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.elements.nesting import leaves_of, nesting_of, places_of
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.specs import (
    UNKNOWN_CARDINALITY,
    DatasetSpec,
    NoneTensorSpec,
    TensorSpec,
    spec_of,
)
from zmqdata.elements.tensors import as_stackable
from zmqdata.machine.exiting import ForeignCalls

try:
    import tensorflow as tf
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError(
        "`zmqdata.tensorflow` needs TensorFlow, which is not installed in this environment. "
        "Install it: `pip install 'zmqdata[tensorflow]'`"
    ) from None

_DECLARE = "Declare it in the pipeline: `map(..., output_spec=)`"


def to_tf_dataset(ds: Dataset) -> Any:
    """Return a ``tf.data.Dataset`` with the elements of a dataset.

    Its spec is ``ds.element_spec`` in TensorFlow's terms: the nesting stays, texts are
    ``tf.string``, ragged tensors and None are TensorFlow's own. Its cardinality is that
    of ``ds``, if it is known. Each iteration reads the next repetition of ``ds``, and
    closes it when it is left.

    Args:
        ds: the dataset, read in this process or distributed.

    Raises:
        TypeError: ``ds`` is not a dataset, or a leaf has no dtype in TensorFlow, or an
            unknown one. The text names the leaf.
        InvalidArgumentError: the spec is unknown, because there is no element to find
            it by.

    An error of the pipeline, and an element that does not match the spec, are raised by
    TensorFlow as a ``tf.errors.OpError`` with the text of the error; the next element
    follows. To skip such elements, use ``map(on_error="skip")`` in the pipeline.
    TensorFlow's ``ignore_errors()`` would wait for the asserted number of elements for
    ever.

    >>> ds = Dataset.from_tensor_slices({"x": [1, 2, 3], "name": ["a", "b", "c"]})
    >>> made = to_tf_dataset(ds.batch(2))
    >>> made.element_spec["name"].dtype, int(made.cardinality())
    (tf.string, 2)
    >>> [int(sum(batch["x"])) for batch in made]
    [3, 3]

    Equivalent of ``tf.data.Dataset.from_generator`` with a signature.
    """
    if not isinstance(ds, Dataset):
        refuse("ds", ds, "a Dataset")
    tensors = _Tensors(ds.element_spec, copies=not ds.node.runs_elsewhere)

    made = tf.data.Dataset.from_generator(
        lambda: _Reading(iter(ds), tensors), output_signature=tensors.signature
    ).map(tf.autograph.experimental.do_not_convert(tensors.nested))
    count = ds.cardinality()
    if count == UNKNOWN_CARDINALITY:
        return made
    return made.apply(tf.data.experimental.assert_cardinality(count))


class _Reading:
    """Iterator over a repetition, of which a thread of TensorFlow takes elements.

    It is no generator, which an error would end. TensorFlow drops it when the iteration
    ends or is left, which closes the source.
    """

    def __init__(self, source: DatasetIterator, tensors: _Tensors) -> None:
        self._source = source
        self._tensors = tensors
        _calls.add(self)

    def __iter__(self) -> _Reading:
        return self

    def __next__(self) -> Any:
        with _calls:
            return self._tensors.of(next(self._source))

    def close(self) -> None:
        """End the wait for an element."""
        self._source.close()


_calls = ForeignCalls()


class _Tensors:
    """Makes of an element what TensorFlow takes for a signature: a tuple of its leaves,
    without those that are always None.

    Args:
        spec: spec of the elements.
        copies: True if a function of the pipeline may write to an array that it has
            returned, which TensorFlow would share.

    Attributes:
        signature: TensorFlow's spec of each leaf.
    """

    def __init__(self, spec: Any, *, copies: bool) -> None:
        self._nesting = nesting_of(spec)
        self._places = places_of(spec, "element")
        self._specs = leaves_of(spec)
        self._copies = copies
        self.signature = tuple(
            _tf_spec(place, leaf)
            for place, leaf in zip(self._places, self._specs, strict=True)
            if not isinstance(leaf, NoneTensorSpec)
        )
        if not self.signature:
            raise TypeError(
                f"the elements hold no values, as their spec says: {spec}. TensorFlow needs an "
                "array, number or text in each element"
            )

    def of(self, element: Any) -> tuple[Any, ...]:
        """Return the leaves of an element.

        Raises:
            TypeError: the element does not match the spec; TensorFlow would cast it.
        """
        nesting = nesting_of(element)
        if nesting != self._nesting:
            raise TypeError(
                f"an element is nested as {nesting}, and the spec as {self._nesting}. Make the "
                "nesting of all elements equal with map()"
            )
        leaves = zip(self._places, leaves_of(element), self._specs, strict=True)
        values = [self._value(*leaf) for leaf in leaves]
        return tuple([value for value in values if value is not None])

    def nested(self, *tensors: Any) -> Any:
        """Return the tensors of an element in its nesting."""
        following = iter(tensors)
        return self._nesting.unflatten(
            [None if isinstance(leaf, NoneTensorSpec) else next(following) for leaf in self._specs]
        )

    def _value(self, place: str, leaf: Any, spec: Any) -> Any:
        if isinstance(spec, NoneTensorSpec):
            return leaf if leaf is None else _refuse_value(place, leaf, spec)
        if isinstance(spec, RaggedTensorSpec):
            if not isinstance(leaf, RaggedTensor) or not spec.admits(leaf):
                _refuse_value(place, leaf, spec)
            return _tf_ragged(leaf)
        value = as_stackable(leaf)
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(
                f"{place} is a masked array, and TensorFlow has none. Fill it in the pipeline: "
                "`map(lambda x: x.filled(0))`"
            )
        has_dtype = isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind != "O"
        found = value if has_dtype else spec_of(value)
        is_array = isinstance(found, (np.ndarray, np.generic, TensorSpec))
        if not is_array or not spec.admits(found.shape, found.dtype):
            _refuse_value(place, leaf, spec)
        return value.copy() if self._copies and isinstance(value, np.ndarray) else value


def _tf_spec(place: str, spec: Any) -> Any:
    if isinstance(spec, DatasetSpec):
        raise TypeError(
            f"{place} is a dataset, as `window` makes it, which TensorFlow cannot take from here. "
            "Make a batch of it: `flat_map(lambda window: window.batch(n))`"
        )
    if not isinstance(spec, (TensorSpec, RaggedTensorSpec)) or spec.dtype.hasobject:
        raise TypeError(
            f"{place} has the spec {spec}, and TensorFlow needs a dtype. A Python object has none: "
            f"leave it out, or make numbers or texts of it. {_DECLARE}, or at "
            "`from_dataset_id(..., element_spec=)`"
        )
    dtype = _tf_dtype(place, spec.dtype)
    if isinstance(spec, RaggedTensorSpec):
        return tf.RaggedTensorSpec(spec.shape, dtype, spec.ragged_rank, spec.row_splits_dtype)
    return tf.TensorSpec(spec.shape, dtype)


def _tf_dtype(place: str, dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "US":
        return tf.string
    try:
        return tf.as_dtype(dtype.newbyteorder("="))
    except TypeError:
        raise TypeError(
            f"{place} is {dtype_name(dtype)}, which TensorFlow does not have. Convert it in the "
            "pipeline: `map(lambda x: x.astype(np.float64))`, for dates "
            '`map(lambda x: x.astype("datetime64[s]").astype(np.int64))`, and for fields a dict of '
            "arrays"
        ) from None


def _tf_ragged(ragged: RaggedTensor) -> Any:
    splits = []
    values: Any = ragged
    while isinstance(values, RaggedTensor):
        splits.append(values.row_splits)
        values = values.values
    return tf.RaggedTensor.from_nested_row_splits(values, splits, validate=False)


def _refuse_value(place: str, leaf: Any, spec: Any) -> NoReturn:
    raise TypeError(
        f"{place} is {spec_of(leaf)} in an element, and the spec says {spec}. Was the spec found "
        f"by other elements? {_DECLARE}"
    )
