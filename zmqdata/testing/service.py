"""A service that runs real pipelines in one process on one simulated clock, without
sockets and without waits in real time. The seed decides every run, together with
``PYTHONHASHSEED`` if several workers or readers take part.

The cores, the task runners, the encoding of elements and the iterators are the real
ones. This module adds the shells of dispatcher and workers, and the world that connects
them.
"""

from __future__ import annotations

import itertools
import logging
import platform
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from zmqdata import messages as m
from zmqdata.client.distribute import distribute
from zmqdata.client.registration import Registration, registration_of
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.dispatcher import events as dispatcher_events
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.events import Carriers
from zmqdata.core.worker import events as e
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.profile import WorkerProfile
from zmqdata.dataset import Dataset
from zmqdata.dispatcher.parameters import host_aliases, policy_of, times_of
from zmqdata.dispatcher.savefolders import (
    check_save,
    find_chunks,
    prepare_save,
    publish_chunk,
    write_marker,
)
from zmqdata.dispatcher.status import audits_of, status_of
from zmqdata.errors import BY_NAME, DataServiceError, UnavailableError
from zmqdata.files.filenames import native, portable
from zmqdata.files.paths import whole_path
from zmqdata.machine import installed_version
from zmqdata.storage.listing import matching_names
from zmqdata.testing.clock import Clock
from zmqdata.testing.disk import SimulatedDisk
from zmqdata.testing.network import CALM, Faults, SimulatedNetwork
from zmqdata.testing.nodes import SimulatedDispatcher, SimulatedNode, WorldObserver
from zmqdata.testing.reading import (
    ClockLoop,
    SimulatedDataset,
    SimulatedRegistration,
)
from zmqdata.testing.turns import TURN_SECONDS, GivenTurns, TaskTurns
from zmqdata.transport.addresses import announced_address
from zmqdata.worker.chunks import ChunkThread
from zmqdata.worker.partcache import checked
from zmqdata.worker.processes.watch import WatchFile
from zmqdata.worker.tasks.runner import TaskRunner

log = logging.getLogger(__name__)
AnswerT = TypeVar("AnswerT", bound=m.Message)

DISPATCHER = "dispatcher"
TARGET = "tcp://127.0.0.1:9"
"""Replaces the dispatcher's address. Port 9 discards everything that it receives."""
FIRST_PORT = 40_000
PATIENCE = 60.0
"""Simulated seconds to wait for an answer of the dispatcher."""
AGAIN = 1.0
"""Simulated seconds after which a request is repeated."""


class PlainDispatcher(SimulatedDispatcher):
    """A dispatcher that keeps real pipelines, lists real files and writes real
    saves.
    """

    world: SimulatedService

    def __init__(self, world: SimulatedService, name: str, core: DispatcherCore) -> None:
        self._carriers = Carriers()
        on, kept = self._carriers.on, world.packs
        on(dispatcher_events.PrepareSave, lambda x: self.soon(prepare_save(x)))
        on(dispatcher_events.PublishChunk, lambda x: self.soon(publish_chunk(x)))
        on(dispatcher_events.CheckSave, lambda x: self.soon(check_save(x)))
        on(dispatcher_events.FinishSave, lambda x: self.soon(write_marker(x)))
        on(dispatcher_events.FindFiles, lambda x: self.soon(_listed(x)))
        on(dispatcher_events.FindChunks, lambda x: self.soon(find_chunks(x)))
        on(dispatcher_events.KeepPiece, lambda x: self.soon(_kept(kept, x)))
        on(dispatcher_events.StorePipeline, lambda x: kept.update({x.digest: x.pipeline}))
        on(dispatcher_events.SendPipeline, self._send_pipeline)
        on(dispatcher_events.LogLine, _log)
        super().__init__(world, name, core)

    def carry_out(self, command: dispatcher_events.DispatcherCommand) -> None:
        carrier = self._carriers.get(type(command), super().carry_out)
        carrier(command)

    def _send_pipeline(self, command: dispatcher_events.SendPipeline) -> None:
        parts = {part.digest for part in command.parts}
        content = b"" if command.digest in parts else self.world.packs[command.digest]
        sent = m.PipelineSent(command.dataset_id, command.digest, content, "", command.parts)
        self.world.network.send(self.name, command.peer, sent)


def _kept(
    kept: dict[str, bytes], command: dispatcher_events.KeepPiece
) -> dispatcher_events.PieceKept:
    have = kept.get(command.digest, b"")[: command.offset] + command.content
    kept[command.digest] = have
    return dispatcher_events.PieceKept(command.digest, len(have))


def _listed(command: dispatcher_events.FindFiles) -> dispatcher_events.FilesListed:
    found = tuple(map(portable, matching_names(map(native, command.files.patterns))))
    return dispatcher_events.FilesListed(
        command.iteration, command.source, command.repetition, found
    )


def _log(command: e.LogLine) -> None:
    log.log(logging.getLevelName(command.level.upper()), "%s", command.text)


class InlineChunks(ChunkThread):
    """Writes the chunks of saves without a thread."""

    def _do(self, act: Callable[[], None]) -> None:
        act()

    def die(self) -> None:
        """Close open chunks and leave their files, as the end of a process does."""
        for chunk in self._open.values():
            chunk.file.close()
        self._open.clear()


class PlainWorker(SimulatedNode):
    """A worker that runs real pipelines.

    Args:
        world: the simulated service.
        profile: name, address and settings of the worker.
        pace: simulated seconds that an element takes; a change applies from the next
            turn of a task.

    Attributes:
    """

    core: WorkerCore
    world: SimulatedService

    def __init__(self, world: SimulatedService, profile: WorkerProfile, pace: float) -> None:
        super().__init__(world, profile.address, WorkerCore(profile))
        self.address = profile.address
        self.runners: dict[tuple[int, int], TaskRunner] = {}
        self.turns: dict[tuple[int, int], TaskTurns] = {}
        self.pace = pace
        self._chunks = InlineChunks(self.soon)
        self._carriers = Carriers()
        on = self._carriers.on
        on(e.StartTask, self._start_task)
        on(e.StopTask, self._stop_task)
        on(e.FeedSplits, self._feed_splits)
        on(e.ReturnSplits, lambda x: self._give_back((x.task, x.attempt), x.source))
        on(e.AllowProduction, lambda x: self._runner(x).allow(x.size, x.elements, x.few_bytes))
        on(e.FlushTask, lambda x: self._runner(x).flush())
        on(e.FallQuiet, lambda x: self._fall_quiet())
        on(e.BindLink, self._bind)
        on(e.UnbindLink, lambda x: world.network.unbind(x.link))
        on(e.Push, lambda x: world.network.push(x.link, x))
        on(e.CheckFiles, lambda x: self.soon(checked(x)))
        on(e.ClaimPart, lambda x: self.soon(e.PartClaimed(x.digest, x.size, True)))
        on(e.ReleaseParts, lambda x: None)
        on(e.DropParcels, lambda x: None)
        on(e.WriteBlock, self._chunks.write)
        on(e.CloseChunk, self._chunks.close_chunk)
        on(e.LogLine, _log)

    def num_tasks(self) -> int:
        """Return the number of tasks that the worker hosts."""
        return len(self.core.tasks) if self.alive else 0

    # --- called by tests

    def stop(self) -> None:
        """Hand over finished elements, say goodbye to the dispatcher, and end."""
        with self.world.lock:
            self._fall_quiet()
        self.world.run_until(lambda: not self.core.owes_elements, 5.0)
        self.world.network.send(self.name, DISPATCHER, m.WorkerStopped(self.core.profile.worker))
        self.world.run_until(lambda: False, 0.1)
        self.die()

    def kill(self) -> None:
        """End at once and lose everything, as at SIGKILL."""
        self.die()

    def drain(self, timeout: float = 60.0) -> None:
        """Hand the tasks over to other workers, and return when that is done."""
        self.feed(e.DrainRequested(timeout))
        self.world.run_until(lambda: self.core.draining.done, timeout)

    def die(self) -> None:
        if self.alive:
            with self.world.lock:
                super().die()
                for key, runner in self.runners.items():
                    runner.stop()
                    self.turns[key].finish()
                self._chunks.die()

    # --- commands

    def _fall_quiet(self) -> None:
        for key, runner in list(self.runners.items()):
            runner.hand_over()
            runner.stop()
            self.turns[key].halt()
            for source in range(len(runner.providers)):
                self._give_back(key, source)

    def carry_out(self, command: e.WorkerCommand) -> None:
        carrier = self._carriers.get(type(command), super().carry_out)
        carrier(command)

    def _runner(self, command: e.OfTask) -> TaskRunner:
        return self.runners[command.task, command.attempt]

    def _start_task(self, command: e.StartTask) -> None:
        definition, profile = command.definition, self.core.profile
        turns = TaskTurns(self.world.clock, lambda: self.pace, self.feed, self.world.turn_seconds)
        window = profile.snapshot_chunk_bytes if definition.save_path else profile.cache_bytes
        runner = TaskRunner(
            command,
            turns.post,
            self.address,
            self.world.packs.get,
            window,
            self.world.watch_file,
            GivenTurns(turns),
            lambda: self.world.clock.now,
            turns.work,
        )
        if definition.save_path:
            self._chunks.begin(runner.key, definition.save_path, definition.stream)
        self.runners[runner.key], self.turns[runner.key] = runner, turns
        runner.start()

    def _stop_task(self, command: e.StopTask) -> None:
        key = (command.task, command.attempt)
        runner = self.runners.get(key)
        if runner is not None:
            runner.stop()
            self.turns[key].halt()
        self._chunks.stop(key)

    def _feed_splits(self, command: e.FeedSplits) -> None:
        if command.splits:
            self._runner(command).providers[command.source].feed(command.splits)
            self.turns[command.task, command.attempt].fed()

    def _give_back(self, key: tuple[int, int], source: int) -> None:
        entries, stop, changed = self.runners[key].providers[source].give_back()
        self.feed(e.LedgerCut(*key, source, entries, stop, changed))

    def _bind(self, command: e.BindLink) -> None:
        self.world.network.bind(command.link, self.name)
        self.soon(e.LinkBound(command.link, f"data-of-{self.name}", "secret"))


class SimulatedService:
    """A dispatcher with workers that run real pipelines in simulated time.

    Users of the library test with it what their pipeline means on several workers, and
    what their training loop does when workers, readers or the dispatcher die. Such a
    test takes milliseconds, and its seed repeats it.

    A test reads real elements, encoded and decoded as on a socket, in the order in
    which a training loop receives them. ``next`` advances time until an element
    arrives, and no further, because a simulated training loop takes no time. Each
    element takes its worker ``pace`` simulated seconds. All workers start at the same
    moment, so each gets a share of the elements.

    ``kill`` of an iterator is the death of its training process. A reader that lives
    keeps what it has received, even if no loop takes it, and other readers end without
    those elements.

    Threads that a pipeline starts (prefetch, parallel map) work, but their work takes
    no simulated time. The service does not simulate workers in the training process
    (``target_workers="LOCAL"``), shared memory, pipelines that read from the service
    themselves, or functions in which tasks wait for each other. A test that uses one of
    these raises an error.

    Args:
        workers: number of workers at the start.
        seed: seed of everything that is random.
        pace: simulated seconds that an element takes.
        turn_seconds: real seconds within which functions of a pipeline must return.
        faults: faults of the network.
        journalled: whether the dispatcher has a journal from which it recovers after
            its death.
        worker_options: further fields of ``WorkerConfig``.
        options: fields of ``DispatcherConfig``.

    Example:
        >>> with SimulatedService(workers=2) as service:
        ...     elements = iter(service.read(Dataset.range(200).map(lambda x: x * 2)))
        ...     first = [int(next(elements)) for _ in range(50)]
        ...     service.workers[0].kill()
        ...     rest = [int(element) for element in elements]
        >>> sorted(first + rest) == list(range(0, 400, 2))
        True
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        seed: int = 0,
        pace: float = 0.0002,
        turn_seconds: float = TURN_SECONDS,
        faults: Faults = CALM,
        journalled: bool = False,
        worker_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.seed = seed
        self.pace = pace
        self.turn_seconds = turn_seconds
        self.target = TARGET
        self.config = DispatcherConfig(**options)
        self.random = random.Random(f"{seed}/service")
        self._client_names = random.Random(f"{seed}/clients")
        self.clock = Clock()
        self.network = SimulatedNetwork(self.clock, self.random.getrandbits(32), faults)
        self.observer = self._observe()
        self.disk = SimulatedDisk(self.clock, self.random.getrandbits(32)) if journalled else None
        self.packs: dict[str, bytes] = {}
        self.watch_file = WatchFile()
        self.loops: list[ClockLoop] = []
        self.workers: list[PlainWorker] = []
        # Readers may run in threads, for example behind a prefetch. Only one thread at
        # a time advances the clock.
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._options = worker_options or {}
        self.dispatcher = self._make_dispatcher()
        for _ in range(workers):
            self._make_worker(**self._options)
        self._await_workers()

    def _observe(self) -> WorldObserver:
        return WorldObserver()

    def _make_dispatcher(self) -> PlainDispatcher:
        config = self.config
        core = DispatcherCore(
            self.random.getrandbits(62),
            times_of(config),
            config.worker_addresses,
            host_aliases(config.worker_addresses),
            policy_of(config),
            durable=self.disk is not None,
        )
        return PlainDispatcher(self, DISPATCHER, core)

    # --- called by tests

    def __enter__(self) -> SimulatedService:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End all readers and workers, and the threads of their tasks."""
        for loop in self.loops:
            loop.thread.is_running = False
        for worker in self.workers:
            worker.die()

    def add_worker(self, **options: Any) -> PlainWorker:
        """Add a worker, and wait until the dispatcher has registered it."""
        worker = self._make_worker(**(self._options | options))
        self._await_workers()
        return worker

    def _make_worker(self, **options: Any) -> PlainWorker:
        config = WorkerConfig(dispatcher_address=TARGET, **options)
        number = len(self.workers)
        port = FIRST_PORT + next(self._numbers)
        address = announced_address(config.host, config.worker_address, TARGET, port)
        profile = WorkerProfile(
            worker=f"worker-{number}-{self.random.getrandbits(32):08x}",
            address=f"tcp://{address}",
            tags=config.worker_tags,
            python=platform.python_version(),
            version=installed_version(),
            buffer_bytes=config.buffer_bytes,
            heartbeat=config.heartbeat_interval_ms / 1000,
            dispatcher_timeout=config.dispatcher_timeout_ms / 1000,
            drain_seconds=config.drain_seconds,
            name=config.name or "",
            cache_bytes=config.cross_trainer_cache_size_bytes,
            snapshot_chunk_bytes=config.snapshot_max_chunk_size_bytes,
        )
        worker = PlainWorker(self, profile, self.pace)
        self.workers.append(worker)
        return worker

    def _await_workers(self) -> None:
        self.run_until(lambda: all(one.core.registered for one in self.workers if one.alive), 30.0)

    def restart_dispatcher(self, seconds: float = 0.0) -> None:
        """Kill the dispatcher, and start the next one so many simulated seconds later.
        The new dispatcher recovers from the journal, or starts with an empty state.
        """
        self.dispatcher.die()
        if self.disk is None:
            self.observer.forget()

        def begin() -> None:
            self.dispatcher = self._make_dispatcher()

        self.clock.after(seconds, begin)

    def at(self, seconds: float, call: Callable[[], object]) -> None:
        """Call a function so many simulated seconds from now."""
        self.clock.after(seconds, call)

    def run_until(self, condition: Callable[[], object], seconds: float) -> bool:
        """Advance time until the condition holds. Return False if it does not hold
        within so many simulated seconds.
        """
        end = self.clock.now + seconds
        while not condition():
            if self.clock.now >= end:
                return False
            with self.lock:
                self.clock.run_next()
        return True

    # --- reading

    def read(
        self, dataset: Dataset, processing_mode: Any = "distributed_epoch", **options: Any
    ) -> Dataset:
        """Return the dataset as this service runs it. The options are the options of
        ``distribute``.
        """
        return dataset.apply(self.distribute(processing_mode, **options))

    def distribute(self, processing_mode: Any, **options: Any) -> Callable[[Dataset], Dataset]:
        """Return a function for ``Dataset.apply``, as ``zmqdata.distribute`` does."""
        apply_distribute = distribute(processing_mode, TARGET, **options)
        return lambda dataset: self._simulated(apply_distribute(dataset))

    def save(
        self,
        dataset: Dataset,
        path: str,
        compression: str | None = "AUTO",
        on_poison: str = "fail",
    ) -> None:
        """Have the workers write a dataset to files, as ``zmqdata.distributed_save``
        does. The dispatcher needs a journal.
        """
        made = registration_of(dataset.node, TARGET, compression, PATIENCE, ())
        dataset_id = self._registration(made).register(None)
        run = f"{self.random.getrandbits(64):016x}"
        request, place = self.new_request(), whole_path(path)
        ask = m.StartSave(request, dataset_id, place, run, compression, on_poison, None)
        self.ask(ask, m.SaveStarted)

    def _registration(self, made: Registration) -> SimulatedRegistration:
        return SimulatedRegistration(
            made.service,
            made.timeout,
            made.description,
            made.packed,
            made.dataset_id,
            made.node,
            made.sources,
            world=self,
        )

    def _simulated(self, dataset: Dataset) -> Dataset:
        node: Any = dataset.node
        if node.options.is_local or node.placing is not None:
            raise ValueError(
                "A simulated service has no workers in the process of the training "
                "loop, and does not decide where a pipeline runs. Leave out "
                "`target_workers='LOCAL'` and `placement='auto'`, or use a "
                "`LocalCluster`."
            )
        registration = self._registration(node.registration)
        return Dataset(
            SimulatedDataset(
                run=node.run,
                registration=registration,
                options=node.options,
                original=node.original,
                element_spec=node.element_spec,
                world=self,
            )
        )

    # --- asking

    def new_request(self) -> str:
        """Return a name for a new request."""
        return f"request-{next(self._numbers)}"

    def new_client(self) -> str:
        """Return a name for a new client, which depends on the seed."""
        return f"{self._client_names.getrandbits(128):032x}"

    def ask(
        self,
        ask: m.Message,
        answer: type[AnswerT],
        reply: Callable[[m.Message], Sequence[m.Message]] = lambda message: (),
        timeout: float = PATIENCE,
    ) -> AnswerT:
        """Send a request to the dispatcher, and advance time until it answers.

        Raises:
            UnavailableError: the dispatcher has not answered in time.
            DataServiceError: the dispatcher refuses; the class is the one that the
                refusal names.
        """
        name = m.request_of(ask)
        found: list[Any] = []

        def hear(peer: object, message: Any) -> None:
            if isinstance(message, (answer, m.RequestRefused)):
                found.append(message)
            else:
                for one in reply(message):
                    self.network.send(name, DISPATCHER, one)

        self.network.join(name, hear)
        deadline = self.clock.now + timeout
        while not found and self.clock.now < deadline:
            self.network.send(name, DISPATCHER, ask)
            self.run_until(lambda: found, AGAIN)
        self.network.leave(name)
        if not found:
            raise UnavailableError(f"The simulated dispatcher has not answered for {timeout:g} s.")
        if isinstance(found[0], m.RequestRefused):
            raise BY_NAME.get(found[0].error, DataServiceError)(found[0].text)
        told: AnswerT = found[0]
        return told

    def status(self) -> dict[str, Any]:
        """Return the status of the dispatcher, as ``client.calls.status`` does."""
        core, now = self.dispatcher.core, self.clock.now
        shown = msgspec.json.encode(status_of(core, now, TARGET, self.config, Counter()))
        found: dict[str, Any] = msgspec.json.decode(shown)
        return found

    def audit(self, job: str) -> list[dict[str, Any]]:
        """Return the record of a job's splits and elements, as ``zmqdata.audit``
        does.
        """
        shown = msgspec.json.encode(audits_of(self.dispatcher.core, job))
        found: list[dict[str, Any]] = msgspec.json.decode(shown)
        return found
