"""Nesting of elements and of specs: what is a structure, and what is a leaf.

Dicts, tuples, namedtuples and instances of attrs classes are structures. Anything else
is a leaf, also None, dataclasses and deques; so is a list, because a list in an element
is an array. Every walk over an element or a spec by optree belongs here, because optree
knows an attrs class only once it is registered (decision 0039).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import optree

from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import InvalidArgumentError
from zmqdata.peeking import has, peek

SCALAR_TYPES = frozenset({np.dtype(code).type for code in "?bhilqBHILQefdgFDGUSMm"}) | frozenset(
    {int, float, bool, complex, str, bytes, type(None)}
)
"""Types of single values, which nobody can change."""
LEAF_TYPES = SCALAR_TYPES | {np.ndarray, RaggedTensor}
"""Types of leaves that occur often. They hold no list and no structure, and are no
tensors of another library, so elements may hold them as they are.
"""
_KNOWN = LEAF_TYPES | {dict, tuple}
"""Types that are no attrs classes: a lookup here takes a third of the time of a look at
the class.
"""

_NAMESPACE = "zmqdata"
_registered: set[type] = set()


def map_structure(
    function: Callable[..., Any], structure: Any, *others: Any, in_lists: bool = False
) -> Any:
    """Apply a function to each leaf, including None, and return the results in the same
    nesting.

    Args:
        function: called with the leaf of the structure and those of the others.
        structure: determines what is a leaf.
        others: nested as the structure, with anything at its leaves.
        in_lists: True if a list is a structure, not a leaf.

    >>> map_structure(len, {"a": "xyz", "b": ([1, 2],)})
    {'a': 3, 'b': (2,)}
    """
    return optree.tree_map(
        function,
        structure,
        *others,
        is_leaf=_is_no_node if in_lists else _is_leaf,
        none_is_leaf=True,
        namespace=_NAMESPACE,
    )


def map_arrays(function: Callable[..., Any], structure: Any, *others: Any) -> Any:
    """Apply a function to each leaf except None, which stays None.

    >>> map_arrays(abs, (-1, None))
    (1, None)
    """
    return map_structure(
        lambda leaf, *more: None if leaf is None else function(leaf, *more), structure, *others
    )


def leaves_of(structure: Any, *, in_lists: bool = False) -> list[Any]:
    """Return the leaves from left to right; arguments as of ``map_structure``.

    >>> leaves_of({"a": 1, "b": (None, [2, 3])})
    [1, None, [2, 3]]
    """
    return optree.tree_leaves(
        structure,
        is_leaf=_is_no_node if in_lists else _is_leaf,
        none_is_leaf=True,
        namespace=_NAMESPACE,
    )


def places_of(structure: Any, root: str) -> list[str]:
    """Return the place of each leaf, as a Python expression that begins with ``root``.

    >>> places_of({"a": 1, "b": (2,)}, "element")
    ["element['a']", "element['b'][0]"]
    """
    accessors = optree.tree_accessors(
        structure, is_leaf=_is_leaf, none_is_leaf=True, namespace=_NAMESPACE
    )
    return [accessor.codify(root) for accessor in accessors]


def nesting_of(structure: Any, *, empty_is_leaf: bool = False) -> optree.PyTreeSpec:
    """Return the nesting alone, which takes apart and puts together other structures.

    Args:
        structure: the structure.
        empty_is_leaf: True if an empty container is a leaf, which others may fill.

    >>> nesting_of({"a": 1}).unflatten([7])
    {'a': 7}
    """
    return optree.tree_structure(
        structure,
        is_leaf=_is_leaf_or_empty if empty_is_leaf else _is_leaf,
        none_is_leaf=True,
        namespace=_NAMESPACE,
    )


class EqualNesting:
    """Checks that the elements of a pass are nested as the first of them.

    A training step takes elements of one nesting, so adapters of frameworks refuse
    others where they arrive.

    >>> equal = EqualNesting()
    >>> equal.check({"a": 1}) == equal.check({"a": 2})
    True
    >>> equal.check({"a": 1, "b": 2})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    zmqdata.errors.InvalidArgumentError: the elements of the dataset are not ...
    """

    def __init__(self) -> None:
        self._first: optree.PyTreeSpec | None = None

    def check(self, element: Any) -> optree.PyTreeSpec:
        """Return the nesting of an element.

        Raises:
            InvalidArgumentError: the first element was nested otherwise.
        """
        nesting = nesting_of(element)
        if self._first is None:
            self._first = nesting
        elif nesting != self._first:
            first = self._first.unflatten([0] * self._first.num_leaves)
            raise InvalidArgumentError(
                f"the elements of the dataset are not nested alike: one has {_described(element)}, "
                f"and the first had {_described(first)}. Return one nesting for all elements from "
                "the last function of the pipeline"
            )
        return nesting


def _described(element: Any) -> str:
    """Return the places of the leaves of an element, in words."""
    return ", ".join(places_of(element, "element")) or "no leaves"


def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of an attrs class; None for any other class, and
    for exceptions, which are leaves.

    >>> field_names(int) is None
    True
    """
    fields = peek(kind, "__attrs_attrs__")
    if fields is None or issubclass(kind, BaseException):
        return None
    return tuple([field.name for field in fields])


def fits_attrs(found: object, names: Sequence[str]) -> bool:
    """Return True if ``found``, which a peer has named, is an attrs class with these
    fields. No code of it runs.
    """
    if not isinstance(found, type):
        return False
    fields = next(
        (
            vars(base)["__attrs_attrs__"]
            for base in found.__mro__
            if "__attrs_attrs__" in vars(base)
        ),
        None,
    )
    return fields is not None and [field.name for field in fields] == list(names)


def instance_of(kind: type, names: Sequence[str], values: Sequence[object]) -> Any:
    """Return an instance of a class with these fields set, without running code of the
    class. A peer cannot make this process run any, and checks and conversions that are
    meant for elements see no specs, batches or datasets.
    """
    made: Any = object.__new__(kind)
    for name, value in zip(names, values, strict=True):
        object.__setattr__(made, name, value)
    return made


def tuple_of(kind: type, values: Iterable[Any]) -> Any:
    """Return a tuple, a namedtuple or a struct sequence, such as ``os.stat_result``,
    with these values, without running code of the class.

    >>> tuple_of(tuple, [1, 2])
    (1, 2)
    """
    if kind is tuple:
        return tuple(values)
    # Python makes a struct sequence by its class alone, which is written in C.
    is_struct = optree.is_structseq_class(kind)
    return kind(tuple(values)) if is_struct else tuple.__new__(kind, values)


def _is_leaf(value: object) -> bool:
    return type(value) not in _KNOWN and (isinstance(value, list) or _is_no_node(value))


def _is_leaf_or_empty(value: object) -> bool:
    return _is_leaf(value) or (isinstance(value, (dict, tuple)) and not value)


def _is_no_node(value: object) -> bool:
    """Return True for a deque, which optree would open. Return False for other values,
    after registering the class of the value if it is an attrs class. optree asks for
    each value before it looks inside.
    """
    kind = type(value)
    if issubclass(kind, deque):
        return True
    if has(kind, "__attrs_attrs__") and kind not in _registered:
        names = field_names(kind)
        if names is not None:
            _register(kind, names)
    return False


def _register(kind: type, names: tuple[str, ...]) -> None:
    def flatten(value: Any) -> tuple[list[Any], None, tuple[str, ...]]:
        return [getattr(value, name) for name in names], None, names

    def unflatten(_: object, values: Iterable[object]) -> Any:
        return instance_of(kind, names, tuple(values))

    # Another thread may register the class at the same time, as the same structure.
    with suppress(ValueError):
        optree.register_pytree_node(
            kind,
            flatten,
            unflatten,
            path_entry_type=optree.GetAttrEntry,
            namespace=_NAMESPACE,
        )
    _registered.add(kind)
