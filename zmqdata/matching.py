"""Listing the files that match patterns, in this process or in a subprocess that can be
abandoned when a file system hangs.

Run as a program, this module needs only Python itself. It takes the process id of its
parent as argument, reads patterns as JSON from standard input and writes names as JSON
to standard output.
"""

from __future__ import annotations

import glob
import json
import os
import signal
import sys
from collections.abc import Iterable
from functools import partial


def matching_files(patterns: Iterable[str]) -> list[str]:
    """Return the files with these names or matching these glob patterns, without
    duplicates, sorted.

    Raises:
        OSError: no file descriptor is left.

    >>> matching_files(["/nowhere/*.txt"])
    []
    """
    found: set[str] = set()
    for pattern in patterns:
        if os.path.isfile(pattern):
            found.add(pattern)
        else:
            paths = glob.iglob(_without_repeats(pattern), recursive=True)
            found.update(path for path in paths if not os.path.isdir(path))
            # glob passes over folders that it cannot open.
            os.close(os.open(os.sep, os.O_RDONLY))
    return sorted(found)


def _without_repeats(pattern: str) -> str:
    """Return a pattern without each ``**`` that follows another, and that matches
    nothing more.

    For each of them, glob walks all folders once more below each folder.

    >>> _without_repeats("/data/**/**/*.txt")
    '/data/**/*.txt'
    """
    parts = pattern.split("/")
    return "/".join(
        part
        for part, before in zip(parts, ["", *parts], strict=False)
        if not part == before == "**"
    )


def _end_with(parent: int, *of_signal: object) -> None:
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    # A parent that was killed cannot stop this process, so it checks once a second
    # whether its parent still lives.
    signal.signal(signal.SIGALRM, partial(_end_with, int(sys.argv[1])))
    signal.setitimer(signal.ITIMER_REAL, 1, 1)
    json.dump(matching_files(json.load(sys.stdin)), sys.stdout)
