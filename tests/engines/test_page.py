"""The page on Slurm is right on a Slurm: ``make test-engines``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.engines import SlurmEngine
from tests.frameworks.slurm import Slurm
from zmqdata import DispatcherConfig, DispatchServer, use_key_file
from zmqdata.client.calls import status
from zmqdata.testing.cluster import await_condition

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")

pytestmark = [
    pytest.mark.skipif(
        "ZMQDATA_ENGINES" not in os.environ, reason="only `make test-engines` runs it"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(180),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the key of a cluster, in which a user works who has a prompt."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    subprocess.run(["zmqdata", "keygen"], check=True, timeout=60, capture_output=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_program_trains(slurm: Slurm, home: Path) -> None:
    """The first program of the page reads all batches from jobs of Slurm, and leaves
    none behind.
    """
    [program, *_] = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (home / "train.py").write_text(program)
    ran = subprocess.run(["python", "train.py"], capture_output=True, text=True, timeout=150)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["(100,)"] * 100
    engine = SlurmEngine(slurm, home)
    await_condition(lambda: engine.jobs() == {}, 15.0, "the end of all jobs")


def test_the_script_starts_workers(slurm: Slurm, home: Path) -> None:
    """The commands of the page submit an array of workers that register by their
    names. They end for good by a plain ``scancel``.
    """
    [commands] = re.findall(r"^```bash\n(zmqdata slurm script --array.*?)^```", PAGE, re.M | re.S)
    use_key_file()
    with DispatchServer(DispatcherConfig()) as dispatcher:
        for old, new in [
            ("tcp://head:5050", dispatcher.target),
            ("--array 8", "--array 2"),
            ("--processes 4", "--processes 1"),
            ("sbatch workers.sh", "sbatch --parsable workers.sh"),
        ]:
            assert old in commands
            commands = commands.replace(old, new)
        ran = subprocess.run(
            ["bash", "-ec", commands], capture_output=True, text=True, timeout=60, check=True
        )

        def names() -> list[str]:
            return sorted(worker["name"] for worker in status(dispatcher.target)["workers"])

        await_condition(lambda: names() == ["zmqdata-0", "zmqdata-1"], 60.0, "the workers")
        slurm.call("scancel", ran.stdout.strip())
        engine = SlurmEngine(slurm, home)
        await_condition(lambda: engine.jobs() == {}, 30.0, "the end of all jobs")


TRAINING = """
import os, zmqdata
read = zmqdata.distribute("distributed_epoch", os.environ["ZMQDATA_DISPATCHER"])
rows = zmqdata.Dataset.range(1000).map(lambda x: x + 1).batch(100).apply(read)
print("trained on", sum(len(batch) for batch in rows), "rows")
"""


def test_a_training_is_one_job(slurm: Slurm, home: Path) -> None:
    """The heterogeneous job of the page trains on all rows, and ends by itself."""
    [commands] = re.findall(r"^```bash\n(zmqdata slurm script --het.*?)^```", PAGE, re.M | re.S)
    for old, new in [
        ("--workers 16", "--workers 2"),
        ("--sbatch=--gpus=1", "--sbatch=--output=training.log"),
        ("--mem=4G", "--mem=100M"),
    ]:
        assert old in commands
        commands = commands.replace(old, new)
    (home / "train.py").write_text(TRAINING)
    submit = f"{commands}\nsbatch training.sh"
    subprocess.run(["bash", "-ec", submit], capture_output=True, timeout=60, check=True)
    engine = SlurmEngine(slurm, home)
    await_condition(lambda: engine.jobs() == {}, 90.0, "the end of the training")
    assert "trained on 1000 rows\n" in (home / "training.log").read_text()


def test_the_example_loses_no_element(slurm: Slurm, home: Path) -> None:
    """The example of workers that come and go cancels jobs, and each element comes
    once.
    """
    ran = subprocess.run(
        ["python", str(ROOT / "examples" / "spot.py")], capture_output=True, text=True, timeout=150
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^slurm-\w+-\d is cancelled$", ran.stdout, re.MULTILINE), ran.stdout
    assert re.search(r"^5000 elements, each once$", ran.stdout, re.MULTILINE), ran.stdout
