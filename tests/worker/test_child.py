"""The child process of a worker: what it says to its supervisor, and what pipelines
cannot say in its name.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from dataclasses import asdict

import pytest

from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.child import keep_memory, one_line

CHATTY = """
import os, sys
from zmqdata.worker.child import take_over_standard_streams
report = take_over_standard_streams()
print("from a pipeline", flush=True)
os.system("echo from a command")
print("asked", repr(sys.stdin.read()), file=sys.stderr, flush=True)
print("ready", file=report, flush=True)
"""


@pytest.mark.realprocess
def test_pipelines_do_not_speak_for_the_child() -> None:
    """What user code prints, in Python or in a command, goes to standard error; its
    standard input is empty.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", CHATTY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == "ready\n"
        assert process.stderr.read() == "from a pipeline\nfrom a command\nasked ''\n"


@pytest.mark.parametrize("ports", [None, (7000, 7100)])
def test_a_configuration_survives_the_command_line(ports: tuple[int, int] | None) -> None:
    """A configuration is the same after having been JSON."""
    config = WorkerConfig(
        "tcp://10.0.0.1:5050", worker_tags=("GPU",), data_ports=ports, worker_address="gate:%port%"
    )
    assert WorkerConfig(**json.loads(json.dumps(asdict(config)))) == config


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("first\n  second"), "first second"),
        (OSError(98, "the port is in use"), "the port is in use"),
        (FileNotFoundError(2, "No such file", "here"), "here: No such file"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
def test_an_error_becomes_one_line(error: BaseException, text: str) -> None:
    """An error's text has no line breaks and no error number, and is never empty."""
    assert one_line(error) == text


FAULTS = """
import os, resource, sys
import numpy as np
from zmqdata.worker.child import keep_memory

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
    """How many pages a process is given by the system while it makes 50 batches, one
    after the other.
    """
    command = [sys.executable, "-c", FAULTS, kind]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    return int(done.stdout)


@pytest.mark.realprocess
@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="other C libraries have no such settings"
)
def test_arrays_that_are_made_again_need_no_new_pages() -> None:
    """What one batch of arrays has left is what the next one is made in."""
    kept, default = new_pages("kept"), new_pages("default")
    assert kept < 50 < default, (kept, default)


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_decided_is_not_overruled(name: str) -> None:
    """Whoever sets one of glibc's variables for a worker has them all as they are."""
    assert not keep_memory({name: "1"})
