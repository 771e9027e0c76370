"""File names as texts that a message, a journal and a state can hold.

A file name is any sequence of bytes without NUL. Python decodes it, and represents each
byte that is not UTF-8 by a lone surrogate, which UTF-8 cannot encode. In the portable
form such a byte is a NUL and two hexadecimal digits. No name contains a NUL, so every
other name is the same in both forms.

Protocol 5.5.
"""

from __future__ import annotations

import re

from zmqdata.printable import printable

_UNDECODED = re.compile("[\udc80-\udcff]")
_ESCAPED = re.compile("\0([89a-f][0-9a-f])")
_SURROGATES = 0xDC00


def portable(name: str) -> str:
    """Return the portable form of a name that this machine's file system uses.

    >>> portable("a.txt"), portable("caf\\udce9.txt")
    ('a.txt', 'caf\\x00e9.txt')
    """
    return name if name.isascii() else _UNDECODED.sub(_escaped, name)


def native(name: str) -> str:
    """Return the name that this machine's file system uses for a portable form.

    >>> native("caf\\0e9.txt")
    'caf\\udce9.txt'
    """
    return _ESCAPED.sub(_undecoded, name) if "\0" in name else name


def legible(name: str) -> str:
    """Return a name, in either form, as an error or log shows it.

    >>> legible("caf\\0e9.txt"), legible("caf\\udce9.txt")
    ('caf?e9.txt', 'caf?e9.txt')
    """
    return printable(portable(name))


def _escaped(found: re.Match[str]) -> str:
    return f"\0{ord(found[0]) - _SURROGATES:02x}"


def _undecoded(found: re.Match[str]) -> str:
    return chr(_SURROGATES + int(found[1], 16))
