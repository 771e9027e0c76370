"""Tests of the files in ``deploy/`` and of the page that describes the metrics."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.deploy_files import ALERTS, DASHBOARD, FILES, PAGE, ROWS, RULES
from zmqdata.measures.verdict import VERDICTS
from zmqdata.metrics.declared import COUNTER, DISPATCHER, WORKER, Metric

METRICS = {one.name: one for one in (*DISPATCHER, *WORKER)}
SHOWN = {name: one for one in METRICS.values() for name in one.shown}
OF_PROCESSES = {
    "process_cpu_seconds_total",
    "process_open_fds",
    "process_max_fds",
    "up",
}
"""Metrics that prometheus-client or Prometheus itself makes."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_files_are_those_of_their_program(path: Path) -> None:
    """Each committed file is what ``python tools/deploy_files.py`` writes."""
    assert path.read_text(encoding="utf-8") == FILES[path]()


def expressions() -> list[str]:
    panels = [panel for _, row in ROWS for panel in row]
    return [
        *(expression for panel in panels for expression, _ in panel.expressions),
        *(rule.condition for rule in RULES),
    ]


def test_expressions_name_declared_metrics_and_labels() -> None:
    """Panels and rules use no metric, label or verdict that does not exist."""
    for expression in expressions():
        names = set(re.findall(r"\b(?:zmqdata|process)_\w+|\bup\b", expression))
        assert names <= SHOWN.keys() | OF_PROCESSES, expression
        for name, labels in re.findall(r"(zmqdata_\w+)\{([^}]*)\}", expression):
            used = set(re.findall(r"(\w+)=~?\"", labels))
            assert used <= set(SHOWN[name].labels), expression
        for verdict in re.findall(r'verdict="([^"]*)"', expression):
            assert verdict in VERDICTS


def test_each_panel_is_in_the_dashboard() -> None:
    """No panel of the dashboard covers another, and all have ids of their own."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    covered = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(covered) == len(set(covered))
    assert max(x for x, _ in covered) == 23
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_each_rule_says_what_to_do() -> None:
    """Each alert has a summary and a remedy, each of full sentences."""
    text = ALERTS.read_text(encoding="utf-8")
    assert text.count("- alert: ") == len(RULES)
    for rule in RULES:
        assert rule.summary.endswith("."), rule.name
        assert rule.remedy.endswith("."), rule.name
        assert json.dumps(rule.remedy) in text


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_names_follow_the_rules_of_prometheus(metric: Metric) -> None:
    """Counters end in ``_total`` and nothing else does; no label is called ``job`` or
    ``instance``, which Prometheus sets.
    """
    assert metric.name.startswith("zmqdata_")
    assert metric.name.endswith("_total") == (metric.kind == COUNTER)
    assert not {"job", "instance", "le", "quantile"} & set(metric.labels)


def test_the_page_names_files_and_rules() -> None:
    """The page names each alert, and the files to load."""
    text = PAGE.read_text(encoding="utf-8")
    for path in (ALERTS, DASHBOARD):
        assert f"../deploy/{path.parent.name}/{path.name}" in text
    assert set(re.findall(r"`(Zmqdata\w+)`", text)) == {rule.name for rule in RULES}
