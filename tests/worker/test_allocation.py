"""How a worker's process keeps memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from zmqdata.worker.allocation import keep_memory

FAULTS = """
import os, resource, sys
import numpy as np
from zmqdata.worker.allocation import keep_memory

assert sys.argv[1] == "default" or keep_memory({})
array = np.ones(150_000, np.uint8)

def batch():
    return [array.copy() for _ in range(16)]

batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def new_pages(kind: str) -> int:
    """How many pages a process is given by the system while it makes 50 batches, one after the other."""
    command = [sys.executable, "-c", FAULTS, kind]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True)
    return int(done.stdout)


@pytest.mark.realprocess
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such settings")
def test_arrays_that_are_made_again_need_no_new_pages() -> None:
    """What one batch of arrays has left is what the next one is made in."""
    kept, default = new_pages("kept"), new_pages("default")
    assert kept < 50 < default, (kept, default)


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_decided_is_not_overruled(name: str) -> None:
    """Whoever sets one of glibc's variables for a worker has them all as they are."""
    assert not keep_memory({name: "1"})
