"""Tests of the tools that install versions of Python and run the tests on them."""

from __future__ import annotations

import os
import re
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


@pytest.mark.parametrize("part", [*test_pythons.FAST, *test_pythons.LEFT_OUT])
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


def test_packages_that_are_left_out_are_in_the_lock() -> None:
    """Each package that only checks the code has an entry in the lock, and without
    these entries the lock still has all others.
    """
    text = test_pythons.LOCK.read_text(encoding="utf-8")

    def names(lock: str) -> set[str]:
        return set(re.findall(r"^([a-z][\w-]*)==", lock, re.MULTILINE))

    kept = names(test_pythons.without(test_pythons.CHECKERS, text))
    assert names(text) - kept == test_pythons.CHECKERS
    assert kept >= {"numpy", "pytest", "hypothesis", "pyzmq"}


def test_an_outcome_is_one_line() -> None:
    """The line of a run has version, tests and seconds, or the failure's reason."""
    python = test_pythons.Interpreter("3.12", "3.12.1", "/bin/python3.12")
    assert str(test_pythons.Outcome(python, 12, 3.4, "")) == "Python 3.12.1: 12 passed in 3 s"
    failed = test_pythons.Outcome(python, 12, 3.4, "1 failed, 12 passed in 3.4s")
    assert str(failed) == "Python 3.12.1: FAILED after 3 s: 1 failed, 12 passed in 3.4s"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on a machine without any Python; a system can be brought into it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    return tmp_path / "system"


def bring(system: Path, version: str) -> None:
    """Make a brought system that has the name of an interpreter."""
    programs = system / "usr" / "bin"
    programs.mkdir(parents=True)
    (programs / f"python{version}").touch()
    (system / bring_python.MARK).write_text(bring_python.COMPLETE, encoding="utf-8")


@pytest.mark.parametrize("quick", [[], ["--quick"]])
def test_a_version_that_is_named_must_be_tested(
    bare: Path, capsys: pytest.CaptureFixture[str], quick: list[str]
) -> None:
    """A version named on the command line that is absent fails the run, this version of
    Python included.
    """
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert test_pythons.main(["3.99", own, *quick, "--system", str(bare)]) == 1
    told = capsys.readouterr()
    assert told.err == f"failed: you named Python 3.99, {own}, which was not tested.\n"
    assert told.out.startswith(f"not present: Python 3.99, {own}; pyenv install brings")


def test_a_machine_without_any_python_fails(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that without any interpreter fails, and names all versions claimed."""
    assert test_pythons.main(["--system", str(bare)]) == 1
    told = capsys.readouterr()
    assert told.err == "failed: no Python was found, so nothing was tested.\n"
    assert f"not present: Python {', '.join(CLAIMED)};" in told.out


def test_a_quick_run_is_content_with_this_python(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quick run passes if this version, which it leaves out, is the only one."""
    assert test_pythons.main(["--quick", "--system", str(bare)]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert told.out.startswith(f"left out: Python {sys.version_info[0]}.{sys.version_info[1]},")


@pytest.mark.parametrize(
    ("is_brought", "user", "reason"),
    [(True, 1000, "needs root"), (True, 0, "cannot be started"), (False, 1000, "not present")],
)
def test_a_brought_python_needs_root(
    bare: Path, monkeypatch: pytest.MonkeyPatch, is_brought: bool, user: int, reason: str
) -> None:
    """A version in the brought system that cannot be started is told from an absent
    one, and the remedy is not to bring it again.
    """
    if is_brought:
        bring(bare, "3.14")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert test_pythons.find("3.14", bare) is None
    assert test_pythons.reason_of_absence("3.14", bare) == reason
    assert ("has brought it" in test_pythons.REMEDIES[reason]) == is_brought


def test_a_run_without_root_asks_for_it(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run that is not root's says of a brought version that it needs root."""
    bring(bare, "3.14")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert test_pythons.main(["3.14", "--system", str(bare)]) == 1
    told = capsys.readouterr()
    assert told.out.startswith("needs root: Python 3.14; ")
    assert "not present" not in told.out


def test_a_quick_run_takes_the_oldest_and_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick run tests two of the versions that are here, without its own."""
    here = [version for version in ("3.10", "3.11", "3.12", "3.13") if version in CLAIMED]
    ran: list[str] = []

    def test(interpreter: str, *_: object) -> test_pythons.Outcome:
        ran.append(interpreter)
        python = test_pythons.Interpreter(interpreter, interpreter, "python")
        return test_pythons.Outcome(python, 1, 0.1, "")

    monkeypatch.setattr(
        test_pythons, "find", lambda version, _: version if version in here else None
    )
    monkeypatch.setattr(test_pythons, "prepare", lambda _: "")
    monkeypatch.setattr(test_pythons, "test", test)
    assert test_pythons.main(["--quick"]) == 0
    others = [one for one in here if one != f"{sys.version_info[0]}.{sys.version_info[1]}"]
    assert ran == [others[0], others[-1]]


@pytest.mark.parametrize(("failure", "code"), [("", 0), ("it has no pip", 1)])
def test_environments_are_made_in_advance(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], failure: str, code: int
) -> None:
    """``--prepare`` makes the environment of each version, runs no test, and fails if
    an environment cannot be made.
    """
    python = test_pythons.Interpreter(CLAIMED[0], f"{CLAIMED[0]}.1", "python")
    monkeypatch.setattr(
        test_pythons, "find", lambda version, _: python if version == CLAIMED[0] else None
    )
    monkeypatch.setattr(test_pythons, "prepare", lambda _: failure)
    monkeypatch.setattr(test_pythons, "test", lambda *_: pytest.fail("it ran the tests"))
    assert test_pythons.main([CLAIMED[0], "--prepare"]) == code
    assert capsys.readouterr().out == f"Python {CLAIMED[0]}.1: {failure or 'ready'}\n"
