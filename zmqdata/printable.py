"""Texts for people: those of peers without control characters, which could control a
terminal, and sizes with the unit that suits them.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text that may come from a peer as a single line that is safe to log or
    print.

    >>> printable("job one\\n2026-01-01 ERROR all is lost")
    'job one?2026-01-01 ERROR all is lost'
    """
    return "".join(one if one.isprintable() else "?" for one in text)


def shown_size(count: float) -> str:
    """Return a number of bytes with three significant digits, and its unit.

    >>> shown_size(512), shown_size(12_600_000), shown_size(1 << 30)
    ('512 bytes', '12.6 MB', '1.07 GB')
    """
    if count < 1000:
        return f"{count:.0f} bytes"
    for unit, size in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if count < 999.5 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e9:,.0f} GB"


def shown_bytes(count: int) -> str:
    """Return a number of bytes of memory with three significant digits, in the units of
    its limits, which are powers of 1024.

    Example:
        >>> shown_bytes(2 << 30), shown_bytes(1_500 << 20)
        ('2 GiB', '1.46 GiB')
    """
    size, unit = (count / (1 << 30), "GiB") if count >= 1 << 30 else (count / (1 << 20), "MiB")
    return f"{size:.3g} {unit}"
