"""What compresses a stream's blocks: by the codec that was asked for, or by those that
pay, as it measures.

Trying and timing is here, the decision in ``choosing``, the work in ``compression``.
The clock is handed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import blosc

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
    compress,
    empty_aligned,
    encode_buffer,
    packing_of,
    validate_compression,
)

PROBE_BYTES = 128 * 1024
LEAST_PROBE_BYTES = 16 * 1024
PROBE_TOTAL = 1 << 20
"""Of one column, and of many columns together: to try all codecs on so much takes some
ten milliseconds.
"""
STRUCTURES_KEPT = 16
PACE_MEMORY = 0.9
"""The part of what the last blocks took that is left at each further one."""
CROWDING_MEMORY = 0.95

Clock: TypeAlias = "Callable[[], float]"


class Compression:
    """Compresses the columns of a stream's blocks, by the codec that was asked for or
    the one that pays.

    A named codec, or None, is taken at its word. For "AUTO" it tries codecs on samples,
    times what they do, and leaves the decision to `Choice`. One object per stream.

    Args:
        value: what `validate_compression` allows.
        clock: the time in seconds. Without one nothing can be timed: then "AUTO" takes
            lz4 where it saves enough, as for files, where the size counts.
        work: the time in seconds that the calling thread has worked; None: as the clock
            says. It tells codecs apart better than the clock does where threads wait
            for cores.

    Attributes:
        speed: bytes per second that the stream's links carry. Infinite on one host, and
            while nobody has told it: "AUTO" means None then.
        links: how many links the client decompresses with one thread.

    >>> compression = Compression("AUTO")
    >>> [(frame, chunks)] = compression.encode("a structure", [(memoryview(bytes(4096)), 8)])
    >>> compression.shown
    'lz4, 27.7x smaller'
    """

    def __init__(
        self, value: str | None = "AUTO", *, clock: Clock | None = None, work: Clock | None = None
    ) -> None:
        self.value = validate_compression(value)
        self.speed = UNKNOWN_SPEED if clock is None else math.inf
        self.links = 1
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
        """What "AUTO" uses at present, by column; those that are not in it travel as
        they are.
        """
        return self._choice.standing

    @property
    def shown(self) -> str:
        """What is used and how much of the last blocks it saves, in words, and for
        "AUTO" at what speed of the links.

        "" where nothing is compressed and nobody looks whether to. From any thread.
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
        """The pipeline waits from now on, for somebody to take what it has made."""
        self._pace.rest()

    def resume(self) -> None:
        """The pipeline makes elements from now on."""
        self._pace.resume()

    def leaves_all(self) -> bool:
        """Whether the next block travels as it is, so that it needs no `encode`."""
        if self.value == "AUTO" and self.speed == math.inf:
            self._forget()
            return True
        return self.value is None

    def encode(
        self,
        structure: object,
        columns: Sequence[tuple[memoryview, int]],
        *,
        max_chunk: int = MAX_CHUNK,
    ) -> list[Encoded]:
        """The frames of a block, each with the sizes of its chunks.

        Args:
            structure: what the block's elements look like; what pays is found out for
                each one apart.
            columns: buffers of flat bytes with the sizes of their items, as for
                `encode_buffer`.
            max_chunk: bytes after which a new chunk begins.
        """
        if self.value != "AUTO":
            packings = {
                i: packing_of(self.value, size) for i, (_, size) in enumerate(columns) if self.value
            }
        elif self.speed == math.inf:
            self._forget()
            return [(buffer, ()) for buffer, _ in columns]
        else:
            packings = self._choose(structure, columns)
        frames = [
            self._encode(i, *one, packings.get(i), max_chunk) for i, one in enumerate(columns)
        ]
        if not packings:  # a core is not crowded for ever
            self._notice(1.0, 1.0)
        self._pace.begin()
        self._raw = self._raw * 7 // 8 + sum(buffer.nbytes for buffer, _ in columns)
        self._sent = self._sent * 7 // 8 + sum(len(frame) for frame, _ in frames)
        return frames

    def _forget(self) -> None:
        if self._structure is not None:
            self._structure, self._choice = None, Choice()
            self._raw = self._sent = 0
            self._pace.forget()

    def _choose(self, structure: object, columns: Sequence[tuple[memoryview, int]]) -> Chosen:
        self._take_up(structure)
        large = {
            index: column for index, column in enumerate(columns) if column[0].nbytes >= MIN_BYTES
        }
        nbytes = sum(buffer.nbytes for buffer, _ in large.values())
        making = self._pace.made(nbytes) if self._timed else 0.0
        if (
            not nbytes or making is None
        ):  # the making of the first block began with opening the pipeline
            return {}
        conditions = Conditions(self.speed, making, self.links, self._crowding)
        if self._choice.begin(nbytes, conditions):
            self._probe(large, conditions)
        return self._choice.standing

    def _take_up(self, structure: object) -> None:
        """Goes on with what was found for elements of this structure."""
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
        """So many seconds have passed while we worked for so many."""
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
        """The best of two tries: somebody else may take the core during one."""
        clock, began, worked = self._work, self._clock(), self._work()
        room = empty_aligned(sample.nbytes)
        address = room.__array_interface__["data"][0]
        pack = unpack = math.inf
        for _ in range(2):
            start = clock()
            chunk = compress(sample, packing, size)
            packed = clock()
            blosc.decompress_ptr(chunk, address)
            pack, unpack = min(pack, packed - start), min(unpack, clock() - packed)
        self._notice(self._clock() - began, clock() - worked)
        whole = sample.nbytes
        return Cost(min(1.0, len(chunk) / whole), pack / whole, unpack / whole)


def _no_time() -> float:
    return 0.0


class Pace:
    """How long a pipeline takes for a byte, without the time in which it waits and in
    which blocks are compressed.
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
        """Nobody watches for a while."""
        self._began = None
        self._seconds = self._bytes = 0.0

    def begin(self) -> None:
        """A block begins."""
        self._began, self._rested = self._clock(), 0.0
        if self._resting is not None:
            self._resting = self._began

    def made(self, nbytes: int) -> float | None:
        """A block of so many bytes has been made: seconds for each byte of the last
        ones, None if it never began.
        """
        if self._began is None:
            return None
        now = self._clock()
        rested = self._rested + (now - self._resting if self._resting is not None else 0.0)
        self._seconds = self._seconds * PACE_MEMORY + max(0.0, now - self._began - rested)
        self._bytes = self._bytes * PACE_MEMORY + nbytes
        return self._seconds / self._bytes if self._bytes else 0.0


def _sample(buffer: memoryview, size: int, most: int) -> memoryview:
    """The middle of a column, in whole items: its ends are less like the rest."""
    if buffer.nbytes <= most:
        return buffer
    start = (buffer.nbytes - most) // 2
    start -= start % max(1, size)
    return buffer[start : start + most]
