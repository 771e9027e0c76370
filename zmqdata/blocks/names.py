"""Classes and functions by their names: what a peer may refer to here, and how it is
found without importing anything.

Records (``structures``) and object leaves (``objects``) name classes. What is found for
a name is decided here and nowhere else; what is made of it is not.
"""

from __future__ import annotations

import enum
import importlib
import sys
import types
from typing import Any

import numpy as np

from zmqdata.blocks.arrays import MAKERS
from zmqdata.errors import MissingClassError, ProtocolError

_VALUES: dict[str, frozenset[str]] = {
    module: frozenset(names.split())
    for module, names in {
        "array": "array _array_reconstructor",
        "builtins": "bool complex dict float frozenset int list object range set slice str tuple",
        "collections": "ChainMap Counter OrderedDict UserDict UserList UserString defaultdict deque",
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
"""What may be named of modules that every process has: values and their containers,
nothing that does anything.
"""

_CLOSED = frozenset(
    {"blosc", "cloudpickle", "dill", "msgspec", "numpy", "optree", "rich", "tqdm", "zmq", "zmqdata"}
) | frozenset(sys.stdlib_module_names)
"""Packages of which nothing else may be named: whoever writes an attack knows that they
are there.
"""


def named(module: str, qualname: str) -> object:
    """The class or function of this name, for a peer's object leaf.

    Values of the standard library and of numpy are known. Of the rest of them, and of
    zmqdata and what it stands on, nothing is found; of other modules, whatever they
    have made themselves, if they are imported here already.

    Raises:
        MissingClassError: there is none, as its module is not imported here.
        ProtocolError: it may not be named.

    >>> named("collections", "OrderedDict")
    <class 'collections.OrderedDict'>
    """
    name = f"{module}.{qualname}"
    if name in _OURS:
        return _OURS[name]
    closed = is_closed(module)
    found = _found_in_closed(module, qualname) if closed else walk(module, qualname)
    if found is None and not closed:
        raise MissingClassError(
            f"an object names {name:.200}, which is not there in this process: import "
            f"{module:.100} before reading, "
            "where it exists, as nothing is imported because a worker says so"
        )
    if found is None or not _is_open(found):
        raise ProtocolError(
            f"an object names {name:.200}, which is not among the values that may be sent: say it "
            "with numpy arrays, "
            "str, bytes or a class of your own"
        )
    return found


def is_closed(module: str) -> bool:
    """Whether a module belongs to the packages of which only values may be named.

    >>> is_closed("os.path"), is_closed("__main__")
    (True, False)
    """
    return module.partition(".")[0] in _CLOSED


def _found_in_closed(module: str, qualname: str) -> object | None:
    if module == "pathlib._local":  # where Python 3.13 says that paths are from
        module = "pathlib"
    if qualname in _VALUES.get(module, ()):
        return walk(importlib.import_module(module).__name__, qualname)
    if module == "builtins":
        found = walk(module, qualname)
        return found if isinstance(found, type) and issubclass(found, Exception) else None
    scalar = getattr(np, qualname, None) if module == "numpy" and qualname in np.__all__ else None
    return scalar if isinstance(scalar, type) and issubclass(scalar, np.generic) else None


def _is_open(found: object) -> bool:
    """Whether it is at home where it may be named: a module also holds what it has
    imported from others.
    """
    home = getattr(found, "__module__", None)
    if isinstance(found, types.ModuleType) or not isinstance(home, str):
        return False
    return (
        not is_closed(home) or _found_in_closed(home, getattr(found, "__qualname__", "")) is found
    )


def walk(module: str, qualname: str) -> object | None:
    """What has this name in a module that is imported already; no attribute hook of a
    module or class runs.
    """
    found: object = sys.modules.get(module)
    if not isinstance(found, types.ModuleType):
        return None
    for name in qualname.split("."):
        try:
            found = object.__getattribute__(found, "__dict__").get(name)
        except AttributeError:
            return None
    return found


def attribute(owner: object, name: str) -> object:
    """In the place of ``getattr`` in pickles: members of enumerations, and class
    methods that make instances.

    Raises:
        ProtocolError: anything else is asked for.
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
    """In the place of ``BUILD`` in pickles: give an instance its attributes.

    Raises:
        ProtocolError: it is a class or module, whose attributes belong to everybody, or
            one of numpy's values, which would believe anything.
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


_OURS: dict[str, object] = {
    "builtins.Ellipsis": Ellipsis,
    "builtins.NotImplemented": NotImplemented,
    "builtins.getattr": attribute,
    **{f"{ours.__module__}.{ours.__qualname__}": ours for ours in (named, set_state, *MAKERS)},
}
