"""Connections by which the processes of a step learn of each other's ends.

The process of the dispatcher, the coordinator, listens. Each other process is a member:
it connects, reports its exit code, and hears the verdict, which is the exit code of the
step. A process that dies reports nothing: the system closes its connection, at which
the other side knows at once.

A file on the disk that the processes share has the address, and a secret by which the
coordinator knows members. The first line of a member begins with the secret. The
coordinator parses nothing of a connection before it has compared the secret. It closes
a connection without one after some seconds, or earlier if there are too many. So a host
without the secret cannot end the step, unless it floods the port until the members are
late. A member that comes after the end of the step finds the verdict in the file.
The secret travels in the clear. An attacker on the path can end the step with it,
and can do so without it by closing connections.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import select
import selectors
import socket
import time
from typing import Any

from zmqdata.cli.step import KILLED, StepEnds, StepProcess
from zmqdata.config.endpoints import split_address
from zmqdata.errors import UnavailableError
from zmqdata.transport.addresses import announced_address
from zmqdata.transport.dispatcher_file import DispatcherFile, facts_in
from zmqdata.worker.processes.lifetime import StopSignals, exit_within

log = logging.getLogger(__name__)

EVERY_ADDRESS = "0.0.0.0"  # noqa: S104 - the other processes are on other machines
START_SECONDS = 300.0
"""Seconds within which all trainers start. Slurm starts all processes of a step at
once, but each may import for minutes from a slow disk.
"""
END_SECONDS = 3.0
"""Seconds within which workers end after the last trainer."""
CLOSE_SECONDS = 1.5
"""Seconds within which the dispatcher ends after the workers."""
MOST_LINE = 4096
"""Maximum number of bytes of a line of a member."""
MOST_STRANGERS = 16
"""Maximum number of connections without the secret, beside those that are awaited."""
STRANGER_SECONDS = 10.0
"""Seconds within which a connection shows the secret."""
LOOK_EVERY = 0.2
"""Seconds between two looks for the file, or two tries to accept a connection."""


class Connection:
    """Sends and receives lines.

    Args:
        connected: the socket.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.number: int | None = None
        self.part = b""

    def send(self, facts: Any, prefix: str = "") -> None:
        """Send a line of JSON behind a prefix, unless the other side is gone."""
        with contextlib.suppress(OSError):
            self.socket.sendall(f"{prefix}{json.dumps(facts)}\n".encode())

    def receive(self) -> list[bytes]:
        """Receive once. Return the lines that are whole now, and keep the rest as
        ``part``.

        Raises:
            EOFError: the other side is gone.
        """
        try:
            received = self.socket.recv(MOST_LINE)
        except OSError:
            received = b""
        if not received:
            raise EOFError
        *lines, self.part = (self.part + received).split(b"\n")
        return lines


class Coordinator:
    """The side of the dispatcher's process. It announces itself when it is made, and
    serves the connections while ``wait`` runs.

    Args:
        process: this process.
    """

    def __init__(self, process: StepProcess) -> None:
        count = process.ranks + process.workers
        self._ranks = process.ranks
        self._awaited = set(range(1, count + 1))
        self._ends = StepEnds(process.ranks, process.workers)
        self._nodes: dict[int, str] = {}
        self._members: dict[int, Connection] = {}
        self._strangers: dict[Connection, float] = {}
        self._secret = secrets.token_hex(16)
        self._starts_until = time.monotonic() + START_SECONDS
        self._ends_until: float | None = None
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server((EVERY_ADDRESS, 0), backlog=count + 16)
        self._selector.register(self._listener, selectors.EVENT_READ)
        port = int(self._listener.getsockname()[1])
        self._address = f"tcp://{announced_address(EVERY_ADDRESS, None, None, port)}"
        self._is_left = False
        self._file = DispatcherFile(process.step_file)
        self._file.write(self._address, mode=0o600, secret=self._secret)

    def wait(self, timeout: float | None) -> bool:
        """Serve the members for so many seconds at most.

        Returns:
            True if the dispatcher must stop: the last trainer has ended, and all
            workers have ended since, or had the time to.
        """
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._accept()
            else:
                self._listen(key.data)
        now = time.monotonic()
        most = len(self._awaited) + MOST_STRANGERS
        for stranger, until in [*self._strangers.items()]:  # the oldest first
            if now >= until or len(self._strangers) > most:
                self._drop(stranger)
        if now >= self._starts_until and self._awaited:
            log.error("tasks %s have not started in %g s", sorted(self._awaited), START_SECONDS)
            for number in self._awaited:
                self._ends.add(number, KILLED)
            self._close_entrance()
        verdict = self._ends.verdict
        if verdict is None:
            return False
        if self._ends_until is None:
            self._ends_until = now + END_SECONDS
            self._tell({"verdict": verdict}, ranks=False)
        workers = self._awaited | self._members.keys()
        if now < self._ends_until and any(number > self._ranks for number in workers):
            return False
        # Trainers end last: at their exit code Slurm may kill what is left of the step.
        self._tell({"verdict": verdict}, ranks=True)
        if self._awaited:  # those that come later read it, so that none waits
            self._file.write(self._address, mode=0o600, secret="", verdict=str(verdict))
            self._awaited.clear()
            self._is_left = True
        exit_within(CLOSE_SECONDS, 0)
        return True

    def close(self) -> None:
        """Remove the file, and close all connections."""
        self._close_entrance()
        for connection in (*self._strangers, *self._members.values()):
            connection.socket.close()
        self._selector.close()

    def _close_entrance(self) -> None:
        self._awaited.clear()
        if not self._is_left:
            self._file.remove()
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()

    def _tell(self, facts: dict[str, Any], ranks: bool) -> None:
        for number, member in self._members.items():
            if (number <= self._ranks) == ranks:
                member.send(facts)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except OSError:
            # Without free descriptors the listener stays readable.
            time.sleep(LOOK_EVERY)
            return
        connection = Connection(accepted)
        self._selector.register(accepted, selectors.EVENT_READ, connection)
        self._strangers[connection] = time.monotonic() + STRANGER_SECONDS

    def _listen(self, connection: Connection) -> None:
        try:
            for line in connection.receive():
                if connection.number is None:
                    self._admit(connection, line)
                else:
                    self._end(connection.number, int(json.loads(line)["code"]))
            if len(connection.part) > MOST_LINE:
                raise ValueError(f"a line of more than {MOST_LINE} bytes")
        except (EOFError, ValueError, KeyError, TypeError, RecursionError):
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        self._strangers.pop(connection, None)
        if connection.number is not None:
            del self._members[connection.number]
            self._end(connection.number, KILLED)

    def _admit(self, connection: Connection, line: bytes) -> None:
        secret = self._secret.encode()
        if not secrets.compare_digest(line[: len(secret)], secret):
            raise ValueError("a stranger")
        facts = json.loads(line[len(secret) :])
        number, node = int(facts["process"]), str(facts["node"])
        self._awaited.remove(number)
        del self._strangers[connection]
        connection.number = number
        self._members[number] = connection
        if number > self._ranks and self._ends.verdict is not None:
            connection.send({"verdict": self._ends.verdict})
        if number <= self._ranks:
            self._nodes[number] = node
            if len(self._nodes) == self._ranks:
                self._tell({"nodes": [self._nodes[one] for one in sorted(self._nodes)]}, ranks=True)
        if not self._awaited:
            self._close_entrance()

    def _end(self, number: int, code: int) -> None:
        is_first = not self._ends.first
        self._ends.add(number, code)
        if number > self._ranks or not code:
            return
        if is_first:
            log.error("trainer %d has ended with exit code %d", number - 1, code)
        # A trainer that has failed ends at once, so that Slurm can end the step if the
        # user has asked it to (`--kill-on-bad-exit`).
        if number in self._members and self._ends.verdict is None:
            self._members[number].send({"verdict": self._ends.first})


class StepMember:
    """The side of any other process.

    Args:
        process: this process.
        stop: signals that end the wait for the coordinator.

    Raises:
        UnavailableError: the coordinator is not there.
        InterruptedError: a signal has ended the wait.
        SystemExit: the step has ended already.
        OSError, DataServiceError: its file is unusable.
    """

    def __init__(self, process: StepProcess, stop: StopSignals) -> None:
        until = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(FileNotFoundError):
                facts = facts_in(process.step_file)
                break
            if stop.wait(LOOK_EVERY):
                raise InterruptedError
            if time.monotonic() >= until:
                raise UnavailableError(
                    f"Process 0 of the step has not written {process.step_file} for "
                    f"{START_SECONDS:g} s. Its own lines say why, or the folder is not on a disk "
                    "that all machines share. Submit the job from a folder that they share."
                )
        if "verdict" in facts:
            raise SystemExit(0 if process.role == "worker" else int(facts["verdict"]))
        host, port = split_address(facts["address"].removeprefix("tcp://"))
        try:
            connected = socket.create_connection((host, port), START_SECONDS)
        except OSError as error:
            raise UnavailableError(
                f"Process 0 of the step does not answer at {facts['address']} ({error}). Its own "
                "lines say why it has ended, or a firewall is between the machines."
            ) from None
        connected.settimeout(None)
        self._lines: list[bytes] = []
        self._connection = Connection(connected)
        self._connection.send({"process": process.number, "node": process.node}, facts["secret"])

    def await_message(self, stop: StopSignals) -> bool:
        """Wait for a message or a signal. Return True if ``hear`` will not wait."""
        if not self._lines:
            connected = self._connection.socket.fileno()
            if connected not in select.select([connected, stop.fileno()], [], [])[0]:
                stop.drain()
                return False
        return True

    def hear(self, stop: StopSignals | None = None) -> dict[str, Any]:
        """Wait for the next message of the coordinator.

        Args:
            stop: signals that end the wait.

        Raises:
            EOFError: the coordinator is gone.
            InterruptedError: a signal has ended the wait.
        """
        while not self._lines:
            if stop is None or self.await_message(stop):
                self._lines += self._connection.receive()
            elif stop.received:
                raise InterruptedError
        return dict(json.loads(self._lines.pop(0)))

    def tell(self, code: int) -> None:
        """Report the exit code of this process."""
        self._connection.send({"code": code})

    def close(self) -> None:
        """Close the connection; without a report, this process counts as killed."""
        self._connection.socket.close()
