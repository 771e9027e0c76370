"""Test when a worker opens, closes and reports chunks
(``zmqdata.core.worker.saving``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.definitions import changed, define
from zmqdata import messages as m
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import events as e
from zmqdata.core.worker import saving
from zmqdata.core.worker.dealing import Dealing, FirstCome
from zmqdata.core.worker.saving import FIRST_CHUNK_SECONDS, FLUSH_SECONDS, REPEAT, Writing, Written
from zmqdata.core.worker.streams import Portion, occupied
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import encode_failure

DEFINITION = define(
    1, 2, 2000, "dataset", "digest", "DYNAMIC", 1, None, (), (), save_path="/a", stream=3
)
KEY = (1, 2)


def written(chunk_bytes: int = 100) -> Written:
    return Written("worker", DEFINITION, chunk_bytes)


def portion(first: int, count: int = 2, size: int = 40, failure: bytes = b"") -> Portion:
    return Portion(first, count, size, b"meta", ("frame",), failure)


def told(dealing: Written) -> list[Any]:
    """Return commands and messages, without the flushes of the runner."""
    commands = [one for one in dealing.drain() if not isinstance(one, e.FlushTask)]
    return [one.message if isinstance(one, e.Send) else one for one in commands]


def closed(dealing: Written, first: int, stop: int, now: float = 0.0) -> list[Any]:
    dealing.apply(e.ChunkClosed(*KEY, first, stop, 99, b"spec"), now)
    return told(dealing)


def test_blocks_fill_a_chunk_until_it_is_large_enough() -> None:
    """All blocks go to the chunk that the first block opened, and the block that makes
    it large enough closes it.
    """
    dealing = written()
    for first in (4, 6, 8, 10):
        dealing.add(portion(first))
    block = (40, b"meta", ("frame",))
    assert told(dealing) == [
        e.WriteBlock(*KEY, 4, *block),
        e.WriteBlock(*KEY, 4, *block),
        e.WriteBlock(*KEY, 4, *block),
        e.CloseChunk(*KEY, 4, 10),
        e.WriteBlock(*KEY, 10, *block),
    ]
    assert told(dealing) == []


def test_what_is_not_written_yet_bounds_production() -> None:
    """Bytes count as ahead from their production until they are in a file."""
    dealing = written()
    dealing.add(portion(0))
    dealing.add(portion(2))
    assert dealing.ahead == 2 * occupied(40)
    dealing.apply(e.BlockWritten(*KEY, 40), 0.0)
    assert dealing.ahead == occupied(40)


def test_a_closed_chunk_is_told_until_it_counts() -> None:
    """The worker reports a chunk at once and each second until the dispatcher has
    committed all of it.
    """
    dealing = written()
    for first in (0, 2, 4, 6, 8, 10):
        dealing.add(portion(first))
    told(dealing)
    one = m.ChunkWritten("worker", *KEY, 0, 6, 99, b"spec")
    other = m.ChunkWritten("worker", *KEY, 6, 12, 99, b"spec")
    assert closed(dealing, 0, 6) == [one]
    assert closed(dealing, 6, 12, 0.5) == [other]
    dealing.tick(0.9)
    assert told(dealing) == []
    dealing.tick(REPEAT)
    assert told(dealing) == [one]
    dealing.forget_committed(6)
    dealing.tick(REPEAT + 1)
    assert told(dealing) == [other]
    dealing.forget_committed(12)
    dealing.tick(REPEAT + 3)
    assert told(dealing) == []


def test_a_chunk_that_is_open_for_long_is_closed() -> None:
    """A chunk that stays open for long is closed, and each chunk may stay open longer
    than the chunk before.
    """
    dealing = written()
    dealing.tick(0.0)
    dealing.add(portion(0))
    dealing.tick(1.0)
    told(dealing)
    dealing.tick(1.0 + FIRST_CHUNK_SECONDS - 0.1)
    assert told(dealing) == []
    dealing.tick(1.0 + FIRST_CHUNK_SECONDS)
    assert told(dealing) == [e.CloseChunk(*KEY, 0, 2)]
    dealing.add(portion(2))
    told(dealing)
    dealing.tick(7.0)
    dealing.tick(7.0 + FIRST_CHUNK_SECONDS)
    assert told(dealing) == []
    dealing.tick(7.0 + 2 * FIRST_CHUNK_SECONDS)
    assert told(dealing) == [e.CloseChunk(*KEY, 2, 4)]


def test_a_pipeline_that_collects_for_long_is_asked_for_what_it_has() -> None:
    """The worker flushes the runner's block once a second, until the task ends."""
    dealing = written()
    dealing.tick(0.0)
    dealing.tick(FLUSH_SECONDS - 0.1)
    assert dealing.drain() == []
    dealing.tick(FLUSH_SECONDS)
    assert dealing.drain() == [e.FlushTask(*KEY)]
    dealing.end()
    dealing.tick(3 * FLUSH_SECONDS)
    assert dealing.drain() == []


def test_the_end_closes_the_last_chunk() -> None:
    """A task is complete when its last chunk is on the disk, and an empty task has no
    chunk.
    """
    empty, dealing = written(), written()
    empty.end()
    assert (told(empty), empty.completed) == ([], True)
    dealing.add(portion(0))
    told(dealing)
    assert not dealing.completed
    dealing.end()
    assert told(dealing) == [e.CloseChunk(*KEY, 0, 2)]
    assert not dealing.completed
    closed(dealing, 0, 2)
    assert dealing.completed
    dealing.tick(1000.0)
    assert [type(one) for one in told(dealing)] == [m.ChunkWritten]


def test_a_failure_in_place_of_an_element_is_told_and_ends_the_writing() -> None:
    """The worker reports the pipeline's error until the dispatcher drops the task, and
    writes nothing behind it.
    """
    dealing = written()
    failure = encode_failure(ZeroDivisionError("no"), 5, "worker")
    dealing.add(portion(0, 1, failure=failure))
    dealing.add(portion(1))
    dealing.add(portion(3, 1, failure=b"another"))
    dealing.tick(0.0)
    [one] = told(dealing)
    assert (one.task, one.attempt, one.error, one.failure) == (1, 2, "PipelineError", failure)
    assert "ZeroDivisionError: no" in one.text
    dealing.tick(0.5)
    assert told(dealing) == []
    dealing.tick(REPEAT)
    assert told(dealing) == [one]
    dealing.end()
    assert not dealing.completed


def test_a_failure_that_can_not_be_read_is_told_all_the_same() -> None:
    """The worker ends the save even if it cannot decode the runner's failure."""
    dealing = written()
    dealing.add(portion(0, 1, failure=b"nonsense"))
    dealing.tick(0.0)
    assert [one.error for one in told(dealing)] == ["ProtocolError"]


def test_a_chunk_that_can_not_be_written_is_told() -> None:
    """A full disk ends the save with the file system's error."""
    dealing = written()
    dealing.apply(e.WriteFailed(*KEY, "UnavailableError", "no space left"), 0.0)
    dealing.tick(0.0)
    assert told(dealing) == [m.SaveFailed("worker", *KEY, "UnavailableError", "no space left")]


def test_a_chunk_that_nobody_closed_is_not_told() -> None:
    """The worker ignores an answer of the writer for a chunk that it did not close."""
    dealing = written()
    assert closed(dealing, 0, 2) == []


def test_no_client_gets_anything() -> None:
    """A client of a saving worker gets a stream without elements."""
    dealing = written()
    dealing.add(portion(0))
    stream = dealing.join("client", m.Reader())
    stream.grant(m.StreamGrant(1, 2, 100, 1 << 20, 0), 0.0)
    assert list(dealing.deal(lambda one: True)) == []
    assert dealing.streams == {}
    assert dealing.has_all(stream)
    assert dealing.release("client", RangeSet())


def test_a_task_that_cannot_run_fails_its_save() -> None:
    """The worker reports the reason of a task that cannot run like the failure of an
    element.
    """
    dealing = written()
    failure = encode_failure(FailedPreconditionError("no such module"), 0, "worker")
    dealing.fail(failure)
    dealing.tick(0.0)
    failed = m.SaveFailed("worker", *KEY, "FailedPreconditionError", "no such module", failure)
    assert told(dealing) == [failed]


@dataclass
class Task:
    dealing: Dealing
    started: bool = True


@dataclass
class Desk:
    """The writing of a single task, and its published states."""

    task: Any = None
    distributed: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writing = Writing("worker", 10, lambda event: self.task, self.distributed.append)

    def host(self, definition: m.TaskDefinition = DEFINITION) -> Any:
        self.task = Task(self.writing.dealing_of(definition) or FirstCome())
        return self.task.dealing


def test_only_tasks_with_a_path_are_saved() -> None:
    """Only a task with a path is saved; a task without a path is for clients."""
    desk = Desk()
    assert desk.writing.dealing_of(changed(DEFINITION, save_path="")) is None
    read = desk.host(changed(DEFINITION, save_path=""))
    desk.writing.events[e.BlockWritten](e.BlockWritten(*KEY, 5), 0.0)
    desk.writing.messages[m.ChunkCommitted]("peer", m.ChunkCommitted(*KEY, 1), 0.0)
    desk.writing.tick([desk.task], 0.0)
    desk.writing.end(read)
    desk.writing.forget(read)
    assert (desk.distributed, desk.writing.drain(read), desk.writing.saved) == ([], [], {})


def test_events_and_messages_find_their_task() -> None:
    """Events of the writer and messages of the dispatcher change a known task, which is
    published then.
    """
    desk = Desk()
    saved = desk.host()
    saved.add(Portion(0, 1, 10, b"", (), b""))
    assert [type(one) for one in desk.writing.drain(saved)] == [e.WriteBlock, e.CloseChunk]
    desk.writing.events[e.BlockWritten](e.BlockWritten(*KEY, 10), 0.0)
    desk.writing.events[e.ChunkClosed](e.ChunkClosed(*KEY, 0, 1, 99), 0.0)
    assert (saved.ahead, len(desk.writing.drain(saved)), desk.distributed) == (
        0,
        1,
        [desk.task, desk.task],
    )
    desk.writing.messages[m.ChunkCommitted]("peer", m.ChunkCommitted(*KEY, 1), 0.0)
    saved.tick(5.0)
    assert desk.writing.drain(saved) == []
    desk.task = None
    desk.writing.events[e.BlockWritten](e.BlockWritten(*KEY, 10), 0.0)
    desk.writing.messages[m.ChunkCommitted]("peer", m.ChunkCommitted(*KEY, 1), 0.0)
    assert len(desk.distributed) == 2


def test_time_passes_for_tasks_that_have_begun() -> None:
    """A task without a pipeline has no chunk to close when time passes."""
    desk = Desk()
    saved = desk.host()
    for now in (0.0, FIRST_CHUNK_SECONDS):
        desk.task.started = False
        desk.writing.tick([desk.task], now)
    assert (desk.distributed, desk.writing.drain(saved)) == ([], [])
    desk.task.started = True
    desk.writing.tick([desk.task], 0.0)
    desk.writing.tick([desk.task], FIRST_CHUNK_SECONDS)
    assert (len(desk.distributed), len(desk.writing.drain(saved))) == (2, 1)


def test_what_became_of_a_stream_is_kept(monkeypatch: Any) -> None:
    """A stream written to its end counts as complete and a removed stream does not, and
    the worker forgets old streams.
    """
    monkeypatch.setattr(saving, "SAVED_KEPT", 2)
    desk = Desk()
    desk.writing.forget(desk.host(changed(DEFINITION, stream=1)))
    complete = desk.host(changed(DEFINITION, stream=2))
    desk.writing.end(complete)
    desk.writing.forget(complete)
    assert desk.writing.saved == {("/a", 1): False, ("/a", 2): True}
    desk.writing.forget(desk.host())
    assert list(desk.writing.saved) == [("/a", 2), ("/a", 3)]


def test_a_task_that_cannot_be_run_says_so_of_its_stream() -> None:
    """The worker reports a failure to the dispatcher only for a task that is saved."""
    desk = Desk()
    saved = desk.host()
    failure = encode_failure(FailedPreconditionError("no such module"), 0, "worker")
    desk.writing.fail(saved, failure)
    desk.task.started = True
    desk.writing.tick([desk.task], 0.0)
    [told] = desk.writing.drain(saved)
    assert told.peer == e.DISPATCHER
    assert told.message == m.SaveFailed(
        "worker", *KEY, "FailedPreconditionError", "no such module", failure
    )
    read = desk.host(changed(DEFINITION, save_path=""))
    desk.writing.fail(read, failure)
    assert desk.writing.drain(read) == []
