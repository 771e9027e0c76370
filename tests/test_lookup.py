"""Tests of finding classes and functions by name."""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from zmqdata.lookup import look_up, remember_class

HERE = __name__


class Kept:
    """A class of a module."""

    class Inner:
        """A class within it."""


class Lazy(types.ModuleType):
    """A module that would import whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_only_stored_attributes_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup runs no attribute hook, and does not pass through other objects than
    modules and classes.
    """
    monkeypatch.setitem(sys.modules, "lazy_for_test", Lazy("lazy_for_test"))
    assert look_up("lazy_for_test", "x") is look_up(HERE, "HERE.upper") is None
    assert look_up("not_imported", "x") is None
    assert look_up(HERE, "Kept.Inner") is Kept.Inner


def script_class(name: str) -> type:
    """Return a class of a script that another program runs in its ``__main__``."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(f"class {name}: pass", names)
    made: type = names[name]
    return made


def test_a_class_of_a_script_is_found_under_another_main() -> None:
    """A class that ``__main__`` does not show is found while it exists, instead of the
    program's own class of that name.
    """
    kind = script_class("OfScript")
    assert look_up("__main__", "OfScript") is None
    remember_class(kind)
    assert look_up("__main__", "OfScript") is kind
    newer = script_class("OfScript")
    remember_class(newer)
    assert look_up("__main__", "OfScript") is newer
    del kind, newer
    gc.collect()
    assert look_up("__main__", "OfScript") is None


def test_a_class_at_home_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that its module shows is looked up in the module each time, so that a
    notebook's new definition counts.
    """
    main = sys.modules["__main__"]
    older, newer = script_class("OfNotebook"), script_class("OfNotebook")
    remember_class(older)
    monkeypatch.setattr(main, "OfNotebook", newer, raising=False)
    remember_class(newer)
    assert look_up("__main__", "OfNotebook") is newer


def test_a_class_within_a_function_is_not_kept() -> None:
    """Classes of one name may be made many times by a function, so none is found."""

    class Local:
        pass

    remember_class(Local)
    assert look_up(Local.__module__, Local.__qualname__) is None
