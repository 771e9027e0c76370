"""Tests of ``zmqdata.pipelines.generators``."""

from __future__ import annotations

import functools
import itertools
import random
import threading
import types
from collections.abc import Callable, Iterator
from random import gauss
from typing import Any

import numpy as np
import pytest
from numpy.random import normal

from zmqdata.dataset import Dataset
from zmqdata.pipelines import fingerprint, open_pipeline, pack_pipeline
from zmqdata.pipelines.generators import generators_of, iterators_of

GLOBAL = np.random.default_rng(1)


class Augment:
    shared = np.random.RandomState(1)

    def __init__(self) -> None:
        self.inner = {"rngs": [random.Random(1)]}

    def __call__(self, x: Any) -> Any:
        return x

    def by_name(self, x: Any) -> Any:
        return GLOBAL.random()


class Derived(Augment):
    def __init__(self) -> None:
        self.inner = {}


class Slotted:
    __slots__ = ("rng",)

    def __init__(self) -> None:
        self.rng = np.random.PCG64(1)

    def add(self, x: Any) -> Any:
        return x


def enclosing() -> Callable[[Any], Any]:
    rng = np.random.default_rng(2)

    def outer(x: Any) -> Any:
        def inner() -> float:
            return rng.random()

        return inner()

    return outer


def wrapped() -> Callable[[Any], Any]:
    @functools.wraps(enclosing)
    def call(x: Any) -> Any:
        return function(x)

    function = enclosing()
    return call


def with_default(x: Any, y: int = 1, rng: Any = GLOBAL) -> Any:
    return rng.random()


def with_keyword(x: Any, *, rng: Any = GLOBAL) -> Any:
    return rng.random()


class Meta(type):
    rng = np.random.default_rng(6)


class Kind(metaclass=Meta):
    @classmethod
    def draw(cls, x: Any) -> Any:
        return type(cls).rng.random()


@functools.lru_cache
def cached() -> np.random.Generator:
    return np.random.default_rng(7)


def draws() -> Iterator[float]:
    rng = np.random.default_rng(8)
    while True:
        yield rng.random()


def script() -> types.FunctionType:
    """Return a function of a script, whose globals a pickle holds."""
    space: dict[str, Any] = {"rng": np.random.default_rng(3), "__name__": "__main__"}
    exec("def noise(x): return rng.random()", space)
    made = space["noise"]
    assert isinstance(made, types.FunctionType)
    return made


HOLDERS: dict[str, tuple[Callable[..., Any], set[str]]] = {
    "global": (lambda x: GLOBAL.random(), {"GLOBAL"}),
    "global of a script": (script(), {"rng"}),
    "closure": (enclosing(), {"rng"}),
    "closure behind a decorator": (wrapped(), {"rng"}),
    "default": (with_default, {"rng"}),
    "keyword": (with_keyword, {"rng"}),
    "partial": (functools.partial(with_default, rng=random.Random(1)), {"partial['rng']", "rng"}),
    "object": (Augment(), {"Augment.inner['rngs'][0]", "Augment.shared", "GLOBAL"}),
    "object of a derived class": (Derived(), {"Derived.shared", "GLOBAL"}),
    "mapping that cannot be changed": (lambda x: FIXED["rng"].random(), {"FIXED['rng']"}),
    "array of objects": (lambda x: OBJECTS[0, 1].random(), {"OBJECTS[0][1]"}),
    "metaclass": (Kind.draw, {"draw.rng"}),
    "method": (Slotted().add, {"add.rng"}),
    "method of a generator": (GLOBAL.normal, {"normal"}),
    "function of random": (lambda x: gauss(0, 1), {"gauss"}),
    "function of numpy": (lambda x: normal(), {"normal"}),
    "none": (lambda x: np.random.random() + random.random() + len(str(GLOBALS)), set()),
}
GLOBALS = list(range(5))
OBJECTS = np.array([[None, np.random.default_rng(5)]], dtype=object)
FIXED = types.MappingProxyType({"rng": np.random.default_rng(4)})


@pytest.mark.parametrize("name", HOLDERS)
def test_generators_are_found_where_functions_hold_them(name: str) -> None:
    """A generator is found wherever a function holds it, with its variable, in the
    client and in a worker.
    """
    function, paths = HOLDERS[name]
    node = Dataset.range(3).map(function).node
    assert {held.path for held in generators_of(node)} == paths
    opened = open_pipeline(pack_pipeline(node))
    assert {held.path for held in generators_of(opened)} == paths


def test_what_calls_have_left_is_searched() -> None:
    """Generators among the results of a cached function, and in the variables of a
    generator function that runs, are found.
    """
    running = draws()
    next(running)
    cached()
    for function, path in ((lambda x: cached(), "cached"), (lambda x: running, "running")):
        node = Dataset.range(3).map(function).node
        assert [held.path for held in generators_of(node)] == [path]


class Numbered:
    """Object that numbers its calls."""

    def __init__(self) -> None:
        self.numbers = itertools.count()

    def __call__(self, x: Any) -> Any:
        return next(self.numbers)


class Own:
    """Iterator of a user."""

    def __next__(self) -> int:
        return 1


def with_iterator(x: Any, it: Any = itertools.repeat(1)) -> Any:  # noqa: B008 - held
    return next(it)


COUNT, HELD, THREAD = itertools.count(), {"a": [Own()]}, threading.Thread()
SPACE = types.SimpleNamespace(it=Own())


@pytest.mark.parametrize(
    ("function", "paths"),
    [
        (lambda x: next(COUNT), {"COUNT"}),
        (with_iterator, {"it"}),
        (functools.partial(next, iter([1])), {"partial[0]"}),
        (COUNT.__next__, {"__next__"}),
        (Numbered(), {"Numbered.numbers"}),
        (lambda x: HELD, {"HELD['a'][0]"}),
        (lambda x: SPACE, {"SPACE.it"}),
        (functools.lru_cache(lambda x: next(COUNT)), {"COUNT"}),
        (lambda x: THREAD, set()),
        (lambda x: next(iter([x])), set()),
    ],
)
def test_iterators_are_found_where_functions_hold_them(function: Any, paths: set[str]) -> None:
    """An iterator is found as a random generator is, also in Python's own containers of
    what users put there, but not in other objects of libraries.
    """
    node = Dataset.range(3).map(function).node
    assert {held.path for held in iterators_of(node)} == paths


def test_large_containers_are_not_searched() -> None:
    """A million values of a source cost no time, and a cycle ends."""
    cycle: list[Any] = [random.Random(1)]
    cycle.append(cycle)
    node = Dataset.from_iterable([cycle] * 2000).map(lambda x: cycle).node
    assert [held.path for held in generators_of(node)] == ["cycle[0]"]
    assert not generators_of(node.inputs[0])


class Hostile(dict[Any, Any]):
    __slots__ = ("rng",)

    def __init__(self) -> None:
        super().__init__({Key(): random.Random(1)})

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Any:
        raise RuntimeError

    items = __len__ = __bool__ = __iter__  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return x


class Key:
    def __repr__(self) -> str:
        raise RuntimeError


def test_no_code_of_the_user_runs() -> None:
    """Objects whose attributes, containers and keys raise anything are searched."""
    node = Dataset.range(3).map(Hostile()).node
    assert [held.path for held in generators_of(node)] == ["Hostile[Key]"]


def test_a_worker_in_a_users_process_leaves_modules_alone() -> None:
    """Generators of modules, and those behind ``random`` and ``numpy.random``, belong
    to the user; copies belong to the pipeline.
    """
    for function in (lambda x: GLOBAL.random(), lambda x: np.random.mtrand._rand.random()):
        assert not generators_of(Dataset.range(3).map(function).node, in_modules=False)
    opened = open_pipeline(pack_pipeline(Dataset.range(3).map(script()).node))
    assert len(generators_of(opened, in_modules=False)) == 1


def test_states_of_generators_are_no_part_of_a_pipeline() -> None:
    """Two runs of a program with a generator without a seed have the same pipeline."""
    one, other = (Dataset.range(3).map(enclosing()).node for _ in range(2))
    first = fingerprint(one)
    one.function(0)
    assert fingerprint(one) == first == fingerprint(other)
