"""The process of a peer: it reads turns as lines of JSON from standard input, and
writes values to standard output.

    python -m benchmarks.child PEER [--service ADDRESS]

Output of libraries goes to standard error. When standard input ends, the whole process
group is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
import threading
from importlib import metadata
from typing import IO, Any

from benchmarks import peers
from benchmarks.reading import Peer, Turn


def versions(peer: Peer) -> dict[str, str]:
    """Return the versions of the peer's installed packages."""
    found = {}
    for name in peer.packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def listen(orders: IO[str], lines: queue.SimpleQueue[str]) -> None:
    """Pass on lines; kill the process group when they end."""
    for line in orders:
        lines.put(line)
    os.killpg(0, signal.SIGKILL)


def answer(output: IO[str], **said: Any) -> None:
    output.write(json.dumps(said) + "\n")
    output.flush()


def main() -> None:
    """Measure turn after turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("peer")
    parser.add_argument("--service", default="")
    chosen = parser.parse_args()
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # A forked worker first closes sys.stdin, and would deadlock if a thread of this
    # process was reading from it.
    orders = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(orders, lines), daemon=True).start()
    try:
        peer: Peer = peers.load(chosen.peer).Measured(chosen.service)
    except ModuleNotFoundError as error:
        answer(output, missing=f"{error.name} is not installed")
        return
    answer(output, versions=versions(peer))
    while order := json.loads(lines.get()):
        try:
            answer(output, value=peer.measure(Turn(**order)))
        except Exception as error:
            answer(output, error=f"{type(error).__name__}: {error}")
    peer.close()
    answer(output, ended=True)


if __name__ == "__main__":
    main()
