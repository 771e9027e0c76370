"""Checks of the arguments of ``Dataset``'s methods. Each error states the received and
the expected value.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import FrameType
from typing import Any, TypeAlias, get_args

import numpy as np

from zmqdata import operations
from zmqdata.config.checks import OnError, SourceOnError, at_least, integer, refuse
from zmqdata.config.settings import warn_user
from zmqdata.dataset.frames import refuse_frame
from zmqdata.elements.lists import array_of
from zmqdata.elements.nesting import leaves_of, map_structure, nesting_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import AUTOTUNE, NoneTensorSpec, TensorSpec, check_spec
from zmqdata.elements.subclasses import plain_array
from zmqdata.elements.tensors import as_stackable, sort_of
from zmqdata.errors import InvalidArgumentError, UnimplementedError
from zmqdata.files import filenames
from zmqdata.files.paths import FileName, is_url, shown_url, whole_path
from zmqdata.nodes.base import Node
from zmqdata.peeking import peek
from zmqdata.storage.files import StorageOptions, check_protocols
from zmqdata.storage.packed import zstandard_module
from zmqdata.storage.records import COMPRESSION_TYPES

MOST = 2**63 - 1
"""Maximum number of elements; counts have 64 bits."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STARTERS = ("<frozen ", threading.__file__)
"""Beginnings of the names of files that start programs and threads."""


def call_site() -> str:
    """Return ``file:line`` of the user's code that called into this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (name := _users_file(frame.f_code.co_filename)) is None:
        frame = frame.f_back
    return "" if frame is None else f"{name}:{frame.f_lineno}"


@lru_cache(maxsize=1024)  # functions of flat_map make a dataset for each element
def _users_file(path: str) -> str | None:
    """Return the name of a file of the user's code, as labels show it; None for a file
    of this package, and for one that started the thread or program.
    """
    if os.path.abspath(path).startswith(_PACKAGE) or path.startswith(_STARTERS):
        return None
    return filenames.legible(os.path.basename(path))


def element_count(count: Any) -> int:
    """Return the count of ``repeat``, ``take`` or ``skip``: each negative number stands
    for -1, as in tf.data.
    """
    return max(-1, integer("count", count))


def flag(name: str, value: Any, otherwise: bool | None = None) -> bool:
    """Return the argument as a bool; 0 and 1 are not accepted, and None only if it
    stands for another value.
    """
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, (bool, np.bool_)):
        refuse(name, value, "a bool")
    return bool(value)


def number(name: str, value: Any) -> float:
    """Return the argument as a finite float of at least 0."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        refuse(name, value, "a number")
    if not 0 <= value <= sys.float_info.max:
        raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    return float(value)


def numbers(name: str, value: Any, expected: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a list of numbers as an array."""
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        refuse(name, value, expected)


def dtype(name: str, value: Any, kinds: str, expected: str) -> np.dtype[Any]:
    """Return the argument as a numpy dtype after checking its kind."""
    try:
        found: np.dtype[Any] | None = None if value is None else np.dtype(value)
    except (TypeError, ValueError):
        found = None
    if found is None:
        refuse(name, value, f"{expected}, such as np.float32 or 'int64'")
    if found.kind not in kinds:
        raise TypeError(f"{name} is {found}, expected {expected}")
    return found


def several(name: str, value: Any, expected: str) -> list[Any]:
    """Return the items of a list or another iterable except text."""
    is_dataset = isinstance(getattr(value, "node", None), Node)  # which listing would run
    if isinstance(value, (str, bytes)) or is_dataset or not isinstance(value, Iterable):
        refuse(name, value, expected)
    return list(value)


def optional_spec(name: str, value: Any) -> Any:
    """Return a nesting of specs, or None. A leaf of None stands for its own spec."""
    if value is None:
        return None
    spec = map_structure(lambda leaf: NoneTensorSpec() if leaf is None else leaf, value)
    check_spec(name, spec)
    return spec


def parallel_calls(
    num_parallel_calls: Any, deterministic: Any, name: str = "num_parallel_calls"
) -> dict[str, Any]:
    """Return the parameters of a node with threads; empty for a node without
    threads.
    """
    ordered = None if deterministic is None else flag("deterministic", deterministic)
    if num_parallel_calls is None:
        if deterministic is not None:
            warn_user(
                "deterministic has no effect without num_parallel_calls: calls in a "
                "single thread are in order"
            )
        return {}
    calls = integer(name, num_parallel_calls)
    if calls < 1 and calls != AUTOTUNE:
        raise InvalidArgumentError(
            f"{name} must be at least 1, AUTOTUNE or None, got {calls}. It must be greater than "
            "zero"
        )
    return {"num_parallel_calls": calls, "deterministic": ordered}


def generator_spec(output_types: Any, output_shapes: Any, output_signature: Any) -> Any:
    """Return the spec of a generator's elements, from the signature or from the two
    older arguments of tf.data.
    """
    if output_types is None and output_shapes is None:
        return optional_spec("output_signature", output_signature)
    if output_types is None or output_signature is not None:
        given = "`output_shapes`" if output_types is None else "`output_types`"
        raise TypeError(
            "from_generator() takes either output_signature, with TensorSpec(shape, "
            "dtype) for each leaf, or output_types and, with them, output_shapes; "
            f"not both. The {given} argument can not be used together with the "
            "`output_signature` argument, nor `output_shapes` without `output_types`"
        )
    types, nesting = leaves_of(output_types), nesting_of(output_types)
    try:
        shapes = (
            [None] * len(types) if output_shapes is None else nesting.flatten_up_to(output_shapes)
        )
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"output_shapes must be nested as output_types, {output_types!r}: {error}"
        ) from None
    kinds = [dtype("output_types", kind, "?biufcOUSMm", "a dtype for each leaf") for kind in types]
    return nesting.unflatten([TensorSpec(*spec) for spec in zip(shapes, kinds, strict=True)])


def error_policy(on_error: Any, retries: Any, max_errors: Any) -> dict[str, Any]:
    """Return the parameters of a map that skips or retries failures; empty for a map
    that raises all of them.
    """
    if on_error not in get_args(OnError):
        raise ValueError(f'on_error must be "raise", "skip" or "retry", got {on_error!r}')
    if retries is not None and on_error == "raise":
        raise ValueError(
            'retries needs on_error="retry" (which raises after the last retry) or '
            'on_error="skip" (which skips after the last retry)'
        )
    if max_errors is not None and on_error != "skip":
        raise ValueError(
            'max_errors needs on_error="skip": it limits the number of skipped elements'
        )
    if on_error == "raise":
        return {}
    again = (
        (3 if on_error == "retry" else 0) if retries is None else at_least("retries", retries, 0)
    )
    most = None if max_errors is None else at_least("max_errors", max_errors, 0)
    return {"on_error": on_error, "retries": again, "max_errors": most}


FileNames: TypeAlias = "FileName | Iterable[FileName]"
"""A name, or several."""


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0


def writable_path(name: str, value: Any) -> str:
    """Return the absolute path of a local file, or a URL that can be written to.

    Args:
        name: name of what writes there, for the error.
        value: the path as the user wrote it.
    """
    found = readable_path(value)
    if found.startswith(("http://", "https://")):
        raise UnimplementedError(
            f"{name} cannot write to {shown_url(found)}, because web servers take no files. Give a "
            "folder, or the URL of a store, such as 's3://bucket/x'"
        )
    if is_url(found) and "::" in found:
        raise InvalidArgumentError(
            f"{name} writes to a single file system, but {shown_url(found)} names several. Give a "
            "URL without '::'"
        )
    return found


def file_names(
    value: Any,
    name: str = "filenames",
    expected: str = "a file name, several or a dataset of them",
) -> tuple[str, ...]:
    """Return a file name or several, resolved from the current folder, or URLs."""
    if isinstance(value, (str, bytes, os.PathLike)) or _is_scalar(value):
        return (readable_path(value),)
    given = value.ravel() if isinstance(value, np.ndarray) else value
    names = several(name, given, expected)
    try:
        return tuple(map(readable_path, names))
    except TypeError as error:
        raise TypeError(f"The `{name}` argument must contain `str` elements: {error}") from None


def readable_path(value: Any) -> str:
    """Return the absolute path of a local file, or a URL that can be read here."""
    found = whole_path(value)
    if is_url(found):
        check_protocols(found)
    return found


def store_options(value: Any) -> StorageOptions | None:
    """Return the arguments of a store's client."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        refuse("storage_options", value, "a dict of the options of the store, or None")
    return StorageOptions(value)


def skips_errors(on_error: Any) -> bool:
    """Return True if a source leaves out what it cannot read."""
    if on_error not in get_args(SourceOnError):
        raise ValueError(f'on_error of a source must be "raise" or "skip", got {on_error!r}')
    return bool(on_error == "skip")


def readable(node: Node, skipping: bool) -> Node:
    """Return a source. If ``skipping``, it leaves out what it cannot read, and lists
    that in the quarantine.
    """
    if not skipping:
        return node
    return operations.selections.SkipUnreadable(inputs=(node,), site=node.site)


def compression(value: Any) -> str:
    """Return the compression of files to read, one of ``FileCompression``.

    Raises:
        InvalidArgumentError: it is none of them.
        ImportError: the package that unpacks it is missing.
    """
    found = "" if value is None else value
    if not isinstance(found, str) or found not in COMPRESSION_TYPES:
        raise InvalidArgumentError(
            f'compression_type must be "", "GZIP", "ZLIB" or "ZSTD", got {value!r}. Unsupported '
            f"compression_type: {value}."
        )
    if found == "ZSTD":
        zstandard_module()
    return found


def sliceable(leaf: Any) -> np.ndarray[Any, Any] | RaggedTensor | None:
    """Return an array, list or ragged tensor as an object with rows. None stays None in
    each row.
    """
    if leaf is None or isinstance(leaf, RaggedTensor):
        return leaf
    if sort_of(type(leaf)) == "frame":
        refuse_frame("from_tensor_slices()", leaf)
    try:
        is_list = isinstance(leaf, (list, deque))
        array = array_of([*leaf]) if is_list else plain_array(as_stackable(leaf))
    except ValueError as error:
        raise ValueError(
            f"from_tensor_slices() got rows that do not make a single array: {error}. "
            "For rows of different lengths use RaggedTensor.from_rows(...), or "
            "from_list(...), which accepts any rows"
        ) from None
    if array.ndim == 0:
        raise ValueError(
            f"from_tensor_slices() got {leaf!r}, expected arrays with an axis to slice; use "
            "from_tensors()"
        )
    return array


def input_node(name: str, dataset: Any) -> Node:
    """Return the node of an argument that must be a dataset."""
    node = peek(dataset, "node")
    if not isinstance(node, Node):
        refuse(f"what {name} takes", dataset, "a Dataset")
    return node


def input_nodes(name: str, datasets: Any) -> tuple[Node, ...]:
    """Return the nodes of an argument that must be a list of datasets."""
    expected = "a list of datasets"
    if isinstance(peek(datasets, "node"), Node):
        refuse(f"what {name} takes", datasets, expected)
    return tuple(
        input_node(name, dataset) for dataset in several(f"what {name} takes", datasets, expected)
    )
