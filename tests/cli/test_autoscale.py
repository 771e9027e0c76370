"""Tests of the command that scales by the command of an engine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from zmqdata.cli import autoscale
from zmqdata.cli.autoscale import CommandRunner
from zmqdata.cli.commands import main
from zmqdata.dispatcher.server import DispatchServer
from zmqdata.testing.cluster import await_condition

SOON = 20.0
NOW = 1000.0


@pytest.fixture
def dispatcher() -> Iterator[DispatchServer]:
    """A dispatcher without workers."""
    with DispatchServer() as server:
        yield server


def finish(runner: CommandRunner, now: float) -> None:
    """Let a runner start its command, and await the end."""
    runner.look(now)
    process = runner._process
    if process is not None:
        process.wait(SOON)
    runner.look(now)


def shell(script: str) -> list[str]:
    return ["sh", "-c", script, "name", "{n}"]


def test_a_command_runs_once_for_each_number(tmp_path: Path) -> None:
    """The number takes the place of ``{n}``, and an unchanged number runs nothing."""
    with closing(CommandRunner(shell(f'echo "$1" >> {tmp_path}/said'))) as runner:
        finish(runner, NOW)
        for number in (2, 2, 3, 2):
            runner.wanted = number
            finish(runner, NOW)
    assert (tmp_path / "said").read_text().split() == ["2", "3", "2"]


def test_a_failed_command_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failure is logged with the output, and tried again after growing pauses, for
    the number that is wanted by then.
    """
    script = f'echo "$1" >> {tmp_path}/said; echo no quota for "$1"; test "$1" = 5'
    with closing(CommandRunner(shell(script))) as runner:
        runner.wanted = 4
        for now in (0.0, 0.9, 1.1, 3.0, 3.2):
            finish(runner, NOW + now)
        runner.wanted = 5
        finish(runner, NOW + 100.0)
        finish(runner, NOW + 200.0)
    assert (tmp_path / "said").read_text().split() == ["4", "4", "4", "5"]
    text = "command for 4 workers ended with exit code 1, and wrote: no quota for 4. It is tried"
    assert text in caplog.text


def test_a_command_that_hangs_is_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A command has its time, and its whole process group ends with it."""
    monkeypatch.setattr(autoscale, "COMMAND_SECONDS", 5.0)
    with closing(CommandRunner(shell("cat /dev/zero > /dev/null"))) as runner:
        runner.wanted = 1
        runner.look(NOW)
        runner.look(NOW + 4.9)
        assert "was killed" not in caplog.text
        runner.look(NOW + 5.0)
    assert "command for 1 workers was killed after 5 s" in caplog.text


def test_a_command_that_does_not_exist_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A missing program is no end of the autoscaler."""
    with closing(CommandRunner(["/no/such/program", "{n}"])) as runner:
        runner.wanted = 1
        runner.look(NOW)
    assert "cannot be started: No such file" in caplog.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--", "scale"], "COMMAND must have {n}"),
        ([], "COMMAND must have {n}"),
        (["--min=3", "--max=2", "--", "scale", "{n}"], "(`--min`) exceeds `maximum`=2"),
        (["--interval=0", "--", "scale", "{n}"], "`interval` must be at least"),
        (["--max=-1", "--", "scale", "{n}"], "`maximum`"),
    ],
)
def test_wrong_options_end_with_2(
    options: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options that can never work end the command with one line and exit code 2."""
    try:
        code = main(["autoscale", "--dispatcher=tcp://127.0.0.1:1", *options])
    except SystemExit as error:
        code = int(str(error.code))
    assert code == 2
    assert text in capsys.readouterr().err


@pytest.mark.realprocess
def test_one_autoscaler_follows_a_dispatcher(dispatcher: DispatchServer, tmp_path: Path) -> None:
    """A second autoscaler ends with 2 and names the first; a killed one is replaced
    within three intervals; SIGTERM ends one with 0.
    """
    said = tmp_path / "said"
    command = [sys.executable, "-m", "zmqdata", "autoscale", "--min=1", "--interval=0.3"]
    command += [f"--dispatcher={dispatcher.target}", "--", *shell(f'echo "$1" >> {said}')]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        await_condition(lambda: said.exists() and said.read_text() == "1\n", SOON, "a number")
        second = subprocess.run(command, capture_output=True, text=True, timeout=SOON)
        assert second.returncode == 2
        assert f"process {first.pid} on" in second.stderr
        first.kill()
        first.wait()
        killed = time.monotonic()
        await_condition(lambda: time.monotonic() > killed + 1.0, SOON, "three intervals")
        first = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        await_condition(lambda: said.read_text() == "1\n1\n", SOON, "a number again")
        first.send_signal(signal.SIGTERM)
        assert first.wait(SOON) == 0
    finally:
        first.kill()
        first.wait()
