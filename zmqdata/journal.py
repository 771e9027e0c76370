"""The format of the journal: encoding durable facts as bytes, and detecting damage when
reading them back. File access belongs to the shell.

A file consists of a magic mark, a header, and records. A record holds its length, the
CRC-32 of everything else in it, its sequence number and the MessagePack of all updates
of one turn. The header is record number 0. A turn is therefore read back completely or
not at all. The first records are a snapshot, which was complete before the file became
visible under its name; later records were appended. Checksums start from a random
``salt`` stored in the header. Bytes of another file, or bytes crafted by a peer, are
therefore never mistaken for a record.

An invalid record at the end is a write that was torn by the death of the process or the
machine. The dispatcher had not yet revealed its updates to any peer, so it is ignored.
An invalid record before valid records, or within the snapshot, is damage.
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
SCHEMA = 6
"""Version of the layout of updates. Every change except a new kind of update or a field
with a default increments it and needs a migration.
"""

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Migrations by schema: each converts an update of that schema to the next. An update
is plain data with its kind under ``"type"``.
"""

SNAPSHOT_RECORD = 1_000
"""Maximum number of updates in a record of a snapshot."""

SEARCHED = 1 << 20
"""Number of byte offsets that are tested at a time for the beginning of a record."""

_HEAD = struct.Struct("<II")
_SEQUENCE = struct.Struct("<Q")
_START = _HEAD.size + _SEQUENCE.size

Content = bytes | bytearray | memoryview


class Header(msgspec.Struct, frozen=True):
    """The first record of a journal file."""

    schema: int
    """The schema of the updates in this file."""
    salt: int
    """Initial value of the checksums in this file."""
    snapshot: int
    """Number of records that make up the snapshot."""


_encode = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(Header).decode
_decode_turn = msgspec.msgpack.Decoder(list[AnyUpdate]).decode


class JournalEncoder:
    """Encoder of the records of one file, in order.

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
        """Return the beginning of a file: mark, header and snapshot."""
        parts = [
            snapshot[at : at + SNAPSHOT_RECORD] for at in range(0, len(snapshot), SNAPSHOT_RECORD)
        ]
        self._sequence = 0
        header = _record(0, 0, _encode(Header(SCHEMA, self._salt, len(parts))))
        return b"".join([MARK, header, *map(self.turn, parts)])

    def turn(self, updates: Sequence[Update]) -> bytes:
        """Return the record of one turn."""
        self._sequence += 1
        return _record(self._salt, self._sequence, _encode(updates))


def _record(salt: int, sequence: int, payload: bytes) -> bytes:
    numbered = _SEQUENCE.pack(sequence) + payload
    return _HEAD.pack(len(payload), _checksum(salt, len(payload), numbered)) + numbered


def _checksum(salt: int, length: int, numbered: Content) -> int:
    # The checksum covers the length first, so that a run of zeros is not a valid
    # record.
    return zlib.crc32(numbered, zlib.crc32(length.to_bytes(4, "little"), salt))


# --- reading back


@dataclass(frozen=True)
class Replay:
    """The result of reading a journal."""

    records: int
    """Number of valid records."""
    updates: int
    """Number of updates in the valid records."""
    torn: int
    """Number of bytes at the end that belong to a torn write."""


def read_journal(
    content: Content,
    name: str,
    apply: Callable[[AnyUpdate], object],
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = MIGRATIONS,
    schema: int = SCHEMA,
) -> Replay:
    """Pass every update of a journal to ``apply``, in order.

    Args:
        content: all bytes of the file.
        name: the file's name, for errors.
        apply: called with each update.
        migrations: see ``MIGRATIONS``.
        schema: the schema to migrate to.

    Raises:
        DataLossError: the bytes differ from what was written; the text names the file
            and the offset.
        FailedPreconditionError: a later version of zmqdata wrote the file, or an
            earlier one whose schema has no migration.
    """
    content = memoryview(content)
    header, offset = _read_header(content, name, schema)
    if any(one not in migrations for one in range(header.schema, schema)):
        raise FailedPreconditionError(
            f"The journal `{name}` was written by an earlier build of zmqdata: it has schema "
            f"{header.schema}, and this version reads schema {schema}. Let the earlier build "
            "finish its jobs, or give this dispatcher another `work_dir`"
        )
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
        except (
            Exception
        ) as error:  # the state may raise anything for facts that contradict each other
            text = f"{type(error).__name__}: {error}"
            raise _lost(
                name, start, f"the record is intact, but its updates make no sense here ({text})"
            ) from error
        updates += len(turn)
        offset = start + _START + len(payload)
    if records < header.snapshot:
        raise _lost(
            name,
            offset,
            f"the file ends after {records} of the {header.snapshot} records of its snapshot",
        )
    return Replay(records, updates, len(content) - offset)


def _read_header(content: memoryview, name: str, schema: int) -> tuple[Header, int]:
    first = _valid_at(content, len(MARK), 0) if content[: len(MARK)] == MARK else None
    if first is None or first[0] != 0:
        raise _lost(name, 0, "it does not begin with a journal's mark and header")
    try:
        header = _decode_header(first[1])
    except msgspec.MsgspecError as error:
        raise _lost(name, len(MARK), f"its header cannot be decoded ({error})") from None
    if header.schema > schema:
        raise FailedPreconditionError(
            f"The journal `{name}` was written by a later version of zmqdata: it has schema "
            f"{header.schema}, and this version supports up to {schema}. Start the later version, "
            "or give this dispatcher another `work_dir`"
        )
    return header, len(MARK) + _START + len(first[1])


def _records(
    content: memoryview, offset: int, header: Header, name: str
) -> Iterator[tuple[int, memoryview]]:
    """Yield the offset and payload of each valid record, up to the end or a torn
    write.
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
    """Return the sequence number and payload of the record at an offset; None if no
    valid record begins there.
    """
    if offset + _START > len(content):
        return None
    length, checksum = _HEAD.unpack_from(content, offset)
    numbered = content[offset + _HEAD.size : offset + _START + length]
    if len(numbered) < _SEQUENCE.size + length or _checksum(salt, length, numbered) != checksum:
        return None
    return _SEQUENCE.unpack_from(numbered)[0], numbered[_SEQUENCE.size :]


def _find_valid(content: memoryview, offset: int, salt: int, sequence: int) -> int | None:
    """Return the offset of the next valid record after a damaged record; None if no
    valid record follows.
    """
    most = (len(content) - offset) // _START + 1  # upper bound on the number of damaged records
    end = len(content) - _START + 1
    for begin in range(offset, end, SEARCHED):
        # The vectorized comparison of sequence numbers goes first: computing a checksum
        # at every byte of a long tail would take too long.
        places = min(SEARCHED, end - begin)
        numbers = np.ndarray((places,), "<u8", content, begin + _HEAD.size, strides=(1,))
        ahead = numbers - sequence  # unsigned, so an earlier number wraps around to a huge distance
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
        f"The journal `{name}` is damaged at offset {offset}: {what}. The disk did not keep what "
        "was written to it. Start with another `work_dir`, in which all jobs begin anew, or "
        "restore the folder from a backup. A backup brings back datasets, and jobs that were not "
        "read since. Jobs that were read since end with DataLossError and continue from saved "
        "states"
    )
