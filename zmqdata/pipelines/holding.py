"""The objects that an object holds: one step of a walk over the objects of a pipeline.

No code of a user runs, and nothing is imported. Attributes are those that are stored;
classes and objects are asked through ``type`` and ``object``, whatever they define.
"""

from __future__ import annotations

import _thread
import contextlib
import functools
import gc
import itertools
import types
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from zmqdata.peeking import is_a, peek
from zmqdata.pipelines.functions import used_globals
from zmqdata.pipelines.parcels import Parcel

Way = Literal[
    "variable", "global", "default", "entry", "item", "member", "key", "attribute", "part"
]

_ATTRIBUTES_OF_CLASS = cast(Any, type.__dict__["__dict__"])
_LINEAGE_OF_CLASS = cast(Any, type.__dict__["__mro__"])
_NAME_OF_CLASS = cast(Any, type.__dict__["__qualname__"])
_SEQUENCES = (list, tuple, deque)
_SETS = (set, frozenset)
_ITERATORS: tuple[Any, ...] = (
    types.GeneratorType,
    type(iter([])),
    type(iter(())),
    type(iter({}.values())),
    enumerate,
    filter,
    map,
    reversed,
    zip,
    itertools.chain,
    itertools.count,
    itertools.cycle,
    itertools.repeat,
    itertools.starmap,
)
_REFERRING = (types.MappingProxyType, functools._lru_cache_wrapper, *_ITERATORS)
"""Objects of Python whose own methods would run code of a user, or tell nothing."""
_CONTAINERS = (
    *_SEQUENCES,
    *_SETS,
    dict,
    ChainMap,
    UserDict,
    UserList,
    functools.partial,
    functools._lru_cache_wrapper,
    types.BuiltinFunctionType,
    types.FunctionType,
    types.MethodType,
    types.MethodWrapperType,
    types.SimpleNamespace,
    classmethod,
    property,
    staticmethod,
)


class Step(NamedTuple):
    """The way from a holder to an object that it holds."""

    way: Way
    """``variable`` of an enclosing function, ``global``, ``default`` of a parameter,
    ``entry`` of a field of a function, ``item``, ``member`` of a set, ``key``,
    ``attribute``, or ``part`` that a user does not tell from the holder.
    """
    name: Any
    """Name, index or key; for an entry the field and the key."""


def lineage(kind: type) -> tuple[type, ...]:
    """Return the method resolution order of a class, whatever its metaclass says."""
    return cast("tuple[type, ...]", _LINEAGE_OF_CLASS.__get__(kind))


def body(kind: type) -> Mapping[str, Any]:
    """Return the attributes of a class without those of its bases, whatever its
    metaclass says.
    """
    return cast("Mapping[str, Any]", _ATTRIBUTES_OF_CLASS.__get__(kind))


def class_names(kind: type) -> list[str]:
    """Return module and name of a class and of its bases.

    >>> class_names(bool)
    ['builtins.bool', 'builtins.int', 'builtins.object']
    """
    return [f"{module_of(base)}.{_NAME_OF_CLASS.__get__(base)}" for base in lineage(kind)]


def module_of(kind: type) -> str:
    """Return the name of the module of a class, whatever its metaclass says.

    >>> module_of(type), module_of(types.FunctionType), module_of(ChainMap)
    ('builtins', 'builtins', 'collections')
    """
    found = body(kind).get("__module__")
    if is_a(found, str):  # else it describes the attribute of instances
        return found
    return str(kind.__module__) if type(kind) is type else ""


def is_hashable(kind: type) -> bool:
    """Return True for a class that may be a key. A metaclass that defines ``__eq__``
    only makes its classes unhashable.
    """
    if type(kind) is type:
        return True
    try:
        hash(kind)
    except Exception:
        return False
    return True


def count(holder: object) -> int:
    """Return the number of elements of a container of Python, of results that are
    cached, or of objects in an array; 0 for other objects.
    """
    if is_a(holder, functools._lru_cache_wrapper):
        return functools._lru_cache_wrapper.cache_info(holder).currsize
    if holds_objects(holder):
        return cast(int, np.ndarray.size.__get__(holder))
    base = next((kind for kind in (dict, *_SEQUENCES, *_SETS) if is_a(holder, kind)), None)
    return 0 if base is None else base.__len__(cast(Any, holder))


def holds_objects(holder: object) -> bool:
    """Return True for an array of objects."""
    return is_a(holder, np.ndarray) and np.ndarray.dtype.__get__(holder).hasobject


def is_container(holder: Any) -> bool:
    """Return True for functions and containers of Python, which hold what a user put
    there. Objects of other libraries may hold what only these know.

    >>> is_container([]), is_container(functools.partial(print)), is_container(3)
    (True, True, False)
    """
    return is_a(holder, _CONTAINERS)


def held(holder: Any) -> Iterator[tuple[Step, Any]]:
    """Yield the objects that an object holds.

    >>> [(step.name, one) for step, one in held({"a": 1}) if step.way == "item"]
    [('a', 1)]
    """
    if is_a(holder, Parcel):
        yield Step("part", ""), holder.value
        return
    if is_a(holder, types.FunctionType):
        yield from _held_by_function(holder)
    elif is_a(holder, dict):
        yield from ((Step("item", key), value) for key, value in [*dict.items(holder)])
        yield from ((Step("key", key), key) for key in [*dict.keys(holder)])
    elif is_a(holder, (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)):
        yield Step("part", "__func__"), peek(holder, "__func__")
        yield Step("part", "__self__"), peek(holder, "__self__")
    elif is_a(holder, functools.partial):
        for name in ("func", "args", "keywords"):
            yield Step("part", name), _partial_part(holder, name)
    elif is_a(holder, (staticmethod, classmethod)):
        yield Step("part", ""), peek(holder, "__func__")
    elif is_a(holder, types.GeneratorType):
        # Before Python 3.11, it refers to its frame, and that to all of its module.
        frame: Any = holder.gi_frame
        variables = [] if frame is None else [*frame.f_locals.values(), holder.gi_yieldfrom]
        yield from ((Step("part", ""), one) for one in variables)
    elif is_a(holder, _REFERRING):
        yield from ((Step("part", ""), one) for one in gc.get_referents(holder))
    elif holds_objects(holder):
        values = np.ndarray.tolist(cast(Any, holder))
        is_scalar = np.ndarray.ndim.__get__(holder) == 0
        yield from (
            (Step("item", at), one) for at, one in enumerate([values] if is_scalar else values)
        )
    elif is_a(holder, property):
        yield from ((Step("part", ""), one) for one in (holder.fget, holder.fset, holder.fdel))
    else:
        base: Any = next((one for one in (*_SEQUENCES, *_SETS) if is_a(holder, one)), None)
        way: Way = "member" if base in _SETS else "item"
        values = [] if base is None else [*base.__iter__(holder)]
        yield from ((Step(way, place), value) for place, value in enumerate(values))
    yield from ((Step("attribute", name), value) for name, value in attributes(holder))
    if is_a(holder, type):
        yield from ((Step("part", ""), base) for base in lineage(holder)[1:])
    yield Step("part", ""), type(holder)


def attributes(holder: Any) -> Iterator[tuple[str, Any]]:
    """Yield the stored attributes of an object, those in slots among them."""
    if is_a(holder, type):
        yield from [*body(holder).items()]
        return
    with contextlib.suppress(Exception):  # it has slots only
        kind = _thread._local if is_a(holder, _thread._local) else object
        stored = kind.__getattribute__(holder, "__dict__")
        yield from [*stored.items()] if type(stored) is dict else ()
    for base in lineage(type(holder)):
        if "__slots__" not in body(base):
            continue
        for name, member in [*body(base).items()]:
            if type(member) is types.MemberDescriptorType:
                with contextlib.suppress(AttributeError):  # it is not set
                    yield name, member.__get__(holder)


def _partial_part(partial: functools.partial[Any], name: str) -> Any:
    return vars(functools.partial)[name].__get__(partial)


def _held_by_function(function: types.FunctionType) -> Iterator[tuple[Step, Any]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # not bound yet
            yield Step("variable", name), cell.cell_contents
    yield from ((Step("global", name), value) for name, value in used_globals(function))
    defaults = function.__defaults__ or ()
    last = code.co_varnames[: code.co_argcount]
    yield Step("attribute", "__defaults__"), function.__defaults__
    for name, value in zip(reversed(last), reversed(defaults), strict=False):
        yield Step("default", name), value
    for field in ("__kwdefaults__", "__annotations__"):
        entries = _field(function, field)
        yield Step("attribute", field), entries
        if is_a(entries, dict):
            yield from ((Step("entry", (field, key)), value) for key, value in entries.items())


def _field(function: types.FunctionType, field: str) -> Any:
    try:
        return getattr(function, field)
    except Exception:  # an annotation that is evaluated only now
        return None
