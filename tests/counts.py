"""Numbers of seeds and of random examples, which ``make test-full`` has more of.

``FULL.md`` lists the tests that use them.
"""

from __future__ import annotations

_is_complete = False
"""True in a run of ``make test-full``."""


def choose(is_complete: bool) -> None:
    """Set, before any test is collected, whether this run is one of ``make
    test-full``.
    """
    global _is_complete
    _is_complete = is_complete


def how_many(core: int, complete: int) -> int:
    """Return the number of seeds or random examples of a test: ``core`` in ``make
    test`` and ``complete`` in ``make test-full``.
    """
    return complete if _is_complete else core
