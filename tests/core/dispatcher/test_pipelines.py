"""Test the dispatcher's parts of pipelines."""

from __future__ import annotations

from typing import Any

import pytest

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher import events as e
from zmqdata.core.dispatcher import pipelines
from zmqdata.core.dispatcher.pipelines import ABANDONED_AFTER, UNUSED_FOR, Parts
from zmqdata.core.dispatcher.state.outbox import Outbox

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
        self.parts.record_piece(e.PieceKept(fields.pop("digest", ONE), have, **fields), now)
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
    shelf.parts.restore([TWO], {ONE: 5})
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
    shelf.parts.restore([ONE], {TWO: 5})
    shelf.parts.request_piece("w", m.RequestPiece("w", ONE, 5), 0.0)
    shelf.parts.request_piece("w", m.RequestPiece("w", TWO, 0), 0.0)
    send, lost = shelf.done()
    assert send == e.SendPiece("w", ONE, 5)
    assert (lost.content, "lost a part" in lost.reason) == (b"", True)
    shelf.parts.lose(ONE)
    assert shelf.parts.missing([m.Part(ONE, 10)]) is not None


def test_parts_leave_long_after_their_last_dataset() -> None:
    """The dispatcher keeps the parts of datasets, and removes other parts and abandoned
    uploads after a while.
    """
    shelf = Shelf()
    shelf.parts.restore([ONE, TWO], {})
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
