"""Tests of the picture that ``zmqdata top`` draws, without a server."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.console import Console

from tests.statuses import (
    DECODE,
    answer,
    every_condition,
    job,
    operation,
    reader,
    status,
    task,
    worker,
)
from zmqdata.cli.screen import PROSE, screen, shares
from zmqdata.cli.top import picture_of
from zmqdata.messages import EventStatus, ServiceStatus


def drawn(
    found: ServiceStatus, width: int = 80, height: int | None = 24, note: str = ""
) -> list[str]:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(screen(found, width, height, "12:30:05", note))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_the_condition_comes_first() -> None:
    """Below the head come the condition of a job, its sentence, its rates, what arrived
    by which transport and codec, and its tree.
    """
    lines = drawn(status())
    assert lines[:9] == [
        "zmqdata top  tcp://127.0.0.1:5050  2 workers  1 job  12:30:05",
        "",
        "train  INPUT-BOUND",
        "map(decode) at train.py:31 takes 94 % of the workers' time; with 2 workers the",
        "loop waits 61 % of each step; 6 would feed it.",
        "31 batches/s (992 rows/s), workers make 19 batches/s; 4,321 batches delivered;",
        "splits handed out: 1,000 of 20,000 files; 9 MB by transport shm, codec none; 5",
        "MB by transport tcp, codec zstd",
        "",
    ]
    assert [" ".join(line.split()) for line in lines[9:14]] == [
        "operations, lately share so far threads",
        "batch(8) at train.py:32 2 % 1 %",
        "└ map(decode) at train.py:31 94 % 47 % 4 waits (3 % processor)",
        "└ shuffle(100) 3 % 2 %",
        "packing elements 1 % 0 %",
    ]


def test_rates_and_waits() -> None:
    """Each worker and each training loop has a line with its rates and waits, in the
    unit of the job.
    """
    readers = [reader(0), reader(1)]
    lines = [" ".join(line.split()) for line in drawn(status(jobs=[job(readers=readers)]), 120)]
    assert "worker process tasks batches/s making for readers for splits link busy bytes" in lines
    assert "10.0.0.0:40000 node0:7000 1 9.5 90 % 8 % 2 % 40 % 1 MB/s" in lines
    assert any(line.startswith("consumer 0 (node0:100) 61 % 12 31 2 0.4 1,000") for line in lines)


def test_the_number_of_workers_that_are_wanted_is_a_line() -> None:
    """The head says how many workers the jobs want, and why."""
    wanted = replace(status(), desired_workers=6, desired_because="1 job needs 6 workers.")
    assert drawn(wanted)[1] == "6 workers wanted: 1 job needs 6 workers."


@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 16), (200, 60), (40, 8), (80, 3)])
@pytest.mark.parametrize("count", [0, 1, 1000])
def test_it_fits(width: int, height: int, count: int) -> None:
    """No line is longer than the window and no picture is higher, however much there is
    to show.
    """
    many = [job(f"job {number}", number) for number in range(min(count, 20))]
    tasks = [task(number, number % 20) for number in range(count)]
    found = status(count, many, tasks=tasks)
    lines = drawn(found, width, height, note="No answer." if count else "")
    assert max(map(len, lines)) <= width
    assert len(lines) <= height


def test_of_many_workers_the_busiest_are_shown() -> None:
    """Workers that are not connected come first, then the busiest and, among these, the
    slowest; the rest is counted.
    """
    hosts = [
        worker(
            number,
            connected=number != 3,
            making_share=number / 1000,
            elements_per_second=9.0 + number / 1000,
        )
        for number in range(1000)
    ]
    lines = drawn(status(hosts=hosts))
    (at,) = [number for number, line in enumerate(lines) if line.startswith("worker ")]
    assert lines[at + 1].startswith("10.0.0.3:40003")
    assert "disconnected" in lines[at + 1]
    assert lines[at + 2].startswith("10.0.3.246:40996"), "of 996 to 999, the slowest"
    shown = [line for line in lines[at + 1 :] if line.startswith("10.0.")]
    assert f"and {1000 - len(shown):,} more" in lines


def test_workers_that_are_not_well() -> None:
    """A worker that is silent, leaves or cannot be reached says so."""
    hosts = [worker(0, silent_seconds=12.0), worker(1, connected=False), worker(2, draining=True)]
    lines = [" ".join(line.split()[:5]) for line in drawn(status(hosts=hosts), 120)]
    assert "10.0.0.0:40000 node0:7000 silent for 12" in lines
    assert any(line.startswith("10.0.0.1:40001 node1:7001 disconnected") for line in lines)
    assert any(line.startswith("10.0.0.2:40002 node2:7002 draining") for line in lines)


def test_the_memory_of_workers() -> None:
    """A worker has its resident size, its memory beside the limit, and how often its
    process was recycled; no column of it if it is unknown.
    """
    use = {
        "rss_bytes": 300 << 20,
        "memory_bytes": 460 << 20,
        "memory_limit_bytes": 512 << 20,
        "recycles": 3,
    }
    text = "\n".join(drawn(status(hosts=[worker(0, **use), worker(1)]), 160, None))
    for expected in ("rss", "300 MiB", "460 MiB of 512 MiB", "recycles", " 3"):
        assert expected in text
    text = "\n".join(drawn(status(hosts=[worker(1)]), 160, None))
    assert "rss" not in text
    assert "recycles" not in text


def test_a_service_without_jobs_shows_its_workers() -> None:
    """Without a job there are a hint and no headings of loops and tasks."""
    text = "\n".join(drawn(status(1, [], tasks=[]), 100, None))
    assert "1 worker  0 jobs" in text
    assert "No job yet." in text
    assert "training loop" not in text
    assert "of worker" not in text


def test_a_slow_rank_is_marked() -> None:
    """A loop whose step takes much longer than those of the others says so, and comes
    first.
    """
    readers = [reader(0), reader(1), reader(2, 0.0, 30.0)]
    lines = drawn(status(jobs=[job(readers=readers)]))
    (at,) = [number for number, line in enumerate(lines) if line.startswith("training loop")]
    assert lines[at + 1].startswith("consumer 2")
    assert "2.5 x the others' step" in lines[at + 1]
    assert "others" not in "".join(lines[at + 2 :])


def test_a_loop_without_measures_has_no_numbers() -> None:
    """A loop that has sent no measures is listed with its name alone."""
    lines = drawn(status(jobs=[job(readers=[reader(elements=0)])]), 120)
    (at,) = [number for number, line in enumerate(lines) if line.startswith("training loop")]
    assert "%" not in lines[at + 1]


def test_queues() -> None:
    """A node that runs ahead shows how many elements wait behind it. A node that
    computes has a bar.
    """
    nodes = [operation("", "batch(8)", 0.1), operation("0", DECODE, 0.9, queue=(6, 16))]
    lines = drawn(status(jobs=[job(operations=nodes)]))
    (line,) = [line for line in lines if "at train.py:31" in line and "█" in line]
    assert line.endswith("6 of 16")


def test_a_tree_without_room_keeps_the_largest_nodes() -> None:
    """The nodes that take most of the time remain of a large tree, in their order."""
    nodes = [
        operation(".".join("0" * depth), f"map(f{depth})", share)
        for depth, share in enumerate([0.01] * 10 + [0.6] + [0.01] * 10 + [0.2])
    ]
    lines = drawn(status(jobs=[job(operations=nodes)]))
    shown = [line for line in lines if "map(f" in line]
    assert any("map(f10)" in line for line in shown)
    assert any("map(f21)" in line for line in shown)
    assert len(shown) < 22


def test_what_is_wrong_with_a_job() -> None:
    """A job has a line on what is wrong with it, beside its condition."""
    wrong = job(missing_consumers=[3], poisoned=["x"])
    lines = drawn(status(jobs=[wrong]), 160)
    assert "missing consumers: 3; 1 element left out as poison" in lines


def test_a_server_that_does_not_answer() -> None:
    """The note stands above what was last known."""
    lines = drawn(status(), note="No answer for 12 s.")
    assert lines[1] == "No answer for 12 s."
    assert any("INPUT-BOUND" in line for line in lines)


def test_of_many_jobs_the_most_urgent_are_shown() -> None:
    """The jobs come in the order of the status, and those without room are counted."""
    jobs = [job(f"job {number}", number, wait_share=number / 100) for number in range(20)]
    jobs[5] = job("job 5", 5, failure="ValueError: x")
    found = status(jobs=jobs, tasks=[])
    names = [line for line in drawn(found) if line.startswith("job ")]
    assert names == [f"{one.name}  {one.condition}" for one in found.jobs[: len(names)]]
    assert names[0] == "job 5  FAILED"
    assert f"and {20 - len(names)} more jobs" in drawn(found)


def test_workers_and_loops_have_room_beside_many_jobs() -> None:
    """Workers and training loops keep their lines, however many pipelines there are."""
    jobs = [job(f"job {number}", number) for number in range(30)]
    lines = drawn(status(100, jobs), 200, 60)
    assert sum(line.startswith("10.0.0.") for line in lines) >= 8
    assert sum(line.startswith("loop 1") for line in lines) >= 8


def test_a_tall_window_shows_tasks() -> None:
    """A tall window has a line for each task, in the order of the status."""
    stalled = task(1, state="stalled", doing="no progress for 75 s")
    found = status(tasks=[task(0), stalled])
    assert not any(line.startswith("4000") for line in drawn(found))
    lines = drawn(found, 200, 60)
    (at,) = [number for number, line in enumerate(lines) if line.startswith("task")]
    assert "no progress for 75 s" in lines[at + 1]
    assert lines[at + 2].startswith("4000")


def test_tasks_of_several_jobs_name_their_job() -> None:
    """Each task names its job if there are several, and not if there is one."""
    tasks = [task(0, 1), task(1, 2)]
    lines = drawn(status(jobs=[job("a", 1), job("b", 2)], tasks=tasks), 200, 60)
    (at,) = [number for number, line in enumerate(lines) if line.startswith("task")]
    assert [line.split()[:2] for line in lines[at : at + 3]] == [
        ["task", "job"],
        ["4000", "a"],
        ["4001", "b"],
    ]
    assert not any(line.startswith("task  job") for line in drawn(status(), 200, 60))


def test_the_newest_warnings_are_shown() -> None:
    """The newest five events that are warnings or errors are shown, the newest first,
    and no others.
    """
    events = [
        EventStatus(time=60.0 * at, level=level, text=f"event {at}")
        for at, level in enumerate(["warning"] * 4 + ["info", "error", "warning", "info"])
    ]
    lines = drawn(status(events=events), 80, 60)
    at = lines.index("newest warnings")
    assert [line.split("  ")[1] for line in lines[at + 1 : at + 6]] == [
        f"event {number}" for number in (6, 5, 3, 2, 1)
    ]
    assert not any("event 0" in line or "event 7" in line for line in lines)


def test_refused_messages_are_shown() -> None:
    """The head counts refused messages by kind."""
    assert "3 messages refused: not a message" in drawn(status(rejected={"not a message": 3}))


def test_a_server_without_a_key_is_warned_of() -> None:
    """The picture begins with a warning if the server has no key, and only then."""
    text = " ".join(drawn(status(config={"insecure": True})))
    assert "any process that can reach this server" in text
    assert "insecure" not in " ".join(drawn(status()))


@pytest.mark.parametrize("width", [60, 80])
def test_addresses_can_be_copied(width: int) -> None:
    """The address of a worker stays whole on a line, however narrow the terminal."""
    place = "[fe80:1234:5678:9abc:def0:1234:5678]:65535"
    host = worker(0, address=f"tcp://{place}", tags=["GPU", "LABORATORY"], connected=False)
    lines = drawn(status(hosts=[host], tasks=[task(0, address=f"tcp://{place}")]), width)
    assert any(line.startswith(f"{place}  disconnected") for line in lines)
    assert max(map(len, lines)) <= width


def test_a_long_name_leaves_room_for_its_share() -> None:
    """The name of an operation is cut, and its share stays."""
    nodes = [operation("", "map(f) at " + "x" * 200, 1.0)]
    (line,) = [line for line in drawn(status(jobs=[job(operations=nodes)])) if "map(f) at" in line]
    assert line.endswith("100 %")
    assert "…" in line


def test_a_pipe_gets_whole_rows_and_narrow_prose() -> None:
    """In a pipe no id is cut or wrapped, all of a failure is printed, and no prose is
    wider than 100 characters.
    """
    name = "tcp://" + "very-long-host-name." * 12 + "example:65535"
    failure = "ValueError: " + "a long text " * 60
    found = status(hosts=[worker(0, address=name)], jobs=[job(failure=failure)])
    console = Console(width=1_000)
    with console.capture() as captured:
        for part in picture_of(answer(found)):
            console.print(part)
    lines = captured.get().splitlines()
    assert any(line.startswith(name.removeprefix("tcp://")) for line in lines)
    (at,) = [number for number, line in enumerate(lines) if line == "train  FAILED"]
    prose = lines[at + 1 : lines.index("", at)]
    assert " ".join(prose).startswith(failure.strip())
    assert max(map(len, prose)) <= PROSE


def test_every_condition_is_drawn() -> None:
    """Each job has its condition and its sentence, in the order of the status."""
    found = every_condition()
    lines = drawn(found, 100, None)
    heads = [f"{one.name}  {one.condition}" for one in found.jobs]
    assert [line for line in lines if line in heads] == heads


def test_no_text_of_others_reaches_the_terminal_as_it_is() -> None:
    """Names and labels from peers are neither control codes nor markup, and wide
    characters break no line.
    """
    evil = "\x1b[2J\x9b31m\u202e[red]x"
    nodes = [operation("", "解碼" * 60, 0.5), operation("0", evil, 0.5)]
    readers = [reader(None, member=evil, run=evil, how=evil)]
    one = job(evil, advice=evil, readers=readers, operations=nodes, unit=evil, poisoned=[evil])
    hosts = [worker(0, address=evil, tags=[evil])]
    tasks = [task(0, address=evil, doing=evil, compressed=evil)]
    found = status(
        hosts=hosts, jobs=[one], tasks=tasks, dispatcher=evil, rejected={evil: 1, "解碼" * 60: 1}
    )
    for width, height in ((80, 24), (300, None)):
        lines = drawn(found, width, height)
        assert all(letter.isprintable() for line in lines for letter in line)
        assert sum("[red]x" in line for line in lines) >= 5
    assert len(drawn(found)) <= 24


def test_lines_are_shared() -> None:
    """Parts that are small get all that they need, and large ones the same."""
    assert shares(30, [5, 5, 5]) == [5, 5, 5]
    assert shares(12, [100, 100, 0]) == [6, 6, 0]
    assert shares(2, [5]) == [0]
    assert sum(shares(23, [9, 50, 7, 80])) == 23
