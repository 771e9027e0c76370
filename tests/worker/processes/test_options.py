"""Tests of the options of the worker's command that concern its processes."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata.config.settings import from_environment
from zmqdata.worker.processes.limits import Limits
from zmqdata.worker.processes.options import ProcessSettings, count_of_processes


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
