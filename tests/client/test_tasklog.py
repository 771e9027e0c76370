"""Test how lines of functions on workers are shown to the user."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from zmqdata.client import tasklog
from zmqdata.client.tasklog import LOGGER, MOST_WAITING, TaskLog
from zmqdata.core.client.events import ShowTaskLog
from zmqdata.messages import TaskLine, TaskLogged


class Records(logging.Handler):
    """A handler of the user."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append((record.levelname, record.getMessage()))


@contextlib.contextmanager
def bare() -> Iterator[logging.Logger]:
    """Take all handlers away, as in a program that does not configure logging.

    Not a fixture: pytest adds handlers and streams after the fixtures.
    """
    root, log, stderr = logging.getLogger(), logging.getLogger(LOGGER), sys.stderr
    handlers, level = [*root.handlers], root.level
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    sys.stderr = io.StringIO()
    try:
        yield log
    finally:
        sys.stderr = stderr
        root.handlers[:] = handlers
        root.setLevel(level)
        log.handlers[:] = []
        log.setLevel(logging.NOTSET)


def told(worker: str, task: int, lines: tuple[TaskLine, ...], suppressed: int) -> ShowTaskLog:
    return ShowTaskLog(worker, TaskLogged(1, task, 1, lines, suppressed))


def show(*lines: TaskLine, suppressed: int = 0) -> str:
    """Show lines, and return what standard error has afterwards."""
    log = TaskLog()
    log.show(told("tcp://10.0.0.1:7000", 3, lines, suppressed))
    log.flush()
    assert isinstance(sys.stderr, io.StringIO)
    return sys.stderr.getvalue()


PRINTED, INFO = TaskLine("hello"), TaskLine("read", logging.INFO, "decode")
WARNED = TaskLine("no file", logging.WARNING, "decode")
WHERE = "[worker 10.0.0.1:7000, task 3]"


def test_prints_and_warnings_are_shown_without_configuration() -> None:
    """Without configured logging, prints and warnings are on standard error after the
    names of worker and task; records below a warning are not, as everywhere in Python.
    """
    with bare():
        assert show(PRINTED, INFO).splitlines() == [f"{WHERE} hello"]
        assert show(WARNED).splitlines()[-1] == f"{WHERE} decode: no file"


def test_prints_go_to_a_handler_for_info() -> None:
    """If a handler lets INFO pass, everything goes there and nothing is printed
    twice.
    """
    with bare() as log:
        records = Records()
        log.addHandler(records)
        log.setLevel(logging.INFO)
        assert show(PRINTED, INFO, WARNED) == ""
        assert records.found == [
            ("INFO", f"{WHERE} hello"),
            ("INFO", f"{WHERE} decode: read"),
            ("WARNING", f"{WHERE} decode: no file"),
        ]


def test_prints_are_shown_although_the_program_logs_warnings_only() -> None:
    """A program that configures logging with the usual level still sees prints."""
    with bare():
        records = Records()
        logging.getLogger().addHandler(records)
        assert show(PRINTED, WARNED) == f"{WHERE} hello\n"
        assert records.found == [("WARNING", f"{WHERE} decode: no file")]


@pytest.mark.parametrize(("level", "is_shown"), [(logging.WARNING, False), (logging.INFO, True)])
def test_the_level_of_the_logger_silences_prints(level: int, is_shown: bool) -> None:
    """``logging.getLogger("zmqdata.tasks").setLevel(...)`` above INFO silences prints,
    also without a handler.
    """
    with bare() as log:
        log.setLevel(level)
        assert show(PRINTED) == (f"{WHERE} hello\n" if is_shown else "")


def test_what_is_suppressed_is_counted() -> None:
    """A line says how many lines were too many, and where they are."""
    with bare():
        assert show(suppressed=12).startswith(f"{WHERE} 12 more lines are not shown here, because")


def test_no_line_controls_the_terminal() -> None:
    """Control characters of a worker's line become question marks, and further lines
    are indented.
    """
    with bare():
        assert show(TaskLine("a\x1b[2Jb\nc")) == f"{WHERE} a?[2Jb\n    c\n"


def test_a_slow_stream_keeps_no_reader_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """While standard error is blocked, ``show`` returns at once and keeps a bounded
    number of lines. The others are counted.
    """
    with bare():
        gate, begun = threading.Event(), threading.Event()

        class Slow(io.StringIO):
            def write(self, text: str) -> int:
                begun.set()
                gate.wait(30)
                return super().write(text)

        records = Records()
        logging.getLogger().addHandler(records)
        monkeypatch.setattr(sys, "stderr", Slow())
        monkeypatch.setattr(tasklog, "FLUSH_SECONDS", 0.01)
        log = TaskLog()
        log.show(told("tcp://w:1", 0, (PRINTED,), 0))
        assert begun.wait(30)
        log.show(told("tcp://w:1", 0, (PRINTED,) * (MOST_WAITING + 5), 0))
        log.flush()
        log.flush()
        gate.set()
        monkeypatch.setattr(tasklog, "FLUSH_SECONDS", 30)
        log.show(told("tcp://w:1", 0, (), 0))
        thread = log._thread
        if thread is not None:
            thread.join(30)
        assert sys.stderr.getvalue().count("hello") == MOST_WAITING + 1  # type: ignore[union-attr]
        assert [text.partition(":")[0] for _, text in records.found] == [
            "5 lines of tasks were lost"
        ]


def test_a_stream_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed standard error, or none, loses lines and nothing else."""
    with bare():
        closed = io.StringIO()
        closed.close()
        log = TaskLog()
        for stream in (closed, None):
            monkeypatch.setattr(sys, "stderr", stream)
            log.show(told("tcp://w:1", 0, (PRINTED,), 0))
            log.flush()
        assert log._thread is None


def test_a_child_of_a_fork_begins_anew() -> None:
    """In a child of a fork, the log has no line and no thread of its parent."""
    log = TaskLog()
    log._thread = threading.Thread()
    log.forget_all()
    log.flush()
    assert log._thread is None
