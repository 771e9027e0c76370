"""Fingerprints of pipelines: equal pipelines have equal fingerprints in every run of
the same script.

Nothing is pickled here. Pickles differ between runs (order of sets, identity of
strings), but a fingerprint hashes content: operations, parameters, elements of arrays,
bytecode of functions. Line numbers, file names, addresses and the seed of string
hashing do not affect it.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import marshal
import os
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from zmqdata.messages.identity import Fingerprint
from zmqdata.nodes.base import Node
from zmqdata.peeking import has, is_a, peek
from zmqdata.pipelines.findable import SCRIPT_MODULES
from zmqdata.pipelines.generators import is_generator
from zmqdata.pipelines.memorymaps import file_part

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
_MANY = 1000
_NOT_PARAMETERS = frozenset({"inputs", "site", "label"})


def nodes_in_order(node: Any) -> list[Any]:
    """Return the nodes that lead to this node, without duplicates: inputs before their
    consumers, the node itself last.

    The search does not recurse, because a pipeline may have thousands of operations.
    """
    order: dict[int, Any] = {}
    waiting = [(node, False)]
    while waiting:
        current, inputs_done = waiting.pop()
        if id(current) in order:
            continue
        if inputs_done:
            order[id(current)] = current
        else:
            waiting.append((current, True))
            waiting.extend((item, False) for item in reversed(_inputs(current)))
    return list(order.values())


def fingerprint(node: Any) -> Fingerprint:
    """Hash a pipeline. The hash is equal in every process, run and machine with the
    same Python minor version.

    Args:
        node: the last node of a pipeline, or any value.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    >>> first, second = fingerprint(len), fingerprint(max)
    >>> first.structure == second.structure, first == second
    (True, False)

    tf.data's fingerprint is a single hash of its graph.
    """
    scribe = _Scribe()
    scribe.add(node)
    return scribe.result()


def _write_pipeline(node: Any, scribe: _Scribe) -> None:
    order = nodes_in_order(node)
    number = {id(item): i for i, item in enumerate(order)}
    for item in order:
        scribe.write(
            "node", _name(type(item)), *(str(number[id(source)]) for source in _inputs(item))
        )
        for name, value in sorted(_fields(item)):
            scribe.write("field", name)
            scribe.add(value)


def _inputs(node: Any) -> tuple[Any, ...]:
    return node.inputs if is_a(node, Node) else ()


def _fields(node: Node) -> Iterator[tuple[str, Any]]:
    if node.characteristics is not None:
        return iter(node.characteristics.items())
    names = [one.name for one in dataclasses.fields(node) if one.compare]
    return ((name, getattr(node, name)) for name in names if name not in _NOT_PARAMETERS)


def _name(named: Any) -> str:
    return f"{peek(named, '__module__', '')}.{peek(named, '__qualname__', '')}".replace(
        "__mp_main__", "__main__"
    )


class _Scribe:
    """Writer of values into three hashes.

    The first covers the structure. The second covers everything reached through a
    function. The third covers the functions alone.
    """

    def __init__(self, outer: _Scribe | None = None) -> None:
        self.structure = hashlib.sha256()
        self.code = hashlib.sha256()
        self.functions = hashlib.sha256()
        self.in_code: bool = outer.in_code if outer else False
        # Functions, classes and objects by identity, with their number. They are kept
        # alive so that no identity is reused. Each hash has its own numbers, because
        # code must not change the numbers in the structure. Plain values have no
        # identity: the identity of two equal strings differs between runs.
        self.known: dict[bool, dict[int, tuple[int, Any]]] = (
            {mode: dict(known) for mode, known in outer.known.items()}
            if outer
            else {True: {}, False: {}}
        )
        self.inside: list[int] = list(outer.inside) if outer else []
        self.contents: dict[int, tuple[Any, bytes]] = outer.contents if outer else {}

    def result(self) -> Fingerprint:
        """Return the fingerprint of everything written so far."""
        return Fingerprint(
            *(one.hexdigest()[:32] for one in (self.structure, self.code, self.functions))
        )

    def write(self, *texts: str | bytes) -> None:
        """Write texts with their lengths, so that different sequences of texts always
        differ.
        """
        target = self.code if self.in_code else self.structure
        for text in texts:
            content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
            target.update(len(content).to_bytes(8, "little") + content)

    def add(self, value: Any) -> None:
        """Write a value of any kind."""
        if id(value) in self.inside:
            self.write("cycle", str(len(self.inside) - self.inside.index(id(value))))
            return
        self.inside.append(id(value))
        _add.dispatch(type(value))(value, self)
        self.inside.pop()

    def add_all(self, kind: str, values: Iterable[Any]) -> None:
        """Write values whose order counts."""
        listed = list(values)
        self.write(kind, str(len(listed)))
        for value in listed:
            self.add(value)

    def add_set(self, kind: str, values: Iterable[Any]) -> None:
        """Write values in the order of their own hashes, because the order of a set
        depends on PYTHONHASHSEED.
        """
        parts = sorted(map(self._apart, values), key=_Scribe._digest)
        self.write(kind, str(len(parts)))
        for part in parts:
            self._include(part)

    def add_mapping(self, kind: str, items: Mapping[Any, Any]) -> None:
        """Write keys in the order of their hashes, each with its value."""
        self.write(kind, str(len(items)))
        if (
            len(items) > _MANY
            and set(map(type, items)) <= {str}
            and set(map(type, items.values())) <= _ATOMS
        ):
            self.write(marshal.dumps(sorted(items.items()), 1))
            return
        for part, value in sorted(
            ((self._apart(key), items[key]) for key in items), key=lambda item: item[0]._digest()
        ):
            self._include(part)
            self.add(value)

    def _apart(self, value: Any) -> _Scribe:
        apart = _Scribe(self)
        apart.add(value)
        return apart

    def _include(self, part: _Scribe) -> None:
        self.structure.update(part.structure.digest())
        self.code.update(part.code.digest())
        self.functions.update(part.functions.digest())

    def _digest(self) -> bytes:
        return self.structure.digest() + self.code.digest()

    def add_once(self, thing: Any, write: Callable[[Any, _Scribe], None]) -> None:
        """Write an object with an identity; on repetition, write only its number."""
        known = self.known[self.in_code]
        if id(thing) in known:
            self.write("again", str(known[id(thing)][0]))
        else:
            known[id(thing)] = (len(known), thing)
            write(thing, self)

    def add_code(self, thing: Any, write: Callable[[Any, _Scribe], None]) -> None:
        """Write a function, a class or another callable."""
        self.functions.update(_bare(thing))
        outer, self.in_code = self.in_code, True
        self.add_once(thing, write)
        self.in_code = outer

    def content(self, array: np.ndarray[Any, Any]) -> bytes:
        """Return the hash of an array's elements. It is computed once, even if many
        functions use the array.
        """
        if id(array) not in self.contents:
            octets = np.ascontiguousarray(array).reshape(-1).view(np.uint8) if array.size else b""
            self.contents[id(array)] = (array, hashlib.sha256(octets).digest())
        return self.contents[id(array)][1]


@functools.singledispatch
def _add(value: Any, scribe: _Scribe) -> None:
    """Write any other object: its class and its content."""
    kind: type = type(value)
    if scribe.in_code and is_generator(kind) and kind is not np.random.SeedSequence:
        # A function's generator may have another state in each run, and tasks seed it
        # anew. They keep the entropy of a seed sequence.
        scribe.write("generator", _name(kind))
    elif callable(value):
        scribe.write("function")
        scribe.add_code(value, _write_object)
    else:
        scribe.add_once(value, _write_object)


def _write_object(value: Any, scribe: _Scribe) -> None:
    if is_a(value, Node):  # also a pipeline within another pipeline, as in flat_map
        _write_pipeline(value, scribe)
        return
    inner = peek(value, "node")
    if is_a(inner, Node):  # a dataset that a function uses; the number of its reads does not count
        scribe.write("dataset")
        _write_pipeline(inner, scribe)
        return
    scribe.write("object", _name(type(value)))
    if type(value).__module__ in SCRIPT_MODULES:
        scribe.add_code(type(value), _write_class)
    state = peek(value, "__dict__")
    if is_a(value, os.PathLike):
        scribe.write(os.fspath(value))
    elif "__dataclass_fields__" in dir(type(value)):
        names = [one.name for one in dataclasses.fields(type(value))]
        scribe.add_all("fields", [peek(value, name) for name in names])
    elif type(state) is dict:
        scribe.add_mapping("state", state)
    else:
        _write_reduced(value, scribe)


def _write_reduced(value: Any, scribe: _Scribe) -> None:
    try:
        reduced = type(value).__reduce_ex__(value, 4)  # type: ignore[call-arg]  # of any class
    except Exception:  # it cannot be pickled either: pack_pipeline raises an error with its path
        return
    if isinstance(reduced, str):
        scribe.write(reduced)
        return
    # Its constructor belongs to its class, which is already written. Items of
    # containers arrive as iterators.
    scribe.add_all(
        "reduced", [list(part) if isinstance(part, Iterator) else part for part in reduced[1:5]]
    )


@_add.register(type(None))
@_add.register(bool)
@_add.register(int)
@_add.register(complex)
def _(value: Any, scribe: _Scribe) -> None:
    scribe.write(type(value).__name__, repr(value))


@_add.register
def _(value: float, scribe: _Scribe) -> None:
    scribe.write(type(value).__name__, value.hex())


@_add.register(str)
@_add.register(bytes)
def _(value: str | bytes, scribe: _Scribe) -> None:
    scribe.write(type(value).__name__, value)


@_add.register
def _(value: bytearray, scribe: _Scribe) -> None:
    scribe.write("bytearray", bytes(value))


@_add.register
def _(value: enum.Enum, scribe: _Scribe) -> None:
    # A flag without members has no name, nor has one of several on Python 3.10.
    scribe.write("enum", _name(type(value)), value.name or str(value.value))


@_add.register(list)
@_add.register(tuple)
def _(value: list[Any] | tuple[Any, ...], scribe: _Scribe) -> None:
    if len(value) > _MANY and set(map(type, value)) <= _ATOMS:
        # marshal version 1 has no references, so equal values give equal bytes. A loop
        # over a million names would take seconds.
        scribe.write(type(value).__name__, marshal.dumps(list(value), 1))
    else:
        scribe.add_all(type(value).__name__, value)


@_add.register(dict)
@_add.register(types.MappingProxyType)
def _(value: Mapping[Any, Any], scribe: _Scribe) -> None:
    scribe.add_mapping(type(value).__name__, value)


@_add.register(set)
@_add.register(frozenset)
def _(value: Iterable[Any], scribe: _Scribe) -> None:
    scribe.add_set(type(value).__name__, value)


@_add.register
def _(value: slice, scribe: _Scribe) -> None:
    scribe.add_all("slice", (value.start, value.stop, value.step))


@_add.register
def _(value: range, scribe: _Scribe) -> None:
    scribe.add_all("range", (value.start, value.stop, value.step))


@_add.register(np.ndarray)
def _(value: np.ndarray[Any, Any], scribe: _Scribe) -> None:
    scribe.write("array", repr(value.dtype), str(value.shape))
    if value.dtype.hasobject or value.dtype.kind == "T":
        scribe.add_all("objects", value.ravel().tolist())
        return
    part = file_part(value)
    if part is not None:  # it may have more bytes than could be read
        scribe.write("file", str(part.start), str(part.nbytes), part.digest)
    else:
        scribe.write(scribe.content(value))


@_add.register(np.generic)
def _(value: np.generic, scribe: _Scribe) -> None:
    scribe.add(np.asarray(value))


@_add.register(np.dtype)
def _(value: np.dtype[Any], scribe: _Scribe) -> None:
    scribe.write("dtype", repr(value))


@_add.register
def _(value: types.ModuleType, scribe: _Scribe) -> None:
    scribe.write("module", value.__name__)


@_add.register(functools.partial)
def _(value: functools.partial[Any], scribe: _Scribe) -> None:
    scribe.add_all("partial", (value.func, value.args, value.keywords))


@_add.register
def _(value: types.MethodType, scribe: _Scribe) -> None:
    scribe.add_all("function", (value.__func__, value.__self__))


@_add.register(staticmethod)
@_add.register(classmethod)
def _(value: Any, scribe: _Scribe) -> None:
    scribe.add_all("method", (value.__func__,))


@_add.register
def _(value: property, scribe: _Scribe) -> None:
    scribe.add_all("property", (value.fget, value.fset, value.fdel))


@_add.register
def _(value: types.BuiltinFunctionType, scribe: _Scribe) -> None:
    scribe.write("function")
    scribe.add_code(value, _write_builtin)


@_add.register
def _(value: types.FunctionType, scribe: _Scribe) -> None:
    scribe.write("function")
    scribe.add_code(value, _write_function)


@_add.register
def _(value: type, scribe: _Scribe) -> None:
    scribe.write("class")
    scribe.add_code(value, _write_class)


@_add.register
def _(value: types.CodeType, scribe: _Scribe) -> None:
    scribe.write(
        "code",
        value.co_name,
        value.co_code,
        getattr(value, "co_exceptiontable", b""),
        str(value.co_flags),
    )
    scribe.write(str((value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount)))
    for names in (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars):
        scribe.write("names", *names)
    scribe.add_all("consts", value.co_consts)


def _bare(thing: Any) -> bytes:
    """Return the hash of a callable without the values that it holds."""
    apart = _Scribe()
    apart.in_code = True
    apart.write(
        _name(thing if has(thing, "__qualname__") else type(thing)),
        str(peek(thing, "__name__", "")),
    )
    if is_a(thing, types.FunctionType):
        apart.add(thing.__code__)
    return apart.code.digest()


def _write_builtin(function: types.BuiltinFunctionType, scribe: _Scribe) -> None:
    scribe.write(_name(function))
    if function.__self__ is not None and not isinstance(function.__self__, types.ModuleType):
        scribe.add(function.__self__)


def _write_function(function: types.FunctionType, scribe: _Scribe) -> None:
    scribe.write(_name(function))
    scribe.add_all("function", (function.__code__, function.__defaults__, function.__kwdefaults__))
    scribe.add_all("closure", map(_contents, function.__closure__ or ()))
    if function.__module__ in SCRIPT_MODULES:
        for name in _used_names(function.__code__):
            if name in function.__globals__:
                scribe.write("global", name)
                scribe.add(function.__globals__[name])


def _write_class(kind: type, scribe: _Scribe) -> None:
    scribe.write(_name(kind))
    if kind.__module__ in SCRIPT_MODULES or "<locals>" in kind.__qualname__:
        scribe.add_all("bases", kind.__bases__)
        body = {name: held for name, held in vars(kind).items() if _counts(name, held)}
        annotate = body.get(_ANNOTATE)
        if isinstance(annotate, types.FunctionType):
            # Its closure holds the class's body, line numbers among it.
            body[_ANNOTATE] = annotate.__code__
        scribe.add_mapping("body", body)


_ANNOTATE = "__annotate_func__"
"""Name of the function that makes a class's annotations, from Python 3.14 on."""


def _counts(name: str, held: Any) -> bool:
    """Return False for attributes of a class that only the interpreter uses."""
    return name not in _CLASS_NOISE and not isinstance(
        held, (types.GetSetDescriptorType, types.MemberDescriptorType)
    )


_CLASS_NOISE = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__doc__",
        "__firstlineno__",
        "__static_attributes__",
        "_abc_impl",
        "__module__",
        "__annotations_cache__",
    }
)


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _used_names(code: types.CodeType) -> list[str]:
    """Return names that may be globals in this code and the code within it. Attributes
    are included, because a missing global would be worse.
    """
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            names.update(_used_names(const))
    return sorted(names)
