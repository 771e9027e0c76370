"""Measure the effect of hostile peers on a training loop and on the servers.

    python -m benchmarks.attacks [KIND ...] [--seconds 4] [--json FILE]

The dispatcher, the worker and the attacker are separate processes. The training loop
reads over TCP, encrypted, in this process. All of them share this machine's cores: an
attacker that keeps a core busy takes it from the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.attackers import ATTACKS, ON_DISPATCHERS, ON_WORKERS
from benchmarks.processes import ROOT
from zmqdata import Dataset, distribute, use_key_file
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import descendants
from zmqdata.transport import keys

WARM = 2.0
SETTLE = 0.2
START = 60.0
SECONDS = 4.0
PAIRS = 8


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Start a dispatcher and a worker by command line, with a key of their own."""
    path = folder / "cluster.key"
    keys.save(path, keys.new_key())
    use_key_file(path)
    options = [f"--key-file={path}", "--log-level=error"]
    dispatcher = ServerProcess("zmqdata.dispatcher", options, 1)
    with contextlib.closing(dispatcher):
        dispatcher.launch()
        dispatcher.await_ready(START)
        worker = ServerProcess("zmqdata.worker", ["--dispatcher", dispatcher.address, *options], 1)
        with contextlib.closing(worker):
            worker.launch()
            worker.await_ready(START)
            yield dispatcher, worker
    use_key_file()


def memory_of(pid: int) -> int:
    """Return the resident bytes of a process and all its descendants."""
    total = 0
    for one in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * 4096
    return total


class Loop:
    """A training loop that only counts elements."""

    def __init__(self, target: str) -> None:
        made = Dataset.range(1 << 40).map(lambda x: np.full(256, x))
        self._dataset = made.apply(
            distribute("distributed_epoch", target, data_transfer_protocol="tcp")
        )
        self.count = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for _ in self._dataset:
            self.count += 1
            if self._stopping:
                return

    def rate(self, seconds: float) -> float:
        """Return the elements per second from now on."""
        count, since = self.count, time.perf_counter()
        time.sleep(seconds)
        return (self.count - count) / (time.perf_counter() - since)

    def stop(self) -> None:
        """End the loop."""
        self._stopping = True
        self._thread.join(START)


def measure(kind: str, which: str, seconds: float) -> dict[str, Any]:
    """Measure an attack on a server: what the loop reads while the attack runs and
    pauses, and the memory it costs.

    ``during`` and ``after`` are relative to the rate while the attack pauses; ``after``
    is measured once the attacker has ended.
    """
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder)) as servers:
        target = servers[which == "worker"]
        loop = Loop(servers[0].address)
        try:
            loop.rate(WARM)
            small = memory_of(target.pid)
            command = [sys.executable, "-m", "benchmarks.attackers", kind, target.address, "600"]
            attacker = subprocess.Popen(
                [*command, f"--key-file={folder}/cluster.key"], stdout=subprocess.PIPE, cwd=ROOT
            )
            assert attacker.stdout is not None
            attacker.stdout.readline()
            loop.rate(WARM)
            quiet, attacked, memory = [], [], [memory_of(target.pid)]
            for _ in range(PAIRS):
                # In turns, so that other load of the machine affects both alike.
                for rates, order in ((quiet, signal.SIGSTOP), (attacked, signal.SIGCONT)):
                    attacker.send_signal(order)
                    loop.rate(SETTLE)
                    rates.append(loop.rate(seconds / PAIRS))
                    memory.append(memory_of(target.pid))
            attacker.kill()
            attacker.wait()
            loop.rate(SETTLE)
            after = [loop.rate(seconds / PAIRS) for _ in range(PAIRS)]
        finally:
            loop.stop()
    before = statistics.median(quiet)
    return {
        "attack": kind,
        "on": which,
        "during": statistics.median(attacked) / before,
        "after": statistics.median(after) / before,
        "elements_per_second": before,
        "mebibytes": (max(memory) - small) / (1 << 20),
    }


def targets_of(kind: str) -> tuple[str, ...]:
    """Return the servers that an attack is meant for."""
    if kind in ON_WORKERS:
        return ("worker",)
    return ("dispatcher",) if kind in (*ON_DISPATCHERS, "burning") else ("dispatcher", "worker")


def main() -> int:
    """Measure attacks and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(ATTACKS))
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    print("| attack | on the | throughput during | after | memory more, MiB |")
    print("|---|---|--:|--:|--:|")
    for kind in given.kinds or ATTACKS:
        for which in targets_of(kind):
            one = measure(kind, which, given.seconds)
            found.append(one)
            shares = f"{one['during']:.0%} | {one['after']:.0%} | {one['mebibytes']:.0f}"
            print(f"| {kind} | {which} | {shares} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
