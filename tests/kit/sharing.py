"""A program of clients of unequal pace that share a job, with misfortunes in the middle
of giving elements back, and how long a job takes that nothing disturbs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.kit.runner import SimulatedPipeline
from tests.kit.scenario import Program
from tests.kit.world import World
from zmqdata.testing.network import CALM

UNLUCKY = 0.2
"""Share of the requests to give elements back at which something happens."""


class SharingProgram(Program):
    """A program whose readers often meet a misfortune while they are asked to give
    elements back.
    """

    def begin(self) -> None:
        self.world.laws.on_asked_back.append(self._asked_back)

    def _asked_back(self, name: str) -> None:
        """Now and then, let something happen to a client that is asked to give elements
        back, before it hears of it or after its answer.
        """
        draw = self.scene.stream("moments")
        found = [one for one in self.world.clients if name in one.known_as]
        if not found or draw.random() >= UNLUCKY or self.world.network.faults == CALM:
            return
        [client] = found
        ways: list[Callable[[], object]] = [
            client.die,
            client.close,
            lambda: client.freeze(draw.choice([0.5, 3.0, 16.0])),
            lambda: self.world.network.cut_links(client.name),
            self.kill_worker,
            self.drain_worker,
        ]
        way = draw.choice(ways)
        self.world.laws.tell(name, "meets a misfortune when it is asked to give elements back")
        self.world.clock.after(
            draw.choice([0.0, 0.001, 0.01, 0.1]),
            lambda: way() if client.outcome is None else None,
        )


def time_to_share(
    seed: int, elements: int, paces: list[float], workers: int = 2, late: float = 0.0
) -> tuple[float, float]:
    """Let undisturbed clients read a job in a simulated world.

    Args:
        seed: decides delays, and how workers make blocks.
        elements: number of elements.
        paces: seconds that each client takes for an element.
        workers: number of workers.
        late: seconds after which all clients but the first begin.

    Returns:
        Seconds until the last client has read its last element, and the ideal: the
        elements, divided by the speed of all clients together.

    Example:
        >>> seconds, ideal = time_to_share(seed=1, elements=200, paces=[0.01, 0.1])
        >>> seconds < 1.1 * ideal + 0.1 + 0.2
        True
    """
    world = World(seed, "DYNAMIC", SimulatedPipeline(splits=elements, most=1))
    for _ in range(workers):
        world.add_worker().is_fast = True
    world.clock.advance(1.0)
    began = world.clock.now

    def come(pace: float) -> None:
        client = world.add_client()
        client.pace, client.gulp, client.is_steady = pace, 1, True

    for number, pace in enumerate(paces):
        world.clock.after(late if number else 0.0, partial(come, pace))
    world.run_until(lambda: len(world.clients) == len(paces) and world.all_done)
    world.laws.check_end()
    total = len(world.pipeline.names())
    first = min(late, total * paces[0])
    left = total - first / paces[0]
    ideal = first + left / sum(1 / pace for pace in paces)
    return world.progress - began, ideal
