"""Test how a client decodes a worker's bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import messages, wire
from zmqdata.blocks import BlockBuilder, DecodedBlock
from zmqdata.client.decoding import (
    CORRUPT_LIMIT,
    check_spec_without_objects,
    decode_message,
    hopeless,
)
from zmqdata.core.client.events import Finish
from zmqdata.elements.specs import TensorSpec, spec_of
from zmqdata.errors import (
    FailedPreconditionError,
    MissingClassError,
    ObjectsRefusedError,
    PipelineError,
    ProtocolError,
)
from zmqdata.failures.codec import encode_failure
from zmqdata.transport.memory import MappedMemory, SharedMemory


def message(**changes: object) -> list[bytes]:
    """Return a block of four elements with a changed header."""
    builder = BlockBuilder()
    for number in range(4):
        builder.add(np.full(10, number))
    block = builder.build()
    header = messages.Block(1, 4000, 1, 0, 4, 0, block.nbytes, block.meta)
    return [wire.pack_header(msgspec.structs.replace(header, **changes)), *map(bytes, block.frames)]


def test_a_block() -> None:
    """A block is decoded to its header and its elements."""
    header, content = decode_message(message())
    assert isinstance(header, messages.Block)
    assert isinstance(content, DecodedBlock)
    assert [int(row[0]) for row in content.elements(header.skip)] == [0, 1, 2, 3]


def test_a_block_for_several_clients() -> None:
    """A view of a block has the elements between ``skip`` and ``cut``, which must lie
    within the block.
    """
    header, _ = decode_message(message(skip=1, cut=3))
    assert isinstance(header, messages.Block)
    assert (header.skip, header.stop) == (1, 3)
    for skip, cut in ((2, 2), (0, 5)):
        with pytest.raises(ProtocolError, match="impossible numbers"):
            decode_message(message(skip=skip, cut=cut))


def test_objects_must_be_allowed() -> None:
    """A block with object leaves raises ProtocolError at a client that does not allow
    objects.
    """
    builder = BlockBuilder()
    builder.add({1, 2})
    block = builder.build()
    frames = [
        wire.pack_header(messages.Block(1, 4000, 1, 0, 1, 0, block.nbytes, block.meta)),
        *map(bytes, block.frames),
    ]
    _, content = decode_message(frames)
    assert isinstance(content, DecodedBlock)
    assert [*content.elements()] == [{1, 2}]
    with pytest.raises(
        ObjectsRefusedError, match=r"^element is a Python object.*allow_objects=False"
    ):
        decode_message(frames, allow_objects=False)


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec((2, None), object),
        {"a": TensorSpec((), "int8"), "b": (TensorSpec((), "int8"), TensorSpec((3,), object))},
    ],
)
def test_arrays_of_objects_are_refused_by_their_spec(spec: Any) -> None:
    """The client refuses a spec with object arrays before the first block, and names
    the leaf as it does for a block.
    """
    where = r"^element is" if isinstance(spec, TensorSpec) else r"^element\['b'\]\[1\] is"
    with pytest.raises(
        FailedPreconditionError, match=where + " a Python object.*allow_objects=False"
    ):
        check_spec_without_objects(spec)


def test_a_spec_that_may_do_without_pickle_passes() -> None:
    """A spec of a single object passes, as the object may be None or a dataclass, and
    so does an unknown spec.
    """
    spec = {
        "none": TensorSpec((), object),
        "text": TensorSpec((2,), str),
        "texts": spec_of(np.array(["a", "b"], object)),
        "any": TensorSpec(None, object),
    }
    check_spec_without_objects(spec)
    check_spec_without_objects(None)


def test_what_cannot_be_read_is_asked_for_again_a_few_times() -> None:
    """The client asks again a few times for an unreadable block, as it may be damaged
    in transit; a missing class stays missing.
    """
    damaged = ProtocolError("damaged")
    assert [hopeless(damaged, count) for count in range(1, CORRUPT_LIMIT + 1)] == [
        None
    ] * CORRUPT_LIMIT
    found = hopeless(damaged, CORRUPT_LIMIT + 1)
    assert found is not None
    assert (
        found.error,
        "messages that cannot be decoded. The last error was: damaged" in found.text,
    ) == ("DataLossError", True)
    assert hopeless(MissingClassError("import it"), 1) == Finish(
        "FailedPreconditionError", "import it"
    )
    assert hopeless(ObjectsRefusedError("not here"), 1) == Finish(
        "FailedPreconditionError", "not here"
    )


def test_the_end_of_a_task() -> None:
    """The end of a task has no content."""
    end = messages.EndOfTask(3, 4000, 1, 77)
    assert decode_message([wire.pack_header(end)]) == (end, None)


def test_a_failure() -> None:
    """A failure is decoded to the exception that the training loop gets."""
    failure = encode_failure(ValueError("bad"), 5, "tcp://worker:1")
    _, content = decode_message(message(count=1, failure=failure)[:1])
    assert isinstance(content, PipelineError)
    assert isinstance(content.__cause__, ValueError)
    assert "tcp://worker:1" in str(content)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b""],
        [b"garbage"],
        [b"\xdf\xff\xff\xff\xff", b"x"],
        message()[:1],
        [*message(), b"one more"],
        message(count=1_000_000),
        message(count=3),
        message(skip=4),
        message(skip=-1),
        message(first=-5),
        message(size=10),
        message(size=-1),
        message(failure=b"x"),
        message(count=1, failure=b"\x80"),
        [message()[0], b"\xff" * 7],
        wire.pack(messages.RequestStatus("r")),
    ],
)
def test_lies_and_garbage(frames: list[bytes]) -> None:
    """An invalid message of any kind raises ProtocolError."""
    with pytest.raises(ProtocolError):
        decode_message(frames)


@given(st.integers(0, 1), st.integers(0, 400), st.binary(max_size=4), st.integers(0, 8))
def test_damaged_messages(which: int, place: int, patch: bytes, cut: int) -> None:
    """A message damaged at any byte is decoded or raises ProtocolError, and no other
    error.
    """
    frames = message()
    frame = frames[which]
    place %= len(frame)
    frames[which] = (frame[:place] + patch + frame[place + len(patch) :])[: len(frame) - cut]
    with contextlib.suppress(ProtocolError):
        decode_message(frames)


# --- shared memory

LARGE = 50_000


@pytest.fixture
def shared() -> Iterator[SharedMemory]:
    made = SharedMemory(1 << 20)
    yield made
    made.close()


def shared_message(
    shared: SharedMemory, element: Any, **changes: Any
) -> tuple[list[bytes], MappedMemory]:
    """Return a message with a block of a single element, large leaves in shared memory
    and a changed slot.
    """
    builder = BlockBuilder()
    builder.add(element)
    block = builder.build()
    # A correct worker does not place text in shared memory, but a hostile worker may.
    slot = shared.place([memoryview(bytearray(frame)) for frame in block.frames])
    assert slot is not None
    following = [
        bytes(frame) for frame, size in zip(block.frames, slot.sizes, strict=True) if size < 0
    ]
    slot = msgspec.structs.replace(slot, **changes)
    header = messages.Block(1, 4000, 1, 0, 1, 0, block.nbytes, block.meta, slot=slot)
    return [wire.pack_header(header), *following], MappedMemory(shared.told)


def test_arrays_in_shared_memory_are_not_copied(shared: SharedMemory) -> None:
    """Numbers are writable and aligned views of the memory, and leaves outside of it
    come with the message.
    """
    element = {"a": np.arange(LARGE), "b": np.arange(3), "c": np.full((LARGE, 2), 7, np.float32)}
    frames, memory = shared_message(shared, element)
    _, content = decode_message(frames, memory)
    assert isinstance(content, DecodedBlock)
    [found] = content.elements()
    for name, array in element.items():
        assert (found[name] == array).all()
        assert found[name].flags.writeable
        assert found[name].ctypes.data % 64 == 0
    shared._bytes[:8] = 255
    assert found["a"][0] == -1
    assert found["b"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "element", ["text" * LARGE, np.full(LARGE, "word"), b"byte" * LARGE, [{1}, "x" * LARGE]]
)
def test_what_must_be_checked_is_copied_out_of_shared_memory(
    shared: SharedMemory, element: Any
) -> None:
    """Text, bytes and objects are copied out of the memory, as a worker could still
    write to it.
    """
    frames, memory = shared_message(shared, element)
    _, content = decode_message(frames, memory)
    assert isinstance(content, DecodedBlock)
    shared._bytes[:] = 255
    [found] = content.elements()
    assert np.array_equal(found, element)


@pytest.mark.parametrize(
    "changes",
    [
        {"sizes": (400_000,)},
        {"sizes": (400_000, 24, -1, -1)},
        {"sizes": (399_999, -1)},
        {"sizes": (-1, 400_000)},
        {"start": 1 << 20},
    ],
)
def test_a_lying_slot(shared: SharedMemory, changes: dict[str, Any]) -> None:
    """A slot with other frames than the block's, or outside the memory, raises
    ProtocolError and borrows no memory.
    """
    frames, memory = shared_message(shared, {"a": np.arange(LARGE), "b": np.arange(3)}, **changes)
    with pytest.raises(ProtocolError):
        decode_message(frames, memory)
    assert not memory._held


def test_a_slot_without_memory(shared: SharedMemory) -> None:
    """A block that names a slot on a link without memory raises ProtocolError."""
    frames, _ = shared_message(shared, np.arange(LARGE))
    with pytest.raises(ProtocolError, match="the link has none"):
        decode_message(frames)
