"""Modules of the package that need a framework which is not installed here."""

from __future__ import annotations

from importlib.util import find_spec

FRAMEWORKS = ("jax", "keras", "tensorflow", "torch")


def is_missing(module: str) -> bool:
    """Return True if a module of the package needs a framework that is not
    installed.
    """
    if module == "zmqdata.torch.trainers" and find_spec("transformers") is None:
        return True
    parts = module.split(".")
    return len(parts) > 1 and parts[1] in FRAMEWORKS and find_spec(parts[1]) is None
