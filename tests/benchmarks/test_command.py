"""Tests of the command line without measurements, and of its plots."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks.curves import points
from benchmarks.plots import bars, draw_cases, draw_curve
from zmqdata.errors import UnavailableError

CURVE = {
    "title": "a curve",
    "x": "workers",
    "y": "elements/s",
    "lines": {"zmqdata": [[1, 10], [2, 20]], "none": []},
}
WAYS = [
    {"peer": "zmqdata", "setting": "default", "values": [2.0, 2.0], "median": 2.0},
    {"peer": "zmqdata", "setting": "tcp", "values": [3.0, 3.0], "median": 3.0},
    {"peer": "tfdata", "setting": "AUTO", "values": [9.0], "median": 9.0},
    {"peer": "tfdata", "setting": "uncompressed", "values": [4.0, 4.0], "median": 4.0},
    {"peer": "torch", "setting": "numpy", "values": [], "error": "failed"},
    {"peer": "bare", "setting": "memcpy", "values": [8.0, 8.0], "median": 8.0},
    {"peer": "bare", "setting": "raw TCP", "values": [7.0, 7.0], "median": 7.0},
]
FOUND: dict[str, Any] = {
    "cases": [{"case": "images", "unit": "elements/s", "shown": "default", "ways": WAYS}]
}


def test_a_run_is_published_between_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Publishing replaces tables between the page's marks, with plots beside it."""
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    out.mkdir()
    begin, end = command.MARKS["throughput"]
    page = docs / "benchmarks.md"
    page.write_text(f"# Before\n{begin}\nold\n{end}\nbehind\n", encoding="utf-8")
    (out / "throughput.svg").write_text("<svg/>", encoding="utf-8")
    monkeypatch.setattr(command, "DOCS", docs)
    for tables in ("first\n", "second\n"):
        (out / "throughput.md").write_text(tables, encoding="utf-8")
        assert command.main(["publish", f"--out={out}"]) == 0
        assert page.read_text(encoding="utf-8") == f"# Before\n{begin}\n{tables}{end}\nbehind\n"
    assert (docs / "figures" / "throughput.svg").exists()


def test_nothing_is_published_where_nothing_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without results the page stays unchanged, and the error names the file."""
    before = (command.DOCS / "benchmarks.md").read_bytes()
    assert command.main(["publish", f"--out={tmp_path}"]) == 2
    assert "throughput.md" in capsys.readouterr().err
    assert (command.DOCS / "benchmarks.md").read_bytes() == before


def test_the_page_has_the_marks() -> None:
    """The documentation page has marks for each table."""
    text = (command.DOCS / "benchmarks.md").read_text(encoding="utf-8")
    for begin, end in command.MARKS.values():
        assert text.index(begin) < text.index(end)


@pytest.mark.parametrize("wrong", [["--cases", "pebbles"], ["--peers", "spark"]])
def test_a_wrong_name_ends_it_before_anything_is_measured(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An unknown case or peer is reported on standard error with the valid names."""
    assert command.main(["run", *wrong]) == 2
    assert wrong[1] in capsys.readouterr().err


def test_curves_are_chosen_by_name() -> None:
    """All curves are measured by default, and an unknown curve is rejected."""
    assert command.parser().parse_args(["curves"]).curves == []
    assert command.parser().parse_args(["curves", "splits", "journal"]).curves == [
        "splits",
        "journal",
    ]
    with pytest.raises(SystemExit):
        command.parser().parse_args(["curves", "sinus"])


def test_curves_of_earlier_runs_stay_on_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new curve is published beside earlier curves, each with its own machine."""
    docs, out = tmp_path / "docs", tmp_path / "out"
    docs.mkdir()
    begin, end = command.MARKS["curves"]
    page = docs / "benchmarks.md"
    page.write_text(f"{begin}\n{end}\n", encoding="utf-8")
    monkeypatch.setattr(command, "DOCS", docs)
    for name in ("journal", "splits"):
        monkeypatch.setitem(
            command.CURVES, name, lambda budget, tell, name=name: {**CURVE, "title": f"The {name}"}
        )
        assert command.main(["curves", name, f"--out={out / name}"]) == 0
        assert command.main(["publish", f"--out={out / name}"]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.index("The splits") < text.index(
        "The journal"
    )  # in the order of the list, not of measurement
    assert text.count(" cores (") == 2


def test_curves_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each curve is written as JSON with machine and budget, and all as a page."""
    monkeypatch.setitem(command.CURVES, "journal", lambda budget, tell: CURVE)
    assert command.main(["curves", "journal", "--seconds=2", f"--out={tmp_path}"]) == 0
    found = json.loads((tmp_path / "curve-journal.json").read_text(encoding="utf-8"))
    assert (found["lines"], found["budget"]["seconds"]) == (CURVE["lines"], 2.0)
    assert f"{found['machine']['cores']} cores" in (tmp_path / "curves.md").read_text(
        encoding="utf-8"
    )


def test_a_point_that_cannot_be_measured_is_left_out() -> None:
    """A failure at a point is reported and leaves out that point alone."""
    told: list[str] = []

    def measure(number: int) -> float:
        if number == 2:
            raise UnavailableError("it did not start")
        return 10.0 * number

    assert points((1, 2, 3), measure, told.append, "workers") == [(1, 10.0), (3, 30.0)]
    assert told[1] == "2 workers: not measured, it did not start"


def test_bars_show_what_the_overview_says() -> None:
    """The bars show our default, the machine's every way, and each peer's best setting.
    A setting counts only if all its repetitions were measured.
    """
    assert bars(FOUND["cases"][0]) == {
        "zmqdata": ("zmqdata", 2.0),
        "tf.data service": ("tfdata", 4.0),
        "memcpy": ("bare", 8.0),
        "raw TCP": ("bare", 7.0),
    }


def test_without_matplotlib_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without matplotlib the command skips the plots and nothing else."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    target = tmp_path / "plot.svg"
    assert [draw_curve(CURVE, target), draw_cases(FOUND, target)] == [False, False]
    assert not target.exists()


def test_plots_are_drawn(tmp_path: Path) -> None:
    """matplotlib draws cases and curves as SVG, without the missing measurements."""
    pytest.importorskip("matplotlib", reason="only the benchmark's own environment has it")
    for draw, found in ((draw_curve, CURVE), (draw_cases, FOUND)):
        target = tmp_path / f"{draw.__name__}.svg"
        assert draw(found, target)
        assert "<svg" in target.read_text(encoding="utf-8")
