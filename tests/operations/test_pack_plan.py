"""Tests of ``zmqdata.operations.pack_plan``."""

from __future__ import annotations

import pytest

from zmqdata.errors import FailedPreconditionError
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


def test_a_packer_has_no_negative_room() -> None:
    """A bin refuses a segment that does not fit, and a cleared packer begins anew."""
    packer = Packer((4,), 2)
    assert list(packer.place(Segment(0, (0,), (3,)))) == []
    with pytest.raises(FailedPreconditionError, match="Element 1 of the input"):
        packer.put(0, Segment(1, (0,), (2,)))
    assert (packer.open_bins[0].room, packer.clear()) == ((1,), 1)
    assert list(packer.place(Segment(2, (0,), (3,)))) == []
    assert len(packer.open_bins) == 1


def test_a_packer_reopens_bins() -> None:
    """A reopened bin continues where it was. Segments that have no tokens now, or would
    fill it, are refused.
    """
    packer = Packer((8, 8), 3, max_sequences=3)
    packer.reopen([Segment(0, (0, 0), (3, 0)), Segment(1, (0, 4), (2, 6))])
    assert packer.open_bins[0].room == (3, 6)
    [found] = packer.place(Segment(2, (0, 0), (1, 1)))
    assert [part.number for part in found.segments] == [0, 1, 2]
    for starts, stops in ((0, 5), (3, 3)), ((4, 0), (3, 3)), ((0, 0), (8, 1)), ((0, 0), (0, 0)):
        with pytest.raises(FailedPreconditionError, match=r"Element 7 .* same input only"):
            packer.reopen([Segment(7, starts, stops)])
