"""Compression of a stream's blocks, by the requested codec or by the codecs that pay,
as measured.

Trials and timing are here, the decision is in ``choosing``, the work in
``compression``. The caller passes in the clock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from zmqdata.blocks.choosing import (
    UNKNOWN_SPEED,
    Choice,
    Chosen,
    Conditions,
    Cost,
    MeasuredColumn,
    Packing,
)
from zmqdata.blocks.compression import (
    MAX_CHUNK,
    MIN_BYTES,
    SHUFFLES,
    Encoded,
    can_compress,
    compress,
    decompress,
    empty_aligned,
    encode_buffer,
    packing_of,
    validate_compression,
    warn_of_missing_codec,
)

PROBE_BYTES = 128 * 1024
LEAST_PROBE_BYTES = 16 * 1024
PROBE_TOTAL = 1 << 20
"""Limit of bytes to try of a column, and of all columns together. Trying all codecs on
so much takes about ten milliseconds.
"""
STRUCTURES_KEPT = 16
"""Limit of structures whose choices are remembered."""
PACE_MEMORY = 0.9
"""Weight that the time of earlier blocks keeps with each further block."""
CROWDING_MEMORY = 0.95
"""Weight that the earlier crowding keeps with each further measurement."""

Clock: TypeAlias = "Callable[[], float]"


class Compression:
    """Compresses the columns of a stream's blocks, by the requested codec or by the
    codecs that pay.

    A named codec, or None, is used as requested. For "AUTO", it tries codecs on
    samples, times them, and leaves the decision to `Choice`. Each stream has its own
    object.

    Args:
        value: a value that `validate_compression` allows.
        clock: returns the time in seconds. Without a clock nothing can be timed: "AUTO"
            then uses lz4 where it saves enough, as for files, where the size counts.
        work: returns the CPU time of the calling thread in seconds; None uses the
            clock. It compares codecs better than the clock if threads wait for cores.

    Attributes:
        speed: bytes per second that the stream's links carry. Infinite within a host,
            and until it is known: "AUTO" then means None.
        links: number of links whose blocks the client decompresses with a single
            thread.
        is_wanted: false while no client that reads the stream can decompress.
        tell: called with True before a block is compressed, and with False after.

    >>> compression = Compression("AUTO")
    >>> column = (memoryview(bytes(4096)), 8)
    >>> [(frame, chunks)] = compression.encode("a structure", [column])
    >>> compression.shown
    'lz4, 27.7x smaller'
    """

    def __init__(
        self, value: str | None = "AUTO", *, clock: Clock | None = None, work: Clock | None = None
    ) -> None:
        self.value = validate_compression(value)
        self.speed = UNKNOWN_SPEED if clock is None else math.inf
        self.links = 1
        self.is_wanted = True
        self.tell: Callable[[bool], None] = _tell_nobody
        self._timed = clock is not None
        self._clock = clock or _no_time
        self._work = work or self._clock
        self._crowding = 1.0
        self._pace = Pace(self._clock)
        self._choices: dict[object, Choice] = {}
        self._choice = Choice()
        self._structure: object = None
        self._raw = self._sent = 0

    @property
    def chosen(self) -> dict[int, Packing]:
        """Packings that "AUTO" uses at present, by column; the other columns are not
        compressed.
        """
        return self._choice.standing

    @property
    def shown(self) -> str:
        """Description of the packings in use and their savings on the last blocks; for
        "AUTO" also the links' speed.

        Empty if nothing is compressed or measured. Thread-safe.
        """
        raw, sent, speed = self._raw, self._sent, self.speed
        used = (
            {str(packing) for packing in self.chosen.values()}
            if self.value == "AUTO"
            else {self.value or ""}
        )
        shown = (
            f"{' and '.join(sorted(used))}, {raw / sent:.3g}x smaller" if any(used) and sent else ""
        )
        if self.value == "AUTO" and self._timed and speed < math.inf and sent:
            return f"{shown or 'nothing'}, at {speed / 1e6:,.0f} MB/s"
        return shown

    def rest(self) -> None:
        """Stop the time of the pipeline, which waits for its elements to be taken."""
        self._pace.rest()

    def resume(self) -> None:
        """Resume the time of the pipeline, which makes elements from now on."""
        self._pace.resume()

    def leaves_all(self) -> bool:
        """Return True if the next block is sent uncompressed, so that it needs no
        `encode`.

        Without blosc every block is. One warning says so if compression was wanted.
        """
        if self.value is None:
            return True
        if not self.is_wanted or (self.value == "AUTO" and self.speed == math.inf):
            self._forget()
            return True
        if not can_compress():
            warn_of_missing_codec()
            return True
        return False

    def encode(
        self,
        structure: object,
        columns: Sequence[tuple[memoryview, int]],
        *,
        max_chunk: int = MAX_CHUNK,
    ) -> list[Encoded]:
        """Return the frames of a block, each with the sizes of its chunks.

        Args:
            structure: structure of the block's elements; each structure is measured
                separately.
            columns: buffers of flat bytes with the sizes of their items, as for
                `encode_buffer`.
            max_chunk: bytes after which a new chunk begins.
        """
        if self.leaves_all():
            return [(buffer, ()) for buffer, _ in columns]
        self.tell(True)
        if self.value is not None and self.value != "AUTO":
            packings = {i: packing_of(self.value, size) for i, (_, size) in enumerate(columns)}
        else:
            packings = self._choose(structure, columns)
        frames = [
            self._encode(i, *one, packings.get(i), max_chunk) for i, one in enumerate(columns)
        ]
        self.tell(False)
        if not packings:  # crowding fades while nothing is compressed
            self._notice(1.0, 1.0)
        self._pace.begin()
        self._raw = self._raw * 7 // 8 + sum(buffer.nbytes for buffer, _ in columns)
        self._sent = self._sent * 7 // 8 + sum(len(frame) for frame, _ in frames)
        return frames

    def _forget(self) -> None:
        self._raw = self._sent = 0
        if self._structure is not None:
            self._structure, self._choice = None, Choice()
            self._pace.forget()

    def _choose(self, structure: object, columns: Sequence[tuple[memoryview, int]]) -> Chosen:
        self._take_up(structure)
        large = {
            index: column for index, column in enumerate(columns) if column[0].nbytes >= MIN_BYTES
        }
        nbytes = sum(buffer.nbytes for buffer, _ in large.values())
        making = self._pace.made(nbytes) if self._timed else 0.0
        # No pace yet: the making of the first block began with opening the pipeline.
        if not nbytes or making is None:
            return {}
        conditions = Conditions(self.speed, making, self.links, self._crowding)
        if self._choice.begin(nbytes, conditions):
            self._probe(large, conditions)
        return self._choice.standing

    def _take_up(self, structure: object) -> None:
        """Continue with the choice for elements of this structure."""
        if structure is not self._structure:
            if structure not in self._choices and len(self._choices) >= STRUCTURES_KEPT:
                del self._choices[next(iter(self._choices))]
            self._structure, self._choice = structure, self._choices.setdefault(structure, Choice())

    def _encode(
        self, index: int, buffer: memoryview, size: int, packing: Packing | None, most: int
    ) -> Encoded:
        if packing is None or buffer.nbytes < MIN_BYTES or not self._timed or self.value != "AUTO":
            return encode_buffer(buffer, packing, size, max_chunk=most)
        began, worked = self._clock(), self._work()
        frame, chunks = encode_buffer(buffer, packing, size, max_chunk=most)
        seconds = self._work() - worked
        self._notice(self._clock() - began, seconds)
        self._choice.packed(
            index, buffer.nbytes, Cost(len(frame) / buffer.nbytes, seconds / buffer.nbytes)
        )
        return frame, chunks

    def _notice(self, passed: float, worked: float) -> None:
        """Update the crowding: ``passed`` seconds elapsed while this thread worked for
        ``worked``.
        """
        if worked > 0:
            self._crowding += (1 - CROWDING_MEMORY) * (max(1.0, passed / worked) - self._crowding)

    def _probe(self, columns: Mapping[int, tuple[memoryview, int]], conditions: Conditions) -> None:
        found, sampled = {}, 0
        most = min(PROBE_BYTES, max(LEAST_PROBE_BYTES, PROBE_TOTAL // len(columns)))
        for index, (buffer, size) in columns.items():
            sample = _sample(buffer, size, most)
            sampled += sample.nbytes
            found[index] = MeasuredColumn(
                buffer.nbytes, {one: self._try(sample, one, size) for one in self._candidates(size)}
            )
        self._choice.probed(found, sampled, conditions)

    def _candidates(self, size: int) -> list[Packing]:
        shuffles = (
            ("noshuffle",) if size == 0 else ("noshuffle", "bitshuffle") if size == 1 else SHUFFLES
        )
        codecs = ("lz4", "zstd") if self._timed else ("lz4",)
        return [Packing(codec, shuffle) for codec in codecs for shuffle in shuffles]

    def _try(self, sample: memoryview, packing: Packing, size: int) -> Cost:
        """Return the better of two trials, since another thread may take the core
        during a trial.
        """
        clock, began, worked = self._work, self._clock(), self._work()
        room = empty_aligned(sample.nbytes)
        address = room.__array_interface__["data"][0]
        pack = unpack = math.inf
        for _ in range(2):
            start = clock()
            chunk = compress(sample, packing, size)
            packed = clock()
            decompress(chunk, address)
            pack, unpack = min(pack, packed - start), min(unpack, clock() - packed)
        self._notice(self._clock() - began, clock() - worked)
        whole = sample.nbytes
        return Cost(min(1.0, len(chunk) / whole), pack / whole, unpack / whole)


def _tell_nobody(compresses: bool) -> None:
    """Stand for a listener."""


def _no_time() -> float:
    return 0.0


class Pace:
    """Measures a pipeline's time per byte, without the time in which it waits or its
    blocks are compressed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began: float | None = None
        self._resting: float | None = None
        self._rested = 0.0
        self._seconds = self._bytes = 0.0

    def rest(self) -> None:
        self._resting = self._clock()

    def resume(self) -> None:
        if self._resting is not None:
            since, self._resting = self._resting, None
            self._rested += self._clock() - since

    def forget(self) -> None:
        """Forget all measurements; nothing is measured for a while."""
        self._began = None
        self._seconds = self._bytes = 0.0

    def begin(self) -> None:
        """Start the time of a block."""
        self._began, self._rested = self._clock(), 0.0
        if self._resting is not None:
            self._resting = self._began

    def made(self, nbytes: int) -> float | None:
        """Add a completed block of ``nbytes``; return the seconds per byte of the last
        blocks, None if its start is unknown.
        """
        if self._began is None:
            return None
        now = self._clock()
        rested = self._rested + (now - self._resting if self._resting is not None else 0.0)
        self._seconds = self._seconds * PACE_MEMORY + max(0.0, now - self._began - rested)
        self._bytes = self._bytes * PACE_MEMORY + nbytes
        return self._seconds / self._bytes if self._bytes else 0.0


def _sample(buffer: memoryview, size: int, most: int) -> memoryview:
    """Return the middle of a column, in whole items: its ends are less typical."""
    if buffer.nbytes <= most:
        return buffer
    start = (buffer.nbytes - most) // 2
    start -= start % max(1, size)
    return buffer[start : start + most]
