"""Test the report about a drained worker, on scripted answers of a dispatcher."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata.cli.asking import reason_to_stay, tasks_of
from zmqdata.client import admin

OLD, NEW = "tcp://old:1", "tcp://new:1"


def task(
    number: int, address: str, total: int | None = None, delivered: int = 0, removed: bool = False
) -> dict[str, Any]:
    return {
        "task": number,
        "address": address,
        "total": total,
        "delivered": delivered,
        "removed": removed,
    }


def test_a_drain_tells_where_unfinished_tasks_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report counts the drained worker's unfinished tasks by the worker that has
    them now, those that wait for a worker, and the copies that ended.
    """
    before = [task(1, OLD), task(2, OLD), task(3, OLD), task(4, OLD, 9, 5), task(5, NEW)]
    before.append(task(6, OLD, total=9, delivered=9))
    after = [task(1, NEW), task(2, ""), task(3, "", removed=True), task(4, NEW, 9, 5)]
    workers = [{"address": OLD, "state": "draining"}, {"address": NEW, "state": "connected"}]
    answers = iter(
        [
            {"tasks": before, "workers": workers},
            {"tasks": after, "workers": workers},
            {"tasks": [*after, task(5, NEW)], "workers": workers[1:]},
        ]
    )
    monkeypatch.setattr(admin, "status", lambda service, timeout: next(answers))
    monkeypatch.setattr(admin, "ask_dispatcher", lambda *_: m.DrainStarted("request", (OLD,)))
    monkeypatch.setattr(admin, "POLL", 0.0)
    assert admin.drain("tcp://dispatcher:1", OLD) == [
        admin.DrainedWorker(OLD, True, {NEW: 2}, waiting=1, ended=1, others=1)
    ]


def test_a_drain_of_the_last_worker_tells_that_no_other_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The report of a worker that has not left counts the tasks that it still hosts,
    and the other workers that could take them; workers that leave, too, or that are out
    of reach cannot.
    """
    found = {
        "tasks": [task(1, OLD), task(2, OLD), task(3, "")],
        "workers": [
            {"address": OLD, "state": "draining"},
            {"address": NEW, "state": "draining"},
            {"address": "tcp://gone:1", "state": "disconnected"},
        ],
    }
    monkeypatch.setattr(admin, "status", lambda service, timeout: found)
    monkeypatch.setattr(admin, "ask_dispatcher", lambda *_: m.DrainStarted("request", (OLD,)))
    monkeypatch.setattr(admin, "POLL", 0.0)
    (drained,) = admin.drain("tcp://dispatcher:1", OLD, timeout=0.01)
    assert (drained.has_left, drained.staying, drained.others) == (False, 2, 0)
    assert "no other worker is registered that could take its unfinished tasks (2). Start" in (
        reason_to_stay(drained)
    )
    assert "has not handed over 2 tasks yet" in reason_to_stay(replace(drained, others=1))
    assert "See its log" in reason_to_stay(replace(drained, staying=0, others=1))
    assert "for a worker, because no other is registered" in tasks_of(
        admin.DrainedWorker(OLD, True, {}, waiting=2, ended=0)
    )
