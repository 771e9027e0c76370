"""Tests of frames stored in several pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zmqdata.blocks import BlockBuilder, EncodedBlock, Gathered, decode_block, whole
from zmqdata.blocks.gathered import GATHER_FROM

LARGE = np.arange(GATHER_FROM, dtype=np.int16)


def built(elements: list[Any], gather: bool, codec: str | None = None) -> EncodedBlock:
    builder = BlockBuilder(gather=gather)
    assert all(builder.add(element) for element in elements)
    return builder.build(codec)


@pytest.mark.parametrize(
    ("elements", "is_gathered"),
    [
        ([LARGE, LARGE + 1], True),
        ([LARGE[::2], LARGE[::-2]], True),
        ([LARGE, LARGE[:-9], LARGE[5:]], True),
        ([LARGE], False),
        ([LARGE[:9], LARGE[9:18]], False),
        ([LARGE[:9], LARGE[:-50]], False),
        ([LARGE.astype("datetime64[s]"), LARGE.astype("datetime64[s]")], True),
        (["text" * GATHER_FROM, "more" * GATHER_FROM], False),
    ],
)
def test_large_values_stay_where_they_are(elements: list[Any], is_gathered: bool) -> None:
    """A frame of several large arrays is sent in pieces with the bytes of the whole
    frame.
    """
    block, joined = built(elements, True), built(elements, False)
    assert [type(frame) is Gathered for frame in block.frames] == [is_gathered]
    assert block.meta == joined.meta
    assert block.wire_nbytes == joined.wire_nbytes
    assert bytes(whole(block.frames[0])) == bytes(joined.frames[0])


def test_no_byte_is_copied() -> None:
    """The pieces are the arrays' own memory."""
    arrays = [LARGE.copy(), LARGE.copy()]
    [frame] = built(arrays, True).frames
    assert isinstance(frame, Gathered)
    for piece, array in zip(frame.pieces, arrays, strict=True):
        assert np.shares_memory(np.frombuffer(piece, np.uint8), array)


def test_what_is_compressed_is_not_gathered() -> None:
    """A compressed column is never gathered, as a codec needs it whole."""
    block = built([LARGE, LARGE], True, "lz4")
    assert isinstance(block.frames[0], bytes)
    assert [int(one[3]) for one in decode_block(block.meta, block.frames).elements()] == [3, 3]
