"""Tests of the examples in the docstrings of the package and of the simulator."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.frameworks.missing import is_missing

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for folder in ("zmqdata", "tests/kit")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != "__main__.py" and ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_show_what_comes(name: str) -> None:
    """Each example runs and gives the output below it."""
    if is_missing(name):
        pytest.skip(f"{name} needs a framework that is not installed")
    ran = doctest.testmod(importlib.import_module(name))
    assert ran.failed == 0
    assert ran.attempted > 0
