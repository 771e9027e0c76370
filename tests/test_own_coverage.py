"""Tests of ``tools/own_coverage.py``, which names the tests of each module."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "tools" / "own_coverage.py"


@pytest.fixture(scope="module")
def own_coverage() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_coverage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("module", "is_measured"),
    [
        ("cli/commands.py", False),
        ("cli/tables.py", True),
        ("config/worker.py", False),
        ("config/endpoints.py", True),
        ("messages/links.py", False),
        ("worker/tasks/watch.py", False),
        ("core/worker/decider.py", True),
        ("splits.py", False),
        ("core/dispatcher/splits.py", True),
    ],
)
def test_modules_that_are_not_measured(
    own_coverage: ModuleType, module: str, is_measured: bool
) -> None:
    """Shells, whole commands and plain descriptions are not measured, but each module
    is that only has their name.
    """
    assert own_coverage.is_measured(module) is is_measured


def test_each_module_has_tests(own_coverage: ModuleType) -> None:
    """Each module has tests of its own name, or the tool names its tests, which
    exist.
    """
    wanted = {
        one for module in own_coverage.pure_modules() for one in own_coverage.own_tests(module)
    }
    wanted |= {f"tests/{one}" for told in own_coverage.UNMEASURED.values() for one in told.split()}
    assert [one for one in sorted(wanted) if not (ROOT / one).exists()] == []


def test_each_exception_is_one(own_coverage: ModuleType) -> None:
    """Each module or folder that the tool lists exists. A module with tests of its own
    name has no others, and no module reaches less than it is allowed to for nothing.
    """
    listed = own_coverage.UNMEASURED | own_coverage.TESTED_IN | own_coverage.BELOW
    assert [one for one in listed if not (ROOT / "zmqdata" / one).exists()] == []
    named = [
        Path("tests", one).with_name(f"test_{Path(one).name}") for one in own_coverage.TESTED_IN
    ]
    assert [one.as_posix() for one in named if (ROOT / one).exists()] == []
    assert own_coverage.BELOW.keys() <= {*own_coverage.pure_modules()}
    assert max(own_coverage.BELOW.values()) < own_coverage.REQUIRED
