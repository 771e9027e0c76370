"""Tests of the commands' arguments and of their error lines."""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.full import full
from zmqdata.cli import asking, commands, options
from zmqdata.cluster.local import command_options
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.logs import LogSettings
from zmqdata.config.settings import declaration_of, default_of, variable_of
from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.lifetime import StopSignals
from zmqdata.worker.processes.options import ProcessSettings

HERE = "tcp://127.0.0.1:5050"
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda word: word.strip()
)
PLACES = WORDS.filter(lambda word: word.split() == [word] and not word[-1].isdecimal())
HOSTS = WORDS.filter(
    lambda word: not re.search(r"[\s/:\[\]*%]", word) and word != "0.0.0.0" and len(word) < 25
)
ADDRESSES = st.tuples(HOSTS, st.integers(1, 65535)).map(lambda pair: f"{pair[0]}:{pair[1]}")
DISPATCHERS = st.builds(
    DispatcherConfig,
    port=st.integers(0, 65535),
    work_dir=st.none() | WORDS,
    worker_addresses=st.lists(PLACES, max_size=3).map(tuple),
    gc_dynamic_sharding_jobs=st.booleans(),
    deployment_mode=st.sampled_from(["COLOCATED", "REMOTE", "HYBRID"]),
    job_gc_timeout_ms=st.integers(-1, 10**9),
    client_timeout_ms=st.integers(1_000, 10**9),
    host=WORDS.filter(lambda word: "/" not in word),
)
WORKERS = st.builds(
    WorkerConfig,
    dispatcher_address=ADDRESSES | ADDRESSES.map("tcp://".__add__) | HOSTS.map("ipc://".__add__),
    worker_address=st.none() | HOSTS | ADDRESSES | HOSTS.map("{}:%port%".format),
    heartbeat_interval_ms=st.integers(1, 10_000),
    dispatcher_timeout_ms=st.integers(10_001, 10**9),
    data_transfer_protocol=st.sampled_from([None, "tcp"]),
    shared_memory_bytes=st.integers(1 << 16, 1 << 40),
    worker_tags=st.lists(WORDS, max_size=3).map(tuple),
    data_ports=st.none() | st.tuples(st.integers(1, 99), st.integers(99, 65535)),
    buffer_bytes=st.integers(1, 1 << 40),
)


@given(DISPATCHERS)
def test_a_dispatcher_is_configured_the_same_by_options(config: DispatcherConfig) -> None:
    """Every dispatcher configuration can be written as options and read back."""
    chosen = commands.dispatcher_arguments("x").parse_args(command_options(config))
    assert options.chosen_settings(DispatcherConfig, chosen) == config


@given(WORKERS)
def test_a_worker_is_configured_the_same_by_options(config: WorkerConfig) -> None:
    """Every worker configuration can be written as options and read back."""
    chosen = commands.worker_arguments("x").parse_args(command_options(config))
    assert options.chosen_settings(WorkerConfig, chosen) == config


@pytest.mark.parametrize("command", [commands.dispatcher_arguments, commands.worker_arguments])
def test_every_option_is_explained(command: type[argparse.ArgumentParser]) -> None:
    """Every option has a help text, except for the internal option."""
    parser = command("x")
    assert "the environment variable that its help names" in parser.format_help()
    silent = [action.dest for action in parser._actions if not action.help]
    assert silent == []
    assert "--temporary" not in parser.format_help()


@pytest.mark.parametrize(
    ("command", "kind"),
    [(commands.dispatcher_arguments, DispatcherConfig), (commands.worker_arguments, WorkerConfig)],
)
def test_help_explains_each_field(
    command: Callable[[str], argparse.ArgumentParser], kind: type[Any]
) -> None:
    """--help shows the meaning, default and environment variable of every field."""
    told = " ".join(command("x").format_help().split())
    for field in fields(kind):
        assert " ".join(declaration_of(field).meaning.split()[:4]) in told
        assert f"default: {default_of(field)}; ${variable_of(field)})" in told


def test_the_environment_names_the_dispatcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """ZMQDATA_DISPATCHER is the default of --dispatcher, and the option wins."""
    monkeypatch.setenv("ZMQDATA_DISPATCHER", HERE)
    assert worker_from().dispatcher_address == HERE
    assert worker_from("--dispatcher", "tcp://other:1").dispatcher_address == "tcp://other:1"


def worker_from(*given: str) -> WorkerConfig:
    return options.chosen_settings(WorkerConfig, commands.worker_arguments("x").parse_args(given))


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options override variables, also lists and disabled switches; the rest comes from
    the environment.
    """
    monkeypatch.setenv("ZMQDATA_DISPATCHER", HERE)
    monkeypatch.setenv("ZMQDATA_WORKER_TAGS", "A,B")
    monkeypatch.setenv("ZMQDATA_HEARTBEAT_INTERVAL_MS", "250")
    assert worker_from() == WorkerConfig(HERE, worker_tags=("A", "B"), heartbeat_interval_ms=250)
    assert worker_from("--tag", "C", "--heartbeat-interval-ms=300").worker_tags == ("C",)
    monkeypatch.setenv("ZMQDATA_FAULT_TOLERANT_MODE", "1")
    monkeypatch.setenv("ZMQDATA_GC_DYNAMIC_SHARDING_JOBS", "0")
    parser = commands.dispatcher_arguments("x")
    chosen = parser.parse_args(["--no-fault-tolerant", "--gc-dynamic-sharding-jobs"])
    assert options.chosen_settings(DispatcherConfig, chosen) == DispatcherConfig()


def test_every_option_of_the_commands_has_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options outside the configuration (processes, log level, status) have variables
    too.
    """
    for name, text in {
        "PROCESSES": "3",
        "LOG_LEVEL": "Debug",
        "TIMEOUT": "2",
        "JSON": "true",
        "WORKER": "a:1",
    }.items():
        monkeypatch.setenv(f"ZMQDATA_{name}", text)
    nothing = argparse.Namespace()
    assert options.chosen_settings(ProcessSettings, nothing).processes == "3"
    assert options.chosen_settings(LogSettings, nothing).log_level == "debug"
    found = options.chosen_settings(asking.StatusSettings, nothing)
    assert (found.timeout, found.json, found.worker) == (2.0, True, "a:1")


@pytest.mark.parametrize(
    ("command", "operands"),
    [
        ("status", []),
        ("doctor", []),
        ("drain", ["worker"]),
        ("audit", ["job"]),
        ("replay", ["1", "2"]),
    ],
)
def test_every_command_that_asks_a_dispatcher_names_it_alike(
    command: str,
    operands: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The commands take --dispatcher, else ZMQDATA_DISPATCHER. A wrong address shows
    which of the two was read.
    """
    monkeypatch.setenv("ZMQDATA_DISPATCHER", "tcp://of-the-environment")
    for options_given, read in (
        ([], "of-the-environment"),
        (["--dispatcher", "tcp://of-the-option"], "of-the-option"),
    ):
        assert commands.main([command, *operands, *options_given]) == 2
        assert f"'{read}'" in capsys.readouterr().err


def test_variables_that_are_misspelt_are_found() -> None:
    """A misspelt variable is reported with the correct name; foreign variables are
    ignored.
    """
    environment = [
        "ZMQDATA_WORKER_TIMOUT_MS",
        "ZMQDATA_PORT",
        "ZMQDATA_CHAINS",
        "ZMQ_DATA_PORTS",
        "HOME",
    ]
    assert commands.misspelt(environment) == [
        ("ZMQDATA_WORKER_TIMOUT_MS", "ZMQDATA_WORKER_TIMEOUT_MS")
    ]


WRONG_ARGUMENTS: list[tuple[list[str], str]] = [
    (
        ["worker", "--dispatcher", HERE, "--processes", "0"],
        "expected a number from 1 up, or auto, got '0'",
    ),
    (
        ["worker", "--dispatcher", HERE, "--processes", "1000000"],
        "at most 1000 processes, got 1000000: more processes than",
    ),
    (["worker", "--dispatcher", HERE, "--processes", "many"], "got 'many'"),
    (
        ["worker", "--dispatcher", HERE, "--memory-limit", "much"],
        "such as 2GiB, 512MiB or 2147483648, got 'much'",
    ),
    (
        ["worker", "--dispatcher", HERE, "--user", "nobody-here"],
        "there is no user 'nobody-here' on this machine",
    ),
    (
        ["worker", "--dispatcher", HERE, "--max-tasks", "-1"],
        "`max_tasks` must be at least 0, got -1",
    ),
    (["worker", "--dispatcher", HERE, "--data-ports", "9-1"], "such as 7000-7100"),
    (["worker", "--dispatcher", HERE, "--nonsense"], "unrecognized arguments: --nonsense"),
    (["worker", "--dispatcher", HERE, "--tag", ""], "Worker tags cannot be empty."),
    (
        ["worker", "--dispatcher", HERE, "--port", "65536"],
        "argument --port: `port` must be between 0 and 65535",
    ),
    (["worker", "--dispatcher", HERE, "--advertise", "a:b:c"], "Malformed address 'a:b:c'"),
    (
        ["worker", "--dispatcher", HERE, "--processes", "2", "--advertise", "gate:7000"],
        "2 processes cannot all be announced as 'gate:7000'; write 'gate:%port%'",
    ),
    (
        ["worker", "--dispatcher", ""],
        "where is the dispatcher? Give --dispatcher tcp://HOST:PORT",
    ),
    (
        ["worker", "--dispatcher", HERE, "--host", ""],
        "argument --host: `host` must not be empty",
    ),
    (
        ["worker", "--dispatcher", HERE, "--log-level", "loud"],
        "`log_level` must be one of 'debug'",
    ),
    (
        ["worker", "--dispatcher", HERE, "--host", "no-such-host.invalid"],
        "Unknown host 'no-such-host.invalid'",
    ),
    (
        ["worker", "--dispatcher", "tcp://no-such-host.invalid:1"],
        "Unknown host 'no-such-host.invalid'",
    ),
    (
        ["worker", "--dispatcher", "grp://a:1"],
        "No credentials factory has been registered for protocol grp",
    ),
    (["dispatcher", "--temporary-work-dir"], "needs `--exit-with-parent` and `--work-dir`"),
    (["worker", "--dispatcher", "a://b://c"], "multiple '://'"),
    (
        ["worker", "--dispatcher", HERE, "--processes", "2", "--data-ports", "7000-7000"],
        "do not suffice",
    ),
    (
        ["worker"],
        "where is the dispatcher? Give --dispatcher tcp://HOST:PORT, or file:FILE",
    ),
    (["dispatcher", "--port", "http"], "argument --port: expected a whole number, got 'http'"),
    (["dispatcher", "--worker-address", ""], "`worker_addresses` must not have empty entries"),
    (
        ["dispatcher", "--work-dir", ""],
        "`work_dir` must not be empty; leave it out, or set it to DIR",
    ),
    (["dispatcher", "--host", "no-such-host.invalid"], "Unknown host 'no-such-host.invalid'"),
    (
        ["dispatcher", "--fault-tolerant"],
        "Cannot enable fault tolerant mode without configuring a work dir",
    ),
    (["status"], "which dispatcher?"),
    (["status", "--dispatcher", "tcp://no-such-host.invalid:1"], "Unknown host"),
    (
        ["status", "--dispatcher", HERE, "--timeout", "nan"],
        "positive number of seconds, got nan",
    ),
    (["status", "--dispatcher", HERE, "--timeout", "-1"], "positive number of seconds, got -1"),
    (["top", "--dispatcher", HERE, "--interval", "1e400"], "at most 2147483, got inf"),
    (["top", "--dispatcher", HERE, "--interval", "1e30"], "at most 2147483, got 1e+30"),
    (
        ["top", "--once", "--dispatcher", HERE, "--expect", "FAST"],
        "--expect is 'FAST', and must be one of INPUT-BOUND, COMPUTE-BOUND, STRAGGLER, LINK-BOUND",
    ),
    (["top", "--once", "--dispatcher", HERE, "--expect", "UNKNOWN"], "must be one of INPUT-BOUND"),
    (["top", "--dispatcher", HERE, "--expect", "COMPUTE-BOUND"], "give --once to zmqdata top"),
    (["status", "--watch", "--dispatcher", HERE, "--expect", "STRAGGLER"], "give --once"),
    (["status", "--worker", HERE, "--expect", "COMPUTE-BOUND"], "Leave out --worker"),
    (["status", "--dispatcher", HERE, "--job", "train"], "--job is given without --expect"),
    (["report", "x.html", "--dispatcher", HERE, "--seconds", "inf"], "from 0 to 2147483, got inf"),
    (["nonsense"], "invalid choice: 'nonsense'"),
    ([], "required: command"),
]

WRONG_VARIABLES = [
    (
        "dispatcher",
        "ZMQDATA_PORT",
        "http",
        "ZMQDATA_PORT=http is wrong: expected a whole number",
    ),
    (
        "dispatcher",
        "ZMQDATA_LOG_LEVEL",
        "loud",
        "ZMQDATA_LOG_LEVEL=loud is wrong: `log_level` must be one of",
    ),
    ("worker", "ZMQDATA_PROCESSES", "many", "expected a number from 1 up, or auto, got 'many'"),
    (
        "worker",
        "ZMQDATA_DATA_PORTS",
        "9-1",
        "ZMQDATA_DATA_PORTS=9-1 is wrong: expected a range of ports",
    ),
    (
        "status",
        "ZMQDATA_TIMEOUT",
        "soon",
        "ZMQDATA_TIMEOUT=soon is wrong: expected a number, got 'soon'",
    ),
]


@pytest.fixture
def run_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[Sequence[str]], tuple[int, str, str]]]:
    """Return a function that runs a command in this process, without the settings of
    its environment. It returns the exit code and both outputs.
    """
    made: list[StopSignals] = []

    def signals(waking: tuple[signal.Signals, ...]) -> StopSignals:
        made.append(StopSignals(waking))
        return made[-1]

    def run(arguments: Sequence[str]) -> tuple[int, str, str]:
        try:
            code = commands.main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return (code, *capsys.readouterr())

    monkeypatch.setattr(commands, "StopSignals", signals)
    for name in [name for name in os.environ if name.startswith("ZMQDATA_")]:
        monkeypatch.delenv(name)
    yield run
    for one in made:
        one.close()


def in_a_process(arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[int, str, str]:
    """Run a command in a process with exactly this environment, and return its exit
    code and both outputs.
    """
    program = f"import sys; from zmqdata.cli.commands import main; sys.exit(main({arguments!r}))"
    asked = [sys.executable, "-c", program]
    ended = subprocess.run(asked, capture_output=True, text=True, timeout=30, env=environment)
    return ended.returncode, ended.stdout, ended.stderr


def test_a_missing_package_is_one_line(
    run_command: Callable[[Sequence[str]], tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without prometheus-client a port for metrics is refused with what to install."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "prometheus_client" else found(name, *rest),
    )
    code, _, told = run_command(["dispatcher", "--metrics-port", "0"])
    assert code == 2
    assert "pip install 'zmqdata[metrics]'" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(("arguments", "text"), WRONG_ARGUMENTS)
def test_arguments_that_cannot_work_are_one_line(
    run_command: Callable[[Sequence[str]], tuple[int, str, str]], arguments: list[str], text: str
) -> None:
    """A bad argument returns 2 and prints a line that begins with the command's
    name.
    """
    code, output, errors = run_command(arguments)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert text in errors
    assert errors.startswith("zmqdata")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [WRONG_ARGUMENTS[0], *(full(*one) for one in WRONG_ARGUMENTS[1:])],
)
@pytest.mark.realprocess
def test_a_process_ends_with_one_line(arguments: list[str], text: str) -> None:
    """A process with a bad argument exits with 2 and prints the line alone, without log
    records.
    """
    code, output, errors = in_a_process(arguments, {})
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert text in errors
    assert errors.startswith("zmqdata")


@pytest.mark.parametrize(("command", "variable", "text", "expected"), WRONG_VARIABLES)
def test_a_wrong_environment_is_one_line(
    run_command: Callable[[Sequence[str]], tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    variable: str,
    text: str,
    expected: str,
) -> None:
    """An invalid variable returns 2 and prints a line that names it."""
    monkeypatch.setenv("ZMQDATA_DISPATCHER", HERE)
    monkeypatch.setenv(variable, text)
    code, output, errors = run_command([command])
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert expected in errors


@pytest.mark.parametrize(
    ("command", "variable", "text", "expected"),
    [WRONG_VARIABLES[0], *(full(*one) for one in WRONG_VARIABLES[1:])],
)
@pytest.mark.realprocess
def test_a_process_in_a_wrong_environment_ends_with_one_line(
    command: str, variable: str, text: str, expected: str
) -> None:
    """A process with an invalid variable exits with 2 and prints the line alone."""
    environment = {"ZMQDATA_DISPATCHER": HERE, variable: text}
    code, output, errors = in_a_process([command], environment)
    assert (code, output, errors.count("\n")) == (2, "", 1)
    assert expected in errors


@pytest.mark.realprocess
def test_a_supervisor_imports_next_to_nothing() -> None:
    """The supervisor command loads neither numpy nor ZeroMQ nor dill."""
    heavy = ["numpy", "zmq", "dill", "msgspec", "optree", "rich", "asyncio"]
    program = f"import sys, zmqdata.worker.__main__; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout.strip() == "[]"


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the installed version and exits with 0."""
    with pytest.raises(SystemExit) as ended:
        commands.main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out.strip()
