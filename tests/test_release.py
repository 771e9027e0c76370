"""Tests of the release tool: its refusals and its output."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import zipfile
from datetime import date
from pathlib import Path

import pytest
from packaging.version import Version

from tools import release
from tools.release import ReleaseError

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ("zmqdata/__init__.py", "zmqdata/py.typed")
WHEEL = (*LIBRARY, "zmqdata-0.2.0.dist-info/licenses/LICENSE")
SDIST = (*LIBRARY, "pyproject.toml", "LICENSE")
TODAY = date(2026, 12, 24)
PROJECT = b'[project]\r\nversion = "0.1.0"\r\n'
REFUSALS = {
    "hook": "mkdir -p .git/hooks; echo 'exit 1' > .git/hooks/pre-commit; chmod +x .git/hooks/*",
    "identity": "git config --unset user.email; git config user.useConfigOnly true",
    "signature": "git config tag.gpgSign true; git config gpg.program false",
}
"""Commands that make git refuse a commit or a tag, by what is missing or forbids it."""


@pytest.mark.parametrize(
    "version",
    ["banana", "1.2", "1.2.3.4", "v1.2.3", "1.2.3rc1", "1.2.3-1", "01.2.3", "1.2.\N{TIBETAN DIGIT THREE}", "1.2.3\n", ""],
)  # fmt: skip
@pytest.mark.parametrize("tags", [[], ["v0.1.0"]])
def test_other_versions_are_refused(version: str, tags: list[str]) -> None:
    """A release version has three numbers without leading zeros, with or without
    earlier tags.
    """
    with pytest.raises(ReleaseError, match="Name three numbers"):
        release.check_order(version, tags)


@pytest.mark.parametrize("version", ["0.0.0", "0.2.0", "10.20.30"])
def test_versions_have_their_normal_form(version: str) -> None:
    """A release version that is accepted is the normal form of PEP 440."""
    assert release.parsed(version) == Version(version).release
    assert str(Version(version)) == version


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


@pytest.mark.parametrize("day", [TODAY, date(2024, 2, 29)])
@pytest.mark.parametrize(
    "entries", ["* News.", "- News.", "### Added\n\n* News.\n\n### Fixed\n\n* Old."]
)
def test_a_changelog_with_the_version_is_accepted(day: date, entries: str) -> None:
    """A changelog section with the version, a date that has come, and entries is
    accepted.
    """
    changelog = f"# Changelog\n\n## 0.2.0 ({day})\n\n{entries}\n\n## 0.1.0 (2024-01-01)\n"
    release.check_changelog("0.2.0", changelog, TODAY)


@pytest.mark.parametrize(
    ("changelog", "complaint"),
    [
        ("## 0.2.01 (2026-12-24)\n\n* News.\n", "no entry"),
        ("## 0.2.0-rc1 (2026-12-24)\n\n* News.\n", "no entry"),
        ("### 0.2.0 (2026-12-24)\n\n* News.\n", "no entry"),
        ("<!--\n## 0.2.0 (2026-12-24)\n\n* News.\n-->\n", "no entry"),
        ("## 0.2.0 (2026-12-24)\n\n* A.\n\n## 0.2.0 (2026-12-23)\n\n* B.\n", "2 entries"),
        ("## 0.2.0\n\n* News.\n", "no date"),
        ("## 0.2.0 (not released)\n\n* News.\n", "no date"),
        ("## 0.2.0 (not released, 2026-12-24)\n\n* News.\n", "no date"),
        ("## 0.2.0 (9999-99-99)\n\n* News.\n", "names no day"),
        ("## 0.2.0 (2026-02-29)\n\n* News.\n", "names no day"),
        ("## 0.2.0 (2026-12-25)\n\n* News.\n", "in the future: today is 2026-12-24"),
        ("## 0.2.0 (2026-12-24)\n\n## 0.1.0 (2026-01-01)\n\n* Old.\n", "empty"),
        ("## 0.2.0 (2026-12-24)\n\nSoon more.\n", "empty"),
        ("## 0.2.0 (2026-12-24)\n\n### Added\n", "empty"),
        ("## 0.2.0 (2026-12-24)\n\n### Added\n\n* \n", "empty"),
        ("## 0.2.0 (2026-12-24)\n\n### Added\n<!-- \n* News.\n-->\n", "empty"),
        ("## 0.2.0 (2026-12-24)\n\n### Added\n\n### Fixed\n\n* News.\n", "`Added` of 0.2.0"),
    ],
)
def test_a_changelog_without_the_version_is_refused(changelog: str, complaint: str) -> None:
    """The tool tells a missing changelog section from a missing, impossible or future
    date and from missing entries.
    """
    with pytest.raises(ReleaseError, match=complaint):
        release.check_changelog("0.2.0", changelog, TODAY)


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


def git(repository: Path, *arguments: str) -> str:
    """Return what git says in a repository."""
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=repository, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, and packages of an earlier release in ``dist/``."""
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{who}_EMAIL", raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    path = tmp_path / "repository"
    (path / "dist").mkdir(parents=True)
    (path / "pyproject.toml").write_bytes(PROJECT)
    (path / ".gitignore").write_text("dist/\n", encoding="utf-8")
    (path / "dist" / "old.whl").touch()
    git(path, "init", "--quiet", "--initial-branch", "main")
    git(path, "config", "user.name", "A")
    git(path, "config", "user.email", "a@example.org")
    git(path, "config", "core.autocrlf", "false")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "Begin")
    return path


def names(folder: Path) -> set[str]:
    """Return the names of the files in a folder."""
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("tag", [True, False])
def test_a_release_is_recorded(repository: Path, tmp_path: Path, tag: bool) -> None:
    """The packages and the version are put in place, and a tag names their commit if
    one is asked for.
    """
    release.record("0.2.0", packages(tmp_path, WHEEL, SDIST), tag, repository)
    assert names(repository / "dist") == {"w.whl", "s.tar.gz"}
    assert (repository / "pyproject.toml").read_bytes() == PROJECT.replace(b"0.1.0", b"0.2.0")
    assert git(repository, "tag", "--points-at", "HEAD") == ("v0.2.0" if tag else "")
    assert git(repository, "status", "--porcelain") == ("" if tag else "M pyproject.toml")


@pytest.mark.parametrize("lacking", REFUSALS)
def test_a_refused_release_changes_nothing(repository: Path, tmp_path: Path, lacking: str) -> None:
    """If git refuses the commit or the tag, the version, ``dist/`` and the branch stay
    as before.
    """
    subprocess.run(["sh", "-c", REFUSALS[lacking]], cwd=repository, check=True)
    head = git(repository, "rev-parse", "HEAD")
    with pytest.raises(ReleaseError, match="failed with exit code"):
        release.record("0.2.0", packages(tmp_path, WHEEL, SDIST), True, repository)
    assert (repository / "pyproject.toml").read_bytes() == PROJECT
    assert names(repository / "dist") == {"old.whl"}
    assert git(repository, "rev-parse", "HEAD") == head
    assert git(repository, "status", "--porcelain") + git(repository, "tag", "--list") == ""


def test_a_release_without_its_packages_changes_nothing(repository: Path, tmp_path: Path) -> None:
    """If a package cannot be copied, the version and ``dist/`` are as before, also if
    ``dist/`` did not exist.
    """
    for expected in ({"old.whl"}, None):
        if expected is None:
            (repository / "dist" / "old.whl").unlink()
            (repository / "dist").rmdir()
        with pytest.raises(FileNotFoundError):
            release.record("0.2.0", [tmp_path / "absent.whl"], False, repository)
        assert (repository / "pyproject.toml").read_bytes() == PROJECT
        made = repository / "dist"
        assert (names(made) if made.exists() else None) == expected
