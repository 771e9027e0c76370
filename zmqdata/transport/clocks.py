"""The clock by which leases are counted: it goes on while the machine sleeps. Nothing
else about time lives here.
"""

from __future__ import annotations

import time

# Linux tells sleep by this clock; macOS counts it in CLOCK_MONOTONIC, which is not the
# one of time.monotonic() there.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def boottime() -> float:
    """Seconds of a clock that never goes back and counts the time for which the machine
    was asleep.

    Example:
        >>> before = boottime()
        >>> boottime() >= before
        True
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
