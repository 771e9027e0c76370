"""Tests of ``zmqdata.blocks.objects``: pickling, layout, checks and unpickling."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import io
import ipaddress
import os
import pathlib
import pickle
import pickletools
import sys
import threading
import time
import types
import uuid
import zoneinfo
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from zmqdata.blocks import BlockBuilder, decode_block, whole
from zmqdata.blocks.objects import (
    OUT_OF_BAND,
    Pickled,
    check_stream,
    pack_objects,
    pickled,
    unpack_objects,
    unpickled,
)
from zmqdata.errors import ObjectsRefusedError, ProtocolError


class Colour(enum.Enum):
    """An enumeration of a user."""

    RED = 1


class Bits(enum.IntFlag):
    """Flags of a user."""

    A = 1
    B = 2


class Counted(list[Any]):
    """A list with an extra attribute."""

    total = 0


class Made:
    """An object created by a class method."""

    def __init__(self, number: int) -> None:
        self.number = number

    @classmethod
    def of(cls, number: int) -> Made:
        """Create an instance."""
        return cls(number)

    def __reduce__(self) -> Any:
        """Reduce to a call of the class method."""
        return Made.of, (self.number,)

    def __eq__(self, other: object) -> bool:
        """Compare by number."""
        return isinstance(other, Made) and self.number == other.number

    __hash__ = None  # type: ignore[assignment]


class Bad:
    """An object whose own methods misbehave."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error

    def __getstate__(self) -> Any:
        """Raise in the worker if asked to."""
        if self.error is not None:
            raise self.error
        return {"x": 1}

    def __setstate__(self, state: Any) -> None:
        """Raise in the client."""
        raise SystemExit(3)


def by_value() -> type:
    """Return a class as a worker holds it that received it with a pipeline. Its module
    in this process lacks the class.
    """
    return type("Colour", (), {"__module__": __name__, "__qualname__": "Made", "number": 7})


sys.modules.setdefault(__name__, sys.modules[Colour.__module__])

VALUES: list[Any] = [
    {1, 2},
    frozenset([1]),
    bytearray(b"x"),
    range(3),
    slice(1, 2),
    ...,
    [1, "a", [2**200, {"x": None}]],
    datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    datetime.timedelta(3),
    decimal.Decimal("1.1"),
    fractions.Fraction(1, 3),
    uuid.UUID(int=5),
    pathlib.PurePosixPath("/a"),
    ipaddress.ip_network("1.2.3.0/24"),
    array.array("i", [1, 2]),
    types.SimpleNamespace(a=1),
    collections.OrderedDict(a=1),
    collections.defaultdict(list, a=[1]),
    collections.Counter("aab"),
    collections.deque([1, 2], 5),
    time.gmtime(0),
    Colour.RED,
    Bits.A | Bits.B,
    Bits(0),
    Colour,
    Counted([1]),
    Made(3),
    np.dtype([("a", ">i4")]),
    np.float32,
]


def packed_again(*values: Any) -> list[Any]:
    """Return the values after a round trip of their bytes."""
    buffer = memoryview(bytes(pack_objects([pickled(value) for value in values])))
    return unpack_objects(buffer.nbytes, (), buffer, len(values))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_objects_come_back(value: Any) -> None:
    """Values of the standard library and of users arrive equal and with equal types."""
    first, second = packed_again(value, value)
    assert type(first) is type(value)
    assert first == second == value


class Doubled(float):
    """A number of a user that changes the value it is made of."""

    def __new__(cls, half: float, unit: str = "m") -> Doubled:
        made = super().__new__(cls, 2 * half)
        made.unit = unit
        return made

    unit: str


class Loud(str):
    def __new__(cls, text: str) -> Loud:
        return super().__new__(cls, f"{text}!")


class Following(int):
    def __new__(cls, before: int) -> Following:
        return super().__new__(cls, before + 1)


class Turned(complex):
    def __new__(cls, number: complex) -> Turned:
        return super().__new__(cls, number * 1j)


class Tenfold(decimal.Decimal):
    def __new__(cls, part: Any) -> Tenfold:
        return super().__new__(cls, decimal.Decimal(part) * 10)


class Inverse(fractions.Fraction):
    def __new__(cls, whole: Any) -> Inverse:
        return super().__new__(cls, 1 / fractions.Fraction(whole))


class Said(int):
    """A number that says itself how it is made."""

    def __new__(cls, before: int) -> Said:
        return super().__new__(cls, before + 1)

    def __getnewargs__(self) -> tuple[int]:
        return (self - 1,)


@pytest.mark.parametrize(
    "value",
    [
        Doubled(1.5, "km"),
        Loud("a"),
        Following(2**70),
        Turned(2),
        Tenfold("1.5"),
        Inverse(4),
        Said(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_class_does_not_change_its_value_again(value: Any) -> None:
    """A number or text whose class changes what it is made of arrives with its value
    and its attributes.
    """
    (found,) = packed_again(value)
    assert type(found) is type(value)
    assert (found, vars(found)) == (value, vars(value))


ARRAYS: list[Any] = [
    np.array([None, "a", {1}], object),
    np.array([[1, 2**80]], object),
    np.zeros(2, [("a", object), ("b", "i4")]),
    np.zeros(1, [("a", object)])[0],
    np.ma.masked_array([1.5, 2], [True, False]),
    np.rec.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    np.arange(9000).reshape(3, 3000).T,
    np.array([np.arange(5000), None], object),
]


@pytest.mark.parametrize("value", ARRAYS, ids=lambda value: f"{type(value).__name__}-{value.dtype}")
def test_arrays_that_are_objects_come_back(value: Any) -> None:
    """Object arrays and array subclasses keep class, dtype, shape and content."""
    (found,) = packed_again(value)
    assert type(found) is type(value)
    assert (found.dtype, found.shape) == (value.dtype, value.shape)
    assert repr(found) == repr(value)


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_matrices_come_back() -> None:
    """numpy's outdated matrix arrives as a matrix."""
    (found,) = packed_again(np.matrix([[1, 2]]))
    assert type(found) is np.matrix


def test_error_values_come_back() -> None:
    """An exception can be a value in an element."""
    (found,) = packed_again(KeyError("x", 3))
    assert (type(found), found.args) == (KeyError, ("x", 3))


def test_large_buffers_lie_beside_the_pickle() -> None:
    """Buffers of 16 KB and more are sent without a copy and arrive aligned, writable
    and unshared.
    """
    small, large = np.zeros(OUT_OF_BAND - 1, np.uint8), np.zeros(OUT_OF_BAND, np.uint8)
    sent = pickled([small, large])
    assert [buffer.nbytes for buffer in sent.buffers] == [OUT_OF_BAND]
    assert np.shares_memory(np.frombuffer(sent.buffers[0], np.uint8), large)
    assert sent.nbytes == len(sent.stream) + OUT_OF_BAND
    ((first, second), (third, fourth)) = packed_again([small, large], [small, large])
    for number, found in enumerate((first, second, third, fourth)):
        assert found.flags.writeable
        found[:] = number
    assert second.ctypes.data % 64 == 0
    assert [int(found.max()) for found in (first, second, third, fourth)] == [0, 1, 2, 3]
    assert large.max() == 0


def test_classes_that_came_with_the_pipeline_are_named() -> None:
    """An instance of a shipped class arrives as the client's own class."""
    instance = by_value()()
    instance.number = 5
    (found,) = packed_again(instance)
    assert type(found) is Made
    assert found.number == 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (threading.Lock(), "TypeError: cannot pickle"),
        (lambda: 1, "defined within a function"),
        (type("Local", (), {"__qualname__": "f.<locals>.Local"})(), "defined within a function"),
        (len, "builtins.len, which is not among the values"),
        (np.sin, "numpy.sin, which is not among the values"),
        (os.system, "posix.system"),
        (functools.partial(int), "functools.partial"),
        (type(None), "builtins.NoneType"),
        ([].append, "asks for the attribute 'append'"),
        (io.BytesIO(b"x"), "_io.BytesIO"),
        (np, "cannot pickle 'module'"),
        (Bad(ValueError("mine")), "ValueError: mine"),
        (Bad(RecursionError()), "RecursionError"),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0][:30],
)
def test_what_receivers_would_refuse_is_refused_at_once(value: Any, text: str) -> None:
    """A value that cannot be pickled or unpickled raises TypeError at creation."""
    with pytest.raises(TypeError, match=text):
        pickled({"deep": [value]})


# --------------------------------------------------------------------- hostile


def column(*parts: int | bytes) -> memoryview:
    """Return a column of objects as a hostile peer may write it. Numbers form the
    table, and each bytes value is padded.
    """
    raw = np.array([part for part in parts if isinstance(part, int)], "<i8").tobytes()
    pieces = [raw, *[part for part in parts if isinstance(part, bytes)]]
    return memoryview(b"".join(piece + bytes(-len(piece) % 64) for piece in pieces))


ONE = pickle.dumps(1, 5)


def test_a_column_by_hand() -> None:
    """A column is the size table, the pickles and the buffers, padded to 64 bytes."""
    frame = column(len(ONE), 0, len(ONE), 0, ONE + ONE)
    assert unpack_objects(frame.nbytes, (), frame, 2) == [1, 1]
    assert bytes(pack_objects([Pickled(ONE, ()), Pickled(ONE, ())])) == bytes(frame)
    frame = column(len(ONE), 1, 3, ONE, b"abc")
    assert bytes(pack_objects([Pickled(ONE, (memoryview(b"abc"),))])) == bytes(frame)


@pytest.mark.parametrize(
    ("frame", "count"),
    [
        (b"", 1),
        (column(len(ONE), 0, ONE), 2),
        (column(len(ONE), 0, ONE), 9),
        (column(-1, 0, ONE), 1),
        (column(len(ONE), -1, ONE), 1),
        (column(1 << 62, 0, ONE), 1),
        (column(1 << 62, 0, 1 << 62, 0, 1 << 62, 0, 1 << 62, 0, ONE), 4),
        (column(len(ONE), 1 << 61, ONE), 1),
        (column(len(ONE), 1, -64, ONE), 1),
        (column(len(ONE), 2, -64, 64, ONE), 1),
        (column(len(ONE), 1, 1 << 62, ONE), 1),
        (column(len(ONE) + 64, 0, ONE), 1),
        (column(len(ONE), 0, ONE, b"x"), 1),
        (bytes(column(len(ONE), 0, ONE))[:-1], 1),
        (column(0, 0), 1),
        (column(len(ONE) - 1, 0, ONE), 1),
        (column(len(ONE) + 1, 0, ONE), 1),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(frame: Any, count: int) -> None:
    """Contradictory sizes cause neither a read beyond the column nor a larger
    allocation.
    """
    with pytest.raises(ProtocolError):
        unpack_objects(len(frame), (), memoryview(frame), count)


class Witness:
    """An object that records whether it was unpickled."""

    seen: ClassVar[list[int]] = []

    def __setstate__(self, state: Any) -> None:
        """Record the call, which must never happen without ``allow_objects``."""
        self.seen.append(1)

    def __getstate__(self) -> Any:
        """Return a nonempty state, so that unpickling sets it."""
        return {"x": 1}


def test_nothing_is_unpickled_where_objects_are_not_allowed() -> None:
    """Without ``allow_objects`` no frame is read, and the error names the leaf."""
    builder = BlockBuilder()
    builder.add({"n": 1, "x": (2, Witness())})
    block = builder.build()
    frames = [bytes(whole(frame)) for frame in block.frames]
    for content in (frames, [b"x"] * 3, []):
        with pytest.raises(
            ObjectsRefusedError,
            match=r"^element\['x'\]\[1\] is a Python object.*allow_objects=False",
        ):
            decode_block(block.meta, content, allow_objects=False)
    assert Witness.seen == []
    decode_block(block.meta, frames)
    assert Witness.seen == [1]


@pytest.mark.parametrize(
    "stream",
    [
        b"",
        b".",
        b"\x80\x05.",
        b"\x80\x04N.",
        b"\x80\x05N",
        b"\x80\x05N.N.",
        b"\x80\x05Nr\xff\xff\xff\xff.",
        b"\x80\x05Nq\x00.",
        b"\x80\x05\x96\x00\x00\x00\x00\xff\x00\x00\x00.",
        b"\x80\x05\x8d\xff\xff\xff\xff\xff\xff\xff\xffa.",
        b"\x80\x05X\xff\xff\xff\xffa.",
        b"\x80\x05\x8c\x05a.",
        b"\x80\x05cos\nsystem\n.",
        b"\x80\x05(i__main__\nx\n.",
        b"\x80\x05I5\n.",
        b"\x80\x05Nh\x07.",
        b"\x80\x05R.",
        b"\x80\x05\x97.",
        b"\x80\x05\x81.",
        b"\x80\x05]\x94Nu.",
        b"\x80\x05\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R.",
        b"\x80\x05\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.",
        b"\x80\x05\x8c\x0asubprocess\x8c\x05Popen\x93\x8c\x04true\x85R.",
        b"\x80\x05\x8c\x08builtins\x8c\x07getattr\x93]\x8c\x06append\x86R.",
        b"\x80\x05\x8c\x08builtins\x8c\x05bytes\x93\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85R.",
        b"\x80\x05\x8c\x02\xff\xff.",
        pickle.dumps(Bad(), 5),
        pickle.dumps(threading.Thread, 5),
    ],
)
def test_hostile_pickles_are_refused(stream: bytes) -> None:
    """Damaged pickles, unknown opcodes, dangerous names and raising calls give
    ProtocolError.
    """
    with pytest.raises(ProtocolError):
        unpickled(stream, [])


@pytest.mark.parametrize("value", VALUES + ARRAYS, ids=lambda value: type(value).__name__)
def test_what_picklers_write_passes_the_check(value: Any) -> None:
    """The check accepts every opcode that the object pickler writes."""
    check_stream(pickled([value, value]).stream)


@given(
    st.recursive(
        st.one_of(st.integers(), st.text(), st.binary(), st.floats(), st.none(), st.booleans()),
        st.lists,
    )
)
def test_the_check_agrees_with_pickletools(value: Any) -> None:
    """The check accepts a complete pickle, and rejects a cut or extended pickle."""
    stream = pickle.dumps({"k": (value, frozenset(["x"]))}, 5)
    check_stream(stream)
    assert [place for opcode, _, place in pickletools.genops(stream) if opcode.name == "STOP"] == [
        len(stream) - 1
    ]
    for damaged in (stream[:-1], stream + b".", stream[:-1] + b"\x95."):
        with pytest.raises(ProtocolError):
            check_stream(damaged)


@settings(max_examples=how_many(200, 600), deadline=None)
@given(st.sampled_from(VALUES + ARRAYS), st.integers(0, 3000), st.binary(max_size=4), st.booleans())
def test_damaged_objects_are_read_or_refused(
    value: Any, place: int, patch: bytes, in_place: bool
) -> None:
    """A changed object column yields an object per entry or raises ProtocolError."""
    raw = bytes(pack_objects([pickled(value), pickled(1)]))
    place %= len(raw)
    frame = raw[:place] + patch + raw[place + (len(patch) if in_place else 0) :]
    try:
        found = unpack_objects(len(frame), (), memoryview(frame), 2)
    except ProtocolError:
        return
    assert len(found) == 2
