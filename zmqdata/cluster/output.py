"""The output of a cluster's servers, passed on to the standard error of this process.
No server waits for that, because servers write to files, which this module reads.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import threading
from dataclasses import dataclass
from typing import IO

EVERY = 0.1
"""Seconds between two looks at the files."""
MOST_AT_ONCE = 65_536
"""Most bytes of a server that are passed on at one look. A pipeline that prints more
must not take the time of the training loop.
"""
RECORD = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ([A-Z]+) (?:\[\d+\] )?(\S+): ")
"""The beginning of a log record of a server, with level and name of the logger."""


@dataclass(eq=False)
class _Source:
    file: IO[bytes]
    """The file that a server writes to."""
    name: str
    """Name before each line."""
    place: int = 0
    """Number of bytes that were looked at."""
    rest: bytes = b""
    """Beginning of a line that has no end yet."""


class OutputRelay:
    """Reads the output of servers in a thread of its own, and passes on the lines that
    concern users.

    All that functions of a pipeline print is passed on. Log records are passed on if a
    logger of the same name in this process is enabled for their level: a warning by
    default, as everywhere in Python.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Forget all files, as in a child of a fork, which has none of the threads."""
        self._sources: dict[IO[bytes], _Source] = {}
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, file: IO[bytes], name: str) -> None:
        """Begin to pass on what is written to a file, with a name before each line."""
        with self._lock:
            self._sources[file] = _Source(file, name)
            if self._thread is None:
                self._wake.clear()
                self._thread = threading.Thread(
                    target=self._run, name="zmqdata-output", daemon=True
                )
                self._thread.start()

    def end(self, file: IO[bytes]) -> None:
        """Pass on the rest of a file, and forget it. A second call has no effect."""
        with self._lock:
            source = self._sources.pop(file, None)
            if source is not None:
                self._look(source, last=True)
            thread = None
            if not self._sources:
                thread, self._thread = self._thread, None
                self._wake.set()
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        thread = threading.current_thread()
        while not self._wake.wait(EVERY):
            with self._lock:
                if self._thread is not thread:
                    return
                for source in self._sources.values():
                    self._look(source)

    def _look(self, source: _Source, last: bool = False) -> None:
        size = os.fstat(source.file.fileno()).st_size
        fresh = size - source.place
        if fresh <= 0 and not (last and source.rest):
            return
        skipped = max(0, fresh - MOST_AT_ONCE)
        text = source.rest + os.pread(source.file.fileno(), min(fresh, MOST_AT_ONCE), source.place)
        source.place = size
        *lines, source.rest = text.split(b"\n")
        if (last or skipped) and source.rest:
            lines, source.rest = [*lines, source.rest], b""
        shown = [line for raw in lines if is_shown(line := raw.decode(errors="replace"))]
        if skipped:
            shown.append(f"({skipped:,} bytes of output are left out here)")
        if shown and sys.stderr is not None:
            # The stream may be closed, broken or the user's own object. That must keep
            # neither the relay from going on nor a cluster from closing.
            with contextlib.suppress(Exception):
                sys.stderr.write("".join(f"[{source.name}] {line}\n" for line in shown))
                sys.stderr.flush()


def is_shown(line: str) -> bool:
    """Return True if a line of a server's output concerns users.

    Example:
        >>> is_shown("2026-01-02 10:00:00,000 INFO [7] zmqdata.worker: registered")
        False
        >>> is_shown("2026-01-02 10:00:00,000 ERROR [7] decode: no such file")
        True
        >>> is_shown("a line that was printed")
        True
    """
    record = RECORD.match(line)
    if record is None:
        return True
    level = logging.getLevelName(record[1])
    return not isinstance(level, int) or logging.getLogger(record[2]).isEnabledFor(level)


relay = OutputRelay()
"""The relay of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=relay.forget_all)
