"""Tests of looking at objects that answer with errors, and of finding classes and
functions by name.
"""

from __future__ import annotations

import gc
import sys
import types
from typing import Any

import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import PipelineError
from zmqdata.peeking import (
    has,
    is_a,
    look_up,
    misfit,
    parameters_of,
    peek,
    remember_class,
    shown,
)

HERE = __name__


class Refusing:
    """An object that raises whatever it is asked."""

    given = 1

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __getattr__(self, name: str) -> Any:
        raise self.error(name)

    @property
    def __class__(self) -> Any:
        raise self.error("class")


@pytest.mark.parametrize("error", [AttributeError, KeyError, RecursionError, ZeroDivisionError])
def test_an_error_is_an_absent_attribute(error: type[Exception]) -> None:
    """An attribute that raises any error counts as absent; others are found."""
    thing = Refusing(error)
    assert (peek(thing, "absent"), peek(thing, "absent", 3), peek(thing, "given")) == (None, 3, 1)
    assert (has(thing, "absent"), has(thing, "given")) == (False, True)


def test_a_class_is_not_asked_for() -> None:
    """An object is of the class that made it, whatever its ``__class__`` answers."""
    assert is_a(Refusing(ValueError), Refusing)
    assert is_a(Refusing(ValueError), (int, Refusing))
    assert not is_a(Refusing(ValueError), int)


class Config:
    """A configuration that raises for what it lacks, and has no representation."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def __repr__(self) -> str:
        raise ValueError("repr")

    def __call__(self, x: int) -> Config:
        return self


def test_a_representation_that_fails_is_the_class() -> None:
    """An object without a representation is shown as its class."""
    assert (shown(Config()), shown([1])) == ("<Config>", "[1]")


def test_datasets_take_objects_that_answer_with_errors() -> None:
    """Such an object serves as a function and as an element, and is refused as an
    argument with its class.
    """
    mapped = Dataset.range(2).map(Config())
    assert "map(Config)" in repr(mapped) + mapped.describe()
    assert mapped.element_spec == TensorSpec((), object)
    assert [type(one) for one in mapped.cache().prefetch(1)] == [Config, Config]
    for refused in (Dataset.range(2).concatenate, Dataset.range(2).take):
        with pytest.raises(TypeError, match="got <Config> of type Config"):
            refused(Config())  # type: ignore[operator]  # both take an argument
    with pytest.raises(PipelineError, match="must return a Dataset, it returned a Config"):
        list(Dataset.range(1).flat_map(Config()))


def test_a_method_that_takes_any_number_of_arguments_takes_its_object_among_them() -> None:
    """The arguments of a bound method whose only place is ``*given`` are any number."""

    class Held:
        def call(*given: object) -> int:
            return len(given)

    for count in (0, 1, 3):
        assert misfit(parameters_of(Held().call), count) is None


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
