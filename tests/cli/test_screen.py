"""Tests of the picture that ``zmqdata top`` draws, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from zmqdata.cli.phrases import troubles
from zmqdata.cli.screen import node_rows, screen, shares

NODES = [
    {"place": "", "node": "batch(5)", "seconds": 0.1, "share": 0.02, "threads": 1},
    {
        "place": "0",
        "node": "map(decode) at train.py:31",
        "seconds": 9.4,
        "share": 0.94,
        "threads": 4,
    },
    {"place": "0.0", "node": "shuffle(100)", "seconds": 0.2, "share": 0.03, "threads": 1},
    {"place": "+packing", "node": "packing elements", "seconds": 0.1, "share": 0.01, "threads": 1},
]
ADVICE = (
    "map(decode) at train.py:31 takes 94 % of the workers' time; with 2 workers the loop waits "
    "61 % of each step; 6 would feed it."
)


def worker(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "address": f"tcp://10.0.0.{number % 250}:{40000 + number}",
        "tags": [],
        "tasks": 1,
        "elements_per_second": 9.0 + number / 1000,
        "bytes_per_second": 1_000_000,
        "making_share": 0.9,
        "waiting_for_readers_share": 0.08,
        "waiting_for_splits_share": 0.02,
        "link_busy_share": 0.4,
        "silent_seconds": 0.2,
        "connected": True,
        "draining": False,
        **changes,
    }


def reader(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "client": f"client {number}",
        "run": "torchrun:7",
        "member": str(number),
        "process": f"trainer:{number}:a",
        "how": "begun",
        "given_back": 0,
        "consumer": number,
        "wait_share": 0.61,
        "wait_ms": 19.0,
        "step_ms": 12.0,
        "elements_per_second": 31.0,
        "first_element_seconds": 0.4,
        "elements": 1000,
        "waited_seconds": 9.0,
        "buffered": 2,
        **changes,
    }


def job(name: str = "train", iteration: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "job": name,
        "iteration": iteration,
        "incarnation": 1,
        "clients": 2,
        "readers": [reader(0), reader(1)],
        "delivered": 4321,
        "splits": [{"handed_out": 1000, "count": 20000, "unit": "files"}],
        "finished": False,
        "failure": "",
        "unit": "batches",
        "elements_per_second": 31.0,
        "rows_per_second": 992.0,
        "verdict": "INPUT-BOUND",
        "advice": ADVICE,
        **changes,
    }


def task(number: int, iteration: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "task": 4000 + number,
        "iteration": iteration,
        "attempt": 1,
        "worker": "w",
        "address": f"tcp://10.0.0.{number}:4",
        "produced": 100,
        "delivered": 90,
        "total": None,
        "removed": False,
        "stalled": False,
        "waits_for_readers": False,
        "seconds_without_progress": 0.0,
        "busy_seconds": 0.0,
        "busy_with": "",
        "making_share": 0.9,
        "elements_per_second": 9.0,
        "nodes": NODES,
        **changes,
    }


def status(**changes: Any) -> dict[str, Any]:
    return {
        "dispatcher": "tcp://10.0.0.1:5050",
        "workers": [worker(0), worker(1)],
        "jobs": [job()],
        "tasks": [task(0), task(1)],
        "rejected": {},
        **changes,
    }


def drawn(
    found: dict[str, Any], width: int = 80, height: int | None = 24, note: str = ""
) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(screen(found, width, height, "12:30:05", note))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_verdict_comes_first() -> None:
    """Below the head come the verdict of a job, its advice, its rates and its tree."""
    lines = drawn(status())
    assert lines[:7] == [
        "zmqdata top  tcp://10.0.0.1:5050  2 workers  1 job  12:30:05",
        "",
        "train  INPUT-BOUND",
        "map(decode) at train.py:31 takes 94 % of the workers' time; with 2 workers the",
        "loop waits 61 % of each step; 6 would feed it.",
        "31 batches/s (992 rows/s); 4,321 batches delivered; splits handed out: 1,000 of",
        "20,000 files",
    ]
    assert [" ".join(line.split()) for line in lines[8:13]] == [
        "time of the workers share threads",
        "batch(5) 2 %",
        "└ map(decode) at train.py:31 94 % ███████████████████ 4",
        "└ shuffle(100) 3 % █",
        "packing elements 1 %",
    ]


def test_rates_and_waits() -> None:
    """Each worker and each training loop has a line with its rates and waits, in the
    unit of the job.
    """
    lines = [" ".join(line.split()) for line in drawn(status(), 120)]
    assert "worker tasks batches/s making for readers for splits link busy bytes" in lines
    assert "10.0.0.0:40000 1 9 90 % 8 % 2 % 40 % 1 MB/s" in lines
    assert any(line.startswith("consumer 0 61 % 12 31 2 0.4 1,000") for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 16), (200, 60), (40, 8), (80, 3)])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_it_fits(width: int, height: int, count: int) -> None:
    """No line is longer than the window and no picture is higher, however much there is
    to show.
    """
    many = [job(f"job {number}", number) for number in range(min(count, 20))]
    found = status(
        workers=[worker(number) for number in range(count)],
        jobs=many,
        tasks=[task(number, number % 20) for number in range(count)],
    )
    lines = drawn(found, width, height, note="No answer." if count else "")
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_of_many_workers_the_busiest_are_shown() -> None:
    """Workers that are not well come first, then the busiest and, among these, the
    slowest; the rest is counted.
    """
    workers = [worker(number, making_share=number / 1000) for number in range(1000)]
    workers[3]["connected"] = False
    lines = drawn(status(workers=workers))
    (at,) = [number for number, line in enumerate(lines) if line.startswith("worker ")]
    assert lines[at + 1].startswith("10.0.0.3:40003")
    assert "no connection" in lines[at + 1]
    assert lines[at + 2].startswith("10.0.0.246:40996"), "of 996 to 999, the slowest"
    shown = [line for line in lines[at + 1 :] if line.startswith("10.0.0.")]
    assert f"and {1000 - len(shown):,} more" in lines


def test_a_slow_rank_is_marked() -> None:
    """A loop whose step takes much longer than those of the others says so, and comes
    first.
    """
    readers = [reader(0), reader(1), reader(2, step_ms=30.0, wait_share=0.0)]
    lines = drawn(status(jobs=[job(readers=readers)]))
    (at,) = [number for number, line in enumerate(lines) if line.startswith("training loop")]
    assert lines[at + 1].startswith("consumer 2")
    assert "2.5 x the others' step" in lines[at + 1]
    assert "others" not in "".join(lines[at + 2 :])


def test_the_tree_of_a_pipeline() -> None:
    """A node is as deep as it has known nodes that read it. Its share is that of the
    time in which workers make elements; the share of a task that does more counts more.
    """
    inner = {**NODES[2], "place": "0.1.0"}
    idle = task(1, making_share=0.1, nodes=[{**NODES[1], "share": 0.14}])
    rows = node_rows([task(0, nodes=[NODES[1], inner]), idle, task(2, total=5)])
    assert [row["node"] for row in rows] == ["map(decode) at train.py:31", "└ shuffle(100)"]
    assert rows[0]["share"] == pytest.approx((0.94 * 0.9 + 0.14 * 0.1) / 1.0)


def test_queues() -> None:
    """A node that runs ahead shows how many elements wait behind it, in all tasks
    together.
    """
    node = {**NODES[1], "queue": [3, 8]}
    lines = drawn(status(tasks=[task(0, nodes=[node]), task(1, nodes=[node])]))
    (line,) = [line for line in lines if "at train.py:31" in line and "█" in line]
    assert line.endswith("6 of 16")


def test_a_tree_without_room_keeps_the_largest_nodes() -> None:
    """The nodes that take most of the time remain of a large tree, in their order."""
    nodes = [
        {"place": ".".join("0" * depth), "node": f"map(f{depth})", "share": share, "threads": 1}
        for depth, share in enumerate([0.01] * 10 + [0.6] + [0.01] * 10 + [0.2])
    ]
    lines = drawn(status(tasks=[task(0, nodes=nodes)]))
    shown = [line for line in lines if "map(f" in line]
    assert any("map(f10)" in line for line in shown)
    assert any("map(f21)" in line for line in shown)
    assert len(shown) < 22


def test_troubles() -> None:
    """A job has a line on what is wrong with it."""
    tasks = [task(0, stalled=True), task(1, worker=""), task(2, worker="", total=3)]
    wrong = job(missing_consumers=[3], poisoned=["x"], measures={"redone": 7, "left_out": 2})
    assert troubles(wrong, tasks) == (
        "1 task without progress; 1 task between hosts; missing consumers: 3; 1 element left out "
        "as poison; 2 elements skipped; 7 elements made again"
    )
    assert troubles(job(), [task(0)]) == ""
    assert any("7 elements made again" in line for line in drawn(status(jobs=[wrong]), 160))


def test_a_server_that_does_not_answer() -> None:
    """The note stands above what was last known."""
    lines = drawn(status(), note="No answer for 12 s.")
    assert lines[1] == "No answer for 12 s."
    assert any("INPUT-BOUND" in line for line in lines)


def test_of_many_jobs_those_that_wait_most_are_shown() -> None:
    """A failed job comes first, then the jobs whose loops wait most. The others are
    counted.
    """
    jobs = [
        job(f"job {number}", number, readers=[reader(0, wait_share=number / 100)])
        for number in range(20)
    ]
    jobs[5]["failure"] = "ValueError: x"
    lines = drawn(status(jobs=jobs, tasks=[]))
    names = [line for line in lines if line.startswith("job ")]
    assert names[0] == "job 5  FAILED"
    assert names[1] == "job 19  INPUT-BOUND"
    assert f"and {20 - len(names)} more jobs" in lines


def test_workers_and_loops_have_room_beside_many_jobs() -> None:
    """Workers and training loops keep their lines, however many pipelines there are."""
    jobs = [job(f"job {number}", number) for number in range(30)]
    found = status(
        jobs=jobs,
        workers=[worker(number) for number in range(100)],
        tasks=[task(number, number) for number in range(30)],
    )
    lines = drawn(found, 200, 60)
    assert sum(line.startswith("10.0.0.") for line in lines) >= 8
    assert sum(line.startswith("consumer") for line in lines) >= 8


def test_a_tall_window_shows_tasks() -> None:
    """A tall window has a line for each task, those that are not well first."""
    tasks = [task(0), task(1, stalled=True, seconds_without_progress=75.0)]
    assert not any(line.startswith("4000") for line in drawn(status(tasks=tasks)))
    lines = drawn(status(tasks=tasks), 200, 60)
    (at,) = [number for number, line in enumerate(lines) if line.startswith("task")]
    assert "no progress for 75 s" in lines[at + 1]
    assert lines[at + 2].startswith("4000")


def test_no_text_of_others_reaches_the_terminal_as_it_is() -> None:
    """Names and labels from peers are neither control codes nor markup, and wide
    characters break no line.
    """
    evil = "\x1b[2J\x9b31m\u202e[red]x"
    names = job(evil, advice=evil, failure="", readers=[reader(0, consumer=None, member=evil)])
    nodes = [{**NODES[0], "node": "解碼" * 60}, {**NODES[1], "node": evil}]
    found = status(jobs=[names], workers=[worker(0, address=evil)], tasks=[task(0, nodes=nodes)])
    lines = drawn({**found, "dispatcher": evil})
    assert all(one.isprintable() for line in lines for one in line)
    assert sum("[red]x" in line for line in lines) >= 5
    assert len(lines) <= 24


def test_lines_are_shared() -> None:
    """Parts that are small get all that they need, and large ones the same."""
    assert shares(30, [5, 5, 5]) == [5, 5, 5]
    assert shares(12, [100, 100, 0]) == [6, 6, 0]
    assert shares(2, [5]) == [0]
    assert sum(shares(23, [9, 50, 7, 80])) == 23


def test_a_worker_shows_its_tasks() -> None:
    """The picture of a worker is its table of tasks."""
    lines = drawn({"tasks": [], "rejected": {}}, note="No answer.")
    assert lines[0] == "No answer."
    assert any("0 tasks" in line for line in lines)
