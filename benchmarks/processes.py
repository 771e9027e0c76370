"""Processes of peers, from the caller's side: start, deadline, and end with all their
descendants.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.reading import Turn

ROOT = Path(__file__).resolve().parent.parent
MARK = "ZMQDATA_BENCHMARK"
"""Variable in the environment of every process of a peer, since some leave its process
group.
"""
START = 120.0
"""Seconds for which a peer may take to start."""
END = 20.0
"""Seconds for which a peer may take to end."""
TAIL = 300
"""Characters of the output that errors quote."""


class PeerError(Exception):
    """Raised if a peer has failed, or was killed for taking too long. The text goes
    into the table.
    """


class NotInstalledError(PeerError):
    """Raised if the peer's library is not installed."""


def marked(mark: str) -> Iterator[int]:
    """Yield the ids of processes with a mark in their environment."""
    sought = f"{MARK}={mark}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if sought in (entry / "environ").read_bytes().split(b"\0"):
                    yield int(entry.name)


class PeerProcess:
    """A peer's process, which starts at once.

    Args:
        peer: a key of ``cases.PEERS``.
        within: a command that runs another in its place, such as a network namespace.
        service: address of servers of the peer that already run.

    Raises:
        NotInstalledError: the peer's library is not installed.
        PeerError: the peer did not start; the text has the end of its output.
    """

    def __init__(self, peer: str, within: tuple[str, ...] = (), service: str = "") -> None:
        self.peer = peer
        self._mark = secrets.token_hex(8)
        self._rest = b""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by kill()
        path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
        self._process = subprocess.Popen(
            [*within, sys.executable, "-m", "benchmarks.child", peer, f"--service={service}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, MARK: self._mark, "PYTHONPATH": path},
            start_new_session=True,
        )
        try:
            said = self._await(START)
            if "missing" in said:
                raise NotInstalledError(said["missing"])
            self.versions: dict[str, str] = said["versions"]
        except BaseException:
            self.kill()
            raise

    def measure(self, turn: Turn, deadline: float) -> float:
        """Return the value of a turn.

        Raises:
            PeerError: the peer failed, ended, or had no value after ``deadline``
                seconds; in the last two cases it was killed.
        """
        try:
            said = self._ask(asdict(turn), deadline)
        except BaseException:
            self.kill()
            raise
        if "error" in said:
            raise PeerError(said["error"])
        return float(said["value"])

    def _ask(self, order: dict[str, Any], deadline: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerError(f"ended: {self._last_words()}") from None
        return self._await(deadline)

    def _await(self, deadline: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        number, ends = self._process.stdout.fileno(), time.monotonic() + deadline
        while b"\n" not in self._rest:
            ready, _, _ = select.select([number], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                raise PeerError(
                    f"killed, as it took more than {deadline:g} s: {self._last_words()}"
                )
            part = os.read(number, 1 << 16)
            if not part:
                raise PeerError(f"ended: {self._last_words()}")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        said: dict[str, Any] = json.loads(line)
        return said

    def _last_words(self) -> str:
        self._log.seek(0)
        written = self._log.read().decode(errors="replace").strip()
        return written[-TAIL:] or "it wrote nothing"

    @property
    def alive(self) -> bool:
        return not self._log.closed and self._process.poll() is None

    def close(self) -> None:
        """Let the peer end its servers, and kill what remains."""
        with contextlib.suppress(PeerError):
            if self.alive:
                self._ask({}, END)
        self.kill()

    def kill(self) -> None:
        """Kill the peer with all processes that it started, in any session."""
        self._process.kill()
        while left := [pid for pid in marked(self._mark) if pid != os.getpid()]:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._process.wait()
            time.sleep(0.01)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
