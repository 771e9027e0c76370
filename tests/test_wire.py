"""Tests of decoding: a peer's bytes are an allowed message or a ``ProtocolError``."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages as m
from zmqdata import wire
from zmqdata.errors import FailedPreconditionError, ProtocolError, VersionMismatchError

UNPACKERS = [wire.to_dispatcher, wire.to_client, wire.to_worker, wire.on_link]
unpackers = st.sampled_from(UNPACKERS)
TASKS = m.TaskList(3, (m.TaskPlace(1, 2, "worker", "tcp://w:1"),), closed=True)
MESSAGE = m.TasksChanged("client", TASKS)
BODY = wire.pack(MESSAGE)[1]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary()
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


class Names(str, Enum):
    client = "client"


def decoded(unpacker: wire.Unpacker[Any], frames: list[bytes]) -> Any:
    """Return the message, or None if the bytes are rejected as they should be."""
    try:
        return unpacker.control(frames)
    except ProtocolError:
        return None


def test_text_of_any_kind_travels_as_text() -> None:
    """Text subclasses of arrays and enumerations are sent as text. The error about an
    unsupported value shows it.
    """
    for name in (np.str_("client"), Names.client):
        found = wire.to_client.control(wire.pack(m.TasksChanged(name, TASKS)))
        assert found == MESSAGE
        assert type(found.client) is str
    with pytest.raises(NotImplementedError, match="A message cannot carry <object"):
        wire.pack(m.TasksChanged(object(), TASKS))  # type: ignore[arg-type]


def test_a_message_is_two_frames() -> None:
    """The first frame has protocol and version, and the second frame is the message."""
    frames = wire.pack(MESSAGE)
    assert frames[0] == b"ZD7"
    assert wire.to_client.control(frames) == MESSAGE
    assert wire.to_client.control([memoryview(frame) for frame in frames]) == MESSAGE
    assert wire.to_client.header(wire.pack_header(MESSAGE)) == MESSAGE


@given(unpackers, st.lists(st.binary(), max_size=4))
def test_garbage_is_refused(unpacker: wire.Unpacker[Any], frames: list[bytes]) -> None:
    """Frames of any number and content raise ``ProtocolError`` and no other error."""
    assert decoded(unpacker, frames) is None


@given(unpackers, st.binary())
def test_garbage_behind_our_magic_is_refused(unpacker: wire.Unpacker[Any], body: bytes) -> None:
    """Random bytes behind a valid first frame are rejected."""
    assert decoded(unpacker, [wire.MAGIC, body]) is None


@given(unpackers, VALUES)
def test_other_values_are_refused(unpacker: wire.Unpacker[Any], value: Any) -> None:
    """Well-formed bytes that encode no message are rejected."""
    assert decoded(unpacker, [wire.MAGIC, msgspec.msgpack.encode(value)]) is None


@given(st.integers(0, 2**64 - 1), st.sampled_from(["task", "attempt", "elements", "bytes"]), VALUES)
def test_wrong_fields_are_refused_or_fit(number: int, field: str, value: Any) -> None:
    """A field of another type is rejected, and any number in range is accepted."""
    stream = {"task": 1, "attempt": 1, "elements": 1, "bytes": number, "handed_out": 0} | {
        field: value
    }
    body = msgspec.msgpack.encode({"type": "Grant", "link": "k-1", "seen": 0, "streams": [stream]})
    grant = decoded(wire.to_worker, [wire.MAGIC, body])
    assert grant is None or isinstance(getattr(grant.streams[0], field), int)


def test_cut_messages_are_refused() -> None:
    """A truncated message is rejected, wherever it ends."""
    for length in range(len(BODY)):
        assert decoded(wire.to_client, [wire.MAGIC, BODY[:length]]) is None, length


@given(st.binary(min_size=1))
def test_messages_that_go_on_after_their_end_are_refused(tail: bytes) -> None:
    """A complete message followed by any further bytes is rejected."""
    assert decoded(wire.to_client, [wire.MAGIC, BODY + tail]) is None


@given(st.integers(0, len(BODY)), st.binary(max_size=3))
def test_another_end_never_raises_anything_else(length: int, tail: bytes) -> None:
    """A message with a different end is rejected or decodes to a message of the same
    kind. For example, the end may add an unknown field.
    """
    found = decoded(wire.to_client, [wire.MAGIC, BODY[:length] + tail])
    assert found is None or isinstance(found, m.TasksChanged)


@given(
    st.text().filter(lambda name: name not in ("type", *m.TasksChanged.__struct_fields__)), VALUES
)
def test_unknown_fields_are_ignored(name: str, value: Any) -> None:
    """A field known only to a later version leaves the message unchanged."""
    fields = msgspec.msgpack.decode(BODY) | {name: value}
    assert wire.to_client.header(msgspec.msgpack.encode(fields)) == MESSAGE


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_flipped_byte_never_raises_anything_else(at: int, flip: int) -> None:
    """A changed byte yields another message of the same kind or a ``ProtocolError``."""
    body = bytearray(BODY)
    body[at % len(body)] ^= flip
    found = decoded(wire.to_client, [wire.MAGIC, bytes(body)])
    assert found is None or isinstance(found, m.Message)


def test_deep_nesting_is_refused() -> None:
    """A deeply nested message does not exhaust the stack."""
    with pytest.raises(ProtocolError):
        wire.to_client.control([wire.MAGIC, b"\x91" * 100_000])


def test_a_peer_of_another_version_is_named() -> None:
    """The error about another version names both versions, the cause and the remedy.
    Any other first frame is rejected as a foreign message.
    """
    text = "Version mismatch, the peer speaks protocol version 8 and this process version 7: .*install the same release"
    with pytest.raises(VersionMismatchError, match=text) as found:
        wire.to_client.control([b"ZD8", BODY])
    assert isinstance(found.value, ProtocolError)
    assert isinstance(found.value, FailedPreconditionError)
    with pytest.raises(VersionMismatchError, match="version 123456789 and"):
        wire.to_client.control([b"ZD" + b"123456789" * 100, BODY])
    for stranger in (b"HTTP", b"ZD", b"ZD-8", "ZD\u0668".encode()):
        with pytest.raises(ProtocolError, match="not a zmqdata message"):
            wire.to_client.control([stranger, BODY])


@given(unpackers, st.integers(m.PROTOCOL_VERSION + 1, 10**9 - 1), st.lists(st.binary(), max_size=4))
def test_another_version_is_known_by_its_first_frame(
    unpacker: wire.Unpacker[Any], version: int, rest: Any
) -> None:
    """A message of another version is recognized by its first frame alone. Its version
    defines the other frames.
    """
    with pytest.raises(VersionMismatchError, match=f"speaks protocol version {version} and"):
        unpacker.control([b"ZD%d" % version, *map(memoryview, rest)])


def test_whoever_connects_understands_the_notice() -> None:
    """Clients and workers can decode the answer to another version's message."""
    for unpacker in (wire.to_client, wire.to_worker):
        assert unpacker.control(wire.pack(wire.NOTICE)) == wire.NOTICE


def test_the_number_of_frames_is_told() -> None:
    """The error about too few or too many frames shows their number."""
    with pytest.raises(ProtocolError, match="expected 2 frames, got 3"):
        wire.to_client.control([*wire.pack(MESSAGE), b""])
