"""Tests of ``zmqdata.dashboard.report`` and of ``zmqdata report``."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.statuses import CLIENT, HOSTILE, answer, job, status
from zmqdata import DispatcherConfig, DispatchServer
from zmqdata.cli.commands import main
from zmqdata.dashboard.report import KINDS, page_file, report_of
from zmqdata.dashboard.watching import StatusWatch
from zmqdata.errors import UnavailableError

PAGES = Path(__file__).resolve().parent.parent.parent / "zmqdata" / "dashboard" / "pages"


def hostile_report() -> str:
    watch = StatusWatch(
        lambda: answer(status(2, [job(HOSTILE, advice=HOSTILE, failure=HOSTILE)])),
        threading.Event(),
    )
    watch.poll()
    return report_of(watch.whole())


def test_a_report_needs_no_network() -> None:
    """No file is referred to, and the policy forbids every request."""
    report = hostile_report()
    head = report.partition("<body>")[0]
    assert not re.search(
        r"\b(src|href)=\"(?!data:|#)", re.sub(r"<script.*?</script>", "", report, flags=re.S)
    )
    assert "default-src 'none'" in head


def test_the_policy_of_a_report_has_the_hashes_of_its_scripts() -> None:
    """Exactly the scripts and styles of the page are allowed."""
    report = hostile_report()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', report)
    assert policy is not None
    parts = [
        text
        for kind, text in re.findall(
            r"<(?:script|style)([^>]*)>(.*?)</(?:script|style)>", report, re.S
        )
        if "application/json" not in kind
    ]
    assert len(parts) == 4
    for text in parts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy[1]
    assert policy[1].count("sha256-") == 4


def test_hostile_texts_stay_texts() -> None:
    """A name that looks like HTML is in the JSON only, escaped."""
    report = hostile_report()
    assert "alert(2)" in report
    assert "<script>alert" not in report
    assert "<img" not in report
    content = re.search(r'<script type="application/json" id="report">(.*?)</script>', report)
    assert content is not None
    assert json.loads(content[1])["view"]["jobs"][0]["job"] == HOSTILE


def test_a_report_has_no_ids() -> None:
    """Ids of clients are replaced, in events, too."""
    assert CLIENT not in hostile_report()


def test_each_file_of_the_page_is_served_and_packed() -> None:
    """The list of files is that of the folder; each is package data."""
    assert {path.name for path in PAGES.iterdir()} == set(KINDS)
    for name in KINDS:
        assert page_file(name)


def test_the_page_has_no_inline_script_or_style() -> None:
    """A strict policy allows all of the page, and it refers to nothing elsewhere."""
    page = page_file("index.html").decode()
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script>", page)
    assert not re.search(r"https?://", page)
    script = page_file("dashboard.js").decode()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)
    assert not re.search(r"https?://", script + page_file("dashboard.css").decode())


def test_the_licence_of_the_plots_is_beside_them() -> None:
    """uPlot comes with its licence, and names its version."""
    assert "The MIT License" in page_file("uPlot.LICENSE.txt").decode()
    assert b"uPlot (v1.6." in page_file("uPlot.iife.min.js")[:100]


def test_the_command_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`zmqdata report` writes one file, and says so."""
    path = tmp_path / "report.html"
    with DispatchServer(DispatcherConfig()) as dispatcher:
        code = main(["report", str(path), "--dispatcher", dispatcher.target, "--seconds", "0"])
    assert (code, capsys.readouterr().out) == (0, f"wrote {path}\n")
    assert dispatcher.target in path.read_text()


def test_a_report_of_no_dispatcher_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer there is an error, and no file."""
    monkeypatch.setattr("zmqdata.dashboard.watching.PATIENCE", 0.2)
    path = tmp_path / "report.html"
    assert main(["report", str(path), "--dispatcher", "tcp://127.0.0.1:1"]) == 1
    assert "No dispatcher has answered" in capsys.readouterr().err
    assert not path.exists()


def test_a_report_outlives_its_dispatcher(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the dispatcher stops answering, the report has its last status. The
    command says so and ends with code 1.
    """
    answers = [answer(status(2, [job("train")]))]

    def ask() -> dict[str, Any]:
        if not answers:
            raise UnavailableError("No dispatcher has answered.")
        return answers.pop()

    monkeypatch.setattr("zmqdata.dashboard.report.asker", lambda service, stopped: ask)
    path = tmp_path / "report.html"
    arguments = ["report", str(path), "--dispatcher", "tcp://127.0.0.1:1", "--seconds", "0.1"]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert said.out == f"wrote {path}\n"
    assert "the dispatcher stopped answering. No dispatcher has answered." in said.err
    content = re.search(r'id="report">(.*?)</script>', path.read_text())
    assert content is not None
    view = json.loads(content[1])["view"]
    assert [one["job"] for one in view["jobs"]] == ["train"]
    assert view["trouble"] == "No dispatcher has answered."


def test_a_file_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the file."""
    path = tmp_path / "none" / "report.html"
    with DispatchServer(DispatcherConfig()) as dispatcher:
        code = main(["report", str(path), "--dispatcher", dispatcher.target])
    assert code == 2
    assert str(path) in capsys.readouterr().err
