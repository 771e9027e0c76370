"""Storms over real processes: workers, dispatcher and training loops are killed,
stopped and asked to end at random.

A server that gets SIGTERM ends cleanly and in time. A training loop that gets SIGTERM
reports what it was handed, so no other loop gets these elements. ``Storm.run`` checks
the other promises at the end.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

from tests.processes.loops import TrainingLoop, check, handed_out
from zmqdata import LocalCluster, audit
from zmqdata.cluster.processes import ServerProcess
from zmqdata.testing.cluster import await_condition, descendants

PATIENCE = 90.0
CLIENT_TIMEOUT = 3.0
UNREPORTED = 5.0
"""Seconds before its death for which a training loop may not have reported its
elements.
"""


class Storm:
    """A round: a job, and misfortunes at random points of it.

    Args:
        seed: decides what happens when.
        kind: kind of the job, a key of ``training_loop.KINDS``.
        folder: folder of the records of the training loops.
        count: number of elements of the job.
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

    # --- participants

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

    # --- misfortunes

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
        worker = self._worker()
        self._end(worker)
        worker.restart()

    def end_dispatcher(self) -> None:
        self._end(self._dispatcher())
        self._pause()
        self._dispatcher().restart()

    def _end(self, server: ServerProcess) -> None:
        server.stop()
        assert server.exit_code == 0, f"{server.module} ended with {server.exit_code} after SIGTERM"

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

    def end_loop(self) -> None:
        loop = self._running()
        if loop is not None:
            loop.end()
            self.add_loop(loop.consumer)

    def freeze_loop(self) -> None:
        loop = self._running()
        if loop is not None:
            self._freeze([loop.pid])

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
        servers = [
            self.kill_worker,
            self.kill_child,
            self.end_worker,
            self.kill_dispatcher,
            self.kill_both,
        ]
        servers += [self.end_dispatcher, self.freeze_server]
        return [*servers, self.kill_loop, self.kill_loop, self.end_loop, self.freeze_loop]

    # --- the end

    def run(self) -> None:
        """Run the storm, and check that every element was handed out exactly once, in
        the promised order.
        """
        with self.cluster:
            try:
                self._run()
                check(self.kind, self.count, self.loops, self._audit())
                self._check_reported()
            except BaseException as error:
                logs = "".join(
                    server.log[-3000:] for server in [self._dispatcher(), *self.cluster.workers]
                )
                told = "".join(
                    f"{loop.path.name}, {loop.count} elements, {loop.unreported} not reported:\n"
                    f"{loop.log.read_text()[-1500:]}"
                    for loop in self.loops
                )
                raise AssertionError(f"{error!r}\nstory: {self.story}\n{logs}\n{told}") from error
            finally:
                for loop in self.loops:
                    loop.kill()

    def _run(self) -> None:
        number = {"coordinated": 2, "ordered": 1}.get(self.kind, self.random.choice([1, 2]))
        for consumer in range(number):
            self.add_loop(consumer)
        goals = sorted(
            self.random.randrange(self.count * 9 // 10)
            for _ in range(self.random.choice([1, 2, 4]))
        )
        for goal in goals:
            await_condition(
                lambda goal=goal: self.handed_out > goal or not self._running(),
                PATIENCE,
                "elements",
            )
            misfortune = self.random.choice(self._misfortunes)
            self.story.append(f"after {self.handed_out}: {misfortune.__name__}")
            misfortune()
        await_condition(lambda: all(loop.has_ended() for loop in self.loops), PATIENCE, "the end")
        if self.kind in ("dynamic", "static") and self._is_blind:
            # Without a dispatcher a loop that is done leaves. The elements that a
            # killed loop had not reported need another reader.
            self.add_loop()
            await_condition(
                lambda: all(loop.has_ended() for loop in self.loops),
                PATIENCE,
                "the end of the last one",
            )

    def _audit(self) -> dict[str, Any]:
        """Return the counts of the dispatcher once it has all reports."""
        found: dict[str, Any] = {}

        def is_finished() -> bool:
            [one] = audit(self.cluster.target, "storm", PATIENCE)
            found.update(one)
            return found["finished"]

        try:
            await_condition(is_finished, PATIENCE, "all reports")
        except TimeoutError as error:
            raise TimeoutError(f"{error}: {found}") from None
        return found

    @property
    def _is_blind(self) -> bool:
        """True if the dispatcher was for a while unable to receive or send messages."""
        return any("dispatcher" in one or "both" in one or "freeze" in one for one in self.story)

    def _check_reported(self) -> None:
        """Check that a dead loop reported what it was handed long before its death, and
        that no other loop got it.
        """
        if self._is_blind or self.kind not in ("dynamic", "static"):
            return
        alive = handed_out(self.loops, killed=False)
        for loop in [loop for loop in self.loops if loop.killed and loop.records]:
            end = loop.records[-1][1]
            again = [
                element
                for element, at in loop.records
                if element in alive and at < end - UNREPORTED * 1e9
            ]
            assert not again, f"reported by {loop.path.name}, and handed out again: {again[:9]}"
