"""Checks of a pipeline while it is built: what declared specs show to be impossible is
refused at the operation's call, before anything runs.

A spec is known at that time if it follows from sources, rules and ``output_spec=``. No
function of the user is called to find it. Each check accepts None for an unknown spec.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from zmqdata import operations
from zmqdata.elements.fillers import check_filler, filler_of
from zmqdata.elements.nesting import leaves_of, map_structure
from zmqdata.elements.ragged import RaggedTensorSpec
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.specs import (
    DatasetSpec,
    NoneTensorSpec,
    TensorSpec,
    leading_length,
    merge_joined_specs,
)
from zmqdata.errors import InvalidArgumentError, WrongTypeError
from zmqdata.nodes.base import Node, every_node, function_name, known_spec
from zmqdata.peeking import counted, misfit, parameters_of, returned_class

# --- calls of functions

_TUPLES = (
    "A plain tuple is passed as separate arguments, as in `lambda x, y: ...`; any other element "
    "as a single argument"
)


def check_element_call(name: str, function: Callable[..., Any], spec: Any, more: int = 0) -> None:
    """Raise if a function is known not to accept elements of a spec: a plain tuple is
    passed as several arguments.

    Args:
        name: the argument that the function was given as.
        function: the function.
        spec: spec of the elements, or None.
        more: number of arguments after the element.

    Raises:
        TypeError: the function takes another number of arguments.

    >>> check_element_call("map_func", lambda x, y: x, (TensorSpec(()), TensorSpec(())))
    """
    if spec is not None:
        check_call(name, function, (len(spec) if type(spec) is tuple else 1) + more, spec)


def check_call(
    name: str, function: Callable[..., Any], given: int, spec: Any = None, hint: str = _TUPLES
) -> None:
    """Raise if a function is known not to accept a number of arguments.

    Args:
        name: the argument that the function was given as.
        function: the function.
        given: the number of arguments.
        spec: spec of the elements, or None.
        hint: sentence that says what the arguments are.

    Raises:
        TypeError: the function takes another number of arguments.

    >>> check_call("scan_func", lambda state, x: (state, x), 2)
    """
    wrong = misfit(parameters_of(function), given)
    if wrong is None:
        return
    elements = "" if spec is None else f", because the elements are {spec}"
    raise TypeError(
        f"`{name}` is called with {counted(given, 'argument')}{elements}: "
        f"{function_name(function)}() {wrong}. {hint}"
    )


def check_collate_call(function: Callable[..., Any]) -> None:
    """Raise if a ``collate_fn`` is known not to accept a list as its only argument.

    Raises:
        TypeError: the function takes another number of arguments.

    >>> check_collate_call(lambda elements: elements[0])
    """
    check_call(
        "collate_fn", function, 1, hint="The argument is the list of the elements of a batch"
    )


DATASET: tuple[str, tuple[type, ...]] = ("a `Dataset`", ())
"""Result of a function that makes datasets, and the plain classes that it may have."""
_BOOL = ("a `bool` scalar", (bool, np.bool_, np.ndarray))
_INTEGER = ("a single `int64` scalar", (int, np.integer, np.ndarray))
_PAIR = ("a pair of the new state and the output value", (tuple, list))
_RETURNS = {
    "predicate": _BOOL,
    "key_func": _INTEGER,
    "class_func": _INTEGER,
    "element_length_func": _INTEGER,
    "shard_func": _INTEGER,
    "window_size_func": _INTEGER,
    "scan_func": _PAIR,
    "reduce_func": DATASET,
    "reader_func": DATASET,
}
_PLAIN = (bool, int, float, complex, str, bytes, list, tuple, dict, set, type(None))


def check_return(
    name: str, function: Any, expected: tuple[str, tuple[type, ...]] | None = None
) -> None:
    """Raise if a function says that it returns a plain value that its operation cannot
    take. Objects of other classes may be anything.

    Args:
        name: the argument that the function was given as.
        function: the function, or None.
        expected: what the operation takes, in words and as classes; None: as the name
            says.

    Raises:
        WrongTypeError: the function returns another value.

    >>> def key(x) -> int:
    ...     return x % 2
    >>> check_return("key_func", key)
    """
    found, expected = returned_class(function), expected or _RETURNS.get(name)
    if (
        found is None
        or expected is None
        or not issubclass(found, (*_PLAIN, np.ndarray, np.generic))
    ):
        return
    words, kinds = expected
    if not issubclass(found, kinds) or (found is bool and bool not in kinds):
        raise WrongTypeError(
            f"Invalid `{name}`: it must return {words}, and {function_name(function)}() says that "
            f"it returns `{found.__name__}`. Return {words}, or correct the annotation"
        )


# --- padding and rows


def check_padding(operation: str, spec: Any, padded_shapes: Any, padding_values: Any) -> None:
    """Raise for padding that is known to fail.

    Raises:
        InvalidArgumentError: shapes or values do not match the elements.
        TypeError: the elements have leaves that cannot be padded.

    >>> check_padding("padded_batch", None, [None], -1)
    """
    if spec is None:
        for value in leaves_of(padding_values):
            check_filler(value)
        return

    def check_leaf(leaf: Any, padding: operations.padding.Padding) -> None:
        if isinstance(leaf, NoneTensorSpec):
            return
        if isinstance(leaf, RaggedTensorSpec):
            raise TypeError(
                f"{operation}() pads arrays, but the elements have a ragged leaf "
                f"{leaf}. Use batch() to stack ragged tensors, or "
                "RaggedTensor.to_tensor() in a map() to pad them"
            )
        check_no_datasets(operation, leaf)
        if padding.shape is not None:
            _check_padded_shape(leaf, padding.shape)
        # A value for all leaves need not fit scalars, which are not padded.
        if padding.value is not None and (leaf.shape != () or np.ndim(padding.value)):
            filler_of(padding.value, leaf.dtype)

    map_structure(
        check_leaf, spec, operations.padding.padding_plan(spec, padded_shapes, padding_values)
    )


def _check_padded_shape(leaf: Any, padded: tuple[int | None, ...]) -> None:
    if leaf.shape is None:
        return
    is_fit = len(padded) == len(leaf.shape) and not any(
        want is not None and have is not None and have > want
        for want, have in zip(padded, leaf.shape, strict=True)
    )
    if not is_fit:
        raise InvalidArgumentError(
            f"The padded shape {padded} is not compatible with the corresponding input component "
            f"shape {leaf.shape}. padded_shapes must have one length for each axis, at least that "
            f"of {leaf}. None stands for the longest length in the batch"
        )


def check_rows(name: str, spec: Any) -> None:
    """Raise for elements that are known to have no rows.

    Raises:
        InvalidArgumentError: an array has no axis, or the arrays have different numbers
            of rows.

    >>> check_rows("unbatch()", (TensorSpec((None, 3)), TensorSpec((4,))))
    """
    if spec is None:
        return
    leaves = [leaf for leaf in leaves_of(spec) if not isinstance(leaf, NoneTensorSpec)]
    if not leaves or any(leaf.shape == () for leaf in leaves):
        raise InvalidArgumentError(
            f"{name} splits arrays along their first axis, but some leaves have no "
            f"axis: {spec}. Cannot unbatch an input with scalar components. Batch them first, or "
            "remove these leaves in a map()"
        )
    rows = leading_length(spec)
    if any(leaf.shape and leaf.shape[0] not in (None, rows) for leaf in leaves):
        raise InvalidArgumentError(
            f"{name} splits arrays with equal numbers of rows, a matching leading dimension, but "
            f"these differ: {spec}. Make them equal in a map()"
        )


# --- elements with a certain meaning


def check_alike(name: str, inputs: Sequence[Node], names: Sequence[str] = ()) -> None:
    """Raise if the elements of several datasets are known to differ in nesting or
    dtype.

    Args:
        name: the operation.
        inputs: the datasets.
        names: names of the datasets, if they have any.

    Raises:
        TypeError: they differ.
    """
    known = [index for index, node in enumerate(inputs) if known_spec(node) is not None]
    for count in range(1 if names else len(known), len(known) + 1):
        difference = _difference([inputs[index] for index in known[:count]])
        if difference:
            pair = f" in `{names[known[0]]}` and `{names[known[count - 1]]}`" if names else ""
            raise TypeError(
                f"Incompatible dataset elements: {name} joins datasets whose elements have the "
                "same structure (`datasets` must have compatible element specs), and these "
                f"differ{pair}: {difference}"
            )


def _difference(nodes: Sequence[Node]) -> str:
    """Return in which way the elements of datasets differ; "" if they do not."""
    try:
        if nodes:
            merge_joined_specs(map(known_spec, nodes), lambda: [node.cardinality for node in nodes])
    except TypeError as error:
        return str(error)
    return ""


def check_no_datasets(operation: str, spec: Any) -> None:
    """Raise if elements are known to contain datasets.

    Raises:
        TypeError: they have a leaf that is a dataset.

    >>> check_no_datasets("padded_batch", TensorSpec(()))
    """
    for leaf in () if spec is None else leaves_of(spec):
        if isinstance(leaf, DatasetSpec):
            raise TypeError(
                f"{operation}() is not supported for datasets that yield datasets, and the "
                f"elements have a leaf {leaf}. Make arrays of the windows first, for example "
                "with flat_map()"
            )


def check_file_names(spec: Any) -> None:
    """Raise if elements are known not to be names of files.

    Raises:
        TypeError: they are not single texts.

    >>> check_file_names(TensorSpec((), str))
    """
    if spec is None:
        return
    if not isinstance(spec, TensorSpec) or spec.dtype.kind not in "USO":
        kind = dtype_name(spec.dtype) if isinstance(spec, TensorSpec) else spec
        raise TypeError(
            f"The `filenames` argument must contain `str` elements. Got a dataset of {kind} "
            "elements. Make names of them in a map()"
        )
    if spec.shape not in (None, ()):
        raise TypeError(
            "The `filenames` argument must contain `str` elements of shape [] (i.e. scalars). Got "
            f"a dataset of element shape {spec.shape}. Take the arrays apart with unbatch()"
        )


def check_choices(spec: Any) -> None:
    """Raise if elements are known not to be numbers of datasets.

    Raises:
        TypeError: they are not single integers.

    >>> check_choices(TensorSpec((), "int32"))
    """
    if spec is None:
        return
    if (
        not isinstance(spec, TensorSpec)
        or spec.shape not in (None, ())
        or spec.dtype.kind not in "iu"
    ):
        raise TypeError(
            "Invalid `choice_dataset`. choice_dataset must yield integers, scalar `int64` each, "
            f"but its elements are {spec}"
        )


def check_weights(spec: Any, count: int) -> None:
    """Raise if elements are known not to be a weight for each dataset.

    Raises:
        TypeError: they are not arrays of numbers.
        ValueError: they have another number of weights.

    >>> check_weights(TensorSpec((2,), "float64"), 2)
    """
    if spec is None:
        return
    if not isinstance(spec, TensorSpec) or spec.dtype.kind not in "biuf":
        raise TypeError(
            "Invalid `weights`. `weights` type must be a float or an integer, in arrays of "
            f"{count}, but its elements are {spec}"
        )
    if spec.shape is not None and (len(spec.shape) != 1 or spec.shape[0] not in (None, count)):
        raise ValueError(
            "Invalid `weights`. `weights` should have the same length as `datasets`, "
            f"{count}, but its elements are {spec}"
        )


def check_comparable(spec: Any) -> None:
    """Raise if ``unique`` is known not to compare elements of a spec.

    Raises:
        TypeError: they are not single arrays or scalars of integers or texts.

    >>> check_comparable(TensorSpec((2,), str))
    """
    if spec is None:
        return
    if not isinstance(spec, TensorSpec):
        raise InvalidArgumentError(
            "unique() only supports inputs with a single component, an array or scalar, but the "
            f"elements are {spec}. Make a key of them with map()"
        )
    if spec.dtype.kind not in "biuUSO":
        raise TypeError(
            f"unique() does not support type {dtype_name(spec.dtype)} -- only integers and texts "
            "are supported. Make a key with map(), or a float as text"
        )


def check_cost(node: Node, cost: Any) -> None:
    """Raise if ``balance`` is known not to be able to deal elements of a pipeline by a
    cost.

    Args:
        node: the pipeline.
        cost: the function, or the name of a leaf.

    Raises:
        InvalidArgumentError: the pipeline is distributed, or the leaf does not exist
            or has no length.
    """
    for one in every_node(node):
        if one.runs_elsewhere:
            raise InvalidArgumentError(
                f"balance() stands after {one.label}, where each consumer has its own elements "
                "only, and cannot exchange them with others. Call balance() before the dataset is "
                "distributed"
            )
    spec = known_spec(node)
    if not isinstance(cost, str) or spec is None:
        return
    leaf = spec.get(cost) if isinstance(spec, Mapping) else None
    if getattr(leaf, "shape", ()) == ():
        raise InvalidArgumentError(
            f"balance() got cost={cost!r}, the name of a leaf whose length counts, and the "
            f"elements are {spec}. Name a leaf of a dict, with an axis, or pass a function"
        )
