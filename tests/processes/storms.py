"""Storms over real processes: workers, dispatcher and training loops are killed, stopped and asked to end at random.

What must hold all the same is checked at the end: ``Storm.run``.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.processes.training_loop import RECORD, distributed
from zmqdata import LocalCluster
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import await_condition, descendants

LOOP = Path(__file__).with_name("training_loop.py")
PATIENCE = 90.0
CLIENT_TIMEOUT = 3.0
UNREPORTED = 5.0
"""Seconds before its death of which a training loop may not have reported what it was handed."""


class TrainingLoop:
    """A training loop in a process, and what it has written down."""

    def __init__(self, target: str, kind: str, count: int, consumer: int, path: Path) -> None:
        self.consumer = consumer
        self.killed = False
        self.path = path
        self.log = path.with_suffix(".log")
        arguments = [target, kind, str(count), str(consumer), str(path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path)}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(LOOP), *arguments], stdout=log, stderr=log, env=environment
            )

    @property
    def count(self) -> int:
        return self.path.stat().st_size // RECORD.size if self.path.exists() else 0

    @property
    def records(self) -> list[tuple[int, int]]:
        """Each element, and when it was handed out, in nanoseconds."""
        content = self.path.read_bytes() if self.path.exists() else b""
        return list(RECORD.iter_unpack(content[: len(content) // RECORD.size * RECORD.size]))

    @property
    def elements(self) -> list[int]:
        return [element for element, _ in self.records]

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self.killed = True
        self._process.kill()
        self._process.wait()

    def has_ended(self) -> bool:
        """Whether it has read to the end; fails when it has ended in another way."""
        code = self._process.poll()
        if code is None:
            return False
        assert code == 0 or self.killed, f"{self.path.name} ended with {code}: {self.log.read_text()[-2000:]}"
        return True


class Storm:
    """One round: a job, and misfortunes at random places of it.

    Args:
        seed: decides what happens when.
        kind: of the job, a key of ``training_loop.KINDS``.
        folder: for what training loops write down.
        count: how many elements the job has.
    """

    def __init__(self, seed: int, kind: str, folder: Path, count: int = 12_000) -> None:
        self.random = random.Random(f"{seed}/{kind}")
        self.kind, self.folder, self.count = kind, folder, count
        self.story: list[str] = []
        self.loops: list[TrainingLoop] = []
        options: dict[str, Any] = {"heartbeat_interval_ms": 200, "buffer_bytes": 1 << 17}
        options["client_timeout_ms"] = int(CLIENT_TIMEOUT * 1000)
        if kind == "static":
            options["worker_addresses"] = ("127.0.0.1:%port%",) * 2
        self.cluster = LocalCluster(2, worker_timeout_ms=4_000, **options)

    # --- who takes part

    def add_loop(self, consumer: int = 0) -> None:
        path = self.folder / f"loop-{len(self.loops)}"
        self.loops.append(TrainingLoop(self.cluster.target, self.kind, self.count, consumer, path))

    @property
    def handed_out(self) -> int:
        return sum(loop.count for loop in self.loops)

    def _running(self) -> TrainingLoop | None:
        running = [loop for loop in self.loops if loop.running]
        return self.random.choice(running) if running else None

    def _worker(self) -> ServerProcess:
        worker = self.random.choice(self.cluster.workers)
        assert isinstance(worker, ServerProcess)
        return worker

    def _dispatcher(self) -> ServerProcess:
        assert isinstance(self.cluster.dispatcher, ServerProcess)
        return self.cluster.dispatcher

    # --- what happens

    def kill_worker(self) -> None:
        worker = self._worker()
        worker.kill()
        worker.restart()

    def kill_child(self) -> None:
        children = descendants(self._worker().pid)
        if children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(children), signal.SIGKILL)

    def end_worker(self) -> None:
        self._worker().restart()

    def kill_dispatcher(self) -> None:
        self._dispatcher().kill()
        self._pause()
        self._dispatcher().restart()

    def kill_both(self) -> None:
        worker = self._worker()
        worker.kill()
        self.kill_dispatcher()
        worker.restart()

    def freeze_server(self) -> None:
        server = self.random.choice([self._worker(), self._dispatcher()])
        pids = [server.pid, *descendants(server.pid)]
        self._freeze(pids)

    def kill_loop(self) -> None:
        loop = self._running()
        if loop is not None:
            loop.kill()
            self.add_loop(loop.consumer)

    def freeze_loop(self) -> None:
        loop = self._running()
        if loop is not None:
            self._freeze([loop._process.pid])

    def _freeze(self, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        self._pause()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _pause(self) -> None:
        threading.Event().wait(self.random.choice([0.0, 0.3, 1.0, 6.0]))

    @property
    def _misfortunes(self) -> list[Any]:
        one = [self.kill_worker, self.kill_child, self.end_worker, self.kill_dispatcher, self.kill_both]
        return [*one, self.freeze_server, self.kill_loop, self.freeze_loop]

    # --- and how it ends

    def run(self) -> None:
        """Lives through it and checks that every element was handed out, none of them twice, in the order promised."""
        with self.cluster:
            try:
                self._run()
                self._check()
            except BaseException as error:
                logs = "".join(server.log[-3000:] for server in [self._dispatcher(), *self.cluster.workers])
                told = "".join(loop.log.read_text()[-1500:] for loop in self.loops)
                raise AssertionError(f"{error!r}\nstory: {self.story}\n{logs}\n{told}") from error
            finally:
                for loop in self.loops:
                    loop.kill()

    def _run(self) -> None:
        number = {"coordinated": 2, "ordered": 1}.get(self.kind, self.random.choice([1, 2]))
        for consumer in range(number):
            self.add_loop(consumer)
        goals = sorted(self.random.randrange(self.count * 9 // 10) for _ in range(self.random.choice([1, 2, 4])))
        for goal in goals:
            await_condition(lambda goal=goal: self.handed_out > goal or not self._running(), PATIENCE, "elements")
            misfortune = self.random.choice(self._misfortunes)
            self.story.append(f"after {self.handed_out}: {misfortune.__name__}")
            misfortune()
        await_condition(lambda: all(loop.has_ended() for loop in self.loops), PATIENCE, "the end")
        if self.kind in ("dynamic", "static"):
            # Somebody must have what a loop that was killed had not reported, once it is known to be dead.
            known = time.monotonic() + 2 * CLIENT_TIMEOUT
            await_condition(lambda: time.monotonic() > known, PATIENCE, "the death of others to be noticed")
            self.add_loop()
            await_condition(lambda: all(loop.has_ended() for loop in self.loops), PATIENCE, "the end of the last one")

    def _check(self) -> None:
        if self.kind == "ordered":
            self._check_order()
        elif self.kind == "coordinated":
            self._check_consumers()
        else:
            self._check_once()

    def _check_once(self) -> None:
        alive = Counter(element for loop in self.loops if not loop.killed for element in loop.elements)
        dead = Counter(element for loop in self.loops if loop.killed for element in loop.elements)
        twice = [element for element, times in alive.items() if times > 1]
        missing = [element for element in range(self.count) if element not in alive and element not in dead]
        assert (len(twice), len(missing)) == (0, 0), f"twice: {twice[:9]}, missing: {missing[:9]}"
        if not any("dispatcher" in one or "both" in one or "freeze" in one for one in self.story):
            self._check_reported(alive)

    def _check_reported(self, alive: Counter[int]) -> None:
        """What a dead loop was handed long before its death was reported, and came to nobody else."""
        for loop in [loop for loop in self.loops if loop.killed and loop.records]:
            end = loop.records[-1][1]
            again = [element for element, at in loop.records if element in alive and at < end - UNREPORTED * 1e9]
            assert not again, f"reported by {loop.path.name}, and handed out again: {again[:9]}"

    def _streams(self) -> dict[int, list[int]]:
        """What each consumer had, in order; its successor repeats at most what the one before had not reported."""
        streams: dict[int, list[int]] = {}
        for loop in self.loops:
            before, found = streams.get(loop.consumer, []), loop.elements
            starts = [at for at, element in enumerate(before) if found and element == found[0]] or [len(before)]
            overlap = before[starts[-1] :]
            assert overlap == found[: len(overlap)] or found == overlap[: len(found)], f"{loop.path.name} goes astray"
            streams[loop.consumer] = before[: starts[-1]] + max(found, overlap, key=len)
        return streams

    def _check_order(self) -> None:
        with LocalCluster(1, in_process=True) as cluster:
            expected = [int(element[0]) for element in distributed(cluster.target, self.kind, self.count, 0)]
        assert self._streams()[0] == expected

    def _check_consumers(self) -> None:
        streams = self._streams()
        assert len({len(stream) for stream in streams.values()}) == 1
        counts = Counter(element for stream in streams.values() for element in stream)
        assert set(counts.values()) == {1}
        assert self.count - len(counts) <= 8
