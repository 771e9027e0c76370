"""Looking at objects of the user, which may answer with any error."""

from __future__ import annotations

from typing import Any, TypeGuard, TypeVar

Kind = TypeVar("Kind")


def peek(thing: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of any object, or the default if the object has none or
    raises any error.

    A configuration whose ``__getattr__`` looks into a dictionary raises ``KeyError``
    for a missing attribute, for example.

    >>> class Options(dict):
    ...     __getattr__ = dict.__getitem__
    >>> peek(Options(size=5), "size"), peek(Options(), "node")
    (5, None)
    """
    try:
        return getattr(thing, name, default)
    except Exception:
        return default


def has(thing: Any, name: str) -> bool:
    """Return True if an object has an attribute and gives it without an error."""
    return peek(thing, name, _NOTHING) is not _NOTHING


def shown(thing: Any) -> str:
    """Return the representation of an object, or its class if it has none.

    >>> class Broken:
    ...     def __repr__(self):
    ...         raise ValueError
    >>> shown("a"), shown(Broken())
    ("'a'", '<Broken>')
    """
    try:
        return repr(thing)
    except Exception:
        return f"<{type(thing).__name__}>"


def is_a(thing: Any, kind: type[Kind] | tuple[type[Kind], ...]) -> TypeGuard[Kind]:
    """Return True if the object was made as an instance of this class, whatever its
    ``__class__`` says.
    """
    return issubclass(type(thing), kind)


_NOTHING = object()
