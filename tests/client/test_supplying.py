"""Tests of the thread that sends the content of mapped files."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from zmqdata import messages as m
from zmqdata.client import supplying
from zmqdata.client.supplying import MapSupplier
from zmqdata.core.client.events import SupplyMaps
from zmqdata.errors import ResourceExhaustedError, UnavailableError
from zmqdata.pipelines import memorymaps
from zmqdata.pipelines.memorymaps import LARGE, FilePart, file_part

Reply = Callable[[m.Message], Sequence[m.Message]]
NUMBERS = np.arange(LARGE, dtype=np.uint16)


@pytest.fixture
def part(tmp_path: Path) -> FilePart:
    """Return a range of a file of 2 MiB."""
    NUMBERS.tofile(tmp_path / "rows.bin")
    found = file_part(np.memmap(tmp_path / "rows.bin", np.uint16, "r")[8:])
    assert found is not None
    return found


def mapped(part: FilePart) -> m.MappedRange:
    return m.MappedRange(part.name, part.path, part.start, part.nbytes, part.digest)


class Supplier(MapSupplier):
    """A supplier with a dispatcher that requests what it is told of."""

    def __init__(self, *parts: FilePart) -> None:
        super().__init__("tcp://127.0.0.1:1", 10.0, map(mapped, parts))
        self.asked: list[m.SupplyMap] = []
        self.refused = False
        self.got = b""

    def _ask(self, ask: m.SupplyMap, reply: Reply) -> None:
        self.asked.append(ask)
        if ask.content is None:
            return
        if self.refused:
            raise ResourceExhaustedError("the disk is full")
        pieces = list(reply(m.RequestPart(ask.request, ask.content.digest, 0, 1 << 19)))
        while pieces:
            piece = pieces.pop(0)
            if piece == ask:
                return
            assert isinstance(piece, m.StorePiece)
            self.got += piece.content
            stored = m.PieceStored(ask.request, piece.digest, len(self.got))
            pieces += reply(stored)

    def supplied(self, *names: str) -> list[m.SupplyMap]:
        """Let the thread send these ranges to its end."""
        self.supply(SupplyMaps("me", names))
        assert self._thread is not None
        self._thread.join(30.0)
        return self.asked


def test_a_range_is_told_by_its_digest_and_sent_in_pieces(part: FilePart) -> None:
    """The digest covers the range alone, whose bytes are read from the file when they
    are sent.
    """
    supplier = Supplier(part)
    [ask] = supplier.supplied(part.name)
    content = NUMBERS[8:].tobytes()
    assert ask.content == m.Part(hashlib.sha256(content).hexdigest(), len(content))
    assert (ask.client, ask.name, ask.reason) == ("me", part.name, "")
    assert supplier.got == content


def test_what_cannot_be_sent_is_told_with_its_reason(part: FilePart) -> None:
    """The dispatcher hears why a client cannot send: the file is gone, the range is of
    another pipeline, or the dispatcher has no room for it.
    """
    full = Supplier(part)
    full.refused = True
    assert [ask.reason for ask in full.supplied(part.name)] == ["", "the disk is full"]
    Path(part.path).unlink()
    [gone] = Supplier(part).supplied(part.name)
    assert (gone.content, "does not see the file" in gone.reason) == (None, True)
    [unknown] = Supplier().supplied(part.name)
    assert (unknown.content, "another pipeline" in unknown.reason) == (None, True)


def test_a_range_is_sent_once_at_a_time(
    part: FilePart, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A range that the dispatcher still wants while it is sent is not sent twice. Its
    progress is shown.
    """
    monkeypatch.setattr(supplying, "SAY_EVERY", 0.0)
    supplier = Supplier(part)
    read = FilePart.read

    def read_and_ask(self: FilePart, begin: int, end: int) -> bytes:
        supplier.supply(SupplyMaps("me", (part.name,)))
        return read(self, begin, end)

    monkeypatch.setattr(FilePart, "read", read_and_ask)
    with caplog.at_level(logging.WARNING, "zmqdata"):
        assert len(supplier.supplied(part.name)) == 1
    told = [record.getMessage() for record in caplog.records]
    assert sum("workers lack the file" in text for text in told) == 1
    assert any("before it is sent: 2 of 2 MB" in text for text in told)


def test_many_files_are_announced_together(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning tells how many files are sent and their size. A file that cannot be
    sent is not among them.
    """
    parts = []
    for name in "abc":
        NUMBERS.tofile(tmp_path / name)
        part = file_part(np.memmap(tmp_path / name, np.uint16, "r"))
        assert part is not None
        parts.append(part)
    (tmp_path / "c").unlink()
    with caplog.at_level(logging.WARNING, "zmqdata"):
        assert len(Supplier(*parts).supplied(*(part.name for part in parts))) == 3
    [record] = caplog.records
    assert f"workers lack 2 files ({tmp_path / 'a'}...)" in record.getMessage()
    assert "The content (4 MB) is sent" in record.getMessage()


def test_closing_ends_the_thread(part: FilePart, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supplier that is closed while it reads sends nothing more."""
    monkeypatch.setattr(memorymaps, "READ_AT_A_TIME", 1024)
    supplier, reads = Supplier(part), threading.Event()
    read = FilePart.read

    def read_and_tell(self: FilePart, begin: int, end: int) -> bytes:
        reads.set()
        return read(self, begin, end)

    monkeypatch.setattr(FilePart, "read", read_and_tell)
    supplier.supply(SupplyMaps("me", (part.name,)))
    assert reads.wait(30.0)
    supplier.close()
    assert supplier._thread is not None
    assert not supplier._thread.is_alive()
    supplier.supply(SupplyMaps("me", (part.name,)))
    assert not supplier._thread.is_alive()
    assert supplier.asked == []


def test_closing_ends_a_wait_for_the_dispatcher(part: FilePart) -> None:
    """A supplier whose dispatcher does not answer ends within a second."""
    supplier = MapSupplier("tcp://127.0.0.1:1", 60.0, [mapped(part)])
    ask = m.SupplyMap("request", "me", part.name)
    supplier.close()
    with pytest.raises(UnavailableError, match="was stopped"):
        supplier._ask(ask, lambda message: ())
