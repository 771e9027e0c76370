"""The codec of the data plane: elements of a pipeline into the frames of blocks, and
back.

``dtypes`` describes numpy dtypes, ``structures`` the nesting of elements and their
leaves. ``flattening`` takes elements apart; ``columns`` lays out the values of a leaf;
``objects`` holds values that must be pickled; ``names`` finds the classes that a peer
names. ``raggeds`` checks ragged tensors. ``compression`` packs buffers; ``adaptive``
measures which codecs pay, and ``choosing`` decides. ``gathered`` holds frames in
several pieces. ``codec`` joins columns into blocks. ``references`` holds blocks that
stay in their process and are not encoded. Sockets, threads and streams do not belong
here.

numpy arrays keep dtype (byte order, units and padding included) and shape; they arrive
in C order, writable. Ragged tensors arrive as ragged tensors. numpy scalars and
Python's int (any size), float, bool, complex, str, bytes and None keep their type. A
list becomes an array if nothing is lost by it, but stays a list within a dataclass.
Dicts keep the order of their keys; subclasses of dict arrive as dict. A namedtuple,
dataclass or attrs class is kept if the receiver has already imported its module, else
it arrives as a dict of its fields. The latter two are put together without calling its
``__init__``. An array of Python's texts, bytes, numbers and None travels as msgpack.
All other values, including other arrays of objects, are pickled. That is slow, and the
receiver unpickles them only if it allows objects.
"""

from __future__ import annotations

from zmqdata.blocks.adaptive import Compression
from zmqdata.blocks.choosing import UNKNOWN_SPEED
from zmqdata.blocks.codec import (
    MAX_ELEMENTS,
    BlockBuilder,
    BlockMeta,
    DecodedBlock,
    EncodedBlock,
    decode_block,
    decode_meta,
    uncompressed,
)
from zmqdata.blocks.compression import (
    CODECS,
    Room,
    can_compress,
    validate_compression,
    warn_of_missing_codec,
)
from zmqdata.blocks.gathered import Gathered, whole
from zmqdata.blocks.objects import refused_object
from zmqdata.blocks.references import (
    ReferenceBuilder,
    ReferencedBlock,
    copied,
    detached,
    guessed_size,
    size_of,
)
from zmqdata.blocks.structures import Structure
