"""Brings versions of Python that the machine does not have, as a folder with a small
Debian system: ``python tools/bring_python.py``.

debootstrap makes the folder from the mirror that the machine's own apt uses. Nothing
outside of the folder changes. ``make test-pythons`` finds the interpreters in it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path("/var/lib/zmqdata-pythons")
"""Folder of the system unless an argument or ``ZMQDATA_PYTHONS`` names another."""
SUITE = "sid"
VERSIONS = ("3.14",)
MARK = "made-by-zmqdata"
"""A file in the folder. Only a folder that has it is ever removed."""
COMPLETE = "complete\n"
"""Content of the file after debootstrap has succeeded."""


def mirror_of(sources: Iterable[str]) -> str | None:
    """Return the address of the Debian mirror that apt's sources name.

    Args:
        sources: the texts of the files, in either of apt's two formats.

    Example:
        >>> mirror_of(["Types: deb\\nURIs: ftp://mirror.example/debian\\n"])
        'ftp://mirror.example/debian'
        >>> mirror_of(["deb [arch=amd64] ftp://mirror.example/debian/ stable\\n"])
        'ftp://mirror.example/debian/'
        >>> mirror_of(["deb ftp://mirror.example/debian-security stable\\n"]) is None
        True
    """
    for text in sources:
        for address in _addresses(text):
            if address.rstrip("/").endswith("/debian"):
                return address
    return None


def _addresses(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if found := re.match(r"URIs:\s*(.+)", line):
            yield from found[1].split()
        elif found := re.match(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)", line):
            yield found[1]


def interpreters(folder: Path) -> dict[str, Path]:
    """Return the interpreters of a system, by version, as paths within it.

    >>> interpreters(Path("/no/such/folder"))
    {}
    """
    found = sorted(folder.glob("usr/bin/python3.*"))
    return {
        path.name.removeprefix("python"): Path("/") / path.relative_to(folder)
        for path in found
        if re.fullmatch(r"python3\.\d+", path.name)
    }


def is_complete(folder: Path) -> bool:
    """True if this program made the folder and came to its end."""
    mark = folder / MARK
    return mark.is_file() and mark.read_text(encoding="utf-8") == COMPLETE


def default_folder() -> Path:
    """Return the folder that ``ZMQDATA_PYTHONS`` names, or else the usual one."""
    return Path(os.environ.get("ZMQDATA_PYTHONS") or FOLDER)


def missing_tools() -> list[str]:
    """Return what the machine lacks to make the folder, each with its remedy."""
    lacking = []
    if os.geteuid() != 0:
        lacking.append("the rights of root, as debootstrap and chroot need them: use sudo")
    if shutil.which("debootstrap") is None:
        lacking.append("debootstrap: apt-get install debootstrap")
    return lacking


def bring(folder: Path, versions: Iterable[str], mirror: str, suite: str) -> None:
    """Make the folder, or leave it as it is if it has all versions already.

    Raises:
        subprocess.CalledProcessError: debootstrap failed, and its output says why.
    """
    present = interpreters(folder) if is_complete(folder) else {}
    wanted = {*versions, *present}
    if wanted == present.keys():
        print(f"{folder} has Python {', '.join(sorted(present))} already")
        return
    remove(folder)
    packages = [f"python{one}{part}" for one in sorted(wanted) for part in ("", "-venv")]
    folder.mkdir(parents=True)
    (folder / MARK).write_text("begun\n", encoding="utf-8")
    included = ",".join([*packages, "ca-certificates"])
    command = [
        "debootstrap",
        "--variant=minbase",
        f"--include={included}",
        suite,
        str(folder),
        mirror,
    ]
    subprocess.run(command, check=True)  # noqa: S603 - root makes a folder of its own
    (folder / MARK).write_text(COMPLETE, encoding="utf-8")
    print(f"{folder} has Python {', '.join(sorted(interpreters(folder)))}")


def remove(folder: Path) -> None:
    """Remove a folder that this program made.

    Raises:
        SystemExit: something is mounted in the folder, or another program made it.
    """
    if not folder.exists():
        return
    if not (folder / MARK).exists():
        raise SystemExit(
            f"{folder} has no file `{MARK}`, so this program did not make it. Name another folder, "
            "or remove it yourself."
        )
    mounted = [
        line.split()[1]
        for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
        if line.split()[1].startswith(f"{folder.resolve()}/")
    ]
    if mounted:
        raise SystemExit(f"{mounted[0]} is mounted. Unmount it first: umount -R {mounted[0]}")
    shutil.rmtree(folder)


def main(arguments: list[str] | None = None) -> int:
    """Make or remove the folder; return the exit code."""
    parser = argparse.ArgumentParser(
        description="Bring versions of Python that the machine does not have."
    )
    parser.add_argument("versions", nargs="*", default=VERSIONS, help="such as 3.14 (default) 3.15")
    parser.add_argument("--folder", type=Path, default=default_folder(), help="where to make it")
    parser.add_argument("--mirror", help="a Debian mirror; default: the one of apt's sources")
    parser.add_argument("--suite", default=SUITE, help="release of Debian (default: %(default)s)")
    parser.add_argument("--remove", action="store_true", help="remove the folder")
    asked = parser.parse_args(arguments)
    if asked.remove:
        remove(asked.folder)
        return 0
    etc = Path("/etc/apt")
    files = [etc / "sources.list", *sorted(etc.glob("sources.list.d/*"))]
    sources = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    mirror = asked.mirror or mirror_of(sources)
    lacking = missing_tools()
    if mirror is None:
        lacking.append("a Debian mirror in apt's sources: name one with --mirror")
    if lacking or mirror is None:
        print("This machine lacks:", *lacking, sep="\n  ", file=sys.stderr)
        return 2
    bring(asked.folder, asked.versions, mirror, asked.suite)
    return 0


if __name__ == "__main__":
    sys.exit(main())
