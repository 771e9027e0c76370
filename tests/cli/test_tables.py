"""Tests of the output of ``zmqdata status``."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from zmqdata.cli.tables import audit_tables, status_tables
from zmqdata.messages import MemoryUse

WORKER = {
    "address": "tcp://10.0.0.1:4",
    "tags": ["GPU"],
    "tasks": 2,
    "elements_per_second": 123456.7,
}
JOB = {
    "job": "train",
    "processing_mode": "DYNAMIC",
    "incarnation": 5,
    "repetition": 1,
    "clients": 2,
    "readers": [],
    "delivered": 4321,
}
ALIVE = {**WORKER, "connected": True, "draining": False, "silent_seconds": 0.3}
TASK = {
    "task": 4000,
    "address": "tcp://10.0.0.1:4",
    "worker": "w",
    "attempt": 2,
    "produced": 12345,
    "delivered": 99,
}
QUIET = {
    "total": None,
    "removed": False,
    "stalled": False,
    "waits_for_readers": False,
    "seconds_without_progress": 0.0,
    "busy_seconds": 0.0,
}


def printed(width: int = 80, **found: Any) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        for table in status_tables(
            {"workers": [], "jobs": [], "tasks": [], "rejected": {}, **found}
        ):
            console.print(table)
    return captured.get()


def test_workers() -> None:
    """The table shows a worker with its rate and its problems."""
    alive = {**WORKER, "connected": True, "draining": False, "silent_seconds": 0.3}
    rows = [
        alive,
        {**alive, "silent_seconds": 12.0},
        {**alive, "connected": False},
        {**alive, "draining": True},
        {**alive, "elements_per_second": 0.0173},
    ]
    text = printed(workers=rows)
    for expected in (
        "5 workers",
        "0.0173",
        "tcp://10.0.0.1:4",
        "GPU",
        "123,457",
        "alive",
        "silent for 12 s",
        "no connection",
    ):
        assert expected in text
    assert "leaves" in text


def test_jobs() -> None:
    """The table shows a job's progress in each source. An endless or unlisted source
    has no count.
    """
    splits = [
        {"handed_out": 1000, "count": 20000, "unit": "rows"},
        {"handed_out": 5, "count": None},
    ]
    text = printed(100, jobs=[{**JOB, "splits": splits, "finished": True}])
    for expected in (
        "1 job ",
        "train",
        "DYNAMIC",
        "4,321",
        "1,000 of 20,000 rows, 5 of ? splits",
        "yes",
    ):
        assert expected in text


def test_the_memory_of_workers() -> None:
    """The table shows each worker's resident size, its limited memory beside the limit,
    and how often its process was recycled; nothing of it where it is unknown.
    """
    use = MemoryUse(rss=300 << 20, counted=460 << 20, limit=512 << 20, recycles=3).shown()
    text = printed(120, workers=[{**ALIVE, **use}, {**ALIVE, **MemoryUse().shown()}])
    for expected in ("rss", "300 MiB", "460 MiB of 512 MiB", "recycles", " 3 "):
        assert expected in text
    text = printed(120, workers=[{**ALIVE, **MemoryUse().shown()}])
    assert "rss" not in text
    assert "recycles" not in text


def test_a_service_without_jobs_shows_its_workers() -> None:
    """Without a job there are no headings of readers and tasks, and one worker is not
    several.
    """
    text = printed(100, workers=[ALIVE])
    assert "1 worker " in text
    assert "0 jobs" in text
    assert "readers" not in text
    assert "tasks  " not in text.partition("0 jobs")[2]


def test_a_rate_is_zero_only_if_nothing_comes() -> None:
    """A rate that is low is shown as low, without an exponent."""
    rates = {0.0: "0", 1e-5: "< 0.001", 0.0123: "0.0123", 12.34: "12.3", 12345.6: "12,346"}
    for rate, shown in rates.items():
        assert f" {shown} " in printed(100, workers=[{**ALIVE, "elements_per_second": rate}])


def test_tasks() -> None:
    """The table shows a task with its state."""
    running = {**TASK, **QUIET}
    tasks = [
        running,
        {**running, "total": 5},
        {**running, "removed": True},
        {**running, "worker": ""},
        {**running, "stalled": True, "seconds_without_progress": 75.0},
        {**running, "waits_for_readers": True},
        {**running, "busy_seconds": 80.0, "busy_with": "Element 3 that came to map(f)"},
    ]
    text = printed(100, tasks=tasks)
    for expected in ("running", "ended", "lost", "between hosts", "no progress for 75 s", "12,345"):
        assert expected in text
    assert "waits for its readers" in text
    assert "for 80 s at element 3" in text


def test_tasks_of_one_worker() -> None:
    """A worker's own status is a table of its tasks with their state."""
    task = {
        **TASK,
        "dataset_id": "1000",
        "processing_mode": "OFF",
        "clients": ["a", "b"],
        "started": True,
    }
    tasks = [
        {**task, "total": None, "left_out": 4567},
        {**task, "total": 12345},
        {**task, "total": None, "started": False},
    ]
    console = Console(width=100)
    with console.capture() as captured:
        for table in status_tables({"tasks": tasks, "rejected": {}}):
            console.print(table)
    for expected in ("3 tasks", "1000", "OFF", "12,345", "4,567", "running", "ended", "waiting"):
        assert expected in captured.get()


def test_dropped_messages_are_shown_when_there_are_any() -> None:
    """Dropped messages have a table of their own, which is omitted when empty."""
    assert "dropped" not in printed()
    assert "not a zmqdata message" in printed(
        rejected={"the dispatcher's socket: not a zmqdata message": 3}
    )


def test_a_server_without_a_key_is_warned_of() -> None:
    """The output begins with a warning if the server has no key, and only then."""
    assert "any process that can reach this server" in printed(config={"insecure": True})
    assert "insecure" not in printed(config={"insecure": False})


@pytest.mark.parametrize("width", [60, 80])
def test_addresses_can_be_copied(width: int) -> None:
    """An address stays on a single line, however narrow the terminal."""
    address = "tcp://[fe80:1234:5678:9abc:def0:1234:5678]:65535"
    workers = [
        {
            **WORKER,
            "address": address,
            "tags": ["GPU", "LABORATORY"],
            "connected": False,
            "silent_seconds": 1.0,
        }
    ]
    tasks = [
        {**TASK, **QUIET, "address": address, "stalled": True, "seconds_without_progress": 7500.0}
    ]
    for text in (printed(width, workers=workers), printed(width, tasks=tasks)):
        assert address in text
        assert max(map(len, text.splitlines())) <= width


def test_a_usual_cluster_fits_a_terminal() -> None:
    """Ids, headings and states fit on 80 columns, as empty columns are omitted."""
    places = ["tcp://10.20.30.40:41235", "tcp://10.20.30.41:41236"]
    workers = [
        {**WORKER, "address": one, "tags": [], "connected": False, "silent_seconds": 0.1}
        for one in places
    ]
    tasks = [{**TASK, **QUIET, "task": 2198454400, "address": one} for one in places]
    jobs = [{**JOB, "splits": [{"handed_out": 5, "count": 9}], "finished": False}]
    lines = [
        line.rstrip() for line in printed(workers=workers, tasks=tasks, jobs=jobs).splitlines()
    ]
    assert max(map(len, lines)) <= 80
    found = {" ".join(line.split()) for line in lines}
    assert found >= {
        "address tasks elements/s state",
        "tcp://10.20.30.40:41235 2 123,457 no connection",
        "task worker attempt produced delivered state",
        "2198454400 tcp://10.20.30.41:41236 2 12,345 99 running",
        "train (incarnation 5, repetition 1): UNKNOWN",
        "train DYNAMIC 1 2 4,321 elements 5 of 9 splits no",
    }
    assert any(
        "GPU" in line
        for line in printed(workers=[*workers, {**workers[0], "tags": ["GPU"]}]).splitlines()
    )


def test_no_heading_and_no_number_is_broken_on_a_usual_terminal() -> None:
    """The words of headings and all numbers stay whole on 80 columns, also beside long
    names and large numbers.
    """
    address = "tcp://192.168.101.101:54321"
    reader = {
        "run": "process:trainer-node-1:12345:17000000",
        "member": "0",
        "process": "trainer-node-1:12345:8857484e43c7",
        "how": "continued",
        "given_back": 12,
    }
    job = {
        **JOB,
        "job": "anonymous_8857484e43c78e26",
        "delivered": 12_345_678,
        "splits": [{"handed_out": 123_456, "count": 1_281_167}],
        "finished": False,
        "readers": [reader],
    }
    task = {**TASK, **QUIET, "address": address, "produced": 12_345_678, "delivered": 12_345_678}
    tasks = [task, {**task, "waits_for_readers": True}]
    text = printed(jobs=[job], tasks=tasks, workers=[{**ALIVE, "address": address}])
    headings = (
        "job mode repetition clients delivered handed out finished run rank process came given "
        "back task worker attempt produced state address tags tasks elements/s"
    )
    assert set(headings.split()) <= set(text.split())
    assert text.split().count("12,345,678") == 6
    assert max(map(len, text.splitlines())) <= 80


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
    console = Console(width=80)
    with console.capture() as captured:
        for table in audit_tables([AUDIT, ended, failed]):
            console.print(table)
    text = captured.get()
    for state in ("goes on", "finished", "failed"):
        assert f"job train, repetition 3: {state}" in text
    lines = {" ".join(line.split()) for line in text.splitlines()}
    assert lines >= {
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


def test_readers() -> None:
    """The table shows the run, the rank and the process of each reader, how it came and
    how much it gave back.
    """
    one = {"client": "c", "run": "torchrun:7", "process": "host:9:a"}
    readers = [
        {**one, "member": str(rank), "how": how, "given_back": 1000 * rank}
        for rank, how in enumerate(("begun", "follows"))
    ]
    job = {**JOB, "splits": [], "finished": False, "readers": readers}
    text = printed(jobs=[job], width=100)
    assert "2 readers" in text
    lines = [line.split() for line in text.splitlines() if "torchrun:7" in line]
    assert lines == [
        ["train", "torchrun:7", "0", "host:9:a", "begun", "0"],
        ["train", "torchrun:7", "1", "host:9:a", "follows", "1,000"],
    ]


EVIL = "\x1b]0;OWNED\x07\x1b[2J\x9b31m\u202e[red]x"
SHOWN = "?]0;OWNED??[2J?31m?[red]x"


def test_no_text_of_others_reaches_the_terminal_as_it_is() -> None:
    """Names, addresses, tags and labels from peers are neither control codes nor
    markup.
    """
    worker = {
        **WORKER,
        "address": EVIL,
        "tags": [EVIL],
        "connected": True,
        "draining": False,
        "silent_seconds": 0.0,
    }
    names = ("client", "run", "member", "process", "how")
    reader = {**dict.fromkeys(names, EVIL), "given_back": 0}
    job = {**JOB, "job": EVIL, "processing_mode": EVIL, "splits": [], "finished": False}
    job["readers"] = [reader]
    task = {
        **TASK,
        **QUIET,
        "address": EVIL,
        "busy_seconds": 80.0,
        "busy_with": EVIL,
    }
    console = Console(width=300)
    with console.capture() as captured:
        for table in (
            *status_tables(
                {"workers": [worker], "jobs": [job], "tasks": [task], "rejected": {EVIL: 1}}
            ),
            *audit_tables([{**AUDIT, "job": EVIL, "clients": [{"client": EVIL, "delivered": 1}]}]),
        ):
            console.print(table)
    text = captured.get()
    assert not [one for one in text if not one.isprintable() and one != "\n"]
    assert text.count(SHOWN) == 14
    assert f"job {SHOWN}," in text


def test_the_verdict_comes_first() -> None:
    """The output begins with the verdict on each job, its advice and its rates, in the
    units of the job.
    """
    splits = [{"handed_out": 914, "count": 100_000, "unit": "rows"}]
    verdict = {"verdict": "INPUT-BOUND", "advice": "8 workers would feed it."}
    rates = {"unit": "batches", "elements_per_second": 18.2, "rows_per_second": 91.0}
    job = {**JOB, "splits": splits, "finished": False, **verdict, **rates}
    lines = printed(120, jobs=[job], workers=[ALIVE]).splitlines()
    assert [line.rstrip() for line in lines[:3]] == [
        "train (incarnation 5, repetition 1): INPUT-BOUND",
        "8 workers would feed it.",
        "18.2 batches/s (91 rows/s); 4,321 batches delivered; "
        "splits handed out: 914 of 100,000 rows",
    ]


def test_training_loops() -> None:
    """The table shows how long a training loop waits, its step and its rate. A loop
    that has sent no measures is left out.
    """
    one = {"client": "c", "run": "r", "member": "1", "process": "host:9:a", "how": "begun"}
    measured = {"wait_share": 0.754, "step_ms": 13.489, "elements_per_second": 18.25}
    readers = [
        {**one, "given_back": 0, "elements": 88, "buffered": 2, **measured},
        {**one, "given_back": 0, "elements": 0, "process": "silent"},
    ]
    job = {**JOB, "splits": [], "finished": False, "readers": readers}
    text = printed(100, jobs=[job]).partition("1 training loop")[2]
    (line,) = [line.split() for line in text.splitlines() if "host:9:a" in line]
    assert line == ["train", "rank", "1", "host:9:a", "75", "%", "13.5", "18.2", "2"]
    assert "silent" not in text


def test_what_a_job_is_doing_without_a_verdict() -> None:
    """A job that no loop reads, that is saved, or that has failed or ended says so in
    place of a verdict.
    """
    job = {**JOB, "splits": [], "finished": False}
    for changes, words in (
        ({"failure": "ValueError: x"}, ("FAILED", "ValueError: x")),
        ({"finished": True}, ("FINISHED",)),
        ({"save": "/saved"}, ("SAVING", "/saved")),
        ({"clients": 0}, ("NOT READ",)),
        ({"clients": 0, "verdict": "INPUT-BOUND", "advice": "Wait."}, ("NOT READ",)),
        ({}, ("UNKNOWN",)),
    ):
        text = printed(jobs=[{**job, **changes}])
        assert all(word in text for word in words)
