"""Tests of ``zmqdata.blocks.names``: names from a peer, found without side effects."""

from __future__ import annotations

import collections
import datetime
import enum
import os
import sys
import zoneinfo
from os import system  # a name of the system module that this module holds

import numpy as np
import pytest

from zmqdata.blocks.arrays import make_array
from zmqdata.blocks.names import attribute, is_closed, named, new_value, set_state
from zmqdata.errors import ProtocolError

HERE = __name__
HELD = (os, system)


class Kept:
    """A class of a user's module."""

    class Inner:
        """A class within it."""

    made = ("a", 1)

    @classmethod
    def maker(cls, number: int) -> Kept:
        """Create an instance."""
        return cls()


class Colour(enum.Flag):
    """An enumeration whose members some versions of Python pickle by name."""

    RED = 1


def plain() -> None:
    """A function of a user's module."""


sys.modules.setdefault(HERE, sys.modules[Kept.__module__])


@pytest.mark.parametrize(
    ("module", "qualname", "found"),
    [
        ("collections", "OrderedDict", collections.OrderedDict),
        ("datetime", "datetime", datetime.datetime),
        ("builtins", "set", set),
        ("builtins", "KeyError", KeyError),
        ("builtins", "Ellipsis", ...),
        ("builtins", "getattr", attribute),
        ("numpy", "float32", np.float32),
        ("zmqdata.blocks.arrays", "make_array", make_array),
        ("zmqdata.blocks.names", "set_state", set_state),
        (HERE, "Kept", Kept),
        (HERE, "Kept.Inner", Kept.Inner),
        (HERE, "plain", plain),
    ],
)
def test_values_and_what_users_made_are_found(module: str, qualname: str, found: object) -> None:
    """Lookup finds standard containers, values and exceptions, numpy's values and user
    code. User code means classes and functions of imported modules.
    """
    assert named(module, qualname) is found


@pytest.mark.parametrize(
    ("module", "qualname"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("subprocess", "Popen"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("builtins", "type"),
        ("builtins", "__import__"),
        ("builtins", "KeyboardInterrupt"),
        ("importlib", "import_module"),
        ("functools", "partial"),
        ("collections", "abc"),
        ("collections", "OrderedDict.fromkeys"),
        ("pickle", "loads"),
        ("dill", "loads"),
        ("numpy", "load"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "scalar"),
        ("numpy", "generic.tofile"),
        ("numpy", "os"),
        ("zmqdata.pipelines", "open_pipeline"),
        ("zmqdata.blocks.names", "sys"),
        (HERE, "system"),
        (HERE, "os"),
        (HERE, "os.system"),
        (HERE, "HERE"),
        (HERE, "HELD"),
        (HERE, "np.load"),
        (HERE, "Kept.made"),
        (HERE, "named"),
    ],
)
def test_what_does_something_is_not_found(module: str, qualname: str) -> None:
    """Lookup rejects functions of the system, numpy and zmqdata, modules and variables.
    The module through which a peer names them does not matter.
    """
    with pytest.raises(ProtocolError, match="which is not among the values that may be sent"):
        named(module, qualname)


@pytest.mark.parametrize(
    ("module", "qualname"), [("not_imported", "Kept"), (HERE, "Missing"), (HERE, ""), ("", "")]
)
def test_what_is_not_there_names_the_remedy(module: str, qualname: str) -> None:
    """The error for a missing class says what to import, and nothing is imported."""
    with pytest.raises(ProtocolError, match="does not exist in this process: import"):
        named(module, qualname)
    assert "not_imported" not in sys.modules


def test_where_python_3_13_says_that_paths_are_from() -> None:
    """A path pickled by another version of Python resolves to this version's class."""
    assert named("pathlib._local", "PosixPath") is named("pathlib", "PosixPath")


def test_attributes_are_members_and_makers() -> None:
    """A peer may name members of enumerations and class methods that create
    instances.
    """
    assert attribute(Colour, "RED") is Colour.RED
    assert isinstance(attribute(Kept, "maker")(1), Kept)
    assert attribute(zoneinfo.ZoneInfo, "_unpickle")("UTC", True) == zoneinfo.ZoneInfo("UTC")


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Kept, "__subclasses__"),
        (Kept, "made"),
        (Kept, "missing"),
        (Kept(), "maker"),
        (Colour, "mro"),
        (dict, "fromkeys"),
        (np.ndarray, "tofile"),
        ([], "append"),
        (os, "system"),
    ],
    ids=lambda value: repr(value).partition(" at 0x")[0],
)
def test_other_attributes_are_refused(owner: object, name: str) -> None:
    """Attributes of instances, modules, the standard library and numpy are rejected. So
    are attributes that Python itself defines.
    """
    if (owner, name) == (Colour, "mro"):
        owner = enum.Flag
    with pytest.raises(ProtocolError, match="asks for the attribute"):
        attribute(owner, name)


class Slotted:
    """An object without a dict."""

    __slots__ = ("a",)


def test_states_are_set_on_instances() -> None:
    """An instance gets attributes, slots, or the result of its ``__setstate__``."""
    kept, slotted, error = Kept(), Slotted(), ValueError()
    set_state(kept, {"a": 1})
    set_state(slotted, (None, {"a": 2}))
    set_state(error, {"a": 3})
    assert (vars(kept), slotted.a, vars(error)) == ({"a": 1}, 2, {"a": 3})  # type: ignore[attr-defined]
    matrix = np.arange(3).view(type("Marked", (np.ndarray,), {}))
    set_state(matrix, {"a": 4})
    assert vars(matrix) == {"a": 4}


@pytest.mark.parametrize(
    ("instance", "state"),
    [
        (Kept, {"a": 1}),
        (Kept, (None, {"a": 1})),
        (sys, {"a": 1}),
        (plain, {"a": 1}),
        (np.zeros(1), (1, (5,), np.dtype(object), False, b"")),
        (
            np.zeros(1).view(type("Marked", (np.ndarray,), {})),
            (1, (5,), np.dtype(object), False, b""),
        ),
        (np.dtype("i4"), (3, "<", None, None, None, -1, -1, 0)),
        (np.float64(1), {}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_states_of_classes_and_of_numpy_are_refused(instance: object, state: object) -> None:
    """A state for a class is rejected, and numpy's own ``__setstate__`` is never
    called. Classes are shared by the whole process.
    """
    with pytest.raises(ProtocolError, match="sets the state of"):
        set_state(instance, state)
    assert not hasattr(Kept, "a")


@pytest.mark.parametrize("kind", [Kept, list, enum.Enum, 5, np.float64])
def test_only_numbers_and_texts_are_made_by_their_base(kind: object) -> None:
    """A pickle cannot pass the ``__new__`` of other classes by."""
    with pytest.raises((ProtocolError, TypeError)):
        new_value(kind, 1.5)


def test_closed_packages() -> None:
    """Standard packages are closed except for values; users' modules are open."""
    assert is_closed("os.path")
    assert is_closed("zmqdata")
    assert not is_closed("__main__")
