"""Elements into blocks and blocks into elements: what the streams of the data plane carry.

A block is a header (msgpack) and one frame per leaf of its elements. All elements of a block have one structure; the
header may leave it out when the receiver knows it from the block before. How a block is sent does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from zmqdata.blocks.columns import Column, Sizer, Values, pack, sizer, unpack
from zmqdata.blocks.compression import MAX_CHUNK, Buffer, Compression, encode_buffer
from zmqdata.blocks.flattening import Flatten, describe_element, flattener
from zmqdata.blocks.raggeds import check_ragged
from zmqdata.blocks.structures import Node, Structure, assemble
from zmqdata.errors import ProtocolError

MAX_ELEMENTS = 1 << 20
"""Elements of one block at most, whatever their size: values without bytes cost memory too."""
MAX_BYTES = 4 << 30
"""What a received block may take in memory unless the receiver says otherwise."""


class BlockMeta(msgspec.Struct, frozen=True, array_like=True):
    """The header of a block; ``structure`` is None when it is the one announced last on the stream."""

    count: int
    columns: tuple[Column, ...]
    structure: Node | None = None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BlockMeta)


class EncodedBlock:
    """A block ready to be sent.

    Attributes:
        count: number of elements.
        nbytes: bytes of the elements' values before compression.
        structure: what the elements look like; the same object as in the block before while nothing changes.
        frames: one flat buffer per leaf. They may be memory of the elements themselves: nobody writes to them.
    """

    __slots__ = ("_columns", "count", "frames", "nbytes", "structure")

    def __init__(self, structure: Structure, count: int, columns: tuple[Column, ...], frames: list[Buffer]) -> None:
        self.structure = structure
        self.count = count
        self.nbytes = sum(column.nbytes for column in columns)
        self.frames = frames
        self._columns = columns

    @property
    def meta(self) -> bytes:
        """The header with the structure."""
        return self.encode_meta()

    @property
    def wire_nbytes(self) -> int:
        """Bytes of the frames as they are sent."""
        return sum(len(frame) for frame in self.frames)

    def encode_meta(self, announce: bool = True) -> bytes:
        """The header, with the structure only if it is to be announced."""
        return _encoder.encode(BlockMeta(self.count, self._columns, self.structure.node if announce else None))


class Described(NamedTuple):
    """An element with its structure and its leaves, objects pickled."""

    element: object
    structure: Structure
    leaves: Sequence[object]


class BlockBuilder:
    """Collects elements of one structure and turns them into a block.

    An element belongs to the builder from `add` on: it is kept by reference until `build`, large arrays travel from
    the very memory they came in, and so whoever made the element does not write to its arrays again. (Objects are
    pickled at once.)

    Args:
        allow_objects: whether leaves may be Python objects that have to be pickled.

    Attributes:
        count: number of elements collected.
        nbytes: their size; of text and very large integers an estimate.
        structure: what the elements look like, None before the first.

    >>> builder = BlockBuilder()
    >>> [builder.add(element) for element in ({"x": 1}, {"x": 2}, {"y": 3})]
    [True, True, False]
    >>> block = builder.build()
    >>> list(decode_block(block.meta, block.frames).elements())
    [{'x': 1}, {'x': 2}]
    """

    def __init__(self, *, allow_objects: bool = True) -> None:
        self.nbytes = 0
        self._allow_objects = allow_objects
        self.structure: Structure | None = None
        self._rows: list[Sequence[object]] = []
        self._flatten: Flatten = lambda element: None
        self._sizers: list[Sizer] = []

    @property
    def count(self) -> int:
        """Number of elements collected."""
        return len(self._rows)

    def add(self, element: object, *, describe: bool = True) -> bool:
        """Append an element, or return False and take nothing when it needs a new block.

        That is so when its structure (keys and their order, arity, kind, dtype or number of axes of a leaf) differs
        from the collected ones', or when the block is full (`MAX_ELEMENTS`): `build`, then add it again.

        Args:
            element: any element.
            describe: without it, what cannot be taken at once is not looked at any closer: the answer is False, and
                `describe` and `add_described` go on. For those who must not be kept waiting while objects are pickled.

        Raises:
            TypeError: the element holds something that does not travel. The block is as it was before.
        """
        if len(self._rows) >= MAX_ELEMENTS:
            return False
        leaves = self._flatten(element)
        if leaves is None:
            return describe and self.add_described(self.describe(element))
        nbytes = 0
        for size, leaf in zip(self._sizers, leaves):  # noqa: B905 - equal lengths, and strict= costs time here
            width = size(leaf)
            if width < 0:
                return describe and self.add_described(self.describe(element))
            nbytes += width
        self.nbytes += nbytes
        self._rows.append(leaves)
        return True

    def describe(self, element: object) -> Described:
        """Look at all of an element: the slow way, for first ones, new structures, objects, and lists.

        Raises:
            TypeError: the element holds something that does not travel.
        """
        return Described(element, *describe_element(element, allow_objects=self._allow_objects))

    def add_described(self, described: Described) -> bool:
        """Append an element that `describe` has looked at, or return False when it needs a new block."""
        element, structure, leaves = described
        if structure != self.structure or len(self._rows) >= MAX_ELEMENTS:
            if self._rows:
                return False
            self.structure = structure
            self._flatten = flattener(structure.node, element)
            self._sizers = [*map(sizer, structure.leaves, structure.dtypes)]
        self.nbytes += sum(size(leaf) for size, leaf in zip(self._sizers, leaves, strict=True))
        self._rows.append(leaves)
        return True

    def build(self, codec: Compression | str | None = None, *, max_chunk: int = MAX_CHUNK) -> EncodedBlock:
        """The block of all elements collected; the builder is empty afterwards and goes on with the same structure.

        Args:
            codec: name of a blosc codec, None, or the stream's `Compression`.
            max_chunk: bytes of a column after which a new compressed chunk begins.

        Raises:
            ValueError: there are no elements, or no such codec.
        """
        structure, rows = self.structure, self._rows
        if structure is None or not rows:
            raise ValueError("a block without elements cannot be built: add() one first")
        compression = codec if isinstance(codec, Compression) else Compression(codec)
        columns: list[Column] = []
        frames: list[Buffer] = []
        compression.start_block(structure)
        for index, values in enumerate(zip(*rows, strict=True)):
            packed = pack(structure.leaves[index], structure.dtypes[index], values)
            chosen = compression.choose(index, packed.buffer, packed.typesize)
            frame, chunks = encode_buffer(packed.buffer, chosen, packed.typesize, max_chunk=max_chunk)
            columns.append(Column(packed.buffer.nbytes, packed.shape, packed.width, chunks))
            frames.append(frame)
        self._rows, self.nbytes = [], 0
        return EncodedBlock(structure, len(rows), tuple(columns), frames)


class DecodedBlock:
    """A received block. Its elements belong to whoever takes them, for ever, and may be written to.

    Arrays of 16 KB and more, or those of a block of one, are views of the block's own memory, which is neither the
    frame's nor anybody else's. So each element is handed out once: iterating again gives the same memory again.

    Attributes:
        count: number of elements.
        nbytes: bytes of their values before compression.
        structure: what they look like, to be passed to `decode_block` for the next block of the stream.
    """

    __slots__ = ("_columns", "count", "nbytes", "structure")

    def __init__(self, structure: Structure, count: int, nbytes: int, columns: list[Values]) -> None:
        self.structure = structure
        self.count = count
        self.nbytes = nbytes
        self._columns = columns

    def __len__(self) -> int:
        return self.count

    def elements(self, skip: int = 0) -> Iterator[Any]:
        """The elements in order, without the first ``skip``."""
        skip = min(max(skip, 0), self.count)
        columns = iter([values(skip) for values in self._columns])
        return assemble(self.structure.node, columns, self.count - skip)


def decode_block(
    meta: Buffer,
    frames: Sequence[Any],
    structure: Structure | None = None,
    *,
    max_bytes: int = MAX_BYTES,
    allow_objects: bool = True,
) -> DecodedBlock:
    """The block that a peer has sent.

    Args:
        meta: the header.
        frames: the other frames, anything with flat bytes.
        structure: that of the block before on the same stream, for headers that leave it out.
        max_bytes: what the block may take in memory; compared with the announcement before anything is allocated.
            What the constructors of pickled objects allocate does not count.
        allow_objects: whether leaves that are Python objects are unpickled. False for bytes of peers that must not be
            able to run code here; elements without such leaves are never unpickled anyway.

    Raises:
        ProtocolError: whatever is wrong with the bytes.
    """
    header = decode_meta(meta)
    if header.structure is not None:
        structure = Structure(header.structure)
    if structure is None:
        raise ProtocolError("a block leaves its structure out, but none was announced on this stream")
    nbytes = _check_counts(header, frames, structure, max_bytes)
    parts = zip(structure.leaves, structure.dtypes, header.columns, frames, strict=True)
    columns = [
        unpack(leaf, dtype, column, _flat(frame), header.count, allow_objects=allow_objects)
        for leaf, dtype, column, frame in parts
    ]
    check_ragged(structure.node, iter(columns))
    return DecodedBlock(structure, header.count, nbytes, columns)


def decode_meta(meta: Buffer) -> BlockMeta:
    """The header of a block.

    Raises:
        ProtocolError: it is none.
    """
    try:
        return _decoder.decode(meta)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError, MemoryError) as error:
        raise ProtocolError(f"a block has a header that cannot be read: {error}") from None


def _check_counts(header: BlockMeta, frames: Sequence[Any], structure: Structure, max_bytes: int) -> int:
    """The bytes that the block announces, after all its counts have been held against each other and the limits."""
    if not 0 < header.count <= MAX_ELEMENTS:
        raise ProtocolError(f"a block claims {header.count} elements, at most {MAX_ELEMENTS} are allowed")
    if not len(header.columns) == len(frames) == len(structure.leaves):
        raise ProtocolError(
            f"a block has {len(header.columns)} columns in {len(frames)} frames for {len(structure.leaves)} leaves"
        )
    if any(column.nbytes < 0 for column in header.columns):
        raise ProtocolError("a column claims a negative size")
    nbytes = sum(column.nbytes for column in header.columns)
    if nbytes > max_bytes:
        raise ProtocolError(f"a block claims {nbytes} bytes, at most {max_bytes} are allowed")
    return nbytes


def _flat(frame: Any) -> memoryview:
    view = memoryview(frame)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")
