"""Test how what functions of tasks print and log becomes lines for clients."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from zmqdata import Dataset
from zmqdata.core.worker.events import LinesCollected, TaskKey
from zmqdata.core.worker.tasklog import MOST_CHARACTERS_OF_LINE, LineLimit
from zmqdata.machine.threads import Background
from zmqdata.worker.tasks import tasklog
from zmqdata.worker.tasks.tasklog import (
    COUNT_EVERY,
    MOST_BEGINNINGS,
    LineCollector,
    TaskTap,
    tap_output,
)

KEY = TaskKey(3, 1)


class Bench:
    """A collector with a task, and a clock that the test moves."""

    def __init__(self, burst: int = 100, per_second: float = 1.0) -> None:
        self.now, self.woken = 0.0, 0
        limit = LineLimit(burst, per_second)
        self.collector = LineCollector(self._wake, limit, lambda: self.now)
        self.output = TaskTap(KEY, self.collector)

    def _wake(self) -> None:
        self.woken += 1

    def texts(self) -> list[str]:
        """Return the lines that were collected since the last call."""
        return [line.text for event in self.collector.take() for line in event.lines]


@contextlib.contextmanager
def tapped(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Tap the output of this process, and yield its standard output."""
    out, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    handlers, level = [*root.handlers], root.level
    root.setLevel(logging.INFO)
    tap_output()
    try:
        yield out
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


# --- lines


def test_whole_lines_are_collected_and_the_rest_at_the_end() -> None:
    """A line is collected once its end is printed, the last one when the task ends, and
    an empty one not at all.
    """
    bench = Bench()
    for text in ("one", "\n", "two\nthr", "ee\n", "\n", "  \nfour"):
        bench.output.printed(text, "stdout")
    assert bench.texts() == ["one", "two", "three"]
    bench.output.end()
    assert bench.texts() == ["four"]


def test_lines_of_threads_and_streams_do_not_mix() -> None:
    """Beginnings of lines are kept apart for each thread and each stream."""
    bench = Bench()
    bench.output.printed("out ", "stdout")
    bench.output.printed("err ", "stderr")
    other = threading.Thread(target=bench.output.printed, args=("thread\n", "stdout"))
    other.start()
    other.join()
    bench.output.printed("1\n", "stdout")
    bench.output.printed("2\n", "stderr")
    assert bench.texts() == ["thread", "out 1", "err 2"]


def test_a_progress_bar_is_its_last_state() -> None:
    """The last state of a line that is written over is collected."""
    bench = Bench()
    for percent in range(101):
        bench.output.printed(f"\r{percent} %", "stderr")
    assert bench.texts() == []
    bench.output.printed("\n\rdone\r\n", "stderr")
    assert bench.texts() == ["100 %", "done"]


def test_memory_is_bounded() -> None:
    """A long line is cut, and the number of lines without an end is bounded."""
    bench = Bench(burst=10_000)
    bench.output.printed("x" * 50_000, "stdout")
    bench.output.printed("y\n", "stdout")
    (line,) = bench.texts()
    assert (len(line), line[-5:]) == (MOST_CHARACTERS_OF_LINE, "x ...")
    for number in range(3 * MOST_BEGINNINGS):
        bench.output.printed(f"{number}", f"stream {number}")
    assert bench.texts() == [f"{number}" for number in range(2 * MOST_BEGINNINGS)]


def test_a_text_that_cannot_be_sent_is_replaced() -> None:
    """Half of a surrogate pair becomes a question mark."""
    bench = Bench()
    bench.output.printed("a\udcffb\n", "stdout")
    assert bench.texts() == ["a?b"]


def test_a_flood_is_counted_and_the_count_is_told_now_and_then() -> None:
    """Lines beyond the limit are counted. The count is told every few seconds, and at
    the end of the task.
    """
    bench = Bench(burst=2)
    for number in range(5):
        bench.output.printed(f"{number}\n", "stdout")
    assert bench.woken == 1, "the worker's loop is woken once"
    (event,) = bench.collector.take()
    assert ([line.text for line in event.lines], event.suppressed) == (["0", "1"], 3)
    bench.output.printed("5\n", "stdout")
    assert bench.collector.take() == []
    bench.now += COUNT_EVERY
    assert bench.collector.take() == [LinesCollected(*KEY, (), 1)]
    for _ in range(10):
        bench.output.printed("6\n", "stdout")
    assert [(len(event.lines), event.suppressed) for event in bench.collector.take()] == [(2, 0)]
    bench.output.end()
    assert bench.collector.take() == [LinesCollected(*KEY, (), 8)]


# --- whose lines


def test_only_what_tasks_print_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's own output has everything as before; lines for clients are those of
    the threads of a task.
    """
    bench = Bench()
    with tapped(monkeypatch) as out:
        print("of the worker")
        with bench.output.collected():
            print("of the task", 1)
            print("a warning", file=sys.stderr)
            stranger = threading.Thread(target=print, args=("of another thread",))
            stranger.start()
            stranger.join()
            mine = Background(target=print, args=("of a thread of the pipeline",))
            mine.start()
            mine.join()
        print("of the worker, too")
        assert sys.stderr._stream.getvalue() == "a warning\n"  # type: ignore[union-attr]
        written = out.getvalue().splitlines()
    assert bench.texts() == ["of the task 1", "a warning", "of a thread of the pipeline"]
    assert written == [
        "of the worker",
        "of the task 1",
        "of another thread",
        "of a thread of the pipeline",
        "of the worker, too",
    ]


def test_threads_of_every_operation_belong_to_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions that run in threads of prefetch, of parallel maps and of parallel
    interleaves print for their task.
    """

    def say(word: str, number: int) -> int:
        print(word, number)
        return number

    bench = Bench()
    dataset = (
        Dataset.range(2)
        .map(lambda x: say("before", int(x)))
        .prefetch(2)
        .interleave(lambda x: Dataset.range(1).map(lambda y: say("inner", int(y))), 2, 1, 2)
        .map(lambda x: say("parallel", int(x)), num_parallel_calls=2)
        .prefetch(2)
    )
    with tapped(monkeypatch), bench.output.collected():
        list(dataset)
    said = bench.texts()
    assert sorted(said) == [
        "before 0",
        "before 1",
        "inner 0",
        "inner 0",
        "parallel 0",
        "parallel 0",
    ]


def test_records_are_collected_once_with_their_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log record of a function is collected once, with level and logger, also if the
    function has a handler of its own. Records of the worker are not.
    """
    bench = Bench()
    with tapped(monkeypatch), bench.output.collected():
        own = logging.getLogger("decode")
        handler = logging.StreamHandler()
        own.addHandler(handler)
        try:
            own.warning("no file %s", "a.jpg")
            own.debug("not enabled")
            own.propagate = False
            own.error("alone")
            try:
                raise ValueError("bad")
            except ValueError:
                logging.getLogger("other").exception("failed")
            logging.getLogger("zmqdata.worker.tasks.runner").warning("of the worker")
            logging.getLogger("zmqdata.operations.repeat").warning("of the pipeline")
        finally:
            own.removeHandler(handler)
            own.propagate = True
    lines = [line for event in bench.collector.take() for line in event.lines]
    assert [(line.level, line.logger, line.text.splitlines()[0]) for line in lines] == [
        (logging.WARNING, "decode", "no file a.jpg"),
        (logging.ERROR, "decode", "alone"),
        (logging.ERROR, "other", "failed"),
        (logging.WARNING, "zmqdata.operations.repeat", "of the pipeline"),
    ]
    assert lines[2].text.splitlines()[-1] == "ValueError: bad"


def test_a_record_that_cannot_be_formatted_fails_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log call with wrong arguments does not raise in the function."""
    bench = Bench()
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with tapped(monkeypatch), bench.output.collected():
        logging.getLogger("decode").warning("%d", "no number")
    assert bench.texts() == []


def test_a_tapped_stream_is_like_the_stream_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attributes of the stream are those of the stream behind it, closing it closes
    nothing, and a wrong argument is the same error.
    """
    with open(os.devnull, "w", encoding="ascii", errors="replace") as behind:
        stream = tasklog.TappedStream(behind, "stdout")
        assert (stream.encoding, stream.errors, stream.isatty()) == ("ascii", "replace", False)
        assert stream.fileno() == behind.fileno()
        assert stream.buffer is behind.buffer
        assert stream.writable()
        stream.writelines(["a", "b"])
        stream.flush()
        stream.close()
        assert not behind.closed
        with pytest.raises(TypeError, match="must be str"):
            stream.write(b"bytes")  # type: ignore[arg-type]  # on purpose


def test_a_child_of_a_fork_prints_for_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child of a fork, which has no client, nothing is collected."""
    bench = Bench()
    monkeypatch.setattr(tasklog._Taps, "are_on", True)
    with tapped(monkeypatch) as out, bench.output.collected():
        tasklog._turn_off()
        print("in the child")
        assert out.getvalue() == "in the child\n"
    assert bench.texts() == []
