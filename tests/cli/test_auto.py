"""Tests of a step's roles, ranks, exit codes and connections, without other
processes.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from zmqdata.cli import membership
from zmqdata.cli.commands import main
from zmqdata.cli.membership import Coordinator, StepMember
from zmqdata.cli.step import KILLED, StepEnds, StepProcess, rank_variables, step_process
from zmqdata.transport.dispatcher_file import DispatcherFile, facts_in
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
        (["--", "x"], {"SLURM_NTASKS": None}, "`SLURM_NTASKS` is not set"),
        (["--", "x"], {"SLURM_JOB_ID": None}, "`SLURM_JOB_ID` is not set"),
        (["--", "x"], {"SLURM_PROCID": "abc"}, "`SLURM_PROCID` is 'abc', and no number"),
        (["--", "x"], {"SLURM_PROCID": "-1"}, "Start it by `srun`"),
        (["--", "x"], {"SLURM_NTASKS": "9" * 5000}, "`SLURM_NTASKS` is '999"),
        (["--", "x"], {"SLURM_JOB_ID": "../7"}, "`SLURM_JOB_ID` is '../7', and no number"),
        (
            ["--", "x"],
            {"SLURM_PROCID": "9", "SLURM_NTASKS": "3"},
            "`SLURM_PROCID` is 9, and must be less than `SLURM_NTASKS`, which is 3",
        ),
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


def connected(process: StepProcess) -> socket.socket:
    """Return a new connection to the coordinator."""
    host, port = facts_in(process.step_file)["address"].removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), 5.0)


def secret_of(process: StepProcess) -> bytes:
    """Return the secret of the step."""
    return facts_in(process.step_file)["secret"].encode()


def greeting(process: StepProcess, number: int) -> bytes:
    """Return the first line of a member."""
    return secret_of(process) + json.dumps({"process": number, "node": "n1"}).encode() + b"\n"


def is_closed(connection: socket.socket) -> bool:
    """Return True if the other side has closed a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize(
    "line",
    [
        b'{"secret": "guessed", "process": 1, "node": "n1"}\n',
        b'{"code": 3}\n',
        b"[]\n",
        b"\xff\n",
        b"x" * 9000,
        b"[" * 3900 + b"\n",
        b"SECRET" + b"[" * 3900 + b"\n",
        b'SECRET{"process": 9, "node": "n1"}\n',
        b"SECRET[]\n",
    ],
)
def test_a_stranger_is_no_member(
    process: StepProcess, coordinator: Coordinator, line: bytes
) -> None:
    """A connection without the secret, or with the secret and no process that is
    awaited, is closed, and ends nothing.
    """
    with connected(process) as stranger:
        stranger.sendall(line.replace(b"SECRET", secret_of(process)))
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


def test_idle_connections_are_few_and_short(
    process: StepProcess, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest connections without the secret are closed if there are too many, and
    the others after some seconds; members are admitted beside them.
    """
    now = [time.monotonic()]
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: now[0]))
    most = 2 + membership.MOST_STRANGERS
    with ExitStack() as made:
        idle = []
        for _ in range(most + 3):
            idle.append(made.enter_context(connected(process)))
            assert not coordinator.wait(1.0)
        assert [is_closed(one) for one in idle] == [True] * 3 + [False] * most
        member = made.enter_context(connected(process))
        member.sendall(greeting(process, 1))
        for _ in range(2):
            assert not coordinator.wait(1.0)
        now[0] += membership.STRANGER_SECONDS
        assert not coordinator.wait(0.0)
        assert all(map(is_closed, idle))
        assert json.loads(member.recv(99)) == {"nodes": ["n1"]}
        assert not is_closed(member)


def test_a_shortage_of_descriptors_ends_nothing(
    process: StepProcess, coordinator: Coordinator
) -> None:
    """A connection that cannot be accepted for lack of descriptors waits until there
    are some.
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connected(process) as joined:
        joined.sendall(greeting(process, 1))
        free = os.dup(joined.fileno())
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
        try:
            assert not coordinator.wait(1.0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for _ in range(2):
            assert not coordinator.wait(1.0)
        assert json.loads(joined.recv(99)) == {"nodes": ["n1"]}


def test_lines_that_come_together_all_count(process: StepProcess, coordinator: Coordinator) -> None:
    """A member that reports its exit code together with its first line has ended."""
    with connected(process) as worker, connected(process) as joined:
        worker.sendall(greeting(process, 2))
        for _ in range(3):
            assert not coordinator.wait(1.0)
        joined.sendall(greeting(process, 1) + b'{"code": 2}\n')
        assert not coordinator.wait(1.0)
        assert json.loads(worker.recv(99)) == {"verdict": 2}


def test_messages_that_come_together_are_heard_in_turn(process: StepProcess) -> None:
    """A member that has received two messages at once does not wait for the second."""
    stop = StopSignals()
    with closing(stop), socket.create_server(("127.0.0.1", 0)) as listener:
        file = DispatcherFile(process.step_file)
        address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        file.write(address, mode=0o600, secret="secret")
        with closing(StepMember(process, stop)) as member, listener.accept()[0] as other:
            other.sendall(b'{"nodes": ["n1"]}\n{"verdict": 3}\n')
            assert member.hear(stop) == {"nodes": ["n1"]}
            assert member.await_message(stop)
            assert member.hear(stop) == {"verdict": 3}


def test_a_worker_that_comes_after_the_end_waits_for_nothing(
    process: StepProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is admitted after the last trainer's end hears the verdict, and one
    that comes after the dispatcher's end reads it in the file.
    """
    now = [time.monotonic()]
    monkeypatch.setattr(membership, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(membership, "exit_within", lambda seconds, code: None)
    three = replace(process, workers=2)
    with closing(Coordinator(three)) as coordinator, connected(three) as joined:
        joined.sendall(greeting(three, 1) + b'{"code": 7}\n')
        for _ in range(2):
            assert not coordinator.wait(1.0)
        with connected(three) as late:
            late.sendall(greeting(three, 2))
            for _ in range(2):
                assert not coordinator.wait(1.0)
            assert json.loads(late.recv(99)) == {"verdict": 7}
        now[0] += membership.END_SECONDS
        assert coordinator.wait(0.0)
    with closing(StopSignals()) as stop, pytest.raises(SystemExit) as ended:
        StepMember(replace(three, number=3), stop)
    assert ended.value.code == 0
