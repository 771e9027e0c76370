"""Tests of ``zmqdata.core.worker.writing``: what concerns chunks reaches the tasks that are saved, and no others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from zmqdata import commands as c
from zmqdata import messages as m
from zmqdata.commands import saves as s
from zmqdata.core.worker import writing
from zmqdata.core.worker.dealing import Dealing, FirstCome
from zmqdata.core.worker.saving import FIRST_CHUNK_SECONDS
from zmqdata.core.worker.streams import Portion
from zmqdata.core.worker.writing import Writing
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import encode_failure

DEFINITION = m.TaskDefinition(1, 2, 2000, "dataset", "digest", "DYNAMIC", 1, None, (), (), save_path="/a", stream=3)
KEY = (1, 2)


@dataclass
class Task:
    dealing: Dealing
    started: bool = True


@dataclass
class Desk:
    """Writing with one task, and what was distributed."""

    task: Any = None
    distributed: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writing = Writing("worker", 10, lambda event: self.task, self.distributed.append)

    def host(self, definition: m.TaskDefinition = DEFINITION) -> Any:
        self.task = Task(self.writing.dealing_of(definition) or FirstCome())
        return self.task.dealing


def test_only_tasks_with_a_path_are_saved() -> None:
    """A task without a path is for clients; nothing of this concerns it."""
    desk = Desk()
    assert desk.writing.dealing_of(structs.replace(DEFINITION, save_path="")) is None
    read = desk.host(structs.replace(DEFINITION, save_path=""))
    desk.writing.events[s.BlockWritten](s.BlockWritten(*KEY, 5), 0.0)
    desk.writing.messages[m.ChunkCommitted]("peer", m.ChunkCommitted(*KEY, 1), 0.0)
    desk.writing.tick([desk.task], 0.0)
    desk.writing.end(read)
    desk.writing.forget(read)
    assert (desk.distributed, desk.writing.drain(read), desk.writing.saved) == ([], [], {})


def test_events_and_messages_find_their_task() -> None:
    """What the writer and the dispatcher say changes the task, which is distributed then, unless it is gone."""
    desk = Desk()
    saved = desk.host()
    saved.add(Portion(0, 1, 10, b"", (), b""))
    assert [type(one) for one in desk.writing.drain(saved)] == [s.WriteBlock, s.CloseChunk]
    desk.writing.events[s.BlockWritten](s.BlockWritten(*KEY, 10), 0.0)
    desk.writing.events[s.ChunkClosed](s.ChunkClosed(*KEY, 0, 1, 99), 0.0)
    assert (saved.ahead, len(desk.writing.drain(saved)), desk.distributed) == (0, 1, [desk.task, desk.task])
    desk.writing.messages[m.ChunkCommitted]("peer", m.ChunkCommitted(*KEY, 1), 0.0)
    saved.tick(5.0)
    assert desk.writing.drain(saved) == []
    desk.task = None
    desk.writing.events[s.BlockWritten](s.BlockWritten(*KEY, 10), 0.0)
    desk.writing.messages[m.ChunkCommitted]("peer", m.ChunkCommitted(*KEY, 1), 0.0)
    assert len(desk.distributed) == 2


def test_time_passes_for_tasks_that_have_begun() -> None:
    """A task without a pipeline has nothing to close."""
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
    """A stream that was written to its end is complete, one that was taken away is not; old ones are forgotten."""
    monkeypatch.setattr(writing, "SAVED_KEPT", 2)
    desk = Desk()
    desk.writing.forget(desk.host(structs.replace(DEFINITION, stream=1)))
    complete = desk.host(structs.replace(DEFINITION, stream=2))
    desk.writing.end(complete)
    desk.writing.forget(complete)
    assert desk.writing.saved == {("/a", 1): False, ("/a", 2): True}
    desk.writing.forget(desk.host())
    assert list(desk.writing.saved) == [("/a", 2), ("/a", 3)]


def test_a_task_that_cannot_be_run_says_so_of_its_stream() -> None:
    """The dispatcher is told of the failure; a task that is not saved has nobody to tell here."""
    desk = Desk()
    saved = desk.host()
    failure = encode_failure(FailedPreconditionError("no such module"), 0, "worker")
    desk.writing.fail(saved, failure)
    desk.task.started = True
    desk.writing.tick([desk.task], 0.0)
    [told] = desk.writing.drain(saved)
    assert told.peer == c.DISPATCHER
    assert told.message == m.SaveFailed("worker", *KEY, "FailedPreconditionError", "no such module", failure)
    read = desk.host(structs.replace(DEFINITION, save_path=""))
    desk.writing.fail(read, failure)
    assert desk.writing.drain(read) == []
