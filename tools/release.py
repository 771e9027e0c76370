"""Makes a release up to its tag: ``make release VERSION=x.y.z``.

Everything is built and checked in a copy. The working tree changes only when all checks
have passed, and a later failure restores it. Nothing leaves this machine.
``docs/releasing.md`` is the page for it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.compile(r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)")
"""The normal form of PEP 440, for a release with three numbers."""
DATED = re.compile(r" \(([0-9]{4}-[0-9]{2}-[0-9]{2})\)\s*")
COMMENT = re.compile(r"<!--.*?(-->|\Z)", re.DOTALL)
STATED = re.compile(r'^version = "([^"]+)"', re.MULTILINE)
UNWANTED = re.compile(
    r"(^|/)(tests?|benchmarks|\.?venv[^/]*|\.git|\.ci|__pycache__|\.[a-z]+_cache|\.hypothesis)(/|$)"
    r"|\.py[cod]$"
)
IMPORT = "import zmqdata; print(zmqdata.__version__)"


class ReleaseError(Exception):
    """Something is not as a release needs it; the text says what to do."""


def parsed(version: str) -> tuple[int, ...]:
    """Return the three numbers of a version.

    Raises:
        ReleaseError: it is no version of a release, in the normal form of PEP 440.

    >>> parsed("0.12.3")
    (0, 12, 3)
    """
    found = VERSION.fullmatch(version)
    if found is None:
        raise ReleaseError(f"`{version}` is no version. Name three numbers: VERSION=0.2.0")
    return tuple(map(int, found.groups()))


def check_order(version: str, tags: Iterable[str]) -> None:
    """Refuse what is no version, and a version that is not higher than every tag.

    Raises:
        ReleaseError: it has not three numbers, or a tag is as high.

    >>> check_order("0.2.0", ["v0.1.9", "other"])
    """
    wanted = parsed(version)
    released = [parsed(tag[1:]) for tag in tags if re.fullmatch(rf"v{VERSION.pattern}", tag)]
    highest = max(released, default=None)
    if highest is not None and wanted <= highest:
        raise ReleaseError(
            f"{version} is not higher than {'.'.join(map(str, highest))}, which has a tag already. "
            "Choose a higher version."
        )


def check_changelog(version: str, changelog: str, today: date) -> None:
    """Refuse a changelog without a dated section for the version that has entries.

    Raises:
        ReleaseError: the section is missing or occurs twice, its date is none or in the
            future, or one of its parts has no entry.

    >>> check_changelog("0.2.0", "## 0.2.0 (2026-01-01)\\n* News.", date(2026, 12, 24))
    """
    changelog = COMMENT.sub("", changelog)
    headings = [*re.finditer(rf"^## {re.escape(version)}(?!\S)(.*)$", changelog, re.MULTILINE)]
    if not headings:
        raise ReleaseError(f"CHANGELOG.md has no entry `## {version}`. Write what users notice.")
    if len(headings) > 1:
        raise ReleaseError(f"CHANGELOG.md has {len(headings)} entries `## {version}`. Keep one.")
    [heading] = headings
    _check_date(version, heading, today)
    section = re.split(r"^## ", changelog[heading.end() :], maxsplit=1, flags=re.MULTILINE)[0]
    parts = re.split(r"^###+ *(.*)$", section, flags=re.MULTILINE)
    titles, texts = [heading[0], *parts[1::2]], parts[::2]
    has_entry = [re.search(r"^[*-] +\S", text, re.MULTILINE) is not None for text in texts]
    if not any(has_entry):
        raise ReleaseError(
            f"The entry of {version} in CHANGELOG.md is empty. Write what changed, one line "
            "each that begins with `* `."
        )
    empty = [title for title, full in zip(titles[1:], has_entry[1:], strict=True) if not full]
    if empty:
        raise ReleaseError(
            f"The part `{empty[0]}` of {version} in CHANGELOG.md is empty. Write what changed, or "
            "remove the part."
        )


def _check_date(version: str, heading: re.Match[str], today: date) -> None:
    advice = f"Write today's date: `## {version} ({today})`."
    dated = DATED.fullmatch(heading[1])
    if dated is None:
        raise ReleaseError(
            f"The entry of {version} in CHANGELOG.md has no date: `{heading[0]}`. {advice}"
        )
    try:
        stated = date.fromisoformat(dated[1])
    except ValueError as error:
        raise ReleaseError(f"`{heading[0]}` in CHANGELOG.md names no day. {advice}") from error
    if stated > today:
        raise ReleaseError(
            f"`{heading[0]}` in CHANGELOG.md is in the future: today is {today}. {advice}"
        )


def with_version(project: str, version: str) -> str:
    """Return the text of pyproject.toml with another version.

    >>> with_version('[project]\\nversion = "0.1.0" # once\\n', "0.2.0")
    '[project]\\nversion = "0.2.0" # once\\n'
    """
    text, count = STATED.subn(f'version = "{version}"', project)
    if count != 1:
        raise ReleaseError(f"pyproject.toml states {count} versions instead of one.")
    return text


def unwanted(names: Iterable[str]) -> list[str]:
    """Return the files that belong into no package: tests, caches, environments.

    >>> unwanted(["zmqdata/wire.py", "tests/test_x.py", "zmqdata/__pycache__/x.pyc"])
    ['tests/test_x.py', 'zmqdata/__pycache__/x.pyc']
    """
    return [name for name in names if UNWANTED.search(name)]


def check_contents(wheel: Path, sdist: Path) -> None:
    """Refuse packages that hold too much, or lack the license or the mark of types.

    Raises:
        ReleaseError: the files are named.
    """
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = archive.namelist()
    with tarfile.open(sdist) as archive_file:
        in_sdist = [name.partition("/")[2] for name in archive_file.getnames()]
    strange = [name for name in in_wheel if not re.match(r"zmqdata(-[^/]+\.dist-info)?/", name)]
    excess = unwanted([*in_wheel, *in_sdist]) + strange
    if excess:
        raise ReleaseError(f"The packages hold what belongs into none: {', '.join(excess[:10])}")
    needed = {"zmqdata/py.typed", "zmqdata/__init__.py"}
    missing = needed - set(in_wheel) | ({"pyproject.toml", "LICENSE"} | needed) - set(in_sdist)
    if missing or not any(name.endswith("/LICENSE") for name in in_wheel):
        raise ReleaseError(f"The packages lack {', '.join(sorted(missing)) or 'LICENSE'}.")


def next_commands(version: str, names: Iterable[str], branch: str) -> list[str]:
    """Return the commands that finish a release that has no tag yet.

    >>> next_commands("0.2.0", ["a.whl"], "main")[0]
    'git commit --allow-empty --message "Release 0.2.0" pyproject.toml'
    """
    return [
        f'git commit --allow-empty --message "Release {version}" pyproject.toml',
        f'git tag --annotate v{version} --message "zmqdata {version}"',
        *publish_commands(version, names, branch),
    ]


def publish_commands(version: str, names: Iterable[str], branch: str) -> list[str]:
    """Return the commands that publish a release that has its tag."""
    files = " ".join(f"dist/{name}" for name in names)
    return [
        f"git push origin {branch} v{version}",
        f".venv-lock/bin/python -m twine upload {files}",
    ]


def _run(*command: str | Path, folder: Path = ROOT) -> str:
    """Return what a program says.

    Raises:
        ReleaseError: it failed; its output is in the text.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(  # noqa: S603 - git and Python, called by the person who releases
        [*map(str, command)],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if ran.returncode:
        told = " ".join(map(str, command))
        raise ReleaseError(f"`{told}` failed with exit code {ran.returncode}:\n{ran.stdout}")
    return ran.stdout.strip()


def check_tree(branch: str) -> None:
    """Refuse a working tree with changes, or another branch.

    Raises:
        ReleaseError: the text says which.
    """
    current = _run("git", "branch", "--show-current")
    if current != branch:
        raise ReleaseError(f"This is branch `{current}`. Releases are made on `{branch}`.")
    changes = _run("git", "status", "--porcelain")
    if changes:
        raise ReleaseError(f"The working tree has changes. Commit or stash them:\n{changes}")


def build(version: str, target: Path) -> tuple[Path, Path]:
    """Build wheel and sdist of the last commit; return their paths."""
    source = target / "source"
    source.mkdir()
    _run("git", "archive", "--output", target / "source.tar", "HEAD")
    with tarfile.open(target / "source.tar") as archive:
        archive.extractall(source)  # noqa: S202 - git has just written it
    project = source / "pyproject.toml"
    text = with_version(project.read_text(encoding="utf-8"), version)
    project.write_text(text, encoding="utf-8")
    made = target / "dist"
    _run(sys.executable, "-m", "build", "--outdir", made, source)
    [wheel], [sdist] = made.glob("*.whl"), made.glob("*.tar.gz")
    return wheel, sdist


def check_packages(version: str, wheel: Path, sdist: Path, target: Path) -> None:
    """Look into both packages, install the wheel where nothing else is, and build
    another wheel from the sdist.

    Raises:
        ReleaseError: a check failed.
    """
    _run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    check_contents(wheel, sdist)
    empty = target / "empty"
    _run(sys.executable, "-m", "venv", empty)
    python = empty / "bin" / "python"
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    _run(*pip, "install", wheel)
    found = _run(python, "-c", IMPORT, folder=empty)
    if found != version:
        raise ReleaseError(f"The installed wheel says that it is {found} instead of {version}.")
    _run(empty / "bin" / "zmqdata", "--help", folder=empty)
    _run(*pip, "wheel", "--no-deps", "--wheel-dir", target / "again", sdist)


@contextmanager
def undone_on_failure(root: Path) -> Iterator[None]:
    """Restore pyproject.toml, ``dist/`` and the branch if the block fails.

    The branch and its index must have no changes when the block begins.
    """
    project, made = root / "pyproject.toml", root / "dist"
    stated, head = project.read_bytes(), _run("git", "rev-parse", "HEAD", folder=root)
    with tempfile.TemporaryDirectory(prefix="zmqdata-release-") as folder:
        kept = Path(folder) / "dist"
        if made.exists():
            shutil.copytree(made, kept)
        try:
            yield
        except BaseException:  # an interrupt must not leave half a release either
            project.write_bytes(stated)
            shutil.rmtree(made, ignore_errors=True)
            if kept.exists():
                shutil.copytree(kept, made)
            if _run("git", "rev-parse", "HEAD", folder=root) != head:
                _run("git", "reset", "--quiet", head, folder=root)
            raise


def record(version: str, packages: Iterable[Path], tag: bool, root: Path = ROOT) -> None:
    """Put the packages into ``dist/``, and the version into pyproject.toml; with
    ``tag`` commit and tag it.

    Raises:
        ReleaseError: git refused. Everything is as it was before.
    """
    project, made = root / "pyproject.toml", root / "dist"
    with undone_on_failure(root):
        shutil.rmtree(made, ignore_errors=True)
        made.mkdir()
        for package in packages:
            shutil.copy(package, made)
        changed = with_version(project.read_bytes().decode(), version)
        project.write_bytes(changed.encode())
        if tag:
            message = ("--message", f"Release {version}")
            _run("git", "commit", "--allow-empty", *message, "--", project.name, folder=root)
            message = ("--message", f"zmqdata {version}")
            _run("git", "tag", "--annotate", f"v{version}", *message, folder=root)


def release(version: str, branch: str, tag: bool) -> None:
    """Check, build, and set the version; with ``tag`` commit and tag it.

    Raises:
        ReleaseError: something is not as it should be. Nothing was changed then.
    """
    check_order(version, _run("git", "tag", "--list").split())
    check_tree(branch)
    check_changelog(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), date.today())
    with tempfile.TemporaryDirectory(prefix="zmqdata-release-") as folder:
        print("building wheel and sdist", flush=True)
        wheel, sdist = build(version, Path(folder))
        print("checking them: metadata, contents, an empty environment", flush=True)
        check_packages(version, wheel, sdist, Path(folder))
        record(version, (wheel, sdist), tag)
    names = [wheel.name, sdist.name]
    print(f"dist/ has {' and '.join(names)}; pyproject.toml says {version}")
    if tag:
        print(f"committed as `Release {version}`, with the tag v{version}")
        remaining = publish_commands(version, names, branch)
    else:
        remaining = next_commands(version, names, branch)
    print("now:", *remaining, sep="\n  ")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release as the arguments say; return the exit code."""
    parser = argparse.ArgumentParser(description="Make a release up to its tag.")
    parser.add_argument("version", help="three numbers, such as 0.2.0")
    parser.add_argument("--tag", action="store_true", help="also commit, and tag the commit")
    parser.add_argument("--branch", default="main", help="where releases are made (%(default)s)")
    asked = parser.parse_args(arguments)
    try:
        release(asked.version, asked.branch, asked.tag)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
