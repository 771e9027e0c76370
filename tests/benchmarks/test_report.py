"""Tests of tables and JSON from made-up results."""

from __future__ import annotations

import json

from benchmarks.cases import Case, Goal, Way
from benchmarks.figures import Values
from benchmarks.report import as_json, every_way, goals, overview, page, quantity
from benchmarks.running import Result

OURS, AUTO, PLAIN = Way("zmqdata", "default"), Way("tfdata", "AUTO"), Way("tfdata", "uncompressed")
NUMPY = Way("torch", "numpy")
GOALS = (Goal("default", 10, "tfdata"), Goal("default", 3, "torch"))
CASE = Case("images", "images", (OURS, AUTO, PLAIN, NUMPY), GOALS)
RESULT = Result(
    CASE,
    {
        OURS: Values([900.0, 1000.0, 1100.0]),
        AUTO: Values([1.0, 1.0], ""),
        PLAIN: Values([90.0, 100.0, 110.0]),
        NUMPY: Values([], "torch is not installed"),
    },
)
WEIGHTS = {"images": 150_000}


def test_the_overview_has_each_peer_at_its_best() -> None:
    """The overview shows each peer's best median, half its spread and its setting. It
    marks a missing library.
    """
    header, _, line = overview([RESULT], WEIGHTS).splitlines()
    assert header == "| case | zmqdata | tf.data service | torch DataLoader |"
    assert line == (
        "| images | 1,000/s, 150 MB/s ±10 % (default) | 100/s, 15 MB/s ±10 % (uncompressed) | "
        "torch is not installed |"
    )


def test_the_overview_has_us_as_we_come() -> None:
    """The overview shows our first setting even if another is better, and the machine's
    every way.
    """
    copying, sending = Way("bare", "memcpy"), Way("bare", "raw TCP")
    case = Case("limits", "scalars", (OURS, Way("zmqdata", "tcp"), copying, sending))
    values = dict(
        zip(case.ways, (Values([1.0]), Values([2.0]), Values([5.0]), Values([4.0])), strict=True)
    )
    line = overview([Result(case, values)], {}).splitlines()[-1]
    assert line == "| limits | 1/s ±0 % (default) | 5/s ±0 % (memcpy); 4/s ±0 % (raw TCP) |"


def test_each_goal_has_its_ratio_and_verdict() -> None:
    """The table of goals has ratios and verdicts, and marks unmeasured goals."""
    _, _, first, second = goals([RESULT]).splitlines()
    assert (
        first
        == "| images | default | tf.data service (uncompressed) | 10 | 10 to 10 | ≥ 10 | yes |"
    )
    assert second == "| images | default | torch DataLoader | - | - | ≥ 3 | not measured |"


def test_a_missed_goal_stands_out() -> None:
    """A missed goal is shown in bold, and a time in milliseconds."""
    case = Case("first", "scalars", (OURS,), (Goal("default", most=0.05),), "first")
    line = goals([Result(case, {OURS: Values([0.1, 0.2, 0.3])})]).splitlines()[-1]
    assert line == "| first | default | - | 200 ms | 100 to 300 ms | < 50 ms | **no** |"


def test_every_setting_is_told_with_its_number_of_turns() -> None:
    """The table shows turns of dropped settings and reasons of failed settings."""
    lines = every_way([RESULT], WEIGHTS).splitlines()[2:]
    assert [line.split(" | ")[-1] for line in lines] == ["3 |", "2 |", "3 |", "0 |"]
    assert "torch is not installed" in lines[-1]


def test_a_peer_that_failed_late_keeps_its_values() -> None:
    """A peer that fails late keeps its values, and the failure is a line without table
    marks.
    """
    failed = Result(CASE, {OURS: Values([5.0]), PLAIN: Values([2.0], "killed:\nlong | story")})
    line = every_way([failed], WEIGHTS).splitlines()[4]
    assert "| uncompressed | 2/s, 0.3 MB/s, then killed: long / story | 2/s, 0.3 MB/s to" in line
    assert line.endswith("| 1 |")


def test_a_skipped_case_says_why() -> None:
    """The table gives the reason for a skipped case."""
    assert "skipped: not permitted" in overview([Result(CASE, {}, "not permitted")], WEIGHTS)


def test_quantities_have_units() -> None:
    """Small elements are shown per second, large elements also in bytes, times in
    milliseconds.
    """
    seconds = Case("first", "scalars", (), (), "first")
    assert quantity(CASE, 1_234_567.0, 8) == "1,234,567/s"
    assert quantity(CASE, 1.234, 1_000_000) == "1.23/s, 1.23 MB/s"
    assert quantity(seconds, 0.0214, 8) == "21 ms"


def test_the_json_has_every_value() -> None:
    """The JSON contains every value, error and verdict, and the extra fields."""
    found = json.loads(json.dumps(as_json([RESULT], WEIGHTS, machine={"cores": 2})))
    [case] = found["cases"]
    assert found["machine"] == {"cores": 2}
    assert [way["values"] for way in case["ways"]] == [
        [900, 1000, 1100],
        [1, 1],
        [90, 100, 110],
        [],
    ]
    assert case["ways"][3]["error"] == "torch is not installed"
    assert [goal["reached"] for goal in case["goals"]] == [True, None]


def test_the_page_says_on_what_machine_it_was() -> None:
    """The page begins with the machine and the versions, and has all three tables."""
    text = page([RESULT], WEIGHTS, "2 cores.")
    assert text.startswith("2 cores.")
    assert text.count("| --- | --- |") >= 3
