"""Facts about what is measured of the price of failures."""

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
    """A function that has another name by now would be counted as costing nothing."""
    tree = ast.parse((Path(zmqdata.__file__).parent / module).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
