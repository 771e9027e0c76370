"""Tests of the options of the worker's command that concern its processes."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata.config.keys import WITHOUT_KEY
from zmqdata.config.settings import from_environment
from zmqdata.config.worker import WorkerConfig
from zmqdata.worker.processes.limits import Limits
from zmqdata.worker.processes.options import ProcessSettings, count_of_processes, start_warnings


def test_by_default_nothing_is_limited() -> None:
    """A worker has a single process with unchanged rights, all memory and any number of
    tasks by default.
    """
    settings = ProcessSettings()
    assert (settings.count(), settings.account(), settings.limits(0)) == (1, None, Limits())


def test_auto_is_one_process_for_each_core() -> None:
    """The option --processes takes a number or "auto"."""
    assert count_of_processes("auto") >= 1
    assert [count_of_processes(text) for text in ("3", "1000")] == [3, 1000]


def test_everything_may_be_said_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option has an environment variable, and a field in the limits of a child."""
    told = {"PROCESSES": "2", "USER": "54321", "MEMORY_LIMIT": "1GiB", "MAX_TASKS": "8"}
    for name, text in told.items():
        monkeypatch.setenv(f"ZMQDATA_{name}", text)
    settings = from_environment(ProcessSettings, {})
    account = settings.account()
    assert account is not None
    assert account.user == 54321
    assert [settings.limits(index) for index in range(2)] == [
        Limits(1 << 30, 8, True),
        Limits(1 << 30, 6, True),
    ]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"processes": "0"}, "expected a number from 1 up, or auto, got '0'"),
        ({"memory_limit": "1MB"}, "`memory_limit`: a process needs"),
        ({"user": "no-such-user"}, "`user`: there is no user 'no-such-user'"),
        ({"user": ""}, "`user` must not be empty"),
        ({"max_tasks": -1}, "`max_tasks` must be at least 0, got -1"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_said(given: dict[str, Any], text: str) -> None:
    """An invalid option is refused before any process starts."""
    with pytest.raises(ValueError, match=text):
        ProcessSettings(**given)


ELSEWHERE = "tcp://192.0.2.77:5050"
"""An address that is reserved for documentation, and so is no machine."""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.5", "::1"])
def test_a_worker_that_others_cannot_reach_says_so(host: str) -> None:
    """A worker of a remote dispatcher that listens on the loopback alone names both,
    and the remedy.
    """
    [text] = start_warnings(WorkerConfig(ELSEWHERE, host=host))
    assert f"listens on {host} alone, and the dispatcher at {ELSEWHERE} is" in text
    assert "`--host 0.0.0.0`" in text


@pytest.mark.parametrize(
    "config",
    [
        WorkerConfig("tcp://127.0.0.1:5050"),
        WorkerConfig("tcp://localhost:5050"),
        WorkerConfig("ipc:///tmp/dispatcher"),
        WorkerConfig(ELSEWHERE, host="0.0.0.0"),
        WorkerConfig(ELSEWHERE, worker_address="gateway:%port%"),
    ],
    ids=str,
)
def test_a_worker_that_others_reach_says_nothing(config: WorkerConfig) -> None:
    """A dispatcher of this machine, every interface, and an announced gateway need no
    warning.
    """
    assert list(start_warnings(config)) == []


def test_a_worker_without_a_key_says_so() -> None:
    """The warning about a missing key comes once, before the processes."""
    assert list(start_warnings(WorkerConfig("127.0.0.1:5050", insecure=True))) == [WITHOUT_KEY]
