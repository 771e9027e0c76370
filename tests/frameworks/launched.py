"""A training program without a framework, which launchers start:
``python launched.py SERVICE FOLDER``.

It reads two epochs of a named job. Each process appends what it has read to a file of
its own in the folder, so that a kill loses nothing. Each line has the number of the
epoch, and a row.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import numpy as np

from zmqdata import Dataset, distribute
from zmqdata.client.runs import rank, run_of_process
from zmqdata.testing.cluster import await_condition

COUNT = 600
PASSES = 2
STEP = 0.002
"""Seconds that a row takes to train on, so that each rank reads some."""


def main(
    service: str, folder: str, stop: str = "", on_existing: str = "share", fail: str = ""
) -> None:
    """Read two epochs.

    Args:
        service: address of the dispatcher.
        folder: the folder for what is read.
        stop: number of rows after which the process awaits its death, if the folder
            has the file ``hold``.
        on_existing: what happens if the name of the job is in use.
        fail: number of rows after which the process fails.
    """
    place = Path(folder)
    read = distribute(
        "distributed_epoch",
        service,
        "train",
        max_outstanding_requests=4,
        on_existing=on_existing,
    )
    rows = Dataset.range(COUNT).apply(read)
    had = 0
    with (place / f"{os.getpid()}.rows").open("a", buffering=1) as out:
        (place / f"{os.getpid()}.key").write_text(f"{run_of_process(True).key} {rank()}")
        for number in range(PASSES):
            for row in rows:
                out.write(f"{number} {int(np.asarray(row))}\n")
                had += 1
                if str(had) == stop and (place / "hold").exists():
                    (place / f"{os.getpid()}.held").touch()
                    await_condition(lambda: False, 300.0, "the death of this process")
                if str(had) == fail:
                    raise RuntimeError(f"asked to fail after {had} rows")
                threading.Event().wait(STEP)


if __name__ == "__main__":
    main(*sys.argv[1:])
