"""The clock for leases, which counts the time for which the machine sleeps. Nothing
else about time lives here.
"""

from __future__ import annotations

import time

# On Linux, only this clock counts sleep. On macOS, CLOCK_MONOTONIC does, which is not
# the clock of time.monotonic() there.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def boottime() -> float:
    """Return the seconds of a monotonic clock that counts the time for which the
    machine was asleep.

    Example:
        >>> before = boottime()
        >>> boottime() >= before
        True
    """
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
