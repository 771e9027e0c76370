"""Tests that run README's code unchanged."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"


@pytest.mark.timeout(180)
@pytest.mark.realprocess
def test_the_quickstart_runs(tmp_path: Path) -> None:
    """README's first Python block, saved as a script, reads all elements from two
    worker processes and ends.
    """
    block = re.search(
        r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert block is not None
    script = tmp_path / "train.py"
    script.write_text(
        block[1].replace("        pass ", "        print(batch.shape, batch.dtype)"),
        encoding="utf-8",
    )
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=170, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert sum(int(re.findall(r"\d+", line)[0]) for line in lines) == 10_000
    assert {line.split(" float")[1] for line in lines} == {"32"}
