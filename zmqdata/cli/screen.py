"""The picture that ``zmqdata top`` draws: a status as lines that fit a terminal. No
server is queried here.

The verdict on each job comes first. Each part gets its share of the lines, and says how
many rows it leaves out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import localtime, strftime
from typing import Any, NamedTuple, TypeAlias

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from zmqdata import messages as m
from zmqdata.config.keys import WITHOUT_KEY
from zmqdata.measures.situation import WAITS, doing_of
from zmqdata.measures.status import CONNECTED, FINISHED, SILENT, shared_unit
from zmqdata.measures.verdict import COMPUTE_BOUND, FAILED, INPUT_BOUND, LINK_BOUND, STRAGGLER
from zmqdata.peeking import counted
from zmqdata.printable import printable, shown_bytes, shown_rate, shown_share, shown_size

ANY_HEIGHT = 1_000_000
"""Number of lines of an output that does not end with the window."""
ANY_WIDTH = 1_000
"""Characters of a line of such an output: no id or address is cut."""
PROSE = 100
"""Maximum number of characters of a line of prose."""
TALL = 40
"""Lines from which on tasks are shown, too."""
BAR = 20
"""Characters of the bar of a node that takes all of the time."""
GAP = 2
"""Characters between two columns."""
MOST_WEIGHT = 9
"""Weight of columns that are never left out."""
LEAST = 3
"""Lines of a part with one row: a free line, its heading and the row."""
MOST_TREES = 20
"""Maximum number of jobs whose pipelines are shown."""
MOST_EVENTS = 5
"""Maximum number of warnings and errors of the dispatcher that are shown."""
PROSE_LINES = 4
"""Maximum number of lines of a paragraph in a window."""
STYLES = {
    FAILED: "bold red",
    INPUT_BOUND: "bold red",
    LINK_BOUND: "bold magenta",
    STRAGGLER: "bold yellow",
    COMPUTE_BOUND: "bold green",
}
"""Styles of conditions; others are bold."""
Row: TypeAlias = Any
"""A structure of the status; each column knows its type."""


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
        # The first column names the row: it is cut, and never left out.
        widths[0] = min(widths[0], max(1, width - sum(widths[1:]) - GAP * (len(columns) - 1)))
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
        kept = sorted(range(len(self.rows)), key=lambda at: -self.rows[at].share)[:count]
        return [self.rows[at] for at in sorted(kept)]


def screen(
    found: m.ServiceStatus, width: int, height: int | None = None, clock: str = "", note: str = ""
) -> RenderableType:
    """Return a status as a picture.

    Args:
        found: the status of a dispatcher.
        width: characters of a line.
        height: number of lines; None for all that there is to show.
        clock: the present time, as it is shown.
        note: a warning to show, such as that the server has not answered.

    Example:
        >>> from rich.console import Console
        >>> Console(width=60).print(screen(m.ServiceStatus(dispatcher="tcp://a:1"), 60))
        zmqdata top  tcp://a:1  0 workers  0 jobs
        <BLANKLINE>
        No job yet. Apply zmqdata.distribute(...) to a dataset.
    """
    lines = _head(found, width, clock, note)
    whole = ANY_HEIGHT if height is None else height
    lines += _verdicts(found.jobs, width, whole - len(lines))
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


def _head(found: m.ServiceStatus, width: int, clock: str, note: str) -> list[Text]:
    parts = [
        "zmqdata top",
        found.dispatcher,
        counted(len(found.workers), "worker"),
        counted(len(found.jobs), "job"),
        clock,
    ]
    lines = [_cut("  ".join(filter(None, parts)), width, "bold reverse")]
    lines += _wrapped(note, width, "bold red")
    if found.config.get("insecure"):
        lines += _wrapped(WITHOUT_KEY, width, "red")
    lines += [
        _cut(f"{counted(count, 'message')} refused: {kind}", width, "yellow")
        for kind, count in found.rejected.items()
    ]
    if found.desired_because and found.jobs:
        wanted = f"{counted(found.desired_workers, 'worker')} wanted: {found.desired_because}"
        lines.append(_cut(wanted, width, "dim"))
    if not found.jobs:
        hint = "No job yet. Apply zmqdata.distribute(...) to a dataset."
        lines += [Text(""), _cut(hint, width, "dim")]
    return lines


def _verdicts(jobs: Sequence[m.JobStatus], width: int, room: int) -> list[Text]:
    """Return the condition of each job, the most urgent first, in half of the lines."""
    lines: list[Text] = []
    for number, job in enumerate(jobs):
        told = _verdict_lines(job, width, PROSE_LINES if room < ANY_HEIGHT // 2 else None)
        if number and len(lines) + len(told) + 1 > room // 2:
            left_out = counted(len(jobs) - number, "more job")
            return [*lines, Text(""), Text(f"and {left_out}", "dim")]
        lines += [Text(""), *told]
    return lines


def _verdict_lines(job: m.JobStatus, width: int, most: int | None) -> list[Text]:
    word = job.condition
    name = _cut(f"{job.name}  ", max(1, width - len(word)), "bold")
    return [
        Text.assemble(name, (word, STYLES.get(word, "bold"))),
        *_wrapped(job.sentence, width, "", most),
        *_wrapped(job_rates(job), width, "dim", most),
        *_wrapped(job.trouble, width, "yellow", most),
    ]


# --- numbers of a job


def shown_bytes_rate(per_second: float) -> str:
    """Return bytes per second; empty for none."""
    return f"{shown_size(per_second)}/s" if per_second else ""


def shown_splits(job: m.JobStatus) -> str:
    """Return how many splits of each source were handed out, and what they are.

    >>> from zmqdata.messages import SplitsStatus
    >>> rows = SplitsStatus(handed_out=1000, count=20000, unit="rows")
    >>> shown_splits(m.JobStatus(splits=[rows, SplitsStatus(handed_out=5)]))
    '1,000 of 20,000 rows, 5 of ? splits'
    """
    return ", ".join(
        f"{one.handed_out:,} of {'?' if one.count is None else format(one.count, ',')} {one.unit}"
        for one in job.splits
    )


def job_rates(job: m.JobStatus) -> str:
    """Return at which rate the training loops take elements and the workers make them,
    and how many there were.

    >>> from zmqdata.messages import SplitsStatus
    >>> splits = [SplitsStatus(handed_out=5, count=9, unit="files")]
    >>> job = m.JobStatus(unit="batches", elements_per_second=18.2, rows_per_second=91,
    ...     made_per_second=18.5, delivered=88, splits=splits)
    >>> job_rates(job).partition("; 88")[0]
    '18.2 batches/s (91 rows/s), workers make 18.5 batches/s'
    """
    rows = job.rows_per_second
    in_rows = f" ({shown_rate(rows)} rows/s)" if rows is not None and job.unit == "batches" else ""
    parts = [
        f"{shown_rate(job.elements_per_second)} {job.unit}/s{in_rows}, workers make "
        f"{shown_rate(job.made_per_second)} {job.unit}/s",
        f"{counted(job.delivered, job.unit)} delivered",
        f"splits handed out: {shown_splits(job)}" if job.splits else "",
        *moved_bytes(job),
    ]
    return "; ".join(filter(None, parts))


def moved_bytes(job: m.JobStatus) -> list[str]:
    """Return the bytes that arrived, by transport and codec.

    >>> from zmqdata.messages import MovedStatus, TotalsStatus
    >>> moved = [MovedStatus(transport="tcp", codec="zstd", bytes=12_600_000)]
    >>> moved_bytes(m.JobStatus(measures=TotalsStatus(moved=moved)))
    ['12.6 MB by transport tcp, codec zstd']
    """
    return [
        f"{shown_size(one.bytes)} by transport {one.transport}, codec {one.codec}"
        for one in job.measures.moved
        if one.bytes
    ]


# --- the parts


def _parts(found: m.ServiceStatus, with_tasks: bool) -> tuple[list[ScreenPart], ...]:
    """Return the parts that everybody needs, and the parts for the lines that these
    leave.
    """
    jobs = [job for job in found.jobs if job.condition != FINISHED]
    trees = []
    for job in jobs[:MOST_TREES]:
        title = f"operations, lately: {job.name}" if len(jobs) > 1 else "operations, lately"
        rows = [one for one in job.operations if one.share or one.seconds]
        trees.append(ScreenPart(node_columns(title, rows), rows, is_tree=True))
    unit = shared_unit(found.jobs)

    def in_unit(columns: Sequence[ShownColumn]) -> list[ShownColumn]:
        return [one._replace(heading=one.heading.replace("elements", unit)) for one in columns]

    names = {id(reader): job.name for job in jobs for reader in job.readers}
    readers = sorted(
        (reader for job in jobs for reader in job.readers),
        key=lambda one: (-one.slower, -one.wait_share),
    )
    loops, tasks = in_unit(LOOPS), in_unit(TASKS)
    if len(jobs) > 1:
        loops.insert(1, ShownColumn("job", lambda row: names[id(row)], weight=5))
    by_number = {job.iteration: job.name for job in found.jobs}
    if len(by_number) > 1:
        tasks.insert(1, ShownColumn("job", lambda row: by_number.get(row.iteration, ""), weight=5))
    warnings = [one for one in reversed(found.events) if one.level != "info"]
    first = [
        *trees[:1],
        ScreenPart(in_unit(WORKERS), found.workers, _worker_style),
        ScreenPart(loops, readers, _loop_style),
        ScreenPart(EVENTS, warnings[:MOST_EVENTS], lambda row: "yellow"),
    ]
    return first, [*trees[1:], ScreenPart(tasks, found.tasks if with_tasks else ())]


def _worker_style(worker: m.WorkerStatus) -> str:
    return "" if worker.state == CONNECTED else "red"


def _loop_style(row: m.ReaderStatus) -> str:
    if row.slower:
        return "bold yellow"
    return "red" if row.wait_share >= WAITS else ""


def _state_unless_connected(worker: m.WorkerStatus) -> str:
    if worker.state == SILENT:
        return f"silent for {worker.silent_seconds:.0f} s"
    return "" if worker.state == CONNECTED else worker.state


def _limited_memory(worker: m.WorkerStatus) -> str:
    limit = worker.memory_limit_bytes
    return "" if limit is None else f"{_memory(worker.memory_bytes)} of {shown_bytes(limit)}"


def _memory(count: int | None) -> str:
    return "" if count is None else shown_bytes(count)


def _share(name: str) -> Callable[[Row], str]:
    return lambda row: shown_share(getattr(row, name))


def _loop_number(name: str, shown: Callable[[float], str]) -> Callable[[m.ReaderStatus], str]:
    return lambda row: shown(getattr(row, name)) if row.elements else ""


def _short(address: str) -> str:
    return address.removeprefix("tcp://")


def _above(count: int, least: int = 0) -> str:
    return f"{count:,}" if count > least else ""


def node_columns(title: str, rows: Iterable[m.OperationStatus]) -> tuple[ShownColumn, ...]:
    """Return the columns of a pipeline.

    Args:
        title: heading of the operations.
        rows: its operations.
    """

    def branch(row: m.OperationStatus) -> str:
        name = row.node or row.place.removeprefix("+")
        return f"{'  ' * (row.depth - 1)}└ {name}" if row.depth else name

    return (
        ShownColumn(title, branch, weight=9),
        ShownColumn("share", _share("share"), True, 9),
        ShownColumn("", lambda row: "█" * round(BAR * row.share), weight=1),
        ShownColumn("so far", _share("share_so_far"), True, 2),
        ShownColumn("threads", lambda row: _above(row.threads, 1), True, 3),
        ShownColumn("queued", _queued, True, 4),
        ShownColumn("", doing_of, weight=4),
    )


def _queued(row: m.OperationStatus) -> str:
    return "" if row.queue is None else "{:,} of {:,}".format(*row.queue)


WORKERS = (
    ShownColumn("worker", lambda row: _short(row.address), weight=9),
    ShownColumn("name", lambda row: row.name, weight=8),
    ShownColumn("process", lambda row: row.process, weight=4),
    ShownColumn("state", _state_unless_connected, weight=9),
    ShownColumn("tasks", lambda row: f"{row.tasks:,}", True, 4),
    ShownColumn("elements/s", lambda row: shown_rate(row.elements_per_second), True, 8),
    ShownColumn("making", _share("making_share"), True, 8),
    ShownColumn("for readers", _share("waiting_for_readers_share"), True, 7),
    ShownColumn("for splits", _share("waiting_for_splits_share"), True, 6),
    ShownColumn("link busy", _share("link_busy_share"), True, 5),
    ShownColumn("bytes", lambda row: shown_bytes_rate(row.bytes_per_second), True, 2),
    ShownColumn("rss", lambda row: _memory(row.rss_bytes), True, 1),
    ShownColumn("limited memory", _limited_memory, True, 3),
    ShownColumn("recycles", lambda row: _above(row.recycles), True, 3),
    ShownColumn("tags", lambda row: ", ".join(row.tags), weight=1),
)
LOOPS = (
    ShownColumn("training loop", lambda row: row.name, weight=9),
    ShownColumn("waits", _loop_number("wait_share", shown_share), True, 9),
    ShownColumn("ms a step", _loop_number("step_ms", shown_rate), True, 8),
    ShownColumn("elements/s", _loop_number("elements_per_second", shown_rate), True, 7),
    ShownColumn("buffered", lambda row: f"{row.buffered:,}", True, 6),
    ShownColumn(
        "", lambda row: f"{row.slower:.1f} x the others' step" if row.slower else "", weight=8
    ),
    ShownColumn("first, s", lambda row: _seconds(row.first_element_seconds), True, 3),
    ShownColumn("elements", lambda row: f"{row.elements:,}", True, 2),
    ShownColumn("given back", lambda row: _above(row.given_back), True, 1),
    ShownColumn("run", lambda row: row.run, weight=0),
    ShownColumn("came", lambda row: row.how, weight=0),
)
TASKS = (
    ShownColumn("task", lambda row: str(row.task), weight=9),
    ShownColumn("of worker", lambda row: _short(row.address), weight=7),
    ShownColumn("state", lambda row: row.doing, weight=8),
    ShownColumn("attempt", lambda row: _above(row.attempt, 1), True, 4),
    ShownColumn("elements/s", lambda row: shown_rate(row.elements_per_second), True, 6),
    ShownColumn("making", _share("making_share"), True, 5),
    ShownColumn("produced", lambda row: f"{row.produced:,}", True, 3),
    ShownColumn("delivered", lambda row: f"{row.delivered:,}", True, 3),
    ShownColumn("codec", lambda row: row.compressed, weight=1),
)
EVENTS = (ShownColumn("newest warnings", lambda row: f"{_clock(row.time)}  {row.text}", weight=9),)


def _clock(seconds: float) -> str:
    return strftime("%H:%M:%S", localtime(seconds))


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.3g}"


# --- lines


def _fitting(columns: Sequence[ShownColumn], rows: Sequence[Row], width: int) -> list[ShownColumn]:
    """Return the columns that have a text, as many as the width allows."""
    found = [one for one in columns if any(one.shown(row) for row in rows)]
    while sum(_width(one, rows) + GAP for one in found) - GAP > width:
        least = min(found, key=lambda one: one.weight)
        if least.weight == MOST_WEIGHT:
            break
        found.remove(least)
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
    for whole, one, size in zip(texts, columns, widths, strict=True):
        text = _cut(whole, size).plain
        free = " " * (size - cell_len(text))
        cells.append(f"{free}{text}" if one.is_number else f"{text}{free}")
    return _cut((" " * GAP).join(cells).rstrip(), width, style)


def _wrapped(text: str, width: int, style: str, most: int | None = PROSE_LINES) -> list[Text]:
    """Return prose of peers as lines.

    Args:
        text: the prose.
        width: characters of a line, if that is less than ``PROSE``.
        style: style of the lines.
        most: maximum number of lines; None for all.
    """
    narrow = max(5, min(width, PROSE))
    lines = textwrap.wrap(printable(text), narrow, max_lines=most, placeholder=" ...")
    return [_cut(one, width, style) for one in lines]


def _cut(text: str, width: int, style: str = "") -> Text:
    """Return text of peers as a line that is not longer than the width."""
    line = Text(printable(text), style, no_wrap=True, overflow="ellipsis")
    line.truncate(width, overflow="ellipsis")
    return line
