"""The data plane's codec: elements of a pipeline into the frames of blocks, and back.

``dtypes`` describes numpy dtypes, ``structures`` the nesting of elements and their leaves, ``flattening`` takes them
apart, ``columns`` lays out the values of one leaf, ``objects`` those that must be pickled, ``names`` finds the classes
that a peer names, ``raggeds`` checks ragged tensors, ``compression`` packs buffers, ``codec`` joins them into blocks;
``references`` holds blocks that stay in their process and need none of this.
Sockets, threads and streams do not belong here.

What becomes of a leaf: numpy arrays keep dtype (byte order, units and padding included) and shape; they arrive in C
order, writable. Ragged tensors arrive as such. numpy scalars and Python's int (any size), float, bool, complex, str,
bytes and None keep their type. A list becomes an array where nothing is lost by it, but stays a list within a
dataclass. Dicts keep the order of their keys, and subclasses of dict arrive as dict. Namedtuples and dataclasses arrive
as such where the receiver has already imported their module, else as a dict of their fields; a dataclass is put
together without calling its ``__init__``. Everything else, arrays of objects too, is pickled, which is slow, and opened
by the receiver only where it allows objects.
"""

from __future__ import annotations

from zmqdata.blocks.codec import (
    MAX_BYTES,
    MAX_ELEMENTS,
    BlockBuilder,
    BlockMeta,
    DecodedBlock,
    EncodedBlock,
    decode_block,
    decode_meta,
)
from zmqdata.blocks.compression import CODECS, Compression, validate_compression
from zmqdata.blocks.references import ReferenceBuilder, ReferencedBlock, copied, size_of
from zmqdata.blocks.structures import Structure

__all__ = [
    "CODECS",
    "MAX_BYTES",
    "MAX_ELEMENTS",
    "BlockBuilder",
    "BlockMeta",
    "Compression",
    "DecodedBlock",
    "EncodedBlock",
    "ReferenceBuilder",
    "ReferencedBlock",
    "Structure",
    "copied",
    "decode_block",
    "decode_meta",
    "size_of",
    "validate_compression",
]
