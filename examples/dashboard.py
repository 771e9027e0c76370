"""Show a small cluster in a browser: a job with a slow operation, a job that keeps up,
and a page that says so.

    python examples/dashboard.py            # prints the address of the page
    python examples/dashboard.py --workers 4 --seconds 60

Ctrl-C ends everything. The first job waits for its slow operation: the page names it,
and the number of workers that would feed the loop. The loop of the second job is the
limit itself. All of this runs on one machine, without any accelerator.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import zmqdata

STEP = 0.02  # seconds that a training step takes


def decode(number: int) -> Any:
    """Take as long as decoding a large image, without using a core."""
    time.sleep(0.02)
    return np.full((64, 64), number % 256, dtype=np.uint8)


def crop(image: Any) -> Any:
    return image[16:48, 16:48]


def make_slow_pipeline() -> zmqdata.Dataset:
    """Build a pipeline whose ``decode`` is too slow for the loop."""
    return zmqdata.Dataset.range(10**9).map(decode).map(crop).batch(8).prefetch(4)


def make_fast_pipeline() -> zmqdata.Dataset:
    """Build a pipeline that makes elements faster than a loop takes them."""
    return zmqdata.Dataset.range(10**9).batch(64).prefetch(4)


def train(dataset: zmqdata.Dataset, service: str, job: str, stopped: threading.Event) -> None:
    """Take elements until ``stopped`` is set."""
    distributed = dataset.apply(zmqdata.distribute("distributed_epoch", service, job_name=job))
    with contextlib.suppress(zmqdata.errors.UnavailableError):  # the cluster ends first
        for _ in distributed:
            if stopped.wait(STEP):
                return


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Show a small cluster in a browser.")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="worker processes (2)")
    parser.add_argument("--port", type=int, default=8470, help="port of the page (8470)")
    parser.add_argument(
        "--seconds", type=float, default=None, metavar="S", help="end after this time (never)"
    )
    args = parser.parse_args(arguments)
    stopped = threading.Event()
    with zmqdata.LocalCluster(num_workers=args.workers) as cluster:
        loops = [
            threading.Thread(target=train, args=(dataset, cluster.target, job, stopped))
            for job, dataset in [
                ("images", make_slow_pipeline()),
                ("numbers", make_fast_pipeline()),
            ]
        ]
        command = [sys.executable, "-m", "zmqdata", "dashboard", "--dispatcher", cluster.target]
        command += ["--port", str(args.port)]
        with subprocess.Popen(command) as page:  # noqa: S603 - our own command, prints its address
            with contextlib.suppress(KeyboardInterrupt):
                for loop in loops:
                    loop.start()
                stopped.wait(args.seconds)
            page.terminate()
        stopped.set()
        for loop in loops:
            loop.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
