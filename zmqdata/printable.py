"""Sanitizing texts from peers for display: control characters in them could control a
terminal.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text that may come from a peer as a single line that is safe to log or
    print.

    >>> printable("job one\\n2026-01-01 ERROR all is lost")
    'job one?2026-01-01 ERROR all is lost'
    """
    return "".join(one if one.isprintable() else "?" for one in text)
