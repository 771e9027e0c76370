"""Storms of pulled cables: a job runs on machines of a network while their cables are
pulled, or carry only one direction.

``CableStorm.run`` checks at the end that every promise was kept.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.netns.lan import Lan, Program
from tests.processes.loops import TrainingLoop, check
from zmqdata.testing.cluster import await_condition

WORKERS = ("worker1", "worker2")
WORKER_TIMEOUT = 2_000
CLIENT_TIMEOUT = 4_000
PACE = 0.001
DEADLINE = 60.0
"""Seconds from the last disturbance in which an iteration must end. The longest
known wait is 30 seconds.
"""


class CableStorm:
    """A round: a job, and cables that are disturbed at random points of it.

    Args:
        lan: machines named dispatcher, worker1, worker2, client and, if two loops read,
            client2.
        seed: decides what happens when.
        kind: kind of the job, a key of ``training_loop.KINDS``.
        folder: folder of the journal and of the records of the training loops.
        count: number of elements of the job.
        pauses: possible durations of a disturbance, in seconds.
        kills: True if processes are killed, too.
        pace: seconds that a training loop is busy with each element.
    """

    def __init__(
        self,
        lan: Lan,
        seed: int,
        kind: str,
        folder: Path,
        count: int = 10_000,
        pauses: tuple[float, ...] = (0.5, 3.0, 5.0, 12.0, 20.0),
        kills: bool = False,
        pace: float = PACE,
    ) -> None:
        self.random = random.Random(f"{seed}/{kind}/cables")
        self.lan, self.kind, self.folder, self.count = lan, kind, folder, count
        self.pauses, self.kills, self.pace = pauses, kills, pace
        self.story: list[str] = []
        self.loops: list[TrainingLoop] = []
        self.workers: dict[str, Program] = {}
        self.clients = [machine for machine in lan.machines if machine.startswith("client")]

    # --- participants

    def start(self) -> None:
        """Start all machines, and the training loops on theirs."""
        folder = ("--work-dir", str(self.folder / "journal"), "--port", "5050")
        times = (f"--worker-timeout-ms={WORKER_TIMEOUT}", f"--client-timeout-ms={CLIENT_TIMEOUT}")
        places = [
            f"--worker-address={self.lan.address(machine)}"
            for machine in WORKERS
            if self.kind == "static"
        ]
        self.service = self.lan.serve("dispatcher", "dispatcher", *folder, *times, *places)
        for machine in WORKERS:
            self._start_worker(machine)
        number = {"coordinated": 2, "ordered": 1}.get(self.kind, len(self.clients))
        for consumer in range(number):
            self.add_loop(consumer, self.clients[consumer % len(self.clients)])

    def _start_worker(self, machine: str) -> None:
        self.workers[machine] = self.lan.start_server(
            machine, "worker", "--dispatcher", self.service
        )

    def add_loop(self, consumer: int, machine: str) -> None:
        path = self.folder / f"loop-{len(self.loops)}"
        within = self.lan.within(machine)
        self.loops.append(
            TrainingLoop(self.service, self.kind, self.count, consumer, path, within, self.pace)
        )

    @property
    def handed_out(self) -> int:
        return sum(loop.count for loop in self.loops)

    @property
    def running(self) -> bool:
        return any(loop.running for loop in self.loops)

    # --- disturbances

    def pull(self) -> None:
        """Pull the cable of a random machine for a while."""
        machine = self._machine()
        self.disturb(
            f"{machine} is off",
            lambda: self.lan.pull_cable(machine),
            lambda: self.lan.plug_cable(machine),
        )

    def isolate_reader(self) -> None:
        """Pull the cable of the only loop until it hands out nothing any more.

        ``handed_out_alone`` becomes the number of elements handed out meanwhile.
        """
        machine = self.clients[0]
        self._tell(f"{machine} is off until its lease is over")
        self.lan.pull_cable(machine)
        # The count begins now and not earlier: pulling takes a while, in which the
        # client renews its lease.
        began = self.handed_out
        last = [(began, time.monotonic())]

        def is_still() -> bool:
            if self.handed_out != last[0][0]:
                last[0] = (self.handed_out, time.monotonic())
            return time.monotonic() - last[0][1] > 2.0

        await_condition(is_still, DEADLINE, "the reader to stop")
        self.lan.plug_cable(machine)
        self.healed = time.monotonic()
        self.handed_out_alone = self.handed_out - began

    def silence(self) -> None:
        """Lose all frames from a random machine to another, and no others."""
        self.silence_one(*self.random.sample(self.lan.machines, 2))

    def silence_one(self, one: str, other: str) -> None:
        lost = f"{one} is not heard by {other}"
        self.disturb(
            lost, lambda: self.lan.silence(one, other), lambda: self.lan.let_speak(one, other)
        )

    def mute(self) -> None:
        """Let a random machine receive everything and send nothing."""
        machine = self._machine()
        self.disturb(
            f"{machine} is heard by nobody",
            lambda: self.lan.mute(machine),
            lambda: self.lan.unmute(machine),
        )

    def deafen(self) -> None:
        """Let a random machine send everything and receive nothing."""
        machine = self._machine()
        self.disturb(
            f"{machine} hears nobody",
            lambda: self.lan.deafen(machine),
            lambda: self.lan.undeafen(machine),
        )

    def _machine(self) -> str:
        return self.random.choice(self.lan.machines)

    def disturb(self, what: str, begin: Callable[[], object], heal: Callable[[], object]) -> None:
        """Begin a disturbance, and heal it after a random duration."""
        seconds = self.random.choice(self.pauses)
        self._tell(f"{what} for {seconds:g} s")
        begin()
        if self.kills:
            self.kill_worker()
        threading.Event().wait(seconds)
        heal()
        self.healed = time.monotonic()

    def kill_worker(self) -> None:
        """Kill a worker with all its processes, and start it again on the same
        machine.
        """
        machine = self.random.choice(WORKERS)
        self._tell(f"{machine} is killed")
        os.killpg(self.workers[machine].process.pid, signal.SIGKILL)
        self._start_worker(machine)

    def _tell(self, what: str) -> None:
        self.story.append(f"{time.monotonic() - self.began:.1f} s, after {self.handed_out}: {what}")

    @property
    def _misfortunes(self) -> list[Callable[[], None]]:
        drawn = [self.pull, self.silence, self.silence, self.mute, self.deafen]
        return [self.random.choice(drawn) for _ in range(self.random.choice([1, 2, 3]))]

    # --- the end

    def run(self, *misfortunes: Callable[[], None]) -> None:
        """Run the storm, and check that every element was handed out exactly once, in
        the promised order.

        Args:
            misfortunes: disturbances, one after the other; drawn with the seed if
                empty.
        """
        self.began = self.healed = time.monotonic()
        try:
            self._run(misfortunes or self._misfortunes)
            check(self.kind, self.count, self.loops)
        except BaseException as error:
            raise AssertionError(f"{error!r}\nstory: {self.story}\n{self._logs()}") from error
        finally:
            for loop in self.loops:
                loop.kill()

    def _run(self, misfortunes: Sequence[Callable[[], None]]) -> None:
        self.start()
        goals = sorted(self.random.randrange(self.count * 6 // 10) for _ in misfortunes)
        for goal, misfortune in zip(goals, misfortunes, strict=True):
            await_condition(
                lambda goal=goal: self.handed_out > goal or not self.running, DEADLINE, "elements"
            )
            if self.running:
                misfortune()
        await_condition(lambda: all(loop.has_ended() for loop in self.loops), DEADLINE, "the end")
        self._tell(f"ended {time.monotonic() - self.healed:.1f} s after the last disturbance")
        print("\n".join(self.story))

    def _logs(self) -> str:
        programs = "".join(f"{path.name}:\n{path.read_text()[-3000:]}" for path in self.lan.logs)
        return programs + "".join(
            f"{loop.path.name}:\n{loop.log.read_text()[-3000:]}" for loop in self.loops
        )
