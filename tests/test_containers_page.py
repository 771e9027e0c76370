"""Tests of the page on restricted workers and of the options in its examples."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from zmqdata.cli.commands import worker_arguments
from zmqdata.cli.options import chosen_settings
from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.options import ProcessSettings
from zmqdata.worker.processes.supervisor import child_configs

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "containers.md").read_text(
    encoding="utf-8"
)


def test_its_workers_would_start() -> None:
    """The example's options are known and match the number of processes."""
    arguments = shlex.split(
        TEXT.partition("IMAGE worker ")[2].partition("```")[0].replace("\\\n", " ")
    )
    chosen = worker_arguments("x").parse_args(arguments)
    config, processes = (
        chosen_settings(WorkerConfig, chosen),
        chosen_settings(ProcessSettings, chosen),
    )
    assert len(child_configs(config, processes.count())) == 4
    assert processes.limits(0).memory == 1500 << 20


def test_what_is_not_for_workers_is_not_in_the_examples() -> None:
    """The example gives a container no more permissions than it needs."""
    examples = "".join(re.findall(r"^```.*?^```", TEXT, re.MULTILINE | re.DOTALL))
    assert [
        word
        for word in ("docker.sock", "privileged", "hostPID", "hostPath", "add:")
        if word in examples
    ] == []
    for word in ("cap-drop ALL", "read-only", "no-new-privileges"):
        assert word in examples
