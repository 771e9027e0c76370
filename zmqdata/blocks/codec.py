"""Encoding of elements into blocks, and decoding: the content of the data plane's
streams.

A block is a header (msgpack) and a frame for each leaf of its elements. All elements of
a block have the same structure. The header may leave it out if the receiver knows it
from the block before. How a block is sent does not belong here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from zmqdata.blocks.adaptive import Compression
from zmqdata.blocks.columns import Column, Sizer, Values, pack, sizer, unpack
from zmqdata.blocks.compression import MAX_CHUNK, Buffer, Room, decode_buffer
from zmqdata.blocks.flattening import Columns, Transpose, describe_element, transposer
from zmqdata.blocks.gathered import Frame
from zmqdata.blocks.objects import refused_object
from zmqdata.blocks.raggeds import check_ragged
from zmqdata.blocks.structures import Node, Structure, assemble, leaf_paths
from zmqdata.errors import ObjectsRefusedError, ProtocolError

MAX_ELEMENTS = 1 << 20
"""Limit of elements in a block, whatever their size: values without bytes cost memory,
too.
"""
MAX_BYTES = 4 << 30
"""Limit of a received block's size in memory, unless the receiver sets another."""
MAX_ELEMENT_BYTES = 4_000_000_000
"""Limit of an element's size; other elements may come before it in its block."""


class BlockMeta(msgspec.Struct, frozen=True, array_like=True):
    """The header of a block."""

    count: int
    """Number of elements."""
    columns: tuple[Column, ...]
    """Layout of each column."""
    structure: Node | None = None
    """Structure of the elements; None if it is the last announced on the stream."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BlockMeta)


class EncodedBlock:
    """A block ready to be sent.

    Attributes:
        count: number of elements.
        nbytes: bytes of the elements' values before compression.
        structure: structure of the elements; the same object as in the block before
            while nothing changes.
        frames: a flat buffer for each leaf, or a ``Gathered`` if the builder gathers.
            They may share memory with the elements, so they must not be written to.
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
        """The encoded header, with the structure."""
        return self.encode_meta()

    @property
    def wire_nbytes(self) -> int:
        """Bytes of the frames as sent."""
        return sum(len(frame) for frame in self.frames)

    def encode_meta(self, announce: bool = True) -> bytes:
        """Encode the header; leave out the structure unless ``announce`` is true."""
        return _encoder.encode(
            BlockMeta(self.count, self._columns, self.structure.node if announce else None)
        )


class Described(NamedTuple):
    """An element with its structure and its leaves."""

    element: object
    """The element."""
    structure: Structure
    """Its structure."""
    leaves: Sequence[object]
    """Its leaves from left to right, objects pickled."""


class BlockBuilder:
    """Collects elements of the same structure into a block.

    The builder owns an element from `add` on. It keeps the element by reference until
    `build`, and large arrays are sent from the memory they came in. So the caller must
    not write to the arrays of an element again. (Objects are pickled at once.)

    Args:
        allow_objects: True if leaves may be Python objects that must be pickled.
        gather: True to leave large values in place if nothing is compressed; their
            frames are ``Gathered``.

    Attributes:
        count: number of elements collected.
        nbytes: size of their values in bytes; an estimate for text and very large
            integers.
        structure: structure of the elements; None before the first.
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
        """Append an element; return False without taking it if it needs a new block.

        An element needs a new block if its structure differs from that of the collected
        elements, or if the block is full (`MAX_ELEMENTS`). The structure is the keys
        and their order, the arity, and the kind, dtype and number of axes of each leaf.
        Then call `build`, and add the element again.

        Args:
            element: any element.
            describe: False to return False for any element that cannot be taken at
                once. The caller goes on with `describe` and `add_described`. For
                callers that must not block while objects are pickled.

        Raises:
            TypeError: the element holds a value that cannot be sent. The block is
                unchanged.
            ValueError: the element is too large.
        """
        return bool(self.extend((element,))) or (
            describe and self.add_described(self.describe(element))
        )

    def extend(self, elements: Sequence[object], full: int = 1 << 62) -> int:
        """Append leading elements, as many as can be taken at once, like `add` without
        ``describe``.

        Args:
            elements: elements of the structure that the block has, if they are to be
                taken.
            full: size in bytes at which the block is full.

        Returns:
            Number of elements appended.
        """
        room = MAX_ELEMENTS - self.count
        return (
            self._extend(elements[:room], full)
            if self.structure is not None and room > 0 and elements
            else 0
        )

    def _extend(self, elements: Sequence[object], full: int) -> int:
        """Append all elements if they fit, else recurse into each half: few of them are
        unfit in practice.
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
        """Return the leaves of the elements by column; None if an element differs, or
        its class raises.
        """
        try:
            return self._transpose(elements)
        except BaseException:  # the boundary to user code; `describe` meets and raises it again
            return None

    def describe(self, element: object) -> Described:
        """Inspect an element completely: the slow path, for first elements, new
        structures, objects and lists.

        Raises:
            TypeError: the element holds a value that cannot be sent.
            ValueError: the element is too large.
        """
        return _within_bounds(
            Described(element, *describe_element(element, allow_objects=self._allow_objects))
        )

    def describe_plain(self, element: object) -> Described | None:
        """Describe an element without objects; return None for an element with objects.

        If the element before had objects, the answer is None at once. It is also None
        if the element's class raises; `describe` then raises the same.
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
        """Append an element that `describe` has returned; return False if it needs a
        new block.
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
        """Return the block of all collected elements. The builder is empty afterwards
        and keeps its structure.

        Args:
            codec: name of a blosc codec, None, or the stream's `Compression`.
            max_chunk: bytes of a column after which a new compressed chunk begins.

        Raises:
            ValueError: the builder has no elements, or the codec does not exist.
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
            f"An element of {size / 1e9:.3f} GB is too large to be sent: the limit is "
            f"{MAX_ELEMENT_BYTES / 1e9:g} GB. Make smaller elements, such as parts of it, in the "
            "map() or from_generator() that makes it."
        )
    return described


class DecodedBlock:
    """A received block. Its elements belong to the caller and may be written to.

    Arrays of 16 KB and more, and all arrays of a block of a single element, are views
    of the block's own memory. No frame and no other block shares it. So take each
    element once: a second iteration returns the same memory.

    Attributes:
        count: number of elements.
        nbytes: size of their values before compression.
        structure: structure of the elements, for the next call of `decode_block` on the
            stream.
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
        """Return the elements in order, without the first ``skip``."""
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
    """Decode a block that a peer has sent.

    Args:
        meta: the header.
        frames: the other frames, any objects with flat bytes.
        structure: structure of the block before on the stream, for headers without a
            structure.
        max_bytes: limit of the block's size in memory; checked against the header
            before any allocation. Allocations by the constructors of pickled objects do
            not count.
        allow_objects: True to unpickle leaves that are Python objects. Use False for
            bytes of peers that must not be able to run code here. Elements without such
            leaves are never unpickled.
        lent: numbers of the frames that may be handed out without a copy: writable,
            aligned to 64 bytes, and kept alive by their views. A hostile peer may still
            change their bytes; they are copied where that could do harm.
        room: allocates memory for large arrays: as many bytes as requested, writable
            and aligned to 64 bytes. None allocates fresh memory.

    Raises:
        ObjectsRefusedError: the block has Python objects, and they are not allowed. No
            frame was read.
        ProtocolError: the bytes are not a valid block.
    """
    header = decode_meta(meta)
    if header.structure is not None:
        structure = Structure(header.structure)
    if structure is None:
        raise ProtocolError(
            "a block leaves out its structure, but none was announced on this stream"
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


def uncompressed(meta: Buffer, frames: Sequence[Any]) -> tuple[Buffer, Sequence[Any]]:
    """Return a block as it would be had nothing been compressed, for a peer without a
    codec.

    Raises:
        MissingCodecError: it is compressed, and there is no codec here.
        ProtocolError: whatever is wrong with the bytes.

    >>> builder = BlockBuilder()
    >>> builder.add(bytes(4096))
    True
    >>> block = builder.build("lz4")
    >>> meta, frames = uncompressed(block.meta, block.frames)
    >>> len(block.frames[0]) < 4096 < len(frames[0])
    True
    """
    header = decode_meta(meta)
    if not any(column.chunks for column in header.columns):
        return meta, frames
    columns = tuple(msgspec.structs.replace(column, chunks=()) for column in header.columns)
    plain = [
        decode_buffer(_flat(frame), column.nbytes, column.chunks, own=False)
        if column.chunks
        else frame
        for column, frame in zip(header.columns, frames, strict=True)
    ]
    return _encoder.encode(BlockMeta(header.count, columns, header.structure)), plain


def check_no_objects(structure: Structure) -> None:
    """Raise an error if a leaf must be unpickled.

    Raises:
        ObjectsRefusedError: the structure has such a leaf; the text says where.
    """
    for number, leaf in enumerate(structure.leaves):
        if leaf.kind == "object":
            raise ObjectsRefusedError(refused_object([*leaf_paths(structure.node)][number]))


def decode_meta(meta: Buffer) -> BlockMeta:
    """Decode the header of a block.

    Raises:
        ProtocolError: the bytes are not a header.
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
        raise ProtocolError(f"a block has a header that cannot be decoded: {error}") from None


def _check_counts(
    header: BlockMeta, frames: Sequence[Any], structure: Structure, max_bytes: int
) -> int:
    """Check all counts of a header against each other and against the limits, and
    return the announced size in bytes.
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
