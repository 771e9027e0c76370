"""Results as tables and as JSON. Nothing is measured or written to files here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.cases import MACHINE, OURS, PEERS, Case, Goal, Way
from benchmarks.figures import Values, Verdict, best, verdict
from benchmarks.running import Result

NOTHING = "-"
FAILED = "failed"


def number(value: float) -> str:
    """Format a number with three significant digits."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def quantity(case: Case, value: float, weight: int) -> str:
    """Format a value with its unit: elements per second, also MB/s for large elements,
    or milliseconds.
    """
    if not case.more_is_better:
        return f"{value * 1000:,.0f} ms"
    if weight < 100_000:
        return f"{number(value)}/s"
    return f"{number(value)}/s, {number(value * weight / 1e6)} MB/s"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(result: Result, peer: str, weight: int) -> str:
    """Format a peer's result, or the reason why it has none: zmqdata's default, each
    way of the machine, the best way of the others.
    """
    case, own = (
        result.case,
        {way: values for way, values in result.measured.items() if way.peer == peer},
    )
    if peer in (OURS, MACHINE):
        shown = [way for way in case.ways if way in own and own[way].found][
            : 1 if peer == OURS else None
        ]
    else:
        leader = best(case, result.measured, peer)
        shown = [] if leader is None else [leader]
    if shown:
        told = (
            (quantity(case, own[way].median, weight), own[way].spread * 50, way.setting)
            for way in shown
        )
        return "; ".join(f"{value} ±{half:.0f} % ({setting})" for value, half, setting in told)
    errors = {values.error for values in own.values()} - {""}
    return (
        next(iter(errors), NOTHING) if all("not installed" in error for error in errors) else FAILED
    )


def overview(results: Sequence[Result], weights: dict[str, int]) -> str:
    """Format the overview, with a line for each case and a column for each peer."""
    taking_part = [
        peer for peer in PEERS if any(way.peer == peer for r in results for way in r.case.ways)
    ]
    rows = []
    for result in results:
        if result.skipped:
            rows.append(
                [
                    result.case.name,
                    f"skipped: {result.skipped}",
                    *[NOTHING] * (len(taking_part) - 1),
                ]
            )
        else:
            cells = [
                cell(result, peer, weights.get(result.case.element, 8)) for peer in taking_part
            ]
            rows.append([result.case.name, *cells])
    return table(["case", *(PEERS[peer] for peer in taking_part)], rows)


def aim(goal: Goal) -> str:
    """Format a goal."""
    return f"≥ {goal.least:g}" if goal.peer else f"< {goal.most * 1000:g} ms"


def against(goal: Goal, found: Verdict) -> str:
    """Format the peer that a goal compares with."""
    if not goal.peer:
        return NOTHING
    return str(
        found.theirs
        or (PEERS[goal.peer] + (f" ({', '.join(goal.settings)})" if goal.settings else ""))
    )


def outcome(found: Verdict) -> str:
    return {True: "yes", False: "**no**", None: "not measured"}[found.reached]


def goals(results: Sequence[Result]) -> str:
    """Format the goals, with a line for each."""
    rows = []
    for result in results:
        for goal in result.case.goals:
            found = verdict(result.case, result.measured, goal)
            value = within = NOTHING
            if found.value is not None and found.lowest is not None and found.highest is not None:
                scale, unit = (1, "") if goal.peer else (1000, " ms")
                value = number(found.value * scale) + unit
                within = f"{number(found.lowest * scale)} to {number(found.highest * scale)}{unit}"
            rows.append(
                [
                    result.case.name,
                    goal.ours,
                    against(goal, found),
                    value,
                    within,
                    aim(goal),
                    outcome(found),
                ]
            )
    return table(
        ["case", "zmqdata's setting", "against", "ratio", "from, to", "goal", "reached"], rows
    )


def every_way(results: Sequence[Result], weights: dict[str, int]) -> str:
    """Format all ways that were measured, including dropped and failed ways."""
    rows = []
    for result in results:
        weight = weights.get(result.case.element, 8)
        for way in result.case.ways:
            values = result.measured.get(way, Values([], "not measured"))
            if not values.found:
                rows.append(
                    [
                        result.case.name,
                        PEERS[way.peer],
                        way.setting,
                        short(values.error),
                        NOTHING,
                        "0",
                    ]
                )
                continue
            low, high = (
                quantity(result.case, value, weight)
                for value in (min(values.found), max(values.found))
            )
            told = quantity(result.case, values.median, weight)
            if values.error:
                told += f", then {short(values.error)}"
            line = [
                result.case.name,
                PEERS[way.peer],
                way.setting,
                told,
                f"{low} to {high}",
                str(len(values.found)),
            ]
            rows.append(line)
    return table(["case", "", "setting", "median", "from, to", "turns"], rows)


def short(error: str) -> str:
    """Shorten an error for a cell of a table."""
    return " ".join(error.replace("|", "/").split())[:120]


def page(results: Sequence[Result], weights: dict[str, int], told: str) -> str:
    """Format the whole report of a run."""
    parts = [
        told,
        "What must be reached, each ratio the median of those of the repetitions:",
        goals(results),
        "zmqdata as it comes, peers at their best settings: median, and half of the distance "
        "between the extremes.",
        overview(results, weights),
        "Each setting. Fewer turns: far behind another setting of the same peer, it was dropped, "
        "or it failed.",
        every_way(results, weights),
        "\n".join(
            f"* {result.case.name}: {result.case.note}" for result in results if result.case.note
        ),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def as_json(results: Sequence[Result], weights: dict[str, int], **more: Any) -> dict[str, Any]:
    """Return all values, with further items to keep."""
    return {
        **more,
        "cases": [_case(result, weights.get(result.case.element, 8)) for result in results],
    }


def _case(result: Result, weight: int) -> dict[str, Any]:
    case = result.case
    return {
        "case": case.name,
        "note": case.note,
        "unit": "elements/s" if case.more_is_better else "s",
        "element_bytes": weight,
        "workers": case.workers,
        "skipped": result.skipped,
        "shown": next((way.setting for way in case.ways if way.peer == OURS), ""),
        "ways": [_way(way, values) for way, values in result.measured.items()],
        "goals": [_goal(goal, verdict(case, result.measured, goal)) for goal in case.goals],
    }


def _way(way: Way, values: Values) -> dict[str, Any]:
    found = {"median": values.median, "spread": values.spread} if values.found else {}
    return {
        "peer": way.peer,
        "setting": way.setting,
        "values": values.found,
        "error": values.error,
        **found,
    }


def _goal(goal: Goal, found: Verdict) -> dict[str, Any]:
    kept = {name: getattr(found, name) for name in ("value", "lowest", "highest", "reached")}
    return {
        "ours": f"{OURS} ({goal.ours})",
        "against": against(goal, found),
        "goal": aim(goal),
        **kept,
    }
