"""Texts for people: those of peers without control characters, which could control a
terminal, and rates, shares and sizes, with the unit that suits them.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return a text that may come from a peer as a single line that is safe to log or
    print.

    >>> printable("job one\\n2026-01-01 ERROR all is lost")
    'job one?2026-01-01 ERROR all is lost'
    """
    return "".join(one if one.isprintable() else "?" for one in text)


def shown_rate(per_second: float) -> str:
    """Return a rate with at least three significant digits, and without an exponent. It
    is never shown as zero unless it is zero.

    >>> [shown_rate(rate) for rate in (0.0, 1e-5, 0.0123, 12.34, 12345.6)]
    ['0', '< 0.001', '0.0123', '12.3', '12,346']
    """
    if 0 < per_second < 0.001:
        return "< 0.001"
    return f"{per_second:,.0f}" if per_second >= 100 else f"{per_second:.3g}"


def shown_share(share: float) -> str:
    """Return a share of the time in percent.

    >>> shown_share(0.754), shown_share(0.002), shown_share(0.0)
    ('75 %', '< 1 %', '0 %')
    """
    return "< 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


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
