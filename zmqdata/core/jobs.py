"""Jobs and the clients that read them: the part of the dispatcher core that deals with clients."""

from __future__ import annotations

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.commands import Peer
from zmqdata.core.admission import Admission
from zmqdata.core.hosting import Hosting
from zmqdata.core.liveness import Member, Roster
from zmqdata.core.outbox import Outbox
from zmqdata.core.ranges import RangeSet
from zmqdata.core.state import Iteration
from zmqdata.core.targets import is_static
from zmqdata.errors import NotFoundError, UnavailableError

DEPARTED_KEPT = 10_000


class Jobs:
    """Opens and closes iterations, counts deliveries, collects what nobody uses.

    Args:
        out: state and commands.
        hosting: places the tasks of new iterations.
        clients: the living clients.
        gc_timeout: seconds without a client after which a job is collected; below zero: never.
        gone_timeout: seconds after which an anonymous job's only client, silent and without a connection, is given up.
    """

    def __init__(
        self, out: Outbox, hosting: Hosting, clients: Roster, gc_timeout: float, gone_timeout: float = 60.0
    ) -> None:
        self.out = out
        self.hosting = hosting
        self.clients = clients
        self.admission = Admission(out.state, hosting.placement)
        self.gc_timeout = gc_timeout
        self.gone_timeout = gone_timeout
        self.absent: set[str] = set()
        self.departed: dict[str, None] = {}
        self.unused_since: dict[str, float] = {}

    # --- iterations

    def open(self, peer: Peer, ask: m.OpenIteration, now: float) -> None:
        """Makes a client part of an iteration, which begins if it is the first."""
        if ask.client in self.departed:
            self._refuse_unknown(peer, ask.client)
            return
        objection = self.admission.objection(ask)
        if objection is not None and ask.client not in self.out.state.client_iteration:
            self.out.refuse(peer, ask.client, *objection)
            return
        self.clients.heard(ask.client, peer, now)
        if ask.client not in self.out.state.client_iteration:
            self._join(ask, now)
        iteration = self.out.state.iterations[self.out.state.client_iteration[ask.client]]
        self.unused_since.pop(iteration.job.name, None)
        if iteration.failure is not None:
            self.hosting.refuse_failed(ask.client, iteration)
            return
        answer = m.IterationOpened(
            client=ask.client,
            iteration=iteration.iteration,
            task_list=self.hosting.task_list(iteration, ask.client),
            delivered=iteration.delivered,
            finished=iteration.finished,
            shared=len(iteration.clients) > 1,
        )
        self.out.send(peer, answer)

    def _join(self, ask: m.OpenIteration, now: float) -> None:
        if ask.job.name not in self.out.state.jobs:
            self.out.commit(u.CreateJobUpdate(ask.job))
        iteration = self.out.state.passes[ask.job.name].get(ask.repetition)
        if iteration is None:
            number = self.out.state.next_iteration
            seed = self.out.derive_seed(number)
            num_shards = self.hosting.placement.num_shards if is_static(ask.job) else 0
            self.out.commit(u.CreateIterationUpdate(number, ask.job.name, ask.repetition, seed, num_shards))
            iteration = self.out.state.iterations[number]
        self.out.commit(u.OpenClientUpdate(ask.client, iteration.iteration, ask.local_workers))
        self.hosting.staff(iteration)
        # From now on there is somebody for whom the elements of a silent client are wanted.
        for client in sorted(self.absent & iteration.clients):
            self._forget(client, iteration, now)

    # --- clients

    def heartbeat(self, peer: Peer, beat: m.ClientHeartbeat, now: float) -> None:
        """Counts a report and brings the client up to date."""
        iteration = self.iteration_of(beat.client)
        if iteration is None:
            self._refuse_unknown(peer, beat.client)
            return
        self.clients.heard(beat.client, peer, now)
        self.absent.discard(beat.client)
        self.count(iteration, beat.delivered)
        if iteration.failure is not None:
            self.hosting.refuse_failed(beat.client, iteration)
            return
        self.hosting.push_changes()
        stale = beat.task_version != self.hosting.versions.get(iteration.iteration, 0)
        task_list = self.hosting.task_list(iteration, beat.client) if stale else None
        self.out.send(peer, m.ClientHeartbeatAnswered(beat.client, beat.report, task_list))

    def _refuse_unknown(self, peer: Peer, client: str) -> None:
        """NotFoundError, as in tf.data, to those that we gave up; the others are a former dispatcher's clients."""
        given_up = client in self.departed
        reason = (
            "it was silent for too long, or its job was collected"
            if given_up
            else "the dispatcher was restarted and kept nothing of its jobs"
        )
        text = f"Unknown iteration client id {client}: {reason}. Begin to iterate anew."
        self.out.refuse(peer, client, NotFoundError if given_up else UnavailableError, text)

    def iteration_of(self, client: str) -> Iteration | None:
        """The iteration that a client reads."""
        number = self.out.state.client_iteration.get(client)
        return None if number is None else self.out.state.iterations.get(number)

    def count(self, iteration: Iteration, delivered: dict[int, m.Ranges]) -> None:
        """Commits what a client reported as handed to its training loop, once."""
        for number, ranges in delivered.items():
            task = iteration.tasks.get(number)
            if task is None:
                continue
            fresh = RangeSet(gap for first, stop in ranges for gap in task.delivered.missing(first, stop))
            if fresh:
                self.out.commit(u.DeliverUpdate(number, fresh.ranges))
                if task.settled:
                    self.hosting.settle(task)

    def close(self, peer: Peer, goodbye: m.CloseIteration, now: float) -> None:
        """Counts a client's last report and forgets it."""
        iteration = self.iteration_of(goodbye.client)
        if iteration is not None:
            self.count(iteration, goodbye.delivered)
            self._forget(goodbye.client, iteration, now)
        self.out.send(peer, m.IterationClosed(goodbye.client))

    def _forget(self, client: str, iteration: Iteration, last_sign: float) -> None:
        self.absent.discard(client)
        self.clients.remove(client)
        self.out.commit(u.CloseClientUpdate(client))
        self.hosting.forget_client(client, iteration)
        self.departed[client] = None
        if len(self.departed) > DEPARTED_KEPT:
            del self.departed[next(iter(self.departed))]
        if not any(one.clients for one in self.out.state.passes[iteration.job.name].values()):
            self.unused_since[iteration.job.name] = last_sign
            if iteration.job.anonymous:
                self._collect(iteration.job.name)

    # --- time

    def expire(self, now: float, client_timeout: float) -> None:
        """Gives up clients that have been silent for too long, if others read on; the only one may come back."""
        for member in self.clients.silent(now, client_timeout):
            iteration = self.iteration_of(member.name)
            if iteration is None:
                self.clients.remove(member.name)
                continue
            self.absent.add(member.name)
            if len(iteration.clients) > 1 or self._is_gone(member, iteration, now, client_timeout):
                self.out.note("warning", f"client {member.name} of job {iteration.job.name} is gone")
                self._forget(member.name, iteration, member.sign)
                # In the same turn: nobody shall make again what a job that ends now was owed.
                self.collect_unused(now)

    def _is_gone(self, member: Member, iteration: Iteration, now: float, client_timeout: float) -> bool:
        """Whether a job's only client has been away for so long that it is not waited for any more.

        Nobody else will ever use what workers keep for an anonymous job, so there its client's lost connection counts:
        a busy one still has it. A sign of life may come from workers, which reach clients that we do not reach.
        """
        cut_off = member.unreachable
        if iteration.job.anonymous and cut_off is not None and now - max(cut_off, member.sign) >= self.gone_timeout:
            return True
        return self.gc_timeout >= 0 and now - member.sign >= max(client_timeout, self.gc_timeout)

    def collect_unused(self, now: float) -> None:
        """Collects jobs that had no client for too long, and saves that ended so long ago."""
        if self.gc_timeout < 0:
            return
        for iteration in self.out.state.iterations.values():
            if iteration.saving is not None and iteration.saving.ended:
                self.unused_since.setdefault(iteration.job.name, now)
        for job, since in list(self.unused_since.items()):
            job_is_used = any(one.saving and not one.saving.ended for one in self.out.state.passes[job].values())
            if now - since >= self.gc_timeout and not job_is_used:
                self.out.note("info", f"job {job} is collected: no client for {self.gc_timeout:g} s")
                self._collect(job)

    def _collect(self, job: str) -> None:
        self.unused_since.pop(job, None)
        for iteration in self.out.state.passes[job].values():
            self.hosting.forget_iteration(iteration)
        self.out.commit(u.RemoveJobUpdate(job))
