"""Test how the dispatcher begins a save, counts its chunks and ends it
(``zmqdata.core.dispatcher.saving``).
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherPolicy, DispatcherTimes
from zmqdata.core.dispatcher.saving import RETRY
from zmqdata.core.dispatcher.state.snapshots import updates_of
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.splits import IndexSplits

DESCRIPTION = m.DatasetDescription(
    "d" * 64, "print", (IndexSplits(10),), "", b"spec", 10, None, "3.11", "0"
)
ASK = m.StartSave("request", "dataset", "/a", "run")


class Office:
    """A dispatcher core with a registered dataset and workers, and its decisions."""

    def __init__(
        self, workers: int = 1, durable: bool = True, most_streams: int = 3, **changes: Any
    ) -> None:
        times = DispatcherTimes(gc_timeout=10.0)
        self.core = DispatcherCore(
            1, times, policy=DispatcherPolicy(snapshots_per_worker=most_streams), durable=durable
        )
        self.updates: list[u.Update] = []
        self.now = 0.0
        self.core.out.commit(
            u.RegisterDatasetUpdate("dataset", structs.replace(DESCRIPTION, **changes))
        )
        for number in range(workers):
            self.add_worker(f"w{number}")

    def feed(self, event: object) -> list[Any]:
        found = []
        for one in self.core.handle(self.now, event):
            if isinstance(one, e.Commit):
                self.updates.append(one.update)
            found.append(one.message if isinstance(one, e.Send) else one)
        return found

    def hear(self, message: m.Message, peer: str = "peer") -> list[Any]:
        return self.feed(e.Received(peer, message))

    def add_worker(self, name: str) -> list[Any]:
        return self.hear(m.RegisterWorker(name, f"tcp://{name}:1", (), "3.11", "0", ()), name)

    def tick(self, seconds: float = 0.25) -> list[Any]:
        self.now += seconds
        return self.feed(e.Tick())

    def start(self, ask: m.StartSave = ASK) -> list[Any]:
        self.hear(ask)
        return self.feed(e.SavePrepared(ask.path, ask.save_id))

    @property
    def iteration(self) -> Iteration:
        [found] = self.core.state.iterations.values()
        return found

    @property
    def task(self) -> Task:
        return next(iter(self.iteration.tasks.values()))

    def written(self, first: int, stop: int, **changes: Any) -> list[Any]:
        task = self.task
        message = m.ChunkWritten(task.worker, task.task, task.attempt, first, stop, 99, b"spec")
        return self.hear(structs.replace(message, **changes), task.worker)

    def ended(self, total: int) -> list[Any]:
        task = self.task
        report = m.TaskReport(task.task, task.attempt, total, total)
        return self.hear(m.WorkerHeartbeat(task.worker, (report,), ()), task.worker)

    def publish(self) -> None:
        for number, chunk in enumerate(self.task.chunks):
            saved = e.SaveChunk(0, number, chunk.attempt, chunk.first, chunk.stop, chunk.size)
            self.feed(e.ChunkPublished(self.iteration.iteration, saved))


def of(kind: type[Any], commands: list[Any]) -> list[Any]:
    return [one for one in commands if isinstance(one, kind)]


def only(kind: type[Any], commands: list[Any]) -> Any:
    [found] = of(kind, commands)
    return found


def test_a_save_begins_when_its_folder_is_made() -> None:
    """The dispatcher creates the folder, gives streams to the workers, and then
    confirms the save to the client.
    """
    office = Office(workers=2)
    assert office.hear(ASK) == [e.PrepareSave("/a", "run", "AUTO", b"spec", 10)]
    found = office.feed(e.SavePrepared("/a", "run"))
    hosted = [one.definition for one in of(m.HostTask, found)]
    assert [(one.save_path, one.stream) for one in hosted] == [("/a", 0), ("/a", 1)]
    assert {one.job.processing_mode for one in hosted} == {"DYNAMIC"}
    assert only(m.SaveStarted, found) == m.SaveStarted("request")
    assert of(m.HostTask, office.add_worker("late")), "whoever comes later gets a stream too"


def test_a_repeated_ask_does_not_begin_a_second_save() -> None:
    """The dispatcher answers a repeated request for the same run when the save has
    begun, also with a new request number, and refuses other runs.
    """
    office = Office()
    office.hear(ASK)
    again = structs.replace(ASK, request="again")
    assert office.hear(again) == []
    other = structs.replace(ASK, request="other", save_id="other")
    refused = only(m.RequestRefused, office.hear(other))
    assert refused.error == "AlreadyExistsError"
    found = office.feed(e.SavePrepared("/a", "run"))
    assert only(m.SaveStarted, found).request == "again"
    assert office.hear(ASK) == [m.SaveStarted("request")]
    refused = only(m.RequestRefused, office.hear(other))
    assert "already started or completed" in refused.text
    assert len(office.core.state.iterations) == 1


@pytest.mark.parametrize(
    ("changes", "durable", "error", "text"),
    [
        (
            {},
            False,
            "InvalidArgumentError",
            "requires running tf.data service in the fault tolerant mode.",
        ),
        (
            {"cardinality": -1},
            True,
            "InvalidArgumentError",
            "Saving an infinite dataset is not allowed",
        ),
        ({"sources": None, "unsplittable": "no splits"}, True, "UnimplementedError", "no splits"),
    ],
)
def test_what_can_not_be_saved_is_refused(
    changes: dict[str, Any], durable: bool, error: str, text: str
) -> None:
    """A dispatcher without storage refuses a save at once, as it refuses infinite
    datasets and datasets without splits.
    """
    [refused] = Office(durable=durable, **changes).hear(ASK)
    assert refused.error == error
    assert text in refused.text


def test_a_save_has_a_rule_for_poison() -> None:
    """A save fixes its rule for elements that kill workers and its task time-out when
    it begins.
    """
    office = Office()
    [refused] = office.hear(structs.replace(ASK, on_poison="ignore"))
    assert refused.text == "on_poison must be 'fail' or 'skip', got 'ignore'."
    hosted = only(
        m.HostTask, office.start(structs.replace(ASK, on_poison="skip", task_timeout=5.0))
    )
    assert hosted.definition.job.task_timeout == 5.0
    job = office.iteration.job
    assert (job.on_poison, job.task_timeout) == ("skip", 5.0)


def test_an_unknown_dataset_is_refused() -> None:
    """The dispatcher refuses a save whose dataset is unknown, also if the dataset is
    gone when the folder is ready.
    """
    office = Office()
    [refused] = office.hear(structs.replace(ASK, dataset_id="other"))
    assert (refused.error, refused.text) == ("NotFoundError", "Dataset id other not found.")
    office.hear(ASK)
    office.core.out.commit(u.RemoveDatasetUpdate("dataset"))
    refused = only(m.RequestRefused, office.feed(e.SavePrepared("/a", "run")))
    assert refused.error == "NotFoundError"


def test_a_folder_that_can_not_be_made_refuses_the_save() -> None:
    """The client gets the file system's error for a folder that cannot be made, and the
    dispatcher keeps nothing of the save.
    """
    office = Office()
    office.hear(ASK)
    [refused] = office.feed(e.SavePrepared("/a", "run", "AlreadyExistsError", "already there"))
    assert (refused.request, refused.error, refused.text) == (
        "request",
        "AlreadyExistsError",
        "already there",
    )
    assert office.hear(ASK) == [e.PrepareSave("/a", "run", "AUTO", b"spec", 10)]


def test_a_chunk_counts_before_it_is_published() -> None:
    """The dispatcher commits a chunk, publishes it and then acknowledges it; a repeated
    chunk is only acknowledged.
    """
    office = Office()
    office.start()
    commit, publish, acknowledged = office.written(0, 4)
    task = office.task
    assert commit.update == u.CommitChunkUpdate(task.task, 1, 0, 4, 99, b"spec")
    assert publish == e.PublishChunk(
        office.iteration.iteration, "/a", e.SaveChunk(0, 0, 1, 0, 4, 99)
    )
    assert acknowledged == m.ChunkCommitted(task.task, 1, 4)
    assert office.written(0, 4) == [acknowledged]
    assert office.written(4, 6)[1].chunk == e.SaveChunk(0, 1, 1, 4, 6, 99)
    assert task.delivered.ranges == ((0, 6),)


@pytest.mark.parametrize(("first", "stop", "size"), [(5, 9, 99), (3, 9, 99), (4, 5, -1)])
def test_a_chunk_that_does_not_follow_is_left_alone(first: int, stop: int, size: int) -> None:
    """The dispatcher ignores a chunk with a gap, an overlap or a negative size, as no
    correct worker sends it.
    """
    office = Office()
    office.start()
    office.written(0, 4)
    before = len(office.updates)
    assert office.written(first, stop, size=size) == []
    assert len(office.updates) == before


def test_a_chunk_behind_the_total_is_left_alone() -> None:
    """The dispatcher ignores a chunk behind the announced total of its task."""
    office = Office()
    office.start()
    office.ended(3)
    assert office.written(0, 4) == []


@pytest.mark.parametrize("change", [{"attempt": 7}, {"worker": "w9"}, {"task": 1}])
def test_a_zombie_never_has_a_chunk_counted(change: dict[str, Any]) -> None:
    """The dispatcher makes a worker drop the task if its chunk belongs to another
    attempt, another worker or an unknown task.
    """
    office = Office()
    office.start()
    found = office.written(0, 4, **change)
    assert [type(one) for one in found] == [m.DropTask]
    failed = m.SaveFailed("w0", office.task.task, 9, "PipelineError", "no")
    assert [type(one) for one in office.hear(failed)] == [m.DropTask]


def test_a_chunk_of_a_job_that_is_read_counts_for_nothing() -> None:
    """The dispatcher ignores a chunk of a task that clients read."""
    office = Office()
    office.hear(m.OpenIteration("client", m.JobParameters("job", "dataset", "DYNAMIC"), 0))
    assert [type(one) for one in office.written(0, 4)] == [m.DropTask]


def test_the_next_host_goes_on_behind_what_counts() -> None:
    """When a worker is lost, its stream moves to another worker, which skips the
    elements of committed chunks.
    """
    office = Office(workers=2)
    office.start()
    office.written(0, 4)
    host = office.task.worker
    found = office.hear(m.WorkerStopped(host), host)
    definition = only(m.HostTask, found).definition
    assert (definition.attempt, definition.stream, definition.skip) == (2, 0, ((0, 4),))
    assert [type(one) for one in office.written(4, 6, worker=host, attempt=1)] == [m.DropTask]
    assert office.written(4, 6)[1].chunk == e.SaveChunk(0, 1, 2, 4, 6, 99)


def test_a_worker_writes_a_limited_number_of_streams() -> None:
    """A worker writes a limited number of streams; further streams wait for a worker
    with room.
    """
    office = Office(workers=2, most_streams=1)
    office.start()
    lost = office.task
    office.hear(m.WorkerStopped(lost.worker), lost.worker)
    office.tick(1.0)
    assert lost.worker == ""
    other = structs.replace(ASK, path="/b", save_id="b")
    assert of(m.HostTask, office.start(other)) == []
    office.add_worker("late")
    assert lost.worker == "late"


def test_a_save_ends_when_everything_is_published() -> None:
    """When the last chunk is published the dispatcher writes the marker once, and the
    save ends when the marker is written.
    """
    office = Office()
    office.start()
    office.written(0, 4)
    office.ended(6)
    office.written(4, 6)
    assert of(e.FinishSave, office.tick()) == []
    office.publish()
    finish = only(e.FinishSave, office.tick())
    number = office.iteration.iteration
    assert finish.chunks == (e.SaveChunk(0, 0, 1, 0, 4, 99), e.SaveChunk(0, 1, 1, 4, 6, 99))
    assert (finish.iteration, finish.specs, finish.error) == (number, (b"spec",), "")
    assert of(e.FinishSave, office.tick()) == []
    office.feed(e.SaveFinished(number))
    assert office.updates[-1] == u.EndSaveUpdate(number)
    office.feed(e.SaveFinished(number))
    assert office.updates.count(u.EndSaveUpdate(number)) == 1
    assert of(e.FinishSave, office.tick(RETRY)) == []


def test_a_marker_that_can_not_be_written_is_tried_again() -> None:
    """The dispatcher retries a marker that cannot be written, so a full disk only
    delays the end of a save.
    """
    office = Office()
    office.start()
    office.ended(0)
    assert of(e.FinishSave, office.tick())
    office.feed(e.SaveFinished(office.iteration.iteration, "no space left"))
    assert of(e.FinishSave, office.tick()) == []
    assert of(e.FinishSave, office.tick(RETRY))


def test_an_element_that_fails_ends_the_save() -> None:
    """A failing element stops all streams, the marker gives the reason, and later
    workers get no stream.
    """
    office = Office(workers=2)
    office.start()
    failed = m.SaveFailed(
        office.task.worker, office.task.task, 1, "PipelineError", "no", b"failure"
    )
    found = office.hear(failed)
    assert len(of(m.DropTask, found)) == 2
    assert u.FailSaveUpdate(office.iteration.iteration, b"failure") in office.updates
    assert [type(one) for one in office.hear(failed)] == [m.DropTask]
    finish = only(e.FinishSave, office.tick())
    assert (finish.error, finish.text, finish.failure, finish.chunks) == (
        "PipelineError",
        "no",
        b"failure",
        (),
    )
    assert of(m.HostTask, office.add_worker("late")) == []
    office.feed(e.SaveFinished(finish.iteration))
    assert office.updates[-1] == u.EndSaveUpdate(finish.iteration)


def unwritten(office: Office, text: str) -> list[Any]:
    """Report that the host of the first stream cannot write its chunk."""
    task = office.task
    failed = m.SaveFailed(task.worker, task.task, task.attempt, "ResourceExhaustedError", text)
    return office.hear(failed, task.worker)


def test_a_chunk_that_a_worker_cannot_write_is_tried_once_elsewhere() -> None:
    """A stream that its worker cannot write moves to another worker, and the first one
    gets no stream of this save any more. If the second worker fails at the same chunk,
    the save fails, and its error names both workers with their reasons.
    """
    office = Office(workers=3)
    office.start()
    first = office.task.worker
    found = unwritten(office, "cannot write: full")
    assert of(m.DropTask, found)
    assert office.iteration.failure is None
    second = office.task.worker
    assert second not in ("", first)
    assert office.task.attempt > 1
    for _ in range(10):
        assert first not in {one.definition.task for one in of(m.HostTask, office.tick(1.0))}
    assert not [one for one in office.iteration.tasks.values() if one.worker == first]
    unwritten(office, "cannot write: too")
    finish = only(e.FinishSave, office.tick())
    assert (finish.error, finish.text) == (
        "ResourceExhaustedError",
        f"worker tcp://{second}:1 cannot write: too. Free or mount its disk, and save again to "
        f"another path. Before that, worker tcp://{first}:1 cannot write: full",
    )


def test_each_chunk_is_tried_elsewhere() -> None:
    """A later chunk of a stream that has moved is tried on a third worker. Without a
    further worker, the save fails.
    """
    office = Office(workers=3)
    office.start()
    for stop in (2, 4):
        unwritten(office, "cannot write: full")
        assert office.iteration.failure is None
        office.written(stop - 2, stop)
    unwritten(office, "cannot write: full")
    assert office.iteration.failure is not None
    assert office.iteration.failure.error == "ResourceExhaustedError"


def test_elements_that_cannot_be_stored_are_not_tried_elsewhere() -> None:
    """Elements without a common spec end the save on the first worker."""
    office = Office(workers=2)
    office.start()
    task = office.task
    office.hear(m.SaveFailed(task.worker, task.task, 1, "InvalidArgumentError", "two specs"))
    assert office.iteration.failure is not None
    assert office.iteration.failure.text == "two specs"


def test_a_full_disk_of_the_dispatcher_is_named_as_such() -> None:
    """A chunk that cannot be published because a disk is full ends the save with a
    ResourceExhaustedError.
    """
    office = Office()
    office.start()
    office.written(0, 4)
    chunk = e.SaveChunk(0, 0, 1, 0, 4, 99)
    office.feed(
        e.ChunkPublished(office.iteration.iteration, chunk, "full", "ResourceExhaustedError")
    )
    assert only(e.FinishSave, office.tick()).error == "ResourceExhaustedError"


def test_a_chunk_that_can_not_be_published_ends_the_save() -> None:
    """A committed chunk that cannot be published is data loss, which ends the save and
    is named in the marker.
    """
    office = Office()
    office.start()
    office.written(0, 4)
    number = office.iteration.iteration
    office.feed(e.ChunkPublished(number, e.SaveChunk(0, 0, 1, 0, 4, 99), "it is gone"))
    finish = only(e.FinishSave, office.tick())
    assert finish.error == "DataLossError"
    assert "it is gone" in finish.text


def test_a_save_that_has_ended_is_collected_later() -> None:
    """The dispatcher never collects a running save, collects an ended save after the
    time-out, and ignores late answers.
    """
    office = Office()
    office.start()
    office.core.jobs.unused_since[1] = 0.0
    office.tick(100.0)
    office.tick(100.0)
    number = office.iteration.iteration
    office.ended(0)
    office.tick()
    office.feed(e.SaveFinished(number))
    office.core.jobs.unused_since.clear()
    office.tick(5.0)
    office.tick(11.0)
    office.tick(1.0)
    assert office.core.state.living == []
    office.feed(e.SaveFinished(number))
    office.feed(e.ChunkPublished(number, e.SaveChunk(0, 0, 1, 0, 4, 99)))


def successor_of(office: Office) -> Office:
    """Return the same dispatcher after a restart, with its former workers."""
    found = Office(workers=0)
    for update in office.updates:
        found.core.out.state.apply(update)
    found.core.resume(0.0)
    for worker in found.core.state.workers:
        found.add_worker(worker)
    return found


def test_a_new_life_checks_the_folders_of_saves_once() -> None:
    """A restarted dispatcher checks the folder of each save once against the committed
    facts, but not of failed saves.
    """
    office = Office()
    office.start()
    office.written(0, 4)
    number = office.iteration.iteration
    later = successor_of(office)
    assert of(e.CheckSave, later.tick()) == [
        e.CheckSave(number, "/a", "run", (e.SaveChunk(0, 0, 1, 0, 4, 99),))
    ]
    assert of(e.CheckSave, later.tick(2 * RETRY)) == []
    later.feed(e.SaveChecked(number, streams=1))
    assert of(e.CheckSave, later.tick(2 * RETRY)) == []
    office.hear(m.SaveFailed("w0", office.task.task, 1, "PipelineError", "no"))
    found = successor_of(office).tick()
    assert (of(e.CheckSave, found), len(of(e.FinishSave, found))) == ([], 1)


def test_nothing_is_published_while_a_folder_is_checked() -> None:
    """A chunk committed during the check is acknowledged and published afterwards, and
    the save does not end before that.
    """
    office = Office()
    office.start()
    office.written(0, 4)
    later = successor_of(office)
    number = later.iteration.iteration
    later.tick()
    found = later.written(4, 6)
    assert (len(of(m.ChunkCommitted, found)), of(e.PublishChunk, found)) == (1, [])
    later.ended(6)
    assert of(e.FinishSave, later.tick()) == []
    second = e.SaveChunk(0, 1, 1, 4, 6, 99)
    assert later.feed(e.SaveChecked(number, streams=1)) == [e.PublishChunk(number, "/a", second)]
    later.feed(e.ChunkPublished(number, second))
    assert len(only(e.FinishSave, later.tick()).chunks) == 2


def test_a_save_that_has_no_chunks_left_to_publish_ends_after_its_check() -> None:
    """A save that had finished without its marker is marked after a restart, once the
    check finds its folder whole.
    """
    office = Office()
    office.start()
    office.ended(0)
    later = successor_of(office)
    assert of(e.FinishSave, later.tick()) == []
    later.feed(e.SaveChecked(later.iteration.iteration))
    assert of(e.FinishSave, later.tick())


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (
            {"conflict": "Found conflict: there is nothing in /a, where a save is running"},
            "there is nothing in /a",
        ),
        ({"streams": 3}, "Found conflict: /a has stream_2, and the save has 1 streams"),
    ],
)
def test_a_conflict_ends_one_save_and_nothing_else(found: dict[str, Any], text: str) -> None:
    """A conflict fails its save for good with the reason and the remedy, the journal
    records it, and other jobs go on.
    """
    office = Office()
    office.start()
    later = successor_of(office)
    number = later.iteration.iteration
    later.tick()
    commands = later.feed(e.SaveChecked(number, **found))
    assert only(e.LogLine, commands).level == "error"
    failed = only(u.FailIterationUpdate, later.updates)
    assert failed.error == "DataLossError"
    assert text in failed.text
    assert "Save again to another path" in failed.text
    finish = only(e.FinishSave, later.tick())
    assert (finish.save_id, finish.error, finish.text) == ("run", "DataLossError", failed.text)
    later.feed(e.SaveFinished(number))
    assert later.updates[-1] == u.EndSaveUpdate(number)
    assert later.feed(e.SaveChecked(number)) == [], "a late answer changes nothing"
    assert of(m.SaveStarted, later.start(structs.replace(ASK, path="/b", save_id="b")))


def test_a_folder_that_is_out_of_reach_is_checked_again() -> None:
    """A file system that does not answer yet ends no save: the dispatcher logs it and
    retries the check later.
    """
    office = Office()
    office.start()
    later = successor_of(office)
    later.tick()
    [note] = later.feed(e.SaveChecked(later.iteration.iteration, error="no route to host"))
    assert note.text == "/a cannot be checked, trying again: no route to host"
    assert of(e.CheckSave, later.tick()) == []
    assert of(e.CheckSave, later.tick(RETRY))


def test_the_facts_of_a_save_can_be_written_down_anew() -> None:
    """The facts written from the state of a save restore its chunks, its failure and
    its end.
    """
    office = Office()
    office.start()
    office.written(0, 4)
    office.written(4, 6)
    office.hear(m.SaveFailed("w0", office.task.task, 1, "PipelineError", "no", b"failure"))
    office.tick()
    office.feed(e.SaveFinished(office.iteration.iteration))
    of_saves = (u.CommitChunkUpdate, u.FailSaveUpdate, u.EndSaveUpdate)
    assert list(updates_of(office.iteration)) == [
        one for one in office.updates if isinstance(one, of_saves)
    ]
    office = Office()
    office.hear(m.OpenIteration("client", m.JobParameters("job", "dataset", "DYNAMIC"), 0))
    assert list(updates_of(office.iteration)) == []
