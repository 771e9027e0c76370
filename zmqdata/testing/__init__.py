"""Tools for tests of pipelines and training programs that use zmqdata: a service in
simulated time, a network that fails by seed, and checks.

>>> from zmqdata.dataset import Dataset
>>> from zmqdata.testing import SimulatedService
>>> with SimulatedService() as service:
...     sum(int(element) for element in service.read(Dataset.range(5)))
10
"""

from __future__ import annotations

from zmqdata.testing.clock import Clock
from zmqdata.testing.iterators import NotResumable, check_iterator
from zmqdata.testing.network import CALM, Faults, SimulatedNetwork
from zmqdata.testing.service import SimulatedService
from zmqdata.testing.turns import StuckPipeline

__all__ = [
    "CALM",
    "Clock",
    "Faults",
    "NotResumable",
    "SimulatedNetwork",
    "SimulatedService",
    "StuckPipeline",
    "check_iterator",
]
