"""The dispatcher's decider: what to answer, which worker gets which tasks, and
which peers are given up. It uses no socket and no clock.

This module routes events and advances time. Beside it, ``tasks`` deals with workers,
``readers`` with clients and jobs, ``passes`` with what a client reads of a job, and
``peers`` with who lives.

Protocol 4.1, 4.4, 4.6, 4.8 and 4.9.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import filterfalse

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.config.checks import MOST_CHARACTERS
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.datasets import Datasets
from zmqdata.core.dispatcher.peers.lease import MOST_ASKING
from zmqdata.core.dispatcher.peers.liveness import Beats, Roster
from zmqdata.core.dispatcher.peers.worker_addresses import WorkerAddresses, names_of
from zmqdata.core.dispatcher.readers.admission import lacking
from zmqdata.core.dispatcher.readers.jobs import Jobs
from zmqdata.core.dispatcher.readers.scaling import DesiredWorkers
from zmqdata.core.dispatcher.saving import Saves
from zmqdata.core.dispatcher.splits import SplitAssigner
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.trace import ReportedTrace
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.dispatcher.tasks.lineage import StateKeeping
from zmqdata.core.dispatcher.tasks.placement import MOST_STREAMS, Placement, WorkerFacts
from zmqdata.core.dispatcher.tasks.poison import Deaths
from zmqdata.core.limits import MOST_WORKERS, too_long, too_many
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    ResourceExhaustedError,
)

PROBE_AFTER = 0.6
"""Seconds of silence after which a worker is probed."""
MOST_PROBES = 64
"""Maximum number of workers probed at a time. Of thousands of workers, most are merely
between two heartbeats; the most silent are probed first.
"""
OWN_LAG = 1.0
"""Seconds between two ticks above which the dispatcher itself was stalled. That time
does not count as silence of its peers.
"""
REGULAR = (m.RegisterWorker, m.WorkerHeartbeat, m.OpenIteration, m.ClientHeartbeat)
"""Messages that workers and clients repeat."""
LEAST_RETURN = 3.0
"""Seconds within which a living worker finds a restarted dispatcher and speaks to
it.
"""


@dataclass(frozen=True)
class DispatcherTimes:
    """Times, in seconds, after which the dispatcher acts."""

    disconnect_grace: float = 1.0
    """Time without a connection after which a worker is lost."""
    client_timeout: float = 15.0
    """Silence after which a client is given up."""
    client_gone_timeout: float = 60.0
    """Time without any connection after which the only client of an anonymous job is
    given up.
    """
    gc_timeout: float = 300.0
    """Time after which a job without clients, or a dataset without jobs, is collected;
    below zero: never.
    """
    gc_interval: float = 1.0
    """Time between two searches for unused jobs and datasets."""
    repeat_questions: float = 0.5
    """Time after which an unanswered question is repeated."""
    worker_timeout: float = 10.0
    """Time that a static shard waits for its own worker. After a restart, time that
    tasks wait for their workers.
    """
    beat_share: float = 1 / 650
    """Minimum time between two heartbeats of all workers together."""


@dataclass(frozen=True)
class DispatcherPolicy:
    """The dispatcher's configuration, except for times."""

    collects_dynamic: bool = True
    """True if jobs of DYNAMIC mode are collected, too."""
    deployment_mode: str = "REMOTE"
    """Place of the workers: COLOCATED, REMOTE or HYBRID."""
    snapshots_per_worker: int = 3
    """Maximum number of streams of a distributed save that a worker writes at a
    time.
    """


class DispatcherCore:
    """Decides for a dispatcher.

    Args:
        seed: determines every random choice; the shell draws it once.
        times: times after which the dispatcher acts.
        worker_addresses: the ordered list of addresses that workers may register from;
            empty: any. See ``WorkerAddresses``.
        aliases: other names of the hosts in that list.
        policy: the configuration, except for times.
        durable: True if the shell keeps committed facts for its next life.
    """

    def __init__(
        self,
        seed: int,
        times: DispatcherTimes = DispatcherTimes(),
        worker_addresses: tuple[str, ...] = (),
        aliases: Mapping[str, Collection[str]] | None = None,
        policy: DispatcherPolicy = DispatcherPolicy(),
        durable: bool = False,
    ) -> None:
        self.out = Outbox(seed)
        self.times = times
        self.places = WorkerAddresses(worker_addresses, aliases)
        self.policy = policy
        self.workers = Roster()
        # A third of the time that tasks wait for workers, so that the workers of a
        # former dispatcher are known again by then.
        self.beats = Beats(times.beat_share, times.worker_timeout / 3)
        self.clients = Roster()
        colocated = policy.deployment_mode == "COLOCATED"
        placement = Placement(self.places, colocated, policy.snapshots_per_worker or MOST_STREAMS)
        self.hosting = Hosting(
            self.out, self.workers, self.clients, placement, times.worker_timeout
        )
        self.datasets = Datasets(self.out, self.workers, times.gc_timeout)
        self.jobs = Jobs(
            self.out,
            self.hosting,
            self.clients,
            times.gc_timeout,
            times.client_gone_timeout,
            policy.collects_dynamic,
            times.client_timeout,
        )
        self.desired = DesiredWorkers(self.hosting, self.jobs.absent)
        self.saves = Saves(self.out, self.hosting, durable)
        self.keeping = StateKeeping(self.out)
        self.deaths = Deaths(self.out, self.hosting)
        self.trace = ReportedTrace()
        self.splits = SplitAssigner(self.out, self.workers, self.hosting)
        self.hosting.hosted = self.splits.taking_back.record_host
        self._applied: dict[str, float] = {}
        self._kept_out: dict[str, e.Peer] = {}  # clients that are not let in yet
        self._ticked: float | None = None
        self._asked = self._collected = 0.0
        self.messages = e.PeerHandlers()
        self.handlers = e.Handlers()
        self._handle_messages()
        self._handle_events()

    def _handle_messages(self) -> None:
        on = self.messages.on
        on(m.RegisterDataset, self.datasets.register)
        on(m.StorePiece, self.datasets.parts.store_piece)
        on(m.DescribeDataset, self.datasets.describe)
        on(m.OpenIteration, self._open)
        on(m.ClientHeartbeat, self.jobs.heartbeat)
        on(m.CloseIteration, self.jobs.close)
        on(m.HoldingsReported, self._holdings)
        on(m.RegisterWorker, self._register_worker)
        on(m.WorkerHeartbeat, self._worker_heartbeat)
        on(m.WorkerStopped, self._worker_stopped)
        on(m.DrainWorker, self._drain_worker)
        on(m.RequestSplits, self.splits.request)
        on(m.SplitsReturned, self.splits.taking_back.receive)
        on(m.StateTaken, self.keeping.commit)
        on(m.ElementsDecided, self.keeping.decide)
        on(m.RequestPipeline, self.datasets.send_pipeline)
        on(m.MapsChecked, self.datasets.maps_checked)
        on(m.RequestPiece, self.datasets.parts.request_piece)
        on(m.StartSave, self.saves.start)
        on(m.ChunkWritten, self.saves.chunk_written)
        on(m.SaveFailed, self.saves.failed)
        on(m.RequestTrace, self._request_trace)
        on(m.SpansReported, lambda peer, report, now: self.trace.keep(report, now))

    def _handle_events(self) -> None:
        on = self.handlers.on
        on(e.Received, self._received)
        on(e.Tick, lambda event, now: self._tick(now))
        on(e.Unreachable, self._unreachable)
        on(e.FilesListed, self.splits.listed)
        on(e.ChunksFound, self.splits.growing.found)
        on(e.PieceKept, self.datasets.parts.record_piece)
        on(e.PartLost, lambda event, now: self.datasets.parts.lose(event.digest))
        on(e.SavePrepared, self.saves.prepared)
        on(e.ChunkPublished, self.saves.published)
        on(e.SaveChecked, self.saves.checked)
        on(e.SaveFinished, self.saves.finished)

    def resume(self, now: float) -> list[e.DispatcherCommand]:
        """Begin to work with a replayed state, before any event.

        Workers and clients of the former dispatcher are expected, but not known to
        live. Clients may be silent for one ``client_timeout`` from now on, workers for
        as long as a task waits for its host.
        """
        state, self.out.now = self.state, now
        self.out.begin_life()
        self.places.restore(state.places, {worker.address for worker in state.workers.values()})
        patience = max(self.times.worker_timeout, LEAST_RETURN) - self.times.disconnect_grace
        for worker in state.workers:
            self.workers.expect(worker, now, patience)
        self.hosting.resume()
        self.deaths.trials.resume()
        self.saves.resume()
        self.jobs.resume(now, self.times.client_timeout)
        if state.life > 1:
            self.out.note(
                "info",
                f"life {state.life} of this dispatcher continues with "
                f"{len(state.datasets)} datasets, {len(state.living)} jobs and "
                f"{len(state.tasks)} tasks; {len(state.workers)} workers and "
                f"{len(state.client_iteration)} clients are expected back",
            )
        return self.out.drain()

    @property
    def state(self) -> DispatcherState:
        """The durable state."""
        return self.out.state

    def handle(self, now: float, event: e.DispatcherEvent) -> list[e.DispatcherCommand]:
        """Handle an event noticed at ``now``, in seconds of a monotonic clock. Return
        the commands to carry out.
        """
        self.out.now = now
        self.handlers[type(event)](event, now)
        self.hosting.lists.push(now)
        self.jobs.departures.push(now)
        return self.out.drain()

    def close(self) -> list[e.DispatcherCommand]:
        """Tell all clients that no dispatcher continues their iterations or lets them
        in, and return the commands to carry out.
        """
        reading = [member.peer for member in self.clients.members.values()]
        for peer in dict.fromkeys([*reading, *self._kept_out.values()]):
            self.out.send(peer, m.DispatcherClosed())
        return self.out.drain()

    def _open(self, peer: e.Peer, ask: m.OpenIteration, now: float) -> None:
        self.jobs.open(peer, ask, now)
        self._kept_out.pop(ask.client, None)
        if ask.client not in self.clients:
            self._kept_out[ask.client] = peer
            if len(self._kept_out) > MOST_ASKING:
                del self._kept_out[next(iter(self._kept_out))]

    def _received(self, event: e.Received, now: float) -> None:
        if isinstance(event.message, REGULAR):
            self.jobs.listen(now)
        if isinstance(event.message, m.ClientHeartbeat | m.WorkerHeartbeat):
            self._notice_losses(event.message.written)
        handler = self.messages.get(type(event.message))
        if handler is not None:
            handler(event.peer, event.message, now)

    def _notice_losses(self, told: tuple[m.JournalCounts, ...]) -> None:
        """End the iterations of which the journal lacks facts that a peer has heard.
        Facts that peers tell again do not count.
        """
        for iteration, records, is_firm in self.out.losses(told):
            if is_firm:
                text = lacking(records, iteration.job)
                self.hosting.fail(iteration, DataLossError.__name__, text)

    def _unreachable(self, event: e.Unreachable, now: float) -> None:
        self.workers.lose_contact(event.peer, now)
        self.clients.lose_contact(event.peer, now)

    # --- time

    def _tick(self, now: float) -> None:
        lag = now - self._ticked if self._ticked is not None else 0.0
        self._ticked = now
        if lag > OWN_LAG:
            self.workers.forgive(lag, now)
            self.clients.forgive(lag, now)
        for member in self.workers.doubtful(now, PROBE_AFTER, MOST_PROBES):
            self.out.send(member.peer, m.Probe())
        for client in sorted(self.jobs.absent):
            self.out.send(self.clients.peer(client), m.Probe())
        for member in self.workers.disconnected(now, self.times.disconnect_grace):
            self._note_loss("warning", member.name, "is lost because its connection has ended")
            self._lose_worker(member.name)
            self.hosting.measures.lost_workers += 1
        self.jobs.expire(now, self.times.client_timeout)
        self.saves.tick(now)
        self.datasets.tick(now)
        self.splits.tick(now)
        self.deaths.trials.advance(now)
        if now - self._collected >= self.times.gc_interval:
            self._collected = now
            self.jobs.collect_unused(now)
            self.datasets.collect_unused(now)
        if now - self._asked >= self.times.repeat_questions:
            self._asked = now
            self.hosting.ask_again()
            self.hosting.adopt(now)
        self.jobs.coordination.tick(now)
        self._tell_to_record(now)
        patience = 2 * self.times.worker_timeout
        self._applied = {
            name: since for name, since in self._applied.items() if now - since < patience
        }

    # --- traces

    def _request_trace(self, peer: e.Peer, ask: m.RequestTrace, now: float) -> None:
        self.out.send(peer, self.trace.answer(ask, now))
        self._tell_to_record(now)

    def _tell_to_record(self, now: float) -> None:
        told = self.trace.due(now, list(self.clients.members))
        if told is not None:
            for member in self.clients.members.values():
                self.out.send(member.peer, told)

    # --- workers

    def _register_worker(self, peer: e.Peer, ask: m.RegisterWorker, now: float) -> None:
        for death in ask.deaths:
            self.deaths.count(death, now)
            if death.worker in self.workers:
                self._note_loss("warning", death.worker, death.how)
                self._lose_worker(death.worker)
                self.hosting.measures.lost_workers += 1
        try:
            place = self.places.place(ask.address)
        except FailedPreconditionError as error:
            if self._expects_workers or (
                self.places.fits(ask.address) and self._may_be_dead(ask.worker, now)
            ):
                return  # the holder of a place may be dead; the worker asks again
            self.out.refuse(peer, ask.worker, FailedPreconditionError, str(error))
            return
        if place is not None and self.state.places.get(place) != ask.address:
            self.out.commit(u.PlaceWorkerUpdate(place, ask.address))
        known = ask.worker in self.workers
        objection = "" if known else too_many("workers", len(self.workers), MOST_WORKERS)
        told = {
            "name of a worker": ask.worker,
            "address of one": ask.address,
            "list of its tags": "".join(ask.tags),
            "name of its process": ask.process,
            "name that it was given": ask.name,
        }
        if objection or (objection := too_long(told)):
            self.out.refuse(peer, ask.worker[:MOST_CHARACTERS], ResourceExhaustedError, objection)
            return
        self.workers.hear(ask.worker, peer, now)
        self.out.send(peer, m.WorkerRegistered(ask.worker))
        if not known:
            facts = WorkerFacts(ask.address, ask.tags, ask.python, ask.process, ask.name)
            self.out.note("info", f"worker {facts.title} is registered, and gets tasks")
            self.deaths.trials.welcome(ask.worker, now)
            self.hosting.add_worker(ask.worker, facts)
        self.hosting.apply_report(ask.worker, ask.tasks)

    @property
    def _expects_workers(self) -> bool:
        return self.workers.num_present < len(self.workers)

    def _may_be_dead(self, applicant: str, now: float) -> bool:
        """Return True if the holder of a place has given no sign since another worker
        asked for one. That worker may be its successor.
        """
        since = self._applied.setdefault(applicant, now)
        silent = [member for member in self.workers.members.values() if member.spoke <= since]
        if silent and now - since < self.times.worker_timeout:
            for member in silent:
                self.out.send(member.peer, m.Probe())
            return True
        del self._applied[applicant]
        return False

    def _worker_heartbeat(self, peer: e.Peer, beat: m.WorkerHeartbeat, now: float) -> None:
        known = beat.worker in self.workers
        if known:
            self.workers.hear(beat.worker, peer, now)
            self.hosting.facts[beat.worker].memory = beat.memory
            self.hosting.apply_report(beat.worker, beat.tasks)
            self.deaths.check_calls(beat.worker, beat.tasks, now)
            for client in filterfalse(self.state.client_iteration.__contains__, beat.clients):
                self.hosting.release(beat.worker, client)
            self.jobs.leases.tells(self.clients, beat, now)
            self.jobs.departures.hear(beat)
        draining = known and self._go_on_draining(beat)
        unwanted = (
            self.jobs.coordination.unwanted(self.hosting.facts[beat.worker].tasks) if known else {}
        )
        every = self.beats.next(now) if known else 0.0
        self.jobs.leases.expect(every)
        questions = self.jobs.questions.unanswered(now) if known else {}
        unused = self.datasets.unused(beat.parcels, now)
        answer = m.WorkerHeartbeatAnswered(
            beat.worker, known, unwanted, draining, every, questions, unused
        )
        self.out.send(peer, answer)

    def _go_on_draining(self, beat: m.WorkerHeartbeat) -> bool:
        """Return True if a worker will leave. Its tasks move as soon as other workers
        can host them.
        """
        draining = beat.draining or self.hosting.facts[beat.worker].draining
        if draining:
            self.hosting.drain(beat.worker)
        return draining

    def _drain_worker(self, peer: e.Peer, ask: m.DrainWorker, now: float) -> None:
        facts = self.hosting.facts
        names = [
            name
            for name in facts
            if ask.worker in (name, facts[name].name, *names_of(facts[name].address))
        ]
        if not names:
            there = (
                f"the registered workers are {', '.join(one.address for one in facts.values())}"
                if facts
                else "there is none"
            )
            text = (
                f"No worker {ask.worker!r} is registered; {there}. "
                "Give its address, its name, or its host."
            )
            self.out.refuse(peer, ask.request, NotFoundError, text)
            return
        for name in names:
            text = "is told to leave, and gets no further task"
            self._note_loss("info", name, text)
            self.hosting.drain(name)
            self.out.send(
                self.workers.peer(name), m.WorkerHeartbeatAnswered(name, True, draining=True)
            )
        self.out.send(
            peer, m.DrainStarted(ask.request, tuple(facts[name].address for name in names))
        )

    def _worker_stopped(self, peer: e.Peer, message: m.WorkerStopped, now: float) -> None:
        if message.worker in self.workers:
            self._note_loss("info", message.worker, "has left")
            self._lose_worker(message.worker)

    def _note_loss(self, level: str, name: str, what: str) -> None:
        """Log what happened to a worker, and what becomes of its tasks."""
        facts = self.hosting.facts[name]
        count = len(facts.tasks)
        tasks = (
            f"other workers take over its task{'s' * (count > 1)} ({count}), except for copies of "
            "the whole input"
            if count
            else "it hosted no task"
        )
        self.out.note(level, f"worker {facts.title} {what}; {tasks}")

    def _lose_worker(self, name: str) -> None:
        address = self.hosting.facts[name].address
        self.hosting.lose_worker(name)
        # A successor may have registered at the same address before the loss of this
        # worker was noticed.
        if not self.hosting.placement.is_at(address):
            self.places.leave(address)

    def _holdings(self, peer: e.Peer, report: m.HoldingsReported, now: float) -> None:
        self.hosting.record_holdings(report)
