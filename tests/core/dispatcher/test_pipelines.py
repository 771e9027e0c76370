"""Test the dispatcher's parts of pipelines."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.kit.transcript import Transcript
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher import pipelines
from zmqdata.core.dispatcher.decider import DispatcherCore, DispatcherTimes
from zmqdata.core.dispatcher.pipelines import ABANDONED_AFTER, ALONE_FOR, UNUSED_FOR, Parts
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.splits import IndexSplits

ONE, TWO = "1" * 64, "2" * 64


class Shelf:
    """Parts of a dispatcher, and its decisions since the last check."""

    def __init__(self) -> None:
        self.out = Outbox(1)
        self.parts = Parts(self.out)

    def done(self) -> list[Any]:
        return [one.message if isinstance(one, e.Send) else one for one in self.out.drain()]

    def store(
        self, offset: int, content: bytes = b"12345", size: int = 10, **others: Any
    ) -> list[Any]:
        peer, digest = others.get("peer", "k"), others.get("digest", ONE)
        self.parts.store_piece(
            peer, m.StorePiece(f"r-{peer}", digest, size, offset, content), others.get("now", 0.0)
        )
        return self.done()

    def kept(self, have: int, now: float = 0.0, **fields: Any) -> list[Any]:
        self.parts.kept(e.PieceKept(fields.pop("digest", ONE), have, **fields), now)
        return self.done()


def test_pieces_are_written_in_their_order() -> None:
    """The shell writes each consecutive piece, and the client learns how much is kept
    after it was written.
    """
    shelf = Shelf()
    assert shelf.store(0) == [e.KeepPiece(ONE, 10, 0, b"12345")]
    assert shelf.store(5) == [e.KeepPiece(ONE, 10, 5, b"12345")]
    assert shelf.kept(5) == [m.PieceStored("r-k", ONE, 5)]
    assert shelf.kept(10) == [m.PieceStored("r-k", ONE, 10)]
    assert shelf.parts.missing([m.Part(ONE, 10)]) is None
    assert shelf.store(0) == [m.PieceStored("r-k", ONE, 10)]


def test_a_piece_that_does_not_follow_is_answered_with_what_is_kept() -> None:
    """A repeated piece, or a piece behind a lost piece, is answered with the kept size,
    from which the client continues.
    """
    shelf = Shelf()
    assert shelf.store(5) == [m.PieceStored("r-k", ONE, 0)]
    shelf.store(0)
    assert shelf.store(0) == []  # the dispatcher answers when the piece is written
    assert shelf.kept(5) == [m.PieceStored("r-k", ONE, 5)]
    assert shelf.store(0) == [m.PieceStored("r-k", ONE, 5)]


def test_only_so_many_parts_are_sent_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a part beyond the limit, whether sent or requested, until
    another part is whole.
    """
    monkeypatch.setattr(pipelines, "MOST_UPLOADS", 1)
    shelf = Shelf()
    shelf.store(0)
    [refusal] = shelf.store(0, digest=TWO)
    assert refusal.error == "ResourceExhaustedError"
    shelf.parts.ask_for("k", "r", m.Part(TWO, 10), 0.0)
    assert [one.error for one in shelf.done()] == ["ResourceExhaustedError"]
    assert shelf.store(5) == [e.KeepPiece(ONE, 10, 5, b"12345")]
    shelf.kept(10)
    assert shelf.store(0, digest=TWO) == [e.KeepPiece(TWO, 10, 0, b"12345")]


def test_two_clients_send_one_part_together() -> None:
    """The first client with a piece has it written, and both clients are told."""
    shelf = Shelf()
    shelf.store(0)
    assert shelf.store(0, peer="l") == []
    assert shelf.kept(5) == [m.PieceStored("r-k", ONE, 5), m.PieceStored("r-l", ONE, 5)]
    shelf.store(5, peer="l")
    assert shelf.kept(10) == [m.PieceStored("r-l", ONE, 10)]


def test_an_upload_goes_on_where_it_ended() -> None:
    """Another client, or another dispatcher on the same folder, asks only for the rest
    of an upload.
    """
    shelf = Shelf()
    shelf.parts.found([TWO], {ONE: 5})
    shelf.parts.ask_for("k", "r", m.Part(ONE, 10), 0.0)
    assert shelf.done() == [m.RequestPart("r", ONE, 5)]
    assert shelf.store(5) == [e.KeepPiece(ONE, 10, 5, b"12345")]
    assert shelf.parts.missing([m.Part(TWO, 3), m.Part(ONE, 10)]) == m.Part(ONE, 10)


def test_a_part_with_other_bytes_begins_anew() -> None:
    """The client of a part with wrong bytes is told that nothing is kept, and begins
    anew.
    """
    shelf = Shelf()
    shelf.store(0, b"1234567890")
    note, told = shelf.kept(0, broken=True)
    assert "not match its digest" in note.text
    assert told == m.PieceStored("r-k", ONE, 0)
    assert shelf.store(0) == [e.KeepPiece(ONE, 10, 0, b"12345")]


def test_a_full_disk_is_told_to_all_who_send() -> None:
    """A full disk gives all senders the shell's error with a remedy; the incomplete
    part is removed and may be sent again.
    """
    shelf = Shelf()
    shelf.store(0)
    shelf.store(0, peer="l")
    note, one, other, drop = shelf.kept(0, error="No space left on device: /disk")
    assert note.level == "error"
    assert (one.request, other.request, drop) == ("r-k", "r-l", e.DropPipeline(ONE))
    assert one.error == "ResourceExhaustedError"
    assert "No space left on device: /disk" in one.text
    assert "--work-dir" in one.text
    assert shelf.kept(5) == []
    assert shelf.store(0) == [e.KeepPiece(ONE, 10, 0, b"12345")]


@pytest.mark.parametrize(
    "fields",
    [
        {"digest": "../x"},
        {"content": b""},
        {"content": bytes(m.MOST_PIECE_BYTES + 1), "size": 1 << 30},
        {"offset": 6},
        {"size": 4},
    ],
)
def test_impossible_pieces_are_refused(fields: dict[str, Any]) -> None:
    """The dispatcher refuses impossible pieces and writes nothing of them."""
    shelf = Shelf()
    (refused,) = shelf.store(**{"offset": 0, **fields})
    assert refused.error == "InvalidArgumentError"


def test_a_part_has_one_size() -> None:
    """The dispatcher refuses a peer that later names another size of a part."""
    shelf = Shelf()
    shelf.store(0)
    (refused,) = shelf.store(5, size=11)
    assert "part of 10 bytes" in refused.text


def test_workers_get_pieces_of_whole_parts_only() -> None:
    """The dispatcher sends workers only pieces of whole parts, and calls any other part
    lost.
    """
    shelf = Shelf()
    shelf.parts.found([ONE], {TWO: 5})
    shelf.parts.request_piece("w", m.RequestPiece("w", ONE, 5), 0.0)
    shelf.parts.request_piece("w", m.RequestPiece("w", TWO, 0), 0.0)
    send, lost = shelf.done()
    assert send == e.SendPiece("w", ONE, 5)
    assert (lost.content, "lost a part" in lost.reason) == (b"", True)
    shelf.parts.lost(ONE)
    assert shelf.parts.missing([m.Part(ONE, 10)]) is not None


def test_parts_leave_long_after_their_last_dataset() -> None:
    """The dispatcher keeps the parts of datasets, and removes other parts and abandoned
    uploads after a while.
    """
    shelf = Shelf()
    shelf.parts.found([ONE, TWO], {})
    description = m.DatasetDescription(
        "0" * 64, "", None, "", None, 1, None, "3.11", "0", (m.Part(ONE, 10),)
    )
    shelf.out.commit(u.RegisterDatasetUpdate("x", description, False))
    shelf.store(0, digest="3" * 64)
    for now in (0.0, UNUSED_FOR - 1):
        shelf.done()
        shelf.parts.collect_unused(now, UNUSED_FOR)
    assert shelf.done() == [e.DropPipeline("3" * 64)]
    assert ABANDONED_AFTER < UNUSED_FOR
    shelf.parts.collect_unused(UNUSED_FOR, UNUSED_FOR)
    assert shelf.done() == [e.DropPipeline(TWO)]
    shelf.out.commit(u.RemoveDatasetUpdate("x"))
    shelf.done()
    for now in (UNUSED_FOR + 1, 2 * UNUSED_FOR + 1):
        shelf.parts.collect_unused(now, UNUSED_FOR)
    assert shelf.done() == [e.DropPipeline(ONE)]
    assert shelf.parts.stored == set()


# --- mapped files

MAIN, RANGE, SIZE = "d" * 64, "a" * 64, 40_000_000
MAPPED = m.MappedRange(RANGE, "/data/train.bin", 0, SIZE, "5" * 64)
CONTENT = m.Part(ONE, SIZE)


class Desk(Transcript):
    """A dispatcher with a dataset that maps a file, and a worker that lacks it."""

    core: DispatcherCore

    def __init__(self, *clients: str) -> None:
        super().__init__(DispatcherCore(1, DispatcherTimes(client_timeout=15.0)))
        self.description = m.DatasetDescription(
            MAIN, "print", (IndexSplits(9),), "", None, 9, None, "3.11", "0", maps=(MAPPED,)
        )
        self.register()
        self.hear("w", m.RegisterWorker("w", "tcp://w:1", (), "3.11", "0", ()))
        for client in clients:
            job = m.JobParameters("job", "dataset", "DYNAMIC", fingerprint="print")
            self.hear(client, m.OpenIteration(client, job, 0, affiliation=m.Affiliation("run")))

    def register(self) -> None:
        self.hear("k", m.RegisterDataset("r", "dataset", self.description, b"pipeline"))

    def lack(self, *ranges: str, worker: str = "w") -> None:
        self.hear(worker, m.RequestPipeline(worker, "dataset", ranges))

    def wanted(self, client: str) -> tuple[str, ...]:
        self.hear(client, m.ClientHeartbeat(client, 0, 0, {}))
        return self.sent(m.ClientHeartbeatAnswered).wanted

    def supply(
        self, client: str, content: m.Part | None = CONTENT, reason: str = "", name: str = RANGE
    ) -> None:
        self.hear(client, m.SupplyMap(f"r-{client}", client, name, content, reason))

    def store(self) -> None:
        """Let the content arrive in one piece."""
        self.core.datasets.parts.stored.add(ONE)

    def live(self, seconds: float, *clients: str) -> list[Any]:
        """Let time pass, in which worker and clients send heartbeats, and return what
        the dispatcher sends to the worker.
        """
        told, end = [], self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.hear("w", m.WorkerHeartbeat("w", (), ()))
            for client in clients:
                self.wanted(client)
            self.feed(e.Tick())
            told += self.all_of(m.PipelineSent)
        return told


def test_a_worker_that_sees_the_files_is_answered_at_once() -> None:
    """The worker gets the paths of the mapped files, and no client is asked for
    them.
    """
    desk = Desk("c")
    desk.lack()
    assert desk.sent(e.SendPipeline).maps == (MAPPED,)
    assert desk.wanted("c") == ()


def test_one_client_at_a_time_is_asked_for_a_file() -> None:
    """The first client that sends a heartbeat is asked, again in each answer, until the
    content is stored. Then all workers that wait are answered.
    """
    desk = Desk("c", "d")
    desk.lack(RANGE)
    desk.lack(RANGE, worker="v")
    assert desk.commands == []
    assert (desk.wanted("d"), desk.wanted("c"), desk.wanted("d")) == ((RANGE,), (), (RANGE,))
    desk.supply("d")
    assert desk.sent(m.RequestPart) == m.RequestPart("r-d", ONE, 0)
    desk.store()
    desk.supply("d")
    assert desk.sent(m.MapSupplied) == m.MapSupplied("r-d")
    sent = desk.all_of(e.SendPipeline)
    assert [one.peer for one in sent] == ["w", "v"]
    assert [one.maps for one in sent] == [(replace(MAPPED, content=CONTENT),)] * 2
    assert desk.wanted("d") == ()
    desk.lack(RANGE)
    assert desk.sent(e.SendPipeline).maps[0].content == CONTENT


def test_a_client_that_cannot_send_has_a_successor() -> None:
    """The next client is asked, and the worker is told why if all have refused."""
    desk = Desk("c", "d")
    desk.lack(RANGE)
    assert desk.wanted("c") == (RANGE,)
    desk.supply("c", None, "it has changed")
    assert desk.sent(m.MapSupplied)
    assert (desk.wanted("c"), desk.wanted("d")) == ((), (RANGE,))
    desk.supply("d", None, "it was removed")
    [told] = desk.live(1.0, "c", "d")
    assert told.digest == MAIN
    assert told.reason.endswith("(40 MB) instead: it has changed; it was removed")
    desk.lack(RANGE)
    assert desk.wanted("c") == (RANGE,)


def test_a_client_that_leaves_has_a_successor() -> None:
    """The next client is asked if the first says goodbye. If nobody reads the dataset
    for ten seconds, the worker is told.
    """
    desk = Desk("c", "d")
    desk.lack(RANGE)
    assert desk.wanted("c") == (RANGE,)
    desk.hear("c", m.CloseIteration("c", 1, {}))
    desk.feed(e.Tick())
    assert desk.wanted("d") == (RANGE,)
    desk.hear("d", m.CloseIteration("d", 1, {}))
    assert desk.live(ALONE_FOR - 1.0) == []
    [told] = desk.live(2.0)
    assert "no client reads the dataset now" in told.reason


def test_a_slow_client_is_given_up_by_the_size() -> None:
    """A client has a minute and a second for each 20 MB to find the digest, and then a
    minute for each piece.
    """
    desk = Desk("c")
    patience = pipelines.PATIENCE + SIZE / pipelines.SLOWEST

    def await_content(seconds: float) -> list[Any]:
        told = []
        for _ in range(round(seconds)):
            desk.lack(RANGE)  # the worker repeats its request
            told += desk.live(1.0, "c")
        return told

    assert await_content(patience - 1.0) == []
    desk.supply("c")
    desk.hear("c", m.StorePiece("r-c", ONE, SIZE, 0, b"piece"))
    assert await_content(pipelines.PATIENCE - 2.0) == []
    desk.hear("c", m.StorePiece("r-c", ONE, SIZE, 5, b"piece"))
    assert await_content(pipelines.PATIENCE - 2.0) == []
    [told] = await_content(4.0)
    assert "it has not sent the content in time" in told.reason


def test_a_client_that_sends_one_range_is_not_late_with_others() -> None:
    """A client sends ranges one after the other. While one of them arrives, it keeps
    the others, and for each that follows its time begins anew.
    """
    desk = Desk("c")
    desk.description = replace(desk.description, maps=(MAPPED, replace(MAPPED, name=TWO)))
    desk.hear("k", m.RegisterDataset("r", "two", desk.description, b"pipeline"))
    job = m.JobParameters("other", "two", "DYNAMIC", fingerprint="print")
    desk.hear("d", m.OpenIteration("d", job, 0, affiliation=m.Affiliation("run")))

    def live_and_ask(seconds: float) -> list[Any]:
        told = []
        for _ in range(round(seconds)):
            desk.hear("w", m.RequestPipeline("w", "two", (RANGE, TWO)))
            told += desk.live(1.0, "d")
        return told

    assert live_and_ask(2.0) == []
    desk.supply("d")
    for _ in range(3):
        desk.hear("d", m.StorePiece("r-d", ONE, SIZE, 0, b"piece"))
        assert live_and_ask(pipelines.PATIENCE - 1.0) == []
    desk.store()
    desk.supply("d")
    assert live_and_ask(pipelines.PATIENCE - 1.0) == []
    [told] = live_and_ask(5.0)
    assert "it has not sent the content in time" in told.reason


def test_a_file_that_no_worker_wants_any_more_is_forgotten() -> None:
    """A range is wanted for a minute after the last request of a worker."""
    desk = Desk("c")
    desk.lack(RANGE)
    assert desk.live(pipelines.FORGOTTEN_AFTER - 1.0, "c") == []
    assert desk.wanted("c") == (RANGE,)
    assert desk.live(2.0, "c") == []
    assert desk.wanted("c") == ()


def test_a_dataset_that_is_registered_again_is_asked_for_its_digest_again() -> None:
    """The file may have changed between the samples, so a client tells its digest
    again, and sends nothing if that is stored.
    """
    desk = Desk("c")
    desk.lack(RANGE)
    desk.store()
    desk.supply("c")
    desk.register()
    desk.lack(RANGE)
    assert (desk.all_of(e.SendPipeline), desk.wanted("c")) == ([], (RANGE,))
    desk.supply("c")
    assert desk.sent(e.SendPipeline).maps[0].content == CONTENT


def test_the_content_stays_while_the_dataset_does() -> None:
    """The content of a mapped file is removed an hour after its dataset, as any part
    is.
    """
    desk = Desk("c")
    desk.lack(RANGE)
    desk.store()
    desk.supply("c")
    for now in (0.0, UNUSED_FOR + 1.0):
        desk.core.datasets.collect_unused(now)
    assert ONE in desk.core.datasets.parts.stored
    del desk.core.state.datasets["dataset"]
    for now in (UNUSED_FOR + 2.0, 2 * UNUSED_FOR + 3.0):
        desk.core.datasets.collect_unused(now)
    assert ONE not in desk.core.datasets.parts.stored


def test_a_dispatcher_that_restarted_takes_the_content() -> None:
    """A client may tell the digest before a worker has repeated its request."""
    desk = Desk("c")
    desk.supply("c")
    assert desk.sent(m.RequestPart).digest == ONE
    desk.store()
    desk.supply("c")
    desk.lack(RANGE)
    assert desk.sent(e.SendPipeline).maps[0].content == CONTENT


def test_contents_of_strangers_are_refused() -> None:
    """The content of an unknown range is not stored, and one of another size or with a
    malformed digest is an error.
    """
    desk = Desk("c")
    desk.supply("c", name=TWO)
    assert desk.sent(m.MapSupplied)
    for content in (m.Part(ONE, SIZE + 1), m.Part("../x", SIZE)):
        desk.supply("c", content)
        assert desk.sent(m.RequestRefused).error == "InvalidArgumentError"
    desk.lack(TWO)
    assert desk.sent(e.SendPipeline).maps == (MAPPED,)
