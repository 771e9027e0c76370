"""Tests of looking at objects that answer with errors."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import PipelineError
from zmqdata.peeking import has, is_a, misfit, parameters_of, peek, shown


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
