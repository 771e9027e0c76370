"""Objects of Python's library whose own way of being pickled fails or misleads, and how
a worker makes them instead.

A reducer belongs here if the object means the same in another process. Objects that do
not are listed in ``unsendable``.
"""

from __future__ import annotations

import contextlib
import copyreg
import enum
import functools
import operator
import pickle
import sys
import types
import typing
import weakref
from collections.abc import Callable, Container, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from zmqdata.elements.subclasses import immutable_base, made_by_base
from zmqdata.peeking import has, is_a, peek
from zmqdata.pipelines import handles
from zmqdata.pipelines.classes import is_made_here, new_member
from zmqdata.pipelines.findable import SCRIPT_MODULES, is_importable
from zmqdata.pipelines.holding import body, lineage, module_of

Reduced = tuple[Callable[..., object], tuple[Any, ...]]


def reducer_of(kind: type) -> Callable[[Any], Any] | None:
    """Return a function that returns the function and arguments that make an object of
    a class, or NotImplemented. None if the class itself knows how to be pickled.

    >>> reducer_of(int) is None
    True
    >>> reduce = reducer_of(functools.cached_property)
    >>> function, arguments = reduce(functools.cached_property(len))
    >>> function(*arguments).func is len
    True
    """
    bases = (enum.Enum,) if issubclass(kind, enum.Enum) else kind.__mro__
    reducer = next((_REDUCERS[base] for base in bases if base in _REDUCERS), None)
    if reducer is None and not issubclass(kind, type) and _answers_itself(kind):
        return _instances(kind)
    return reducer


def is_plain_class(kind: type) -> bool:
    """Return True for a class whose objects are taken apart by ``object`` alone, and
    made without a method that is written in Python.
    """
    asked = ("__new__", "__getstate__", *_OF_NEW)
    bodies = [body(base) for base in lineage(kind) if is_made_here(base)]
    return (
        kind not in copyreg.dispatch_table
        and all(peek(kind, name) is getattr(object, name) for name in _OF_PICKLE)
        and not any(name in names for names in bodies for name in asked)
    )


def reduction(thing: Any) -> Any:
    """Return what the class of an object says of how to make it."""
    reduce = copyreg.dispatch_table.get(type(thing))
    return thing.__reduce_ex__(5) if reduce is None else reduce(thing)


def _answers_itself(kind: type) -> bool:
    """Return True for a class whose objects answer for their attributes or class. Such
    an answer may be wrong, or an error, for the methods that pickle looks for.
    """
    return any(
        name in vars(base)
        for base in kind.__mro__
        if is_made_here(base)
        for name in ("__getattr__", "__getattribute__", "__class__")
    )


def _instances(kind: Any) -> Callable[[Any], Any]:
    """Return a function that takes objects of a class apart as ``object`` does, without
    asking an object for methods that its class does not have.
    """
    is_odd = any(peek(kind, name) is not getattr(object, name) for name in _OF_PICKLE)
    if is_odd or has(kind, "__getnewargs_ex__"):
        return lambda thing: NotImplemented
    get_arguments = kind.__getnewargs__ if has(kind, "__getnewargs__") else lambda thing: ()
    own_state = peek(kind, "__getstate__")
    members = {
        name: member
        for base in reversed(lineage(kind))
        if is_made_here(base)
        for name, member in body(base).items()
        if type(member) is types.MemberDescriptorType
    }
    get_state = functools.partial(_stored_state, members=members)
    if own_state is not peek(object, "__getstate__"):
        get_state = own_state
    setter = set_own_state if has(kind, "__setstate__") else set_stored_state

    def reduced(thing: Any) -> Any:
        items: Any = (None, None)
        if is_a(thing, list):
            items = list.__iter__(thing), None
        elif is_a(thing, dict):
            items = None, iter([*dict.items(thing)])
        arguments = (kind, *get_arguments(thing))
        return new_instance, arguments, get_state(thing), *items, setter

    return reduced


_OF_PICKLE = ("__reduce__", "__reduce_ex__")


def _stored_state(thing: object, members: Mapping[str, Any]) -> Any:
    """Return the attributes in the dictionary of an object, or those with the ones in
    its slots, or None if it has none.

    Args:
        thing: the object.
        members: the slots of its class.
    """
    slots: dict[str, object] = {}
    for name, member in members.items():
        with contextlib.suppress(AttributeError):  # not set
            slots[name] = member.__get__(thing)
    try:
        stored = object.__getattribute__(thing, "__dict__")
    except AttributeError:  # it has slots only
        stored = None
    return (stored, slots) if slots else stored or None


def new_instance(kind: Any, *arguments: object) -> object:
    """Create an object without its attributes. Called while unpickling."""
    return kind.__new__(kind, *arguments)


def bare_instance(kind: Any, base: Any, *arguments: object) -> object:
    """Create an object with the ``__new__`` of a base of its class. Called while
    unpickling.
    """
    return base.__new__(kind, *arguments)


def calls_new(maker: Any) -> bool:
    """Return True for a function whose arguments are a class and those of its
    ``__new__``, which it calls.
    """
    return maker is copyreg.__newobj__ or maker is new_instance  # type: ignore[attr-defined]  # not public


def base_to_call(kind: type, shipped: Container[str]) -> type | None:
    """Return the base of a class whose ``__new__`` makes an object without the
    ``__new__`` of the script. That one ran in the client, and its effects, such as a
    registry, travel. None if the class's own ``__new__`` is called.

    ``__new__`` runs again if a method of the class returns its arguments, and if a
    library defines it in Python.

    Args:
        kind: the class.
        shipped: top-level modules that are shipped with the pickle.
    """
    is_passed = False
    for base in lineage(kind):
        if any(is_a(body(base).get(name), types.FunctionType) for name in _OF_NEW):
            return None
        new = body(base).get("__new__")
        if is_a(new, types.BuiltinFunctionType):
            return base if is_passed else None
        if new is not None:
            if is_importable(base, shipped):
                return None
            is_passed = True
    return None


_OF_NEW = ("__getnewargs__", "__getnewargs_ex__")


def set_own_state(thing: Any, state: Any) -> None:
    """Pass a state to the method of an object's class, without asking the object.
    Called while unpickling.
    """
    kind: Any = type(thing)
    kind.__setstate__(thing, state)


def set_stored_state(thing: object, state: Any) -> None:
    """Set the attributes of an object without asking the object. Called while
    unpickling.
    """
    stored, slots = state if isinstance(state, tuple) else (state, None)
    if stored:
        object.__getattribute__(thing, "__dict__").update(stored)
    for name, value in (slots or {}).items():
        object.__setattr__(thing, name, value)


def _member(member: enum.Enum) -> Any:
    """Name a member, because its value may be a copy that is not equal to it. That of
    an enumeration of the script is made without its class, which it is part of.
    """
    kind: Any = type(member)
    name = peek(member, "_name_")
    is_named = name in kind.__members__
    if is_importable(kind):
        return (operator.getitem, (kind, name)) if is_named else NotImplemented
    bases: Any = lineage(kind._member_type_)
    base = next(one for one in bases if is_a(body(one).get("__new__"), types.BuiltinFunctionType))
    arguments: tuple[Any, ...] = ()
    if has(base, "__getnewargs__"):
        arguments = base.__getnewargs__(member)
    elif base is not object:
        arguments = base.__reduce__(member)[1]
    parts = (kind, name if is_named else peek(member, "_value_"), base, *arguments)
    return new_member, parts, dict(vars(member)), None, None, set_stored_state


def _cached_property(thing: Any) -> Reduced:
    """Leave out the lock, which Python has in it before 3.12."""
    state = {name: held for name, held in vars(thing).items() if name != "lock"}
    return new_cached_property, (type(thing), state)


def new_cached_property(kind: type, state: dict[str, object]) -> object:
    """Create a cached property with a lock of its own. Called while unpickling."""
    made: object = object.__new__(kind)
    vars(made).update(state)
    if sys.version_info < (3, 12):
        vars(made)["lock"] = vars(functools.cached_property(len))["lock"]
    return made


def reduced_array(array: np.ndarray[Any, Any]) -> Any:
    """Take an array apart by numpy's public names, which all versions share. An array
    of objects, or of a class of its own, is left to numpy.
    """
    if type(array) not in (np.ndarray, np.memmap):
        return NotImplemented
    if array.dtype.hasobject or not array.dtype.itemsize:
        return NotImplemented
    array = array.view(np.ndarray)
    order = "F" if array.flags.fnc else "C"
    flat = array.reshape(-1, order="F") if order == "F" else np.ascontiguousarray(array).reshape(-1)
    flat = flat.view(np.uint8)
    flat.flags.writeable &= array.flags.writeable
    return new_array, (array.shape, array.dtype, pickle.PickleBuffer(flat), order)


def new_array(shape: tuple[int, ...], dtype: Any, content: Any, order: Any) -> object:
    """Create an array over memory that it does not copy. Called while unpickling."""
    return np.ndarray(shape, dtype, content, order=order)


def _text(text: Any) -> Any:
    """Keep NULs at the end of numpy's texts and bytes, whose own pickle drops them."""
    if type(text) is np.str_:
        return np.str_, (str.__str__(text),)
    return (np.bytes_, (b"".join([text]),)) if type(text) is np.bytes_ else NotImplemented


def _bit_generator(bits: np.random.BitGenerator) -> Any:
    """Take a source of random bits apart by public names, as arrays are."""
    name = type(bits).__name__
    if peek(np.random, name) is not type(bits):
        return NotImplemented
    return new_bit_generator, (name, bits.seed_seq, bits.state)


def new_bit_generator(name: str, seed: Any, state: Any) -> object:
    """Create a source of random bits. Called while unpickling."""
    made = vars(np.random)[name](seed)
    made.state = state
    return made


def _generator(generator: np.random.Generator) -> Any:
    if type(generator) is not np.random.Generator:
        return NotImplemented
    return np.random.Generator, (generator.bit_generator,)


def _random_state(legacy: Any) -> Any:
    if type(legacy) is not np.random.RandomState:
        return NotImplemented
    bits = legacy._bit_generator
    return new_random_state, (type(legacy), bits, legacy.get_state(legacy=False))


def new_random_state(kind: Any, bits: Any, state: Any) -> object:
    """Create a ``RandomState``. Called while unpickling."""
    made = kind(bits)
    made.set_state(state)
    return made


def _number(number: Any) -> Any:
    """Leave out a ``__new__`` of the script, which ``Decimal`` and ``Fraction`` call
    again.
    """
    reduced = number.__reduce_ex__(5)
    arguments = made_by_base(number, *reduced[:2])
    if arguments is None:
        return NotImplemented
    kind = type(number)
    return (bare_instance, (kind, immutable_base(kind), *arguments), *reduced[2:])


def _ufunc(function: np.ufunc) -> Any:
    if function.__name__.endswith(" (vectorized)"):
        raise pickle.PicklingError(
            "numpy does not tell the function that np.frompyfunc was called with. Hold that "
            "function, or np.vectorize(function)"
        )
    return NotImplemented


class KeptReference(weakref.ref[Any]):
    """Weak reference in a worker, which keeps its object. In the client, something
    outside of the pipeline may hold it.
    """

    __slots__ = ("kept",)
    kept: Any


def _reference(reference: weakref.ref[Any]) -> Any:
    target = reference()
    if target is None or type(reference) not in (weakref.ref, KeptReference):
        return NotImplemented
    return new_reference, (target,)


def new_reference(target: Any) -> object:
    """Create a reference that keeps its object. Called while unpickling."""
    made = KeptReference(target)
    made.kept = target
    return made


def is_tensor_class(kind: type) -> bool:
    """Return True for the class of torch's tensors, and for none of its subclasses.

    >>> is_tensor_class(int)
    False
    """
    return module_of(kind) == "torch" and kind.__name__ == "Tensor"


def reduced_tensor(tensor: Any, storages: dict[int, Any]) -> Any:
    """Take a tensor of torch apart as an array over its storage, which is sent as other
    arrays are: once, and beside the pickle. Tensors that share memory share it again.

    Torch copies the memory into the pickle, and writes its newer dtypes in a way that
    it cannot read.

    Args:
        tensor: the tensor.
        storages: the arrays so far, by the address of their memory.
    """
    torch = sys.modules["torch"]
    is_plain = tensor.device.type == "cpu" and tensor.layout == torch.strided
    if not is_plain or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        return NotImplemented
    storage = tensor.untyped_storage()
    if storage.data_ptr() not in storages:
        raw = torch.empty(0, dtype=torch.uint8)
        storages[storage.data_ptr()] = raw.set_(storage).numpy()
    place = tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()
    return new_tensor, (storages[storage.data_ptr()], *place, tensor.requires_grad)


def new_tensor(
    memory: Any,
    dtype: Any,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    requires_grad: bool,
) -> object:
    """Create a tensor of torch over memory that it does not copy. Called while
    unpickling.
    """
    torch: Any = sys.modules["torch"]
    storage = torch.from_numpy(memory).untyped_storage()
    tensor = torch.empty(0, dtype=dtype).set_(storage, offset, shape, strides)
    return tensor.requires_grad_(requires_grad)


def _weak_values(thing: weakref.WeakValueDictionary[Any, Any]) -> Reduced:
    return new_weak_container, (type(thing), dict(thing))


def _weak_keys(thing: weakref.WeakKeyDictionary[Any, Any]) -> Reduced:
    return new_weak_container, (type(thing), [*thing.items()])


def _weak_set(thing: weakref.WeakSet[Any]) -> Reduced:
    return new_weak_container, (type(thing), [*thing])


def new_weak_container(kind: Any, content: Any) -> object:
    """Create a weak container that keeps what it contains, as ``KeptReference`` does.
    Called while unpickling.
    """
    made = kind(content)
    vars(made)["kept"] = content
    return made


def _type_variable(variable: Any) -> Any:
    if variable.__module__ not in SCRIPT_MODULES:
        return NotImplemented
    options = {}
    for name in ("bound", "covariant", "contravariant", "infer_variance", "default"):
        value = getattr(variable, f"__{name}__", None)
        if value not in (None, False, getattr(typing, "NoDefault", None)):
            options[name] = value
    constraints = getattr(variable, "__constraints__", ())
    return new_typing_name, (type(variable), variable.__name__, constraints, options)


def _new_type(made: Any) -> Any:
    if made.__module__ not in SCRIPT_MODULES:
        return NotImplemented
    return new_typing_name, (type(made), made.__name__, (made.__supertype__,), {})


def _type_alias(alias: Any) -> Any:
    if alias.__module__ not in SCRIPT_MODULES:
        return NotImplemented
    options = {"type_params": alias.__type_params__}
    return new_typing_name, (type(alias), alias.__name__, (alias.__value__,), options)


def new_typing_name(
    kind: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> object:
    """Create a type variable, new type or type alias. Called while unpickling."""
    made = kind(name, *arguments, **options)
    with contextlib.suppress(AttributeError):  # a type alias cannot tell
        made.__module__ = "__main__"
    return made


_REDUCERS: dict[type, Callable[[Any], Any]] = {
    enum.Enum: _member,
    np.ndarray: reduced_array,
    np.str_: _text,
    np.bytes_: _text,
    np.random.BitGenerator: _bit_generator,
    np.random.Generator: _generator,
    np.random.RandomState: _random_state,
    np.finfo: lambda limits: (np.finfo, (limits.dtype,)),
    np.iinfo: lambda limits: (np.iinfo, (limits.dtype,)),
    functools.cached_property: _cached_property,
    Decimal: _number,
    Fraction: _number,
    np.ufunc: _ufunc,
    weakref.ref: _reference,
    weakref.WeakKeyDictionary: _weak_keys,
    weakref.WeakSet: _weak_set,
    weakref.WeakValueDictionary: _weak_values,
    typing.TypeVar: _type_variable,
    typing.ParamSpec: _type_variable,
    typing.NewType: _new_type,
    **handles.REDUCERS,
}
if sys.version_info >= (3, 11):
    _REDUCERS[typing.TypeVarTuple] = _type_variable
if sys.version_info >= (3, 12):
    _REDUCERS[typing.TypeAliasType] = _type_alias
