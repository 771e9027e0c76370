"""Tests with a real Prometheus server, which scrapes a dispatcher and a worker while a
loop reads: ``make test-looking``.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.looking.prometheus import ASKED_FOR, INSTALLED
from tests.looking.scenes import Scene, played
from tests.metrics.scraped import get
from tools.deploy_files import ALERTS, ROWS, RULES, SCRAPED, Rule, dashboard
from zmqdata.metrics.declared import DISPATCHER, WORKER
from zmqdata.testing.cluster import await_condition, descendants

pytestmark = [ASKED_FOR, INSTALLED, pytest.mark.realprocess, pytest.mark.timeout(300)]

FOLDER = Path(__file__).parent
EXPRESSIONS = [
    (panel.title, expression)
    for _, row in ROWS
    for panel in row
    for expression, _ in panel.expressions
]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """A scene for all tests that end nothing."""
    with played(tmp_path_factory.mktemp("prometheus")) as made:
        yield made


def filled(expression: str) -> str:
    """Return an expression of the dashboard as Grafana sends it."""
    return expression.replace("$job_name", ".*").replace("$__rate_interval", "10s")


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS)
def test_each_panel_has_values(scene: Scene, title: str, expression: str) -> None:
    """Each expression of the dashboard has a value while a loop reads."""
    await_condition(
        lambda: any(
            math.isfinite(value) for _, value in scene.prometheus.query(filled(expression))
        ),
        20.0,
        f"a value of {expression}",
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_has_values(scene: Scene, rule: Rule) -> None:
    """The operands of each alert rule have values. The whole condition is understood,
    and does not hold while all is well.
    """
    for part in rule.parts:
        assert scene.prometheus.query(part), part
    if not rule.name.endswith("Bound"):  # this loop may wait or not
        assert scene.prometheus.query(rule.condition) == []


def test_each_metric_is_stored_under_its_name(scene: Scene) -> None:
    """Prometheus stores each declared metric, with its labels, and renames none."""
    for metrics, job in ((DISPATCHER, SCRAPED), (WORKER, "zmqdata-workers")):
        for metric in metrics:
            for name in metric.shown:
                found = scene.prometheus.query(f'{name}{{job="{job}"}}')
                assert found, name
                for labels, _ in found:
                    own = labels.keys() - {"__name__", "instance", "job"}
                    assert own == set(metric.labels), name


def test_the_menu_of_jobs_has_values(scene: Scene) -> None:
    """The names of jobs from which the dashboard's menu is made exist."""
    assert scene.prometheus.ask("label/job_name/values") == ["train"]


def test_the_metrics_pass_the_checks_of_promtool(scene: Scene) -> None:
    """``promtool check metrics`` finds no fault in what the servers answer."""
    for address in (scene.shown, *scene.of_workers):
        done = subprocess.run(
            ["promtool", "check", "metrics"],
            input=get(address)[1],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_the_rules_pass_the_checks_of_promtool() -> None:
    """``promtool check rules`` accepts the committed file."""
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(ALERTS)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_each_rule_fires_when_it_should(tmp_path: Path) -> None:
    """``promtool test rules``: each alert fires in a made situation, and not before or
    after it.
    """
    made = (FOLDER / "alerts_test.yml").read_text().replace("ALERTS", str(ALERTS))
    tested = set(re.findall(r"alertname: (\w+)", made))
    assert tested == {rule.name for rule in RULES}
    file = tmp_path / "alerts_test.yml"
    file.write_text(made)
    done = subprocess.run(
        ["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_grafana_understands_the_dashboard() -> None:
    """The types of Grafana's own library read the committed dashboard, with each panel
    and expression.
    """
    pytest.importorskip("grafana_foundation_sdk", reason="grafana-foundation-sdk is missing")
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    found = Dashboard.from_json(json.loads(dashboard()))
    shown = [panel for panel in found.panels or [] if panel.type_val != "row"]
    assert [panel.title for panel in shown] == [panel.title for _, row in ROWS for panel in row]
    assert [target.expr for panel in shown for target in panel.targets or []] == [
        expression for _, expression in EXPRESSIONS
    ]


def test_a_lost_worker_fires_an_alert(tmp_path: Path) -> None:
    """An alert fires soon after a worker process was killed, and not before."""
    with played(tmp_path) as scene:
        assert "ZmqdataWorkerLost" not in scene.prometheus.firing()
        os.kill(descendants(scene.worker.pid)[0], signal.SIGKILL)
        await_condition(
            lambda: "ZmqdataWorkerLost" in scene.prometheus.firing(), 60.0, "the alert of the loss"
        )
