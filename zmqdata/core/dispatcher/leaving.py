"""Which readers may leave an iteration of which others still hold elements: the
dispatcher's side.

A reader could leave as soon as nothing more comes to it. But another one may have died
just before, and nobody has noticed; what was on its way to that one would then be
nobody's. So a reader stays until all is delivered, or another one is heard that reads
on: that one says so in its turn. The last of them waits until the silent ones are given
up.

Nothing here is durable: who is done says so again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata import messages as m
from zmqdata.core.dispatcher.liveness import Roster
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.dispatcher.state.tasks import Iteration

FEW = 64
"""Readers of which each is asked for a sign when one is done. Of more of them some one
speaks soon by itself.
"""


@dataclass
class Done:
    """A reader that has all there is for it, since when, by which heartbeat; and
    whether it was told that it may go.
    """

    beat: int
    since: float
    told: bool = False


class Departures:
    """Knows who is done, and tells who may go.

    Args:
        out: takes messages.
        clients: the living clients.
    """

    def __init__(self, out: Outbox, clients: Roster) -> None:
        self.out = out
        self.clients = clients
        self._done: dict[int, dict[str, Done]] = {}

    def take(self, iteration: Iteration, beat: m.ClientHeartbeat, now: float) -> None:
        """A reader says whether it is done; one that is not stays for those that
        are.
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
            known.beat, known.told = beat.beat, False  # it was not told, or got more meanwhile

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
        """Counts readers, too, that workers have heard, and we have not."""
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
        """A reader is gone."""
        self._done.get(iteration.iteration, {}).pop(client, None)
