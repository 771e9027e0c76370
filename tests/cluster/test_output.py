"""Test how the output of servers reaches the standard error of this process."""

from __future__ import annotations

import io
import tempfile
import threading
from collections.abc import Iterator
from typing import IO

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.cluster.output import MOST_AT_ONCE, OutputRelay
from zmqdata.errors import PipelineError
from zmqdata.testing.cluster import await_condition


@pytest.fixture
def written() -> Iterator[IO[bytes]]:
    """Yield a file that a server could write to."""
    with tempfile.TemporaryFile(buffering=0) as file:
        yield file


def test_lines_appear_with_the_name_of_their_server(
    written: IO[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """A line appears soon after it is complete; at the end of its server, an incomplete
    one appears, too.
    """
    relay, seen = OutputRelay(), [""]

    def has_come(text: str) -> bool:
        seen[0] += capsys.readouterr().err
        return seen[0] == text

    relay.add(written, "worker 0")
    written.write(b"one\ntw")
    await_condition(lambda: has_come("[worker 0] one\n"), what="the first line")
    written.write(b"o\nthr\xff")
    relay.end(written)
    relay.end(written)
    assert has_come("[worker 0] one\n[worker 0] two\n[worker 0] thr\N{REPLACEMENT CHARACTER}\n")


def test_log_records_appear_from_a_warning_on(
    written: IO[bytes],
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A record appears if a logger of its name is enabled for its level here."""
    relay = OutputRelay()
    relay.add(written, "dispatcher")
    caplog.set_level("INFO", logger="loud")
    records = [
        f"2026-01-02 10:00:00,000 {level} [7] {name}: text"
        for level, name in (("INFO", "quiet"), ("WARNING", "quiet"), ("INFO", "loud"))
    ]
    written.write("\n".join(records).encode())
    relay.end(written)
    assert capsys.readouterr().err == "".join(f"[dispatcher] {one}\n" for one in records[1:])


def test_a_flood_of_output_is_cut(written: IO[bytes], capsys: pytest.CaptureFixture[str]) -> None:
    """Beginning and end of a long line that is printed at once appear, and the size of
    the rest; behind the rest of a flood of lines, whole lines.
    """
    relay, half = OutputRelay(), MOST_AT_ONCE // 2
    for flood, end in (
        (b"x" * half + b"y" * 1_000_000 + b"z" * half, "z" * half),
        (b"x" * half + b"y\n" * 500_000 + b"cut" * half + b"\nend\n", "end"),
    ):
        relay.add(written, "worker 3")
        written.truncate(0)
        written.seek(0)
        written.write(flood)
        relay.end(written)
        first, note, last = capsys.readouterr().err.splitlines()
        assert first == "[worker 3] " + "x" * half
        assert last == f"[worker 3] {end}"
        left_out = len(flood) - half - len(end) - flood.endswith(b"\n")
        assert note == f"[worker 3] ({left_out:,} bytes of output are left out here)"


@pytest.mark.realprocess
def test_what_functions_print_reaches_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A line that a function prints on a worker of a cluster appears with the worker's
    number, and nothing else does. It is there when the iteration ends, or its error is
    raised.
    """

    def speak(element: int) -> int:
        print("element", element)
        return 6 // (3 - int(element))

    with LocalCluster(1) as cluster:
        for count in (3, 4):
            dataset = Dataset.range(count).map(speak)
            iterator = iter(dataset.apply(distribute("distributed_epoch", cluster)))
            assert [int(next(iterator)) for _ in range(3)] == [2, 3, 6]
            with pytest.raises(StopIteration if count == 3 else PipelineError):
                next(iterator)
            lines = [f"[worker 0] element {n}\n" for n in range(count)]
            assert capsys.readouterr().err == "".join(lines)


def test_a_flush_passes_on_all_that_was_written(
    written: IO[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """After a flush every line is there, with or without its end; what follows is a
    line of its own. Progress bars are shown as seldom as before.
    """
    relay = OutputRelay()
    relay.add(written, "worker 0")
    for text, shown in (("one\ntw", ["one", "tw"]), ("o\n\r1%", ["o", "1%"]), ("\r2%", [])):
        written.write(text.encode())
        relay.flush()
        assert capsys.readouterr().err == "".join(f"[worker 0] {line}\n" for line in shown)
    relay.end(written)


def test_a_stream_that_cannot_be_written_hinders_nothing(
    written: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A closed standard error raises nothing at the end of a server."""
    relay, broken = OutputRelay(), io.StringIO()
    broken.close()
    monkeypatch.setattr("sys.stderr", broken)
    relay.add(written, "worker 0")
    written.write(b"a line\n")
    relay.end(written)


def test_a_stream_that_nobody_reads_hinders_no_end(
    written: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a server waits briefly for a stream that blocks, and not again as long
    as it blocks.
    """
    free, begun, before = threading.Event(), threading.Event(), {*threading.enumerate()}

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            begun.set()
            free.wait(30)
            return len(text)

    monkeypatch.setattr("sys.stderr", Full())
    monkeypatch.setattr("zmqdata.cluster.output.LAST_SECONDS", 0.05)
    relay = OutputRelay()
    relay.add(written, "worker 0")
    written.write(b"line\n")
    assert begun.wait(10)
    with tempfile.TemporaryFile(buffering=0) as other:
        relay.add(other, "worker 1")
        other.write(b"more\n")
        relay.end(other)
        assert not free.is_set()
        monkeypatch.setattr("zmqdata.cluster.output.LAST_SECONDS", 30.0)
        relay.end(written)
    free.set()
    await_condition(lambda: before >= {*threading.enumerate()}, what="the end of the thread")


def test_a_stream_may_close_what_it_hears_from(
    written: IO[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits if the ``write`` of a stream ends the source of its text."""
    relay, ended = OutputRelay(), threading.Event()

    class Closing(io.StringIO):
        def write(self, text: str) -> int:
            relay.end(written)
            ended.set()
            return len(text)

    monkeypatch.setattr("sys.stderr", Closing())
    relay.add(written, "worker 0")
    written.write(b"line\n")
    assert ended.wait(10)
