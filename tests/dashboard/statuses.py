"""Made statuses of a dispatcher, as ``zmqdata.client.calls.status`` returns them."""

from __future__ import annotations

from typing import Any

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>"
CLIENT = "c0ffee0123456789"
WORKER = "{:016x}".format


def reader(number: int | None = None, wait: float = 0.6, step: float = 10.0) -> dict[str, Any]:
    return {
        "client": CLIENT,
        "run": f"process:{CLIENT}",
        "member": "",
        "process": f"node{number or 0}:{100 + (number or 0)}:{CLIENT[:8]}",
        "how": "begun",
        "given_back": 0,
        "consumer": number,
        "wait_share": wait,
        "wait_ms": step * wait,
        "step_ms": step,
        "elements_per_second": 50.0,
        "first_element_seconds": 0.2,
        "elements": 500,
        "waited_seconds": 3.0,
        "buffered": 2,
    }


def job(name: str = "train", iteration: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "job": name,
        "dataset_id": "9643361000",
        "processing_mode": "DYNAMIC",
        "iteration": iteration,
        "incarnation": 1,
        "repetition": 0,
        "clients": 1,
        "readers": [reader()],
        "save": None,
        "tasks": 2,
        "delivered": 94,
        "given_back": 0,
        "splits": [{"handed_out": 914, "count": 100_000, "repetition": 0}],
        "finished": False,
        "steps": [],
        "poisoned": [],
        "failure": "",
        "missing_consumers": [],
        "verdict": "INPUT-BOUND",
        "advice": "map(decode) at train.py:31 takes 94 % of the workers' time; with 2 workers the "
        "loop waits 60 % of each step; 6 would feed it.",
        "workers_needed": 6,
        "measures": {
            "delivered": 94,
            "redone": 3,
            "left_out": 1,
            "making_seconds": 10.1,
            "waiting_for_readers_seconds": 0.0,
            "waiting_for_splits_seconds": 0.03,
            "block_bytes": 3880,
            "loop_waiting_seconds": 3.7,
            "loop_seconds": 4.9,
            "nodes": [],
            "moved": [
                {"by": "tcp zstd", "bytes": 5_000_000, "elements": 60},
                {"by": "shm", "bytes": 9_000_000, "elements": 34},
            ],
        },
        **fields,
    }


def task(number: int, worker: str, iteration: int = 1, **fields: Any) -> dict[str, Any]:
    making = 0.3 + 0.01 * (number % 60)
    return {
        "task": number,
        "iteration": iteration,
        "attempt": 1,
        "worker": worker,
        "address": f"tcp://10.0.{number // 250}.{number % 250}:5051",
        "produced": 50,
        "total": None,
        "delivered": 47,
        "rest": 0,
        "removed": False,
        "skipped": {},
        "seconds_without_progress": 0.0,
        "stalled": False,
        "waits_for_readers": False,
        "busy_seconds": 0.0,
        "busy_with": "",
        "deaths": 0,
        "compressed": "",
        "making_share": making,
        "waiting_for_readers_share": 0.5 * (1 - making),
        "waiting_for_splits_share": 0.2 * (1 - making),
        "elements_per_second": 9.5,
        "bytes_per_second": 1_000_000,
        "link_busy_share": 0.1,
        "nodes": [
            {
                "place": "0.0",
                "node": "map(decode) at train.py:31",
                "seconds": 4.5,
                "share": 0.94,
                "threads": 2,
            },
            {
                "place": "+packing",
                "node": "packing elements",
                "seconds": 0.2,
                "share": 0.04,
                "threads": 1,
            },
            {
                "place": "0",
                "node": "batch(8) at train.py:32",
                "seconds": 0.1,
                "share": 0.02,
                "threads": 1,
            },
        ],
        **fields,
    }


def worker(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "worker": WORKER(number),
        "address": f"tcp://10.0.{number // 250}.{number % 250}:5051",
        "tags": [],
        "python": "3.12.1",
        "files": "d2831deac74d81fa4b9b554fb0a74390",
        "tasks": 1,
        "elements_per_second": 9.5,
        "silent_seconds": 0.5,
        "connected": True,
        "draining": False,
        **fields,
    }


def status(workers: int = 2, jobs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """Return the status of a dispatcher with workers that host a task of job 1 each."""
    return {
        "dispatcher": "tcp://127.0.0.1:5050",
        "config": {"key_file": "/home/me/.config/secret-key", "insecure": False},
        "workers": [worker(number) for number in range(workers)],
        "iterations": [],
        "jobs": [job()] if jobs is None else jobs,
        "tasks": [task(number, WORKER(number)) for number in range(workers)],
        "totals": [],
        "events": [
            {"time": 1_700_000_000.0, "level": "info", "text": "worker tcp://10.0.0.0:5051 joined"},
            {
                "time": 1_700_000_060.0,
                "level": "warning",
                "text": f"job train: client {CLIENT} was silent; worker tcp://10.0.0.9:5051 died",
            },
        ],
        "rejected": {},
    }
