"""The kinds of simulated worlds, each a declaration: what is drawn, who joins, and what
may go wrong.

Add another kind here. It needs a program only if its readers do more than read all.
"""

from __future__ import annotations

from dataclasses import replace

from tests.kit.aimed import AIMED, CROWDED, SET_BACK
from tests.kit.packing import BalancingWorld, MixingWorld, PackingWorld
from tests.kit.relaunches import RELAUNCH
from tests.kit.resuming import RESUMING
from tests.kit.runs import RUNS
from tests.kit.saving import SAVING, SAVING_POISON
from tests.kit.scenario import ANOTHER, DEADLY, NEVER, RATES, TIMEOUTS, Kind, Scenario, from_poison
from tests.kit.sharing import SharingProgram

MODES = ("DYNAMIC", "DYNAMIC", "DYNAMIC", "OFF", "DATA")

PLAIN = Kind(
    draws=(
        {
            "mode": MODES,
            "client_timeout": TIMEOUTS,
            "shards": Scenario.draw_shards,
            "faults": Scenario.draw_faults,
        },
    ),
    joining={
        "add_worker": ((1, 2, 3, 4), (0.0, 0.0, 0.0, 5.0)),
        "add_reader": ((1, 2, 2, 3), (0.0, 0.0, 3.0)),
    },
    misfortunes="add_worker kill_worker*3 leave_worker drain_worker*2 slow_worker*2 add_client "
    "kill_client*2 close_client stall_client freeze_client*2 cut_worker*2 cut_client*2 cut_data "
    "isolate_client cut_dispatcher worsen crash_dispatcher crash_both",
    reader={"limit": (None, None, 1, 5), "rate": RATES},
)
"""Workers and readers of a job."""
POISON = replace(
    PLAIN,
    draws=(
        {"mode": lambda scene: from_poison(scene, "DYNAMIC", "DYNAMIC", "DATA", "OFF")},
        DEADLY,
        {
            "shards": lambda scene: (
                from_poison(scene, 1, 2, 3) if scene.drawn["mode"] == "DATA" else 0
            ),
            "faults": Scenario.draw_faults,
            "on_poison": "skip",
        },
    ),
)
"""Some elements kill the worker that produces them, and are skipped once they are
found.
"""
COORDINATED = replace(
    PLAIN,
    draws=(
        {
            "mode": ("DYNAMIC", "DYNAMIC", "OFF", "DATA"),
            "faults": Scenario.draw_faults,
            "client_timeout": TIMEOUTS,
            "shards": Scenario.draw_shards,
            "num_consumers": (1, 2, 3, 4),
            "finite": ("drop", "pad"),
            "consumer_timeout": NEVER,
            "num_tasks": lambda scene: (
                None if scene.drawn["mode"] == "OFF" else scene.random.choice([None, 1, 2, 5])
            ),
        },
    ),
    joining={
        **PLAIN.joining,
        "add_reader": (lambda scene: scene.drawn["num_consumers"], (0.0, 0.0, 3.0)),
    },
)
"""Numbered consumers, of which each that dies has a successor sooner or later."""
COORDINATED_POISON = replace(COORDINATED, draws=(DEADLY, *COORDINATED.draws, {"on_poison": "skip"}))
"""Numbered consumers, in whose rounds elements that kill are skipped once they are
found.
"""
SHARING = replace(
    PLAIN,
    draws=(
        {
            "splits": (3, 20, 60, 150),
            "repetitions": 1,
            "most": (1, 3, 8),
            "unit": (1, 1000, 60_000),
            "fails": (0, 0, 9),
            "slips": 0,
            "client_timeout": TIMEOUTS,
            "mode": MODES,
            "shards": lambda scene: scene.draw_shards(3),
            "faults": Scenario.draw_faults,
        },
    ),
    joining={
        "add_worker": ((1, 2, 3), (0.0, 0.0, 3.0)),
        "add_reader": ((2, 3, 4, 5), (0.0, 0.0, 5.0)),
    },
    reader={**PLAIN.reader, "pace": (0.0005, 0.005, 0.05, 0.05, 0.5), "gulp": (1, 1, 4)},
    program=SharingProgram,
)
"""Readers that share a job, which come late, leave, pause and die, often while they are
asked to give elements back.
"""
KINDS: dict[str, Kind] = {
    "plain": PLAIN,
    "coordinated": COORDINATED,
    "poison": POISON,
    "coordinated-poison": COORDINATED_POISON,
    "saving": SAVING,
    "saving-poison": SAVING_POISON,
    "resuming": RESUMING,
    "runs": RUNS,
    "sharing": SHARING,
    "aimed": AIMED,
    "aimed-too": replace(AIMED, offset=ANOTHER),
    "relaunch": RELAUNCH,
    "set-back": SET_BACK,
    "crowded": CROWDED,
    "mixing": replace(PLAIN, cluster=MixingWorld),
    "mixing-poison": replace(POISON, cluster=MixingWorld),
    "mixing-coordinated": replace(
        COORDINATED, draws=(*COORDINATED.draws, {"num_tasks": None}), cluster=MixingWorld
    ),
    "mixing-resuming": replace(
        RESUMING, draws=(*RESUMING.draws, {"num_tasks": None}), cluster=MixingWorld
    ),
    "packing": replace(PLAIN, cluster=PackingWorld),
    "packing-poison": replace(POISON, cluster=PackingWorld),
    "packing-coordinated": replace(
        COORDINATED, draws=(*COORDINATED.draws, {"num_tasks": None}), cluster=PackingWorld
    ),
    "balance": replace(
        COORDINATED, draws=(*COORDINATED.draws, {"num_tasks": None}), cluster=BalancingWorld
    ),
    "balance-resuming": replace(
        RESUMING, draws=(*RESUMING.draws, {"num_tasks": None}), cluster=BalancingWorld
    ),
    "packing-resuming": replace(
        RESUMING, draws=(*RESUMING.draws, {"num_tasks": None}), cluster=PackingWorld
    ),
}
"""All kinds, by name."""
