"""Random generators and iterators that the functions and objects of a pipeline hold,
and the path to each.

A copy of such a generator draws the same numbers in every task, and so does a generator
that a module makes when workers import it. Clients warn of them, and workers seed them
for each task. A copy of an iterator yields the same values in every task. Nothing is
imported for a user's object.
"""

from __future__ import annotations

import contextlib
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

from zmqdata.pipelines.functions import codes, global_names

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
_SEQUENCES = (list, tuple, set, frozenset, deque)
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


@functools.lru_cache(maxsize=4096)
def is_generator(kind: type) -> bool:
    """Return True for the classes of random generators of Python, numpy and torch.

    >>> is_generator(type(np.random.default_rng())), is_generator(dict)
    (True, False)
    """
    names = {f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__}
    return not names.isdisjoint(_KINDS) and "random.SystemRandom" not in names


def is_iterator(kind: type) -> bool:
    """Return True for the classes of iterators.

    >>> is_iterator(type(iter([]))), is_iterator(list)
    (True, False)
    """
    return any("__next__" in base.__dict__ for base in kind.__mro__)


def generators_of(node: Any, in_modules: bool = True) -> list[Held]:
    """Return the random generators that a node holds, without its inputs.

    Args:
        node: the node.
        in_modules: True to include the generators of modules that functions use.

    >>> from zmqdata.nodes import Map, Range
    >>> rng = np.random.default_rng(1)
    >>> node = Map(inputs=(Range(start=0, stop=1),), function=lambda x: rng.random())
    >>> [held.path for held in generators_of(node)]
    ['rng']
    """
    return _held_by_node(node, _Search(is_generator, in_modules))


def iterators_of(node: Any) -> list[Held]:
    """Return the iterators that a node holds, without its inputs, and without those
    within objects of libraries.

    >>> from itertools import count
    >>> from zmqdata.nodes import Map, Range
    >>> numbers = count()
    >>> node = Map(inputs=(Range(start=0, stop=1),), function=lambda x: next(numbers))
    >>> [held.path for held in iterators_of(node)]
    ['numbers']
    """
    return _held_by_node(node, _Search(is_iterator, in_modules=True))


def _held_by_node(node: Any, search: _Search) -> list[Held]:
    for one in dataclasses.fields(node):
        value = getattr(node, one.name)
        if one.name != "inputs" and not any(value is apart for apart in node.apart):
            named = value if isinstance(value, _NAMED) else type(value)
            search.add(named.__name__, value)
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
        if not isinstance(value, _ATOMS) and id(value) not in self._seen:
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
            for step, held in self._held(path, value):
                self.add(step, held)
        return found

    def _held(self, path: str, holder: Any) -> Iterator[tuple[str, Any]]:
        """Yield what an object holds, with its path. No code of a user runs."""
        if isinstance(holder, types.FunctionType):
            yield from self._held_by_function(holder)
        elif isinstance(holder, types.MethodType):
            yield path, holder.__func__
            yield path, holder.__self__
        elif isinstance(holder, (types.BuiltinFunctionType, types.MethodWrapperType)):
            yield path, holder.__self__
        elif isinstance(holder, functools.partial):
            yield path, holder.func
            yield path, holder.args
            yield path, holder.keywords
        elif isinstance(holder, (staticmethod, classmethod)):
            yield path, holder.__func__
        elif isinstance(holder, property):
            yield from ((path, held) for held in (holder.fget, holder.fset, holder.fdel))
        elif isinstance(holder, dict):
            items = [*dict.items(holder)] if dict.__len__(holder) < _MANY else []
            yield from ((f"{path}[{_text(key)}]", held) for key, held in items)
        elif isinstance(holder, _SEQUENCES):
            base: Any = next(kind for kind in _SEQUENCES if isinstance(holder, kind))
            values = [*base.__iter__(holder)] if base.__len__(holder) < _MANY else []
            yield from ((f"{path}[{place}]", held) for place, held in enumerate(values))
        elif isinstance(holder, type):
            inside = {} if _is_of_library(str(holder.__module__)) else dict(vars(holder))
            yield from ((f"{holder.__name__}.{name}", held) for name, held in inside.items())
        elif not isinstance(holder, types.ModuleType):
            kind = type(holder)
            if self._is_sought is is_iterator and _is_of_library(str(kind.__module__)):
                return
            yield from ((f"{path}.{name}", held) for name, held in _attributes(holder))
            yield path, type(holder)

    def _held_by_function(self, function: types.FunctionType) -> Iterator[tuple[str, Any]]:
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not bound yet
                continue
        code = function.__code__
        last = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        yield from zip(reversed(last), reversed(defaults), strict=False)
        yield from [*(function.__kwdefaults__ or {}).items(), *vars(function).items()]
        space = function.__globals__
        module = sys.modules.get(str(space.get("__name__")))
        if (
            isinstance(module, types.ModuleType)
            and vars(module) is space
            and (not self._in_modules or _is_of_library(module.__name__))
        ):
            return
        for name in global_names(code):
            value = space.get(name)
            yield name, value
            if isinstance(value, types.ModuleType) and self._in_modules:
                yield from _held_by_module(name, value, code)


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


def _held_by_module(
    path: str, module: types.ModuleType, code: types.CodeType
) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of a user's module that a function uses."""
    if not _is_of_library(module.__name__):
        names, space = {name for part in codes(code) for name in part.co_names}, vars(module)
        yield from ((f"{path}.{name}", space[name]) for name in names if name in space)


def _text(key: Any) -> str:
    return repr(key) if type(key) in (str, int) else type(key).__name__


def _attributes(holder: Any) -> Iterator[tuple[str, Any]]:
    """Yield stored attributes only, because computing an attribute could run user
    code.
    """
    with contextlib.suppress(AttributeError):
        yield from [*object.__getattribute__(holder, "__dict__").items()]
    for base in type(holder).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            with contextlib.suppress(Exception):  # it is not set, or hidden by a descriptor
                yield name, object.__getattribute__(holder, name)


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
