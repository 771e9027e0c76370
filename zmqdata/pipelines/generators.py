"""Random generators and iterators that the functions and objects of a pipeline hold,
and the path to each.

A copy of such a generator draws the same numbers in every task, and so does a generator
that a module makes when workers import it. Clients warn of them, and workers seed them
for each task. A copy of an iterator yields the same values in every task. Nothing is
imported for a user's object.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import random
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from zmqdata.peeking import is_a, peek
from zmqdata.pipelines.functions import codes
from zmqdata.pipelines.holding import (
    Step,
    body,
    class_names,
    count,
    held,
    holds_objects,
    is_container,
    lineage,
    module_of,
)
from zmqdata.pipelines.parcels import Parcel

_KINDS = frozenset(
    {
        "numpy.random._generator.Generator",
        "numpy.random.bit_generator.BitGenerator",
        "numpy.random.bit_generator.SeedSequence",
        "numpy.random.mtrand.RandomState",
        "random.Random",
        "torch._C.Generator",
    }
)
_ATOMS = (type(None), bool, int, float, complex, str, bytes, bytearray, np.ndarray, np.generic)
_NAMED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.MethodWrapperType,
    type,
)
_MANY = 1000
"""Length of containers that are not searched."""
_MOST = 20_000
"""Number of objects that are searched for a node."""


class Held(NamedTuple):
    """A random generator or an iterator that a node holds."""

    path: str
    """Variable that holds it, as a user would write it."""
    generator: Any
    """The random generator or iterator."""


def is_generator(kind: type) -> bool:
    """Return True for the classes of random generators of Python, numpy and torch.

    >>> is_generator(type(np.random.default_rng())), is_generator(dict)
    (True, False)
    """
    names = class_names(kind)
    return not _KINDS.isdisjoint(names) and "random.SystemRandom" not in names


def is_iterator(kind: type) -> bool:
    """Return True for the classes of iterators, except those of this package, and
    weak proxies, which have the methods of every class.

    >>> is_iterator(type(iter([]))), is_iterator(list)
    (True, False)
    """
    is_other = module_of(kind).partition(".")[0] in ("zmqdata", "weakref")
    return not is_other and any("__next__" in body(base) for base in lineage(kind))


def generators_of(node: Any, in_modules: bool = True) -> list[Held]:
    """Return the random generators that a node holds, without its inputs.

    Args:
        node: the node.
        in_modules: True to include the generators of modules that functions use.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.mapping import Map
    >>> rng = np.random.default_rng(1)
    >>> node = Map(inputs=(Range(start=0, stop=1),), function=lambda x: rng.random())
    >>> [held.path for held in generators_of(node)]
    ['rng']
    """
    return _held_by_node(node, _Search(is_generator, in_modules))


def loader_seed(node: Any) -> int | None:
    """Return the seed of a pass over a ``DataLoader`` that the function of a node runs;
    None for another node. Users of a ``DataLoader`` expect that generators which their
    dataset holds draw anew for each batch.
    """
    for one in dataclasses.fields(node):
        function = getattr(node, one.name)
        if is_a(peek(function, "parcel"), Parcel):
            return int(function.seed)
    return None


def iterators_of(node: Any) -> list[Held]:
    """Return the iterators that a node holds, without its inputs, and without those
    within objects of libraries.

    >>> from itertools import count
    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.mapping import Map
    >>> numbers = count()
    >>> node = Map(inputs=(Range(start=0, stop=1),), function=lambda x: next(numbers))
    >>> [held.path for held in iterators_of(node)]
    ['numbers']
    """
    return _held_by_node(node, _Search(is_iterator, in_modules=True))


def _is_atom(value: Any) -> bool:
    """Return True for values that hold no objects."""
    return is_a(value, _ATOMS) and not holds_objects(value)


def _held_by_node(node: Any, search: _Search) -> list[Held]:
    for one in dataclasses.fields(node):
        value = getattr(node, one.name)
        if one.name != "inputs" and not any(value is apart for apart in node.apart):
            named = value if is_a(value, _NAMED) else type(value)
            search.add(str(peek(named, "__name__", "object")), value)
    return search.run()


class _Search:
    """Breadth-first search for objects of some classes.

    Args:
        is_sought: returns True for such a class.
        in_modules: True to search modules that functions use.
    """

    def __init__(self, is_sought: Callable[[type], bool], in_modules: bool) -> None:
        self._is_sought, self._in_modules = is_sought, in_modules
        self._waiting: deque[tuple[str, Any]] = deque()
        self._seen: dict[int, Any] = {}  # kept alive, so that no identity is used again

    def add(self, path: str, value: Any) -> None:
        if not _is_atom(value) and id(value) not in self._seen:
            self._seen[id(value)] = value
            self._waiting.append((path, value))

    def run(self) -> list[Held]:
        found = []
        while self._waiting and len(self._seen) < _MOST:
            path, value = self._waiting.popleft()
            kind: type = type(value)
            if self._is_sought(kind):
                if self._in_modules or not _is_global(value):
                    found.append(Held(path, value))
                continue
            for way, one in self._held(path, value):
                self.add(way, one)
        return found

    def _held(self, path: str, holder: Any) -> Iterator[tuple[str, Any]]:
        """Yield what an object holds, with its path."""
        if self._is_closed(holder):
            return
        is_open = not is_a(holder, types.FunctionType) or self._has_globals(holder)
        for step, value in held(holder):
            if _is_atom(value):
                continue
            if step.way != "global" or is_open:
                yield _path(path, holder, step), value
            if step.way == "global" and is_open and self._in_modules:
                yield from _held_by_module(step.name, value, holder.__code__)

    def _is_closed(self, holder: Any) -> bool:
        """Return True for an object whose content is not searched."""
        if is_a(holder, type):
            return _is_of_library(module_of(holder))
        if (
            self._is_sought is is_iterator
            and not is_container(holder)
            and _is_of_library(module_of(type(holder)))
        ):
            return True
        return is_a(holder, types.ModuleType) or count(holder) >= _MANY

    def _has_globals(self, function: types.FunctionType) -> bool:
        """Return True if the globals of a function are searched: those of a script, and
        of modules of the user if modules are.
        """
        space = function.__globals__
        module = sys.modules.get(str(space.get("__name__")))
        return (
            not is_a(module, types.ModuleType)
            or vars(module) is not space
            or (self._in_modules and not _is_of_library(module.__name__))
        )


def _path(path: str, holder: Any, step: Step) -> str:
    """Return the path to a held object, as a user would write it."""
    if step.way in ("variable", "global", "default"):
        return str(step.name)
    if step.way == "entry":
        return str(step.name[1])
    if step.way in ("item", "member", "key"):
        return f"{path}[{_text(step.name)}]"
    if step.way == "part":
        return path
    if is_a(holder, types.FunctionType):
        return str(step.name)
    return f"{path}.{step.name}"


def _is_global(generator: Any) -> bool:
    """Return True for the generator behind the functions of ``random``,
    ``numpy.random`` or ``torch``.
    """
    torch = sys.modules.get("torch")
    shared = (
        getattr(random.random, "__self__", None),
        getattr(np.random.random, "__self__", None),
        getattr(torch, "default_generator", None),
    )
    return any(generator is one for one in shared)


def _held_by_module(path: str, module: Any, code: types.CodeType) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a user's module that a function uses."""
    if is_a(module, types.ModuleType) and not _is_of_library(module.__name__):
        names, space = {name for part in codes(code) for name in part.co_names}, vars(module)
        yield from ((f"{path}.{name}", space[name]) for name in names if name in space)


def _text(key: Any) -> str:
    return repr(key) if is_a(key, (str, int)) else type(key).__name__


@functools.lru_cache(maxsize=1024)
def _is_of_library(name: str) -> bool:
    """Return True for a module that was installed: its functions are not searched."""
    if name in ("__main__", "__mp_main__"):
        return False
    if name.partition(".")[0] in ("zmqdata", *sys.stdlib_module_names):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    folders = {sysconfig.get_path(kind) for kind in ("stdlib", "platlib", "purelib")}
    return file is not None and any(file.startswith(folder + os.sep) for folder in folders)
