"""Tests that run the programs of pages as they are printed. Those that want a framework
are run by ``tests/frameworks/test_pages.py``.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqdata.client.tasklog import LOGGER

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "docs/resuming.md",
    "docs/restarting.md",
    "docs/shipping-code.md",
    "docs/several-workers.md",
    "docs/poison.md",
    "docs/logging.md",
    "docs/testing.md",
]
PROGRAM = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = [
    pytest.param(program, id=f"{Path(page).stem}-{number}")
    for page in PAGES
    for number, program in enumerate(PROGRAM.findall((ROOT / page).read_text(encoding="utf-8")))
]


@pytest.fixture
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_threads: None) -> Iterator[Path]:
    """Yield the folder in which a program runs, from which it imports. What it
    configures of logging ends with the test.
    """
    log = logging.getLogger(LOGGER)
    level = log.level
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mylib", raising=False)
    yield tmp_path
    log.setLevel(level)


def run(program: str) -> dict[str, Any]:
    """Run a program as a script of its own, and return the names that it knows then."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program, "page", "exec"), names)
    return names


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_as_it_is_printed(program: str, at_home: Path) -> None:
    """The program needs no name that it does not import or make, and ends."""
    run(program)


def test_the_second_run_continues(at_home: Path) -> None:
    """The program of the page on resuming reads on where it stood when it saved."""
    (program,) = PROGRAM.findall((ROOT / "docs" / "resuming.md").read_text(encoding="utf-8"))
    assert run(program)["step"] >= 99
    assert run(program).get("step", -1) <= 20


def test_each_page_has_programs() -> None:
    """The pages have programs, of which each is run."""
    assert {parameter.id.rpartition("-")[0] for parameter in PROGRAMS if parameter.id} == {
        Path(page).stem for page in PAGES
    }
