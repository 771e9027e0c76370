"""The event loop of a shell: a single thread that owns the sockets, runs calls from
other threads, and ticks.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

import zmq

from zmqdata.machine.threads import Background

log = logging.getLogger(__name__)

# Plain numbers: each access to the enumeration costs a microsecond.
READABLE, WRITABLE = int(zmq.POLLIN), int(zmq.POLLOUT)
FAIR_SHARE = 64
"""Limit of calls to a ready socket's callback before the other sockets get their
turn.
"""
TURN = 0.01
"""Seconds after which a ready socket yields to the others, too: handling some messages
takes long.
"""
CROWD = 1_000
"""Messages a second from which on a loop lets messages gather: waking up costs as much
as handling a message.
"""


class Alarm:
    """Wakes a thread that polls its descriptor. It takes a single descriptor where the
    system has eventfd.
    """

    def __init__(self) -> None:
        if hasattr(os, "eventfd"):
            self._read = self._write = open(  # noqa: SIM115 - closed by close()
                os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+b", buffering=0
            )
        else:
            ends = os.pipe()
            for end in ends:
                os.set_blocking(end, False)
            self._read = open(ends[0], "rb", buffering=0)  # noqa: SIM115
            self._write = open(ends[1], "wb", buffering=0)  # noqa: SIM115
        self.descriptor = self._read.fileno()

    def ring(self) -> None:
        """Make the descriptor readable, from any thread; no effect after the end.

        The collector may call it where the user's code has used up the stack. The loop
        then notices at its next tick.
        """
        with contextlib.suppress(OSError, ValueError, RecursionError):
            self._write.write(_RING)

    def hush(self) -> None:
        """Make the descriptor unreadable until the next ring."""
        self._read.read(4096)

    def close(self) -> None:
        """Close the descriptor."""
        self._read.close()
        self._write.close()


_RING = (1).to_bytes(8, sys.byteorder)
"""An eventfd adds up what is written."""


class Loop:
    """Polls sockets and runs callbacks, all in a single thread.

    Args:
        name: name of the thread, for logs and debuggers.
        tick: called about every ``period`` seconds.
        period: seconds between two ticks.
        ended: called at the end, to close sockets.
        fault: called with an exception that a callback raised, before it is logged.
        gather: seconds for which messages gather under high load; 0 turns this off.
    """

    def __init__(
        self,
        name: str,
        tick: Callable[[], None],
        period: float = 0.25,
        ended: Callable[[], None] | None = None,
        fault: Callable[[Exception], None] | None = None,
        gather: float = 0.0,
    ) -> None:
        self._tick = tick
        self._fault = fault
        self._period = period
        self._ended = ended
        self._gather = gather
        self._heard = 0
        self._poller = zmq.Poller()
        self._readers: dict[Any, Callable[[], bool]] = {}
        self._resting: dict[Any, Callable[[], bool]] = {}
        self._writers: dict[Any, Callable[[], None]] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._alarm = Alarm()
        self._woken = False
        self._stopping = False
        self._poller.register(self._alarm.descriptor, READABLE)
        self.thread = Background(target=self._run, name=name, daemon=True)

    # --- from any thread

    def start(self) -> None:
        self.thread.start()

    def discard(self) -> None:
        """Close a loop that does not run, if it was never started."""
        self._alarm.close()

    def post(self, call: Callable[[], None]) -> None:
        """Schedule ``call`` in the loop's thread. It is dropped if the loop has
        ended.
        """
        self._calls.append(call)
        if not self._woken:
            self._woken = True
            self._alarm.ring()

    def stop(self) -> None:
        """End the loop after the calls posted so far."""
        self.post(self._set_stopping)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the loop has ended; return False if it still runs after
        ``timeout`` seconds.
        """
        if self.thread.ident is not None and threading.current_thread() is not self.thread:
            self.thread.join(timeout)
        return not self.thread.is_alive()

    # --- from the loop's thread (or before it starts)

    def read(self, socket: zmq.Socket[bytes], callback: Callable[[], bool]) -> None:
        """Call back while ``socket`` is readable; the callback returns False if it
        found nothing.
        """
        self._readers[socket] = callback
        self._register(socket)

    def rest(self, socket: zmq.Socket[bytes], seconds: float) -> None:
        """Stop reading a socket for some seconds. Its queues fill meanwhile, so its
        peers wait, too.
        """
        callback = self._readers.pop(socket, None)
        if callback is not None:
            self._resting[socket] = callback
            self._register(socket)
            self.later(seconds, lambda: self._end_rest(socket))

    def _end_rest(self, socket: zmq.Socket[bytes]) -> None:
        callback = self._resting.pop(socket, None)
        if callback is not None:
            self.read(socket, callback)

    def write(self, socket: zmq.Socket[bytes], callback: Callable[[], None] | None) -> None:
        """Call back while ``socket`` is writable; None removes the callback."""
        if callback is None:
            self._writers.pop(socket, None)
        else:
            self._writers[socket] = callback
        self._register(socket)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Schedule a call after ``seconds``, up to a millisecond late. It is dropped if
        the loop has ended.
        """
        heappush(self._later, (time.monotonic() + seconds, next(self._numbers), call))

    def forget(self, socket: zmq.Socket[bytes]) -> None:
        """Stop polling a socket; call this before closing it."""
        self._readers.pop(socket, None)
        self._resting.pop(socket, None)
        self._writers.pop(socket, None)
        self._register(socket)

    def _register(self, socket: zmq.Socket[bytes]) -> None:
        flags = (READABLE if socket in self._readers else 0) | (
            WRITABLE if socket in self._writers else 0
        )
        if flags or socket in self._poller:
            self._poller.register(socket, flags)

    def _set_stopping(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        due, crowded, left = 0.0, False, False
        while not self._stopping:
            if crowded and not left and not self._calls:
                time.sleep(self._gather)
            following = min(due, self._later[0][0]) if self._later else due
            wait = 0.0 if self._calls else max(0.0, following - time.monotonic())
            # Rounded up: waking a moment too early would spin until the call is due.
            left = False
            for socket, flags in self._poller.poll(math.ceil(wait * 1000)):
                left |= self._serve(socket, flags)
            self._woken = False
            for _ in range(len(self._calls)):
                self._guard(self._calls.popleft())
            while self._later and time.monotonic() >= self._later[0][0]:
                self._guard(heappop(self._later)[2])
            if time.monotonic() >= due:
                due = time.monotonic() + self._period
                crowded, self._heard = self._gather > 0 and self._heard >= CROWD * self._period, 0
                self._guard(self._tick)
        if self._ended is not None:
            self._guard(self._ended)
        self._alarm.close()

    def _serve(self, socket: Any, flags: int) -> bool:
        """Run the callbacks of a socket; return True if more may be readable."""
        left = False
        if socket == self._alarm.descriptor:
            self._alarm.hush()
            return False
        if flags & READABLE and socket in self._readers:
            callback, until = self._readers[socket], time.monotonic() + TURN
            for _ in range(FAIR_SHARE):
                left = bool(self._guard(callback)) and socket in self._readers
                self._heard += left
                if not left or time.monotonic() >= until:
                    break
        if flags & WRITABLE and socket in self._writers:
            self._guard(self._writers[socket])
        return left

    def _guard(self, call: Callable[[], Any]) -> Any:
        """Run a callback; log what it raises, so that a fault in an event does not end
        the service of all peers.
        """
        try:
            return call()
        except Exception as error:
            if self._fault is not None:
                self._fault(error)
            log.exception(
                "%s: unexpected error in a callback; the loop continues", self.thread.name
            )
            return False
