"""The task log: collects the output and log records of the functions of tasks in a
worker process.

The process's own output stays as it is: these streams pass on everything, and note what
threads of a task write. ``zmqdata.machine.threads.work_of_thread`` says for which task
a thread works. What the worker itself writes belongs to no task.

A function that prints waits for no client. ``core.worker.tasklog`` limits the lines,
and further lines are counted.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from zmqdata.core.worker.events import LinesCollected, TaskKey
from zmqdata.core.worker.tasklog import MOST_CHARACTERS_OF_LINE, LineLimit
from zmqdata.machine.threads import this_thread, work_of_thread
from zmqdata.messages import TaskLine

COUNT_EVERY = 5.0
"""Shortest time between two reports of lines that were too many, in seconds."""
MOST_BEGINNINGS = 64
"""Number of lines of a task whose ends have not come, one for each thread and stream.
"""
_TEXT = logging.Formatter("%(message)s")
_NOTED = "_zmqdata_noted"
"""Attribute of the records that were noted."""
_OF_PIPELINES = ("zmqdata", "zmqdata.iterators", "zmqdata.operations")
"""Loggers of this package whose records are about a pipeline. All other loggers of this
package belong to the worker.
"""


class LineCollector:
    """Collects the lines of all tasks of a worker process, in bounded memory.

    The lock may be taken twice by a thread, because an object of the user that is
    collected anywhere may print.

    Args:
        wake: called, from any thread, when ``take`` would return something again.
        limit: says which lines are sent.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        limit: LineLimit | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wake = wake
        self._limit = LineLimit() if limit is None else limit
        self._clock = clock
        self._lock = threading.RLock()
        self._waiting: deque[tuple[TaskKey, TaskLine]] = deque()
        self._suppressed: Counter[TaskKey] = Counter()
        self._ended: set[TaskKey] = set()
        self._counted = -COUNT_EVERY

    def add(self, key: TaskKey, line: TaskLine) -> None:
        """Add a line of a task, or count it if there are too many."""
        with self._lock:
            if not self._limit.admits(self._clock()):
                self._suppressed[key] += 1
                return
            self._waiting.append((key, line))
            is_first = len(self._waiting) == 1
        if is_first:
            self._wake()

    def end(self, key: TaskKey) -> None:
        """Let the suppressed lines of a task that ends be told at once."""
        with self._lock:
            if not self._suppressed[key]:
                return
            self._ended.add(key)
        self._wake()

    def take(self) -> list[LinesCollected]:
        """Return what was added since the last call."""
        with self._lock:
            now, of_task = self._clock(), dict[TaskKey, list[TaskLine]]()
            for key, line in self._waiting:
                of_task.setdefault(key, []).append(line)
            self._waiting.clear()
            due = set(self._ended)
            if self._suppressed and now - self._counted >= COUNT_EVERY:
                self._counted = now
                due |= self._suppressed.keys()
            self._ended.clear()
            return [
                LinesCollected(
                    key.task,
                    key.attempt,
                    tuple(of_task.get(key, ())),
                    self._suppressed.pop(key, 0) if key in due else 0,
                )
                for key in [*of_task, *(due - of_task.keys())]
            ]


class TaskTap:
    """Output of the functions of one task.

    Args:
        key: the task.
        collector: takes each line.
    """

    def __init__(self, key: TaskKey, collector: LineCollector) -> None:
        self._key = key
        self._collector = collector
        self._lock = threading.RLock()
        self._begun: dict[tuple[int, str], str] = {}

    @contextlib.contextmanager
    def collected(self) -> Iterator[None]:
        """Collect what this thread writes, and the threads that it starts for the
        pipeline.
        """
        token = work_of_thread.set(self)
        try:
            yield
        finally:
            work_of_thread.reset(token)

    def printed(self, text: str, stream: str) -> None:
        """Note a text that was printed, of which whole lines become lines for clients.

        Of a line that is written over with carriage returns, the last state counts.
        """
        place = (this_thread(), stream)
        with self._lock:
            *lines, rest = (self._begun.pop(place, "") + text).split("\n")
            rest = rest[rest.rstrip("\r").rfind("\r") + 1 :][: MOST_CHARACTERS_OF_LINE + 1]
            if rest:
                self._begun[place] = rest
            if len(self._begun) > MOST_BEGINNINGS:
                lines.append(self._begun.pop(next(iter(self._begun))))
        self._add(lines)

    def logged(self, record: logging.LogRecord) -> None:
        """Note a log record, once: several handlers may see it."""
        if _is_of_worker(record.name) or record.__dict__.get(_NOTED, False):
            return
        record.__dict__[_NOTED] = True
        text = _shortened(_TEXT.format(record))
        self._collector.add(self._key, TaskLine(text, record.levelno, record.name))

    def end(self) -> None:
        """Note the beginnings of lines whose ends have not come."""
        with self._lock:
            lines = [*self._begun.values()]
            self._begun.clear()
        self._add(lines)
        self._collector.end(self._key)

    def _add(self, lines: Iterable[str]) -> None:
        for line in lines:
            last = line.rstrip("\r").rpartition("\r")[2]
            if last.strip():
                self._collector.add(self._key, TaskLine(_shortened(last)))


def _shortened(text: str) -> str:
    most = MOST_CHARACTERS_OF_LINE
    text = text if len(text) <= most else f"{text[: most - 4]} ..."
    # Half of a surrogate pair cannot be sent.
    return text.encode(errors="replace").decode()


def _present_task() -> TaskTap | None:
    work = work_of_thread.get()
    return work if isinstance(work, TaskTap) and _Taps.are_on else None


class _Taps:
    are_on = True
    """False in a child of a fork, which has no client."""


def _turn_off() -> None:
    _Taps.are_on = False


os.register_at_fork(after_in_child=_turn_off)


class TappedStream(io.TextIOBase):
    """A text stream that passes everything on to another, and notes what tasks write.

    Args:
        stream: the other stream.
        name: name of the stream.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream = stream
        self._name = name

    def write(self, text: str, /) -> int:
        """Write a text, and note it if a task writes it."""
        count = self._stream.write(text)
        output = _present_task()
        if output is not None:
            caller = sys._getframe(1)
            if caller.f_code is logging.StreamHandler.emit.__code__:
                # Not printed, but logged: by a handler that a function has added.
                output.logged(caller.f_locals["record"])
            else:
                output.printed(text, self._name)
        return count

    def flush(self) -> None:
        """Flush the other stream."""
        self._stream.flush()

    def close(self) -> None:
        """Do nothing: the other stream belongs to the process."""

    def fileno(self) -> int:
        """Return the file descriptor of the other stream."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Return True if the other stream is a terminal."""
        return self._stream.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # read-only, as in TextIOWrapper
        """Encoding of the other stream."""
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # read-only, as in TextIOWrapper
        """Error handling of the other stream."""
        return self._stream.errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class RecordTap(logging.Handler):
    """Notes the log records of tasks."""

    def emit(self, record: logging.LogRecord) -> None:
        """Note a record if a task logs it."""
        output = _present_task()
        if output is None:
            return
        try:
            output.logged(record)
        except Exception:
            # As for every handler: a record that cannot be formatted fails no task.
            self.handleError(record)


def _is_of_worker(logger: str) -> bool:
    is_ours = logger.partition(".")[0] == "zmqdata"
    return is_ours and ".".join(logger.split(".")[:2]) not in _OF_PIPELINES


def tap_output() -> None:
    """Note what tasks print and log in this process from now on."""
    if sys.stdout is not None:
        sys.stdout = TappedStream(sys.stdout, "stdout")
    if sys.stderr is not None:
        sys.stderr = TappedStream(sys.stderr, "stderr")
    logging.getLogger().addHandler(RecordTap())
