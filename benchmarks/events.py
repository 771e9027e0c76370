"""Measure the cost of each event in the dispatcher's core by the number of workers.

    python benchmarks/events.py [--workers 100 --workers 1000 ...] [--clients 10]
        [--json FILE]

The cost should not grow with the number of workers. The core is real, without sockets.
Workers register while a job is being read, send heartbeats, request splits and end;
clients join and report; some workers die. Seconds are CPU time, of the best of several
rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zmqdata import messages as m
from zmqdata.core import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.splits import IndexSplits

NUMBERS = (100, 1_000, 5_000, 20_000)
CLIENTS = 10
ROUNDS = 5
DIGEST = "d" * 64


class Crowd:
    """A dispatcher core with many workers and the clients of a DYNAMIC job.

    Messages of the core are not delivered, except that this object notes what a peer
    needs in order to continue. Time passes as if every peer sent a heartbeat each
    second and the core ticked four times a second.

    Args:
        clients: number of clients that read the job from the beginning.
        splits: number of splits of its source; None for an endless source.
    """

    def __init__(self, clients: int = CLIENTS, splits: int | None = None) -> None:
        self.core = DispatcherCore(1, DispatcherTimes())
        self.now = 0.0
        self.workers: list[str] = []
        self.clients: list[str] = []
        self.versions: dict[str, int] = {}
        self.tasks: dict[str, tuple[int, int]] = {}
        self.have: dict[int, int] = {}
        self.made: dict[int, int] = {}
        self.sent = 0
        description = m.DatasetDescription(
            DIGEST, "print", (IndexSplits(splits),), "", None, -2, None, "3.11", "0"
        )
        self.hear("somebody", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        for _ in range(clients):
            self.join()

    def feed(self, event: object) -> None:
        """Pass an event to the core, and note its answers."""
        for command in self.core.handle(self.now, event):
            if isinstance(command, e.Send):
                self.sent += 1
                self._note(command.peer, command.message)

    def _note(self, peer: e.Peer, message: object) -> None:
        if isinstance(message, m.HostTask):
            one = message.definition
            self.tasks[peer] = one.task, one.attempt
            self.have[one.task] = one.bases[0] + len(one.ledger[0])
        elif isinstance(message, m.SplitsAssigned):
            self.have[message.task] = message.first + len(message.splits)
        elif isinstance(message, m.TasksChanged):
            self.versions[peer] = message.task_list.version

    def hear(self, peer: e.Peer, message: m.Message) -> None:
        """Pass a control message to the core."""
        self.feed(e.Received(peer, message))

    # --- events

    def register(self) -> None:
        """Register a worker."""
        name = f"worker-{len(self.workers)}"
        self.workers.append(name)
        self.hear(name, m.RegisterWorker(name, f"tcp://{name}:1", (), "3.11", "0", ()))

    def join(self) -> None:
        """Let a client join."""
        name = f"client-{len(self.clients)}"
        self.clients.append(name)
        self.hear(name, m.OpenIteration(name, m.JobParameters("job", "dataset", "DYNAMIC"), 0))

    def beat(self, worker: str) -> None:
        """Send a worker's heartbeat, with progress of its task."""
        reports: tuple[m.TaskReport, ...] = ()
        if worker in self.tasks:
            task, attempt = self.tasks[worker]
            self.made[task] = self.made.get(task, 0) + 100
            reports = (m.TaskReport(task, attempt, self.made[task], None),)
        self.hear(worker, m.WorkerHeartbeat(worker, reports, tuple(self.clients[:10])))

    def ask(self, worker: str) -> None:
        """Request splits for a worker's task."""
        task, attempt = self.tasks[worker]
        self.hear(worker, m.RequestSplits(worker, task, attempt, 0, 0, self.have[task], pace=0.001))

    def report(self, client: str, number: int, tasks: Iterable[str]) -> None:
        """Report a client's deliveries from the tasks of some workers."""
        delivered = {}
        for worker in tasks:
            task, _ = self.tasks[worker]
            delivered[task] = ((100 * number, 100 * number + 100),)
        self.hear(
            client, m.ClientHeartbeat(client, self.versions.get(client, 0), number, delivered)
        )

    def die(self, worker: str) -> None:
        """Remove a worker and its connection; the clients report that they hold nothing
        of its task.
        """
        self.workers.remove(worker)
        task, attempt = self.tasks.pop(worker)
        self.hear(worker, m.WorkerStopped(worker))
        for client in self.clients:
            self.hear(client, m.HoldingsReported(client, task, attempt + 1, ()))

    def tick(self) -> None:
        """Advance time by a quarter of a second."""
        self.now += 0.25
        self.feed(e.Tick())


class Meter:
    """CPU seconds per event, by kind."""

    def __init__(self) -> None:
        self.costs: dict[str, float] = {}

    @contextmanager
    def measure(self, kind: str, events: int) -> Iterator[None]:
        """Count the enclosed work as ``events`` events of a kind; the cheapest of
        several rounds counts.
        """
        gc.collect()
        began = time.process_time()
        yield
        cost = (time.process_time() - began) / events
        self.costs[kind] = min(cost, self.costs.get(kind, cost))


def measure(workers: int, clients: int, make: Callable[[int], Crowd] = Crowd) -> dict[str, float]:
    """Return the seconds per event of each kind, with this many workers."""
    crowd, meter = make(clients), Meter()
    with meter.measure("worker registers", workers):
        for number in range(workers):
            crowd.register()
            if number % (workers // 10 or 1) == 0:
                crowd.tick()
    for turn in range(ROUNDS):
        quarter = len(crowd.workers) // 4
        with meter.measure("worker beats", 4 * quarter):
            for part in range(4):
                for worker in crowd.workers[part * quarter : (part + 1) * quarter]:
                    crowd.beat(worker)
        with meter.measure("worker asks for splits", len(crowd.workers)):
            for worker in crowd.workers:
                crowd.ask(worker)
        with meter.measure("client reports ten tasks", len(crowd.clients)):
            for number, client in enumerate(crowd.clients):
                at = 10 * number % len(crowd.workers)
                crowd.report(client, turn, crowd.workers[at : at + 10])
        with meter.measure("a quarter of a second per worker", len(crowd.workers)):
            crowd.tick()
        for _ in range(3):
            crowd.tick()
    with meter.measure("client joins", 10):
        for _ in range(10):
            crowd.join()
    lost = crowd.workers[:: max(1, len(crowd.workers) // 20)]
    with meter.measure("worker dies", len(lost)):
        for worker in lost:
            crowd.die(worker)
    return meter.costs


def main() -> None:
    """Print the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument(
        "--workers", type=int, action="append", help="number of workers; may be repeated"
    )
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--json", type=Path, help="file for the figures")
    chosen = parser.parse_args()
    found: dict[int, Any] = {}
    numbers = chosen.workers or NUMBERS
    for workers in numbers:
        found[workers] = measure(workers, chosen.clients)
        print(f"{workers} workers: measured", flush=True)
    print(f"{'microseconds per event':34}" + "".join(f"{workers:>10}" for workers in numbers))
    for kind in found[numbers[0]]:
        print(f"{kind:34}" + "".join(f"{found[workers][kind] * 1e6:>10.1f}" for workers in numbers))
    if chosen.json is not None:
        chosen.json.write_text(
            json.dumps({str(workers): costs for workers, costs in found.items()}, indent=2)
        )


if __name__ == "__main__":
    main()
