"""Tests of ``zmqdata.blocks.adaptive`` with real codecs and a clock that tests move."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from zmqdata.blocks import compression
from zmqdata.blocks.adaptive import PROBE_BYTES, Compression, Pace
from zmqdata.blocks.choosing import UNKNOWN_SPEED, Packing
from zmqdata.blocks.compression import decode_buffer

TOKENS = memoryview(np.random.default_rng(3).integers(0, 5000, 32768).view(np.uint8))
NOISE = memoryview(np.random.default_rng(7).integers(0, 256, TOKENS.nbytes, np.uint8))
SLOW = 1e6


class Clock:
    """A clock that advances by a fixed step at each reading."""

    def __init__(self, step: float = 0.0) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def far(step: float = 0.0, speed: float = SLOW) -> Compression:
    """Return an AUTO compression for a remote reader, after its first block."""
    auto = Compression("AUTO", clock=Clock(step))
    auto.speed = speed
    auto.encode("s", [(TOKENS, 8)])
    return auto


def test_auto_compresses_what_shrinks_and_nothing_else() -> None:
    """On a slow link AUTO compresses tokens but neither noise nor small values. The
    receiver decodes every column unchanged.
    """
    auto = far()
    columns = [(TOKENS, 8), (NOISE, 1), (TOKENS[:1000], 8)]
    encoded = auto.encode("s", columns)
    assert list(auto.chosen) == [0]
    assert [bool(chunks) for _, chunks in encoded] == [True, False, False]
    for (buffer, _), (frame, chunks) in zip(columns, encoded, strict=True):
        assert bytes(decode_buffer(memoryview(frame), buffer.nbytes, chunks, own=True)) == bytes(
            buffer
        )


def test_auto_compresses_nothing_on_one_host() -> None:
    """On a single host AUTO tries no codec and never reads the clock. The same holds
    until the speed is known.
    """
    clock = Clock(1.0)
    auto = Compression("AUTO", clock=clock)
    assert auto.speed == math.inf
    assert auto.encode("s", [(TOKENS, 8)]) == auto.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
    assert (clock.now, auto.shown) == (0.0, "")


def test_auto_follows_its_clients() -> None:
    """A remote reader enables compression, and a local reader disables it."""
    auto = far()
    auto.encode("s", [(TOKENS, 8)])
    assert auto.chosen
    auto.speed = math.inf
    assert auto.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
    assert (auto.chosen, auto.shown) == ({}, "")
    auto.speed = SLOW
    assert auto.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
    assert auto.encode("s", [(TOKENS, 8)]) != [(TOKENS, ())]


def test_slow_codecs_are_not_taken() -> None:
    """AUTO compresses nothing if the codec takes longer than the link saves."""
    auto = far(step=1.0)
    auto.rest()
    auto.encode("s", [(TOKENS, 8)])
    assert auto.chosen == {}


def test_crowded_cores_are_noticed() -> None:
    """AUTO skips a codec slowed down by a busy core, and retries it later."""
    passed, worked = Clock(), Clock()
    auto = Compression("AUTO", clock=passed, work=worked)
    auto.speed = 1e9
    auto.encode("s", [(TOKENS, 8)])
    passed.step, worked.step = 1e-1, 1e-6
    for _ in range(50):
        auto.rest()
        auto.encode("s", [(TOKENS, 8)])
        auto.resume()
    assert auto.chosen == {}
    passed.step = worked.step
    for _ in range(1000):
        auto.rest()
        auto.encode("s", [(TOKENS, 8)])
        auto.resume()
    assert auto.chosen


def test_the_first_block_only_starts_the_clock() -> None:
    """The first block only starts the clock, as opening a pipeline says nothing of its
    pace.
    """
    auto = Compression("AUTO", clock=Clock())
    auto.speed = SLOW
    assert auto.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
    assert auto.encode("s", [(TOKENS, 8)]) != [(TOKENS, ())]


@pytest.mark.parametrize("codec", ["lz4", "zstd", "blosclz"])
def test_named_codecs_are_honoured(codec: str) -> None:
    """A named codec is used regardless of its cost and of the reader's location."""
    named = Compression(codec, clock=Clock(1.0))
    [(frame, chunks)] = named.encode("s", [(TOKENS, 8)])
    assert len(chunks) == 1
    assert len(frame) < TOKENS.nbytes
    assert named.shown.startswith(f"{codec}, ")


def test_none_compresses_nothing() -> None:
    """Compression None leaves every block raw."""
    assert Compression(None).encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
    assert Compression(None).shown == ""


def test_unknown_codecs_are_refused() -> None:
    """An unknown codec name is an error at once."""
    with pytest.raises(ValueError, match="Invalid `compression` argument"):
        Compression("BROTLI")


def test_files_take_lz4_where_it_saves() -> None:
    """AUTO without a clock decides by size alone, from the first block, with lz4."""
    file = Compression("AUTO")
    assert file.speed == UNKNOWN_SPEED
    file.encode("s", [(TOKENS, 8), (NOISE, 1)])
    assert [(index, packing.codec) for index, packing in file.chosen.items()] == [(0, "lz4")]


def test_each_structure_has_its_own_choice() -> None:
    """A new element structure triggers a probe, and earlier choices are kept."""
    auto = far()
    auto.encode("s", [(TOKENS, 8)])
    before = auto.chosen
    assert auto.encode("t", [(NOISE, 8)]) == [(NOISE, ())]
    assert auto.chosen == {}
    auto.encode("s", [(TOKENS, 8)])
    assert auto.chosen is before


def test_few_structures_are_remembered() -> None:
    """Elements whose structure keeps changing do not fill the memory."""
    auto = far()
    for number in range(100):
        auto.encode(number, [(TOKENS, 8)])
    assert len(auto._choices) < 20


def test_large_buffers_are_cut() -> None:
    """A buffer beyond the limit of a single call becomes several chunks."""
    [(frame, chunks)] = Compression("zstd").encode("s", [(TOKENS, 8)], max_chunk=100_000)
    assert len(chunks) == 3
    assert sum(chunks) == len(frame)


def test_only_the_middle_of_a_column_is_tried() -> None:
    """AUTO probes the middle of a column, so noise at both ends does not matter."""
    rim = NOISE[: PROBE_BYTES // 2]
    auto = far()
    auto.encode("s", [(memoryview(b"".join([rim, TOKENS, rim])), 8)])
    assert list(auto.chosen) == [0]


def test_items_without_width_are_not_shuffled() -> None:
    """Columns without an item width, such as text, are probed without filters."""
    auto, text = far(), memoryview(b"it was the best of times, it was the worst of times, " * 4000)
    auto.encode("s", [(text, 0)])
    assert auto.chosen[0].shuffle == "noshuffle"


def test_what_is_shown_tells_codecs_and_ratio() -> None:
    """The description names the codecs in use and the ratio of the last blocks."""
    auto = far()
    for _ in range(50):
        auto.encode("s", [(TOKENS, 8)])
    packing, ratio, speed = auto.shown.split(", ")
    assert speed == "at 1 MB/s"
    assert packing == str(auto.chosen[0])
    assert Packing(*packing.split("+")) == auto.chosen[0]
    assert 3 < float(ratio.removesuffix("x smaller")) < 8
    noise = far()
    noise.encode("n", [(NOISE, 1)])
    assert noise.shown == "nothing, at 1 MB/s"


def test_pace_is_time_per_byte_without_rests() -> None:
    """The pace counts only time spent on elements, not pauses, also across blocks."""
    clock = Clock()
    pace = Pace(clock)
    assert pace.made(100) is None
    pace.begin()
    clock.now += 2.0
    pace.rest()
    clock.now += 10.0
    assert pace.made(100) == pytest.approx(0.02)
    pace.begin()
    clock.now += 10.0
    pace.resume()
    clock.now += 2.0
    assert pace.made(100) == pytest.approx(0.02)


def test_pace_forgets() -> None:
    """The measured pace follows a pipeline that becomes faster within a few blocks."""
    clock, found = Clock(), math.inf
    pace = Pace(clock)
    for number in count():
        pace.begin()
        clock.now += 10.0 if number < 20 else 1.0
        found = pace.made(100) or 0.0
        if number == 19:
            assert found == pytest.approx(0.1)
        if number == 80:
            break
    assert found == pytest.approx(0.01, rel=0.05)


def test_unwanted_compression_is_left_out() -> None:
    """While no reader decompresses, named codecs and "AUTO" leave blocks raw."""
    for stream in (Compression("lz4"), Compression("AUTO")):
        assert not stream.leaves_all()
        assert stream.encode("s", [(TOKENS, 8)])[0][1]
        stream.is_wanted = False
        assert stream.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
        assert stream.shown == ""
        stream.is_wanted = True
        assert stream.encode("s", [(TOKENS, 8)])[0][1]


def test_without_codecs_all_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without blosc a stream to be compressed is sent raw, with a single warning."""
    compression.warn_of_missing_codec.cache_clear()
    monkeypatch.setattr(compression, "blosc", None)
    auto = far()
    assert auto.encode("s", [(TOKENS, 8)]) == [(TOKENS, ())]
    assert auto.shown == ""
    assert len(caplog.records) == 1
    compression.warn_of_missing_codec.cache_clear()
