"""Facts about the commands that look at a cluster when something is wrong, on real
processes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.cli.findings import FAILURE
from zmqdata.errors import PipelineError

pytestmark = pytest.mark.realprocess


def fails_at_37(x: int) -> int:
    y = 2 * x
    if x == 37:
        raise ValueError(f"no {y}")
    return y


def run(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zmqdata", *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.full
def test_a_failing_element_is_debugged_with_the_command_that_its_error_names() -> None:
    """The debugger stops in the user's function with its variables, and the exit code
    tells whether the element fails here. The doctor finds no failure in the cluster.
    """
    with LocalCluster(1) as cluster:
        dataset = Dataset.range(100).map(fails_at_37)
        with pytest.raises(PipelineError) as caught:
            list(dataset.apply(distribute("distributed_epoch", cluster.target)))
        told = re.search(r"`zmqdata (replay \d+ 37)`", str(caught.value.args[0]))
        assert told is not None
        command = [*told[1].split(), "--dispatcher", cluster.target]
        debugged = run(*command, typed="p (x, y)\nquit\n")
        assert debugged.returncode == 1
        assert re.search(r"\(Pdb\) \((np.int64\()?37\)?, (np.int64\()?74\)?\)", debugged.stdout)
        shown = run(*command, "--no-pdb")
        assert (shown.returncode, "ValueError: no 74" in shown.stdout) == (1, True)
        command[2] = "36"
        fine = run(*command)
        assert (fine.returncode, "does not fail here" in fine.stdout) == (0, True)
        command[1] = "17"
        unknown = run(*command)
        assert unknown.returncode == 2
        assert "Task 17 is unknown." in unknown.stderr
        health = run("doctor", "--json", "--dispatcher", cluster.target)
        found = json.loads(health.stdout)
        assert health.returncode == (0 if found["well"] else 1)
        assert FAILURE not in {one["state"] for one in found["findings"]}
        assert "throughput" in {one["check"] for one in found["findings"]}
