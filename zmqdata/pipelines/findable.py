"""Tests whether another process can import an object by its name."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Container
from typing import Any

from zmqdata.failures.names import PREFIX
from zmqdata.peeking import is_a, peek

SCRIPT_MODULES = frozenset({"__main__", "__mp_main__"})
"""Modules whose contents differ between processes."""


def is_importable(value: Any, shipped: Container[str] = ()) -> bool:
    """Return True if a worker with the same modules finds this same object under its
    name.

    Args:
        value: a function or class.
        shipped: top-level modules that are shipped.
    """
    module, name = peek(value, "__module__"), peek(value, "__qualname__")
    if not (is_a(module, str) and is_a(name, str)):
        return False
    if module in SCRIPT_MODULES or module not in sys.modules:
        return False
    if not can_be_found(module, shipped):
        return False
    found: object = sys.modules[module]
    for part in name.split("."):
        found = peek(found, part)
    return found is value


def can_be_found(module: str, shipped: Container[str] = ()) -> bool:
    """Return True if another process with the same ``sys.path`` can import a module.
    False for a module that a program loaded by hand or made.

    Args:
        module: name of an imported module.
        shipped: top-level modules that are shipped.

    >>> can_be_found("json.decoder"), can_be_found("no_such_module")
    (True, False)
    """
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in _found or top in shipped or top.startswith(PREFIX):
        return True
    for finder in sys.meta_path:
        # A finder of another library may want arguments of its own.
        with contextlib.suppress(Exception):
            if finder.find_spec(top, None) is not None:
                _found.add(top)
                return True
    return False


_found: set[str] = set()
"""Modules that were found."""
