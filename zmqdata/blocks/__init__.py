"""The data plane's codec: elements of a pipeline into the frames of blocks, and back.

``dtypes`` describes numpy dtypes, ``structures`` the nesting of elements and their
leaves, ``flattening`` takes them apart, ``columns`` lays out the values of one leaf,
``objects`` those that must be pickled, ``names`` finds the classes that a peer names,
``raggeds`` checks ragged tensors, ``compression`` packs buffers, ``adaptive`` measures
which codecs pay, ``choosing`` decides it, ``gathered`` is what lies in pieces,
``codec`` joins columns into blocks; ``references`` holds blocks that stay in their
process and need none of this. Sockets, threads and streams do not belong here.

What becomes of a leaf: numpy arrays keep dtype (byte order, units and padding included)
and shape; they arrive in C order, writable. Ragged tensors arrive as such. numpy
scalars and Python's int (any size), float, bool, complex, str, bytes and None keep
their type. A list becomes an array where nothing is lost by it, but stays a list within
a dataclass. Dicts keep the order of their keys, and subclasses of dict arrive as dict.
Namedtuples and dataclasses arrive as such where the receiver has already imported their
module, else as a dict of their fields; a dataclass is put together without calling its
``__init__``. Everything else, arrays of objects too, is pickled, which is slow, and
opened by the receiver only where it allows objects.
"""

from __future__ import annotations

from zmqdata.blocks.adaptive import Compression
from zmqdata.blocks.choosing import UNKNOWN_SPEED
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
from zmqdata.blocks.compression import CODECS, Room, validate_compression
from zmqdata.blocks.gathered import Gathered, whole
from zmqdata.blocks.objects import refused_object
from zmqdata.blocks.references import (
    KEPT_AS_THEY_ARE,
    ReferenceBuilder,
    ReferencedBlock,
    copied,
    detached,
    guessed_size,
    size_of,
)
from zmqdata.blocks.structures import Structure

__all__ = [
    "CODECS",
    "KEPT_AS_THEY_ARE",
    "MAX_BYTES",
    "MAX_ELEMENTS",
    "UNKNOWN_SPEED",
    "BlockBuilder",
    "BlockMeta",
    "Compression",
    "DecodedBlock",
    "EncodedBlock",
    "Gathered",
    "ReferenceBuilder",
    "ReferencedBlock",
    "Room",
    "Structure",
    "copied",
    "decode_block",
    "decode_meta",
    "detached",
    "guessed_size",
    "refused_object",
    "size_of",
    "validate_compression",
    "whole",
]
