"""A local network in network namespaces: machines on a switch, each with an interface,
an address and a cable.

The network of the host is not touched: the switch is a namespace, too. Programs started
here end with the test.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from zmqdata.testing.cluster import await_condition

START = 120.0
NOBODY = "02:00:00:00:00:01"
ROOT = Path(__file__).parents[2]
REFUSALS = re.compile(
    "not permitted|permission denied|not supported|unknown device type|read-only", re.IGNORECASE
)


class NotPermittedError(Exception):
    """This machine does not permit network namespaces; the text is the error of
    ``ip``.
    """


def ip(*arguments: str) -> str:
    """Run ``ip``; return its output."""
    return iproute2("ip", *arguments)


def iproute2(*command: str) -> str:
    """Run a program of iproute2; return its output."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and REFUSALS.search(done.stderr):
        raise NotPermittedError(f"{' '.join(command)}: {done.stderr.strip()}")
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout


@dataclass
class Program:
    """A Python program on a machine.

    It ends when its standard input does. Files receive its output.
    """

    process: subprocess.Popen[str]
    output: Path
    log: Path

    @property
    def said(self) -> str:
        return self.output.read_text(encoding="utf-8")

    def await_line(self, pattern: str) -> re.Match[str]:
        """Wait for a whole line of output."""

        def found() -> re.Match[str] | None:
            return re.search(rf"^{pattern}\n", self.said, re.MULTILINE)

        await_condition(
            lambda: found() or self.process.poll() is not None, START, f"the line {pattern!r}"
        )
        match = found()
        if match is None:
            pytest.fail(
                f"ended with {self.process.returncode} before it printed {pattern!r}: "
                f"{self.log.read_text()}"
            )
        return match

    def await_end(self) -> str:
        """Wait until the program has ended with success; return its output."""
        await_condition(lambda: self.process.poll() is not None, START, "the end of a program")
        assert self.process.returncode == 0, self.said + self.log.read_text(encoding="utf-8")
        return self.said

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()


class Lan:
    """Machines that a switch connects.

    Args:
        machines: names of the machines.
        folder: folder for the output of their programs.

    Raises:
        NotPermittedError: namespaces, bridges or cables cannot be made here.
    """

    def __init__(self, machines: list[str], folder: Path) -> None:
        self._folder = folder
        self._programs: list[Program] = []
        self._made: list[str] = []
        self._prefix = f"zmqdata-{os.getpid()}-{secrets.token_hex(3)}"
        self.machines = machines
        if shutil.which("ip") is None:
            raise NotPermittedError("iproute2 is not installed")
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        switch = self._add_namespace("switch")
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "dev", "bridge", "up")
        for name in self.machines:
            space = self._add_namespace(name)
            ip("-n", space, "link", "set", "dev", "lo", "up")
            ip(
                "-n",
                space,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                name,
                "netns",
                switch,
            )
            ip("-n", space, "address", "add", f"{self.address(name)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "dev", "eth0", "up")
            ip("-n", switch, "link", "set", "dev", name, "master", "bridge", "up")

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _add_namespace(self, name: str) -> str:
        space = self._space(name)
        ip("netns", "add", space)
        self._made.append(space)
        return space

    def address(self, machine: str) -> str:
        """Return the address at which other machines reach a machine."""
        return f"10.83.0.{self.machines.index(machine) + 1}"

    def pull_cable(self, machine: str) -> None:
        """Take a machine off the network: all frames from it and to it are lost, and no
        connection is closed.
        """
        ip("-n", self._space("switch"), "link", "set", "dev", machine, "down")

    def plug_cable(self, machine: str) -> None:
        """Connect a machine to the network again."""
        ip("-n", self._space("switch"), "link", "set", "dev", machine, "up")

    def silence(self, sender: str, receiver: str) -> None:
        """Lose all frames from a machine to another, and no others.

        The frames go to a machine that does not exist.
        """
        told = ("lladdr", NOBODY, "dev", "eth0", "nud", "permanent")
        ip("-n", self._space(sender), "neighbour", "replace", self.address(receiver), *told)

    def let_speak(self, sender: str, receiver: str) -> None:
        """Let frames from a machine to another through again."""
        ip("-n", self._space(sender), "neighbour", "delete", self.address(receiver), "dev", "eth0")

    def mute(self, machine: str) -> None:
        """Let a machine receive everything and send nothing."""
        for other in self._others(machine):
            self.silence(machine, other)

    def unmute(self, machine: str) -> None:
        """Let a machine send again."""
        for other in self._others(machine):
            self.let_speak(machine, other)

    def deafen(self, machine: str) -> None:
        """Let a machine send everything and receive nothing."""
        for other in self._others(machine):
            self.silence(other, machine)

    def undeafen(self, machine: str) -> None:
        """Let a machine receive again."""
        for other in self._others(machine):
            self.let_speak(other, machine)

    def _others(self, machine: str) -> list[str]:
        return [other for other in self.machines if other != machine]

    def limit(self, machine: str, rate: str) -> None:
        """Limit a cable to a rate, such as ``1gbit``, in both directions."""
        for space, device in ((self._space(machine), "eth0"), (self._space("switch"), machine)):
            shape = ("tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
            iproute2("tc", "-n", space, "qdisc", "replace", "dev", device, "root", *shape)

    def traffic(self, machine: str, device: str = "eth0") -> tuple[int, int]:
        """Return the bytes that an interface of a machine has received and sent."""
        [link] = json.loads(ip("-n", self._space(machine), "-s", "-j", "link", "show", device))
        return link["stats64"]["rx"]["bytes"], link["stats64"]["tx"]["bytes"]

    def within(self, machine: str) -> tuple[str, ...]:
        """Return the prefix of a command that runs it on a machine."""
        return "ip", "netns", "exec", self._space(machine)

    @property
    def logs(self) -> list[Path]:
        """Return the log files of all programs."""
        return [program.log for program in self._programs]

    def start(self, machine: str, *arguments: str) -> Program:
        """Start Python on a machine, and return at once."""
        name = f"{machine}-{len(self._programs)}"
        output, log = self._folder / f"{name}.out", self._folder / f"{name}.log"
        path = [str(ROOT), *filter(None, sys.path)]
        with output.open("w") as out, log.open("w") as errors:
            process = subprocess.Popen(
                [*self.within(machine), sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        program = Program(process, output, log)
        self._programs.append(program)
        return program

    def start_server(self, machine: str, role: str, *options: str) -> Program:
        """Start a server that listens on every interface, and return at once."""
        return self.start(
            machine, "-m", f"zmqdata.{role}", "--host", "0.0.0.0", *options, "--exit-with-parent"
        )

    def serve(self, machine: str, role: str, *options: str) -> str:
        """Start a server that listens on every interface; return the address that it
        announces.
        """
        return self.start_server(machine, role, *options).await_line(
            f"zmqdata {role} listening on (.*)"
        )[1]

    def run(self, machine: str, *arguments: str) -> str:
        """Run Python on a machine to its end; return its output."""
        return self.start(machine, *arguments).await_end()

    @property
    def _pids(self) -> list[str]:
        return [pid for space in self._made for pid in ip("netns", "pids", space).split()]

    def close(self) -> None:
        """End all programs, and remove the network.

        Raises:
            AssertionError: a program has left processes behind; they are killed.
        """
        for program in reversed(self._programs):
            program.stop()
        with contextlib.suppress(TimeoutError):
            await_condition(lambda: not self._pids, START / 2)
        left = self._pids
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        for space in self._made:
            ip("netns", "delete", space)
        assert left == [], "processes were left behind"
