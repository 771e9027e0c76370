"""Tests of the measured cost of failure handling."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import zmqdata
from benchmarks.reliability import GUARDS

NAMED = [
    (module, name)
    for modules in GUARDS.values()
    for module, names in modules.items()
    for name in sorted(names)
]


@pytest.mark.parametrize(("module", "name"), NAMED)
def test_what_is_looked_for_is_there(module: str, name: str) -> None:
    """Every measured function exists, as a renamed function would seem to cost
    nothing.
    """
    tree = ast.parse((Path(zmqdata.__file__).parent / module).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
