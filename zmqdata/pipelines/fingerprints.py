"""Fingerprints of pipelines: equal pipelines have equal fingerprints in every run of
the same script.

Nothing is pickled here. Pickles differ between runs (order of sets, identity of
strings), but a fingerprint hashes content: operations, parameters, elements of arrays,
bytecode of functions, and whatever else a pickle of the pipeline carries. Line numbers,
file names, addresses, aliases and the seed of string hashing do not affect it.

Each value has a *form*, which ``marshal`` writes. A short value of built-in types is
its own form; that of any other value begins with an ellipsis and holds a hash of the
forms of all that the value holds.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import pathlib
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from zmqdata.messages.identity import VERSION, Fingerprint
from zmqdata.nodes.base import Node
from zmqdata.peeking import has, is_a, peek
from zmqdata.pipelines.classes import is_struct, registered, struct_fields, struct_options
from zmqdata.pipelines.findable import SCRIPT_MODULES, is_importable
from zmqdata.pipelines.forms import CLASS, FUNCTION, Scribe, digest_of, joined
from zmqdata.pipelines.functions import codes, fields_of
from zmqdata.pipelines.generators import is_generator
from zmqdata.pipelines.handles import RefusedError, seek
from zmqdata.pipelines.holding import attributes, body, is_hashable, lineage, module_of
from zmqdata.pipelines.memorymaps import mapped_file
from zmqdata.pipelines.parcels import Parcel
from zmqdata.pipelines.reducing import new_instance, reducer_of, reduction

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
    same Python minor version; without functions, with any of them.

    Args:
        node: the last node of a pipeline, or any value.

    >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    True
    >>> first, second = fingerprint(len), fingerprint(max)
    >>> first.structure == second.structure, first == second
    (True, False)

    tf.data's fingerprint is a single hash of its graph.
    """
    scribe = Scribe(_Manner)
    structure, *code = digest_of(scribe.add(node)), *joined(scribe.code)
    return Fingerprint(VERSION + structure.hex()[:32], *(part.hex()[:32] for part in code))


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


def _note(scribe: Scribe, value: Any, write: Callable[[Any], Any], mark: Any) -> Any:
    """Note a function, a class or another callable, and return its form."""
    outer, scribe.code, was_in_code, scribe.in_code = scribe.code, [], scribe.in_code, True
    named = value if has(value, "__qualname__") else type(value)
    code = scribe.add(value.__code__) if is_a(value, types.FunctionType) else None
    bare = _name(named), str(peek(value, "__name__", "")), code
    form = write(value)
    inner, scribe.code, scribe.in_code = scribe.code, outer, was_in_code
    held = [functions for _, functions in inner]
    scribe.code.append(
        (digest_of((mark, form, [one for one, _ in inner])), digest_of((bare, held)))
    )
    return mark


def _pipeline(scribe: Scribe, node: Any) -> Any:
    """Return the forms of the nodes of a pipeline."""
    order = nodes_in_order(node)
    number = {id(item): i for i, item in enumerate(order)}
    return [
        (
            _name(type(item)),
            [number[id(source)] for source in _inputs(item)],
            [(name, scribe.add(value)) for name, value in sorted(_fields(item))],
        )
        for item in order
    ]


def _stored(scribe: Scribe, value: Any) -> Any:
    """Return the forms of the attributes that an object stores."""
    return scribe.entries(_without_cache(scribe, value, dict(attributes(value))))


def _without_cache(scribe: Scribe, value: Any, state: Any) -> Any:
    """Return the state of an object without what pandas has computed from the rest."""
    kind: Any = scribe.kind(type(value))
    if not kind.has_cache:
        return state
    if type(state) is tuple:
        parts = [_without_cache(scribe, value, one) for one in state]
        return tuple(one for one in parts if type(one) is not dict or one)
    if type(state) is dict:
        return {name: one for name, one in state.items() if name != "_cache"}
    return state


def _content(scribe: Scribe, value: Any) -> Any:
    """Return the forms of an object's class and of all that it holds."""
    kind: Any = scribe.kind(type(value))
    if scribe.in_code and kind.is_generator:
        # A function's generator may have another state in each run, and tasks seed
        # it anew. They keep the entropy of a seed sequence.
        return "generator", kind.name
    if is_a(value, Node):  # also a pipeline within another pipeline, as in flat_map
        return "pipeline", _pipeline(scribe, value)
    if kind.has_node and is_a(inner := peek(value, "node"), Node):
        return "dataset", _pipeline(scribe, inner)  # the number of its reads does not count
    if kind.is_own:
        scribe.add(kind.kind)
    if not kind.is_stored(value):
        return "object", kind.name, _reduced(scribe, value)
    return "object", kind.name, _stored(scribe, value)


def _reduced(scribe: Scribe, value: Any) -> Any:
    """Return the forms of what an object's own way of being pickled carries."""
    kind: Any = type(value)
    reducer = reducer_of(kind)
    try:
        made = NotImplemented if reducer is None else reducer(value)
        made = reduction(value) if made is NotImplemented else made
        if isinstance(made, str):
            return made, _stored(scribe, value)
        maker, arguments, state, items, entries = (*made, None, None, None)[:5]
        state = None if made[-1] is seek else state  # reading a file moves its position
        arguments = [one for one in arguments if one is not kind]
        items, entries = [*(items or ())], dict(entries or ())
    except RecursionError:
        raise
    except Exception:  # it cannot be pickled: pack_pipeline raises an error with its path
        return _stored(scribe, value)
    return (
        _name(maker) if maker is kind or is_importable(maker) else scribe.add(maker),
        scribe.forms(arguments),
        scribe.add(_without_cache(scribe, value, state)),
        scribe.forms(items),
        scribe.entries(entries),
    )


class _Manner:
    """Tells how the objects of a class are written."""

    def __init__(self, kind: type) -> None:
        self.kind, self.name = kind, _name(kind)
        self.write: Callable[[Scribe, Any], Any] = _writer_of(kind)
        self.is_generator = is_generator(kind) and kind is not np.random.SeedSequence
        self.is_own = module_of(kind) in SCRIPT_MODULES
        self.has_node = has(kind, "node")
        self.has_cache = any(module_of(base).startswith("pandas.") for base in lineage(kind))
        self.has_slots = any("__slots__" in body(base) for base in lineage(kind))
        self._is_stored: bool | None = None

    def is_stored(self, value: Any) -> bool:
        """Return True if the pickle of an object of this class carries the attributes
        that it stores, and these alone.
        """
        if self._is_stored is None:
            kind: Any = self.kind
            is_usual = all(
                peek(kind, name) is peek(object, name)
                for name in ("__reduce__", "__reduce_ex__", "__getstate__", "__getnewargs__")
            ) and not (has(kind, "__getnewargs_ex__") or is_a(value, (list, dict)))
            is_usual = is_usual and is_hashable(kind) and kind not in copyreg.dispatch_table
            reducer = reducer_of(kind) if is_usual else None
            try:
                answer = NotImplemented if reducer is None else reducer(value)
            except RefusedError:  # pack_pipeline raises it with the path
                return False
            self._is_stored = is_usual and (answer is NotImplemented or answer[0] is new_instance)
        return self._is_stored

    def has_rows(self, value: Any) -> bool:
        """Return True if the dictionary of an object of this class is all it holds."""
        is_special = self.is_generator or self.has_node or self.has_slots or is_a(value, Node)
        is_special = is_special or self.write is not _content
        return not is_special and self.is_stored(value) and type(peek(value, "__dict__")) is dict


def _writer_of(kind: type) -> Callable[[Scribe, Any], Any]:
    if is_hashable(kind) and kind in _WRITERS:
        return _WRITERS[kind]
    for base in lineage(kind):
        if is_hashable(base) and base in _OF_BASES:
            return _OF_BASES[base]
        if (module_of(base), base.__name__) == ("torch", "Tensor"):
            return _tensor
        if module_of(base) == "torch.storage":
            return _storage
    is_callable = any("__call__" in body(base) for base in lineage(kind))
    return _called if is_callable else _content


def _called(scribe: Scribe, value: Any) -> Any:
    return _note(scribe, value, lambda one: _content(scribe, one), FUNCTION)


def _array(scribe: Scribe, array: Any) -> Any:
    kind = type(array)
    plain = np.asarray(array) if is_a(array, np.generic) else np.ndarray.view(array, np.ndarray)
    held: Any = None
    if is_a(array, np.ma.MaskedArray):
        bare: Any = np.ndarray.view(array, np.ma.MaskedArray)  # notes its fill value when asked
        held = scribe.forms((np.ma.getmaskarray(array), bare.fill_value))
    elif is_a(array, np.ndarray) and kind not in (np.ndarray, np.memmap):
        held = _stored(scribe, array)
    mapped = mapped_file(array) if is_a(array, np.ndarray) else None
    if plain.dtype.hasobject or plain.dtype.kind == "T":
        content = scribe.forms(plain.ravel().tolist())
    elif mapped is not None:  # it may have more bytes than could be read
        content = ["file", mapped.start, mapped.size, mapped.samples]
    else:
        octets = np.ascontiguousarray(plain).reshape(-1).view(np.uint8) if plain.size else b""
        content = hashlib.sha256(octets).digest()
    name = "array" if kind in (np.ndarray, np.memmap) else _name(kind)
    return name, _dtype(scribe, plain.dtype), plain.shape, content, held


def _dtype(scribe: Scribe, dtype: np.dtype[Any]) -> Any:
    metadata = dict(dtype.metadata) if dtype.metadata else None
    return "dtype", repr(dtype), scribe.add(metadata)


def _tensor(scribe: Scribe, tensor: Any) -> Any:
    torch: Any = sys.modules["torch"]
    plain = tensor.detach()
    if type(plain) is not torch.Tensor:
        plain = plain.as_subclass(torch.Tensor)
    about = _name(type(tensor)), str(tensor.dtype), tuple(tensor.shape), tensor.requires_grad
    if plain.layout != torch.strided:
        content = _reduced(scribe, plain)
    elif plain.is_quantized:
        content = scribe.forms((plain.int_repr(), plain.dequantize()))
    elif plain.device.type == "meta":
        content = "meta"
    else:
        flat = plain.cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        content = hashlib.sha256(flat.view(torch.uint8).numpy()).digest()
    return "tensor", about, content, _stored(scribe, tensor)


def _parcel(scribe: Scribe, parcel: Parcel) -> Any:
    found = Fingerprint.parse(parcel.packed.fingerprint)
    scribe.code.append((found.code.encode(), found.functions.encode()))
    return "parcel", found.structure


def _storage(scribe: Scribe, storage: Any) -> Any:
    torch: Any = sys.modules["torch"]
    octets = torch.empty(0, dtype=torch.uint8).set_(storage.untyped())
    return _name(type(storage)), str(peek(storage, "dtype")), _tensor(scribe, octets)


def _member(scribe: Scribe, member: Any) -> Any:
    kind = type(member)
    # A flag without members has no name, nor has one of several on Python 3.10.
    held: Any = member.name or str(member.value)
    if kind.__module__ in SCRIPT_MODULES:
        scribe.add(kind)
        named = {name: one for name, one in attributes(member) if not name.endswith("_")}
        held = held, scribe.forms((member.value, named))
    return "enum", _name(kind), held


def _set(scribe: Scribe, values: Any) -> Any:
    kind = type(values)
    if kind is set or kind is frozenset:
        return kind.__name__, scribe.members(values)
    if scribe.kind(kind).is_own:
        scribe.add(kind)
    base: Any = set if is_a(values, set) else frozenset
    return _name(kind), scribe.members([*base.__iter__(values)]), _stored(scribe, values)


def _partial(scribe: Scribe, partial: functools.partial[Any]) -> Any:
    held = scribe.forms((partial.func, partial.args, partial.keywords))
    return _name(type(partial)), held, _stored(scribe, partial)


def _builtin(scribe: Scribe, function: types.BuiltinFunctionType) -> Any:
    owner = function.__self__
    held = () if owner is None or isinstance(owner, types.ModuleType) else (owner,)
    return _note(scribe, function, lambda one: (_name(one), scribe.forms(held)), FUNCTION)


def _function(scribe: Scribe, function: types.FunctionType) -> Any:
    def write(function: types.FunctionType) -> Any:
        code, held = function.__code__, {}
        if function.__module__ in SCRIPT_MODULES:
            names = {name for part in codes(code) for name in part.co_names}
            held = {
                # Attributes are included, because a missing global would be worse.
                name: function.__globals__[name]
                for name in names
                if name in function.__globals__
            }
        own: dict[str, Any] = {}
        if not is_importable(function):
            own = {"__annotations__": fields_of(function).get("__annotations__"), **vars(function)}
        cells = [_contents(cell) for cell in function.__closure__ or ()]
        parts = (code, function.__defaults__, function.__kwdefaults__, cells, own, held)
        return _name(function), scribe.forms(parts)

    return _note(scribe, function, write, FUNCTION)


def _class(scribe: Scribe, kind: type) -> Any:
    def write(kind: type) -> Any:
        if kind.__module__ not in SCRIPT_MODULES and "<locals>" not in kind.__qualname__:
            return _name(kind)
        held = {name: one for name, one in body(kind).items() if _counts(name, one)}
        annotate = held.get(_ANNOTATE)
        if isinstance(annotate, types.FunctionType):
            # Its closure holds the class's body, line numbers among it.
            held[_ANNOTATE] = annotate.__code__
        struct = (struct_options(kind), struct_fields(kind)) if is_struct(kind) else None
        parts = scribe.forms((type(kind), kind.__bases__, held, struct))
        return _name(kind), parts, scribe.members(registered(kind))

    return _note(scribe, kind, write, CLASS)


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
        "__slotnames__",
        # Combinations of flags are added when they are first used.
        "_value2member_map_",
    }
)


def _code(scribe: Scribe, code: types.CodeType) -> Any:
    return (
        "code",
        code.co_name,
        code.co_code,
        getattr(code, "co_exceptiontable", b""),
        (code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        scribe.forms(code.co_consts),
    )


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not bound yet
        return None


def _parts(tag: str, *names: str) -> Callable[[Scribe, Any], Any]:
    """Return the writer of objects that consist of some attributes."""
    return lambda scribe, value: (tag, scribe.forms([getattr(value, name) for name in names]))


def _view(scribe: Scribe, view: Any) -> Any:
    name = type(view).__name__
    return name, (scribe.forms if name.endswith("values") else scribe.members)([*view])


_WRITERS: dict[type, Callable[[Scribe, Any], Any]] = {
    Parcel: _parcel,
    list: lambda scribe, value: ("list", scribe.forms(value)),
    tuple: lambda scribe, value: ("tuple", scribe.forms(value)),
    dict: lambda scribe, value: ("dict", scribe.entries(value)),
    types.MappingProxyType: lambda scribe, value: ("mappingproxy", scribe.entries(value)),
    set: _set,
    frozenset: _set,
    bytearray: lambda _, value: ("bytearray", hashlib.sha256(value).digest()),
    slice: _parts("slice", "start", "stop", "step"),
    range: _parts("range", "start", "stop", "step"),
    types.ModuleType: _parts("module", "__name__"),
    types.MethodType: _parts("function", "__func__", "__self__"),
    types.CellType: lambda scribe, cell: ("cell", scribe.forms([_contents(cell)])),
    types.GetSetDescriptorType: _parts("descriptor", "__objclass__", "__name__"),
    types.MemberDescriptorType: _parts("descriptor", "__objclass__", "__name__"),
    Fraction: _parts("fraction", "numerator", "denominator"),
    super: _parts("super", "__thisclass__", "__self__"),
    staticmethod: _parts("staticmethod", "__func__"),
    classmethod: _parts("classmethod", "__func__"),
    property: _parts("property", "fget", "fset", "fdel"),
    types.BuiltinFunctionType: _builtin,
    types.FunctionType: _function,
    types.CodeType: _code,
    **{
        type(view(kind())): _view
        for kind in (dict, OrderedDict)
        for view in (kind.keys, kind.values, kind.items)
    },
}
_OF_BASES: dict[type, Callable[[Scribe, Any], Any]] = {
    type: _class,
    enum.Enum: _member,
    np.ndarray: _array,
    np.generic: _array,
    np.dtype: _dtype,
    set: _set,
    frozenset: _set,
    functools.partial: _partial,
    # Its module has other names in other versions of Python.
    pathlib.PurePath: lambda _, value: ("path", type(value).__qualname__, str(value)),
}
