"""The ``repr`` of messages, events and commands: without secrets, and without the
content of pipelines and elements.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec import Struct

_SECRETS = {"ticket", "secret", "process", "token"}
_CONTENTS = {"frames", "content"}
_NAMES = {"client", "clients", "former", "link", "replaces"}
"""Ids of clients, and ids of links, which begin with them."""


class Discreet(Struct, frozen=True):
    """A struct whose ``repr`` is safe to print in logs and errors.

    Example:
        >>> class Greeting(Discreet, frozen=True):
        ...     client: str
        ...     ticket: int
        ...     content: bytes
        >>> Greeting("secret", 17, b"abc")
        Greeting(client=<0ffde1ae45a58146>, ticket=<hidden>, content=<3 bytes>)
    """

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={_shown(name, getattr(self, name))}" for name in self.__struct_fields__
        )
        return f"{type(self).__name__}({shown})"


def _shown(name: str, value: Any) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        return "<hidden>" if name in _SECRETS else f"<{len(value)} bytes>"
    if name in _SECRETS or (name in _CONTENTS and value is not None):
        return "<hidden>"
    if isinstance(value, tuple):
        return f"({', '.join(_shown(name, one) for one in value)})"
    return f"<{shown_name(value)}>" if name in _NAMES and isinstance(value, str) else repr(value)


def shown_name(client: str) -> str:
    """Return the form of a client's id that is safe to show: a process that knows the
    id can act as the client.

    >>> shown_name("secret")
    '0ffde1ae45a58146'
    """
    return hashlib.blake2b(client.encode(errors="replace"), digest_size=8).hexdigest()
