"""Ranks of one step of Slurm are a run: ``make test-slurm``."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.launches import ALL, ASKED_FOR, all_wait, passes, program, ranks
from tests.frameworks.slurm import Slurm, is_installed
from zmqdata import LocalCluster
from zmqdata.testing.cluster import await_condition, is_running

pytestmark = [
    ASKED_FOR,
    pytest.mark.skipif(
        not is_installed(), reason="slurm-wlm and munge are not installed, or this is not root"
    ),
    pytest.mark.realprocess,
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """A Slurm of one node."""
    # munged refuses a folder into which others may write; a socket has a short path.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with Slurm(Path(folder)) as made:
            yield made


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A cluster of one worker process."""
    with LocalCluster(num_workers=1) as made:
        yield made


def keys(folder: Path) -> set[str]:
    return {told.split()[0] for told in ranks(folder)}


def test_each_srun_is_a_run(slurm: Slurm, cluster: LocalCluster, tmp_path: Path) -> None:
    """Two ranks of ``srun`` read each row once in each epoch; a second ``srun`` reads
    everything again.
    """
    for start in ("first", "second"):
        slurm.call("srun", "-n2", *program(cluster.target, tmp_path / start))
        assert passes(tmp_path / start) == [ALL, ALL]
        assert [told.split()[1] for told in ranks(tmp_path / start)] == ["0", "1"]
    assert len(keys(tmp_path / "first") | keys(tmp_path / "second")) == 2


def test_each_step_of_a_job_is_a_run(slurm: Slurm, cluster: LocalCluster, tmp_path: Path) -> None:
    """Two steps of one job, one after the other, read everything each."""
    starts = [tmp_path / "first", tmp_path / "second"]
    steps = [shlex.join(["srun", "-n2", *program(cluster.target, one)]) for one in starts]
    slurm.submit("\n".join(steps), "--wait")
    assert [passes(one) for one in starts] == [[ALL, ALL]] * 2


@pytest.mark.parametrize("how", ["sbatch", "salloc"])
def test_a_script_without_srun_is_a_run_each_time(
    slurm: Slurm, cluster: LocalCluster, tmp_path: Path, how: str
) -> None:
    """A script that the shell of an allocation starts without ``srun`` reads everything
    each time.
    """
    starts = [tmp_path / "first", tmp_path / "second"]
    script = "\n".join(shlex.join(program(cluster.target, one)) for one in starts)
    if how == "sbatch":
        slurm.submit(script, "--wait")
    else:
        slurm.call("salloc", "-n2", "bash", "-c", script)
    assert [passes(one) for one in starts] == [[ALL, ALL]] * 2


def test_a_requeued_job_is_another_run(slurm: Slurm, cluster: LocalCluster, tmp_path: Path) -> None:
    """A job that is requeued in the middle of an epoch reads everything again."""
    folders = [tmp_path / "0", tmp_path / "1"]
    commands = [
        shlex.join(["srun", "-n2", *program(cluster.target, one, "150")]) for one in folders
    ]
    (folders[0] / "hold").touch()
    script = f"if [ -z $SLURM_RESTART_COUNT ]; then {commands[0]}; else {commands[1]}; fi"
    job = slurm.submit(script, "--requeue")
    await_condition(lambda: all_wait(folders[0], 2), 60.0, "both ranks in their first epoch")
    slurm.call("scontrol", "requeue", job)
    await_condition(lambda: slurm.state(job) == "PENDING", 60.0, "the job in the queue")
    # A launch in the second in which the first one was revoked would be refused.
    slurm.call("scontrol", "update", f"jobid={job}", "starttime=now+2")
    await_condition(lambda: slurm.state(job) == "COMPLETED", 90.0, "the end of the job")
    assert passes(folders[1]) == [ALL, ALL]
    assert keys(folders[0]) == {f"slurm:{job}.0.0"}
    assert keys(folders[1]) == {f"slurm:{job}.0.1"}


def test_a_step_whose_ranks_were_all_killed_reads_everything(
    slurm: Slurm, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Ranks that a script starts again within their step, after all were killed, read
    everything.
    """
    before, after = tmp_path / "before", tmp_path / "after"
    first = shlex.join(program(cluster.target, before, "50"))
    again = shlex.join(program(cluster.target, after))
    (before / "hold").touch()
    job = slurm.submit(f"srun -n2 bash -c {shlex.quote(f'{first}; {again}')}")
    await_condition(lambda: all_wait(before, 2), 60.0, "both ranks in their first epoch")
    for path in before.glob("*.held"):
        os.kill(int(path.stem), signal.SIGKILL)
    await_condition(lambda: slurm.state(job) == "COMPLETED", 90.0, "the end of the job")
    assert passes(after) == [ALL, ALL]
    assert keys(before) == keys(after)


END = 5.0
"""Seconds within which a step of ``zmqdata auto`` ends with its last trainer."""
WAITING = "trap 'kill $!; exit 0' TERM; tail -f /dev/null & touch {}/begun; while :; do wait; done"
"""A trainer that ends at SIGTERM, as one does that has saved its state."""


def auto(count: int, script: str, *options: str) -> list[str]:
    """Return the command of a step whose trainers run a script of the shell."""
    program = [sys.executable, "-m", "zmqdata", "auto", *options, "--", "sh", "-c", script]
    return ["srun", f"-n{count}", *program]


def test_a_step_is_a_whole_service(slurm: Slurm, tmp_path: Path) -> None:
    """The two trainers of a step read each row once in each epoch, as ranks 0 and 1."""
    read = shlex.join(program("", tmp_path / "read")).replace("''", '"$ZMQDATA_DISPATCHER"')
    slurm.call(*auto(4, f"exec {read}", "--trainers=2"))
    assert passes(tmp_path / "read") == [ALL, ALL]
    assert [told.split()[1] for told in ranks(tmp_path / "read")] == ["0", "1"]


@pytest.mark.parametrize(
    ("script", "code", "option"),
    [
        ("true", 0, "--wait=2"),
        ("exit 3", 3, "--kill-on-bad-exit=1"),
        ("kill -KILL $$", 137, "--kill-on-bad-exit=0"),
        ("kill -KILL $PPID; read _", 137, "--wait=2"),
    ],
)
def test_a_step_ends_with_its_rank(
    slurm: Slurm, tmp_path: Path, script: str, code: int, option: str
) -> None:
    """The step has the exit code of its trainer, and ends within seconds of its end,
    whatever the options of ``srun``.
    """
    command = auto(3, f"touch {tmp_path}/ends; {script}")
    command.insert(1, option)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=slurm.environment
    )
    assert time.time() - (tmp_path / "ends").stat().st_mtime < END
    assert done.returncode == code, done.stdout + done.stderr


def test_the_first_code_of_a_step_counts(slurm: Slurm, tmp_path: Path) -> None:
    """The step has the first code of a trainer that is not 0, not the highest."""
    script = f"[ $SLURM_PROCID = 1 ] && {{ touch {tmp_path}/go; exit 3; }}; "
    script += f"while [ ! -e {tmp_path}/go ]; do :; done; exit 7"
    command = auto(4, script, "--trainers=2")
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=slurm.environment
    )
    assert done.returncode == 3, done.stdout + done.stderr


@pytest.mark.parametrize("how", ["dispatcher killed", "SIGTERM", "scancel"])
def test_a_step_ends_as_a_whole(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The step ends within seconds of the death of the dispatcher, and at SIGTERM."""
    monkeypatch.chdir(tmp_path)  # a killed dispatcher leaves its file there
    job = slurm.submit(shlex.join(auto(3, WAITING.format(tmp_path))), "-n3")
    await_condition((tmp_path / "begun").exists, 60.0, "the trainer")
    lines = slurm.call("scontrol", "listpids", f"{job}.0").splitlines()[1:]
    rows = [line.split() for line in lines]
    tasks = {number: int(pid) for pid, _, _, _, number in rows if number != "-"}
    begun = time.monotonic()
    if how == "dispatcher killed":
        os.kill(tasks["0"], signal.SIGKILL)
    else:
        slurm.call("scancel", *(["--signal=TERM"] if how == "SIGTERM" else []), job)
    ended = {"FAILED", "COMPLETED", "CANCELLED"}
    await_condition(lambda: slurm.state(job) in ended, 60.0, "the end of the job")
    assert time.monotonic() - begun < END + 2.0  # Slurm looks now and then
    state = {"dispatcher killed": "FAILED", "SIGTERM": "COMPLETED", "scancel": "CANCELLED"}
    assert slurm.state(job) == state[how]
    await_condition(lambda: not any(map(is_running, tasks.values())), END, "the end of all")
