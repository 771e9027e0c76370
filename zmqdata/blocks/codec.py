"""Elements into blocks and blocks into elements: what the streams of the data plane
carry.

A block is a header (msgpack) and one frame per leaf of its elements. All elements of a
block have one structure; the header may leave it out when the receiver knows it from
the block before. How a block is sent does not belong here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from zmqdata.blocks.adaptive import Compression
from zmqdata.blocks.columns import Column, Sizer, Values, pack, sizer, unpack
from zmqdata.blocks.compression import MAX_CHUNK, Buffer, Room
from zmqdata.blocks.flattening import Columns, Transpose, describe_element, transposer
from zmqdata.blocks.gathered import Frame
from zmqdata.blocks.objects import refused_object
from zmqdata.blocks.raggeds import check_ragged
from zmqdata.blocks.structures import Node, Structure, assemble, leaf_paths
from zmqdata.errors import ObjectsRefusedError, ProtocolError

MAX_ELEMENTS = 1 << 20
"""Elements of one block at most, whatever their size: values without bytes cost memory
too.
"""
MAX_BYTES = 4 << 30
"""What a received block may take in memory unless the receiver says otherwise."""
MAX_ELEMENT_BYTES = 4_000_000_000
"""Of one element: others may come before it in its block."""


class BlockMeta(msgspec.Struct, frozen=True, array_like=True):
    """The header of a block; ``structure`` is None when it is the one announced last on
    the stream.
    """

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
        structure: what the elements look like; the same object as in the block before
            while nothing changes.
        frames: one flat buffer per leaf, gathered where the builder was to. They may be
            memory of the elements themselves: nobody writes to them.
    """

    __slots__ = ("_columns", "count", "frames", "nbytes", "structure")

    def __init__(
        self, structure: Structure, count: int, columns: tuple[Column, ...], frames: list[Frame]
    ) -> None:
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
        return _encoder.encode(
            BlockMeta(self.count, self._columns, self.structure.node if announce else None)
        )


class Described(NamedTuple):
    """An element with its structure and its leaves, objects pickled."""

    element: object
    structure: Structure
    leaves: Sequence[object]


class BlockBuilder:
    """Collects elements of one structure and turns them into a block.

    An element belongs to the builder from `add` on: it is kept by reference until
    `build`, large arrays travel from the very memory they came in, and so whoever made
    the element does not write to its arrays again. (Objects are pickled at once.)

    Args:
        allow_objects: whether leaves may be Python objects that have to be pickled.
        gather: leave large values where they are, where nothing is compressed: their
            frames are ``Gathered``.

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

    def __init__(self, *, allow_objects: bool = True, gather: bool = False) -> None:
        self.nbytes = 0
        self._gather = gather
        self._allow_objects = allow_objects
        self.structure: Structure | None = None
        self.count = 0
        self._columns: list[list[Any]] = []
        self._transpose: Transpose = lambda elements: None
        self._sizers: list[Sizer] = []

    def add(self, element: object, *, describe: bool = True) -> bool:
        """Append an element, or return False and take nothing when it needs a new
        block.

        That is so when its structure (keys and their order, arity, kind, dtype or
        number of axes of a leaf) differs from the collected ones', or when the block is
        full (`MAX_ELEMENTS`): `build`, then add it again.

        Args:
            element: any element.
            describe: without it, what cannot be taken at once is not looked at any
                closer: the answer is False, and `describe` and `add_described` go on.
                For those who must not be kept waiting while objects are pickled.

        Raises:
            TypeError: the element holds something that does not travel. The block is as
                it was before.
            ValueError: it is too large.
        """
        return bool(self.extend((element,))) or (
            describe and self.add_described(self.describe(element))
        )

    def extend(self, elements: Sequence[object], full: int = 1 << 62) -> int:
        """Append the first of these elements, as many as can be taken at once: see
        `add`, without ``describe``.

        Args:
            elements: like those collected, if they are to be taken.
            full: bytes with which the block is full, whatever follows.

        Returns:
            How many were appended.
        """
        room = MAX_ELEMENTS - self.count
        return (
            self._extend(elements[:room], full)
            if self.structure is not None and room > 0 and elements
            else 0
        )

    def _extend(self, elements: Sequence[object], full: int) -> int:
        """All of them if they fit, else of each half as many as fit: what does not is
        seldom among them.
        """
        columns, count = self._columns_of(elements), len(elements)
        sizes = [-1]
        if columns is not None:
            sizes = [size(column) for size, column in zip(self._sizers, columns, strict=True)]
        fits, total = min(sizes, default=0) >= 0, sum(sizes)
        if (
            columns is not None
            and fits
            and total <= (MAX_ELEMENT_BYTES if count == 1 else full - self.nbytes)
        ):
            for column, more in zip(self._columns, columns, strict=True):
                column.extend(more)
            self.nbytes += total
            self.count += count
            return count
        if count == 1:
            return 0
        half = count // 2
        first = self._extend(elements[:half], full)
        if first < half or self.nbytes >= full:
            return first
        return first + self._extend(elements[half:], full)

    def _columns_of(self, elements: Sequence[object]) -> Columns | None:
        """Their leaves by column; None where one differs, or where its own class does
        not let itself be looked at.
        """
        try:
            return self._transpose(elements)
        except BaseException:
            # The boundary to user code: `describe` meets it again, where it can be
            # told.
            return None

    def describe(self, element: object) -> Described:
        """Look at all of an element: the slow way, for first ones, new structures,
        objects, and lists.

        Raises:
            TypeError: the element holds something that does not travel.
            ValueError: it is too large.
        """
        return _within_bounds(
            Described(element, *describe_element(element, allow_objects=self._allow_objects))
        )

    def describe_plain(self, element: object) -> Described | None:
        """The same for an element without objects; None of others, at once where the
        one before had some, too.

        None as well of one whose own class raises while it is looked at: `describe`
        raises that.
        """
        if self.structure is not None and any(
            leaf.kind == "object" for leaf in self.structure.leaves
        ):
            return None
        try:
            return _within_bounds(
                Described(element, *describe_element(element, allow_objects=False))
            )
        except BaseException:  # the boundary to user code
            return None

    def add_described(self, described: Described) -> bool:
        """Append an element that `describe` has looked at, or return False when it
        needs a new block.
        """
        element, structure, leaves = described
        if structure != self.structure or self.count >= MAX_ELEMENTS:
            if self.count:
                return False
            self._begin(structure, element)
        self.nbytes += sum(size((leaf,)) for size, leaf in zip(self._sizers, leaves, strict=True))
        for column, leaf in zip(self._columns, leaves, strict=True):
            column.append(leaf)
        self.count += 1
        return True

    def _begin(self, structure: Structure, example: object) -> None:
        self.structure = structure
        self._transpose = transposer(structure.node, example)
        self._sizers = [*map(sizer, structure.leaves, structure.dtypes)]
        self._columns = [[] for _ in structure.leaves]

    def build(
        self, codec: Compression | str | None = None, *, max_chunk: int = MAX_CHUNK
    ) -> EncodedBlock:
        """The block of all elements collected; the builder is empty afterwards and goes
        on with the same structure.

        Args:
            codec: name of a blosc codec, None, or the stream's `Compression`.
            max_chunk: bytes of a column after which a new compressed chunk begins.

        Raises:
            ValueError: there are no elements, or no such codec.
        """
        structure, count = self.structure, self.count
        if structure is None or not count:
            raise ValueError("a block without elements cannot be built: add() one first")
        compression = codec if isinstance(codec, Compression) else Compression(codec)
        gather = self._gather and compression.leaves_all()
        packed = [
            pack(*one, gather)
            for one in zip(structure.leaves, structure.dtypes, self._columns, strict=True)
        ]
        if gather:
            encoded: list[tuple[Frame, tuple[int, ...]]] = [(one.buffer, ()) for one in packed]
        else:
            buffers = [(cast("memoryview", one.buffer), one.typesize) for one in packed]
            encoded = [*compression.encode(structure, buffers, max_chunk=max_chunk)]
        columns = [
            Column(one.buffer.nbytes, one.shape, one.width, chunks)
            for one, (_, chunks) in zip(packed, encoded, strict=True)
        ]
        frames = [frame for frame, _ in encoded]
        self._columns, self.count, self.nbytes = [[] for _ in structure.leaves], 0, 0
        return EncodedBlock(structure, count, tuple(columns), frames)


def _within_bounds(described: Described) -> Described:
    arrays = [leaf for leaf in described.leaves if isinstance(leaf, (np.ndarray, bytes))]
    size = sum([leaf.nbytes if isinstance(leaf, np.ndarray) else len(leaf) for leaf in arrays])
    if size > MAX_ELEMENT_BYTES:
        raise ValueError(
            f"An element of {size / 1e9:.3f} GB is too large to be sent: at most "
            f"{MAX_ELEMENT_BYTES / 1e9:g} GB travel "
            "as one. Make smaller ones, such as parts of it, in the map() or from_generator() that "
            "makes it."
        )
    return described


class DecodedBlock:
    """A received block. Its elements belong to whoever takes them, for ever, and may be
    written to.

    Arrays of 16 KB and more, or those of a block of one, are views of the block's own
    memory, which is neither the frame's nor anybody else's. So each element is handed
    out once: iterating again gives the same memory again.

    Attributes:
        count: number of elements.
        nbytes: bytes of their values before compression.
        structure: what they look like, to be passed to `decode_block` for the next
            block of the stream.
    """

    __slots__ = ("_columns", "count", "nbytes", "structure")

    def __init__(
        self, structure: Structure, count: int, nbytes: int, columns: list[Values]
    ) -> None:
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
    lent: Collection[int] = (),
    room: Room | None = None,
) -> DecodedBlock:
    """The block that a peer has sent.

    Args:
        meta: the header.
        frames: the other frames, anything with flat bytes.
        structure: that of the block before on the same stream, for headers that leave
            it out.
        max_bytes: what the block may take in memory; compared with the announcement
            before anything is allocated. What the constructors of pickled objects
            allocate does not count.
        allow_objects: whether leaves that are Python objects are unpickled. False for
            bytes of peers that must not be able to run code here; elements without such
            leaves are never unpickled anyway.
        lent: the numbers of frames that may be handed out as they are: writable,
            aligned to 64 bytes, and kept by their views. Their bytes may still be
            changed by a hostile peer; where that could do harm they are copied.
        room: gives memory for the values of large arrays, as many bytes as it is asked
            for, writable and aligned to 64 bytes; None: fresh memory.

    Raises:
        ObjectsRefusedError: there are such leaves, and they are not allowed. No frame
            was looked at.
        ProtocolError: whatever is wrong with the bytes.
    """
    header = decode_meta(meta)
    if header.structure is not None:
        structure = Structure(header.structure)
    if structure is None:
        raise ProtocolError(
            "a block leaves its structure out, but none was announced on this stream"
        )
    if not allow_objects:
        check_no_objects(structure)
    nbytes = _check_counts(header, frames, structure, max_bytes)
    count = header.count
    parts = zip(structure.leaves, structure.dtypes, header.columns, frames, strict=True)
    columns = [
        unpack(leaf, dtype, column, _flat(frame), count, lent=number in lent, room=room)
        for number, (leaf, dtype, column, frame) in enumerate(parts)
    ]
    check_ragged(structure.node, iter(columns))
    return DecodedBlock(structure, header.count, nbytes, columns)


def check_no_objects(structure: Structure) -> None:
    """Refuses elements of which a leaf would have to be unpickled.

    Raises:
        ObjectsRefusedError: there is such a leaf; the text says where.
    """
    for number, leaf in enumerate(structure.leaves):
        if leaf.kind == "object":
            raise ObjectsRefusedError(refused_object([*leaf_paths(structure.node)][number]))


def decode_meta(meta: Buffer) -> BlockMeta:
    """The header of a block.

    Raises:
        ProtocolError: it is none.
    """
    try:
        return _decoder.decode(meta)
    except (
        msgspec.MsgspecError,
        UnicodeError,
        RecursionError,
        OverflowError,
        MemoryError,
    ) as error:
        raise ProtocolError(f"a block has a header that cannot be read: {error}") from None


def _check_counts(
    header: BlockMeta, frames: Sequence[Any], structure: Structure, max_bytes: int
) -> int:
    """The bytes that the block announces, after all its counts have been held against
    each other and the limits.
    """
    if not 0 < header.count <= MAX_ELEMENTS:
        raise ProtocolError(
            f"a block claims {header.count} elements, at most {MAX_ELEMENTS} are allowed"
        )
    if not len(header.columns) == len(frames) == len(structure.leaves):
        raise ProtocolError(
            f"a block has {len(header.columns)} columns in {len(frames)} frames for "
            f"{len(structure.leaves)} leaves"
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
