"""Command line of the benchmarks: ``run``, ``curves`` and ``publish``.

``run`` measures the table of cases, ``curves`` how costs grow, and ``publish`` copies a
run into the documentation.

    python -m benchmarks run [--quick] [--cases TEXT ...] [--peers PEER ...]
        [--repetitions N] [--seconds S] [--out DIR]
    python -m benchmarks curves [CURVE ...] [--out DIR]
    python -m benchmarks publish [--out DIR]
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.cases import CASES, PEERS, Case, chosen, quickly
from benchmarks.curves import CURVES
from benchmarks.machine import machine, told
from benchmarks.plots import draw_cases, draw_curve
from benchmarks.processes import ROOT
from benchmarks.report import as_json, page
from benchmarks.running import Budget, run
from benchmarks.workloads import weight

RESULTS = ROOT / "benchmarks" / "results"
DOCS = ROOT / "docs"
QUICK = Budget(repetitions=1, seconds=0.2, warm=0.05, patience=40.0)
MARKS = {name: (f"<!-- {name} -->", f"<!-- end of {name} -->") for name in ("throughput", "curves")}
"""Marks around the tables of a run and the plots of curves in the documentation."""


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def weights(cases: Sequence[Case]) -> dict[str, int]:
    """Return the bytes of each kind of element, without kinds that cannot be made
    here.
    """
    found = {}
    for case in cases:
        try:
            found[case.element] = weight(case.element)
        except ModuleNotFoundError as error:
            tell(f"{case.name}: {error.name} is not installed")
    return found


def budget_of(chosen_arguments: argparse.Namespace) -> Budget:
    names = ("repetitions", "seconds", "warm", "patience")
    return Budget(**{name: getattr(chosen_arguments, name) for name in names})


def run_cases(arguments: argparse.Namespace) -> int:
    """Measure cases, and write JSON, tables and a plot."""
    cases = list(chosen(arguments.cases, arguments.peers))
    before, budget = machine(), budget_of(arguments)
    if arguments.quick:
        cases, budget = [quickly(case) for case in cases], QUICK
    results, versions = run(cases, budget, tell)
    known = weights(cases)
    found = as_json(results, known, machine=before, versions=versions, budget=vars(budget))
    text = page(results, known, told(before, versions))
    write(arguments.out, "throughput.json", json.dumps(found, indent=1) + "\n")
    if draw_cases(found, arguments.out / "throughput.svg"):
        text += "\n![What each peer carried](figures/throughput.svg)\n"
    else:
        tell("matplotlib is not installed, or there is nothing to compare: no plot")
    write(arguments.out, "throughput.md", text)
    print(text)
    return 0


def run_curves(arguments: argparse.Namespace) -> int:
    """Measure curves, and write JSON and a plot of each."""
    budget = budget_of(arguments)
    here, versions = machine(), {"zmqdata": version("zmqdata")}
    for name in arguments.curves or CURVES:
        curve = CURVES[name](budget, tell)
        found = {"machine": here, "versions": versions, "budget": vars(budget), **curve}
        write(arguments.out, f"curve-{name}.json", json.dumps(found) + "\n")
        if not draw_curve(curve, arguments.out / f"curve-{name}.svg"):
            tell("matplotlib is not installed: no plot")
    write(arguments.out, "curves.md", curves_in(arguments.out))
    return 0


def curves_in(folder: Path) -> str:
    """Return all curves of a folder, which may come from several runs, with the machine
    of each.
    """
    parts = []
    for path in [folder / f"curve-{name}.json" for name in CURVES]:
        if path.exists():
            found = json.loads(path.read_text(encoding="utf-8"))
            drawn = path.with_suffix(".svg").exists()
            plot = f"![{found['title']}](figures/{path.stem}.svg)" if drawn else found["title"]
            parts += [plot, told(found["machine"], found.get("versions", {}))]
    return "\n\n".join(parts) + "\n"


def publish(arguments: argparse.Namespace) -> int:
    """Copy the last results into docs/benchmarks.md and docs/figures."""
    target = DOCS / "benchmarks.md"
    text = target.read_text(encoding="utf-8")
    measured = {name: path for name in MARKS if (path := arguments.out / f"{name}.md").exists()}
    if not measured:
        tell(
            f"Nothing was measured yet: {arguments.out} has no "
            f"{' or '.join(f'{name}.md' for name in MARKS)}"
        )
        return 2
    figures = DOCS / "figures"
    figures.mkdir(exist_ok=True)
    for kind in ("*.svg", "*.json"):
        for path in arguments.out.glob(kind):
            shutil.copy(path, figures)
    for name, path in measured.items():
        begin, end = MARKS[name]
        head, rest = text.split(begin)
        found = curves_in(figures) if name == "curves" else path.read_text(encoding="utf-8")
        text = head + begin + "\n" + found + end + rest.split(end)[1]
    target.write_text(text, encoding="utf-8")
    tell(f"{target} and {figures} have the run of {arguments.out}")
    return 0


def write(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0]
    )
    parts = whole.add_subparsers(dest="command", required=True)
    usual = Budget()
    for name, command in (("run", run_cases), ("curves", run_curves), ("publish", publish)):
        part = parts.add_parser(name, help=(command.__doc__ or "").partition("\n")[0])
        part.set_defaults(command=command)
        part.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
        if name == "publish":
            continue
        part.add_argument("--repetitions", type=int, default=usual.repetitions)
        part.add_argument("--seconds", type=float, default=usual.seconds, help="that a turn reads")
        part.add_argument(
            "--warm", type=float, default=usual.warm, help="seconds that it reads before"
        )
        part.add_argument(
            "--patience",
            type=float,
            default=usual.patience,
            help="seconds more before a peer is killed",
        )
        if name == "curves":
            part.add_argument(
                "curves", nargs="*", choices=[[], *CURVES], metavar="CURVE", help=", ".join(CURVES)
            )
        else:
            names = "; ".join(case.name for case in CASES)
            part.add_argument(
                "--quick", action="store_true", help="one short turn of fewer settings"
            )
            part.add_argument(
                "--cases", nargs="*", default=[], metavar="TEXT", help=f"in the name of: {names}"
            )
            part.add_argument(
                "--peers", nargs="*", default=[], metavar="PEER", help=", ".join(PEERS)
            )
    return whole


def interrupt(number: int, frame: object) -> None:
    """End the run on SIGTERM as on Ctrl-C, with all processes ended."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    try:
        return int(given.command(given))
    except ValueError as error:
        tell(str(error))
        return 2
    except KeyboardInterrupt:
        tell("interrupted; nothing is written")
        return 130


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, interrupt)
    sys.exit(main())
