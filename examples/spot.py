"""Train while workers come and go, and count how often each element has come.

python examples/spot.py

Workers are jobs of Slurm if this machine belongs to a cluster with Slurm, and one after
the other is cancelled. Elsewhere they are processes, which get the signals that Slurm
sends.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import zmqdata
from zmqdata import hosts

PREEMPTED = (signal.SIGTERM, signal.SIGCONT, signal.SIGTERM)
KILLED = (signal.SIGKILL,)
misfortunes = itertools.cycle([PREEMPTED, KILLED])


def has_slurm() -> bool:
    """Return True if a Slurm answers here."""
    asking = shutil.which("sinfo")
    if asking is None:
        return False
    return subprocess.run([asking], capture_output=True, check=False).returncode == 0  # noqa: S603


def processes_of(name: str) -> list[int]:
    """Return the processes of a worker on this machine."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if f"--name={name}".encode() in words:
            found.append(int(folder.name))
    return found


def take(name: str, on_slurm: bool) -> None:
    """Take a worker away, as its engine does."""
    if on_slurm:
        subprocess.run(["scancel", f"--name={name}"], check=False)  # noqa: S603, S607
        print(f"{name} is cancelled")
        return
    signals = next(misfortunes)
    for number in signals:
        for process in processes_of(name):
            try:
                os.kill(process, number)
            except ProcessLookupError:
                continue
    print(f"{name} gets {', '.join(number.name for number in signals)}")


def main() -> None:
    """Read all elements at the pace of a training, and report."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--elements", type=int, default=5_000, help="number of elements")
    count = parser.parse_args().elements
    on_slurm = has_slurm()
    address = "0.0.0.0" if on_slurm else "127.0.0.1"  # noqa: S104 - for other nodes
    over = threading.Event()

    def storm(host: hosts.Host) -> None:
        while not over.wait(1.5):
            running = [name for name, state in host.running().items() if state == "running"]
            if len(running) > 1:
                take(running[0], on_slurm)

    with zmqdata.DispatchServer(zmqdata.DispatcherConfig(host=address)) as dispatcher:
        host = hosts.Slurm(dispatcher.target) if on_slurm else hosts.Local(dispatcher.target)
        with host:
            host.scale(3)  # or host.adapt(0, 8), for as many as the training needs
            read = zmqdata.distribute("distributed_epoch", dispatcher.target)
            dataset = zmqdata.Dataset.range(count).map(lambda x: 2 * x).apply(read)
            came, longest, since = Counter[int](), 0.0, 0.0
            thread = threading.Thread(target=storm, args=(host,))
            for element in dataset:
                if since:
                    longest = max(longest, time.monotonic() - since)
                else:
                    thread.start()
                came[int(element) // 2] += 1
                time.sleep(0.002)  # a training step
                since = time.monotonic()
            over.set()
            thread.join()
    once = came == Counter(range(count))
    print(f"{came.total()} elements, {'each once' if once else 'NOT each once'}")
    print(f"longest wait for an element: {longest:.2f} s")


if __name__ == "__main__":
    main()
