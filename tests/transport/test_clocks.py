"""Tests of the clock of leases."""

from __future__ import annotations

import time

from zmqdata.transport.clocks import boottime


def test_the_clock_goes_on() -> None:
    """The clock never goes back, and runs on while the machine is suspended."""
    before = boottime()
    assert boottime() >= before
    if hasattr(time, "CLOCK_BOOTTIME"):
        running = time.monotonic()
        assert boottime() >= running
