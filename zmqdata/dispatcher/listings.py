"""File listings in separate processes, so that the dispatcher never waits for a file
system that hangs, or for a pattern without end.

Protocol 5.5.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from zmqdata.core.dispatcher.events import FilesListed, FindFiles
from zmqdata.files import matching
from zmqdata.files.filenames import legible, native, portable
from zmqdata.files.paths import is_url
from zmqdata.storage import listing

AT_A_TIME = 8
PATIENCE = 300.0
"""Seconds that a listing may take."""
LOOK = 0.5
"""Seconds between two checks whether an iteration still waits for a listing."""


class Listings:
    """The file listings of a dispatcher.

    Args:
        report: takes the result. Called from any thread.
        is_wanted: tells whether an iteration still waits for its files. Called from any
            thread.
    """

    def __init__(
        self, report: Callable[[FilesListed], None], is_wanted: Callable[[int], bool]
    ) -> None:
        self._report = report
        self._is_wanted = is_wanted
        self._closed = False
        self._threads = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="zmqdata-list-files")

    def begin(self, command: FindFiles) -> None:
        """List files in the background, and report their names or the error."""
        self._threads.submit(self._listed, command)

    def _listed(self, command: FindFiles) -> None:
        names: tuple[str, ...] = ()
        fault = ""
        try:
            names = self._found(command)
        except (
            Exception
        ) as error:  # file systems raise errors of any class, and the client must see them
            fault = legible(str(error))
        self._report(
            FilesListed(command.iteration, command.source, command.repetition, names, fault)
        )

    def _found(self, command: FindFiles) -> tuple[str, ...]:
        deadline = time.monotonic() + PATIENCE
        asked: str | None = json.dumps(list(map(native, command.files.patterns)))
        # The flags exclude the environment and all packages, which stores need.
        program = ["-I", "-S", matching.__file__]
        if any(map(is_url, command.files.patterns)):
            asked = f"[{asked}, {command.files.options or 'null'}]"
            program = ["-m", listing.__name__]
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, *program, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        while (
            not self._closed and self._is_wanted(command.iteration) and time.monotonic() < deadline
        ):
            with suppress(subprocess.TimeoutExpired):
                found, complaint = process.communicate(asked, timeout=LOOK)
                if process.returncode:
                    last = complaint.strip().rpartition("\n")[2]
                    raise OSError(last or f"the listing ended with {process.returncode}")
                return tuple(map(portable, json.loads(found)))
            asked = None
        process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            with suppress(OSError):
                stream.close()  # type: ignore[union-attr]  # each is a pipe
        with suppress(
            subprocess.TimeoutExpired
        ):  # a process in a hanging file system may not even end by this
            process.wait(LOOK)
        raise TimeoutError(
            f"the files of {', '.join(map(legible, command.files.patterns))} were not listed "
            f"within {PATIENCE:g} s. Does a file system hang, or does a pattern match a "
            "whole disk? Give smaller folders, without `**`"
        )

    def close(self) -> None:
        """Stop all listings."""
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
