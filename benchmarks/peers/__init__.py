"""The peers: a module each, with a class ``Measured`` and the meaning of its
``SETTINGS``.

A peer is imported only in the process that measures it, so that libraries do not
disturb each other.
"""

from __future__ import annotations

import importlib
from types import ModuleType

MODULES = {
    "zmqdata": "zmqdata_",
    "tfdata": "tfdata_service",
    "torch": "torch_loader",
    "grain": "grain_loader",
    "ray": "ray_data",
    "bare": "bare",
}


def load(peer: str) -> ModuleType:
    """Import the module of a peer.

    Raises:
        ModuleNotFoundError: its library is not installed.
    """
    return importlib.import_module(f"benchmarks.peers.{MODULES[peer]}")
