"""Tests of ``tools/own_coverage.py``, which names modules with tests of their own."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "tools" / "own_coverage.py"


@pytest.fixture(scope="module")
def own_coverage() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_coverage", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("module", "is_left_out"),
    [
        ("cli/commands.py", True),
        ("cli/tables.py", False),
        ("config/worker.py", True),
        ("config/endpoints.py", False),
        ("messages/links.py", True),
        ("worker/tasks/watch.py", True),
        ("core/worker/decider.py", False),
        ("splits.py", True),
        ("core/dispatcher/splits.py", False),
    ],
)
def test_modules_without_tests_of_their_own(
    own_coverage: ModuleType, module: str, is_left_out: bool
) -> None:
    """Shells, whole commands and plain descriptions are left out, but no module that
    only has their name.
    """
    assert own_coverage.is_left_out(Path(module)) is is_left_out


def test_what_is_left_out_exists(own_coverage: ModuleType) -> None:
    """Each folder or module that is left out is one of the package."""
    package = own_coverage.ROOT / "zmqdata"
    assert [one for one in own_coverage.LEFT_OUT if not (package / one).exists()] == []
