"""Test the upload of a pipeline's parts to a dispatcher, and on to a worker, over a
network that loses messages.
"""

from __future__ import annotations

import hashlib
import logging
import random
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions import define
from zmqdata import messages as m
from zmqdata.client import uploading
from zmqdata.client.uploading import (
    MOST_BROKEN,
    SAY_EVERY,
    Progress,
    Upload,
)
from zmqdata.core import events
from zmqdata.core.dispatcher import events as dispatcher_events
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.worker import events as worker_events
from zmqdata.core.worker.pipelines import MOST_PIECE_PATIENCE, Pipelines
from zmqdata.dispatcher.store import PipelineStore
from zmqdata.errors import DataLossError
from zmqdata.printable import shown_size

PIECE = 10
SMALL, LARGE = b"small part", bytes(range(95))
MAIN = b"packed pipeline"


def name(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


CONTENTS = {name(content): content for content in (SMALL, LARGE)}
PARTS = tuple(m.Part(digest, len(content)) for digest, content in CONTENTS.items())
DESCRIPTION = m.DatasetDescription(name(MAIN), "f", (), "", None, 3, None, "3.11", "0", PARTS)
ASK = m.RegisterDataset("request", "x", DESCRIPTION, MAIN)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shrink pieces to a few bytes, so that small parts have several."""
    monkeypatch.setattr(m, "PIECE_BYTES", PIECE)


def test_a_part_is_sent_a_few_pieces_ahead() -> None:
    """The client has a few pieces in flight, sends the next when a piece is kept, and
    then registers the dataset again.
    """
    upload = Upload(ASK, CONTENTS)
    digest = name(LARGE)
    first = upload.answer(m.RequestPart("request", digest, 70, PIECE))
    assert [(one.offset, one.content) for one in first if isinstance(one, m.StorePiece)] == [
        (70, LARGE[70:80]),
        (80, LARGE[80:90]),
    ]
    (last,) = upload.answer(m.PieceStored("request", digest, 80))
    assert last == m.StorePiece("request", digest, 95, 90, LARGE[90:])
    assert upload.answer(m.PieceStored("request", digest, 90)) == []
    assert upload.answer(m.PieceStored("request", name(SMALL), 10)) == ()
    assert upload.answer(m.PieceStored("request", digest, 95)) == (ASK,)
    assert upload.answer(m.PieceStored("request", digest, 95)) == ()


def test_a_long_upload_shows_its_progress(caplog: pytest.LogCaptureFixture) -> None:
    """An upload says every few seconds how much is confirmed; a short one says
    nothing.
    """
    times = iter([0.0, 1.0, SAY_EVERY, SAY_EVERY + 1, 2 * SAY_EVERY])
    upload = Upload(ASK, CONTENTS)
    shown = Progress(upload, lambda: next(times))
    digest = name(LARGE)
    with caplog.at_level(logging.WARNING, "zmqdata"):
        assert len(shown.answer(m.RequestPart("request", digest, 0, PIECE))) == 2
        for have in (50, 60):
            shown.answer(m.PieceStored("request", digest, have))
        assert (upload.done, upload.total) == (60, len(LARGE) + len(SMALL))
        assert shown.answer(m.PieceStored("request", digest, 95)) == (ASK,)
    assert upload.done == 95
    assert [record.args for record in caplog.records] == [
        ("50 bytes", shown_size(upload.total)),
        ("95 bytes", shown_size(upload.total)),
    ]


def test_a_part_that_never_arrives_whole_is_an_error() -> None:
    """A part that never arrives intact is sent again a few times and then raises an
    error.
    """
    upload = Upload(ASK, CONTENTS)
    upload.answer(m.RequestPart("request", name(LARGE), 0, PIECE))
    for _ in range(MOST_BROKEN - 1):
        upload.answer(m.PieceStored("request", name(LARGE), 10))
        assert (
            len(upload.answer(m.PieceStored("request", name(LARGE), 0))) == uploading.PIECES_AHEAD
        )
    upload.answer(m.PieceStored("request", name(LARGE), 10))
    with pytest.raises(DataLossError, match=f"other bytes than were sent .* {MOST_BROKEN} times"):
        upload.answer(m.PieceStored("request", name(LARGE), 0))


def test_a_part_of_others_is_not_sent() -> None:
    """A dispatcher that asks for a foreign part is in error."""
    with pytest.raises(DataLossError, match="not belong to this pipeline"):
        Upload(ASK, CONTENTS).answer(m.RequestPart("request", "0" * 64, 0))


class Network:
    """A client, a dispatcher on a folder and workers with a cache in memory, whose
    network loses messages by a seed.
    """

    def __init__(self, seed: int, folder: Path, loss: float) -> None:
        self.random = random.Random(seed)
        self.folder = str(folder)
        self.loss = loss
        self.now = 0.0
        self.sent_bytes = 0
        self.queue: deque[tuple[str, Any]] = deque()
        self.upload = Upload(ASK, CONTENTS)
        self.registered = False
        self.workers: dict[str, Pipelines] = {}
        self.caches: dict[str, dict[str, bytes]] = {}
        self.start_dispatcher()

    def start_dispatcher(self) -> None:
        self.core, self.store = DispatcherCore(1), PipelineStore(self.folder)
        self.core.datasets.parts.restore(*self.store.found())
        self.core.datasets.parts.piece_bytes = PIECE

    def post(self, to: str, message: Any) -> None:
        if self.random.random() >= self.loss:
            self.queue.append((to, message))

    def send_all(self, sender: str, messages: Any) -> None:
        for message in messages:
            self.post("dispatcher", (sender, message))

    def deliver(self) -> None:
        while self.queue:
            to, message = self.queue.popleft()
            if to == "dispatcher":
                self.dispatch(events.Received(*message))
            elif to == "client":
                self.registered |= isinstance(message, m.DatasetRegistered)
                self.send_all("client", self.upload.answer(message))
            else:
                self.hear(to, message)

    def dispatch(self, event: Any) -> None:
        if isinstance(event, events.Received) and isinstance(event.message, m.StorePiece):
            self.sent_bytes += len(event.message.content)
        for command in self.core.handle(self.now, event):
            if isinstance(command, events.Send):
                self.post(str(command.peer), command.message)
            elif isinstance(command, events.KeepPiece):
                self.dispatch(self.store.keep_piece(command))
            elif isinstance(command, dispatcher_events.SendPiece):
                content = self.store.read_piece(command.digest, command.offset)
                self.post(
                    str(command.peer), m.PieceSent(command.digest, command.offset, content or b"")
                )
            elif isinstance(command, dispatcher_events.SendPipeline):
                sent = m.PipelineSent(command.dataset_id, command.digest, MAIN, "", command.parts)
                self.post(str(command.peer), sent)

    def add_worker(self, worker: str, cache: dict[str, bytes]) -> None:
        self.caches[worker] = cache
        self.workers[worker] = Pipelines(worker, lambda command: self.carry_out(worker, command))

    def hear(self, worker: str, message: Any) -> None:
        pipelines = self.workers.get(worker)
        if pipelines is not None and isinstance(message, m.PipelineSent):
            pipelines.sent(message, {DESCRIPTION.digest}, self.now)
        elif pipelines is not None and isinstance(message, m.PieceSent):
            pipelines.piece_sent(message, self.now)
        elif pipelines is not None and isinstance(message, worker_events.PartClaimed):
            pipelines.claimed(message, self.now)
        elif pipelines is not None and isinstance(message, events.PieceKept):
            pipelines.kept(message, self.now)

    def carry_out(self, worker: str, command: Any) -> None:
        cache = self.caches[worker]
        if isinstance(command, events.Send):
            self.post("dispatcher", (worker, command.message))
        elif isinstance(command, worker_events.ClaimPart):
            have = len(cache.setdefault(command.digest, b""))
            self.queue.append((worker, worker_events.PartClaimed(command.digest, have, True)))
        elif isinstance(command, events.KeepPiece):
            assert len(cache[command.digest]) == command.offset
            cache[command.digest] += command.content
            have = len(cache[command.digest])
            assert have < command.size or name(cache[command.digest]) == command.digest
            self.queue.append((worker, events.PieceKept(command.digest, have)))

    def turn(self) -> None:
        """Let time pass until all time-outs have expired."""
        self.now += MOST_PIECE_PATIENCE
        if not self.registered:
            self.send_all("client", [ASK])
        task = define(1, 0, 2, "x", DESCRIPTION.digest, "OFF", 1, None, (), ())
        for pipelines in self.workers.values():
            pipelines.want(task, self.now)
            pipelines.tick(self.now)
        self.deliver()

    def is_ready(self, worker: str) -> bool:
        task = define(1, 0, 2, "x", DESCRIPTION.digest, "OFF", 1, None, (), ())
        found = self.workers[worker].find(task)
        return found is not None and not found.reason


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    restart=st.booleans(),
    die=st.booleans(),
)
def test_parts_arrive_whatever_is_lost(
    tmp_path_factory: pytest.TempPathFactory, seed: int, loss: float, restart: bool, die: bool
) -> None:
    """Parts arrive despite lost messages, a dispatcher that restarts midway, and a
    worker that dies and has a successor.
    """
    network = Network(seed, tmp_path_factory.mktemp("work"), loss)
    turns = 0
    while not network.registered:
        network.turn()
        turns += 1
        assert turns < 500
        if restart and turns == 2 and not network.registered:
            network.start_dispatcher()
    cache: dict[str, bytes] = {}
    network.add_worker("one", cache)
    network.add_worker("two", {})
    turns = 0
    while not all(map(network.is_ready, network.workers)):
        network.turn()
        turns += 1
        assert turns < 500
        if die and turns == 1:
            del network.workers["one"]
            network.deliver()
            network.add_worker("three", cache)
    assert all(cache == CONTENTS for cache in network.caches.values())


def test_a_second_registration_sends_nothing(tmp_path: Path) -> None:
    """Stored parts are not sent again, also for another pipeline at the next dispatcher
    on the folder.
    """
    network = Network(1, tmp_path, 0.0)
    network.turn()
    assert (network.registered, network.sent_bytes) == (True, len(SMALL) + len(LARGE))
    network.start_dispatcher()
    network.registered = False
    network.turn()
    assert (network.registered, network.sent_bytes) == (True, len(SMALL) + len(LARGE))
