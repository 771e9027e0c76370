"""Classes shipped by value: the parts that a client writes, and the functions with
which a worker puts them together.

A class arrives as it is now. What ran while it was made (``__init_subclass__``, a
metaclass, ``__set_name__``, decorators) does not run again, because its effects are
attributes that travel. For this, the pickle first creates each class with the names of
its body that refer to nothing, then sets its attributes, and sets the hooks of the
classes last of all. Only hooks of importable classes run on the worker: there they find
the state of their own module, such as a registry. Nothing here imports dill.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import pickle
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from zmqdata.peeking import is_a, parameters_of, peek

ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
"""Classes of values that refer to nothing."""

_INTERPRETER_ONLY = frozenset(
    {"_abc_impl", "__annotate_func__", "__annotations_cache__", "__annotate__"}
)
_OF_MAKING = frozenset({"__new__", "__init__", "__prepare__", "mro"})
"""Methods of a metaclass that run when a class is made."""
_DEFINITIONS = (
    types.FunctionType,
    type,
    types.ModuleType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)
HEAP_TYPE = 1 << 9
"""Flag of classes that were made by a class statement or a call of a metaclass."""


def is_atom(value: object) -> bool:
    """Return True for a value that refers to nothing."""
    try:
        return type(value) in ATOMS
    except Exception:  # a metaclass makes its classes unhashable
        return False


def is_plain(value: object) -> bool:
    """Return True for a value that refers to nothing, or a tuple or dictionary of such
    values.
    """
    if type(value) is tuple:
        return all(map(is_atom, value))
    if type(value) is dict:
        return all(map(is_atom, value)) and all(map(is_atom, value.values()))
    return is_atom(value)


def is_definition(value: object) -> bool:
    """Return True for functions, classes, modules, methods of C code and plain values:
    they can be created before anything that they refer to.
    """
    if is_a(value, (classmethod, staticmethod)):
        return is_a(peek(value, "__func__"), types.FunctionType)
    if type(value) is property:
        parts = (value.fget, value.fset, value.fdel)
        return all(one is None or is_a(one, types.FunctionType) for one in parts)
    if type(value) is types.BuiltinFunctionType:
        return is_a(value.__self__, (type, types.ModuleType, type(None)))
    return is_a(value, _DEFINITIONS) or is_plain(value)


def is_made_here(kind: type) -> bool:
    """Return True for a class of Python code; classes of C code exist only by name."""
    return bool(kind.__flags__ & HEAP_TYPE)


def is_named_tuple(kind: type) -> bool:
    """Return True for a class that ``collections.namedtuple`` made."""
    return _has_base(kind, tuple) and "_fields" in vars(kind) and "_make" in vars(kind)


def is_typed_dict(kind: type) -> bool:
    """Return True for a class that ``TypedDict`` made. Its metaclass refuses the bases
    that it gave to the class.
    """
    return _has_base(kind, dict) and type(kind).__name__ == "_TypedDictMeta"


def _has_base(kind: type, base: type) -> bool:
    """Return True if this is the only base. Classes are not compared, because a
    metaclass may define how.
    """
    return len(kind.__bases__) == 1 and kind.__bases__[0] is base


def creation(kind: type) -> tuple[type, str, tuple[type, ...], dict[str, object]]:
    """Return the arguments of ``new_class``: metaclass, name, bases and the part of the
    body that refers to no other object.
    """
    held = vars(kind)
    body = {name: value for name, value in attributes(kind).items() if _is_of_body(value)}
    body["__qualname__"] = kind.__qualname__
    if is_struct(kind):
        body.pop("__slots__", None)
    elif "__slots__" in held:
        body["__slots__"] = tuple(_slots(kind))
    if "__orig_bases__" in held:
        body["__orig_bases__"] = held["__orig_bases__"]
    return type(kind), kind.__name__, kind.__bases__, body


def attributes(kind: type) -> dict[str, object]:
    """Return the attributes of a class that travel, without its hooks."""
    made = _made_by_namedtuple(kind) if is_named_tuple(kind) else frozenset()
    left_out = {*_INTERPRETER_ONLY, *made, *hooks(kind)}
    found = {
        name: value
        for name, value in vars(kind).items()
        if name not in left_out and not _is_of_layout(kind, value)
    }
    if "__annotate_func__" in vars(kind):  # Python 3.14 evaluates annotations on access
        with contextlib.suppress(NameError):
            found["__annotations__"] = kind.__annotations__
    if isinstance(found.get("__slots__"), Iterator):  # the class statement has used it up
        del found["__slots__"]
    return found


def hooks(kind: type) -> dict[str, object]:
    """Return the attributes that run when a class is made from this class."""
    names = {"__init_subclass__", *(_OF_MAKING if issubclass(kind, type) else ())}
    return {name: value for name, value in vars(kind).items() if name in names}


def registered(kind: type) -> list[type]:
    """Return the classes that were registered as virtual subclasses."""
    if not isinstance(kind, abc.ABCMeta) or "_abc_impl" not in vars(kind):
        return []
    registry: Iterable[Any] = abc._get_dump(kind)[0]  # type: ignore[attr-defined]  # not public
    return [one for one in (reference() for reference in registry) if one is not None]


def check_keywords(kind: type, by_value: Iterable[type]) -> None:
    """Raise if an importable hook cannot run without keyword arguments of the class
    statement. A class does not keep them.

    Args:
        kind: the class.
        by_value: its bases and metaclasses that travel by value, whose hooks do not
            run.
    """
    theirs = set(map(id, by_value))
    families: list[tuple[Any, str]] = [
        (kind.__mro__[1:], "__init_subclass__"),
        (type(kind).__mro__, "__new__"),
    ]
    for owners, name in families:
        owner = next((one for one in owners if name in vars(one) and id(one) not in theirs), None)
        if owner is None or not is_made_here(owner):
            continue
        parameters = parameters_of(getattr(owner, name)) or []
        needed = [
            one.name
            for one in parameters
            if one.kind is one.KEYWORD_ONLY and one.default is one.empty
        ]
        if needed:
            raise pickle.PicklingError(
                f"{owner.__qualname__}.{name} needs the keyword arguments {', '.join(needed)} of "
                f"the class statement, which the class {kind.__qualname__} does not keep"
            )


def _is_of_body(value: object) -> bool:
    return is_definition(value) and not is_a(value, (type, types.ModuleType))


def _is_of_layout(kind: type, value: object) -> bool:
    """Return True for descriptors that come with the memory layout of a class."""
    layout = (types.MemberDescriptorType, types.GetSetDescriptorType)
    return type(value) in layout and value.__objclass__ is kind  # type: ignore[attr-defined]  # both have it


def _slots(kind: type) -> Iterator[str]:
    for name, value in vars(kind).items():
        if (type(value) is types.MemberDescriptorType and value.__objclass__ is kind) or name in (
            "__dict__",
            "__weakref__",
        ):
            yield name


def _made_by_namedtuple(kind: Any) -> frozenset[str]:
    made = vars(collections.namedtuple("made", kind._fields, rename=True))
    return frozenset({*kind._fields, *made} - {"__doc__", "__module__"})


def new_class(
    number: int, meta: Any, name: str, bases: tuple[type, ...], body: dict[str, object]
) -> type:
    """Create a class whose attributes are set later. Called while unpickling."""
    try:
        space = meta.__prepare__(name, bases)
        space.update(body)
        # A metaclass of the metaclass may have a `__call__` of its own.
        made: type = type.__call__(meta, name, bases, space)
    except Exception as error:
        raise TypeError(
            f"the class {body['__qualname__']!r} of the script cannot be made here, because a "
            f"hook of one of its bases failed ({type(error).__name__}: {error}). Hooks of "
            "importable classes run on the worker without the keyword arguments of the class "
            "statement and before the class has all attributes. Define the class in a "
            "module, and pass the module with `ship=`"
        ) from error
    return made


def new_bare_class(
    number: int, meta: Any, name: str, bases: tuple[type, ...], body: dict[str, object]
) -> type:
    """Create a class without asking its metaclass: that of a ``TypedDict`` would refuse
    the bases, and that of an enumeration would want its members. Its attributes are set
    later. Called while unpickling.
    """
    made: type = type.__new__(meta, name, bases, body)
    return made


def new_member(kind: Any, name: str | int, base: Any, *arguments: object) -> object:
    """Create a member of an enumeration without its attributes. Called while
    unpickling.

    Args:
        kind: the enumeration.
        name: name of the member, or value of a combination of members.
        base: class of the value.
        arguments: arguments of ``__new__`` of that class.
    """
    return base.__new__(kind, *arguments)


def is_struct(kind: type) -> bool:
    """Return True for a class of ``msgspec``, whose layout follows from its fields."""
    return isinstance(kind, type(msgspec.Struct))


def struct_fields(kind: Any) -> list[tuple[Any, ...]]:
    """Return the fields of a ``msgspec.Struct`` that its bases do not have, each with
    its type, and its default value and factory where it has them.
    """
    inherited = {name for base in kind.__bases__ for name in getattr(base, "__struct_fields__", ())}
    fields = []
    for field in msgspec.structs.fields(kind):
        if field.name not in inherited or field.name in vars(kind).get("__annotations__", {}):
            given = {"default": field.default, "default_factory": field.default_factory}
            chosen = {key: one for key, one in given.items() if one is not msgspec.NODEFAULT}
            renamed = {"name": field.encode_name} if field.encode_name != field.name else {}
            fields.append((field.name, field.type, {**chosen, **renamed}))
    return fields


def struct_options(kind: Any) -> dict[str, object]:
    """Return the options with which a ``msgspec.Struct`` was defined."""
    config = kind.__struct_config__
    options = {name: getattr(config, name) for name in _STRUCT_OPTIONS if hasattr(config, name)}
    own = struct_fields(kind)
    return {
        **options,
        "kw_only": bool(own) and own[0][0] not in kind.__match_args__,
        "dict": "__dict__" in vars(kind),
        "weakref": "__weakref__" in vars(kind),
    }


_STRUCT_OPTIONS = (
    *("frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults"),
    *("forbid_unknown_fields", "tag", "tag_field"),
)


def new_struct(
    number: int,
    name: str,
    bases: tuple[type, ...],
    body: dict[str, object],
    options_and_fields: tuple[None, dict[str, Any], list[tuple[str, Any, dict[str, Any]]]],
) -> type:
    """Create a ``msgspec.Struct`` class. Called while unpickling."""
    _, options, fields = options_and_fields
    made = [
        (field, kind, msgspec.field(**given)) if given else (field, kind)
        for field, kind, given in fields
    ]
    return msgspec.defstruct(name, made, bases=bases, namespace=body, **options)


def new_named_tuple(
    number: int, name: str, fields: tuple[str, ...], module: str, qualname: str
) -> type:
    """Create a class of named tuples. Called while unpickling."""
    made = collections.namedtuple(name, fields, rename=True, module=module)  # type: ignore[misc]  # known only now
    made.__qualname__ = qualname
    return made


def set_defaults(kind: Any, defaults: dict[str, object]) -> None:
    """Set the default values of the fields of a named tuple. Called while
    unpickling.
    """
    kind._field_defaults = defaults
    kind.__new__.__defaults__ = tuple(defaults.values())


def set_attribute(kind: type, name: str, value: object) -> None:
    """Set an attribute of a class without its metaclass. Called while unpickling."""
    type.__setattr__(kind, name, value)


def set_attributes(kind: type, values: dict[str, object]) -> None:
    """Set attributes of a class without its metaclass. Called while unpickling."""
    for name, value in values.items():
        type.__setattr__(kind, name, value)


def register(kind: type, virtual: type) -> None:
    """Register a virtual subclass of an abstract class. Called while unpickling."""
    abc.ABCMeta.register(typing.cast(abc.ABCMeta, kind), virtual)
