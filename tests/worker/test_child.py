"""Tests of the child process of a worker: its messages to the supervisor, which
pipelines cannot forge.
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
    """Output of user code, from Python or from a command, goes to standard error. Its
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
    """A configuration survives a conversion to JSON and back."""
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
    """Return the number of pages that a process gets from the system while it makes 50
    batches in turn.
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
    """A batch of arrays reuses the memory of the previous batch."""
    kept, default = new_pages("kept"), new_pages("default")
    assert kept < 50 < default, (kept, default)


@pytest.mark.parametrize("name", ["MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_who_has_decided_is_not_overruled(name: str) -> None:
    """A user who sets a variable of glibc for a worker keeps all of these variables
    unchanged.
    """
    assert not keep_memory({name: "1"})
