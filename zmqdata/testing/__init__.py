"""Tools for tests of zmqdata and of code built on it: a clock that tests move, a
network that fails by seed, and checks.

>>> from zmqdata.testing import SimulatedPipeline, World
>>> world = World(seed=1, pipeline=SimulatedPipeline(splits=10))
"""

from __future__ import annotations

from zmqdata.testing.checks import LawBroken, Laws
from zmqdata.testing.clock import Clock
from zmqdata.testing.coordinated import CoordinatedPoisonScenario, CoordinatedScenario
from zmqdata.testing.iterators import NotResumable, check_iterator
from zmqdata.testing.network import CALM, Faults, SimulatedNetwork
from zmqdata.testing.resuming import ResumingScenario
from zmqdata.testing.runner import SimulatedPipeline, SimulatedRunner
from zmqdata.testing.runs import RunsScenario
from zmqdata.testing.scenario import PoisonScenario, Scenario
from zmqdata.testing.service import SimulatedService
from zmqdata.testing.sharing import SharingScenario, time_to_share
from zmqdata.testing.transcript import Transcript
from zmqdata.testing.turns import StuckPipeline
from zmqdata.testing.world import World

__all__ = [
    "CALM",
    "Clock",
    "CoordinatedPoisonScenario",
    "CoordinatedScenario",
    "Faults",
    "LawBroken",
    "Laws",
    "NotResumable",
    "PoisonScenario",
    "ResumingScenario",
    "RunsScenario",
    "Scenario",
    "SharingScenario",
    "SimulatedNetwork",
    "SimulatedPipeline",
    "SimulatedRunner",
    "SimulatedService",
    "StuckPipeline",
    "Transcript",
    "World",
    "check_iterator",
    "time_to_share",
]
