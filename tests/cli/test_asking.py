"""Tests of ``zmqdata status`` and ``zmqdata top`` on made answers."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from msgspec.structs import replace

from tests.statuses import answer, every_condition, job, status
from zmqdata import messages as m
from zmqdata import wire
from zmqdata.cli.commands import main
from zmqdata.client import calls
from zmqdata.config.keys import KeySettings
from zmqdata.errors import NoStatusError, UnavailableError
from zmqdata.messages import ServiceStatus
from zmqdata.transport.keychoice import show

HERE = ["--dispatcher", "tcp://127.0.0.1:5050"]
Answers = Callable[[Any], None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Return a function that sets what the server answers: a status, or plain data."""

    def answered(found: Any) -> None:
        plain = answer(found) if isinstance(found, ServiceStatus) else found
        monkeypatch.setattr(calls, "status", lambda service, timeout, role: plain)

    return answered


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the answers to come; then the user ends the command."""
    coming: list[Any] = []

    def ask(service: str, timeout: float, role: str) -> dict[str, Any]:
        if not coming:
            raise KeyboardInterrupt
        turn = coming.pop(0)
        if isinstance(turn, Exception):
            raise turn
        return answer(turn)

    monkeypatch.setattr(calls, "status", ask)
    return coming


SILENCE = UnavailableError("Nothing has answered.")
CALM = job("calm", 1, verdict="COMPUTE-BOUND")
SLOW = job("slow", 2)
NEW = job("new", 3, verdict="")
OVER = job("over", 4, finished=True)


@pytest.mark.parametrize(
    ("jobs", "options", "code"),
    [
        ([CALM, OVER], [], 0),
        ([CALM, SLOW], [], 1),
        ([CALM, SLOW], ["--job", "calm"], 0),
        ([CALM, SLOW], ["--job", "slow"], 1),
        ([CALM, job("bad", 5, failure="x")], [], 1),
        ([CALM, NEW], [], 2),
        ([CALM, NEW], ["--job", "new"], 2),
        ([CALM], ["--job", "none"], 2),
        ([OVER], [], 2),
        ([], [], 2),
    ],
)
@pytest.mark.parametrize("command", [["top", "--once"], ["status"], ["status", "--json"]])
def test_an_expectation_is_the_exit_code(
    answers: Answers, jobs: list[Any], options: list[str], code: int, command: list[str]
) -> None:
    """0 if every job that is read has the verdict, 1 if one has another, 2 if nothing
    is known.
    """
    answers(status(jobs=jobs))
    assert main([*command, *HERE, "--expect", "COMPUTE-BOUND", *options]) == code


@pytest.mark.parametrize(
    ("jobs", "known"),
    [
        ([], "It has no job yet"),
        ([SLOW, CALM, replace(CALM, repetition=1)], "It has 'calm', 'slow'."),
    ],
)
def test_an_unknown_job_is_told(
    answers: Answers, jobs: list[Any], known: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is known of a job that does not exist, and the error names those that
    do.
    """
    answers(status(jobs=jobs))
    command = ["top", "--once", *HERE, "--expect", "COMPUTE-BOUND", "--job", "trian"]
    assert main(command) == 2
    told = capsys.readouterr().err
    assert "The dispatcher has no job 'trian', which --job names" in told
    assert known in told


@pytest.mark.parametrize(
    ("environment", "command", "code"),
    [
        ({"JOB": "calm"}, ["top"], 0),
        ({"JOB": "calm"}, ["status"], 0),
        ({"EXPECT": "no verdict"}, ["top"], 0),
        ({"EXPECT": "COMPUTE-BOUND"}, ["status", "--watch"], 0),
        ({"EXPECT": "COMPUTE-BOUND", "JOB": "slow"}, ["status"], 1),
        ({"EXPECT": "COMPUTE-BOUND"}, ["status", "--job", "calm"], 0),
        ({"JOB": "calm"}, ["top", "--once", "--expect", "COMPUTE-BOUND"], 0),
        ({"WATCH": "1"}, ["status", "--expect", "COMPUTE-BOUND"], 1),
        ({"WORKER": "tcp://127.0.0.1:1"}, ["status", "--expect", "COMPUTE-BOUND"], 1),
        ({"EXPECT": "COMPUTE-BOUND"}, ["status", "--worker", "tcp://127.0.0.1:1"], 0),
    ],
)
def test_variables_bind_only_the_commands_that_use_them(
    environment: dict[str, str],
    command: list[str],
    code: int,
    turns: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable of the environment that does not fit the given options counts as
    unset.
    """
    for name, text in environment.items():
        monkeypatch.setenv(f"ZMQDATA_{name}", text)
    monkeypatch.setenv("ZMQDATA_INTERVAL", "0.001")
    turns.append(status(jobs=[CALM, SLOW]))
    assert main([*command, *HERE]) == code


def test_silence_is_no_verdict(turns: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """If the dispatcher does not answer, nothing is known of an expectation."""
    for options, code in (([], 1), (["--expect", "STRAGGLER"], 2)):
        turns.append(SILENCE)
        assert main(["top", "--once", *HERE, *options]) == code
        assert "Nothing has answered." in capsys.readouterr().err


def test_without_an_expectation_an_answer_is_enough(answers: Answers) -> None:
    """The exit code says only that the server has answered."""
    answers(status(jobs=[job(failure="x")]))
    assert main(["status", *HERE]) == main(["top", "--once", *HERE]) == 0


def test_json_has_the_verdict_by_the_names_of_stats(
    answers: Answers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program finds verdict, advice, needed workers and shares of each job."""
    made = every_condition()
    answers(made)
    assert main(["status", "--json", *HERE]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == answer(made)
    names = {"verdict", "advice", "workers_needed", "node_share", "wait_share", "condition"}
    assert all(names <= set(one) for one in told["jobs"])


def test_status_is_top_once(answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    """Both print the same, but for the clock."""
    answers(every_condition())
    printed = []
    for command in (["status"], ["top", "--once"]):
        assert main([*command, *HERE]) == 0
        printed.append(capsys.readouterr().out.splitlines()[1:])
    assert printed[0] == printed[1] != []


@pytest.mark.parametrize("command", [["status", "--watch"], ["top"]])
def test_each_answer_is_printed(
    command: list[str], turns: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """While the status is watched, a picture is printed for each answer and each
    silence.
    """
    turns += [status(), SILENCE, status()]
    assert main([*command, *HERE, "--interval", "0.001"]) == 0
    out = capsys.readouterr().out
    assert out.count("train  INPUT-BOUND") == 3
    assert out.count("Nothing has answered.") == 1


@pytest.mark.parametrize("command", [["status", "--watch"], ["top"]])
def test_each_answer_is_a_line_of_json(
    command: list[str], turns: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A silence has a line of its own."""
    turns += [status(), SILENCE, status()]
    assert main([*command, *HERE, "--json", "--interval", "0.001"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one == answer(status()) for one in lines] == [True, False, True]
    assert "Nothing has answered." in lines[1]["unavailable"]


def test_an_older_dispatcher_is_told(answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    """A status without a version is refused with the remedy. Its JSON is printed."""
    answers({"dispatcher": "tcp://a:1", "workers": [], "jobs": []})
    for command in (["status"], ["top"], ["top", "--once", "--expect", "STRAGGLER"]):
        assert main([*command, *HERE]) == 2
        told = capsys.readouterr()
        assert "is older than this release: no version" in told.err
        assert "install the same release on both sides" in told.err
        assert told.out == ""
    assert main(["status", "--json", *HERE]) == 0


def test_a_worker_shows_its_tasks(answers: Answers, capsys: pytest.CaptureFixture[str]) -> None:
    """The status of a worker is a table of its tasks."""
    answers({"worker": "tcp://a:1", "tasks": [], "rejected": {}})
    assert main(["status", "--worker", "tcp://127.0.0.1:1"]) == 0
    assert "0 tasks" in capsys.readouterr().out


@pytest.fixture
def stranger() -> Iterator[tuple[str, list[bytes]]]:
    """Serve one status, the bytes of the list. Return the address and the list."""
    body: list[bytes] = []
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        ended = context.socket(zmq.PAIR)
        ended.bind("inproc://ended")
        port = router.bind_to_random_port("tcp://127.0.0.1")

        def serve() -> None:
            with context.socket(zmq.PAIR) as end:
                end.connect("inproc://ended")
                poller = zmq.Poller()
                poller.register(router, zmq.POLLIN)
                poller.register(end, zmq.POLLIN)
                while end not in dict(poller.poll()):
                    peer, *frames = router.recv_multipart()
                    ask = wire.to_dispatcher.control(frames)
                    if isinstance(ask, m.RequestStatus):
                        router.send_multipart(
                            [peer, *wire.pack(m.StatusReported(ask.request, body[0]))]
                        )

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"tcp://127.0.0.1:{port}", body
        ended.send(b"")
        thread.join(30)
        ended.close(linger=0)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["status"], 1),
        (["status", "--json"], 1),
        (["top"], 1),
        (["top", "--once"], 1),
        (["top", "--once", "--expect", "STRAGGLER"], 2),
        (["report", "report.html"], 1),
        (["doctor"], 1),
    ],
)
def test_an_answer_that_is_no_status_is_told(
    command: list[str],
    code: int,
    stranger: tuple[str, list[bytes]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """An answer that is not the JSON object of a server counts as none. The error says
    what answered, the likely cause and the remedy.
    """
    monkeypatch.chdir(tmp_path)
    address, served = stranger
    served.append(b"[]")
    assert main([*command, "--dispatcher", address, "--insecure"]) == code
    streams = capsys.readouterr()
    told = " ".join((streams.out if command == ["doctor"] else streams.err).split())
    assert f"What answers at {address} has sent " in told
    assert "Another program, or another release of zmqdata, probably has this address" in told
    assert "Name the address that the server prints" in told


@pytest.mark.parametrize("body", [b"<html>", b'{"caf\xe9": 1}', b"[" * 100_000, b"{}"])
def test_the_status_of_a_stranger_is_an_error(
    body: bytes, stranger: tuple[str, list[bytes]]
) -> None:
    """An answer that is no JSON, is nested too deeply, or is the object of another
    program raises an error of ours that quotes its beginning.
    """
    address, served = stranger
    served.append(body)
    show(KeySettings(insecure=True))
    with pytest.raises(NoStatusError, match=re.escape(repr(body[:40]))):
        calls.status(address)
