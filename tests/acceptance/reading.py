"""Short names for the calls of a training script, for the acceptance tests."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import zmqdata

QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100, "buffer_bytes": 1 << 16}
OFF, DYNAMIC = zmqdata.ShardingPolicy.OFF, zmqdata.ShardingPolicy.DYNAMIC


def numbers(elements: Iterable[Any]) -> list[int]:
    """Return all elements as ints."""
    return [int(element) for element in elements]


def rows(batches: Iterable[Iterable[Any]]) -> list[int]:
    """Return the ints of all batches."""
    return [int(x) for batch in batches for x in batch]


def some(elements: Iterable[Any], count: int) -> list[int]:
    """Return the next ``count`` elements as ints."""
    return numbers(islice(elements, count))


def read(
    dataset: zmqdata.Dataset, service: Any, mode: Any = DYNAMIC, **options: Any
) -> zmqdata.Dataset:
    """Return the dataset, distributed to a service."""
    target = service if isinstance(service, str) else service.target
    return dataset.apply(zmqdata.distribute(mode, target, **options))


def together(*calls: Callable[[], Any], deadline: float = 45.0) -> list[Any]:
    """Run calls concurrently and return their results in order; raise the first
    failure, or fail if a call hangs.
    """
    results: list[Any] = [None] * len(calls)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:
            failures.append(error)

    threads = [
        threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline)
    if failures:
        raise failures[0]
    assert not any(thread.is_alive() for thread in threads), f"still waiting after {deadline} s"
    return results


def joined(parts: Iterable[list[Any]]) -> list[Any]:
    """Return the concatenation of the lists."""
    return [one for part in parts for one in part]


def command(
    *arguments: str, deadline: float = 30.0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``zmqdata ...`` until it ends."""
    program = [sys.executable, "-m", "zmqdata", *arguments]
    return subprocess.run(
        program, capture_output=True, text=True, timeout=deadline, check=False, **options
    )


def status(service: Any, *options: str) -> dict[str, Any]:
    """Return the answer of ``zmqdata status --json``."""
    target = service if isinstance(service, str) else service.target
    answer = command("status", "--dispatcher", target, "--json", *options)
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found
