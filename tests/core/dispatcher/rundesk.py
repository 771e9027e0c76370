"""A dispatcher for tests of runs, which talks to clients by hand."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherPolicy, DispatcherTimes
from zmqdata.core.dispatcher.peers.lease import GRACE
from zmqdata.splits import IndexSplits

JOB = m.JobParameters("job", "dataset", "DYNAMIC")
PAIR = replace(JOB, num_consumers=2, finite="drop", num_tasks=2)
CLIENT_TIMEOUT, GC = 15.0, 300.0


class Desk(Transcript):
    """A dispatcher with a dataset and a worker."""

    core: DispatcherCore

    def __init__(self, *addresses: str, colocated: bool = False) -> None:
        times = DispatcherTimes(client_timeout=CLIENT_TIMEOUT, gc_timeout=GC)
        policy = DispatcherPolicy(deployment_mode="COLOCATED" if colocated else "REMOTE")
        super().__init__(DispatcherCore(1, times, addresses, policy=policy))
        self.lost: set[str] = set()
        description = m.DatasetDescription(
            "d" * 64, "print", (IndexSplits(100),), "", None, -2, None, "3.11", "0"
        )
        self.hear("k", m.RegisterDataset("request", "dataset", description, b"pipeline"))
        self.hear("w", m.RegisterWorker("w", "tcp://w:1", (), "3.11", "0", ()))

    def open(
        self,
        client: str,
        run: str,
        repetition: int = 0,
        job: m.JobParameters = JOB,
        consumer: int | None = None,
        local: tuple[str, ...] = (),
        **who: Any,
    ) -> m.IterationOpened | None:
        """Let a client of a run ask, and return the dispatcher's answer if it opens."""
        who.setdefault("process", f"process of {run}")
        ask = m.OpenIteration(
            client,
            job,
            repetition,
            m.Reader(consumer),
            local_workers=local,
            affiliation=m.Affiliation(run, **who),
        )
        self.hear(client, ask)
        found = self.all_of(m.IterationOpened)
        return found[-1] if found else None

    def opened(self, *args: Any, **options: Any) -> m.IterationOpened:
        """Open, after all clients with a connection have given a sign if that is
        awaited.
        """
        found = self.open(*args, **options)
        if found is None and self.all_of(m.OpenAwaited):
            for client in sorted(self.core.state.client_iteration.keys() - self.lost):
                self.speak(client)
            found = self.open(*args, **options)
        if found is None:
            self.now += GRACE
            found = self.open(*args, **options)
        assert found is not None
        return found

    def place(self, *args: Any, **options: Any) -> tuple[str, int, int]:
        """Open, and return how, the incarnation and the repetition."""
        found = self.opened(*args, **options)
        return found.how, found.incarnation, found.repetition

    def close(self, *clients: str, at_end: bool = False) -> None:
        for client in clients:
            self.hear(client, m.CloseIteration(client, 1, {}, at_end=at_end))

    def speak(self, client: str) -> None:
        self.now += 0.1
        self.hear(client, m.ClientHeartbeat(client, 0, 0, {}, question=self.asked.get(client)))

    def lose(self, *clients: str) -> None:
        """Let clients be without a connection."""
        self.lost |= {*clients}
        for client in clients:
            self.feed(e.Unreachable(client))

    def wait(self, seconds: float, *alive: str) -> None:
        """Let time pass, in which these clients send heartbeats."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for client in alive:
                self.speak(client)
            self.hear("w", m.WorkerHeartbeat("w", (), ()))
            self.feed(e.Tick())

    def finish(self, incarnation: int, repetition: int, *clients: str) -> None:
        """Let a repetition come to its end, and its clients close."""
        iteration = self.core.state.incarnations[incarnation].iterations[repetition]
        for task in list(iteration.tasks.values()):
            if not task.settled:
                self.core.out.commit(u.EndTaskUpdate(task.task, 0))
        if not iteration.closed:
            self.core.out.commit(u.CloseTaskListUpdate(iteration.iteration))
        self.close(*clients, at_end=True)
        assert iteration.finished

    def refusal(self) -> m.RequestRefused:
        return self.all_of(m.RequestRefused)[-1]
