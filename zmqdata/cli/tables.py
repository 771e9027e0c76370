"""Output of ``zmqdata status`` and ``zmqdata audit`` that fits a terminal. No server is
queried here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zmqdata.cli.phrases import (
    STYLES,
    Row,
    is_measured,
    job_name,
    job_rates,
    loop_name,
    shared_unit,
    shown_rate,
    shown_share,
    shown_splits,
    task_state,
    unit_of,
    verdict_of,
    worker_state,
)
from zmqdata.config.keys import WITHOUT_KEY
from zmqdata.printable import printable, shown_bytes

Columns = Mapping[str, Callable[[Row], str]]


def status_tables(found: Mapping[str, Any]) -> list[RenderableType]:
    """Return the verdict on each job, and tables of workers, jobs, training loops and
    tasks, or of the tasks of a worker. Rejected messages, if any, have their own table.

    Args:
        found: the result of ``zmqdata.client.calls.status``.
    """
    tables: list[RenderableType]
    if "workers" in found:
        unit = shared_unit(found["jobs"])
        tables = [
            *map(_verdict, found["jobs"]),
            _table("workers", _in_unit(WORKERS, unit), found["workers"]),
            _table("jobs", JOBS, found["jobs"]),
        ]
        # Without a job they are empty, and their headings tell a new user nothing.
        others = [
            _table("readers", READERS, _readers(found["jobs"])),
            _table("training loops", _in_unit(LOOPS, unit), _loops(found["jobs"])),
            _table("tasks", TASKS, found["tasks"]),
        ]
        tables += [one for one in others if one.row_count]
    else:
        tables = [_table("tasks", HOSTED, found["tasks"])]
    if found["rejected"]:
        rows = [{"kind": kind, "count": count} for kind, count in found["rejected"].items()]
        tables.append(_table("kinds of dropped messages", REJECTED, rows))
    if found.get("config", {}).get("insecure"):
        tables.insert(0, _table("insecure", WARNINGS, [{"text": WITHOUT_KEY}]))
    return tables


def audit_tables(found: Iterable[Mapping[str, Any]]) -> list[Table]:
    """Return the accounts of a job, as a table for each repetition.

    Args:
        found: the result of ``zmqdata.audit``.
    """
    return [_audit_table(one) for one in found]


def _audit_table(found: Mapping[str, Any]) -> Table:
    state = "failed" if found["failure"] else "finished" if found["finished"] else "goes on"
    title = f"job {found['job']}, repetition {found['repetition']}: {state}"
    table = Table(
        title=_text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, show_header=False
    )
    splits, tasks, elements = found["splits"], found["tasks"], found["elements"]
    rows = {
        "splits handed out, finished": f"{splits['handed_out']:,}, {splits['finished']:,}",
        "tasks, finished": f"{tasks['count']:,}, {tasks['finished']:,}",
        "tasks re-hosted, their splits": f"{tasks['rehosted']:,}, {splits['rehosted']:,}",
        "attempts of all tasks": f"{tasks['attempts']:,}",
        "elements delivered": f"{elements['delivered']:,}",
        "duplicates dropped": f"{elements['duplicates_dropped']:,}",
        "given back": f"{elements['given_back']:,}",
        "elements left out": f"{elements['left_out'] + elements['dropped']:,}",
    }
    for client in found["clients"]:
        rows[f"to client {client['client'][:12]}"] = f"{client['delivered']:,}"
    for number, delivered in enumerate(found["consumers"]):
        rows[f"to consumer {number}"] = f"{delivered:,}"
    table.add_column()
    table.add_column(justify="right")
    for name, shown in rows.items():
        table.add_row(_text(name), _text(shown))
    return table


def _table(title: str, columns: Columns, rows: Iterable[Row]) -> Table:
    rows = list(rows)
    # An empty column would take space from other columns, whose ids and headings would
    # then be broken.
    columns = {
        name: shown
        for name, shown in columns.items()
        if not rows or any(shown(row) for row in rows)
    }
    table = Table(
        title=f"{len(rows)} {SINGULAR.get(title, title) if len(rows) == 1 else title}",
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        box=SIMPLE_HEAD,
        collapse_padding=True,
    )
    for name in columns:
        # A broken address cannot be copied; the other columns yield instead.
        address = name in ADDRESSES
        table.add_column(
            name, justify="right" if name in NUMERIC else "left", overflow="fold", no_wrap=address
        )
    for row in rows:
        table.add_row(*(_text(shown(row)) for shown in columns.values()))
    return table


def _text(text: str, style: str = "") -> Text:
    """Return text of peers verbatim: rich would search a string for markup, but an IPv6
    address has brackets.
    """
    return Text(printable(text), style)


def _readers(jobs: Iterable[Row]) -> list[Row]:
    return [{"job": job["job"], **reader} for job in jobs for reader in job["readers"]]


def _in_unit(columns: Columns, unit: str) -> Columns:
    return {name.replace("elements", unit): shown for name, shown in columns.items()}


def _memory(count: int | None) -> str:
    return "" if count is None else shown_bytes(count)


def _limited_memory(row: Row) -> str:
    limit = row.get("memory_limit_bytes")
    return "" if limit is None else f"{_memory(row['memory_bytes'])} of {shown_bytes(limit)}"


def _loops(jobs: Iterable[Row]) -> list[Row]:
    return [row for row in _readers(jobs) if is_measured(row)]


def _verdict(job: Row) -> Text:
    """Return the verdict on a job, with its rates and its troubles."""
    word, advice = verdict_of(job)
    text = Text.assemble(
        (printable(f"{job_name(job)}: "), "bold"),
        (word, STYLES.get(word, "bold")),
        "\n",
        printable(advice),
        "\n",
        printable(job_rates(job)),
    )
    return text.append("\n")


WORKERS: Columns = {
    "address": lambda row: str(row["address"]),
    "tags": lambda row: ", ".join(row["tags"]),
    "tasks": lambda row: f"{row['tasks']:,}",
    "elements/s": lambda row: shown_rate(row["elements_per_second"]),
    "making": lambda row: shown_share(row["making_share"]) if row.get("making_share") else "",
    "rss": lambda row: _memory(row.get("rss_bytes")),
    "limited memory": _limited_memory,
    "recycles": lambda row: f"{row['recycles']:,}" if row.get("recycles") else "",
    "state": worker_state,
}
JOBS: Columns = {
    "job": lambda row: str(row["job"]),
    "reads": lambda row: str(row.get("origin", "")),
    "mode": lambda row: str(row["processing_mode"]),
    "repetition": lambda row: str(row["repetition"]),
    "clients": lambda row: f"{row['clients']:,}",
    "delivered": lambda row: f"{row['delivered']:,} {unit_of(row)}",
    "splits handed out": shown_splits,
    "finished": lambda row: "yes" if row["finished"] else "no",
}
READERS: Columns = {
    "job": lambda row: str(row["job"]),
    "run": lambda row: str(row["run"]),
    "rank": lambda row: str(row["member"]),
    "process": lambda row: str(row["process"]),
    "came": lambda row: str(row["how"]),
    "given back": lambda row: f"{row['given_back']:,}",
}
LOOPS: Columns = {
    "job": lambda row: str(row["job"]),
    "loop": loop_name,
    "process": lambda row: str(row["process"]),
    "waits": lambda row: shown_share(row["wait_share"]),
    "ms a step": lambda row: shown_rate(row["step_ms"]),
    "elements/s": lambda row: shown_rate(row["elements_per_second"]),
    "buffered": lambda row: f"{row['buffered']:,}",
}
TASKS: Columns = {
    "task": lambda row: str(row["task"]),
    "worker": lambda row: str(row["address"]),
    "attempt": lambda row: str(row["attempt"]) if row["attempt"] > 1 else "",
    "produced": lambda row: f"{row['produced']:,}",
    "delivered": lambda row: f"{row['delivered']:,}",
    "state": task_state,
}
HOSTED: Columns = {
    "task": lambda row: str(row["task"]),
    "attempt": lambda row: str(row["attempt"]),
    "dataset": lambda row: str(row["dataset_id"]),
    "mode": lambda row: str(row["processing_mode"]),
    "clients": lambda row: f"{len(row['clients']):,}",
    "produced": lambda row: f"{row['produced']:,}",
    "elements/s": lambda row: shown_rate(row.get("elements_per_second", 0.0)),
    "making": lambda row: shown_share(row.get("making_share", 0.0)),
    "codec": lambda row: str(row.get("compressed", "")),
    "left out": lambda row: f"{row.get('left_out', 0):,}",
    "state": lambda row: (
        "ended" if row["total"] is not None else "running" if row["started"] else "waiting"
    ),
}
WARNINGS: Columns = {"warning": lambda row: str(row["text"])}
REJECTED: Columns = {"kind": lambda row: str(row["kind"]), "count": lambda row: f"{row['count']:,}"}
SINGULAR = {
    "workers": "worker",
    "jobs": "job",
    "readers": "reader",
    "training loops": "training loop",
    "tasks": "task",
    "kinds of dropped messages": "kind of dropped messages",
}
ADDRESSES = {"address", "worker"}
NUMERIC = {
    "tasks",
    "elements/s",
    "rss",
    "limited memory",
    "recycles",
    "batches/s",
    "making",
    "waits",
    "ms a step",
    "buffered",
    "repetition",
    "clients",
    "delivered",
    "attempt",
    "produced",
    "left out",
    "count",
}
