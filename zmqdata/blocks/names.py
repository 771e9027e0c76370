"""Lookup of classes and functions that a peer names, without importing any module.

Records (``structures``) and object leaves (``objects``) name classes. Only this module
decides what a name refers to; the callers decide what to make of it.
"""

from __future__ import annotations

import enum
import importlib
import sys
import types
from typing import Any

import numpy as np

from zmqdata.blocks.arrays import MAKERS
from zmqdata.elements.subclasses import immutable_base
from zmqdata.errors import MissingClassError, ProtocolError
from zmqdata.peeking import look_up

_VALUES: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "array": "array _array_reconstructor",
        "builtins": "bool complex dict float frozenset int list object range set slice str tuple",
        "collections": (
            "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque"
        ),
        "copyreg": "__newobj__ __newobj_ex__ _reconstructor",
        "datetime": "date datetime time timedelta timezone",
        "decimal": "Decimal",
        "fractions": "Fraction",
        "ipaddress": "IPv4Address IPv4Network IPv6Address IPv6Network",
        "pathlib": "Path PosixPath PurePath PurePosixPath PureWindowsPath",
        "time": "struct_time",
        "types": "SimpleNamespace",
        "uuid": "SafeUUID UUID",
        "zmqdata.elements.ragged": "RaggedTensor",
        "zoneinfo": "ZoneInfo",
    }.items()
}
"""Names that are allowed in modules that every process has: values and their
containers, without side effects.
"""

_CLOSED = frozenset(
    {"blosc", "cloudpickle", "dill", "msgspec", "numpy", "optree", "rich", "tqdm", "zmq", "zmqdata"}
) | frozenset(sys.stdlib_module_names)
"""Packages in which no other name is allowed, since an attacker knows that every
process has them.
"""


def named(module: str, qualname: str) -> object:
    """Return the class or function that a peer's object leaf names.

    Values of the standard library and of numpy are allowed. No other names of these, of
    zmqdata and of its dependencies are. Of other modules, everything that they define
    is allowed, if they are already imported here.

    Raises:
        MissingClassError: the name does not exist here, since its module is not
            imported.
        ProtocolError: the name is not allowed.

    >>> named("collections", "OrderedDict")
    <class 'collections.OrderedDict'>
    """
    name = f"{module}.{qualname}"
    if name in _OURS:
        return _OURS[name]
    closed = is_closed(module)
    found = _found_in_closed(module, qualname) if closed else look_up(module, qualname)
    if found is None and not closed:
        raise MissingClassError(
            f"an object names {name:.200}, which does not exist in this process: import "
            f"{module:.100} before reading, if this machine has it, since nothing is imported "
            "because a worker names it"
        )
    if found is None or not _is_open(found):
        raise ProtocolError(
            f"an object names {name:.200}, which is not among the values that may be sent: send "
            "numpy arrays, str, bytes or a class of your own instead"
        )
    return found


def is_closed(module: str) -> bool:
    """Return True if a module belongs to the packages in which only values may be
    named.

    >>> is_closed("os.path"), is_closed("__main__")
    (True, False)
    """
    return module.partition(".")[0] in _CLOSED


def _found_in_closed(module: str, qualname: str) -> object | None:
    if module == "pathlib._local":  # the module of paths in Python 3.13
        module = "pathlib"
    if qualname in _VALUES.get(module, ()):
        found: object = look_up(importlib.import_module(module).__name__, qualname)
        return found
    if module == "builtins":
        found = look_up(module, qualname)
        return found if isinstance(found, type) and issubclass(found, Exception) else None
    scalar = getattr(np, qualname, None) if module == "numpy" and qualname in np.__all__ else None
    return scalar if isinstance(scalar, type) and issubclass(scalar, np.generic) else None


def _is_open(found: object) -> bool:
    """Return True if an object may be named in the module that defines it: a module
    also holds what it has imported.
    """
    home = getattr(found, "__module__", None)
    if isinstance(found, types.ModuleType) or not isinstance(home, str):
        return False
    return (
        not is_closed(home) or _found_in_closed(home, getattr(found, "__qualname__", "")) is found
    )


def attribute(owner: object, name: str) -> object:
    """Replace ``getattr`` in pickles: return members of enumerations, and class methods
    that make instances.

    Raises:
        ProtocolError: the pickle asks for any other attribute.
    """
    if isinstance(owner, enum.EnumMeta) and name in owner.__members__:
        return owner.__members__[name]
    home = str(getattr(owner, "__module__", ""))
    maker = (home, name) == ("zoneinfo", "_unpickle") or (
        not is_closed(home) and not name.startswith("__")
    )
    if not isinstance(owner, type) or not maker or not callable(getattr(owner, name, None)):
        raise ProtocolError(f"an object asks for the attribute {name!r:.80} of {owner!r:.80}")
    return getattr(owner, name)


def set_state(instance: Any, state: Any) -> None:
    """Replace ``BUILD`` in pickles: set the attributes of an instance.

    Raises:
        ProtocolError: the instance is a class or module, whose attributes are shared,
            or a numpy value, which would not check them.
    """
    if isinstance(
        instance, (type, types.ModuleType, types.FunctionType, np.ndarray, np.generic, np.dtype)
    ):
        if (
            not isinstance(instance, np.ndarray)
            or type(instance) is np.ndarray
            or not isinstance(state, dict)
        ):
            raise ProtocolError(f"an object sets the state of a {type(instance).__name__}")
        vars(instance).update(state)
        return
    if hasattr(instance, "__setstate__"):
        instance.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        vars(instance).update(attributes)
    for name, value in (slots or {}).items():
        setattr(instance, name, value)


def new_value(kind: Any, *arguments: Any) -> object:
    """Create a number, a text or a frozen set of a user's class with the ``__new__`` of
    its base.

    Raises:
        ProtocolError: it is another class.
    """
    base = immutable_base(kind) if isinstance(kind, type) else None
    if base is None:
        raise ProtocolError(f"an object is made of {kind!r:.80} as if it were a number or text")
    return base.__new__(kind, *arguments)


_OURS: dict[str, object] = {
    "builtins.Ellipsis": Ellipsis,
    "builtins.NotImplemented": NotImplemented,
    "builtins.getattr": attribute,
    **{
        f"{ours.__module__}.{ours.__qualname__}": ours
        for ours in (named, set_state, new_value, *MAKERS)
    },
}
