"""The worked example of CONTRIBUTING, step by step."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full import full
from tests.test_ratchet import CODE

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = re.compile(
    r"`([\w/]+\.py)`[^`]*?(?:`STEPS` itself)?[^`]*?\n```python\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
TREES = "iterators/test_random_trees.py"
OF_ALL_OPERATIONS = [
    "dataset/test_describing.py",
    f"{TREES}::test_each_kind_continues_exactly_on_its_own",
    f"{TREES}::test_every_kind_of_node_is_drawn",
    "test_docstrings.py::test_examples_show_what_comes[zmqdata.dataset.transforms]",
    "test_ratchet.py::test_the_package_does_not_grow",
]
WHOLE = [
    "operations/test_limits.py",
    "dataset",
    TREES,
    "test_house.py",
    "test_ratchet.py",
    "test_docstrings.py",
]


def example() -> list[tuple[str, str]]:
    """Return the files that the example extends, each with the added text."""
    section = PAGE.split("## Adding an operation")[1].split("\n## ")[0]
    found = BLOCK.findall(section)
    assert len(found) == section.count("```python")
    return found


def follow(copy: Path) -> None:
    """Carry out the steps of the example in a copy of the repository."""
    for name, block in example():
        with (copy / name).open("a", encoding="utf-8") as file:
            file.write(block)
    growth = re.search(r"lines that you add, here (\d+),", " ".join(PAGE.split()))
    assert growth is not None
    ratchet = copy / "tests" / "test_ratchet.py"
    text = ratchet.read_text(encoding="utf-8")
    assert f"CODE = {CODE:_}\n" in text
    raised = text.replace(f"CODE = {CODE:_}\n", f"CODE = {CODE + int(growth[1]):_}\n")
    ratchet.write_text(raised, encoding="utf-8")


def added() -> list[str]:
    """Return the tests that the example adds."""
    return [
        f"{name.removeprefix('tests/')}::{test}"
        for name, block in example()
        for test in re.findall(r"^def (test_\w+)", block, re.MULTILINE)
    ]


@pytest.mark.realprocess
@pytest.mark.timeout(300)
@pytest.mark.parametrize("further", [OF_ALL_OPERATIONS, full(WHOLE)])
def test_the_worked_example_needs_nothing_else(tmp_path: Path, further: list[str]) -> None:
    """A copy of the repository in which the steps of the page were carried out passes
    ruff, the added tests and the tests that cover all operations.
    """
    assert len(added()) == 3
    copy = tmp_path / "copy"
    # The copied bytecode saves compiling. Files like "x.pyc.123" are being written.
    hidden = shutil.ignore_patterns(
        ".git", ".venv*", ".hypothesis", ".*_cache", "*.pyc.*", "build", "dist"
    )
    shutil.copytree(ROOT, copy, ignore=hidden)
    follow(copy)
    for check in (["check"], ["format", "--check"]):
        changed = [name for name, _ in example()]
        command = [sys.executable, "-m", "ruff", *check, "--no-cache", *changed]
        linted = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        assert linted.returncode == 0, linted.stdout
    tests = [str(copy / "tests" / name) for name in [*added(), *further]]
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
