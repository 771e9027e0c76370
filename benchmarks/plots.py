"""Figures as SVG, by matplotlib; without matplotlib nothing is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import MACHINE, OURS, PEERS
from benchmarks.report import number

COLOURS = {OURS: "#1b7837", MACHINE: "#999999"}
OTHERS = ("#762a83", "#e08214", "#2166ac", "#b2182b")


def colour(peer: str) -> str:
    rest = [name for name in PEERS if name not in COLOURS]
    return COLOURS.get(peer) or OTHERS[rest.index(peer) % len(OTHERS)]


def draw_cases(found: dict[str, Any], target: Path) -> bool:
    """Draw the throughput of each peer as bars, with a panel for each case; return
    False without matplotlib.
    """
    plt = _pyplot()
    cases = [
        case for case in found["cases"] if case["unit"] == "elements/s" and len(bars(case)) > 1
    ]
    if plt is None or not cases:
        return False
    figure, panels = plt.subplots(
        -(-len(cases) // 3), 3, figsize=(12, 1.9 * -(-len(cases) // 3)), squeeze=False
    )
    for panel in panels.flat[len(cases) :]:
        panel.set_axis_off()
    for case, panel in zip(cases, panels.flat, strict=False):
        drawn = bars(case)
        colours = [colour(peer) for peer, _ in drawn.values()]
        # From zero, since readers compare the length of bars; labels make small bars
        # readable.
        made = panel.barh(list(drawn), [value for _, value in drawn.values()], color=colours)
        panel.bar_label(made, [number(value) for _, value in drawn.values()], padding=2, fontsize=7)
        panel.set_title(case["case"], fontsize=9)
        panel.set_xlabel("elements/s", fontsize=7)
        panel.set_xticks([])
        panel.margins(x=0.25)
        panel.invert_yaxis()
        panel.tick_params(labelsize=7)
    _save(figure, target)
    return True


def bars(case: dict[str, Any]) -> dict[str, tuple[str, float]]:
    """Return peer and value by label: zmqdata's default, each way of the machine, the
    best complete way of the others.
    """
    most = max((len(way["values"]) for way in case["ways"]), default=0)
    whole = [way for way in case["ways"] if way["values"] and len(way["values"]) == most]
    found: dict[str, tuple[str, float]] = {}
    for peer in PEERS:
        own = sorted(
            (way for way in whole if way["peer"] == peer), key=lambda way: -float(way["median"])
        )
        if peer == MACHINE:
            found |= {way["setting"]: (peer, way["median"]) for way in own}
        elif own:
            first = case["shown"] if peer == OURS else None
            shown = next((way for way in own if way["setting"] == first), own[0])
            found[PEERS[peer]] = (peer, shown["median"])
    return found


def draw_curve(curve: dict[str, Any], target: Path) -> bool:
    """Draw lines over a quantity, with logarithmic axes; return False without
    matplotlib.

    Args:
        curve: labels ``title``, ``x`` and ``y``, and ``lines``: lists of points by
            name.
        target: path of the SVG file.
    """
    plt = _pyplot()
    if plt is None:
        return False
    figure, panel = plt.subplots(figsize=(6, 3.6))
    for name, points in curve["lines"].items():
        if points:
            panel.plot(*_columns(points), marker="o", markersize=3, label=name)
    panel.set(
        title=curve["title"], xlabel=curve["x"], ylabel=curve["y"], xscale="log", yscale="log"
    )
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    _save(figure, target)
    return True


def _columns(points: Sequence[Sequence[float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("svg")
    # Equal figures give equal files.
    matplotlib.rcParams["svg.hashsalt"] = "zmqdata"
    import matplotlib.pyplot as plt

    return plt


def _save(figure: Any, target: Path) -> None:
    figure.tight_layout()
    figure.savefig(target, metadata={"Date": None})
    _pyplot().close(figure)
