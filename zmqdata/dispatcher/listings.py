"""Lists files in processes of their own: nobody waits for a file system that hangs, or
a pattern that has no end.
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

from zmqdata import matching
from zmqdata.core.dispatcher.events import FilesListed, FindFiles

AT_A_TIME = 8
PATIENCE = 300.0
"""Seconds that files may take to be listed."""
LOOK = 0.5
"""Seconds between two looks whether somebody still waits for them."""


class Listings:
    """Those of one dispatcher.

    Args:
        report: takes what was found. Called from any thread.
        is_wanted: whether an iteration still waits for its files. Called from any
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
        """Has files listed, and reports them, or why they cannot be."""
        self._threads.submit(self._listed, command)

    def _listed(self, command: FindFiles) -> None:
        key = (command.iteration, command.source, command.repetition)
        try:
            names = self._found(command)
            "".join(
                names
            ).encode()  # a name that is no text can be neither sent nor written to the journal
            self._report(FilesListed(*key, names))
        except Exception as error:  # whatever a file system says, the client must hear it
            self._report(FilesListed(*key, (), str(error)))

    def _found(self, command: FindFiles) -> tuple[str, ...]:
        deadline = time.monotonic() + PATIENCE
        # Nothing of the environment, and no package, has a say in it.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            [sys.executable, "-I", "-S", matching.__file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        asked: str | None = json.dumps(command.files.patterns)
        while (
            not self._closed and self._is_wanted(command.iteration) and time.monotonic() < deadline
        ):
            with suppress(subprocess.TimeoutExpired):
                found, complaint = process.communicate(asked, timeout=LOOK)
                if process.returncode:
                    raise OSError(complaint.strip().rpartition("\n")[2])
                return tuple(json.loads(found))
            asked = None
        process.kill()
        with suppress(
            subprocess.TimeoutExpired
        ):  # where a file system hangs, not even that may end it
            process.wait(LOOK)
        raise TimeoutError(
            f"the files of {', '.join(command.files.patterns)} were not listed within {PATIENCE:g} "
            "s: does a file "
            "system hang, or does a pattern go through a whole disk? Name folders that are "
            "smaller, without `**`"
        )

    def close(self) -> None:
        """Gives up what is being listed."""
        self._closed = True
        self._threads.shutdown(wait=True, cancel_futures=True)
