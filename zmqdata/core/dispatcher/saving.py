"""Distributed saves: the part of the dispatcher core that starts, counts and ends saves
of datasets to files.

A save is an iteration in DYNAMIC mode without clients. Its tasks are streams of chunks.
A chunk that a worker has written counts from the moment at which the dispatcher commits
it. Only then does it get the name under which it is read. A task that moves to another
worker continues after its last committed chunk, so no element is saved twice.

A save may be read while it is written. The chunks that were found for its readers are
durable facts, as the splits of any source.

Decisions 0014 and 0037; protocol 5.10 and 10.1 to 10.8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from msgspec.structs import replace

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.readers.admission import Objection, of_poison
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration, SavedChunk, Task
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.limits import MOST_JOBS, too_long, too_many
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import (
    BY_NAME,
    AlreadyExistsError,
    DataLossError,
    DataServiceError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
    ResourceExhaustedError,
    UnimplementedError,
)
from zmqdata.splits import ChunkSplits, chunk_number

STAFF_INTERVAL = 0.5
"""Seconds between two searches for workers of streams without a host."""
RETRY = 5.0
"""Seconds before a failed check, marker or poll is tried again."""
POLL_INTERVAL = 0.5
"""Seconds between two looks for chunks in the folder of a save that is read."""
CHANGED = (
    "While the dispatcher was down, its folder was removed or changed, or its disk "
    "was not mounted again. Save again to another path, and leave its folder alone until "
    "the save is done"
)


Place = tuple[int, int, int]
"""Iteration, source and repetition."""


def job_of(path: str) -> str:
    """Return the name of the job that saves to a path."""
    return f"distributed_save to {path}"


@dataclass
class SaveEnding:
    """The state of a running save that is not durable."""

    unpublished: set[e.SaveChunk] = field(default_factory=set)
    """Committed chunks that have no final name yet."""
    due: float = 0.0
    """Earliest time to request the marker; infinite while it is being written."""
    check_due: float | None = None
    """Earliest time to request a check of the folder; infinite while it runs, None once
    it is done or if none is needed.
    """


class Saves:
    """Starts, counts and ends saves.

    Args:
        out: state and commands.
        hosting: assigns streams to workers.
        durable: True if committed facts survive a restart of the dispatcher. Otherwise
            every save is refused.
    """

    def __init__(self, out: Outbox, hosting: Hosting, durable: bool) -> None:
        self.out = out
        self.hosting = hosting
        self.durable = durable
        self._preparing: dict[str, tuple[Peer, m.StartSave]] = {}
        self._endings: dict[int, SaveEnding] = {}
        self._tried: dict[tuple[int, int], str] = {}
        """Why a worker could not write a chunk, by task and first element."""
        self._staffed = 0.0

    # --- a save begins

    def start(self, peer: Peer, ask: m.StartSave, now: float) -> None:
        """Request the folder of a save, unless the save must be refused."""
        incarnation = self.out.state.newest_of(job_of(ask.path))
        existing = None if incarnation is None else incarnation.job
        if (
            existing is not None
            and existing.save is not None
            and existing.save.save_id == ask.save_id
        ):
            self.out.send(peer, m.SaveStarted(ask.request))
            return
        objection = self._objection(ask)
        preparing = self._preparing.get(ask.path)
        if preparing is not None and preparing[1].save_id == ask.save_id:
            self._preparing[ask.path] = (peer, ask)
        elif objection is not None or existing is not None or preparing is not None:
            error, text = objection or (AlreadyExistsError, _already(ask.path))
            self.out.refuse(peer, ask.request, error, text)
        else:
            self._preparing[ask.path] = (peer, ask)
            dataset = self.out.state.datasets[ask.dataset_id]
            command = e.PrepareSave(
                ask.path, ask.save_id, ask.compression, dataset.element_spec, dataset.cardinality
            )
            self.out.commands.append(command)

    def _objection(self, ask: m.StartSave) -> Objection | None:
        if not self.durable:
            return InvalidArgumentError, (
                "Saving a distributed snapshot requires running tf.data service in "
                "the fault tolerant mode. Start the dispatcher with --work-dir "
                "FOLDER (in Python: DispatcherConfig(work_dir=...))"
            )
        objection = of_poison(ask.on_poison)
        if objection is not None:
            return objection
        # A save is a job, and counts towards the limit as soon as its folder is
        # requested.
        if long := too_long({"name of a job": job_of(ask.path)}):
            return InvalidArgumentError, long
        if many := too_many("jobs", len(self.out.state.living) + len(self._preparing), MOST_JOBS):
            return ResourceExhaustedError, many
        dataset = self.out.state.datasets.get(ask.dataset_id)
        if dataset is None:
            return NotFoundError, f"Dataset id {ask.dataset_id} not found."
        if dataset.cardinality == INFINITE_CARDINALITY:
            return (
                InvalidArgumentError,
                "Saving an infinite dataset is not allowed: limit it with take(n)",
            )
        if dataset.sources is None:
            return UnimplementedError, dataset.unsplittable
        return None

    def prepared(self, event: e.SavePrepared, now: float) -> None:
        """Create the job of a save and assign its streams to workers, now that its
        folder exists.
        """
        peer, ask = self._preparing.pop(event.path)
        error, text = event.error, event.text
        if not error and ask.dataset_id not in self.out.state.datasets:
            error, text = NotFoundError.__name__, f"Dataset id {ask.dataset_id} not found."
        if error:
            self.out.refuse(peer, ask.request, BY_NAME.get(error, DataServiceError), text)
            return
        save = m.SaveParameters(ask.path, ask.save_id)
        job = m.JobParameters(
            job_of(ask.path),
            ask.dataset_id,
            "DYNAMIC",
            target_workers="ANY",
            compression=ask.compression,
            save=save,
            on_poison=ask.on_poison,
            task_timeout=ask.task_timeout,
        )
        incarnation, number = self.out.state.next_incarnation, self.out.state.next_iteration
        self.out.commit(u.BeginIncarnationUpdate(incarnation, job))
        seed = self.out.derive_seed(number)
        self.out.commit(u.CreateIterationUpdate(number, incarnation, 0, seed))
        self.out.note_begin(self.out.state.iterations[number], "begins; workers get its streams")
        self.hosting.staff(self.out.state.iterations[number])
        self.out.send(peer, m.SaveStarted(ask.request))

    # --- chunks

    def chunk_written(self, peer: Peer, message: m.ChunkWritten, now: float) -> None:
        """Commit and publish a chunk if it is the next chunk of the current attempt.
        Acknowledge committed chunks.
        """
        task = self._current(peer, message)
        if task is None:
            return
        counted = len(task.delivered)
        if message.stop > counted:
            if (
                message.first != counted
                or (task.total is not None and message.stop > task.total)
                or message.size < 0
            ):
                return
            self._commit(task, message)
        self.out.send(peer, m.ChunkCommitted(task.task, task.attempt, message.stop))

    def _current(self, peer: Peer, message: m.ChunkWritten | m.SaveFailed) -> Task | None:
        """Return the task that a worker reports on. If the worker does not host it any
        more, tell it to drop the task and return None.
        """
        task = self.out.state.tasks.get(message.task)
        if (
            task is not None
            and not task.removed
            and (task.worker, task.attempt) == (message.worker, message.attempt)
            and self.out.state.iterations[task.iteration].saving is not None
        ):
            return task
        self.out.send(peer, m.DropTask(message.task, message.attempt))
        return None

    def _commit(self, task: Task, message: m.ChunkWritten) -> None:
        self.out.commit(
            u.CommitChunkUpdate(
                task.task,
                attempt=message.attempt,
                first=message.first,
                stop=message.stop,
                size=message.size,
                spec=message.spec,
            )
        )
        iteration = self.out.state.iterations[task.iteration]
        chunk = _described(task, len(task.chunks) - 1, task.chunks[-1])
        ending = self._ending(iteration)
        ending.unpublished.add(chunk)
        if ending.check_due is None:  # the check would take the chunk for an uncommitted one
            self.out.commands.append(e.PublishChunk(iteration.iteration, _path(iteration), chunk))
        if task.settled:
            self.hosting.settle(task)

    def published(self, event: e.ChunkPublished, now: float) -> None:
        """Record that a chunk can be read. A chunk that cannot be published is lost,
        and the save fails.
        """
        iteration = self.out.state.iterations.get(event.iteration)
        if iteration is None:
            return
        self._ending(iteration).unpublished.discard(event.chunk)
        if event.error:
            self._fail(
                iteration,
                BY_NAME.get(event.kind, DataLossError),
                f"the dispatcher could not publish a chunk of {_path(iteration)}: {event.error}",
            )

    # --- a save ends

    def failed(self, peer: Peer, message: m.SaveFailed, now: float) -> None:
        """Fail a save because of an element that cannot be produced or written. A chunk
        that a worker cannot write is tried once on another worker.
        """
        task = self._current(peer, message)
        if task is None:
            return
        iteration = self.out.state.iterations[task.iteration]
        text = message.text or f"an element of stream {task.index} could not be produced"
        if message.failure:
            self.out.commit(u.FailSaveUpdate(iteration.iteration, message.failure))
        elif message.error != InvalidArgumentError.__name__:  # no element is at fault
            text = self._moved(task, iteration, text)
        if text:
            self._fail(iteration, BY_NAME.get(message.error, PipelineError), text)

    def _moved(self, task: Task, iteration: Iteration, text: str) -> str:
        """Move a stream that its worker cannot write to another worker. Return why the
        save has failed instead; "" if the stream moves.
        """
        facts = self.hosting.facts
        host = facts.get(task.worker)
        text = f"worker {task.worker if host is None else host.address} {text}"
        if host is not None:
            host.unwritable.add(iteration.iteration)
        chunk = task.task, len(task.delivered)
        tried = self._tried.pop(chunk, "")
        able = [one for one in facts if self.hosting.placement.takes_tasks(one, iteration)]
        if tried or not able:
            remedy = "Free or mount its disk, and save again to another path"
            return f"{text}. {remedy}" + (f". Before that, {tried}" if tried else "")
        self._tried[chunk] = text
        self.out.note("warning", f"{text}. Another worker tries it once", iteration)
        self.hosting.fence(task)
        return ""

    def _fail(self, iteration: Iteration, error: type[Exception], text: str) -> None:
        if (
            iteration.failure is None
            and iteration.saving is not None
            and not iteration.saving.ended
        ):
            self.hosting.fail(iteration, error.__name__, text)

    def tick(self, now: float) -> None:
        """Find workers for streams, and request the markers of saves that have
        ended.
        """
        staff = now - self._staffed >= STAFF_INTERVAL
        self._staffed = now if staff else self._staffed
        for iteration in self._running():
            ending = self._ending(iteration)
            checked = ending.check_due is None
            over = iteration.failure is not None or (
                iteration.finished and not ending.unpublished and checked
            )
            if ending.check_due is not None and now >= ending.check_due and not over:
                ending.check_due = inf
                self.out.commands.append(self._check(iteration))
            if over and now >= ending.due:
                ending.due = inf
                self.out.commands.append(self._finish(iteration))
            elif staff and not over:
                self.hosting.staff(iteration)

    def unfinished(self) -> list[str]:
        """Return the paths of the saves in progress."""
        return [_path(iteration) for iteration in self._running()]

    def _running(self) -> Iterator[Iteration]:
        for iteration in list(self.out.state.iterations.values()):
            if iteration.saving is not None and not iteration.saving.ended:
                yield iteration

    def _finish(self, iteration: Iteration) -> e.FinishSave:
        job, saving = iteration.job, iteration.saving
        assert job.save is not None
        assert saving is not None
        finish = e.FinishSave(iteration.iteration, job.save.path, job.save.save_id, job.compression)
        if iteration.failure is not None:
            error, text = iteration.failure.error, iteration.failure.text
            return replace(finish, error=error, text=text, failure=saving.failure)
        chunks = sorted(_chunks(iteration), key=lambda chunk: (chunk.number, chunk.stream))
        return replace(finish, chunks=tuple(chunks), specs=tuple(saving.specs))

    def finished(self, event: e.SaveFinished, now: float) -> None:
        """Record that a save has its marker. A marker that could not be written is
        requested again later.
        """
        iteration = self.out.state.iterations.get(event.iteration)
        if iteration is None or iteration.saving is None or iteration.saving.ended:
            return
        if event.error:
            self._ending(iteration).due = now + RETRY
            self.out.note(
                "error",
                f"the save to {_path(iteration)} cannot be completed, trying again: {event.error}",
                iteration,
            )
            return
        self.out.commit(u.EndSaveUpdate(event.iteration))
        for chunk in [chunk for chunk in self._tried if chunk[0] in iteration.tasks]:
            del self._tried[chunk]
        self._endings.pop(event.iteration, None)
        if iteration.failure is None:
            self.out.note_end(iteration, "is done")

    # --- a dispatcher begins anew

    def resume(self) -> None:
        """Request a check of the folder of each running save, in the background: a
        folder may be slow or missing.
        """
        for iteration in self._running():
            self._ending(iteration).check_due = 0.0

    def _check(self, iteration: Iteration) -> e.CheckSave:
        save = iteration.job.save
        assert save is not None
        return e.CheckSave(iteration.iteration, save.path, save.save_id, tuple(_chunks(iteration)))

    def checked(self, event: e.SaveChecked, now: float) -> None:
        """Continue a save whose folder is unchanged. Fail it if the folder has been
        changed.
        """
        iteration = self.out.state.iterations.get(event.iteration)
        if iteration is None or iteration.saving is None or iteration.saving.ended:
            return
        ending, path = self._ending(iteration), _path(iteration)
        if event.error:
            ending.check_due = now + RETRY
            text = f"{path} cannot be checked, trying again: {event.error}"
            self.out.note("error", text, iteration)
            return
        ending.check_due = None
        conflict = event.conflict
        if event.streams > len(iteration.tasks):
            there, known = f"stream_{event.streams - 1}", len(iteration.tasks)
            conflict = f"Found conflict: {path} has {there}, and the save has {known} streams"
        if conflict:
            self._fail(iteration, DataLossError, f"{conflict}. {CHANGED}")
        elif iteration.failure is None:
            chunks = sorted(ending.unpublished, key=lambda chunk: (chunk.stream, chunk.number))
            self.out.commands += [
                e.PublishChunk(iteration.iteration, path, chunk) for chunk in chunks
            ]

    def _ending(self, iteration: Iteration) -> SaveEnding:
        return self._endings.setdefault(iteration.iteration, SaveEnding())


def _path(iteration: Iteration) -> str:
    assert iteration.job.save is not None
    return iteration.job.save.path


def _already(path: str) -> str:
    return f"A save to {path} is already started or completed. Choose another path"


def _described(task: Task, number: int, chunk: SavedChunk) -> e.SaveChunk:
    return e.SaveChunk(task.index, number, chunk.attempt, chunk.first, chunk.stop, chunk.size)


def _chunks(iteration: Iteration) -> Iterator[e.SaveChunk]:
    for task in iteration.tasks.values():
        for number, chunk in enumerate(task.chunks):
            yield _described(task, number, chunk)


# --- a save is read while it is written


@dataclass
class ChunkPoll:
    """The state of the looks for chunks of a save, for a repetition of a source."""

    known: set[int]
    """Numbers of the chunks that tasks were given, or can be given."""
    seen: set[str] = field(default_factory=set)
    """Names of the chunks that were found."""
    fresh: list[str] = field(default_factory=list)
    """Names of the chunks that were found last, and that no task can be given yet."""
    due: float = 0.0
    """Earliest time of the next poll; infinite during a poll."""
    asks: dict[int, tuple[Peer, m.RequestSplits]] = field(default_factory=dict)
    """Requests that wait for further chunks, by task."""

    def add(self, names: Iterable[str]) -> str:
        """Add the chunks that a poll has found. Return the name of a chunk that cannot
        be a split; "" if all can be.
        """
        for name in names:
            if name in self.seen:
                continue
            self.seen.add(name)
            number = chunk_number(name)
            if number is None:
                return name
            if number not in self.known:
                self.known.add(number)
                self.fresh.append(name)
        return ""


class GrowingSaves:
    """Looks for further chunks of saves, and answers the tasks that wait for them.

    Args:
        out: state and commands.
        hosting: ends an iteration whose save has failed.
        grant: answers a request with a chunk or the end mark, or lets it wait.
    """

    def __init__(
        self,
        out: Outbox,
        hosting: Hosting,
        grant: Callable[[Peer, m.RequestSplits, float], None],
    ) -> None:
        self.out = out
        self.hosting = hosting
        self._grant = grant
        self._polls: dict[Place, ChunkPoll] = {}

    def wait(self, peer: Peer, ask: m.RequestSplits, iteration: Iteration, now: float) -> None:
        """Let a request wait for a further chunk, or for the end of the save."""
        place = (iteration.iteration, ask.source, ask.repetition)
        poll = self._polls.get(place)
        if poll is None:
            poll = self._polls[place] = ChunkPoll(_known(iteration, ask.source, ask.repetition))
        poll.asks[ask.task] = (peer, ask)
        if poll.due <= now:
            self._poll(place, iteration)

    def _poll(self, place: Place, iteration: Iteration) -> None:
        source = iteration.cursors[place[1]].source
        assert isinstance(source, ChunkSplits)
        self._polls[place].due = inf
        self.out.commands.append(
            e.FindChunks(iteration=place[0], source=place[1], repetition=place[2], chunks=source)
        )

    def found(self, event: e.ChunksFound, now: float) -> None:
        """Keep the chunks that are new, and answer the requests that wait. The
        iteration fails if its save has failed.
        """
        place = (event.iteration, event.source, event.repetition)
        iteration, poll = self.out.state.iterations.get(event.iteration), self._polls.get(place)
        if iteration is None or iteration.failure is not None or poll is None:
            self._polls.pop(place, None)
            return
        if event.error:
            self.hosting.fail(iteration, event.error, event.text, event.failure)
        elif event.text:
            self.out.note(
                "warning",
                f"cannot look for chunks of job {iteration.job.name}, trying again in "
                f"{RETRY:g} s: {event.text}",
                iteration,
            )
            poll.due = now + RETRY
        elif impossible := poll.add(event.names):
            text = (
                f"The save that job {iteration.job.name} reads has the chunk {impossible}, whose "
                "numbers are beyond the limits. Wait until the save is complete, and load it "
                "without wait=True"
            )
            self.hosting.fail(iteration, DataLossError.__name__, text)
        else:
            self._tell(event, poll, now)

    def _tell(self, event: e.ChunksFound, poll: ChunkPoll, now: float) -> None:
        fresh, poll.fresh = tuple(poll.fresh), []
        poll.due = now + POLL_INTERVAL
        if event.more and not fresh:
            return
        place = (event.iteration, event.source, event.repetition)
        self.out.commit(
            u.ListFilesUpdate(
                event.iteration, event.source, event.repetition, names=fresh, more=event.more
            )
        )
        if not event.more:
            del self._polls[place]
        asks, poll.asks = poll.asks, {}
        for peer, ask in asks.values():
            self._grant(peer, ask, now)

    def tick(self, now: float) -> None:
        """Look again where tasks wait, and forget what is over."""
        for place, poll in list(self._polls.items()):
            iteration = self.out.state.iterations.get(place[0])
            if iteration is None or iteration.failure is not None:
                del self._polls[place]
                continue
            poll.asks = {
                task: (peer, ask)
                for task, (peer, ask) in poll.asks.items()
                if task in iteration.tasks and iteration.tasks[task].attempt == ask.attempt
            }
            if poll.asks and poll.due <= now:
                self._poll(place, iteration)


def _known(iteration: Iteration, source: int, repetition: int) -> set[int]:
    """Return the numbers of the chunks that tasks were given, or can be given."""
    spent = iteration.spent[source].repetitions.get(repetition, ())
    known = {number for first, stop in spent for number in range(first, stop)}
    splits = list(iteration.cursors[source].returned)
    for task in iteration.tasks.values():
        splits += [split for split in task.ledger[source].entries if not split.is_end]
    known.update(split.start for split in splits if split.repetition == repetition)
    return known
