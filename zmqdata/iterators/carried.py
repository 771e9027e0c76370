"""Running states of user functions: what later states have in common with the first,
and their conversion to plain values for iterator states.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zmqdata.elements.extensions import described, rebuilt
from zmqdata.elements.nesting import map_structure, nesting_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.shapes import dtype_name, without_width
from zmqdata.elements.subclasses import plain_text, python_type
from zmqdata.elements.untyped import is_untyped
from zmqdata.errors import WrongTypeError


class NotPlainError(Exception):
    """A value has no plain form."""


def to_plain(value: Any) -> Any:
    """Return a nesting of arrays, numbers and texts as lists, from which ``from_plain``
    restores it.

    Raises:
        NotPlainError: the value contains another object, or a container other than
            dicts and tuples.

    >>> from_plain(to_plain({"x": (np.arange(2), 7)}))
    {'x': (array([0, 1]), 7)}
    """
    kind = type(value)
    if (
        value is None
        or kind in (bool, float, str, bytes)
        or (kind is int and -(2**63) <= value < 2**63)
    ):
        return ["v", value]
    if kind is np.ndarray or isinstance(value, np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject or array.dtype.names:
            raise NotPlainError(f"an array of dtype {array.dtype}")
        return [
            "a" if kind is np.ndarray else "s",
            described(array.dtype),
            list(array.shape),
            array.tobytes(),
        ]
    if kind is tuple:
        return ["t", [to_plain(part) for part in value]]
    if kind is dict:
        return ["d", [[to_plain(key), to_plain(part)] for key, part in value.items()]]
    raise NotPlainError(f"a {kind.__name__}")


def from_plain(plain: Any) -> Any:
    """Return the value that ``to_plain`` converted."""
    mark, *parts = plain
    if mark == "v":
        return parts[0]
    if mark == "t":
        return tuple([from_plain(part) for part in parts[0]])
    if mark == "d":
        return {from_plain(key): from_plain(part) for key, part in parts[0]}
    dtype, shape, content = parts
    array = np.zeros(shape, rebuilt(dtype))
    if content:
        array = np.ndarray(tuple(shape), rebuilt(dtype), buffer=content).copy()
    return array if mark == "a" else array[()]


_WEAK: dict[type, str] = {int: "iufcV", float: "fcV", complex: "cV"}
"""For each number of Python, the kinds of dtypes that hold it, as in numpy's
arithmetic.
"""
_AFTER: dict[type, str] = {int: "iufcV", float: "iufcV", complex: "cV"}
"""For each number of Python, the kinds of dtypes that may follow: a fold may begin with
``float("-inf")`` and find the greatest integer.
"""
_TOLD_BY_TYPE = (int, float, complex, str, bytes, np.bool_, np.number)
"""Values whose type tells the dtype."""
_ANYTHING = object
"""Kind of a leaf whose type is not known, such as None or an object of a class."""
_UNTYPED = "an empty list"
"""Kind of an array that was made of an empty list."""


def _kind(leaf: Any) -> Any:
    """Return the dtype of a leaf, the type of a Python number, or ``_ANYTHING``."""
    kind = python_type(type(leaf))
    if kind in _WEAK:
        return kind
    if is_untyped(leaf):
        return _UNTYPED
    if isinstance(leaf, (np.ndarray, np.generic)):
        return without_width(leaf.dtype)
    if isinstance(leaf, RaggedTensor):
        return RaggedTensor, leaf.dtype
    if isinstance(leaf, (bool, str, bytes)):
        return without_width(np.asarray(plain_text(leaf)).dtype)
    return _ANYTHING


def _merged(old: Any, new: Any) -> Any:
    """Return the kind that a leaf has once both kinds came, or None if they differ."""
    # Numpy's dtypes are equal to the types of Python's numbers.
    if old is _ANYTHING or (type(old) is type(new) and old == new):
        return old
    dtypes = isinstance(old, np.dtype) and isinstance(new, np.dtype)
    if dtypes and {old.kind, new.kind} in ({"O", "U"}, {"O", "S"}):  # as batch() gives texts
        return np.dtype(object)
    if old is _UNTYPED:
        return new
    if new is _UNTYPED:
        return old if isinstance(old, np.dtype) else None
    if isinstance(old, type) and isinstance(new, type):
        return None if new is _ANYTHING else max(old, new, key=list(_WEAK).index)
    kinds, strong = (_AFTER.get(old), new) if isinstance(old, type) else (_WEAK.get(new), old)
    return strong if kinds and isinstance(strong, np.dtype) and strong.kind in kinds else None


def _shown(kind: Any) -> str:
    if isinstance(kind, np.dtype):
        return dtype_name(kind)
    if isinstance(kind, type):
        return kind.__name__
    return _UNTYPED if kind is _UNTYPED else f"ragged {dtype_name(kind[1])}"


class RunningState:
    """Nesting and dtypes that the states of a fold keep. Shapes may change.

    A Python number takes the dtype of what follows it, so a fold may begin with 0 and
    add floats. A leaf that is None, empty or an object may become anything. An empty
    list fits every dtype of arrays.

    Args:
        initial: the first state.
        role: the user's argument that makes the states.
        first: the user's argument that is or makes the first state.

    Attributes:
        settled: the type of the last state, if states of this type need no check; else
            None.

    >>> states = RunningState(0, "scan_func")
    >>> states.check(np.int32(7))
    """

    def __init__(self, initial: Any, role: str, first: str = "initial_state") -> None:
        self._role, self._first = role, first
        self._nesting = nesting_of(initial, empty_is_leaf=True)
        self._kinds = list(map(_kind, self._nesting.flatten_up_to(initial)))
        self.settled: type | None = None
        self._types: tuple[type, ...] | None = None
        self._is_array = False

    def check(self, state: Any) -> None:
        """Raise if a state differs from those before.

        Raises:
            WrongTypeError: its nesting or the dtype of a leaf differs.
        """
        kind = type(state)
        if kind is tuple:
            if tuple(map(type, state)) != self._types:
                self._compare(state)
        elif kind is not self.settled and (
            kind is not np.ndarray or not self._is_array or state.dtype != self._kinds[0]
        ):
            self._compare(state)

    def _compare(self, state: Any) -> None:
        try:
            leaves = self._nesting.flatten_up_to(state)
        except (TypeError, ValueError):
            raise self._other_nesting(state) from None
        for place, (old, leaf) in enumerate(zip(self._kinds, leaves, strict=True)):
            new = _kind(leaf)
            if (kind := _merged(old, new)) is not None:
                self._kinds[place] = kind
            elif isinstance(leaf, (tuple, dict)):
                raise self._other_nesting(state)
            else:
                found = type(leaf).__name__ if new is _ANYTHING else _shown(new)
                raise WrongTypeError(
                    f"Invalid `{self._role}`. The element types for the new state must match the "
                    f"initial state. Expected {_shown(old)}, got {found}. Convert the new state, "
                    "or begin with a state of its dtypes"
                    + (". Did the function forget to return?" if leaf is None else "")
                )
        self._remember(state)

    def _remember(self, state: Any) -> None:
        """Note the types of a state if they tell its dtypes: states of the same types
        need no comparison.
        """
        kind = type(state)
        if kind is tuple:
            told = all(isinstance(part, _TOLD_BY_TYPE) for part in state)
            self._types = tuple(map(type, state)) if told else None
        else:
            self.settled = kind if isinstance(state, _TOLD_BY_TYPE) else None
            self._is_array = kind is np.ndarray

    def _other_nesting(self, state: Any) -> WrongTypeError:
        before = self._nesting.unflatten(list(map(_shown, self._kinds)))
        return WrongTypeError(
            f"Invalid `{self._role}`: {self._role} must return a state nested like {self._first}, "
            f"which is {before}; it returned "
            f"{map_structure(lambda leaf: _shown(_kind(leaf)), state)}. Return a state of the same "
            "nesting, or begin with such a state"
        )
