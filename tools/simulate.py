"""Run simulated worlds until interrupted: ``make simulate``.

    python -m tools.simulate [--first 0] [--count N] [--kind plain --kind saving ...]
    python -m tools.simulate --mutation ends-at-once

A third of the worlds act within the last steps, or start a program again.
A world that breaks a law ends the run with its seed and its story;
``--first SEED --count 1`` reproduces it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time

from tests.kit.checks import LawBroken
from tests.kit.kinds import KINDS
from tests.kit.mutations import MOST_WORLDS, MUTATIONS, broken_by
from tests.kit.scenario import Scenario

DEAR = {"crowded": 50}
"""Kinds of which only every so many-th seed is run, unless they are chosen."""
EVERY = 30.0
"""Seconds between two progress lines."""


def main() -> int:
    """Run worlds; return 1 if a world has broken a law."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="number of seeds; unlimited if left out")
    parser.add_argument(
        "--kind", action="append", choices=sorted(KINDS), help="kinds of worlds; all if left out"
    )
    parser.add_argument(
        "--mutation", choices=sorted(MUTATIONS), help="change the core, and expect a broken law"
    )
    chosen = parser.parse_args()
    if chosen.mutation is not None:
        return _find(chosen.mutation, chosen.first, chosen.count or MOST_WORLDS)
    kinds = chosen.kind or list(KINDS)
    seeds = (
        itertools.count(chosen.first)
        if chosen.count is None
        else range(chosen.first, chosen.first + chosen.count)
    )
    lived, said = 0, time.monotonic()
    for seed in seeds:
        for kind in kinds:
            if not chosen.kind and seed % DEAR.get(kind, 1):
                continue
            try:
                Scenario(seed, KINDS[kind]).run()
            except (LawBroken, AssertionError) as broken:
                print(f"{kind} world of seed {seed} after {lived} others:\n{broken}")
                return 1
            lived += 1
        if time.monotonic() - said >= EVERY:
            said = time.monotonic()
            print(f"{lived} worlds, seeds {chosen.first} to {seed}: no law broken", flush=True)
    print(f"{lived} worlds: no law broken")
    return 0


def _find(name: str, first: int, most: int) -> int:
    """Return 1 if no world of so many notices a mutation."""
    found = broken_by(MUTATIONS[name], first, most)
    if found is None:
        print(f"{name}: no law broken in {most} worlds")
        return 1
    worlds, broken = found
    print(f"{name}: world {worlds} breaks a law: {str(broken).splitlines()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
