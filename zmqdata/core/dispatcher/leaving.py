"""Departures: which readers may leave an iteration while other readers still hold
elements of it. This is the dispatcher's side.

A reader could leave as soon as no more elements come to it. But another reader may have
died just before, unnoticed, and its elements would then reach no reader. A reader
therefore stays until all elements are delivered, or until another reader is heard that
reads on. The last reader waits until the silent ones are given up.

Nothing here is durable: readers repeat that they are done.

Decision 0026; protocol 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata import messages as m
from zmqdata.core.dispatcher.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration

FEW = 64
"""Maximum number of readers for which all are probed when a reader is done. Among more
readers, one soon speaks by itself.
"""


@dataclass
class Done:
    """A reader that has received everything available to it."""

    beat: int
    """Number of the heartbeat that said so."""
    since: float
    """When it first said so."""
    told: bool = False
    """True if it was told that it may leave."""


class Departures:
    """Tracks which readers are done, and tells them when they may leave.

    Args:
        out: receives messages.
        clients: the living clients.
    """

    def __init__(self, out: Outbox, clients: Roster) -> None:
        self.out = out
        self.clients = clients
        self._done: dict[int, dict[str, Done]] = {}

    def take(self, iteration: Iteration, beat: m.ClientHeartbeat, now: float) -> None:
        """Record whether a reader is done. A reader that is not done releases the
        others.
        """
        done = self._done.get(iteration.iteration)
        if not beat.done:
            if done is not None:
                done.pop(beat.client, None)
                self._release(done)
            return
        if done is None:
            done = self._done[iteration.iteration] = {}
        known = done.get(beat.client)
        if known is None:
            done[beat.client] = Done(beat.beat, now)
            self._ask(iteration, done)
        else:
            known.beat, known.told = (
                beat.beat,
                False,
            )  # the message was lost, or more elements came since

    def are_all_done(self, iteration: Iteration) -> bool:
        """Return True if every reader of an iteration is done."""
        return iteration.clients <= self._done.get(iteration.iteration, {}).keys()

    def _ask(self, iteration: Iteration, done: dict[str, Done]) -> None:
        if len(iteration.clients) <= FEW:
            for client in sorted(iteration.clients - done.keys()):
                self.out.send(self.clients.peer(client), m.Probe())

    def _release(self, done: dict[str, Done]) -> None:
        for client, one in done.items():
            if not one.told:
                one.told = True
                self.out.send(self.clients.peer(client), m.MayEnd(client, one.beat))

    def tick(self, iterations: dict[int, Iteration]) -> None:
        """Release readers if workers have heard another reader that the dispatcher has
        not heard.
        """
        for number in [number for number in self._done if number not in iterations]:
            del self._done[number]
        for number, done in self._done.items():
            since = [one.since for one in done.values() if not one.told]
            others = iterations[number].clients - done.keys() if since else ()
            signs = [
                self.clients.members[client].sign for client in others if client in self.clients
            ]
            if signs and max(signs) > max(since):
                self._release(done)

    def forget(self, client: str, iteration: Iteration) -> None:
        """Forget a reader that is gone."""
        self._done.get(iteration.iteration, {}).pop(client, None)
