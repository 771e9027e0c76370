"""Tests of the batch scripts for Slurm, and of the command that prints them."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.hosts.fakes import FakeSlurm
from zmqdata.cli.commands import SIGNALLED_BY_SLURM, main
from zmqdata.config.worker import WorkerConfig
from zmqdata.hosts.slurm import auto_script, options_of_sbatch, worker_script
from zmqdata.testing.cluster import await_condition
from zmqdata.worker.processes.options import ProcessSettings

DISPATCHER = "tcp://10.0.0.1:5050"
TEXT = """it's a "b" \\ c"""


def script(processes: str = "1", array: int = 0, **fields: str) -> str:
    options = options_of_sbatch({"time": "10"}, [f"--comment={TEXT}"])
    config = WorkerConfig(DISPATCHER, **fields)
    return worker_script(config, ProcessSettings(processes=processes), options, array=array)


SCRIPTS = {
    "worker": script(name=TEXT),
    "array": script("4", array=3, name="reader"),
    "auto": script("auto", key_file="/shared/my keys/a.key"),
    "training": auto_script(
        ["python", "train.py", TEXT],
        WorkerConfig(DISPATCHER, name="run", worker_tags=("GPU",)),
        ProcessSettings(processes="2"),
        4,
        2,
        ["--time=10"],
        ["--mem=1"],
    ),
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_a_script_is_one_of_bash(kind: str) -> None:
    """``bash -n`` accepts the script, and so does a Slurm that is running here."""
    text = SCRIPTS[kind]
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=60)
    if shutil.which("sinfo") and not subprocess.run(["sinfo"], capture_output=True).returncode:
        subprocess.run(["sbatch", "--test-only"], input=text, text=True, check=True, timeout=60)


def test_a_worker_gets_a_core_for_each_process() -> None:
    """A fixed number of processes is asked of Slurm. With ``auto`` the user says it."""
    assert "#SBATCH --cpus-per-task=4\n" in SCRIPTS["array"]
    assert "#SBATCH --cpus-per-task" not in SCRIPTS["auto"]


def test_the_drain_begins_long_enough_before_the_time_limit() -> None:
    """The signal comes early enough for a drain that takes longer than usual."""
    config = WorkerConfig(DISPATCHER, drain_seconds=60.0)
    assert "--signal=TERM@30\n" in SCRIPTS["worker"]
    assert "--signal=TERM@66\n" in worker_script(config, ProcessSettings())


def run(fake: FakeSlurm, text: str, **variables: str) -> subprocess.Popen[str]:
    path = fake.folder / "job.sh"
    path.write_text(text)
    names = {"PATH": f"{fake.folder / 'bin'}:/usr/bin:/bin", "SLURM_JOB_ID": "12", **variables}
    return subprocess.Popen(["bash", str(path)], env=names, text=True, stdout=subprocess.PIPE)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    """The commands that a batch script calls."""
    return FakeSlurm(tmp_path, monkeypatch)


@pytest.mark.parametrize("code", [0, 1, 2, 4, SIGNALLED_BY_SLURM, 137, 143])
def test_only_a_drain_that_slurm_began_is_requeued(fake: FakeSlurm, code: int) -> None:
    """The script requeues its job if its worker ended with 5, never otherwise, and ends
    with the code of the worker.
    """
    fake.command("srun", f"exit {code}")
    with run(fake, SCRIPTS["worker"]) as ran:
        assert ran.wait(60) == code
    assert fake.read("controls") == (["requeue 12"] if code == SIGNALLED_BY_SLURM else [])


def test_a_cancelled_job_is_not_requeued(fake: FakeSlurm) -> None:
    """SIGTERM, which ``scancel`` sends to the shell, ends the script before it could
    requeue the job of the drained worker.
    """
    fake.command("srun", 'touch "$at/runs"; while [ ! -f "$at/go" ]; do :; done; exit 5')
    with run(fake, SCRIPTS["worker"]) as ran:
        await_condition((fake.folder / "runs").exists, 30.0, "the worker")
        ran.send_signal(signal.SIGTERM)
        assert ran.wait(60) == -signal.SIGTERM
        fake.write("go")
    assert fake.read("controls") == []


def test_options_arrive_as_they_were_given(fake: FakeSlurm) -> None:
    """A name with quotes, spaces and a backslash reaches the worker unchanged; members
    of an array have numbers.
    """
    fake.command("srun", 'for word in "$@"; do echo "$word"; done')
    with run(fake, SCRIPTS["worker"]) as ran:
        assert f"--name={TEXT}" in (ran.communicate(timeout=60)[0]).splitlines()
    with run(fake, SCRIPTS["array"], SLURM_ARRAY_TASK_ID="2", SLURM_CPUS_PER_TASK="4") as ran:
        words = ran.communicate(timeout=60)[0].splitlines()
    assert {"--name=reader-2", "--cpus-per-task=4", "--processes=4"} <= set(words)


def test_a_training_has_a_group_for_its_workers() -> None:
    """The first group has the dispatcher and the training processes, the second one the
    workers; one step spans both.
    """
    first, second = SCRIPTS["training"].split("#SBATCH hetjob\n")
    assert "#SBATCH --ntasks=3\n" in first
    assert "#SBATCH --time=10\n" in first
    assert "#SBATCH --ntasks=4\n" in second
    assert "#SBATCH --mem=1\n" in second
    words = shlex.split(second[second.index("srun") :].replace("\\\n", ""))
    assert {"--het-group=0,1", "--kill-on-bad-exit=1"} <= set(words)
    options = ["--trainers=2", "--tag=GPU", "--processes=2"]
    assert words[words.index("auto") :] == ["auto", *options, "--", "python", "train.py", TEXT]


def test_the_command_prints_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    """The command takes options of Slurm and of workers, which listen to other
    machines.
    """
    options = ["--partition", "spot", "--sbatch=--qos=low", "--name", "reader", "--array", "2"]
    assert main(["slurm", "script", "--dispatcher", DISPATCHER, *options]) == 0
    shown = capsys.readouterr().out
    for text in ("#SBATCH --partition=spot", "#SBATCH --qos=low", "#SBATCH --array=0-1"):
        assert f"\n{text}\n" in shown
    assert f"--dispatcher={DISPATCHER}" in shown
    assert "--host=0.0.0.0" in shown


def test_the_command_prints_a_training(capsys: pytest.CaptureFixture[str]) -> None:
    """Words behind ``--`` are the training command, whatever they are."""
    assert main(["slurm", "script", "--het", "--workers", "3", "--", "train", "--time", "5"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"auto --trainers=1 --host=0.0.0.0 -- train --time 5$", shown.strip())
    assert "--time=5" not in shown


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "where is the dispatcher?"),
        (["--dispatcher", DISPATCHER, "--sbatch", "qos"], "must begin with a dash"),
        (["--dispatcher", DISPATCHER, "--array", "0"], "`array` must be"),
        (["--dispatcher", DISPATCHER, "--", "train"], "need `--het`"),
        (["--dispatcher", DISPATCHER, "--worker-sbatch=--mem=1"], "need `--het`"),
        (["--het"], "needs the training command"),
        (["--het", "--trainers", "0", "--", "train"], "`trainers` must be"),
    ],
)
def test_wrong_options_of_the_command_are_refused(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong option is a line on standard error, and exit code 2."""
    assert main(["slurm", "script", *options]) == 2
    assert text in capsys.readouterr().err
