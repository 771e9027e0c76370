"""Tests of ``zmqdata.operations.pack_plan``."""

from __future__ import annotations

from zmqdata.operations.pack_plan import Packer, Segment


def test_a_packer_gives_way_before_it_opens_a_bin() -> None:
    """A bin that makes room comes out before the document is placed, which then
    continues where it was.
    """
    packer = Packer((4,), 1)
    assert list(packer.place(Segment(0, (0,), (3,)))) == []
    [found] = packer.place(Segment(1, (0,), (2,)))
    assert ([part.number for part in found.segments], len(packer.open_bins)) == ([0], 1)
    document = Segment(2, (0,), (9,))
    cut = Packer((4,), 1, concat=True)
    assert [document.starts for _ in cut.place(document)] == [(4,), (8,)]


def test_a_cleared_packer_begins_anew() -> None:
    """A packer without bins places documents as a new one, and says what it had."""
    packer = Packer((4,), 2)
    assert list(packer.place(Segment(0, (0,), (3,)))) == []
    assert packer.clear() == 1
    assert list(packer.place(Segment(2, (0,), (3,)))) == []
    assert len(packer.open_bins) == 1
