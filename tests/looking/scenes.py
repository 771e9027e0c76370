"""A cluster at work, which a real Prometheus scrapes."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.looking.prometheus import Prometheus
from tests.processes.test_metrics import running, shown_by
from tools.deploy_files import ALERTS, SCRAPED
from zmqdata import Dataset, distribute
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import await_condition


def slow(number: int) -> int:
    ended = time.monotonic() + 0.005
    while time.monotonic() < ended:
        pass
    return number


class Scene:
    """A dispatcher, a worker of two processes, a loop that reads, and Prometheus."""

    def __init__(self, dispatcher: ServerProcess, worker: ServerProcess, folder: Path) -> None:
        (self.shown,), self.of_workers = shown_by(dispatcher), shown_by(worker)
        self.worker = worker
        self.prometheus = Prometheus(
            folder, {SCRAPED: [self.shown], "zmqdata-workers": self.of_workers}, ALERTS
        )


@contextlib.contextmanager
def played(folder: Path) -> Iterator[Scene]:
    """Yield a scene in which a loop reads slowly, once Prometheus knows its rates.

    Args:
        folder: an empty folder for the files of Prometheus.
    """
    ended = threading.Event()
    with (
        running("dispatcher") as dispatcher,
        running(
            "worker",
            f"--dispatcher={dispatcher.address}",
            "--processes=2",
            "--memory-limit=1GiB",
            ready=2,
        ) as worker,
    ):
        made = Scene(dispatcher, worker, folder)

        def read() -> None:
            dataset = Dataset.range(100_000).map(slow).batch(4)
            read = dataset.apply(distribute("distributed_epoch", dispatcher.address, "train"))
            with contextlib.closing(iter(read)) as found:
                for _ in found:
                    if ended.wait(0.02):
                        return

        loop = threading.Thread(target=read)
        loop.start()
        try:
            with made.prometheus as prometheus:
                await_condition(
                    lambda: prometheus.query("rate(zmqdata_node_seconds_total[10s]) > 0"),
                    60.0,
                    "the first rates",
                )
                yield made
        finally:
            ended.set()
            loop.join()
