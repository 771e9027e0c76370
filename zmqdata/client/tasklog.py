"""The task log: shows the user what functions of pipelines print and log on workers.

A log record goes to the logger ``zmqdata.tasks`` with its level. A printed line goes
there with the level INFO if that logger, or one above it, lets INFO pass to a handler.
Otherwise it goes to standard error, as it would if the function ran here, unless the
logger has a level of its own.

A thread of its own writes, because a stream or a handler may be slow, and reading must
not wait for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Iterable

from zmqdata.client import lifetime
from zmqdata.core.client.events import ShowTaskLog
from zmqdata.messages import TaskLine
from zmqdata.printable import printable

LOGGER = "zmqdata.tasks"
"""Logger of what functions print and log on workers."""
MOST_WAITING = 2000
"""Number of lines that wait to be written. Further lines are counted."""
MOST_CHARACTERS_SHOWN = 8192
"""Number of characters of a line that are shown. A worker sends half as many."""
FLUSH_SECONDS = 0.5
"""Seconds for which the end of an iteration waits until the lines are written."""


class TaskLog:
    """Writes the lines of tasks in a thread, which ends when nothing is left to write.

    The lock may be taken twice by a thread, because the garbage collector may close an
    iterator anywhere.
    """

    def __init__(self) -> None:
        self.forget_all()

    def forget_all(self) -> None:
        """Forget everything, as in a child of a fork, which has no thread."""
        self._waiting: deque[tuple[str, TaskLine]] = deque()
        self._dropped = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stuck = False  # True from a write that took too long to its end

    def show(self, command: ShowTaskLog) -> None:
        """Show lines, without waiting for that."""
        where = f"[worker {command.worker.rpartition('://')[2]}, task {command.logged.task}]"
        lines = [(where, line) for line in command.logged.lines]
        if command.logged.suppressed:
            text = (
                f"{command.logged.suppressed} more lines are not shown here, because the "
                "functions of this worker print too much. The worker's own output has them all"
            )
            lines.append((where, TaskLine(text)))
        with self._changed:
            room = MOST_WAITING - len(self._waiting)
            self._waiting += lines[:room]
            self._dropped += len(lines[room:])
            if self._thread is None and self._waiting:
                # Not a thread that works for what this thread works for: what it writes
                # in a worker would be sent on as a line of a task.
                self._thread = threading.Thread(
                    target=self._run, name="zmqdata-tasklog", daemon=True
                )
                self._thread.start()

    def flush(self) -> None:
        """Wait until all lines are written, for ``FLUSH_SECONDS`` at most."""
        with self._changed:
            if self._is_stuck or self._thread in (None, threading.current_thread()):
                return
            self._is_stuck = not self._changed.wait_for(lambda: self._thread is None, FLUSH_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_stuck = False
                lines, dropped = [*self._waiting], self._dropped
                self._waiting.clear()
                self._dropped = 0
                if not lines:
                    self._thread = None
                    self._changed.notify_all()
                    return
            # A handler or a stream of the user may do anything.
            with contextlib.suppress(Exception):
                _write(lines, dropped)


def _write(lines: Iterable[tuple[str, TaskLine]], dropped: int) -> None:
    log = logging.getLogger(LOGGER)
    is_logged = log.isEnabledFor(logging.INFO) and log.hasHandlers()
    is_printed = log.isEnabledFor(logging.INFO) or log.level == logging.NOTSET
    for where, line in lines:
        text = _shown(line.text)
        if line.level:
            log.log(line.level, "%s %s: %s", where, printable(line.logger), text)
        elif is_logged:
            log.info("%s %s", where, text)
        elif is_printed and sys.stderr is not None:
            sys.stderr.write(f"{where} {text}\n")
    if dropped:
        log.warning("%d lines of tasks were lost: standard error, or a handler, is slow", dropped)
    if sys.stderr is not None:
        sys.stderr.flush()


def _shown(text: str) -> str:
    """Return a text without what could control a terminal, except for line breaks."""
    return "\n    ".join(map(printable, text[:MOST_CHARACTERS_SHOWN].splitlines()))


task_log = TaskLog()
"""The log of this process."""

os.register_at_fork(after_in_child=task_log.forget_all)
lifetime.after_reading.append(task_log.flush)
lifetime.after_goodbyes.append(task_log.flush)
