"""Tests of the output of ``zmqdata status --worker`` and of ``zmqdata audit``."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType

from zmqdata.cli.tables import audit_tables, worker_tables
from zmqdata.cli.top import ANY_WIDTH

TASK = {
    "task": 4000,
    "attempt": 2,
    "dataset_id": "1000",
    "processing_mode": "parallel_epochs",
    "state": "running",
    "produced": 12345,
    "clients": ["a", "b"],
    "left_out": 0,
    "elements_per_second": 9.5,
    "making_share": 0.754,
    "compressed": "lz4, 3.1 times smaller",
}


def printed(tables: list[RenderableType], width: int = 100) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        for table in tables:
            console.print(table)
    return captured.get()


def rows(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_tasks_of_one_worker() -> None:
    """A worker's own status is a table of its tasks with their states and rates."""
    tasks = [
        {**TASK, "left_out": 4567},
        {**TASK, "task": 4001, "state": "ended"},
        {**TASK, "task": 4002, "state": "starting"},
        {**TASK, "task": 4003, "state": "waiting_for_readers"},
    ]
    found = rows(printed(worker_tables({"tasks": tasks, "rejected": {}}), 200))
    assert found[0] == "4 tasks"
    shown = "1000 parallel_epochs 2 12,345 9.5 75 % lz4, 3.1 times smaller"
    assert f"4000 2 {shown} 4,567 running" in found
    assert f"4001 2 {shown} 0 ended" in found
    assert any(line.endswith("starting") for line in found)
    assert any(line.endswith("waiting_for_readers") for line in found)


def test_a_rate_is_zero_only_if_nothing_comes() -> None:
    """A rate that is low is shown as low, without an exponent."""
    rates = {0.0: "0", 1e-5: "< 0.001", 0.0123: "0.0123", 12.34: "12.3", 12345.6: "12,346"}
    for rate, shown in rates.items():
        tasks = [{**TASK, "elements_per_second": rate}]
        assert f" {shown} " in printed(worker_tables({"tasks": tasks, "rejected": {}}), 200)


def test_dropped_messages_are_shown_when_there_are_any() -> None:
    """Dropped messages have a table of their own, which is omitted when empty."""
    assert "dropped" not in printed(worker_tables({"tasks": [], "rejected": {}}))
    rejected = {"the worker's socket: not a zmqdata message": 3}
    assert "not a zmqdata message" in printed(worker_tables({"tasks": [], "rejected": rejected}))


def test_an_id_is_whole_in_a_pipe() -> None:
    """No cell is wrapped if the output has no width of its own, however long it is."""
    task = {**TASK, "dataset_id": "9" * 120, "compressed": "x" * 120}
    text = printed(worker_tables({"tasks": [task], "rejected": {}}), ANY_WIDTH)
    assert "9" * 120 in text
    assert "x" * 120 in text


AUDIT = {
    "job": "train",
    "repetition": 3,
    "finished": False,
    "failure": None,
    "splits": {"handed_out": 4567, "finished": 4000, "rehosted": 12},
    "tasks": {"count": 5, "finished": 2, "rehosted": 1, "attempts": 6},
    "elements": {
        "delivered": 123456,
        "duplicates_dropped": 7,
        "given_back": 9,
        "left_out": 3,
        "dropped": 5,
    },
    "clients": [{"client": "0123456789abcdef", "delivered": 1234}],
    "consumers": [10, 11],
}


def test_what_became_of_a_job() -> None:
    """Each repetition of a job has a table of state, counts, clients and consumers."""
    ended, failed = (
        {**AUDIT, "finished": True},
        {**AUDIT, "failure": {"error": "ValueError"}, "finished": True},
    )
    text = printed([*audit_tables([AUDIT, ended, failed])], 80)
    for state in ("goes on", "finished", "failed"):
        assert f"job train, repetition 3: {state}" in text
    assert set(rows(text)) >= {
        "splits handed out, finished 4,567, 4,000",
        "tasks, finished 5, 2",
        "tasks re-hosted, their splits 1, 12",
        "attempts of all tasks 6",
        "elements delivered 123,456",
        "duplicates dropped 7",
        "elements left out 8",
        "to client 0123456789ab 1,234",
        "to consumer 0 10",
        "to consumer 1 11",
    }


EVIL = "\x1b]0;OWNED\x07\x1b[2J\x9b31m\u202e[red]x"
SHOWN = "?]0;OWNED??[2J?31m?[red]x"


def test_no_text_of_others_reaches_the_terminal_as_it_is() -> None:
    """Names and states from peers are neither control codes nor markup."""
    names = ("dataset_id", "processing_mode", "state", "compressed")
    task: dict[str, Any] = {**TASK, **dict.fromkeys(names, EVIL)}
    audit = {**AUDIT, "job": EVIL, "clients": [{"client": EVIL, "delivered": 1}]}
    tables = worker_tables({"tasks": [task], "rejected": {EVIL: 1}})
    text = printed([*tables, *audit_tables([audit])], 300)
    assert not [one for one in text if not one.isprintable() and one != "\n"]
    assert text.count(SHOWN) == 6
    assert f"job {SHOWN}," in text
