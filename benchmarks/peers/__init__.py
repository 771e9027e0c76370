"""Who is measured: one module each, with a class ``Measured`` and its ``SETTINGS``:
what each of them means.

A peer is imported only in the process that measures it, so that no library disturbs
another one.
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
    """The module of a peer.

    Raises:
        ModuleNotFoundError: its library is not installed.
    """
    return importlib.import_module(f"benchmarks.peers.{MODULES[peer]}")
