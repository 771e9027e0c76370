"""Output of ``zmqdata status --worker`` and ``zmqdata audit`` that fits a terminal. No
server is queried here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from zmqdata.printable import printable, shown_rate, shown_share

Row = Mapping[str, Any]
Columns = Mapping[str, Callable[[Row], str]]


def worker_tables(found: Mapping[str, Any]) -> list[RenderableType]:
    """Return the tasks of a worker as a table, and rejected messages, if any.

    Args:
        found: the result of ``zmqdata.client.calls.status`` for a worker.
    """
    tables: list[RenderableType] = [_table("tasks", HOSTED, found["tasks"])]
    if found["rejected"]:
        rows = [{"kind": kind, "count": count} for kind, count in found["rejected"].items()]
        tables.append(_table("kinds of dropped messages", REJECTED, rows))
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
        table.add_column(name, justify="right" if name in NUMERIC else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(shown(row)) for shown in columns.values()))
    return table


def _text(text: str, style: str = "") -> Text:
    """Return text of peers verbatim: rich would search a string for markup, but an IPv6
    address has brackets.
    """
    return Text(printable(text), style)


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
    "state": lambda row: str(row["state"]),
}
REJECTED: Columns = {"kind": lambda row: str(row["kind"]), "count": lambda row: f"{row['count']:,}"}
SINGULAR = {"tasks": "task", "kinds of dropped messages": "kind of dropped messages"}
NUMERIC = {"elements/s", "making", "attempt", "produced", "clients", "left out", "count"}
