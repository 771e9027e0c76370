"""Tests of a step's roles, ranks, exit codes and connections, without other
processes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from zmqdata.cli.commands import main
from zmqdata.cli.membership import Coordinator, StepMember
from zmqdata.cli.step import KILLED, StepEnds, StepProcess, rank_variables, step_process
from zmqdata.transport.dispatcher_file import facts_in
from zmqdata.worker.processes.lifetime import StopSignals

PLACE = {
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_ID": "1",
    "SLURM_SUBMIT_DIR": "/shared",
}


def test_roles_follow_the_number_of_the_process() -> None:
    """Process 0 is the dispatcher, the next ones are trainers, the others workers."""
    roles = [step_process(PLACE | {"SLURM_PROCID": str(at)}, 2).role for at in range(4)]
    assert roles == ["dispatcher", "trainer", "trainer", "worker"]


def test_files_are_named_by_job_step_and_restart() -> None:
    """Steps of a job, and lives of a requeued job, have different files in the folder
    of the submission.
    """
    first = step_process(PLACE, 1)
    second = step_process(PLACE | {"SLURM_RESTART_COUNT": "2"}, 1)
    assert first.dispatcher_file == "/shared/zmqdata-7.1.json"
    assert second.dispatcher_file == "/shared/zmqdata-7.1.2.json"
    assert len({first.step_file, second.step_file, first.dispatcher_file}) == 3


def test_ranks_are_numbered_over_their_machines() -> None:
    """Trainers see their own numbers, in all and on their machine, and only their
    machines, that of rank 0 first.
    """
    nodes = ["n2", "n2", "n1"]
    seen = [rank_variables(rank, nodes) for rank in range(3)]
    assert [one["SLURM_PROCID"] for one in seen] == ["0", "1", "2"]
    assert [one["SLURM_LOCALID"] for one in seen] == ["0", "1", "0"]
    assert [one["SLURM_NODEID"] for one in seen] == ["0", "0", "1"]
    assert [one["SLURM_GTIDS"] for one in seen] == ["0,1", "0,1", "2"]
    for one in seen:
        assert {one[name] for name in ("SLURM_NTASKS", "SLURM_NPROCS")} == {"3"}
        assert {one[name] for name in ("SLURM_NNODES", "SLURM_STEP_NUM_NODES")} == {"2"}
        assert {one[name] for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST")} == {"n2,n1"}
        assert one["SLURM_TASKS_PER_NODE"] == "2,1"


def ends(*reports: tuple[int, int]) -> int | None:
    """Return the verdict on a step of 2 trainers and 2 workers after these reports."""
    found = StepEnds(ranks=2, workers=2)
    for number, code in reports:
        found.add(number, code)
    return found.verdict


def test_a_step_ends_with_its_last_rank() -> None:
    """The verdict is the first code of a trainer that is not 0, and comes with the last
    trainer.
    """
    assert ends((1, 3), (3, 0), (4, 1)) is None
    assert ends((2, 0), (1, 0)) == 0
    assert ends((3, 9), (2, 5), (1, 3)) == 5
    assert ends((2, 0), (2, KILLED), (1, 0)) == 0


def test_a_step_ends_when_all_workers_have_failed() -> None:
    """The step ends with the code of a worker if all have failed, and goes on if one
    was told to end.
    """
    assert ends((3, 2), (4, 1)) == 2
    assert ends((2, 7), (3, 2), (4, 1)) == 7
    assert ends((3, 2), (4, 0)) is None


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """The environment of a process of a step."""
    for name, value in (PLACE | {"SLURM_SUBMIT_DIR": str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize(
    ("arguments", "variables", "text"),
    [
        (["--", "x"], {"SLURM_PROCID": None}, "`SLURM_PROCID` is not set"),
        (["--", "x"], {"SLURM_STEP_ID": None}, "Start it by `srun`"),
        (["--", "x"], {"SLURM_NTASKS": "2"}, "`--ntasks=3`"),
        (["--trainers=3", "--", "x"], {}, "`--ntasks=5`"),
        (["--trainers=0", "--", "x"], {}, "`--trainers` must be at least 1, got 0"),
        (["--trainers=two", "--", "x"], {}, "--trainers: invalid int value"),
        (["--"], {}, "Write it behind `--`"),
        (["python", "train.py"], {}, "unrecognized arguments"),
        (["--dispatcher=tcp://n1:5", "--", "x"], {}, "Leave it out"),
        (["--", "x"], {"SLURM_SUBMIT_DIR": "/no/such"}, "which this one cannot write"),
    ],
)
def test_bad_input_is_a_line(
    place: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    variables: dict[str, str | None],
    text: str,
) -> None:
    """A wrong option or a place without a step is a single line, and exit code 2."""
    for name, value in variables.items():
        if value is None:
            place.delenv(name)
        else:
            place.setenv(name, value)
    try:
        code: object = main(["auto", *arguments])
    except SystemExit as end:
        code = end.code
    told = capsys.readouterr().err
    assert code == 2
    assert text in told
    assert told.count("\n") == 1


@pytest.fixture
def process(tmp_path: Path) -> StepProcess:
    """The first process of a step of one trainer and one worker."""
    return StepProcess(0, 1, 1, str(tmp_path), "zmqdata-7.1", "n1")


@pytest.fixture
def coordinator(process: StepProcess) -> Iterator[Coordinator]:
    """A coordinator of this step."""
    with closing(Coordinator(process)) as made:
        yield made


@pytest.mark.parametrize(
    "line",
    [
        b'{"secret": "guessed", "process": 1, "node": "n1"}\n',
        b'{"code": 3}\n',
        b"[]\n",
        b"\xff\n",
        b"x" * 9000,
    ],
)
def test_a_stranger_is_no_member(
    process: StepProcess, coordinator: Coordinator, line: bytes
) -> None:
    """A connection without the secret is closed, and ends nothing."""
    host, port = facts_in(process.step_file)["address"].removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port))) as stranger:
        stranger.sendall(line)
        stranger.settimeout(0.05)
        for _ in range(100):
            assert not coordinator.wait(0.05)
            try:
                received = stranger.recv(1)
                break
            except TimeoutError:
                continue
            except ConnectionResetError:
                received = b""
                break
        assert received == b""


def test_the_secret_is_only_for_the_user(process: StepProcess, coordinator: Coordinator) -> None:
    """Only the user of the step can read the secret, and the file is gone once all
    processes are connected.
    """
    path = Path(process.step_file)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["secret"]
    stop = StopSignals()
    with closing(stop), ExitStack() as made:
        numbered = [StepProcess(at, 1, 1, process.folder, process.name, "n1") for at in (1, 2)]
        members = [made.enter_context(closing(StepMember(one, stop))) for one in numbered]
        for _ in range(4):
            assert not coordinator.wait(1.0)
        assert not path.exists()
        assert members[0].hear() == {"nodes": ["n1"]}
        members[0].tell(4)
        assert not coordinator.wait(1.0)
        assert members[1].hear() == {"verdict": 4}
