"""A program that saves: workers save everything to a simulated disk, without readers,
and any process may die.

The dispatcher keeps what it has committed, so it can continue after its own death.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

from tests.kit.dispatcher import DATASET
from tests.kit.runner import Name
from tests.kit.scenario import DEADLY, Kind, Program, Scenario, from_poison
from tests.kit.world import DISPATCHER, SimulatedWorker, World
from zmqdata import messages as m
from zmqdata.core.dispatcher import events as dispatcher_events
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.worker import events as worker_events
from zmqdata.testing.nodes import SimulatedDispatcher

PATH = "/save"
RUN = "run"


class SavedFolder:
    """The folder of a save: written chunks, published chunks, and the marker."""

    def __init__(self, world: SavingWorld) -> None:
        self.world = world
        self.run = ""
        self.written: dict[tuple[int, int, int], tuple[Name, ...]] = {}
        self.chunks: dict[tuple[int, int], tuple[Name, ...]] = {}
        self.marker = ""
        self.error = ""
        self.manifest: tuple[dispatcher_events.SaveChunk, ...] = ()
        self._ended_by: object = None

    def prepare(self, command: dispatcher_events.PrepareSave) -> dispatcher_events.SavePrepared:
        """Make the folder, once."""
        if self.run not in ("", command.save_id):
            return dispatcher_events.SavePrepared(
                command.path, command.save_id, "AlreadyExistsError", "already started or completed"
            )
        self.run = command.save_id
        return dispatcher_events.SavePrepared(command.path, command.save_id)

    def publish(self, chunk: dispatcher_events.SaveChunk) -> None:
        """Move a chunk to its final name. Idempotent."""
        place = (chunk.stream, chunk.number)
        if place in self.chunks:
            return
        names = self.written.pop((chunk.stream, chunk.attempt, chunk.first), None)
        if names is None or len(names) != chunk.stop - chunk.first:
            self.world.laws.fail(f"chunk {chunk} is committed and missing: {names}")
        self.chunks[place] = names

    def publish_committed(
        self, command: dispatcher_events.PublishChunk
    ) -> dispatcher_events.ChunkPublished:
        """Publish a chunk that the dispatcher has committed."""
        self.publish(command.chunk)
        return dispatcher_events.ChunkPublished(command.iteration, command.chunk)

    def check(self, command: dispatcher_events.CheckSave) -> dispatcher_events.SaveChecked:
        """Publish what a former dispatcher had not. Everything published must be
        committed by then.
        """
        strange = self.chunks.keys() - {(one.stream, one.number) for one in command.chunks}
        if strange:
            text = f"{sorted(strange)} are published, but not committed by the dispatcher"
            self.world.laws.fail(text)
        for chunk in command.chunks:
            self.publish(chunk)
        streams = max((one[0] for one in self.written), default=-1) + 1
        return dispatcher_events.SaveChecked(command.iteration, streams)

    def finish(self, command: dispatcher_events.FinishSave) -> dispatcher_events.SaveFinished:
        """Write the marker.

        Only another dispatcher, which may not know of the marker, may write it again,
        with the same content.
        """
        ending = ("ERROR" if command.error else "DONE", command.chunks, self.world.dispatcher)
        is_same = ending[:2] == (self.marker, self.manifest)
        if self.marker and (not is_same or self._ended_by is ending[2]):
            self.world.laws.fail(f"the save ended as {self.marker}, and again: {command}")
        self.marker, self.manifest, self._ended_by = ending
        self.error = command.text
        return dispatcher_events.SaveFinished(command.iteration)


class SavingDispatcher(SimulatedDispatcher):
    """A dispatcher that keeps the folder of a save beside its journal."""

    world: SavingWorld

    def carry_out(self, command: Any) -> None:
        folder = self.world.folder
        acts: dict[type, Callable[[Any], Any]] = {
            dispatcher_events.PrepareSave: folder.prepare,
            dispatcher_events.PublishChunk: folder.publish_committed,
            dispatcher_events.CheckSave: folder.check,
            dispatcher_events.FinishSave: folder.finish,
        }
        act = acts.get(type(command))
        if act is None:
            super().carry_out(command)
            return

        def do() -> None:
            if self.alive:
                self.soon(act(command))

        self.world.clock.after(self.random.uniform(0.0, 0.3), do)


class SavingWorker(SimulatedWorker):
    """A worker with a disk, to which it writes in the order of its commands."""

    world: SavingWorld

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.core.writing.chunk_bytes = self.random.choice([1, 3_000, 50_000, 1 << 30])
        self._open: dict[tuple[int, int], list[Name]] = {}
        self._busy_until = 0.0
        self._queue: deque[Any] = deque()

    def carry_out(self, command: Any) -> None:
        if not isinstance(command, worker_events.WriteBlock | worker_events.CloseChunk):
            super().carry_out(command)
            return
        self._queue.append(command)
        clock, seconds = self.world.clock, self.random.uniform(0.0, 0.02)
        self._busy_until = max(self._busy_until, clock.now) + seconds
        clock.after(self._busy_until - clock.now, self._write)

    def _write(self) -> None:
        command = self._queue.popleft()
        if not self.alive:
            return
        key = (command.task, command.attempt)
        if isinstance(command, worker_events.WriteBlock):
            self._open.setdefault(key, []).extend(command.frames)
            self.feed(worker_events.BlockWritten(*key, command.size))
            return
        names = tuple(self._open.pop(key))
        task = self.core.tasks.get(command.task)
        if task is None or task.key != key:
            return
        self.world.folder.written[task.definition.stream, command.attempt, command.chunk] = names
        self.feed(worker_events.ChunkClosed(*key, command.chunk, command.stop, len(names), b"spec"))


class Saver:
    """A client that requests a save until it hears that the save has begun."""

    def __init__(self, world: World, run: str = RUN) -> None:
        self.world = world
        self.run = run
        self.name = f"saver-{run}"
        self.outcome = ""
        world.network.join(self.name, self.receive)
        self._ask()

    def _ask(self) -> None:
        if not self.outcome:
            rule = self.world.job.on_poison
            ask = m.StartSave(self.name, DATASET, PATH, self.run, on_poison=rule)
            self.world.network.send(self.name, DISPATCHER, ask)
            self.world.clock.after(1.0, self._ask)

    def receive(self, sender: Hashable, message: Any) -> None:
        """Take the answer."""
        if isinstance(message, m.SaveStarted):
            self.outcome = "started"
        elif isinstance(message, m.RequestRefused):
            self.outcome = message.error


class SavingWorld(World):
    """A dispatcher with a journal, and workers that save.

    Args:
        options: those of ``World``.

    Example:
        >>> from tests.kit.runner import SimulatedPipeline
        >>> world = SavingWorld(seed=1, pipeline=SimulatedPipeline(splits=20))
        >>> worker, saver = world.add_worker(), Saver(world)
        >>> world.save_until_marked()
        >>> is_whole = len(world.saved) == len(world.pipeline.names())
        >>> saver.outcome, world.folder.marker, is_whole
        ('started', 'DONE', True)
    """

    worker_node = SavingWorker
    dispatcher_node = SavingDispatcher

    def __init__(self, *args: Any, **options: Any) -> None:
        self.folder = SavedFolder(self)
        super().__init__(*args, **{"journalled": True, **options})

    @property
    def saved(self) -> list[Name]:
        """All published elements."""
        return [name for names in self.folder.chunks.values() for name in names]

    def save_until_marked(self, patience: float = 400.0) -> None:
        """Let time pass until the save has ended. Each of many small chunks on a slow
        disk takes half a second.
        """
        ends, published = self.clock.now + patience, len(self.folder.chunks)
        while not self.folder.marker:
            if len(self.folder.chunks) > published:
                ends, published = self.clock.now + patience, len(self.folder.chunks)
            if self.clock.now > ends:
                self.laws.fail(f"nothing was saved for {patience:g} s, but the save has not ended")
            self.clock.run_next()

    def check_saved(self) -> None:
        """Check that everything was saved exactly once and is in the manifest, or that
        the save failed.
        """
        everything = self.laws.without_slips(self.laws.state.tasks, self.pipeline.names())
        fails = any(map(self.pipeline.is_failure, everything))
        is_poisoned = bool(self.pipeline.poison()) and self.job.on_poison == "fail"
        wanted = "ERROR" if fails or is_poisoned else "DONE"
        if self.folder.marker != wanted:
            self.laws.fail(f"the marker is {self.folder.marker}, expected {wanted}")
        if is_poisoned and not fails and "came to map(f)" not in self.folder.error:
            self.laws.fail(f"the error does not name the element: {self.folder.error}")
        may_lack = everything if wanted == "ERROR" else ()
        self.laws.check_same(Counter(self.saved), everything, may_lack)
        named = {(one.stream, one.number) for one in self.folder.manifest}
        chunks = self.folder.chunks.keys()
        if wanted == "DONE" and named != chunks:
            self.laws.fail(f"the manifest names {named}, but the folder contains {list(chunks)}")

    def check_journal(self) -> None:
        """Check that the journal alone says that the save has ended, and what it
        contains.
        """
        state = DispatcherState()
        assert self.disk is not None
        self.disk.read(state.apply)
        [iteration] = state.iterations.values()
        if iteration.saving is None or not iteration.saving.ended:
            self.laws.fail("the journal does not say that the save has ended")


class SavingProgram(Program):
    """A save that must end with everything on disk."""

    world: SavingWorld

    def start_save(self, number: int) -> None:
        """Request the save."""
        Saver(self.world)

    def kill_dispatcher(self) -> None:
        """Kill the dispatcher and start another."""
        self.world.laws.tell(DISPATCHER, "is killed")
        self.world.restart_dispatcher(self.random.choice([0.0, 0.5, 3.0]))

    def end(self) -> None:
        """Check the content of the disk once the save has ended."""
        world = self.world
        world.save_until_marked()
        # Workers that were cut off have to come back before they hear that nothing is
        # left to do.
        world.clock.advance(40.0)
        world.check_saved()
        world.check_journal()
        for worker in world.workers:
            if worker.alive and worker.core.tasks:
                world.laws.fail(f"{worker.name} still has {list(worker.core.tasks)}")
        again = Saver(world, "another run")
        world.clock.advance(5.0)
        if again.outcome != "AlreadyExistsError":
            world.laws.fail(f"a second save to the path: {again.outcome or 'no answer'}")


SAVING = Kind(
    draws=({"mode": "DYNAMIC", "fails": (0, 0, 0, 9), "faults": Scenario.draw_faults},),
    joining={
        "start_save": (1, (0.0, 0.5)),
        "add_worker": ((1, 2, 3, 4, 5), (0.0, 0.0, 0.0, 5.0)),
    },
    misfortunes="add_worker kill_worker*3 leave_worker cut_worker kill_dispatcher*2 worsen",
    program=SavingProgram,
    cluster=SavingWorld,
)
"""A save."""
SAVING_POISON = replace(
    SAVING,
    draws=(
        *SAVING.draws,
        DEADLY,
        {"on_poison": lambda scene: from_poison(scene, "fail", "skip", "skip")},
    ),
)
"""A save of a pipeline of which some elements kill the worker that produces them. They
are skipped, or the save fails and names such an element.
"""
