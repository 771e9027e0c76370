"""The journal's format: durable facts as bytes, and what damaged bytes mean. Where the
bytes are is the shell's affair.

A file is a mark, a header, and records. A record is its length, the CRC-32 of all the
rest of it, its sequence number (the header is number 0) and the MessagePack of all
updates of one turn: a turn is read back whole or not at all. The first records are a
snapshot, which was complete before anybody could find the file; what follows was
appended. Checksums begin from a random ``salt`` that the header tells, so that no bytes
of another file, and none that a peer made up, can be taken for a record.

A bad record at the end is a write that was cut off, by the death of the process or of
its machine: nobody was told of it, so it is left out. A bad one with valid ones behind
it, or within the snapshot, is damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from zmqdata.errors import DataLossError, FailedPreconditionError
from zmqdata.updates import AnyUpdate, Update

MARK = b"zmqdata journal\n"
SCHEMA = 1
"""Number of the layout of updates. It grows, with a migration, by every change but a
new kind or a defaulted field.
"""

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""By schema: makes of an update of it, as plain data with its kind under ``"type"``,
one of the next.
"""

SNAPSHOT_RECORD = 1_000
"""Most updates in a record of a snapshot."""

SEARCHED = 1 << 20
"""So many places are looked at together for where a record may begin."""

_HEAD = struct.Struct("<II")
_SEQUENCE = struct.Struct("<Q")
_START = _HEAD.size + _SEQUENCE.size

Content = bytes | bytearray | memoryview


class Header(msgspec.Struct, frozen=True):
    """What a file says of itself. ``snapshot``: so many records belong together."""

    schema: int
    salt: int
    snapshot: int


_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(Header).decode
_decode_turn = msgspec.msgpack.Decoder(list[AnyUpdate]).decode


class JournalEncoder:
    """Encodes the records of one file, in order.

    Args:
        salt: a random number below 2**32.

    Example:
        >>> from zmqdata.updates import CloseTaskListUpdate
        >>> encoder = JournalEncoder(salt=7)
        >>> content = encoder.begin([]) + encoder.turn([CloseTaskListUpdate(2000)])
        >>> found = []
        >>> read_journal(content, "journal", found.append), found
        (Replay(records=1, updates=1, torn=0), [CloseTaskListUpdate(iteration=2000)])
    """

    def __init__(self, salt: int) -> None:
        self._salt = salt
        self._sequence = 0

    def begin(self, snapshot: Sequence[Update]) -> bytes:
        """The beginning of a file: mark, header, snapshot."""
        parts = [
            snapshot[at : at + SNAPSHOT_RECORD] for at in range(0, len(snapshot), SNAPSHOT_RECORD)
        ]
        self._sequence = 0
        header = _record(0, 0, _encode(Header(SCHEMA, self._salt, len(parts))))
        return b"".join([MARK, header, *map(self.turn, parts)])

    def turn(self, updates: Sequence[Update]) -> bytes:
        """The record of one turn."""
        self._sequence += 1
        return _record(self._salt, self._sequence, _encode(updates))


def _record(salt: int, sequence: int, payload: bytes) -> bytes:
    numbered = _SEQUENCE.pack(sequence) + payload
    return _HEAD.pack(len(payload), _checksum(salt, len(payload), numbered)) + numbered


def _checksum(salt: int, length: int, numbered: Content) -> int:
    # The length first, so that no run of zeros is a record.
    return zlib.crc32(numbered, zlib.crc32(length.to_bytes(4, "little"), salt))


# --- reading back


@dataclass(frozen=True)
class Replay:
    """What was read back: valid records and the updates in them; bytes of a write that
    was cut off at the end.
    """

    records: int
    updates: int
    torn: int


def read_journal(
    content: Content,
    name: str,
    apply: Callable[[AnyUpdate], object],
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = MIGRATIONS,
    schema: int = SCHEMA,
) -> Replay:
    """Applies every update of a journal in order.

    Args:
        content: all bytes of the file.
        name: the file's name, for errors.
        apply: takes the updates.
        migrations: see ``MIGRATIONS``.
        schema: the schema to migrate to.

    Raises:
        DataLossError: the bytes cannot be what was written; the text has the name and
            the offset.
        FailedPreconditionError: a later version has written them.
    """
    content = memoryview(content)
    header, offset = _read_header(content, name, schema)
    decode = (
        _decode_turn if header.schema == schema else _migrating(header.schema, schema, migrations)
    )
    records = updates = 0
    for start, payload in _records(content, offset, header, name):
        records += 1
        try:
            turn = decode(payload)
            for update in turn:
                apply(update)
        except Exception as error:  # whatever state makes of facts that cannot follow each other
            text = f"{type(error).__name__}: {error}"
            raise _lost(
                name, start, f"the record is sound but its updates make no sense here ({text})"
            ) from error
        updates += len(turn)
        offset = start + _START + len(payload)
    if records < header.snapshot:
        raise _lost(
            name,
            offset,
            f"it ends after {records} of the {header.snapshot} records of its snapshot",
        )
    return Replay(records, updates, len(content) - offset)


def _read_header(content: memoryview, name: str, schema: int) -> tuple[Header, int]:
    first = _valid_at(content, len(MARK), 0) if content[: len(MARK)] == MARK else None
    if first is None or first[0] != 0:
        raise _lost(name, 0, "it does not begin as a journal does")
    try:
        header = _decode_header(first[1])
    except msgspec.MsgspecError as error:
        raise _lost(name, len(MARK), f"its header makes no sense ({error})") from None
    if header.schema > schema:
        raise FailedPreconditionError(
            f"{name} was written by a later version of zmqdata (schema {header.schema}; this "
            f"version knows {schema}). "
            "Start that version, or give this dispatcher another work_dir"
        )
    return header, len(MARK) + _START + len(first[1])


def _records(
    content: memoryview, offset: int, header: Header, name: str
) -> Iterator[tuple[int, memoryview]]:
    """Offset and payload of each valid record up to the end, or up to a write that was
    cut off.
    """
    sequence = 1
    while offset < len(content):
        found = _valid_at(content, offset, header.salt)
        if found is None:
            behind = _find_valid(content, offset + 1, header.salt, sequence)
            if behind is not None:
                raise _lost(
                    name,
                    offset,
                    f"record {sequence} is damaged, and valid ones follow it at offset {behind}",
                )
            return
        if found[0] != sequence:
            raise _lost(name, offset, f"record {found[0]} stands where record {sequence} should")
        yield offset, found[1]
        offset += _START + len(found[1])
        sequence += 1


def _valid_at(content: memoryview, offset: int, salt: int) -> tuple[int, memoryview] | None:
    """Sequence number and payload of the record at an offset; None where there is no
    valid one.
    """
    if offset + _START > len(content):
        return None
    length, checksum = _HEAD.unpack_from(content, offset)
    numbered = content[offset + _HEAD.size : offset + _START + length]
    if len(numbered) < _SEQUENCE.size + length or _checksum(salt, length, numbered) != checksum:
        return None
    return _SEQUENCE.unpack_from(numbered)[0], numbered[_SEQUENCE.size :]


def _find_valid(content: memoryview, offset: int, salt: int, sequence: int) -> int | None:
    """Where the next valid record behind a damaged one begins."""
    most = (len(content) - offset) // _START + 1  # so many records at most are damaged
    end = len(content) - _START + 1
    for begin in range(offset, end, SEARCHED):
        # Cheap first, and for many bytes at a time: a checksum at every byte of a long
        # tail would take for ever.
        places = min(SEARCHED, end - begin)
        numbers = np.ndarray((places,), "<u8", content, begin + _HEAD.size, strides=(1,))
        ahead = numbers - sequence  # of what lies behind: very far, as nothing is below zero
        for at in np.flatnonzero(np.less_equal(ahead, most)).tolist():
            if _valid_at(content, begin + at, salt):
                return int(begin + at)
    return None


def _migrating(
    schema: int, wanted: int, migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]
) -> Callable[[memoryview], list[AnyUpdate]]:
    def decode(payload: memoryview) -> list[AnyUpdate]:
        turn: list[dict[str, Any]] = msgspec.msgpack.decode(payload)
        for one in range(schema, wanted):
            turn = [migrations[one](update) for update in turn]
        return msgspec.convert(turn, list[AnyUpdate], builtin_types=(bytes,))

    return decode


def _lost(name: str, offset: int, what: str) -> DataLossError:
    return DataLossError(
        f"{name} is damaged at offset {offset}: {what}. Its disk has not kept what was written. "
        "Restore the folder "
        "from a copy, or start with another work_dir: jobs then begin anew"
    )
