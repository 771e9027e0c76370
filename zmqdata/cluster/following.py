"""The number of workers that a program is to keep, as the dispatcher wants it."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import platform
import time
from dataclasses import dataclass

from zmqdata.client.admin import ask_scale
from zmqdata.config.checks import check_int, check_wait
from zmqdata.config.endpoints import Service
from zmqdata.errors import DataServiceError
from zmqdata.messages import MOST_INTERVAL

log = logging.getLogger(__name__)

MOST_WORKERS = 1000
"""Maximum number of workers of a program; a larger number is a mistake that would fail
slowly.
"""
LEAST_INTERVAL = 0.1
"""Least number of seconds between two questions to the dispatcher."""
IDLE_INTERVAL = 1.0
"""Longest number of seconds between two questions while no worker is wanted."""
ASK_PATIENCE, GOODBYE_PATIENCE = 5.0, 1.0
"""Seconds to wait for the number that the dispatcher wants, and for its answer that the
place is free.
"""
_numbers = itertools.count()


@dataclass(frozen=True)
class Bounds:
    """Bounds within which a number of workers follows the dispatcher.

    Raises:
        TypeError: a field has another type.
        ValueError: a bound is no number of workers, the minimum exceeds the maximum, or
            the interval is out of range.

    Example:
        >>> [Bounds(0, 3).clamped(workers, 2) for workers in (0, 5, 9)]
        [0, 3, 3]
    """

    minimum: int
    """Least number of workers."""
    maximum: int
    """Maximum number of workers."""
    interval: float = 5.0
    """Seconds between two questions to the dispatcher; a second at most while no worker
    is wanted.
    """

    def __post_init__(self) -> None:
        for name in ("minimum", "maximum"):
            check_int(name, getattr(self, name), least=0, most=MOST_WORKERS)
        if self.minimum > self.maximum:
            raise ValueError(
                f"`minimum`={self.minimum} (`--min`) exceeds `maximum`={self.maximum} (`--max`). "
                "Swap them, or raise the maximum"
            )
        check_wait("interval", self.interval, forever=False, most=MOST_INTERVAL)
        if self.interval < LEAST_INTERVAL:
            raise ValueError(
                f"`interval` must be at least {LEAST_INTERVAL:g} seconds, got {self.interval!r}. "
                "The dispatcher decides once a second"
            )

    def clamped(self, workers: int, processes: int) -> int:
        """Return the number of workers with ``processes`` processes each that have
        ``workers`` processes together.
        """
        return min(self.maximum, max(self.minimum, math.ceil(workers / processes)))


class Follower:
    """Asks a dispatcher how many workers a program is to keep. While it does, the
    dispatcher admits no other program.

    Args:
        service: address of the dispatcher.
        program: what the program is called, for the text by which another one is
            refused.
        processes: number of processes of each worker; None for the median of the
            workers with a name.

    Attributes:
        asks: True from the first question until ``close``.
    """

    def __init__(self, service: Service, program: str, processes: int | None) -> None:
        self.name = f"{program} {next(_numbers)} of process {os.getpid()} on {platform.node()}"
        self._service, self._processes = service, processes
        self.asks = False
        self._due = -math.inf
        self._last: int | None = None

    def is_due(self, now: float) -> bool:
        """Return True if it is time for the next question."""
        return now >= self._due

    def ask(self, bounds: Bounds) -> int:
        """Return the number of workers to keep.

        Args:
            bounds: bounds of the number, and the interval of the questions.

        Raises:
            FailedPreconditionError: another program holds the place. The text names it.
            UnavailableError: the dispatcher does not answer.
            OSError: the file of the dispatcher cannot be read.
        """
        self.asks, interval = True, bounds.interval
        asked_at = time.monotonic()
        self._due = asked_at + interval
        decision = ask_scale(self._service, self.name, interval, min(ASK_PATIENCE, interval))
        number = bounds.clamped(decision.workers, self._processes or decision.processes)
        if not number:  # a loop that begins waits for its first worker
            self._due = asked_at + min(interval, IDLE_INTERVAL)
        if number != self._last:
            log.info("%d workers from now on. %s", number, decision.reason)
            self._last = number
        return number

    def close(self) -> None:
        """Free the place for another program."""
        self.asks = False
        with contextlib.suppress(OSError, DataServiceError):  # it is free soon in any case
            ask_scale(self._service, self.name, 0, GOODBYE_PATIENCE)
