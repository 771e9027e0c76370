"""The page ``docs/mixing.md`` is true, and its programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).resolve().parents[1] / "docs/mixing.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_programs_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    """The programs of the page run, one after the other, and print what it says."""
    names: dict[str, Any] = {}
    for program in PROGRAMS:
        exec(compile(program, "page", "exec"), names)
    assert capsys.readouterr().out.split("\n")[:-1] == re.findall(r"This prints `(.*?)`", TEXT)
