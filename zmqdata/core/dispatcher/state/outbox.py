"""The decisions of the current turn: commands in order, with durable facts applied as
they are made.

Protocol 1.5, 5.4 and 6.1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import structs

from zmqdata.core.dispatcher.events import Commit, DispatcherCommand, LogLine, Peer, Send
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.state.tasks import Iteration
from zmqdata.messages import JournalCounts, Message, RequestRefused
from zmqdata.updates import BeginLifeUpdate, Update

TICKET = -1
"""Name from which tickets are derived."""
PROOF = -3
"""Name from which the proofs of counts are derived."""
MARK = -2
"""Name from which the mark of a start is derived."""


class Lost(NamedTuple):
    """Records of an iteration that a journal lacks."""

    iteration: Iteration
    """The iteration."""
    records: int
    """Number of records at least."""
    is_firm: bool
    """True if some of them are facts that no peer can tell again."""


class Outbox:
    """The dispatcher's state, with the commands that the shell carries out after this
    turn.

    Args:
        seed: determines every random choice of the dispatcher. Drawn anew at each
            start.

    Attributes:
        mark: random mark of this start, which no other start has, even one of the same
            journal.
        now: time of the current event.
    """

    def __init__(self, seed: int) -> None:
        # Workers and clients outlive a dispatcher without a journal. Its successor must
        # not reuse the numbers that they know for other tasks and datasets.
        self.state = DispatcherState(seed, base_of(derived(seed)))
        self.mark = derived(seed, MARK)
        self.commands: list[DispatcherCommand] = []
        self.now = 0.0
        self._begun: dict[int, float] = {}
        self._over: set[int] = set()

    def begin_life(self) -> None:
        """Take over a state. New objects are numbered anew, as the journal of a former
        dispatcher may be older than what its peers know.
        """
        state = self.state
        base = base_of(self.mark) if state.life else 0
        self.commit(
            BeginLifeUpdate(
                state.life + 1,
                state.seed,
                state.next_dataset + base,
                state.next_iteration + base,
                state.next_task + base,
                state.next_incarnation,
                self.mark,
            )
        )

    def counts_of(self, iteration: Iteration) -> JournalCounts:
        """Return the numbers of facts that this dispatcher has written of an
        iteration.
        """
        number, tally = iteration.iteration, iteration.tally
        counts = JournalCounts(self.mark, number, tally.records, tally.firm)
        return structs.replace(counts, proof=self._proof_of(counts))

    def _proof_of(self, one: JournalCounts) -> int:
        return self.derive_seed(PROOF, one.mark, one.iteration, one.records, one.firm)

    def losses(self, told: Iterable[JournalCounts]) -> Iterator[Lost]:
        """Yield the records that the journal lacks of each iteration, according to the
        numbers that a peer has from former dispatchers.
        """
        for one in told:
            iteration = self.state.iterations.get(one.iteration)
            if iteration is None or one.mark == self.mark or not iteration.tally.found:
                continue
            # The journal may have lost all of a start, with its mark.
            ends = iteration.tally.found
            records, firm = ends.get(one.mark, next(reversed(ends.values())))
            is_over = iteration.failure is not None or (
                iteration.saving is not None and iteration.saving.ended
            )
            lacks = max(one.records - records, one.firm - firm)
            if lacks > 0 and not is_over and one.proof == self._proof_of(one):
                yield Lost(iteration, lacks, one.firm > firm)

    def commit(self, update: Update) -> None:
        """Apply a durable fact, and have it written before any later message is
        sent.
        """
        self.state.apply(update)
        self.commands.append(Commit(update))

    def send(self, peer: Peer | None, message: Message) -> None:
        """Send a message, unless the peer is not connected. Repeated requests make up
        for it.
        """
        if peer is not None:
            self.commands.append(Send(peer, message))

    def refuse(self, peer: Peer | None, request: str, error: type[Exception], text: str) -> None:
        """Tell a peer that its request is refused."""
        self.send(peer, RequestRefused(request, error.__name__, text))

    def note(self, level: str, text: str, of: Iteration | None = None) -> None:
        """Write a line to the log, of an iteration or of none."""
        about = ("", 0) if of is None else (of.job.name, of.incarnation)
        self.commands.append(LogLine(level, text, about[0], about[1]))

    def note_begin(self, iteration: Iteration, how: str) -> None:
        """Write to the log that an iteration has begun."""
        self._begun[iteration.iteration] = self.now
        self.note("info", f"{_of_job(iteration)} {how}", iteration)

    def note_end(self, iteration: Iteration, how: str, until: float | None = None) -> None:
        """Write to the log, once, that an iteration has ended, with what it has
        delivered. An iteration that a former dispatcher began has no duration.

        Args:
            iteration: the iteration.
            how: how it has ended.
            until: time of its end; None: now.
        """
        if iteration.iteration not in self._over:
            self._over.add(iteration.iteration)
            began = self._begun.get(iteration.iteration)
            ended = self.now if until is None else until
            lasted = "" if began is None else f" in {max(0.0, ended - began):.1f} s"
            text = f"{_of_job(iteration)} {how}: {iteration.delivered} elements{lasted}"
            self.note("info", text, iteration)

    def forget(self, iteration: Iteration) -> None:
        """Forget an iteration that is collected."""
        self._begun.pop(iteration.iteration, None)
        self._over.discard(iteration.iteration)

    def drain(self) -> list[DispatcherCommand]:
        """Return the commands of this turn. The next turn starts without any."""
        commands, self.commands = self.commands, []
        return commands

    def derive_seed(self, *names: int) -> int:
        """Return a seed below 2**63 that depends only on the dispatcher's seed and the
        names.
        """
        return derived(self.state.seed, *names)

    def ticket(self, iteration: int) -> int:
        """Return the ticket that proves to a worker that a client reads this iteration.
        Only the seed makes it predictable.
        """
        return self.derive_seed(iteration, TICKET)


def base_of(seed: int) -> int:
    """Return a number from which a start of a dispatcher numbers its objects, and most
    likely no other start.
    """
    return 10_000 * (seed % 1_000_000)


def derived(*numbers: int) -> int:
    """Return a seed below 2**63 that depends only on these numbers."""
    return (
        int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "little")
        >> 1
    )


def _of_job(iteration: Iteration) -> str:
    if iteration.job.save is not None:
        return f"the save to {iteration.job.save.path}"
    return f"job {iteration.job.name}, repetition {iteration.repetition},"
