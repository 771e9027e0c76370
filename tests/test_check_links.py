"""Tests of ``docs/check_links.py``, which finds broken links and paths of a page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "docs" / "check_links.py"


@pytest.fixture(scope="module")
def check_links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_links", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "count", "broken"),
    [
        ("`zmqdata/errors.py` `zmqdata/core/` `tests/test_*.py` `docs/design.md`", 4, []),
        ("`zmqdata/no_such.py`", 1, ["zmqdata/no_such.py: no such file"]),
        ("`tests/core/test_x*.py` `zmqdata status`", 1, ["tests/core/test_x*.py: no such file"]),
        ("[a](#here) [b](#there) [c](http://a.b)\n\n## Here", 2, ["#there: no such heading"]),
        ("```\n`zmqdata/no_such.py` [a](nowhere.md)\n```", 0, []),
    ],
)
def test_what_leads_nowhere(
    check_links: ModuleType, tmp_path: Path, text: str, count: int, broken: list[str]
) -> None:
    """Links are checked with their headings, and repository paths with their wildcards.
    Fenced text is skipped.
    """
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    assert check_links.faults(page) == (count, broken)
