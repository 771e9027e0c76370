"""Texts of others as one line that can be shown: a terminal obeys what it is told by
control characters.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """A text in which a peer's words may be, as one line of a log or a terminal.

    >>> printable("job one\\n2026-01-01 ERROR all is lost")
    'job one?2026-01-01 ERROR all is lost'
    """
    return "".join(one if one.isprintable() else "?" for one in text)
