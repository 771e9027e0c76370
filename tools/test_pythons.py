"""Runs the fast part of the tests on each version of Python that the package claims:
``make test-pythons``.

Interpreters are looked for on PATH, among pyenv's versions, and in the system that
``tools/bring_python.py`` makes. Each has a virtual environment of its own, in
``.venv-pythons``, with the packages of the lock.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.bring_python import default_folder, interpreters, is_complete

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements-dev.lock"
ENVIRONMENTS = ROOT / ".venv-pythons"
QUICK = (
    "tests/blocks",
    "tests/elements",
    "tests/failures",
    "tests/pipelines",
    "tests/test_wire.py",
    "tests/test_facade.py",
    "tests/processes/test_interpreters.py",
)
"""Tests that depend most on the interpreter, an import of each module, and a run on
processes.
"""
LEFT_OUT = ("tests/blocks/test_codec.py",)
"""Parts of these that a quick run leaves out. Like ``tests/core``, they are most of the
cost, and pure Python that the run on processes uses, too.
"""
FEW_EXAMPLES = "--hypothesis-profile=few"
"""A quick run has fewer random examples than ``make test``, which has them on one
version.
"""
FAST = (
    *QUICK,
    "tests/core",
    "tests/iterators",
    "tests/dataset",
    "tests/nodes",
    "tests/operations",
    "tests/storage",
)
CHECKERS = frozenset(
    {
        "ast-serialize",
        "atheris",
        "build",
        "grimp",
        "import-linter",
        "librt",
        "mypy",
        "mypy-extensions",
        "pathspec",
        "pyproject-hooks",
        "ruff",
    }
)
"""Packages that check or build the code and that no test imports. They are half of the
installation.
"""
INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--no-compile")
"""Only what tests import is compiled, which saves a third of the installation."""
SYSTEM_FOLDERS = frozenset(
    {"bin", "boot", "dev", "etc", "proc", "run", "sbin", "sys", "usr", "var", "lost+found"}
)
"""Top folders that a system has of its own. The others it shares with the machine."""
SHARED_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs")
SILENCE = 900.0
"""Seconds after which a run counts as failed."""
VERSION = "import json, sys; print(json.dumps(sys.version_info[:3]))"
REMEDIES = {
    "not present": "pyenv install brings them, and so does tools/bring_python.py what Debian has",
    "needs root": "tools/bring_python.py has brought it, and only root can start it: use sudo",
    "cannot be started": "tools/bring_python.py has brought it, but root may not mount here",
}
"""Remedy for a version without an interpreter, by the reason."""


@dataclass(frozen=True)
class Interpreter:
    """A Python to run the tests with."""

    version: str
    """Major and minor number, such as 3.12."""
    release: str
    """All three numbers."""
    path: str
    """Path of the interpreter within its system."""
    system: Path | None = None
    """Root of the interpreter's system; None for this machine's."""

    @property
    def environment(self) -> Path:
        """The folder of its virtual environment."""
        return ENVIRONMENTS / self.version

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that runs a program in the interpreter's system."""
        return [*arguments] if self.system is None else inside(self.system, arguments)


@dataclass(frozen=True)
class Outcome:
    """Result of the tests on one interpreter."""

    interpreter: Interpreter
    passed: int
    """Number of tests."""
    seconds: float
    failure: str
    """Reason of the failure; empty if the tests passed."""

    def __str__(self) -> str:
        name, seconds = f"Python {self.interpreter.release}", f"{self.seconds:.0f} s"
        if self.failure:
            return f"{name}: FAILED after {seconds}: {self.failure}"
        return f"{name}: {self.passed} passed in {seconds}"


def claimed(project: str) -> list[str]:
    """Return the versions that the text of a pyproject.toml claims.

    >>> claimed('"Programming Language :: Python :: 3.9",\\n"... :: Python :: 3.10",')
    ['3.9', '3.10']
    """
    return re.findall(r'Python :: (3\.\d+)"', project)


def without(names: Collection[str], lock: str) -> str:
    r"""Return the text of a lock without some packages.

    >>> without({"b"}, "a==1\n    --hash=x\nb==2 ; m\n    --hash=y\nc==3")
    'a==1\n    --hash=x\nc==3'
    """
    entries = re.split(r"\n(?=\S)", lock)
    return "\n".join(one for one in entries if one.partition("==")[0] not in names)


def passed_in(text: str) -> int:
    """Return how many tests passed, by the last line of pytest.

    >>> passed_in("..\\n12 passed, 1 skipped in 3.40s")
    12
    """
    found = re.findall(r"(\d+) passed", text)
    return int(found[-1]) if found else 0


def inside(system: Path, arguments: Sequence[str]) -> list[str]:
    """Return a command that runs a program in another system, with this machine's
    folders that are not part of a system.

    Mounts lie in a namespace of their own, so that they end with the program.
    """
    steps = ["set -e"]
    for name in ("proc", "dev", "sys", *_own_folders()):
        target = shlex.quote(str(system / name))
        steps += [f"mkdir -p {target}", f"mount --rbind /{shlex.quote(name)} {target}"]
    for shared in filter(os.path.exists, SHARED_FILES):
        target = shlex.quote(str(system / shared.lstrip("/")))
        make = "mkdir -p" if os.path.isdir(shared) else "touch"
        steps += [f"{make} {target}", f"mount --bind {shared} {target}"]
    entered = f'cd {shlex.quote(str(ROOT))} && exec "$@"'
    steps.append(
        f'exec chroot {shlex.quote(str(system))} /bin/sh -c {shlex.quote(entered)} sh "$@"'
    )
    return ["unshare", "--mount", "sh", "-c", "\n".join(steps), "sh", *arguments]


def _own_folders() -> Iterator[str]:
    for path in sorted(Path("/").iterdir()):
        own = path.name not in SYSTEM_FOLDERS and not path.name.startswith("lib")
        if own and path.is_dir() and not path.is_symlink():
            yield path.name


def _release(command: Sequence[str]) -> str | None:
    """Return the version of the Python that a command starts, or None."""
    try:
        asked = subprocess.run(  # noqa: S603 - a Python that the user has installed
            [*command, "-c", VERSION], capture_output=True, text=True, timeout=60, check=True
        )
        return ".".join(map(str, json.loads(asked.stdout)))
    except (OSError, ValueError, subprocess.SubprocessError):  # a shim without an interpreter
        return None


def candidates(version: str) -> Iterator[str]:
    """Yield the paths at which this machine may have a version of Python."""
    found = shutil.which(f"python{version}")
    if found:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python")):
        yield str(path)


def brought(version: str, system: Path) -> Path | None:
    """Return the path of a version within the brought system, if it is there."""
    return interpreters(system).get(version) if is_complete(system) else None


def reason_of_absence(version: str, system: Path) -> str:
    """Return why ``find`` has no interpreter of a version: a key of ``REMEDIES``."""
    if brought(version, system) is None:
        return "not present"
    return "cannot be started" if os.geteuid() == 0 else "needs root"


def find(version: str, system: Path) -> Interpreter | None:
    """Return an interpreter of a version, if the machine or the brought system has
    one.
    """
    for path in candidates(version):
        release = _release([path])
        if release is not None and release.startswith(f"{version}."):
            return Interpreter(version, release, path)
    within = brought(version, system)
    if within is not None and os.geteuid() == 0:
        release = _release(inside(system, [str(within)]))
        if release is not None:
            return Interpreter(version, release, str(within), system)
    return None


def _run(interpreter: Interpreter, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - a Python that the user has installed
        interpreter.command(arguments),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SILENCE,
    )


def prepare(interpreter: Interpreter) -> str:
    """Make the virtual environment, unless it is up to date. Return why it failed, or
    an empty text.
    """
    environment = interpreter.environment
    stamp, python = environment / ".ready", str(environment / "bin" / "python")
    inputs = LOCK.read_bytes() + (ROOT / "pyproject.toml").read_bytes()
    wanted = f"{interpreter} {hashlib.sha256(inputs).hexdigest()}"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return ""
    shutil.rmtree(environment, ignore_errors=True)
    # This program's pip serves all Pythons of this machine: a pip of their own
    # takes three seconds to install. Another system sees only its own.
    own = [] if interpreter.system is not None else ["--without-pip"]
    pip = [python, "-m", "pip"] if not own else [sys.executable, "-m", "pip", "--python", python]
    made = _run(interpreter, [interpreter.path, "-m", "venv", *own, str(environment)])
    if made.returncode:
        return f"it cannot make a virtual environment: {_last_line(made.stdout)}"
    needed = environment / "requirements.txt"
    needed.write_text(without(CHECKERS, LOCK.read_text(encoding="utf-8")), encoding="utf-8")
    locked = ["--no-deps", "--require-hashes", "--requirement", str(needed)]
    ours = ["--no-deps", "--no-build-isolation", "--editable", "."]
    installed = _run(interpreter, [*pip, *INSTALL, *locked])
    if not installed.returncode:
        installed = _run(interpreter, [*pip, *INSTALL, *ours])
    elif "DO NOT MATCH THE HASHES" not in installed.stdout:
        print(f"Python {interpreter.release}: {_last_line(installed.stdout)}; taking the newest")
        installed = _run(interpreter, [*pip, *INSTALL, "--editable", ".[dev]"])
    if installed.returncode:
        return f"packages cannot be installed: {_last_line(installed.stdout)}"
    stamp.write_text(wanted, encoding="utf-8")
    return ""


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def test(interpreter: Interpreter, failure: str, tests: Iterable[str], processes: int) -> Outcome:
    """Run tests on an interpreter; what pytest says is shown if it fails.

    Args:
        interpreter: the Python to run them with.
        failure: result of ``prepare``.
        tests: paths of tests, and options of pytest.
        processes: number of processes that share the tests.
    """
    began = time.monotonic()
    text = ""
    if not failure:
        shared = ["-n", str(processes), "--dist", "worksteal"] if processes else ["-n0"]
        quiet = ["-q", "--no-header", "-p", "no:cacheprovider"]
        python = str(interpreter.environment / "bin" / "python")
        try:
            ran = _run(interpreter, [python, "-m", "pytest", *shared, *quiet, *tests])
        except subprocess.TimeoutExpired:
            failure = f"the tests took longer than {SILENCE:.0f} s"
        else:
            text = ran.stdout
            failure = _last_line(text) if ran.returncode else ""
        if failure:
            print(text)
    return Outcome(interpreter, passed_in(text), time.monotonic() - began, failure)


def report_missing(missing: Mapping[str, str]) -> None:
    """Print the versions without an interpreter, by reason, each with the remedy."""
    for reason, remedy in REMEDIES.items():
        versions = [version for version, why in missing.items() if why == reason]
        if versions:
            print(f"{reason}: Python {', '.join(versions)}; {remedy}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests on every interpreter found; return the exit code.

    It is 1 if an environment could not be made or a test failed, if a version named in
    the arguments was not tested, or if no version was found.
    """
    parser = argparse.ArgumentParser(
        description="Run the fast part of the tests on each version of Python claimed."
    )
    parser.add_argument("versions", nargs="*", help="such as 3.12; default: all that are claimed")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a quarter of the tests, on the oldest and the newest version of Python that are "
        "here, besides the one that runs this program; or on those that are named",
    )
    parser.add_argument(
        "--prepare", action="store_true", help="make the virtual environments, and run no test"
    )
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument(
        "--system", type=Path, default=default_folder(), help="brought by bring_python.py"
    )
    asked = parser.parse_args(arguments)
    versions = asked.versions or claimed((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if asked.quick and not asked.versions:
        others = [one for one in versions if one != own and find(one, asked.system) is not None]
        versions = sorted({*others[:1], *others[-1:]}, key=others.index)
        print(f"left out: Python {own}, which runs this program, and those between the others")
    left_out = [f"--ignore={part}" for part in LEFT_OUT]
    tests = (*QUICK, *left_out, FEW_EXAMPLES) if asked.quick else FAST
    found = {version: find(version, asked.system) for version in versions}
    missing = {
        version: reason_of_absence(version, asked.system)
        for version, interpreter in found.items()
        if interpreter is None
    }
    here = [interpreter for interpreter in found.values() if interpreter is not None]
    failed = False
    # An installation takes one core, and the next one goes on while tests run and wait.
    with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as ahead:
        prepared = {one: ahead.submit(prepare, one) for one in here}
        for interpreter in here:
            failure = prepared[interpreter].result()
            if asked.prepare:
                print(f"Python {interpreter.release}: {failure or 'ready'}", flush=True)
            else:
                outcome = test(interpreter, failure, tests, asked.processes)
                failure = outcome.failure
                print(outcome, flush=True)
            failed |= bool(failure)
    report_missing(missing)
    if asked.versions and missing:
        named = ", ".join(missing)
        print(f"failed: you named Python {named}, which was not tested.", file=sys.stderr)
    elif not asked.quick and len(missing) == len(versions):
        print("failed: no Python was found, so nothing was tested.", file=sys.stderr)
    else:
        return int(failed)
    return 1


if __name__ == "__main__":
    sys.exit(main())
