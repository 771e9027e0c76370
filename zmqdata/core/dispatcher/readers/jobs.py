"""Jobs and the clients that read them: the part of the dispatcher core that deals with
clients.

Protocol 3.1, 3.3, 3.5, 3.6 and 3.9.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.passes.incarnations import Gathering, Incarnations
from zmqdata.core.dispatcher.passes.resuming import Beginning, incarnation_of, used_up
from zmqdata.core.dispatcher.passes.runs import ClientPass, Runs
from zmqdata.core.dispatcher.peers.lease import Leases, Presence
from zmqdata.core.dispatcher.peers.liveness import Member, Questions, Roster
from zmqdata.core.dispatcher.readers.admission import Admission, Objection
from zmqdata.core.dispatcher.readers.coordinated import Coordination
from zmqdata.core.dispatcher.readers.leaving import Departures
from zmqdata.core.dispatcher.state.audit import audit_of
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.runs import Incarnation
from zmqdata.core.dispatcher.state.tasks import Iteration, Task
from zmqdata.core.dispatcher.tasks.detours import Detours
from zmqdata.core.dispatcher.tasks.hosting import Hosting
from zmqdata.core.job_rules import is_copied, is_static
from zmqdata.core.limits import MOST_CLIENTS_OF_PEER, too_many
from zmqdata.core.ranges import RangeSet
from zmqdata.errors import (
    DataServiceError,
    ResourceExhaustedError,
)

COLLECTED_KEPT = 1_000
"""Maximum number of collected iterations that are remembered."""


@dataclass(frozen=True)
class CollectedIteration:
    """A summary of a collected iteration, for status and audit requests."""

    iteration: int
    """Number of the iteration."""
    repetition: int
    """Repetition of the job."""
    job: m.JobParameters
    """Parameters of the job."""
    finished: bool
    """True if every element was delivered."""
    audit: dict[str, Any]
    """Its audit, as ``audit_of`` returns it."""


class Jobs:
    """Opens and closes iterations, counts deliveries, and collects unused jobs.

    Args:
        out: state and commands.
        hosting: places the tasks of new iterations.
        clients: the living clients.
        gc_timeout: seconds without a client after which a job is collected; below zero:
            never.
        gone_timeout: seconds after which the only client of an anonymous job is given
            up if it is silent and has no connection.
        collects_dynamic: True if jobs of DYNAMIC mode are collected, too.
        client_timeout: seconds of silence after which a client is given up, if others
            read on.
    """

    def __init__(
        self,
        out: Outbox,
        hosting: Hosting,
        clients: Roster,
        gc_timeout: float,
        gone_timeout: float = 60.0,
        collects_dynamic: bool = True,
        client_timeout: float = 15.0,
    ) -> None:
        self.out, self.hosting, self.clients = out, hosting, clients
        self.admission = Admission(out.state, hosting.placement)
        self.gc_timeout, self.gone_timeout = gc_timeout, gone_timeout
        self.collects_dynamic = collects_dynamic
        self.leases = Leases(client_timeout)
        self.collected: deque[CollectedIteration] = deque(maxlen=COLLECTED_KEPT)
        self.absent: set[str] = set()
        self.questions = Questions(out, clients)
        presence = Presence(self.questions, clients, hosting.workers, self.absent, self.leases)
        self.coordination = Coordination(out, hosting, clients, self.absent, presence)
        hosting.lists.plan = self.coordination.plan
        self.detours = Detours(out, hosting)
        self.departures = Departures(out, clients, self.questions, hosting)
        self.runs = Runs(out, presence, hosting.placement)
        self.incarnations = Incarnations(out, presence, self._open_first)
        self.unused_since: dict[int, float] = {}

    def resume(self, now: float, client_timeout: float) -> None:
        """Continue where a former dispatcher left off. Its clients have a time-out
        from now on to come back.
        """
        self.leases.resume(self.out.state.iterations.values(), now)
        self.runs.resume()
        for client in self.out.state.client_iteration:
            self.clients.expect(client, now, client_timeout)
        for incarnation in self.out.state.living:
            if not incarnation.is_read:
                self.unused_since[incarnation.number] = now

    # --- iterations

    def open(self, peer: Peer, ask: m.OpenIteration, now: float) -> None:
        """Let a client join an iteration, which begins with its first client."""
        state = self.out.state
        if ask.client in state.client_iteration:
            self.clients.hear(ask.client, peer, now)
            self._answer(peer, ask, now)
            return
        is_gone = ask.iteration is not None and ask.iteration not in state.iterations
        if ask.client in state.departed or is_gone:
            self._refuse_unknown(
                peer, ask.client, self.admission.reason_unknown(ask.client, was_ours=True)
            )
            return
        objection = self._of_peer(peer) or self.admission.objection(ask)
        if objection is not None:
            error, text = objection
            self.out.refuse(peer, ask.client, error, text)
            return
        if ask.iteration is not None:
            self._let_in(peer, ask, state.iterations[ask.iteration], now)
        elif again := self.incarnations.found_again(ask):
            self._let_in(peer, ask, again, now)
        elif ask.resume:
            gathering = self.incarnations.offer(peer, ask, now)
            if gathering is not None:
                self._begin_from_states(gathering, now)
        else:
            self._open_first(peer, ask, now)

    def _open_first(self, peer: Peer, ask: m.OpenIteration, now: float) -> None:
        """Let a client in that has never read the job, for the pass that its run
        reads.
        """
        try:
            found = self.incarnations.awaited_by(ask) or self.runs.find(ask, now)
        except DataServiceError as error:
            self.out.refuse(peer, ask.client, type(error), str(error))
            return
        if isinstance(found, str):
            self.out.send(peer, m.OpenAwaited(ask.client, found))
            return
        objection = self.admission.objection_to(found.incarnation, ask)
        if objection is not None:
            error_class, text = objection
            self.out.refuse(peer, ask.client, error_class, text)
            return
        known = None if found.incarnation is None else found.incarnation.iterations
        iteration = None if known is None else known.get(found.repetition)
        self._let_in(peer, ask, iteration, now, found)

    def _let_in(
        self,
        peer: Peer,
        ask: m.OpenIteration,
        iteration: Iteration | None,
        now: float,
        found: ClientPass | None = None,
    ) -> None:
        """Let a client in, if no other client reads as the consumer that it asks for.

        Args:
            peer: connection of the client.
            ask: its request.
            iteration: what it reads; None if the iteration is to begin.
            now: the time.
            found: the pass that it reads; None if the client has been in the iteration.
        """
        objection = None if iteration is None else self.coordination.objection(ask, iteration)
        if objection is not None:
            error, text = objection
            self.out.refuse(peer, ask.client, error, text)
            return
        holder = None if iteration is None else self.coordination.holder(ask, iteration)
        if iteration is not None and holder is not None:
            if not self.coordination.gives_way(peer, ask, iteration, holder, now):
                return
            self._forget(holder, iteration, now)
        self.clients.hear(ask.client, peer, now)
        how = "follows"
        if found is not None:
            how, iteration = found.how, self.runs.begin(ask, found, now)
        assert iteration is not None
        self._join(ask, iteration, how, now)
        self._answer(peer, ask, now)

    def _of_peer(self, peer: Peer) -> Objection | None:
        many = too_many(
            "clients of this connection", self.clients.num_of(peer), MOST_CLIENTS_OF_PEER
        )
        return (ResourceExhaustedError, many) if many else None

    def _answer(self, peer: Peer, ask: m.OpenIteration, now: float) -> None:
        iteration = self.out.state.iterations[self.out.state.client_iteration[ask.client]]
        self.leases.spoke(iteration, now)
        if iteration.failure is not None:
            self.hosting.refuse_failed(ask.client, iteration)
            return
        settled = [
            task for task in iteration.live_tasks if iteration.rounds is None and task.settled
        ]
        answer = m.IterationOpened(
            client=ask.client,
            iteration=iteration.iteration,
            task_list=self.hosting.lists.latest(iteration, ask.client),
            delivered=iteration.delivered_of(ask.client),
            finished=iteration.finished_for(ask.client),
            shared=len(iteration.clients) > 1,
            step=self.coordination.step_of(iteration, ask.client),
            lease=self.leases.grant(iteration, ask.client),
            seed=iteration.seed,
            num_shards=iteration.num_shards,
            fingerprint=self.out.state.datasets[iteration.job.dataset_id].fingerprint,
            sources=used_up(iteration),
            delivered_before={
                task.task: task.delivered.ranges
                for task in iteration.live_tasks
                if iteration.rounds is None and task.delivered and not task.settled
            },
            totals={task.task: task.total for task in settled if task.total is not None},
            over={
                task.task: _origin(task, iteration)
                for task in settled
                if is_static(iteration.job) or is_copied(iteration.job)
            },
            repetition=iteration.repetition,
            incarnation=iteration.incarnation,
            how=iteration.openings[ask.client].how,
            age=self.runs.age(iteration, now),
        )
        self.out.send(peer, answer)

    def _begin_from_states(self, gathering: Gathering, now: float) -> None:
        """Begin an incarnation that the runs of all readers read which have brought a
        state.
        """
        state = self.out.state
        number = state.next_iteration
        checkpoints = [offer.checkpoint for offer in gathering.offers.values()]
        newest = max(one.repetition for one in checkpoints)
        try:
            updates = incarnation_of(
                checkpoints,
                Beginning(
                    gathering.job,
                    state.datasets[gathering.job.dataset_id],
                    state.next_incarnation,
                    number,
                    state.next_task,
                    self.out.derive_seed,
                    self.runs.draw(gathering.job, number, newest),
                ),
            )
        except DataServiceError as error:
            self.incarnations.refuse_all(gathering, error, now)
            return
        for update in updates:
            self.out.commit(update)
        iteration = state.iterations[number]
        self.out.note_begin(iteration, "continues from states of its readers")
        self.incarnations.begin(gathering, number)
        for offer in gathering.present:
            self.clients.hear(offer.ask.client, offer.peer, now)
            self.runs.record_loaded(offer.ask, iteration, now)
            self.runs.open(offer.ask, iteration, "loaded")
        self._seat(iteration, now)
        for offer in gathering.present:
            self._answer(offer.peer, offer.ask, now)

    def _seat(self, iteration: Iteration, now: float) -> None:
        """Spread the tasks of a new incarnation over the living workers."""
        for task in [] if iteration.num_shards else iteration.live_tasks:
            if self.hosting.holdings.owes(task):
                self.hosting.find_host(task)
        self.hosting.staff(iteration)
        self.hosting.close_if_ended(iteration)
        if iteration.rounds is not None:
            self.coordination.begin(iteration, now)

    def _join(self, ask: m.OpenIteration, iteration: Iteration, how: str, now: float) -> None:
        self.unused_since.pop(iteration.incarnation, None)
        self.runs.open(ask, iteration, how)
        self.hosting.measures.replace_loop(iteration.iteration, ask.former)
        self.hosting.staff(iteration)
        # From now on a reader exists that can be given the elements of silent clients.
        for client in sorted(self.absent & iteration.clients):
            if self.leases.is_over(self.clients.members[client], now):
                self._forget(client, iteration, now)
        if iteration.rounds is not None:
            self.coordination.count_steps(iteration, ask.client, ask.step, 0, now)
            self.coordination.begin(iteration, now)
        self.hosting.lists.tell(iteration)

    # --- clients

    def heartbeat(self, peer: Peer, beat: m.ClientHeartbeat, now: float) -> None:
        """Count a client's report and send it what is new."""
        iteration = self.iteration_of(beat.client)
        if iteration is None:
            was_ours = beat.client in self.out.state.departed
            reason = self.admission.reason_unknown(beat.client, was_ours, beat.written)
            self._refuse_unknown(peer, beat.client, reason)
            return
        self.leases.record_belief(beat)
        self._listen_to(iteration, now)
        self.clients.hear(beat.client, peer, now)
        self.absent.discard(beat.client)
        self.count(iteration, beat)
        self.coordination.count_steps(iteration, beat.client, beat.steps, beat.near, now)
        if iteration.failure is not None:
            self.hosting.refuse_failed(beat.client, iteration)
            return
        self.detours.move_tasks(iteration, beat.client, beat.unreached, now)
        self.departures.record(iteration, beat, now)
        if beat.done and self.departures.are_all_done(iteration):
            self.hosting.close_copies(iteration)
        self.hosting.lists.push(now)
        task_list = self.hosting.lists.news(iteration, beat, now)
        lease = self.leases.grant(iteration, beat.client)
        idle = self.hosting.placement.idle_workers(iteration)
        written = self.out.counts_of(iteration)
        answered = m.ClientHeartbeatAnswered(
            beat.client, beat.report, task_list, beat.beat, lease, idle, written
        )
        self.out.send(peer, answered)

    def _listen_to(self, iteration: Iteration, now: float) -> None:
        """Note that a client is heard. Time in which no client of its iteration was
        heard does not count against the others.
        """
        lost = self.leases.spoke(iteration, now)
        if lost:
            self.clients.forgive(lost, now, iteration.clients)
            self.absent -= iteration.clients

    def listen(self, now: float) -> None:
        """Note that a worker or a client is heard. Time in which no peer was heard does
        not count against any client: the dispatcher was cut off.
        """
        lost = self.leases.listen(now)
        if lost:
            self.clients.forgive(lost, now)
            self.absent.clear()

    def _refuse_unknown(self, peer: Peer, client: str, reason: Objection) -> None:
        """Refuse an unknown client, with the reason."""
        error, text = reason
        departed = self.out.state.departed
        given_up, iteration = client in departed, departed.get(client)
        self.out.send(
            peer,
            m.RequestRefused(client, error.__name__, text, given_up=given_up, iteration=iteration),
        )

    def iteration_of(self, client: str) -> Iteration | None:
        """Return the iteration that a client reads; None if it reads none."""
        number = self.out.state.client_iteration.get(client)
        return None if number is None else self.out.state.iterations.get(number)

    def count(self, iteration: Iteration, report: m.ClientHeartbeat | m.CloseIteration) -> None:
        """Commit the elements that a client reports as handed to its training loop,
        each once, and how many it dropped or gave back.
        """
        client, tally = report.client, iteration.tally
        self.hosting.measures.record_loop(iteration.iteration, client, report.measures)
        counts = report.repeats, report.given_back
        known = tally.repeats.get(client, 0), tally.given_back.get(client, 0)
        newest = max(counts[0], known[0]), max(counts[1], known[1])
        if newest != known:
            number, (repeats, back) = iteration.iteration, newest
            self.out.commit(u.CountClientUpdate(number, client, repeats, back))
        for number, ranges in report.delivered.items():
            task = iteration.tasks.get(number)
            if task is None or iteration.rounds is not None:
                continue
            fresh = RangeSet(
                gap for first, stop in ranges for gap in task.delivered.missing(first, stop)
            )
            if fresh:
                self.out.commit(u.DeliverUpdate(number, fresh.ranges, client))
                if task.settled:
                    self.hosting.settle(task)

    def close(self, peer: Peer, goodbye: m.CloseIteration, now: float) -> None:
        """Count a client's last report and forget the client."""
        iteration = self.iteration_of(goodbye.client)
        if iteration is not None:
            self.count(iteration, goodbye)
            self.coordination.count_steps(iteration, goodbye.client, goodbye.steps, 0, now)
            self.runs.leave(iteration.job.name, goodbye.client, goodbye.at_end, now)
            self._forget(goodbye.client, iteration, now)
        else:
            self.coordination.count_late(goodbye.client, goodbye.steps, now)
            self.incarnations.leave(goodbye.client)
        self.out.send(peer, m.IterationClosed(goodbye.client))

    def _forget(self, client: str, iteration: Iteration, last_sign: float) -> None:
        self.absent.discard(client)
        self.leases.forget(client)
        self.clients.remove(client)
        self.runs.leave(iteration.job.name, client, at_end=False, now=last_sign)
        self.departures.forget(client, iteration)
        self.hosting.forget_client(client, iteration)
        self.hosting.lists.tell(iteration)
        incarnation = self.out.state.incarnations[iteration.incarnation]
        if not incarnation.is_read:
            self.unused_since[incarnation.number] = last_sign
            if iteration.job.anonymous and not self.runs.has_copies(incarnation):
                self._collect(incarnation, last_sign)

    # --- time

    def expire(self, now: float, client_timeout: float) -> None:
        """Give up clients that have been silent for too long, if others read on. The
        only client of an iteration may come back.
        """
        self.incarnations.tick(now)
        self.runs.tick(now)
        self.departures.tick(now)
        for member in self.clients.silent(now, client_timeout):
            iteration = self.iteration_of(member.name)
            if iteration is None:
                self.clients.remove(member.name)
                self.leases.forget(member.name)
                continue
            self.absent.add(member.name)
            others = iteration.shares(member.name) and self.leases.hears(iteration, now)
            if (others and self.leases.is_over(member, now)) or self._is_gone(
                member, iteration, now, client_timeout
            ):
                self.out.note("warning", _gone(member.name, iteration.job.name), iteration)
                self._forget(member.name, iteration, member.sign)
                # In the same turn, so that no worker makes again the elements owed to a
                # job that ends now.
                self.collect_unused(now)

    def _is_gone(
        self, member: Member, iteration: Iteration, now: float, client_timeout: float
    ) -> bool:
        """Return True if a job's only client has been away for so long that it is not
        expected back.

        What workers keep for an anonymous job is of no use to any other client. There a
        lost connection counts, which a busy client still has. A sign of life may also
        come from workers, which may reach clients that the dispatcher does not reach.
        """
        unreachable = member.unreachable
        is_away = (
            unreachable is not None and now - max(unreachable, member.sign) >= self.gone_timeout
        )
        if iteration.job.anonymous and is_away:
            return True
        incarnation = self.out.state.incarnations[iteration.incarnation]
        return self._may_collect(incarnation) and now - member.sign >= max(
            client_timeout, self._kept_for(incarnation)
        )

    def _may_collect(self, incarnation: Incarnation) -> bool:
        job = incarnation.job
        if job.save is not None:
            return self.gc_timeout >= 0 and all(
                one.saving is not None and one.saving.ended
                for one in incarnation.iterations.values()
            )
        if self._is_replaced(incarnation):
            return True
        return self.gc_timeout >= 0 and (self.collects_dynamic or job.processing_mode != "DYNAMIC")

    def _is_replaced(self, incarnation: Incarnation) -> bool:
        """Return True if the job has begun anew since, so that no other run joins."""
        return self.out.state.newest_of(incarnation.job.name) is not incarnation

    def _kept_for(self, incarnation: Incarnation) -> float:
        """Return the seconds for which an incarnation without readers is kept."""
        return self.leases.timeout if self._is_replaced(incarnation) else self.gc_timeout

    def collect_unused(self, now: float) -> None:
        """Collect incarnations that have had no client for too long, and saves that
        ended that long ago.
        """
        for iteration in self.out.state.iterations.values():
            if iteration.saving is not None and iteration.saving.ended:
                self.unused_since.setdefault(iteration.incarnation, now)
        for number, since in list(self.unused_since.items()):
            incarnation = self.out.state.incarnations[number]
            patience = self._kept_for(incarnation)
            if now - since >= patience and self._may_collect(incarnation):
                why = f"it had no client for {patience:g} s. The next client begins it anew"
                one = next(iter(incarnation.iterations.values()), None)
                self.out.note("info", f"job {incarnation.job.name} is collected: {why}", one)
                self._collect(incarnation, since)

    def _collect(self, incarnation: Incarnation, since: float) -> None:
        self.unused_since.pop(incarnation.number, None)
        for iteration in incarnation.iterations.values():
            if iteration.failure is None and not iteration.finished:
                self.out.note_end(iteration, "ends unfinished, without readers", since)
            self.out.forget(iteration)
            self.hosting.forget_iteration(iteration)
            self.leases.forget_iteration(iteration.iteration)
            self.collected.append(
                CollectedIteration(
                    iteration.iteration,
                    iteration.repetition,
                    iteration.job,
                    iteration.finished,
                    audit_of(iteration),
                )
            )
        self.out.commit(u.CollectIncarnationUpdate(incarnation.number))


def _origin(task: Task, iteration: Iteration) -> m.Origin:
    poisoned = tuple(task.poisoned)
    return m.Origin(
        task.index, task.seed, task.shard, iteration.seed, iteration.num_shards, poisoned=poisoned
    )


def _gone(client: str, job: str) -> str:
    """Return the log line about a client that has died."""
    return (
        f"client {m.shown_name(client)} of job {job} is gone; elements that it has not reported "
        "go to other clients of the job"
    )
