"""The child process of a worker: what it says to its supervisor, and what pipelines cannot say in its name."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from zmqdata.config.dispatcher import WorkerConfig
from zmqdata.worker.child import one_line

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
    """What user code prints, in Python or in a command, goes to standard error; its standard input is empty."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHATTY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() == "ready\n"
        assert process.stderr.read() == "from a pipeline\nfrom a command\nasked ''\n"


@pytest.mark.parametrize("ports", [None, (7000, 7100)])
def test_a_configuration_survives_the_command_line(ports: tuple[int, int] | None) -> None:
    """A configuration is the same after having been JSON."""
    config = WorkerConfig("tcp://10.0.0.1:5050", worker_tags=("GPU",), data_ports=ports, worker_address="gate:%port%")
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
