"""Incarnations that begin from states: which client brings the state of which reader,
which states are still missing, and which clients are in the way.

Nothing gathered here is durable: clients repeat their requests until they are answered.
``passes.checkpoints`` validates the states, ``passes.resuming`` turns them into
updates, and ``readers.jobs`` opens the iteration.

Decisions 0020 and 0033; protocol 3.12 and 3.16.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.dispatcher.events import Peer
from zmqdata.core.dispatcher.passes.checkpoints import joined, read_checkpoint
from zmqdata.core.dispatcher.peers.lease import Presence
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.runs import Incarnation, KnownRun
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.core.limits import MOST_WAITING_BYTES
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    ResourceExhaustedError,
    UnavailableError,
)

LIVING_PATIENCE = 3.0
"""Seconds after which a reader has said goodbye if it closes, and is known to be dead
or alive otherwise.
"""
OFFER_PATIENCE = 5.0
"""Seconds. A client that has not repeated its request for this long counts as gone, and
another client may bring the same part.
"""
RIVAL_PATIENCE = OFFER_PATIENCE + 2.0
"""Seconds for which a second client waits for the first: the first may have been killed
and restarted at once.
"""


REFUSAL_KEPT = 60.0
"""Seconds for which clients that were refused together are refused again. A client that
missed the refusal must not wait alone.
"""
LOADED_KEPT = 10_000
"""Maximum number of states without an iteration that are remembered as loaded."""


@dataclass
class Offer:
    """A reader's part of a job that resumes, and the client that brings it."""

    peer: Peer
    """Peer of the client."""
    ask: m.OpenIteration
    """The client's request."""
    checkpoint: m.Checkpoint
    """The decoded state."""
    heard: float
    """When the client last repeated its request."""
    left: bool = False
    """True if the client has closed; its state still counts."""


@dataclass
class Gathering:
    """The parts of a job that have arrived so far."""

    since: float
    """When the first part arrived."""
    rivals: dict[str, float] = field(default_factory=dict)
    """Clients that bring a part which another client has brought, and since when."""
    offers: dict[int | str, Offer] = field(default_factory=dict)
    """Offers by consumer index, or by the client from which the state was taken."""

    @property
    def present(self) -> list[Offer]:
        """The offers whose clients have not closed."""
        return [offer for offer in self.offers.values() if not offer.left]

    @property
    def job(self) -> m.JobParameters:
        """The parameters that the first client asks for."""
        return next(iter(self.offers.values())).ask.job

    @property
    def missing(self) -> list[int | str]:
        """The keys of the parts that have not arrived yet."""
        if self.job.num_consumers is not None:
            return [
                consumer
                for consumer in range(self.job.num_consumers)
                if consumer not in self.offers
            ]
        wanted = {part for offer in self.offers.values() for part in offer.checkpoint.parts}
        return sorted(wanted - self.offers.keys(), key=str)

    def rivalry(self, now: float) -> str:
        """Return what is awaited until it is known which of two clients continues; ""
        if no part is disputed.
        """
        disputed = any(now - since < RIVAL_PATIENCE for since in self.rivals.values())
        return (
            f"one of two clients that load the same state of job {self.job.name} to be gone"
            if disputed
            else ""
        )

    @property
    def awaited(self) -> str:
        """The missing parts in words; "" if there are none."""
        missing = self.missing
        if not missing:
            return ""
        if self.job.num_consumers is not None:
            named = ", ".join(map(str, missing[:20]))
            return f"the state of consumer {named} of job {self.job.name}, which is not loaded yet"
        known = {name for offer in self.offers.values() for name in offer.checkpoint.parts}
        return (
            f"{len(missing)} of the {len(known)} states that belong together (every "
            f"reader of the job had a state), to be loaded for job {self.job.name}"
        )


@dataclass(frozen=True)
class Resumption:
    """An iteration that began from the states of numbered consumers."""

    iteration: int
    """Number of the iteration."""
    parts: dict[int, tuple[str, int, int]]
    """For each consumer the process that brought its state, a hash of the state, and
    the step that it names.
    """


class Incarnations:
    """Gathers the parts of jobs that resume from states.

    Args:
        out: state and commands.
        presence: finds out which readers are alive.
        join: lets a client in that needs no state.

    Attributes:
        gatherings: the parts of each job that have arrived, by job name and key of the
            run.
    """

    def __init__(
        self,
        out: Outbox,
        presence: Presence,
        join: Callable[[Peer, m.OpenIteration, float], None],
    ) -> None:
        self.out = out
        self.presence = presence
        self._join = join
        self.gatherings: dict[tuple[str, str], Gathering] = {}
        self._resumptions: dict[tuple[str, str], Resumption] = {}
        # The last client that has loaded a state of its first element, by its part.
        self._loaded: dict[str, str] = {}
        # By client: expiry time, error class and text.
        self._refused: dict[str, tuple[float, type[DataServiceError], str]] = {}
        # Bytes of the states gathered, including those dropped since the last tick.
        self._waiting_bytes = 0

    def offer(self, peer: Peer, ask: m.OpenIteration, now: float) -> Gathering | None:
        """Accept a part. Return all parts once the last has arrived and no client
        reads the job any more.
        """
        if ask.client in self._refused:
            _, error, text = self._refused[ask.client]
            self.out.refuse(peer, ask.client, error, text)
            return None
        dataset = self.out.state.datasets[ask.job.dataset_id]
        sources = (dataset.sources or ()) if ask.job.processing_mode == "DYNAMIC" else ()
        try:
            checkpoint = read_checkpoint(ask, dataset)
            if checkpoint.fingerprint:
                joined((checkpoint,), sources)
            if self._is_first(ask, checkpoint):
                self._join(peer, ask, now)
                return None
            in_the_way = self._store(Offer(peer, ask, checkpoint, now), now)
        except DataServiceError as error:
            self.out.refuse(peer, ask.client, type(error), str(error))
            return None
        if in_the_way:
            self.out.send(peer, m.OpenAwaited(ask.client, in_the_way))
            return None
        key = _key_of(ask)
        gathering = self.gatherings[key]
        lives = self.presence.is_any_alive(self._readers(key), ask.client, now)
        if lives and self._has_waited(gathering, now):
            self._refuse_all(key, FailedPreconditionError(_occupied(ask.job.name)), now)
            return None
        former = "" if lives is False else f"former readers of job {ask.job.name} to be gone"
        awaited = gathering.awaited or gathering.rivalry(now) or former
        if awaited:
            self.out.send(peer, m.OpenAwaited(ask.client, awaited))
            return None
        return self.gatherings.pop(key)

    def _is_first(self, ask: m.OpenIteration, checkpoint: m.Checkpoint) -> bool:
        """Return True if a client whose state knows no iteration is let in like a
        client without a state: neither the reader that saved it, nor another that has
        loaded it, nor its process has had anything of what it would read.

        The same holds for a state of the first element that knows its iteration, if a
        client of its run was let in this way. Numbered consumers always begin
        together, and states that are gathered may name the client.
        """
        state, part = self.out.state, checkpoint.part
        if ask.reader.consumer_index is not None or _key_of(ask) in self.gatherings:
            return False
        run = state.runs.get(_key_of(ask))
        if run is None:
            incarnation = state.newest_of(ask.job.name)
        else:
            incarnation = state.incarnations[run.reads.incarnation]
        numbers = {one.iteration for one in incarnation.iterations.values()} if incarnation else ()
        read = itertools.chain(state.departed.items(), state.client_iteration.items())
        clients = {name for name, number in read if number in numbers}
        others = set() if run is None else clients.intersection(self._loaded.values())
        if checkpoint.fingerprint and not (others and checkpoint.is_untouched):
            return False
        if self._loaded.get(part) in clients or part in map(m.shown_name, clients):
            return False
        self._loaded.pop(part, None)
        self._loaded[part] = ask.client
        if len(self._loaded) > LOADED_KEPT:
            del self._loaded[next(iter(self._loaded))]
        return not (run and _has_had(ask, run, incarnation))

    def begin(self, gathering: Gathering, iteration: int) -> None:
        """Record which states an iteration of numbered consumers began from."""
        parts = {
            part: _part_of(offer)
            for part, offer in gathering.offers.items()
            if isinstance(part, int)
        }
        if parts:
            key = _key_of(next(iter(gathering.offers.values())).ask)
            self._resumptions[key] = Resumption(iteration, parts)

    def found_again(self, ask: m.OpenIteration) -> Iteration | None:
        """Return the iteration that began from the very state that a numbered consumer
        brings once more, if its process has taken nothing since.

        A training library may begin a pass, leave it, and begin it once more, while the
        other ranks have begun it once. They would never bring their states again.
        """
        key, consumer = _key_of(ask), ask.reader.consumer_index
        known = self._resumptions.get(key)
        if not ask.resume or known is None or key in self.gatherings:
            return None
        iteration = self.out.state.iterations.get(known.iteration)
        if iteration is None or iteration.rounds is None or iteration.failure is not None:
            return None
        is_other = structs.replace(ask.job, seed=iteration.job.seed) != iteration.job
        if consumer not in known.parts or is_other:  # the offer says what is wrong with it
            return None
        process, content, step = known.parts[consumer]
        is_same = (process, content) == (ask.affiliation.process, hash(ask.resume))
        has_taken = iteration.rounds.steps[consumer] > step
        return iteration if process and is_same and not has_taken else None

    def awaited_by(self, ask: m.OpenIteration) -> str:
        """Return what a client without a state must await, because others of its run
        load theirs; "" if none do.
        """
        gathering = self.gatherings.get(_key_of(ask))
        if gathering is None:
            return ""
        return gathering.awaited or f"the states of job {ask.job.name} to be loaded"

    def _store(self, offer: Offer, now: float) -> str:
        """Store a part. Return what must be awaited first if another client, which may
        be gone, has brought it already; "" otherwise.
        """
        job, consumer = offer.ask.job, offer.ask.reader.consumer_index
        existing = self.out.state.newest_of(job.name)
        if existing is not None and existing.job.save is not None:
            raise FailedPreconditionError(
                f"Job {job.name} is a save. Load the state under another job_name."
            )
        part = offer.checkpoint.part if consumer is None else consumer
        gathering = self.gatherings.get(_key_of(offer.ask)) or Gathering(now)
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
        self.gatherings[_key_of(offer.ask)] = gathering
        return ""

    def _has_waited(self, gathering: Gathering, now: float) -> bool:
        """Return True if readers that are in the way had time to leave. If the job has
        several readers, such a client may be about to load its state too.
        """
        several = len(gathering.offers) + len(gathering.missing) > 1
        patience = gathering.job.consumer_timeout if several else LIVING_PATIENCE
        return now - gathering.since >= patience

    def _readers(self, key: tuple[str, str]) -> list[str]:
        """Return the clients that read the job for the same run at present. Readers of
        other runs keep their incarnation.
        """
        job, run = key
        return [
            name
            for incarnation in self.out.state.jobs.get(job, {}).values()
            for iteration in incarnation.iterations.values()
            for name, opening in iteration.openings.items()
            if opening.run == run
        ]

    def leave(self, client: str) -> None:
        """Release the part of a client that closed while it waited. The others stop
        waiting for it, and another client may bring the part.

        Of a reader without a number, only its state is needed; its share of the
        elements goes to the others.
        """
        for key, gathering in list(self.gatherings.items()):
            gathering.rivals.pop(client, None)
            for part in [
                part for part, offer in gathering.offers.items() if offer.ask.client == client
            ]:
                gathering.offers[part].left = True
                if gathering.job.num_consumers is not None:
                    del gathering.offers[part]
            if not gathering.present:
                del self.gatherings[key]

    def _check_room(self, size: int, before: int) -> None:
        there = self._waiting_bytes - before
        if size > before and there + size > MOST_WAITING_BYTES:
            raise ResourceExhaustedError(
                f"The dispatcher has no room for a state of {size} bytes that waits "
                "for the other states of its job: waiting states already have "
                f"{there} bytes, and their sum is at most {MOST_WAITING_BYTES} bytes. "
                "Take states without operations that hold elements (a smaller "
                "shuffle), or resume one job after the other."
            )
        self._waiting_bytes = there + size

    def tick(self, now: float) -> None:
        """Refuse jobs that have waited too long, and forget clients that no longer
        ask.
        """
        self._refused = {client: told for client, told in self._refused.items() if now < told[0]}
        for key, gathering in list(self.gatherings.items()):
            silent = [
                part
                for part, offer in gathering.offers.items()
                if not offer.left and now - offer.heard >= 3 * OFFER_PATIENCE
            ]
            timeout = gathering.job.consumer_timeout
            if gathering.missing and now - gathering.since >= timeout:
                text = (
                    f"For {timeout:g} s (consumer_timeout) job {key[0]} has waited for "
                    f"{gathering.awaited}. All readers resume together: load the "
                    "states of all of them."
                )
                self._refuse_all(key, UnavailableError(text), now)
                continue
            for part in silent:
                del gathering.offers[part]
            gathering.rivals = {
                one: when
                for one, when in gathering.rivals.items()
                if now - when < 3 * RIVAL_PATIENCE
            }
            if not gathering.present:
                del self.gatherings[key]
        living = self.out.state.iterations
        self._resumptions = {
            key: known for key, known in self._resumptions.items() if known.iteration in living
        }
        offers = [
            offer for gathering in self.gatherings.values() for offer in gathering.offers.values()
        ]
        self._waiting_bytes = sum(len(offer.ask.resume) for offer in offers)

    def refuse_all(self, gathering: Gathering, error: DataServiceError, now: float) -> None:
        """Tell all clients that have brought parts why the job cannot resume."""
        for offer in gathering.present:
            self._refused[offer.ask.client] = (now + REFUSAL_KEPT, type(error), str(error))
            self.out.refuse(offer.peer, offer.ask.client, type(error), str(error))

    def _refuse_all(self, key: tuple[str, str], error: DataServiceError, now: float) -> None:
        self.refuse_all(self.gatherings.pop(key), error, now)


def _part_of(offer: Offer) -> tuple[str, int, int]:
    return offer.ask.affiliation.process, hash(offer.ask.resume), offer.checkpoint.step


def _has_had(ask: m.OpenIteration, run: KnownRun, incarnation: Incarnation | None) -> bool:
    """Return True if the process of a client has read the pass that the client would
    read without a state. The workers of a data loader read a pass together.
    """
    who = ask.affiliation
    member = run.members.get(who.member or who.process)
    if incarnation is None or member is None or who.copies or who.reading_pass:
        return False
    number = ask.repetition + member.loaded
    if not who.process or member.process != who.process or member.used < number:
        return False
    found = incarnation.iterations.get(member.base + number)
    if found is None or found.finished:
        return True
    others = {one for one, how in found.openings.items() if how.process != who.process}
    return bool((found.tally.delivered.keys() | found.openings.keys()) - others)


def _key_of(ask: m.OpenIteration) -> tuple[str, str]:
    return ask.job.name, ask.affiliation.run


def _occupied(job: str) -> str:
    return (
        f"Job {job} is read by other processes of this run at present; a state begins a new "
        "incarnation of the job and cannot join it. Close their iterators or stop them first, or "
        "load the state under another job_name."
    )
