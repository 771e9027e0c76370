"""Modules of the package that need a package which is not installed here."""

from __future__ import annotations

from importlib.util import find_spec

FRAMEWORKS = ("jax", "keras", "tensorflow", "torch")
NEEDS = {
    "zmqdata.hosts.daskworkers": "distributed",
    "zmqdata.torch.trainers": "transformers",
}
"""Further needs of modules."""


def is_missing(module: str) -> bool:
    """Return True if a module of the package needs a package that is not installed."""
    if module in NEEDS and find_spec(NEEDS[module]) is None:
        return True
    parts = module.split(".")
    return len(parts) > 1 and parts[1] in FRAMEWORKS and find_spec(parts[1]) is None
