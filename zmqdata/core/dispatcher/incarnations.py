"""New incarnations of jobs: who brings the state of which reader, for whom is waited,
and who stands in the way.

What is gathered here is not durable: clients ask until they are answered. Whether
states can be believed is ``core.dispatcher.checkpoints``' affair, what becomes of them
``core.dispatcher.resuming``'s; ``core.dispatcher.jobs`` opens the iteration.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from zmqdata import messages as m
from zmqdata.core.dispatcher.checkpoints import joined, read_checkpoint
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.liveness import Member, Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.limits import MOST_WAITING_BYTES
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    ResourceExhaustedError,
    UnavailableError,
)

LIVING_PATIENCE = 3.0
"""Seconds in which a reader that closes has said so, and one that has died is found out
or not.
"""
OFFER_PATIENCE = 5.0
"""Who has not repeated an ask for so long is gone, and another may bring the same part.
"""
RIVAL_PATIENCE = OFFER_PATIENCE + 2.0
"""Seconds for which another waits: who brought it may have been killed, and started
again at once.
"""


REFUSAL_KEPT = 60.0
"""Seconds for which those who were refused together are told so again: one may not have
heard it, and ask on alone.
"""


@dataclass
class Offer:
    """One reader's part of a job that is to go on, and who brings it. ``left``: it has
    closed; what it knows counts.
    """

    peer: Peer
    ask: m.OpenIteration
    checkpoint: m.Checkpoint
    heard: float
    left: bool = False


@dataclass
class Gathering:
    """The parts of a job that have come so far, by consumer or by the client that each
    was taken from.

    ``rivals``: who else brings one of them, and since when.
    """

    since: float
    rivals: dict[str, float] = field(default_factory=dict)
    offers: dict[int | str, Offer] = field(default_factory=dict)

    @property
    def present(self) -> list[Offer]:
        """Those whose readers are there."""
        return [offer for offer in self.offers.values() if not offer.left]

    @property
    def job(self) -> m.JobParameters:
        """The parameters that the first one asks for."""
        return next(iter(self.offers.values())).ask.job

    @property
    def missing(self) -> list[int | str]:
        """Whose parts have not come yet."""
        if self.job.num_consumers is not None:
            return [
                consumer
                for consumer in range(self.job.num_consumers)
                if consumer not in self.offers
            ]
        wanted = {part for offer in self.offers.values() for part in offer.checkpoint.parts}
        return sorted(wanted - self.offers.keys(), key=str)

    def rivalry(self, now: float) -> str:
        """Who is waited for until it is known which of two clients goes on; "" where
        nobody is in doubt.
        """
        disputed = any(now - since < RIVAL_PATIENCE for since in self.rivals.values())
        return (
            f"one of two clients that load the same state of job {self.job.name} to be gone"
            if disputed
            else ""
        )

    @property
    def awaited(self) -> str:
        """The missing parts in words; "" when there are none."""
        missing = self.missing
        if not missing:
            return ""
        if self.job.num_consumers is not None:
            named = ", ".join(map(str, missing[:20]))
            return f"the state of consumer {named} of job {self.job.name}, which is not loaded yet"
        known = {name for offer in self.offers.values() for name in offer.checkpoint.parts}
        return (
            f"{len(missing)} of the {len(known)} states that belong together (all readers of the "
            "job had one), to be "
            f"loaded for job {self.job.name}"
        )


class Incarnations:
    """Gathers the parts of jobs that are to go on from states.

    Args:
        out: state and commands.
        clients: the living clients.
        absent: those that have been silent for too long.
        grace: seconds without a connection after which a reader counts as gone.
    """

    def __init__(
        self, out: Outbox, clients: Roster, absent: Collection[str], grace: float = 1.5
    ) -> None:
        self.out = out
        self.clients = clients
        self.absent = absent
        self.grace = grace
        self.gatherings: dict[str, Gathering] = {}
        self._refused: dict[
            str, tuple[float, type[DataServiceError], str]
        ] = {}  # by client, until when, and why
        # Of the states gathered, and of those that went since the last tick.
        self._waiting_bytes = 0

    def offer(self, peer: Peer, ask: m.OpenIteration, now: float) -> Gathering | None:
        """Takes a part; returns all of them once the last is there and nobody reads the
        job any more.
        """
        if ask.client in self._refused:
            _, error, text = self._refused[ask.client]
            self.out.refuse(peer, ask.client, error, text)
            return None
        dataset = self.out.state.datasets[ask.job.dataset_id]
        sources = (dataset.sources or ()) if ask.job.processing_mode == "DYNAMIC" else ()
        try:
            checkpoint = read_checkpoint(ask, dataset)
            joined((checkpoint,), sources)
            in_the_way = self._take(Offer(peer, ask, checkpoint, now), now)
        except DataServiceError as error:
            self.out.refuse(peer, ask.client, type(error), str(error))
            return None
        if in_the_way:
            self.out.send(peer, m.ResumeAwaited(ask.client, in_the_way))
            return None
        gathering, readers = self.gatherings[ask.job.name], self._readers(ask.job.name, now)
        if self._is_occupied(gathering, readers, now):
            self._refuse_all(ask.job.name, FailedPreconditionError(_occupied(ask.job.name)), now)
            return None
        former = (
            f"{len(readers)} former readers of job {ask.job.name} to be gone" if readers else ""
        )
        awaited = gathering.awaited or gathering.rivalry(now) or former
        if awaited:
            self.out.send(peer, m.ResumeAwaited(ask.client, awaited))
            return None
        return self.gatherings.pop(ask.job.name)

    def _take(self, offer: Offer, now: float) -> str:
        """Takes a part; the text says who brings it already, and may be gone."""
        job, consumer = offer.ask.job, offer.ask.reader.consumer_index
        existing = self.out.state.jobs.get(job.name)
        if existing is not None and existing.save is not None:
            raise FailedPreconditionError(
                f"Job {job.name} is a save. Load the state under another job_name."
            )
        part = offer.checkpoint.part if consumer is None else consumer
        gathering = self.gatherings.get(job.name) or Gathering(now)
        known = gathering.offers.get(part)
        is_taken = known is not None and not known.left and known.ask.client != offer.ask.client
        if known is not None and is_taken and now - known.heard < OFFER_PATIENCE:
            who = "this reader" if consumer is None else f"consumer {consumer}"
            if now - gathering.rivals.setdefault(offer.ask.client, now) < RIVAL_PATIENCE:
                return (
                    f"another client, which loads the state of {who} of job {job.name}, to be gone"
                )
            raise FailedPreconditionError(
                f"The state of {who} of job {job.name} is being loaded by another client. Each "
                "state is for one reader."
            )
        self._check_room(len(offer.ask.resume), 0 if known is None else len(known.ask.resume))
        gathering.rivals.pop(offer.ask.client, None)
        gathering.offers[part] = offer
        self.gatherings[job.name] = gathering
        return ""

    def _is_occupied(self, gathering: Gathering, readers: list[Member], now: float) -> bool:
        """Whether others read the job and go on with that. Of several, one may be about
        to load its state, too.
        """
        several = len(gathering.offers) + len(gathering.missing) > 1
        patience = gathering.job.consumer_timeout if several else LIVING_PATIENCE
        return now - gathering.since >= patience and any(
            one.heard > gathering.since for one in readers
        )

    def _readers(self, job: str, now: float) -> list[Member]:
        """Who reads the job at present. Those who may have died are asked."""
        living = []
        for iteration in self.out.state.passes.get(job, {}).values():
            for name in sorted(iteration.clients):
                member = self.clients.members.get(name)
                unreachable = None if member is None else member.unreachable
                gone = member is None or name in self.absent
                if gone or (unreachable is not None and now - unreachable >= self.grace):
                    continue
                assert member is not None
                living.append(member)
                self.out.send(member.peer, m.Probe())
        return living

    def leave(self, client: str) -> None:
        """A client has closed while it waited. The others do not wait for it, and
        another may bring what it brought.

        Of readers without numbers they need only what it knew; what it would have read
        goes to them.
        """
        for name, gathering in list(self.gatherings.items()):
            gathering.rivals.pop(client, None)
            for part in [
                part for part, offer in gathering.offers.items() if offer.ask.client == client
            ]:
                gathering.offers[part].left = True
                if gathering.job.num_consumers is not None:
                    del gathering.offers[part]
            if not gathering.present:
                del self.gatherings[name]

    def _check_room(self, size: int, before: int) -> None:
        there = self._waiting_bytes - before
        if size > before and there + size > MOST_WAITING_BYTES:
            raise ResourceExhaustedError(
                f"A state of {size} bytes cannot wait for those that belong to it: the states that "
                "wait already have "
                f"{there}, and together they have {MOST_WAITING_BYTES} at most. Take states "
                "without operations that "
                "hold elements (a smaller shuffle), or load those of one job after those of "
                "another."
            )
        self._waiting_bytes = there + size

    def tick(self, now: float) -> None:
        """Ends what has waited in vain, and forgets who asks no more."""
        self._refused = {client: told for client, told in self._refused.items() if now < told[0]}
        for name, gathering in list(self.gatherings.items()):
            silent = [
                part
                for part, offer in gathering.offers.items()
                if not offer.left and now - offer.heard >= 3 * OFFER_PATIENCE
            ]
            timeout = gathering.job.consumer_timeout
            if gathering.missing and now - gathering.since >= timeout:
                text = (
                    f"For {timeout:g} s (consumer_timeout) job {name} has waited for "
                    f"{gathering.awaited}. All readers "
                    "go on together: load the states of all of them."
                )
                self._refuse_all(name, UnavailableError(text), now)
                continue
            for part in silent:
                del gathering.offers[part]
            gathering.rivals = {
                one: when
                for one, when in gathering.rivals.items()
                if now - when < 3 * RIVAL_PATIENCE
            }
            if not gathering.present:
                del self.gatherings[name]
        offers = [
            offer for gathering in self.gatherings.values() for offer in gathering.offers.values()
        ]
        self._waiting_bytes = sum(len(offer.ask.resume) for offer in offers)

    def refuse_all(self, gathering: Gathering, error: DataServiceError, now: float) -> None:
        """Tells all who have brought parts why the job can not go on from them."""
        for offer in gathering.present:
            self._refused[offer.ask.client] = (now + REFUSAL_KEPT, type(error), str(error))
            self.out.refuse(offer.peer, offer.ask.client, type(error), str(error))

    def _refuse_all(self, job: str, error: DataServiceError, now: float) -> None:
        self.refuse_all(self.gatherings.pop(job), error, now)


def _occupied(job: str) -> str:
    return (
        f"Job {job} is read by others at present; a state begins a job anew and cannot join it. "
        "Close their iterators "
        "or stop their programs first, or load the state under another job_name."
    )
