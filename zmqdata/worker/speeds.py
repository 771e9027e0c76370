"""The measured speed of links: reported to the task runners, whose compression is
reported to the core.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping

from zmqdata.blocks import UNKNOWN_SPEED
from zmqdata.core.worker import events as e
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.links import Link
from zmqdata.core.worker.speeds import LinkSpeed, LinkUse, task_speed
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.worker.links import LinkSockets
from zmqdata.worker.tasks.runner import TaskRunner

MOST_HOSTS = 1000
"""Maximum number of hosts whose speed is remembered."""
Runners = Mapping[tuple[int, int], TaskRunner]


class Speeds:
    """Measures the links of a worker periodically.

    Args:
        core: knows which client reads which task.
        sockets: count what they send.
    """

    def __init__(self, core: WorkerCore, sockets: LinkSockets) -> None:
        self._core = core
        self._sockets = sockets
        self._measured: dict[str, LinkSpeed] = {}
        self._used: dict[str, LinkUse] = {}
        self._linked: dict[tuple[int, int], tuple[float, float]] = {}
        self._hosts: OrderedDict[str, float] = OrderedDict()  # last known speed by host

    def look(self, now: float, runners: Runners) -> Iterator[e.Compressing]:
        """Measure the links, and set the compression of each runner accordingly. Yield
        the changes of compression.
        """
        far = self._sockets.far
        self._measured = {
            link: self._measured.get(link) or self._begun(host) for link, host in far.items()
        }
        tasks = [task for task in self._core.tasks.values() if task.key in runners]
        readers = {task.key: list(self._readers(task)) for task in tasks}
        packed = {
            link.name
            for task in tasks
            if runners[task.key].compression.chosen
            for link in readers[task.key]
        }
        self._used = {link: self._used.get(link) or LinkUse() for link in far}
        for name, sent in self._sockets.sent().items():
            self._measured[name].observe(now, sent.nbytes, sent.busy, name in packed)
            self._used[name].observe(now, sent.nbytes, sent.busy)
            self._remember(far[name], self._measured[name].bytes_per_second)
        sharing = Counter(
            link.name for task in tasks if task.total is None for link in readers[task.key]
        )
        self._linked = {
            task.key: max(
                (self._used[link.name].shown for link in readers[task.key] if link.name in far),
                default=(0.0, 0.0),
            )
            for task in tasks
        }
        for task in tasks:
            runner, links = runners[task.key], readers[task.key]
            if not task.definition.save_path:
                # Tasks that take turns never compress at the same time: each has the
                # whole link during its turn.
                parts = [1 if runner.takes_turns else max(1, sharing[link.name]) for link in links]
                speeds = [
                    self._speed(link.name) / part for link, part in zip(links, parts, strict=True)
                ]
                numbered, cached = (
                    task.definition.job.num_consumers is not None,
                    task.definition.job.cache,
                )
                at_client = max([1, *(link.links for link in links if link.name in far)])
                runner.compression.speed = task_speed(
                    speeds, numbered=numbered, cached=bool(cached)
                )
                runner.compression.links = at_client
                runner.compression.is_wanted = not links or any(link.decompresses for link in links)
            if runner.compression.shown != task.compressed:
                yield e.Compressing(*task.key, runner.compression.shown)

    def linked(self, key: tuple[int, int]) -> tuple[float, float]:
        """Return for a task the share of time in which its busiest link had bytes in
        flight, and the bytes per second that this link moved meanwhile.
        """
        return self._linked.get(key, (0.0, 0.0))

    def _begun(self, host: str) -> LinkSpeed:
        """Return the speed of a new link, which starts with the last known speed of its
        host. The next job of a training loop need not measure it again.
        """
        return LinkSpeed(self._hosts.get(host))

    def _remember(self, host: str, speed: float | None) -> None:
        if speed is not None:
            self._hosts[host] = speed
            self._hosts.move_to_end(host)
            if len(self._hosts) > MOST_HOSTS:
                self._hosts.popitem(last=False)

    def _readers(self, task: HostedTask) -> Iterator[Link]:
        for client, stream in task.dealing.streams.items():
            link = self._core.links.by_client.get(client)
            if stream.open and link is not None:
                yield link

    def _speed(self, link: str) -> float:
        if link not in self._measured:
            return math.inf
        return self._measured[link].bytes_per_second or UNKNOWN_SPEED
