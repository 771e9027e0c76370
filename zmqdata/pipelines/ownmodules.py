"""The user's own modules, which workers import by name: whether a worker has loaded an
older source than the client.

A module is loaded once in a process, but its file may change, and the client may load
it again with ``importlib.reload``. Installed packages and Python itself are not looked
at: they may differ between machines.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
import types
from collections.abc import Collection, Container, Mapping
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from zmqdata.failures.names import PREFIX
from zmqdata.peeking import is_a, peek
from zmqdata.pipelines.findable import SCRIPT_MODULES

_FOREIGN = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NOT_OWN = frozenset({"zmqdata", *SCRIPT_MODULES, *sys.stdlib_module_names})
_loaded: dict[str, tuple[ModuleSpec, str]] = {}
"""Digest of the source of a module when it was first looked at, and its spec then.
Python makes another spec when it loads a module again.
"""


def own_sources(names: Collection[str], shipped: Container[str] = ()) -> dict[str, str]:
    """Return the SHA-256 of the loaded source of the user's own modules, by name: of
    these modules, and of those from which they have names.

    Args:
        names: names of modules.
        shipped: top-level modules that are left out.

    >>> own_sources(["json", "zmqdata.errors", "numpy"])
    {}
    """
    found: dict[str, str] = {}
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        module = sys.modules.get(name)
        if name in found or not is_a(module, types.ModuleType) or name.split(".")[0] in shipped:
            continue
        source = _loaded_source(module)
        if source is not None:
            found[name] = source
            waiting += {_origin(value) for value in list(vars(module).values())}
    return dict(sorted(found.items()))


def outdated(sources: Mapping[str, str]) -> list[str]:
    """Return the modules of which this process has loaded another source than the
    client, although its own file has the client's source by now.

    Args:
        sources: the result of ``own_sources`` in the client.
    """
    found = []
    for name, source in sources.items():
        module = sys.modules.get(name)
        known = None if module is None else _loaded_source(module)
        if known not in (None, source) and _source_of(module) == source:
            found.append(name)
    return found


def file_of(name: str) -> str:
    """Return the file of a loaded module of the user.

    >>> file_of(__name__).endswith("ownmodules.py")
    True
    """
    return str(peek(peek(sys.modules[name], "__spec__"), "origin"))


def _origin(value: object) -> str:
    """Return the name of the module that a value is, or that defines it or its class.
    Other attributes are not asked for: a module that is loaded late would be loaded.
    """
    if type(value) is types.ModuleType:
        return value.__name__
    definition = type(value) is types.FunctionType or is_a(value, type)
    name = peek(value if definition else type(value), "__module__")
    return name if type(name) is str else ""


def _loaded_source(module: Any) -> str | None:
    """Return the digest of the source that a module was loaded from; None if the module
    is not the user's own.
    """
    spec, name = peek(module, "__spec__"), peek(module, "__name__")
    if not is_a(spec, ModuleSpec) or not _is_own(name, spec):
        return None
    if name not in _loaded or _loaded[name][0] is not spec:
        source = _source_of(module)
        if source is None:
            return None
        _loaded[name] = (spec, source)
    return _loaded[name][1]


def _is_own(name: str, spec: ModuleSpec) -> bool:
    top, origin = name.partition(".")[0], spec.origin
    if top in _NOT_OWN or top.startswith(PREFIX) or origin is None or not origin.endswith(".py"):
        return False
    return not origin.startswith(_FOREIGN) and not _INSTALLED.intersection(Path(origin).parts)


def _source_of(module: Any) -> str | None:
    """Return the digest of the source that the file of a module has now."""
    try:
        return hashlib.sha256(Path(module.__spec__.origin).read_bytes()).hexdigest()
    except OSError:
        return None
