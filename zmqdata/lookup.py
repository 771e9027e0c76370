"""Lookup of classes and functions by name, without importing anything.

A name comes from a peer, so nothing is imported for it and no attribute hook runs. The
classes of the script are at home in ``__main__``, unless another program runs the
script: a profiler or tracer is ``sys.modules["__main__"]`` itself. Classes that this
process sent to workers are therefore found even if their module does not show them.
"""

from __future__ import annotations

import sys
import types
import weakref
from typing import Any

_homeless: weakref.WeakValueDictionary[tuple[str, str], type] = weakref.WeakValueDictionary()


def look_up(module: str, qualname: str) -> Any:
    """Return the object of this name in an imported module, or None.

    >>> look_up("collections", "OrderedDict")
    <class 'collections.OrderedDict'>
    """
    known = _homeless.get((module, qualname))
    return known if known is not None else _stored(module, qualname)


def remember_class(kind: type) -> None:
    """Let ``look_up`` find a class of the script that its module does not show. A class
    within a function is left out, because there may be many of its name.
    """
    name = kind.__module__, kind.__qualname__
    if all(type(one) is str and "<" not in one for one in name) and _stored(*name) is not kind:
        _homeless[name] = kind
    else:
        _homeless.pop(name, None)


def _stored(module: str, qualname: str) -> Any:
    found: object = sys.modules.get(module)
    if not isinstance(found, types.ModuleType):
        return None
    for name in qualname.split("."):
        try:
            found = object.__getattribute__(found, "__dict__").get(name)
        except AttributeError:
            return None
    return found
