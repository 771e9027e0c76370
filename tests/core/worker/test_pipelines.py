"""Test how a worker gets pipelines and their parts."""

from __future__ import annotations

from typing import Any

from tests.definitions import define
from zmqdata import messages as m
from zmqdata.core.worker import events as e
from zmqdata.core.worker.pipelines import (
    MOST_BROKEN,
    PIECE_PATIENCE,
    PIECES_AHEAD,
    PIPELINES_KEPT,
    POLL_AGAIN,
    Found,
    Pipelines,
)

ONE, TWO, MAIN = "1" * 64, "2" * 64, "3" * 64
PIECE = bytes(m.PIECE_BYTES)
SIZE = 3 * m.PIECE_BYTES


def definition(digest: str = MAIN, dataset: str = "dataset") -> m.TaskDefinition:
    return define(1, 0, 2, dataset, digest, "OFF", 1, None, (), ())


class Stock:
    """The pipelines of a worker, and its decisions since the last check."""

    def __init__(self, *parts: m.Part) -> None:
        self.commands: list[Any] = []
        self.pipelines = Pipelines("w", self.commands.append)
        self.now = 0.0
        if parts:
            self.sent(parts=parts)

    def done(self) -> list[Any]:
        found = [one.message if isinstance(one, e.Send) else one for one in self.commands]
        self.commands.clear()
        return found

    def sent(
        self,
        digest: str = MAIN,
        pipeline: bytes = b"main",
        reason: str = "",
        parts: Any = (),
    ) -> None:
        self.pipelines.sent(
            m.PipelineSent("dataset", digest, pipeline, reason, tuple(parts)),
            {MAIN},
            self.now,
        )

    def claimed(self, digest: str, have: int = 0, ours: bool = True, error: str = "") -> list[Any]:
        self.pipelines.claimed(e.PartClaimed(digest, have, ours, error), self.now)
        return self.done()

    def piece(
        self, offset: int, content: bytes = PIECE, digest: str = ONE, reason: str = ""
    ) -> list[Any]:
        self.pipelines.piece_sent(m.PieceSent(digest, offset, content, reason), self.now)
        return self.done()

    def kept(self, have: int, digest: str = ONE, **fields: Any) -> list[Any]:
        self.pipelines.kept(e.PieceKept(digest, have, **fields), self.now)
        return self.done()

    def wait(self, seconds: float) -> list[Any]:
        self.now += seconds
        self.pipelines.tick(self.now)
        return self.done()

    def find(self, digest: str = MAIN) -> Found | None:
        return self.pipelines.find(definition(digest))


def test_a_pipeline_with_parts_is_ready_when_all_are_here() -> None:
    """The worker looks for a pipeline's parts in the cache in turn, and is ready when
    it has all.
    """
    stock = Stock(m.Part(ONE, SIZE), m.Part(TWO, 5))
    assert stock.done() == [e.ClaimPart(ONE, SIZE)]
    assert stock.find() is None
    assert stock.claimed(ONE, SIZE) == [e.ClaimPart(TWO, 5)]
    assert stock.claimed(TWO, 5) == []
    assert stock.find() == Found(b"main")


def test_a_part_is_fetched_in_pieces() -> None:
    """The worker has a few pieces in flight, asks for the next when a piece is written,
    and is ready after the last.
    """
    stock = Stock(m.Part(ONE, SIZE))
    stock.done()
    offsets = [number * m.PIECE_BYTES for number in range(3)]
    assert stock.claimed(ONE) == [
        m.RequestPiece("w", ONE, offset) for offset in offsets[:PIECES_AHEAD]
    ]
    assert stock.piece(0) == [e.KeepPiece(ONE, SIZE, 0, PIECE)]
    assert stock.kept(offsets[1]) == [m.RequestPiece("w", ONE, offsets[2])]
    stock.piece(offsets[1])
    stock.piece(offsets[2])
    stock.kept(offsets[2])
    assert stock.find() is None
    stock.kept(SIZE)
    assert stock.find() == Found(b"main")


def test_a_part_goes_on_where_a_dead_worker_ended() -> None:
    """The worker asks only for the pieces that a dead worker has not left in the
    cache.
    """
    stock = Stock(m.Part(ONE, SIZE))
    stock.done()
    assert stock.claimed(ONE, SIZE - 7)[0] == m.RequestPiece("w", ONE, SIZE - 7)


def test_what_another_process_fetches_is_looked_for_again() -> None:
    """The worker fetches other parts while another process fetches this part, and takes
    its claim over if that process dies.
    """
    stock = Stock(m.Part(ONE, SIZE), m.Part(TWO, 5))
    stock.done()
    assert stock.claimed(ONE, ours=False) == [e.ClaimPart(TWO, 5)]
    assert stock.claimed(TWO, ours=False) == []
    assert stock.wait(POLL_AGAIN) == [e.ClaimPart(ONE, SIZE)]
    assert stock.claimed(ONE, ours=False) == [e.ClaimPart(TWO, 5)]
    assert stock.claimed(TWO, 5, ours=False) == []
    assert stock.wait(POLL_AGAIN) == [e.ClaimPart(ONE, SIZE)]
    assert stock.claimed(ONE, 0)[0] == m.RequestPiece("w", ONE, 0)


def test_lost_pieces_are_asked_for_again_rarer_each_time() -> None:
    """The worker asks again from the first missing piece, less often each time, and
    gets later pieces once more.
    """
    stock = Stock(m.Part(ONE, SIZE))
    stock.done()
    stock.claimed(ONE)
    assert stock.piece(m.PIECE_BYTES) == []  # the first was lost
    assert stock.wait(PIECE_PATIENCE - 0.1) == []
    assert stock.wait(0.1)[0] == m.RequestPiece("w", ONE, 0)
    assert stock.wait(PIECE_PATIENCE) == []
    assert stock.wait(PIECE_PATIENCE)[0] == m.RequestPiece("w", ONE, 0)
    stock.piece(0)
    assert stock.wait(PIECE_PATIENCE)[0] == m.RequestPiece("w", ONE, m.PIECE_BYTES)


def test_a_reason_fails_the_pipelines_that_have_the_part() -> None:
    """A full disk or a part lost by the dispatcher fails the pipelines with that part,
    and a later task retries it.
    """
    for tell in (
        lambda stock: stock.claimed(ONE, error="No space left"),
        lambda stock: (stock.claimed(ONE), stock.kept(0, error="No space left")),
        lambda stock: (stock.claimed(ONE), stock.piece(0, b"", reason="No space left")),
    ):
        stock = Stock(m.Part(ONE, SIZE))
        stock.done()
        tell(stock)
        found = stock.find()
        assert found is not None
        assert "No space left" in found.reason
        assert "6.29 MB" in found.reason
        stock.pipelines.forget_failures()
        assert stock.find() is None
        stock.pipelines.want(definition(), stock.now)
        assert stock.done()[-1] == m.RequestPipeline("w", "dataset")


def test_a_part_that_comes_with_other_bytes_is_fetched_anew_a_few_times() -> None:
    """A part with wrong bytes is fetched again a few times, and then the pipeline
    fails.
    """
    stock = Stock(m.Part(ONE, 5))
    stock.done()
    for _ in range(MOST_BROKEN):
        stock.claimed(ONE)
        stock.piece(0, b"wrong")
        assert stock.kept(0, broken=True) == [e.ClaimPart(ONE, 5)]
    stock.claimed(ONE)
    stock.piece(0, b"wrong")
    stock.kept(0, broken=True)
    found = stock.find()
    assert found is not None
    assert "did not match its digest" in found.reason


def test_a_piece_beyond_the_part_is_a_failure() -> None:
    """The worker fails a part if the dispatcher sends more than the announced size."""
    stock = Stock(m.Part(ONE, 5))
    stock.done()
    stock.claimed(ONE)
    stock.piece(0, b"123456")
    found = stock.find()
    assert found is not None
    assert "another part" in found.reason


def test_parts_are_let_go_with_their_pipelines() -> None:
    """The worker releases parts with their pipelines, but keeps the parts of kept
    pipelines even if they are shared.
    """
    stock = Stock(m.Part(ONE, 5))
    stock.claimed(ONE, 5)
    for number in range(PIPELINES_KEPT):
        digest = f"{number:064x}"
        stock.sent(digest, parts=(m.Part(TWO if number else "9" * 64, 5),))
        stock.claimed(TWO if number else "9" * 64, 5)
    stock.done()
    stock.sent("f" * 64)
    assert stock.done() == [e.ReleaseParts(frozenset({ONE, TWO}))]
    assert stock.pipelines.whole == {ONE, TWO}


def test_events_of_parts_that_nobody_wants_are_ignored() -> None:
    """The worker ignores late or unrequested events of parts."""
    stock = Stock()
    assert stock.claimed(ONE, 5) == stock.piece(0) == stock.kept(5) == []
    assert stock.pipelines.whole == set()
