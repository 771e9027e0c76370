"""Tests of the release tool: its refusals and its output."""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools import release
from tools.release import ReleaseError

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ("zmqdata/__init__.py", "zmqdata/py.typed")
WHEEL = (*LIBRARY, "zmqdata-0.2.0.dist-info/licenses/LICENSE")
SDIST = (*LIBRARY, "pyproject.toml", "LICENSE")


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3rc1", "01.2.3", ""])
def test_other_versions_are_refused(version: str) -> None:
    """A release version has three numbers without leading zeros."""
    with pytest.raises(ReleaseError, match="Name three numbers"):
        release.parsed(version)


@pytest.mark.parametrize(
    ("version", "accepted"), [("0.9.9", False), ("0.10.0", False), ("0.10.1", True)]
)
def test_versions_rise(version: str, accepted: bool) -> None:
    """A version must exceed all version tags numerically; other tags are ignored."""
    tags = ["v0.2.0", "v0.10.0", "v9", "nightly"]
    if accepted:
        release.check_order(version, tags)
        return
    with pytest.raises(ReleaseError, match=r"not higher than 0\.10\.0"):
        release.check_order(version, tags)


@pytest.mark.parametrize(
    "heading", ["## 0.2.0 (2026-12-24)", "## [0.2.0] - 2026-12-24", "## 0.2.0, 2026-12-24"]
)
def test_a_changelog_with_the_version_is_accepted(heading: str) -> None:
    """A changelog entry with the version, a date and a text is accepted."""
    release.check_changelog("0.2.0", f"# Changelog\n\n{heading}\n\n* News.\n\n## 0.1.0\n")


@pytest.mark.parametrize(
    ("changelog", "complaint"),
    [
        ("## 0.2.01 (2026-12-24)\n\n* News.\n", "no entry"),
        ("## 0.2.0 (not released)\n\n* News.\n", "no date"),
        ("## 0.2.0 (2026-12-24)\n\n## 0.1.0 (2026-01-01)\n\n* Old.\n", "empty"),
    ],
)
def test_a_changelog_without_the_version_is_refused(changelog: str, complaint: str) -> None:
    """The tool tells a missing changelog entry from a missing date or text."""
    with pytest.raises(ReleaseError, match=complaint):
        release.check_changelog("0.2.0", changelog)


def test_the_version_is_written_where_it_stands() -> None:
    """Only the version in pyproject.toml changes, and a missing version is an error."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    changed = release.with_version(text, "98.7.6")
    old, new = text.splitlines(), changed.splitlines()
    [difference] = [pair for pair in zip(old, new, strict=True) if pair[0] != pair[1]]
    assert difference[1].startswith('version = "98.7.6"')
    with pytest.raises(ReleaseError, match="states 0 versions"):
        release.with_version("[project]\n", "0.2.0")


def packages(
    folder: Path, in_wheel: tuple[str, ...], in_sdist: tuple[str, ...]
) -> tuple[Path, Path]:
    """Create a wheel and an sdist with empty files."""
    wheel, sdist = folder / "w.whl", folder / "s.tar.gz"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in in_wheel:
            archive.writestr(name, "")
    with tarfile.open(sdist, "w:gz") as tar:
        for name in in_sdist:
            tar.addfile(tarfile.TarInfo(f"zmqdata-0.2.0/{name}"), io.BytesIO())
    return wheel, sdist


def test_packages_hold_the_library(tmp_path: Path) -> None:
    """A package with the library, its testing module, the license and the metadata is
    accepted.
    """
    more = ("zmqdata/testing/clock.py",)
    release.check_contents(*packages(tmp_path, (*WHEEL, *more), (*SDIST, *more)))


@pytest.mark.parametrize(
    ("in_wheel", "in_sdist", "named"),
    [
        ((*WHEEL, "tests/test_x.py"), SDIST, "tests/test_x.py"),
        ((*WHEEL, "tools/release.py"), SDIST, "tools/release.py"),
        (WHEEL, (*SDIST, "zmqdata/__pycache__/x.pyc"), "zmqdata/__pycache__/x.pyc"),
        (WHEEL, (*SDIST, ".venv-3.12/bin/python"), ".venv-3.12/bin/python"),
        (WHEEL, (*SDIST, ".mypy_cache/x.json"), ".mypy_cache/x.json"),
        (WHEEL[1:], SDIST, "zmqdata/__init__.py"),
        (WHEEL[:-1], SDIST, "LICENSE"),
        (WHEEL, SDIST[:-1], "LICENSE"),
    ],
)
def test_other_packages_are_refused(
    tmp_path: Path, in_wheel: tuple[str, ...], in_sdist: tuple[str, ...], named: str
) -> None:
    """The error about a package names superfluous and missing files."""
    with pytest.raises(ReleaseError, match=re.escape(named)):
        release.check_contents(*packages(tmp_path, in_wheel, in_sdist))


def test_the_page_has_the_commands_that_are_printed() -> None:
    """docs/releasing.md contains the commands that the tool prints."""
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    commands = release.next_commands("0.2.0", ["zmqdata-0.2.0*"], "main")
    assert [command for command in commands if command not in page] == []
