"""The worked example of CONTRIBUTING, carried out unchanged."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full import full

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"`([\w/]+\.py)`[^`]*?(?:`STEPS` itself)?[^`]*?\n```python\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
CONCERNED = [
    "nodes/test_transforms.py",
    "iterators/test_transforms.py",
    "dataset/test_transforms.py",
]
CHECKED = [
    "dataset/test_describing.py",
    "iterators/test_random_trees.py",
    "test_docstrings.py::test_examples_show_what_comes[zmqdata.dataset.transforms]",
]


def example() -> list[tuple[str, str]]:
    """Return the files that the example extends, each with the added text."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split("## Adding an operation")[1].split("\n## ")[0]
    found = BLOCK.findall(section)
    assert len(found) == section.count("```python")
    return found


@pytest.mark.realprocess
@pytest.mark.timeout(300)
@pytest.mark.parametrize("further", [[], full(["test_house.py", "test_docstrings.py"])])
def test_the_worked_example_needs_nothing_else(tmp_path: Path, further: list[str]) -> None:
    """A copy of the repository with each block of the page added passes the tests. They
    include the tests that cover all operations.
    """
    copy = tmp_path / "copy"
    hidden = shutil.ignore_patterns(
        ".git", ".venv*", ".hypothesis", ".*_cache", "__pycache__", "build", "dist"
    )
    shutil.copytree(ROOT, copy, ignore=hidden)
    for name, block in example():
        with (copy / name).open("a", encoding="utf-8") as file:
            file.write(block)
    tests = [str(copy / "tests" / name) for name in CONCERNED + CHECKED + further]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    ended = subprocess.run(
        command, cwd=copy, capture_output=True, text=True, timeout=290, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
    assert {name.split("/")[0] for name, _ in example()} == {"zmqdata", "tests"}
