"""Tests of the tools that install versions of Python and run the tests on them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tools import bring_python, test_pythons

ROOT = Path(__file__).resolve().parent.parent
CLAIMED = test_pythons.claimed((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_versions_claimed_are_those_of_the_classifiers() -> None:
    """The classifiers claim every version from the minimum on, and this version."""
    assert CLAIMED[0] == "3.10"
    assert [f"3.{minor}" for minor in range(10, 10 + len(CLAIMED))] == CLAIMED
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in CLAIMED


@pytest.mark.parametrize("part", [*test_pythons.QUICK, *test_pythons.FAST])
def test_the_fast_part_exists(part: str) -> None:
    """Each path of the fast part contains tests."""
    assert (ROOT / part).is_file() or list((ROOT / part).rglob("test_*.py"))


@pytest.mark.parametrize(
    ("text", "mirror"),
    [
        ("Types: deb\nURIs: ftp://a/debian\nSuites: sid\n", "ftp://a/debian"),
        ("Types: deb\nURIs: ftp://a/tools ftp://b/debian/\n", "ftp://b/debian/"),
        ("# deb ftp://a/debian x main\ndeb [arch=amd64 signed-by=/k] ftp://b/debian x main", "ftp://b/debian"),
        ("URIs: ftp://a/debian-security\ndeb ftp://a/ubuntu x main\n", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_mirror_is_that_of_apt(text: str, mirror: str | None) -> None:
    """The mirror is found in both formats of apt's sources; only Debian's archive
    counts.
    """
    assert bring_python.mirror_of([text]) == mirror


def test_a_folder_of_others_is_never_removed(tmp_path: Path) -> None:
    """Only a folder marked by the program is removed."""
    with pytest.raises(SystemExit, match="this program did not make it"):
        bring_python.remove(tmp_path)
    (tmp_path / bring_python.MARK).write_text("begun\n", encoding="utf-8")
    assert not bring_python.is_complete(tmp_path)
    bring_python.remove(tmp_path)
    assert not tmp_path.exists()
    bring_python.remove(tmp_path)


def test_interpreters_of_a_system_are_found(tmp_path: Path) -> None:
    """Interpreters are found by their own names; neighbouring programs are ignored."""
    programs = tmp_path / "usr" / "bin"
    programs.mkdir(parents=True)
    for name in ("python3", "python3.14", "python3.14-config", "python3.15"):
        (programs / name).touch()
    found = bring_python.interpreters(tmp_path)
    assert found == {one: Path(f"/usr/bin/python{one}") for one in ("3.14", "3.15")}


def test_a_name_without_an_interpreter_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that fails, or that has another version, counts as absent."""
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, text in {"python3.7": "exit 127", "python3.8": "echo '[3, 9, 1]'"}.items():
        (shims / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (shims / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert test_pythons.find("3.7", tmp_path) is None
    assert test_pythons.find("3.8", tmp_path) is None


def test_an_interpreter_is_found_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter of this process is found by its version."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    shims = tmp_path / "bin"
    shims.mkdir()
    (shims / f"python{version}").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")
    found = test_pythons.find(version, tmp_path)
    assert found is not None
    assert found.release == ".".join(map(str, sys.version_info[:3]))


def test_an_outcome_is_one_line() -> None:
    """The line of a run has version, tests and seconds, or the failure's reason."""
    python = test_pythons.Interpreter("3.12", "3.12.1", "/bin/python3.12")
    assert str(test_pythons.Outcome(python, 12, 3.4, "")) == "Python 3.12.1: 12 passed in 3 s"
    failed = test_pythons.Outcome(python, 12, 3.4, "1 failed, 12 passed in 3.4s")
    assert str(failed) == "Python 3.12.1: FAILED after 3 s: 1 failed, 12 passed in 3.4s"
