"""Write the Grafana dashboard and the alert rules of Prometheus in ``deploy/``, and the
tables of ``docs/metrics.md``: ``python tools/deploy_files.py``.

A test compares the files with what this program makes, another puts each expression to
a Prometheus server that scrapes real servers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zmqdata.metrics.declared import DISPATCHER, WORKER, Metric

PAGE = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
FOLDER = Path(__file__).resolve().parent.parent / "deploy"
DASHBOARD = FOLDER / "grafana" / "dashboard.json"
ALERTS = FOLDER / "prometheus" / "alerts.yml"
OF_JOB = '{job_name=~"$job_name"}'
WINDOW = "[$__rate_interval]"
SCRAPED = "zmqdata-dispatcher"
"""Name under which Prometheus must scrape the dispatcher, so that the rule of a
dispatcher that is down finds it.
"""


@dataclass(frozen=True)
class Panel:
    """A panel of the dashboard."""

    title: str
    """The question that it answers."""
    expressions: tuple[tuple[str, str], ...]
    """Each expression with its legend."""
    unit: str = "short"
    """Unit of the values, as Grafana names it."""
    meaning: str = ""
    """Hints for its reader."""
    kind: str = "timeseries"
    """Kind of the panel, as Grafana names it."""
    most: float | None = None
    """Upper end of the axis; None if it follows the values."""
    is_stacked: bool = False
    """True if the areas are put on each other."""


def _mean(name: str) -> str:
    """Return the mean seconds of a summary by job and consumer."""
    by = "by (job_name, consumer)"
    return (
        f"sum {by} (rate({name}_sum{OF_JOB}{WINDOW})) / "
        f"sum {by} (rate({name}_count{OF_JOB}{WINDOW}))"
    )


WAITED = f"sum by (job_name, consumer) (rate(zmqdata_client_wait_seconds_sum{OF_JOB}{WINDOW}))"
WORKED = f"sum by (job_name, consumer) (rate(zmqdata_client_step_seconds_sum{OF_JOB}{WINDOW}))"
FIRST = "zmqdata_client_first_element_seconds"

ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "Does training wait for its input?",
        (
            Panel(
                "What limits each job",
                ((f"zmqdata_verdict{OF_JOB} == 1", "{{job_name}}: {{verdict}}"),),
                kind="stat",
                meaning="The verdict of `zmqdata status`. UNKNOWN: too little was read.",
            ),
            Panel(
                "Share of the time that loops wait",
                ((f"{WAITED} / ({WAITED} + {WORKED})", "{{job_name}} {{consumer}}"),),
                "percentunit",
                "Above 5 % the input holds training up.",
                most=1.0,
            ),
            Panel(
                "Wait and own step for an element",
                (
                    (_mean("zmqdata_client_wait_seconds"), "wait {{job_name}} {{consumer}}"),
                    (_mean("zmqdata_client_step_seconds"), "step {{job_name}} {{consumer}}"),
                ),
                "s",
                "A consumer whose step is longer than that of the others holds them up.",
            ),
            Panel(
                "Mean time to the first element",
                (
                    (
                        f"sum by (job_name) ({FIRST}_sum{OF_JOB}) / "
                        f"sum by (job_name) ({FIRST}_count{OF_JOB})",
                        "{{job_name}}",
                    ),
                ),
                "s",
                "It is not part of the waits.",
            ),
        ),
    ),
    (
        "How much moves?",
        (
            Panel(
                "Elements per second",
                (
                    (
                        f"sum by (job_name) (rate(zmqdata_elements_total{OF_JOB}{WINDOW}))",
                        "{{job_name}}",
                    ),
                ),
                "ops",
                "Elements that reach training loops, in the unit that they read: usually batches.",
            ),
            Panel(
                "Bytes per second, by transport and codec",
                (
                    (
                        f"sum by (transport, codec) (rate(zmqdata_bytes_total{OF_JOB}{WINDOW}))",
                        "{{transport}} {{codec}}",
                    ),
                ),
                "Bps",
                "What arrives at training processes.",
            ),
            Panel(
                "Bytes of blocks per second, by job",
                (
                    (
                        f"sum by (job_name) (rate(zmqdata_block_bytes_total{OF_JOB}{WINDOW}))",
                        "{{job_name}}",
                    ),
                ),
                "Bps",
                "What workers hand over, after compression.",
            ),
            Panel(
                "Elements that wait for the loop",
                ((f"zmqdata_buffer_elements{OF_JOB}", "{{job_name}} {{consumer}}"),),
                meaning="Near 0 while the loop waits; full while it computes.",
            ),
            Panel(
                "Redone and skipped elements",
                (
                    (
                        f"sum by (job_name) (zmqdata_redone_elements_total{OF_JOB})",
                        "redone {{job_name}}",
                    ),
                    (f"sum by (job_name) (zmqdata_skipped_total{OF_JOB})", "skipped {{job_name}}"),
                ),
                meaning="Redone: made again after a worker was lost. Skipped: they failed.",
            ),
        ),
    ),
    (
        "Where do the workers spend their time?",
        (
            Panel(
                "What tasks do",
                (
                    (
                        f"sum by (job_name, doing) (rate(zmqdata_task_seconds_total{OF_JOB}"
                        f"{WINDOW}))",
                        "{{job_name}} {{doing}}",
                    ),
                ),
                "none",
                "Tasks at a time. Making all the time: more workers help.",
                is_stacked=True,
            ),
            Panel(
                "Busy threads by operation",
                (
                    (
                        f"sum by (job_name, node) (rate(zmqdata_node_seconds_total{OF_JOB}"
                        f"{WINDOW}))",
                        "{{node}}",
                    ),
                ),
                "none",
                "The operation with the most threads is the first to make faster.",
                is_stacked=True,
            ),
            Panel(
                "Elements per second by worker",
                (("rate(zmqdata_worker_elements_total[$__rate_interval])", "{{instance}}"),),
                "ops",
                "A worker that is much slower than the others is a straggler.",
            ),
        ),
    ),
    (
        "How are the servers?",
        (
            Panel(
                "Workers",
                (
                    ("sum by (state) (zmqdata_workers)", "{{state}}"),
                    ("max(zmqdata_desired_workers)", "desired"),
                ),
                meaning="Desired: so many would feed all jobs.",
            ),
            Panel(
                "Tasks",
                (("sum by (state) (zmqdata_tasks)", "{{state}}"),),
                meaning="Unhosted tasks wait for a worker; stalled ones make no progress.",
                is_stacked=True,
            ),
            Panel(
                "Losses, deaths, poison, failures, recycling",
                (
                    ("sum(zmqdata_worker_losses_total)", "lost workers"),
                    ("sum(zmqdata_task_deaths_total) or vector(0)", "deaths at an element"),
                    ("sum(zmqdata_poisoned_elements_total) or vector(0)", "poisoned elements"),
                    ("sum(zmqdata_failed_jobs)", "failed jobs"),
                    ("sum(zmqdata_worker_recycles_total)", "recycled because of memory"),
                ),
                meaning="`zmqdata status` names the elements and the errors.",
            ),
            Panel(
                "Memory of the workers",
                (
                    ("zmqdata_worker_resident_bytes", "{{instance}}"),
                    ("zmqdata_worker_private_bytes", "counted {{instance}}"),
                    ("zmqdata_worker_memory_limit_bytes > 0", "limit {{instance}}"),
                ),
                "bytes",
                "Counted: what --memory-limit counts. At 90 % of it a process is recycled.",
            ),
            Panel(
                "Cores in use",
                (
                    (
                        "rate(process_cpu_seconds_total[$__rate_interval]) "
                        "* on (instance, job) group_left (role) zmqdata_build_info",
                        "{{role}} {{instance}}",
                    ),
                ),
                "none",
            ),
            Panel(
                "Open file descriptors",
                (
                    (
                        "process_open_fds / process_max_fds "
                        "* on (instance, job) group_left (role) zmqdata_build_info",
                        "{{role}} {{instance}}",
                    ),
                ),
                "percentunit",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Rule:
    """An alert rule."""

    name: str
    """Name of the alert."""
    expression: str
    """The condition. A part in braces stands for one of ``parts``."""
    parts: tuple[str, ...]
    """Expressions that have a value whether or not the condition holds."""
    lasts: str
    """Time for which the condition must hold."""
    severity: str
    """``warning`` or ``critical``."""
    summary: str
    """The fact, for a person on call."""
    remedy: str
    """The remedy."""

    @property
    def condition(self) -> str:
        """The whole condition."""
        return self.expression.format(*self.parts)


RULES = (
    Rule(
        "ZmqdataInputBound",
        "{0} == 1",
        ('zmqdata_verdict{verdict="INPUT-BOUND"}',),
        "5m",
        "warning",
        "The loop of job {{ $labels.job_name }} waits for its input.",
        "`zmqdata status` names the slowest operation. Make it faster, or start as many workers "
        "as zmqdata_needed_workers says.",
    ),
    Rule(
        "ZmqdataStraggler",
        "{0} == 1",
        ('zmqdata_verdict{verdict="STRAGGLER"}',),
        "5m",
        "warning",
        "A worker, consumer or split of job {{ $labels.job_name }} holds up the others.",
        "`zmqdata status` names it. Look at its machine, drain the worker with `zmqdata drain`, "
        "or use more and smaller files.",
    ),
    Rule(
        "ZmqdataLinkBound",
        "{0} == 1",
        ('zmqdata_verdict{verdict="LINK-BOUND"}',),
        "5m",
        "warning",
        "Job {{ $labels.job_name }} waits for bytes on their way.",
        "Send smaller dtypes, compress with compression='AUTO', or enlarge elements after "
        "distribute().",
    ),
    Rule(
        "ZmqdataNoWorker",
        "({0} > 0) and on (instance) ({1} == 0)",
        ("sum by (instance) (zmqdata_readers)", 'zmqdata_workers{state="connected"}'),
        "1m",
        "critical",
        "Jobs of the dispatcher {{ $labels.instance }} are read, and it has no worker.",
        "Start workers. If they run, `zmqdata doctor` says why they do not reach the dispatcher.",
    ),
    Rule(
        "ZmqdataWorkerLost",
        "{0} > 0",
        ("increase(zmqdata_worker_losses_total[10m])",),
        "0m",
        "warning",
        "The dispatcher {{ $labels.instance }} has lost a worker in the last ten minutes.",
        "Its tasks continue elsewhere. Read the log of the worker for the signal or error that "
        "ended it; SIGKILL often means that memory ran out.",
    ),
    Rule(
        "ZmqdataPoison",
        "{0} > 0",
        ("increase(zmqdata_poisoned_elements_total[30m])",),
        "0m",
        "warning",
        "Elements of job {{ $labels.job_name }} kill their worker and are left out.",
        "`zmqdata status` names them, and how their processes died. Call the function that it "
        "names with such an input in a process that may die. Do not use `zmqdata replay`: the "
        "element would kill that process, too.",
    ),
    Rule(
        "ZmqdataTaskDeaths",
        "{0} >= 3",
        ("increase(zmqdata_task_deaths_total[30m])",),
        "0m",
        "warning",
        "Worker processes die again and again at elements of job {{ $labels.job_name }}.",
        "Read the log of the workers. Raise --memory-limit, or correct the function that crashes.",
    ),
    Rule(
        "ZmqdataTaskStalled",
        "{0} > 0",
        ('zmqdata_tasks{state="stalled"}',),
        "5m",
        "warning",
        "{{ $value }} tasks of the dispatcher {{ $labels.instance }} make no progress.",
        "`zmqdata status` says what they are busy with. Set task_timeout to end calls that hang.",
    ),
    Rule(
        "ZmqdataJobFailed",
        "{0} > 0",
        ("zmqdata_failed_jobs",),
        "0m",
        "warning",
        "The dispatcher {{ $labels.instance }} had to end {{ $value }} jobs with an error.",
        "`zmqdata status` shows the error: an element that kills workers, a save that failed, or "
        "a task that cannot run. The training process of an ended job raises it, too.",
    ),
    Rule(
        "ZmqdataDispatcherDown",
        "{0} == 0",
        (f'up{{job="{SCRAPED}"}}',),
        "1m",
        "critical",
        "The dispatcher {{ $labels.instance }} does not answer.",
        "Workers and loops continue for a while without it. Start it again at the same address, "
        "with the same --work-dir.",
    ),
    Rule(
        "ZmqdataMemoryNearLimit",
        "{0} > 0.8",
        ("zmqdata_worker_private_bytes / (zmqdata_worker_memory_limit_bytes > 0)",),
        "2m",
        "warning",
        "The worker process {{ $labels.instance }} uses more than 80 % of its --memory-limit.",
        "At 90 % it is recycled between two elements. Raise --memory-limit, or look for a function "
        "that keeps elements.",
    ),
)


def dashboard() -> str:
    """Return the dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": 24, "x": 0, "y": top},
                "id": len(panels) + 1,
                "panels": [],
            }
        )
        width = 24 // min(len(row), 3) if len(row) != 4 else 12
        for at, panel in enumerate(row):
            place = divmod(at * width, 24)
            grid = {"h": 8, "w": width, "x": place[1], "y": top + 1 + 8 * place[0]}
            panels.append(_panel(panel, grid, len(panels) + 1))
        top += 1 + 8 * -(-len(row) * width // 24)
    whole = {
        "title": "zmqdata",
        "uid": "zmqdata",
        "description": "Does training wait for its input, and where? Made by "
        "tools/deploy_files.py.",
        "tags": ["zmqdata"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "templating": {"list": [_source(), _jobs()]},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }
    return json.dumps(whole, indent=2) + "\n"


SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def _source() -> dict[str, Any]:
    return {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }


def _jobs() -> dict[str, Any]:
    query = "label_values(zmqdata_elements_total, job_name)"
    return {
        "name": "job_name",
        "label": "Job",
        "type": "query",
        "datasource": SOURCE,
        "definition": query,
        "query": {"query": query, "refId": "jobs"},
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
        "hide": 0,
    }


def _panel(panel: Panel, grid: dict[str, int], number: int) -> dict[str, Any]:
    custom: dict[str, Any] = {"fillOpacity": 10, "showPoints": "never", "lineWidth": 2}
    if panel.is_stacked:
        custom |= {"fillOpacity": 40, "stacking": {"mode": "normal", "group": "A"}}
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "custom": custom}
    if panel.most is not None:
        defaults["max"] = panel.most
    options: dict[str, Any] = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    if panel.kind == "stat":
        del defaults["custom"]
        options = {
            "textMode": "name",
            "colorMode": "none",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        }
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.meaning,
        "id": number,
        "gridPos": grid,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": SOURCE,
                "expr": expression,
                "legendFormat": legend,
                "instant": panel.kind == "stat",
                "range": panel.kind != "stat",
            }
            for at, (expression, legend) in enumerate(panel.expressions)
        ],
    }


def alerts() -> str:
    """Return the alert rules as Prometheus reads them."""
    lines = [
        "# Made by tools/deploy_files.py. ZmqdataDispatcherDown needs a dispatcher that is",
        f"# scraped as `job_name: {SCRAPED}`.",
        "groups:",
        "  - name: zmqdata",
        "    rules:",
    ]
    for rule in RULES:
        lines += [
            f"      - alert: {rule.name}",
            f"        expr: {json.dumps(rule.condition)}",
            f"        for: {rule.lasts}",
            "        labels:",
            f"          severity: {rule.severity}",
            "        annotations:",
            f"          summary: {json.dumps(rule.summary)}",
            f"          remedy: {json.dumps(rule.remedy)}",
        ]
    return "\n".join(lines) + "\n"


def _metrics_table(metrics: Sequence[Metric]) -> str:
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for metric in metrics:
        names = ", ".join(f"`{name}`" for name in metric.shown)
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| {names} | {metric.kind} | {labels} | {metric.meaning} |")
    return "\n".join(rows)


def _alerts_table() -> str:
    rows = ["| alert | after | severity | remedy |", "|---|---|---|---|"]
    rows += [
        f"| `{rule.name}` | {rule.lasts} | {rule.severity} | {rule.remedy} |" for rule in RULES
    ]
    return "\n".join(rows)


def page() -> str:
    """Return the page of the metrics with up-to-date tables."""
    text = PAGE.read_text(encoding="utf-8")
    tables = {
        "<!-- metrics: dispatcher -->": _metrics_table(DISPATCHER),
        "<!-- metrics: worker -->": _metrics_table(WORKER),
        "<!-- alerts -->": _alerts_table(),
    }
    for mark, table in tables.items():
        filled = f"{mark}\n{table}\n{mark}"
        text = re.sub(rf"{mark}\n.*?{mark}", lambda _: filled, text, flags=re.DOTALL)  # noqa: B023
    return text


FILES = {DASHBOARD: dashboard, ALERTS: alerts, PAGE: page}

if __name__ == "__main__":
    for path, made in FILES.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made(), encoding="utf-8")
