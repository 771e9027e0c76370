"""The output of a cluster's servers, passed on to the standard error of this process.
No server waits for that, because servers write to files, which this module reads.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO

from zmqdata.client import lifetime
from zmqdata.cluster.lines import ShownLines

EVERY = 0.1
"""Seconds between two looks at the files."""
LAST_SECONDS = 1.0
"""Seconds in which the last output of a server is to be written. A stream that nobody
reads must not keep a cluster from closing.
"""
FLUSH_SECONDS = 0.5
"""Seconds for which the end of an iteration waits until what its workers printed is
written.
"""
MOST_AT_ONCE = 65_536
"""Most bytes of a server that are passed on at one look. A pipeline that prints more
must not take the time of the training loop.
"""


@dataclass(eq=False)
class _Source:
    file: IO[bytes]
    """The file that a server writes to."""
    name: str
    """Name before each line."""
    place: int = 0
    """Number of bytes that were looked at."""
    lines: ShownLines = field(default_factory=ShownLines)
    """The lines in what was looked at."""


class OutputRelay:
    """Reads the output of servers in a thread of its own, and passes on the lines that
    concern users (``ShownLines``).

    Only that thread writes, and it holds no lock meanwhile: perhaps nobody reads what
    it writes, and a stream of the user may do anything. A thread may take the lock
    twice, because the garbage collector may close a cluster anywhere.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Forget all files, as in a child of a fork, which has none of the threads."""
        self._sources: dict[IO[bytes], _Source] = {}
        self._lines: list[str] = []  # not yet written
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stuck = False  # True from a write that took too long to its end

    def add(self, file: IO[bytes], name: str) -> None:
        """Begin to pass on what is written to a file, with a name before each line."""
        with self._changed:
            self._sources[file] = _Source(file, name)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="zmqdata-output", daemon=True
                )
                self._thread.start()

    def end(self, file: IO[bytes]) -> None:
        """Pass on the rest of a file, and forget it. A second call has no effect.

        Waits until the rest is written, for ``LAST_SECONDS`` at most.
        """
        with self._changed:
            source = self._sources.pop(file, None)
            if source is not None:
                self._look(source)
                self._add(source, source.lines.end())
                self._await_written(LAST_SECONDS)

    def flush(self) -> None:
        """Pass on everything that was written to any file until now.

        Waits until that is written, for ``FLUSH_SECONDS`` at most. It costs a look at
        the size of each file if nothing is new.
        """
        with self._changed:
            for source in self._sources.values():
                self._look(source)
                self._add(source, source.lines.flush())
            if self._lines:
                self._await_written(FLUSH_SECONDS)

    def _await_written(self, seconds: float) -> None:
        """Let the thread write, and wait for it."""
        self._changed.notify_all()
        thread = self._thread
        if thread is threading.current_thread() or self._is_stuck:
            return
        self._is_stuck = not self._changed.wait_for(
            lambda: self._thread is not thread if not self._sources else not self._lines, seconds
        )

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._sources and not self._lines:
                    self._changed.wait(EVERY)
                for source in [*self._sources.values()]:
                    self._look(source)
                lines = [*self._lines]
                if not (lines or self._sources):
                    self._thread = None
                    self._changed.notify_all()
                    return
            self._write(lines)
            with self._changed:
                del self._lines[: len(lines)]
                self._is_stuck = False
                self._changed.notify_all()

    def _write(self, lines: list[str]) -> None:
        if lines and sys.stderr is not None:
            # The stream may be closed, broken or the user's own object. That must keep
            # neither the relay from going on nor a cluster from closing.
            with contextlib.suppress(Exception):
                sys.stderr.write("".join(lines))
                sys.stderr.flush()

    def _look(self, source: _Source) -> None:
        self._add(source, self._shown(source))

    def _add(self, source: _Source, shown: Iterable[str]) -> None:
        self._lines += [f"[{source.name}] {line}\n" for line in shown]

    def _shown(self, source: _Source) -> Iterator[str]:
        """Yield the lines to show of what was written since the last look. Of a flood,
        that is the beginning and the end.
        """
        number, now = source.file.fileno(), time.monotonic()
        begin, stop = source.place, os.fstat(number).st_size
        source.place = stop
        if stop - begin <= MOST_AT_ONCE:
            yield from source.lines.take(os.pread(number, stop - begin, begin), now)
            return
        half = MOST_AT_ONCE // 2
        yield from source.lines.take(os.pread(number, half, begin), now)
        yield from source.lines.end()
        tail = os.pread(number, half, stop - half)
        # The tail begins with the end of a line, unless it is within a single long one.
        cut = tail.find(b"\n", 0, -1) + 1
        yield f"({stop - begin - half - len(tail) + cut:,} bytes of output are left out here)"
        yield from source.lines.take(tail[cut:], now)


relay = OutputRelay()
"""The relay of this process."""

os.register_at_fork(after_in_child=relay.forget_all)
lifetime.after_reading.append(relay.flush)
