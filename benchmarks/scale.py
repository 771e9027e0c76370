"""Measure a dispatcher with thousands of workers and hundreds of clients on real
sockets.

    python -m benchmarks.scale [--workers 2000] [--clients 500] [--seconds 20]
        [--json FILE]

The dispatcher is a separate process, with a journal unless ``--no-journal`` is given.
Workers and clients are DEALER sockets in two other processes, which speak the protocol
with the library's own messages. They register and open a DYNAMIC job, and send a
heartbeat each second, workers as rarely as they are told. Workers host the tasks that
they are given and request splits about every five seconds; clients report deliveries. A
worker has links with ``--links`` clients: its heartbeat names and vouches for as many
of them as a real worker's would. Heartbeats carry the measures of a pipeline of three
operations and of a training loop, and ``/metrics`` is read every 15 seconds.

After all peers have arrived, it measures the delay of answers to heartbeats and
requests for splits, as the peers see it. It also measures the dispatcher's CPU time,
from ``/proc``.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import heapq
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import zmq

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.cluster.processes import ServerProcess
from zmqdata.core.client.links import VOUCHING
from zmqdata.core.limits import Rotation
from zmqdata.core.worker.links import NAMED_AT_ONCE, SPOKE_LATELY
from zmqdata.splits import IndexSplits
from zmqdata.transport import sockets
from zmqdata.transport.keychoice import shown_key

BEAT = 1.0
"""Seconds between two heartbeats."""
SECONDS_PER_ASK = 5.0
"""Seconds between two requests for splits of a worker."""
START = 120.0
"""Limit of seconds until all peers have arrived."""
SETTLING = 15.0
"""Seconds to wait after all peers have arrived: until then each client received the
growing task list many times.
"""
SCRAPED_EVERY = 15.0
"""Seconds between two readings of the metrics."""
PIPELINE = b"a pipeline that nobody opens"
JOB = m.JobParameters("scale", "scale", "DYNAMIC")


class Listed(msgspec.Struct):
    """The part of a task list that a simulated client decodes; hundreds in a process
    cannot each decode all of it.
    """

    version: int
    """Version of the list."""
    tasks: msgspec.Raw
    """The tasks, not decoded."""


class Heard(msgspec.Struct):
    """The part of a message that a simulated client decodes."""

    type: str
    """Tag of the message."""
    task_list: Listed | None = None
    """Its task list, if any."""


class Numbered(msgspec.Struct):
    """The part of an entry in a task list that a simulated client decodes."""

    task: int
    """Id of the task."""


heard = msgspec.msgpack.Decoder(Heard).decode


@functools.lru_cache(maxsize=4)
def numbers_of(tasks: bytes) -> list[int]:
    """Return the ids of the tasks in a list, which is the same for all clients."""
    return [one.task for one in msgspec.msgpack.decode(tasks, type=list[Numbered])]


def task_measures(task: int, attempt: int, produced: int) -> m.TaskMeasures:
    """Return the measures of a task whose pipeline has three operations."""
    total = m.TaskSums(
        produced / 100, produced / 200, produced / 200, 0.0, produced, 1e3 * produced
    )
    nodes = tuple(
        m.NodeTime(place, f"{name} at train.py:{line}", produced / 600, 1.0)
        for line, (place, name) in enumerate([("", "batch"), ("0", "map"), ("0.0", "range")])
    )
    return m.TaskMeasures(task, attempt, total, m.TaskSums(10.0, 5.0, 5.0, 0.0, 1e3), nodes)


class Peer:
    """A DEALER socket with its unanswered messages."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], target: str, name: str) -> None:
        self.name = name
        self.socket, handshakes = sockets.control_dealer(context, target, shown_key(), "dispatcher")
        handshakes.close()  # two sockets more for each of thousands of peers
        self.waits: dict[str, float] = {}
        self.taken: dict[str, list[float]] = {}
        self.beats = 0
        self.present = False
        self.pause = BEAT
        self.spoke = 0.0

    def send(self, message: m.Message, kind: str = "") -> None:
        """Send a message; its answer counts under ``kind``."""
        if kind:
            self.waits.setdefault(kind, time.perf_counter())
        with contextlib.suppress(zmq.Again):
            self.socket.send_multipart(wire.pack(message), zmq.NOBLOCK)

    def answered(self, kind: str) -> None:
        """Record the delay of an answer."""
        since = self.waits.pop(kind, None)
        if since is not None:
            self.taken.setdefault(kind, []).append(time.perf_counter() - since)

    def speak(self) -> None:
        """Send the messages of the peer's turn."""
        raise NotImplementedError

    def hear(self, frames: Sequence[bytes]) -> None:
        """Handle a message."""
        raise NotImplementedError


class SimulatedWorker(Peer):
    """Registers, hosts the tasks that it is given, and makes a hundred elements a
    second.
    """

    def __init__(
        self, context: Any, target: str, number: int, links: Sequence[str], workers: int
    ) -> None:
        super().__init__(context, target, f"worker-{number}")
        self.links = links
        self.rotation = Rotation(NAMED_AT_ONCE)
        self.workers = workers
        self.address = f"tcp://10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}:7000"
        self.tasks: dict[int, list[int]] = {}

    def _reports(self) -> tuple[m.TaskReport, ...]:
        return tuple(
            m.TaskReport(
                task, attempt, produced, None, measures=task_measures(task, attempt, produced)
            )
            for task, (attempt, _, produced) in self.tasks.items()
        )

    def speak(self) -> None:
        if not self.present:
            place = (self.address, (), "3.11", "0", self._reports())
            self.send(m.RegisterWorker(self.name, *place), "registered")
            return
        self.beats += 1
        lately = max(SPOKE_LATELY, 2 * self.pause)
        readers = {
            client: m.ReaderSign(0.0)
            for client in self.links
            if random.random() < VOUCHING * lately / BEAT / self.workers
        }
        beat = m.WorkerHeartbeat(
            self.name, self._reports(), self.rotation.next_items(self.links), readers
        )
        self.send(beat, "worker heartbeat")
        for task, facts in self.tasks.items():
            facts[2] += round(100 * self.pause)
            if random.random() < self.pause / SECONDS_PER_ASK:
                ask = m.RequestSplits(self.name, task, facts[0], 0, 0, facts[1], 0, False, 0.01)
                self.send(ask, "splits")

    def hear(self, frames: Sequence[bytes]) -> None:
        message = wire.to_worker.control(frames)
        if isinstance(message, m.WorkerHeartbeatAnswered):
            self.answered("worker heartbeat")
            self.present, self.pause = message.known, max(BEAT, message.every)
        elif isinstance(message, m.SplitsAssigned):
            self.answered("splits")
            if message.task in self.tasks:
                self.tasks[message.task][1] = message.first + len(message.splits)
        elif isinstance(message, m.WorkerRegistered):
            self.answered("registered")
            self.present = True
        elif isinstance(message, m.HostTask):
            one = message.definition
            self.tasks[one.task] = [one.attempt, one.bases[0] + len(one.ledger[0]), 0]
        elif isinstance(message, m.DropTask):
            self.tasks.pop(message.task, None)


class SimulatedClient(Peer):
    """Opens the job and reports a hundred elements a second for each of a few tasks,
    whether they were made or not.
    """

    def __init__(self, context: Any, target: str, number: int, reports: int) -> None:
        super().__init__(context, target, f"client-{number}")
        self.number = number
        self.reports = reports
        self.version = -1
        self.tasks: list[int] = []

    def speak(self) -> None:
        if not self.present:
            self.send(m.OpenIteration(self.name, JOB, 0), "opened")
            return
        self.beats += 1
        at = self.number * self.reports
        mine = [
            self.tasks[(at + more) % len(self.tasks)]
            for more in range(min(self.reports, len(self.tasks)))
        ]
        span = ((100 * self.beats - 100, 100 * self.beats),)
        beat = m.ClientHeartbeat(
            self.name,
            self.version,
            self.beats,
            dict.fromkeys(mine, span),
            beat=self.beats,
            measures=m.LoopMeasures(
                m.LoopSums(self.beats, self.beats / 10, 100.0 * self.beats),
                m.LoopSums(10.0, 1.0, 1e3),
                moved={"tcp zstd": (self.beats * 100_000, 100 * self.beats)},
            ),
        )
        self.send(beat, "client heartbeat")

    def hear(self, frames: Sequence[bytes]) -> None:
        message = heard(frames[1])
        if message.type == m.ClientHeartbeatAnswered.__name__:
            self.answered("client heartbeat")
        elif message.type == m.IterationOpened.__name__:
            self.answered("opened")
            self.present = True
        if message.task_list is not None:
            self.version, self.tasks = (
                message.task_list.version,
                numbers_of(bytes(message.task_list.tasks)),
            )


class Conversation:
    """Runs peers: each sends a heartbeat every second at its own phase, and handles
    what arrives.
    """

    def __init__(self, peers: Sequence[Peer]) -> None:
        self.peers = peers
        draw, now = random.Random(1), time.perf_counter()
        self._turns = [(now + draw.random() * BEAT, number) for number in range(len(peers))]
        heapq.heapify(self._turns)
        self._poll = select.epoll()
        self._by_file = {}
        for peer in peers:
            file = peer.socket.get(zmq.FD)
            self._by_file[file] = peer
            # libzmq only promises edges on this descriptor, so everything is read after
            # each.
            self._poll.register(file, select.EPOLLIN | select.EPOLLET)

    def go_on(self, seconds: float) -> None:
        """Run the peers for some seconds."""
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            while self._turns[0][0] <= now:
                number = self._turns[0][1]
                peer = self.peers[number]
                if peer.spoke + peer.pause > now:  # it was told meanwhile to slow down
                    heapq.heapreplace(self._turns, (peer.spoke + peer.pause, number))
                    continue
                heapq.heapreplace(self._turns, (now + BEAT, number))
                peer.spoke = now
                peer.speak()
                self._read(peer)
            wait = max(0.0, min(end, self._turns[0][0]) - time.perf_counter())
            for file, _ in self._poll.poll(wait):
                self._read(self._by_file[file])

    def _read(self, peer: Peer) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                peer.hear(peer.socket.recv_multipart(zmq.NOBLOCK))


def talk(role: str, target: str, number: int, others: int, reports: int) -> None:
    """Act as a number of workers or clients: obey ``go SECONDS`` lines on standard
    input, and print the measurements.
    """
    context = sockets.new_context()
    names = [f"client-{one}" for one in range(others)]
    peers: list[Peer]
    if role == "workers":
        peers = [SimulatedWorker(context, target, one, names, number) for one in range(number)]
    else:
        peers = [SimulatedClient(context, target, one, reports) for one in range(number)]
    conversation = Conversation(peers)
    began, ends = time.perf_counter(), time.perf_counter() + START
    while not all(peer.present for peer in peers) and time.perf_counter() < ends:
        conversation.go_on(0.1)
    taken = time.perf_counter() - began
    told: dict[str, Any] = {"seconds": taken, "present": sum(peer.present for peer in peers)}
    print(json.dumps(told), flush=True)
    waiting = select.poll()
    waiting.register(sys.stdin, select.POLLIN)
    while True:
        while not waiting.poll(0):
            conversation.go_on(0.1)
        line = sys.stdin.readline().split()
        if not line:
            break
        for peer in peers:
            peer.taken.clear()
        conversation.go_on(float(line[1]))
        found: dict[str, list[float]] = {}
        for peer in peers:
            for kind, seconds in peer.taken.items():
                found.setdefault(kind, []).extend(seconds)
        print(json.dumps({kind: figures(seconds) for kind, seconds in found.items()}), flush=True)
    # Not sys.exit: closing thousands of sockets takes long, and their messages no
    # longer matter.
    os._exit(0)


def figures(seconds: list[float]) -> dict[str, float]:
    """Return the number of answers, and percentiles of their delays in milliseconds."""
    ordered = sorted(seconds)
    told = {
        f"p{part}": ordered[min(len(ordered) - 1, len(ordered) * part // 100)] * 1e3
        for part in (50, 95, 99)
    }
    return {"answers": len(ordered), **told, "worst": ordered[-1] * 1e3}


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def register(target: str) -> None:
    """Register the dataset that all clients read."""
    digest = hashlib.sha256(PIPELINE).hexdigest()
    description = m.DatasetDescription(
        digest, "print", (IndexSplits(None),), "", None, -2, None, "3.11", "0"
    )
    context = sockets.new_context()
    socket, handshakes = sockets.control_dealer(context, target, shown_key(), "dispatcher")
    handshakes.close()
    socket.send_multipart(
        wire.pack(m.RegisterDataset("scale", JOB.dataset_id, description, PIPELINE))
    )
    if not socket.poll(10_000) or not isinstance(
        wire.to_client.control(socket.recv_multipart()), m.DatasetRegistered
    ):
        raise RuntimeError(f"the dispatcher at {target} does not take the dataset")
    socket.close()
    context.term()


@contextlib.contextmanager
def company(
    role: str, target: str, number: int, others: int, reports: int
) -> Iterator[subprocess.Popen[str]]:
    """Start a process that acts as a number of workers or clients."""
    told = [
        f"--role={role}",
        f"--target={target}",
        f"--workers={number}",
        f"--links={others}",
        f"--reports={reports}",
    ]
    command = [sys.executable, "-m", "benchmarks.scale", *told]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        try:
            yield one
        finally:
            one.kill()


@contextlib.contextmanager
def scraped(address: str) -> Iterator[list[float]]:
    """Read metrics regularly, and collect the seconds that each reading took."""
    taken: list[float] = []
    done = threading.Event()

    def read() -> None:
        while not done.wait(SCRAPED_EVERY if taken else 0.0):
            began = time.perf_counter()
            with urllib.request.urlopen(address, timeout=START) as answer:  # noqa: S310 - of our dispatcher
                answer.read()
            taken.append(time.perf_counter() - began)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield taken
    finally:
        done.set()
        thread.join()


def told(one: subprocess.Popen[str]) -> Any:
    """Return the next line of a company."""
    assert one.stdout is not None
    return json.loads(one.stdout.readline())


def measure(
    workers: int,
    clients: int,
    seconds: float,
    links: int,
    reports: int,
    journal: bool = True,
    settling: float = SETTLING,
) -> dict[str, Any]:
    """Measure a dispatcher with this many workers and clients.

    Args:
        workers: number of workers.
        clients: number of clients.
        seconds: seconds to measure once all peers have arrived.
        links: number of clients that each worker names in its heartbeats.
        reports: number of tasks that each client reports in each heartbeat.
        journal: True if the dispatcher has a journal.
        settling: seconds to wait before the measurement.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        options = ["--metrics-port=0", *([f"--work-dir={folder}"] if journal else [])]
        server = stack.enter_context(
            contextlib.closing(ServerProcess("zmqdata.dispatcher", options))
        )
        server.launch()
        server.await_ready(START)
        register(server.address)
        began = cpu_seconds(server.pid)
        companies = [
            stack.enter_context(company("workers", server.address, workers, links, 0)),
            stack.enter_context(company("clients", server.address, clients, 0, reports)),
        ]
        starts = [told(one) for one in companies]
        start = {
            "seconds": max(one["seconds"] for one in starts),
            "cpu_seconds": cpu_seconds(server.pid) - began,
        }
        scrapes = stack.enter_context(scraped(server.said.rpartition(" ")[2].strip()))
        for length in (settling, seconds):
            used, at = cpu_seconds(server.pid), time.perf_counter()
            for one in companies:
                assert one.stdin is not None
                one.stdin.write(f"go {length}\n")
                one.stdin.flush()
            answers = [told(one) for one in companies]
            cores = (cpu_seconds(server.pid) - used) / (time.perf_counter() - at)
        return {
            "workers": starts[0]["present"],
            "clients": starts[1]["present"],
            "start": start,
            "cores": cores,
            "memory_mb": memory_mb(server.pid),
            "slowest_scrape": max(scrapes),
            "milliseconds": answers[0] | answers[1],
        }


def main() -> None:
    """Print the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, default=2_000)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--links", type=int, help="clients that a worker names in its heartbeats; all if left out"
    )
    parser.add_argument(
        "--reports", type=int, default=10, help="tasks that a client reports in each heartbeat"
    )
    parser.add_argument("--no-journal", action="store_true", help="no journal in the dispatcher")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--role", choices=("workers", "clients"), help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.role is not None:
        talk(chosen.role, chosen.target, chosen.workers, chosen.links, chosen.reports)
        return
    links = chosen.clients if chosen.links is None else chosen.links
    journal = not chosen.no_journal
    found = measure(chosen.workers, chosen.clients, chosen.seconds, links, chosen.reports, journal)
    print(json.dumps(found, indent=2))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
