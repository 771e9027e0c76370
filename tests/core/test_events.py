"""Test the deciders' tables of handlers against the unions of events and commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.kit.service import WatchedService
from tests.kit.world import World
from zmqdata import DispatcherConfig, DispatchServer, WorkerConfig, WorkerServer
from zmqdata import messages as m
from zmqdata.client.shell import ReaderShell
from zmqdata.core.client import events as client_events
from zmqdata.core.client.decider import ClientCore, ClientProfile
from zmqdata.core.client.events import NoteLeftOut, ShowTaskLog
from zmqdata.core.dispatcher import events as dispatcher_events
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.events import Commit, DropPipeline, SendPiece
from zmqdata.core.events import (
    Carriers,
    Finish,
    Handlers,
    KeepPiece,
    LogLine,
    PeerHandlers,
    Send,
    Tick,
)
from zmqdata.core.worker import events as worker_events
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.events import (
    CheckFiles,
    ClaimPart,
    CloseChunk,
    DropParcels,
    ReleaseParts,
    ShareMemory,
    WriteBlock,
)
from zmqdata.core.worker.profile import WorkerProfile


def profile(service: str = "tcp://d:1") -> ClientProfile:
    return ClientProfile("me", m.JobParameters("job", "dataset", "OFF"), 0, service)


@pytest.mark.parametrize(
    ("core", "events"),
    [
        (DispatcherCore(1), dispatcher_events.DispatcherEvent),
        (WorkerCore(WorkerProfile("w", "tcp://w")), worker_events.WorkerEvent),
        (ClientCore(profile()), client_events.ClientEvent),
    ],
    ids=["dispatcher", "worker", "client"],
)
def test_a_decider_handles_every_event(core: Any, events: Any) -> None:
    """Each decider has a handler for each event of its union, and for no other
    class.
    """
    assert set(core.handlers) == set(get_args(events))


@pytest.fixture
def dispatcher(tmp_path: Path) -> Iterator[DispatchServer]:
    with DispatchServer(DispatcherConfig(work_dir=str(tmp_path))) as server:
        yield server


def test_the_dispatcher_carries_out_every_command(dispatcher: DispatchServer) -> None:
    """The dispatcher's shell carries out each command of the decider, and no other."""
    shell = dispatcher._shell
    assert shell is not None
    assert set(shell._carriers) == set(get_args(dispatcher_events.DispatcherCommand))


def test_the_worker_carries_out_every_command(dispatcher: DispatchServer) -> None:
    """The worker's shell carries out each command of the decider, and no other."""
    with WorkerServer(WorkerConfig(dispatcher.target)) as server:
        shell = server._shell
        assert shell is not None
        assert set(shell._carriers) == set(get_args(worker_events.WorkerCommand))


def test_the_client_carries_out_every_command(dispatcher: DispatchServer) -> None:
    """The client's shell carries out each command of the decider, and no other."""
    table = ReaderShell._carrier_table(ReaderShell.__new__(ReaderShell))
    assert set(table) == set(get_args(client_events.ClientCommand))


SENT = {Send}
"""Commands that each simulated node carries out, whatever its table."""
AT_ONCE = {Commit, DropPipeline, SendPiece}
"""Commands of a dispatcher without effect on a simulated one, which keeps pipelines as
a whole and for ever; the gate keeps the facts.
"""
REAL_ONLY = {Finish, KeepPiece, ShareMemory}
"""Commands of a worker that do not occur without shared memory, parts and refusals."""
OF_PIPELINES = {CheckFiles, ClaimPart, CloseChunk, DropParcels, LogLine, ReleaseParts, WriteBlock}
"""Commands of a worker that have no effect on simulated tasks."""


def test_simulated_services_know_every_command() -> None:
    """The tables of the nodes that run real pipelines have each command of their
    decider, except what a simulation has not.
    """
    with WatchedService(workers=1) as service:
        tables = (service.dispatcher._carriers, service.workers[0]._carriers)
    for table, union, absent in (
        (tables[0], dispatcher_events.DispatcherCommand, SENT | AT_ONCE),
        (tables[1], worker_events.WorkerCommand, SENT | REAL_ONLY),
    ):
        assert set(table) ^ absent == set(get_args(union))


def test_simulated_worlds_know_every_command() -> None:
    """The tables of the nodes that run simulated tasks have each command of their
    decider, except what a simulation has not.
    """
    world = World(1)
    worker, client = world.add_worker(), world.add_client()
    for table, union, absent in (
        (worker._carriers, worker_events.WorkerCommand, SENT | REAL_ONLY | OF_PIPELINES),
        (
            client._carriers,
            client_events.ClientCommand,
            SENT | {LogLine, NoteLeftOut, ShowTaskLog},
        ),
    ):
        assert set(table) ^ absent == set(get_args(union))


def test_events_and_commands_are_apart() -> None:
    """No class is an event and a command of the same decider."""
    for module, role in (
        (dispatcher_events, "Dispatcher"),
        (worker_events, "Worker"),
        (client_events, "Client"),
    ):
        events = set(get_args(getattr(module, f"{role}Event")))
        assert not events & set(get_args(getattr(module, f"{role}Command")))


def test_tables_hold_handlers_by_class() -> None:
    """A table returns the handler of a class, and fails for an unknown class."""
    heard: list[Any] = []
    handlers, peers, carriers = Handlers(), PeerHandlers(), Carriers()
    handlers.on(Tick, lambda event, now: heard.append((event, now)))
    peers.on(m.Probe, lambda peer, message, now: heard.append((peer, message, now)))
    carriers.on(LogLine, heard.append)
    handlers[Tick](Tick(), 1.0)
    peers[m.Probe]("d", m.Probe(), 2.0)
    carriers[LogLine](LogLine("info", "ready"))
    assert heard == [(Tick(), 1.0), ("d", m.Probe(), 2.0), LogLine("info", "ready")]
    with pytest.raises(KeyError):
        handlers[LogLine]
