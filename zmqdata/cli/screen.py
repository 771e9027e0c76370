"""The picture that ``zmqdata top`` draws: a status as lines that fit a terminal. No
server is queried here.

The verdict on each job comes first. Each part gets its share of the lines, and says how
many rows it leaves out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from zmqdata.cli.phrases import (
    STYLES,
    Row,
    has_ended,
    is_measured,
    is_waiting,
    job_name,
    job_rates,
    loop_name,
    shared_unit,
    shown_bytes_rate,
    shown_rate,
    shown_share,
    task_state,
    troubles,
    verdict_of,
    worker_state,
)
from zmqdata.cli.tables import status_tables
from zmqdata.config.keys import WITHOUT_KEY
from zmqdata.measures.fields import unequal_loops
from zmqdata.peeking import counted
from zmqdata.printable import printable

ANY_HEIGHT = 1_000_000
"""Number of lines of an output that does not end with the window."""
TALL = 40
"""Lines from which on tasks are shown, too."""
BAR = 20
"""Characters of the bar of a node that takes all of the time."""
GAP = 2
"""Characters between two columns."""
LEAST = 3
"""Lines of a part with one row: a free line, its heading and the row."""
MOST_TREES = 20
"""Maximum number of jobs whose pipelines are shown."""
ADVICE_LINES = 4
"""Maximum number of lines of an advice."""


class ShownColumn(NamedTuple):
    """A column of a part."""

    heading: str
    """Its heading."""
    shown: Callable[[Row], str]
    """Returns the text of a row; a column without any text is left out."""
    is_number: bool = False
    """True to align it to the right."""
    weight: int = 0
    """Columns of little weight are left out first if the window is narrow."""


@dataclass(frozen=True)
class ScreenPart:
    """Rows of the same kind, the most important first."""

    columns: Sequence[ShownColumn]
    """Its columns."""
    rows: Sequence[Row]
    """Its rows."""
    style: Callable[[Row], str] = lambda row: ""
    """Returns the style of a row."""
    is_tree: bool = False
    """True if the rows keep their order, and those with the largest share remain."""

    @property
    def demand(self) -> int:
        """Number of lines that show all of it."""
        return len(self.rows) + LEAST - 1 if self.rows else 0

    def lines(self, room: int, width: int) -> list[Text]:
        """Return its lines, the first of which is empty.

        Args:
            room: number of lines.
            width: characters of a line.
        """
        if not self.rows or room < LEAST:
            return []
        rows = list(self.rows) if self.demand <= room else self._first(max(1, room - LEAST))
        columns = _fitting(self.columns, rows, width)
        widths = [_width(one, rows) for one in columns]
        lines = [Text(""), _line([one.heading for one in columns], columns, widths, width, "bold")]
        for row in rows:
            texts = [one.shown(row) for one in columns]
            lines.append(_line(texts, columns, widths, width, self.style(row)))
        left_out = len(self.rows) - len(rows)
        if left_out and len(lines) < room:
            lines.append(Text(f"and {left_out:,} more", "dim"))
        return lines

    def _first(self, count: int) -> list[Row]:
        if not self.is_tree:
            return list(self.rows[:count])
        kept = sorted(range(len(self.rows)), key=lambda at: -self.rows[at]["share"])[:count]
        return [self.rows[at] for at in sorted(kept)]


def screen(
    found: Mapping[str, Any], width: int, height: int | None = None, clock: str = "", note: str = ""
) -> RenderableType:
    """Return a status as a picture.

    Args:
        found: the result of ``zmqdata.client.calls.status``.
        width: characters of a line.
        height: number of lines; None for all that there is to show.
        clock: the present time, as it is shown.
        note: a warning to show, such as that the server has not answered.

    Example:
        >>> from rich.console import Console
        >>> found = {"dispatcher": "tcp://a:1", "workers": [], "jobs": [], "tasks": []}
        >>> Console(width=60).print(screen(found, 60, clock="12:30:05"))
        zmqdata top  tcp://a:1  0 workers  0 jobs  12:30:05
        <BLANKLINE>
        No job yet. Apply zmqdata.distribute(...) to a dataset.
    """
    if "workers" not in found:
        warning = [Text(printable(note), "bold reverse red")] if note else []
        return Group(*warning, *status_tables(found))
    lines = _head(found, width, clock, note)
    whole = ANY_HEIGHT if height is None else height
    lines += _verdicts(found, width, whole - len(lines))
    room = whole - len(lines)
    for parts in _parts(found, whole >= TALL):
        rooms = shares(room, [part.demand for part in parts])
        for part, lent in zip(parts, rooms, strict=True):
            drawn = part.lines(lent, width)
            room -= len(drawn)
            lines += drawn
    return Group(*lines[:height])


def shares(room: int, demands: Sequence[int]) -> list[int]:
    """Divide lines among parts: each gets what it demands, or an equal share of what
    the smaller ones leave. A part with a share of less than ``LEAST`` gets nothing.

    >>> shares(20, [3, 40, 40]), shares(10, [3, 4]), shares(4, [40, 40])
    ([3, 8, 9], [3, 4], [4, 0])
    """
    found = [0] * len(demands)
    left = room
    waiting = sorted((at for at, one in enumerate(demands) if one), key=lambda at: demands[at])
    while waiting and left < LEAST * len(waiting):
        waiting.remove(max(waiting))  # the last part is the least important
    for done, at in enumerate(waiting):
        found[at] = min(demands[at], left // (len(waiting) - done))
        left -= found[at]
    return found


# --- the head, and the verdicts


def _head(found: Mapping[str, Any], width: int, clock: str, note: str) -> list[Text]:
    parts = [
        "zmqdata top",
        str(found["dispatcher"]),
        counted(len(found["workers"]), "worker"),
        counted(len(found["jobs"]), "job"),
        clock,
    ]
    lines = [_cut("  ".join(filter(None, parts)), width, "bold reverse")]
    if note:
        lines += [Text(one, "bold red") for one in textwrap.wrap(printable(note), width)]
    if found.get("config", {}).get("insecure"):
        lines.append(_cut(f"insecure: {WITHOUT_KEY}", width, "red"))
    if not found["jobs"]:
        hint = "No job yet. Apply zmqdata.distribute(...) to a dataset."
        lines += [Text(""), _cut(hint, width, "dim")]
    return lines


def _verdicts(found: Mapping[str, Any], width: int, room: int) -> list[Text]:
    """Return the verdicts, those on jobs that wait most first, in half of the lines."""
    jobs, tasks = sorted(found["jobs"], key=_urgency), _by_iteration(found["tasks"])
    lines: list[Text] = []
    for number, job in enumerate(jobs):
        told = _verdict_lines(job, tasks.get(job["iteration"], ()), width)
        if number and len(lines) + len(told) + 1 > room // 2:
            left_out = counted(len(jobs) - number, "more job")
            return [*lines, Text(""), Text(f"and {left_out}", "dim")]
        lines += [Text(""), *told]
    return lines


def _verdict_lines(job: Row, tasks: Iterable[Row], width: int) -> list[Text]:
    word, advice = verdict_of(job)
    name = _cut(f"{job_name(job)}  ", max(1, width - len(word)), "bold")
    lines = [Text.assemble(name, (word, STYLES.get(word, "bold")))]
    wrapped = textwrap.wrap(printable(advice), width, max_lines=ADVICE_LINES, placeholder=" ...")
    lines += map(Text, wrapped)
    rates = textwrap.wrap(printable(job_rates(job)), width, max_lines=2, placeholder=" ...")
    lines += [Text(one, "dim") for one in rates]
    trouble = troubles(job, tasks)
    return [*lines, _cut(trouble, width, "yellow")] if trouble else lines


def _urgency(job: Row) -> tuple[bool, bool, float]:
    waits = max((one.get("wait_share", 0.0) for one in job["readers"]), default=0.0)
    return not job.get("failure"), bool(job.get("finished")), -waits


def _by_iteration(tasks: Iterable[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for task in tasks:
        found.setdefault(task["iteration"], []).append(task)
    return found


# --- the parts


def _parts(found: Mapping[str, Any], with_tasks: bool) -> tuple[list[ScreenPart], ...]:
    """Return the parts that everybody needs, and the parts for the lines that these
    leave.
    """
    jobs = sorted((job for job in found["jobs"] if not job.get("finished")), key=_urgency)
    trees, by_job = [], _by_iteration(found["tasks"])
    for job in jobs[:MOST_TREES]:
        title = f"time of the workers: {job['job']}" if len(jobs) > 1 else "time of the workers"
        rows = node_rows(by_job.get(job["iteration"], ()))
        trees.append(ScreenPart(node_columns(title), rows, is_tree=True))
    unit = shared_unit(found["jobs"])

    def in_unit(columns: Sequence[ShownColumn]) -> list[ShownColumn]:
        return [one._replace(heading=one.heading.replace("elements", unit)) for one in columns]

    workers = sorted(found["workers"], key=_busyness)
    tasks = sorted(found["tasks"] if with_tasks else (), key=_concern)
    first = [
        *trees[:1],
        ScreenPart(in_unit(WORKERS), workers, _worker_style),
        ScreenPart(in_unit(LOOPS), loop_rows(jobs), _loop_style),
    ]
    return first, [*trees[1:], ScreenPart(in_unit(TASKS), tasks)]


def node_rows(tasks: Iterable[Row]) -> list[Row]:
    """Return the nodes of a pipeline as the rows of a tree, each with its share of the
    time that workers make elements.

    Args:
        tasks: the tasks of a job.
    """
    sums: dict[str, float] = {}
    latest: dict[str, Row] = {}
    queues: dict[str, tuple[int, int]] = {}
    whole = 0.0
    for task in tasks:
        making = 0.0 if has_ended(task) else task.get("making_share", 0.0)
        whole += making
        for node in task.get("nodes", ()) if making else ():
            place = node["place"]
            sums[place] = sums.get(place, 0.0) + node["share"] * making
            latest[place] = node
            if node.get("queue"):
                (held, most), (more, limit) = queues.get(place, (0, 0)), node["queue"]
                queues[place] = held + more, most + limit
    return [
        {
            "node": f"{_branch(place, sums)}{latest[place]['node']}",
            "share": sums[place] / whole,
            "threads": latest[place]["threads"],
            "queue": "{:,} of {:,}".format(*queues[place]) if place in queues else "",
        }
        for place in sorted(sums, key=_path)
    ]


def _path(place: str) -> tuple[bool, tuple[int, ...], str]:
    """Return the order of a node: from the last operation to the sources, and then the
    work of the worker itself.
    """
    parts = place.split(".") if place else []
    if all(part.isdecimal() for part in parts):
        return False, tuple(map(int, parts)), ""
    return True, (), place


def _branch(place: str, places: Iterable[str]) -> str:
    """Return the indentation of a node: as deep as it has known nodes that read it."""
    if place.startswith("+") or not place:
        return ""
    above = {place[:at] for at, letter in enumerate(place) if letter == "."} | {""}
    depth = len(above.intersection(places))
    return f"{'  ' * (depth - 1)}└ " if depth else ""


def loop_rows(jobs: Iterable[Row]) -> list[Row]:
    """Return the training loops of jobs: those that are slower than the others first,
    then those that wait most.
    """
    listed = list(jobs)
    found: list[Row] = []
    for job in listed:
        name = job["job"] if len(listed) > 1 else ""
        slower = unequal_loops(job["readers"])
        found += [
            {**one, "job": name, "slower": factor}
            for one, factor in zip(job["readers"], slower, strict=True)
        ]
    return sorted(found, key=lambda row: (-row["slower"], -row.get("wait_share", 0.0)))


def _busyness(worker: Row) -> tuple[bool, float, float]:
    """Return the order of a worker: those that are not well, then the busiest, and
    among these the slowest.
    """
    is_well = worker_state(worker) == "alive"
    making = round(worker.get("making_share", 0.0), 2)
    return is_well, -making, worker["elements_per_second"]


def _concern(task: Row) -> tuple[bool, bool, float]:
    is_well = task_state(task) in ("running", "ended", "waits for its readers")
    return is_well, has_ended(task), -task.get("making_share", 0.0)


def _worker_style(worker: Row) -> str:
    return "" if worker_state(worker) == "alive" else "red"


def _loop_style(row: Row) -> str:
    if row["slower"]:
        return "bold yellow"
    return "red" if is_waiting(row) else ""


def _state_unless_alive(worker: Row) -> str:
    state = worker_state(worker)
    return "" if state == "alive" else state


def _share_of(name: str) -> Callable[[Row], str]:
    return lambda row: shown_share(row.get(name, 0.0))


def _loop_number(name: str) -> Callable[[Row], str]:
    return lambda row: shown_rate(row[name]) if is_measured(row) else ""


def _short(address: str) -> str:
    return address.removeprefix("tcp://")


def node_columns(title: str) -> tuple[ShownColumn, ...]:
    """Return the columns of a pipeline.

    Args:
        title: heading of the nodes.
    """
    return (
        ShownColumn(title, lambda row: str(row["node"]), weight=9),
        ShownColumn("share", lambda row: shown_share(row["share"]), True, 9),
        ShownColumn("", lambda row: "█" * round(BAR * min(1.0, row["share"])), weight=5),
        ShownColumn("threads", lambda row: _above_one(row["threads"]), True, 3),
        ShownColumn("queued", lambda row: str(row["queue"]), True, 4),
    )


def _above_one(count: int) -> str:
    return f"{count:,}" if count > 1 else ""


WORKERS = (
    ShownColumn("worker", lambda row: _short(row["address"]), weight=9),
    ShownColumn("state", _state_unless_alive, weight=9),
    ShownColumn("tasks", lambda row: f"{row['tasks']:,}", True, 4),
    ShownColumn("elements/s", lambda row: shown_rate(row["elements_per_second"]), True, 8),
    ShownColumn("making", _share_of("making_share"), True, 8),
    ShownColumn("for readers", _share_of("waiting_for_readers_share"), True, 7),
    ShownColumn("for splits", _share_of("waiting_for_splits_share"), True, 6),
    ShownColumn("link busy", _share_of("link_busy_share"), True, 5),
    ShownColumn("bytes", lambda row: shown_bytes_rate(row.get("bytes_per_second", 0)), True, 2),
    ShownColumn("tags", lambda row: ", ".join(row["tags"]), weight=1),
)
LOOPS = (
    ShownColumn("training loop", lambda row: loop_name(row) or str(row["process"]), weight=9),
    ShownColumn("job", lambda row: str(row["job"]), weight=5),
    ShownColumn(
        "waits", lambda row: shown_share(row["wait_share"]) if is_measured(row) else "", True, 9
    ),
    ShownColumn("ms a step", _loop_number("step_ms"), True, 8),
    ShownColumn("elements/s", _loop_number("elements_per_second"), True, 7),
    ShownColumn("buffered", lambda row: f"{row.get('buffered', 0):,}", True, 6),
    ShownColumn(
        "",
        lambda row: f"{row['slower']:.1f} x the others' step" if row["slower"] else "",
        weight=8,
    ),
    ShownColumn("first, s", lambda row: _seconds(row.get("first_element_seconds")), True, 3),
    ShownColumn("elements", lambda row: f"{row.get('elements', 0):,}", True, 2),
    ShownColumn(
        "given back", lambda row: f"{row['given_back']:,}" if row["given_back"] else "", True, 1
    ),
    ShownColumn("process", lambda row: str(row["process"]) if loop_name(row) else "", weight=1),
    ShownColumn("run", lambda row: str(row["run"]), weight=0),
)
TASKS = (
    ShownColumn("task", lambda row: str(row["task"]), weight=9),
    ShownColumn("of worker", lambda row: _short(row["address"]), weight=7),
    ShownColumn("state", task_state, weight=8),
    ShownColumn("attempt", lambda row: _above_one(row["attempt"]), True, 4),
    ShownColumn("elements/s", lambda row: shown_rate(row.get("elements_per_second", 0.0)), True, 6),
    ShownColumn("making", _share_of("making_share"), True, 5),
    ShownColumn("produced", lambda row: f"{row['produced']:,}", True, 3),
    ShownColumn("delivered", lambda row: f"{row['delivered']:,}", True, 3),
    ShownColumn("codec", lambda row: str(row.get("compressed", "")), weight=1),
)


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3g}"


# --- lines


def _fitting(columns: Sequence[ShownColumn], rows: Sequence[Row], width: int) -> list[ShownColumn]:
    """Return the columns that have a text, as many as the width allows."""
    found = [one for one in columns if any(one.shown(row) for row in rows)]
    while len(found) > 1 and sum(_width(one, rows) + GAP for one in found) - GAP > width:
        found.remove(min(found, key=lambda one: one.weight))
    return found


def _width(column: ShownColumn, rows: Iterable[Row]) -> int:
    return max(map(cell_len, [column.heading, *(printable(column.shown(row)) for row in rows)]))


def _line(
    texts: Sequence[str],
    columns: Sequence[ShownColumn],
    widths: Sequence[int],
    width: int,
    style: str,
) -> Text:
    cells = []
    for text, one, size in zip(map(printable, texts), columns, widths, strict=True):
        free = " " * (size - cell_len(text))
        cells.append(f"{free}{text}" if one.is_number else f"{text}{free}")
    return _cut((" " * GAP).join(cells).rstrip(), width, style)


def _cut(text: str, width: int, style: str = "") -> Text:
    """Return text of peers as a line that is not longer than the width."""
    line = Text(printable(text), style, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line
