"""Tests of the journal's format."""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata import updates as u
from zmqdata.errors import DataLossError, FailedPreconditionError
from zmqdata.journal import MARK, SEARCHED, SNAPSHOT_RECORD, JournalEncoder, Replay, read_journal

SALT = 0x1234_5678
SNAPSHOT: list[u.AnyUpdate] = [u.BeginLifeUpdate(1, 7, 1000, 2000, 4000, 1)]
TURNS: list[list[u.AnyUpdate]] = [
    [u.CloseClientUpdate("client"), u.CloseTaskListUpdate(2000)],
    [u.DeliverUpdate(4000, ((0, 5), (7, 9)))],
    [u.EndTaskUpdate(4000, 9), u.RemoveTaskUpdate(4000), u.CollectIncarnationUpdate(1)],
]


def written() -> tuple[bytes, list[int]]:
    """Return the content of a journal and the offset at the end of each turn."""
    encoder = JournalEncoder(SALT)
    content, ends = encoder.begin(SNAPSHOT), []
    for turn in TURNS:
        ends.append(len(content))
        content += encoder.turn(turn)
    return content, [*ends, len(content)]


CONTENT, ENDS = written()


def read(content: bytes, **options: Any) -> tuple[Replay, list[u.AnyUpdate]]:
    found: list[u.AnyUpdate] = []
    return read_journal(content, "work/journal", found.append, **options), found


def damage(content: bytes | bytearray) -> str:
    """Return the error of a journal that is read as damaged; empty if it is read."""
    try:
        read(bytes(content))
    except DataLossError as error:
        return str(error)
    return ""


def up_to(turns: int) -> list[u.AnyUpdate]:
    return SNAPSHOT + [update for turn in TURNS[:turns] for update in turn]


def test_what_was_written_is_read_back() -> None:
    """The snapshot and the turns are read back in order."""
    assert read(CONTENT) == (Replay(4, 7, 0), up_to(3))


def test_a_large_snapshot_is_cut_into_records() -> None:
    """Each record of a snapshot contains at most a fixed number of updates."""
    many = [u.CloseTaskListUpdate(number) for number in range(SNAPSHOT_RECORD * 2 + 1)]
    assert read(JournalEncoder(SALT).begin(many)) == (Replay(3, len(many), 0), many)


def test_cut_behind_the_snapshot_it_reads_as_a_prefix_of_whole_turns() -> None:
    """A journal truncated anywhere behind its snapshot reads as its complete turns."""
    for cut in range(ENDS[0], len(CONTENT)):
        turns = max(at for at, end in enumerate(ENDS) if end <= cut)
        replay, found = read(CONTENT[:cut])
        assert (found, replay.torn) == (up_to(turns), cut - ENDS[turns]), cut


def test_cut_within_the_snapshot_it_is_damaged() -> None:
    """A journal truncated anywhere within its snapshot is damaged, not torn. It gets
    its name only once the snapshot is complete.
    """
    for cut in range(ENDS[0]):
        assert "`work/journal` is damaged at offset" in damage(CONTENT[:cut]), cut


def test_a_flipped_bit_is_never_believed() -> None:
    """A flipped bit anywhere is an error with file and offset, or a torn write in the
    last turn.
    """
    for at in range(len(CONTENT)):
        broken = bytearray(CONTENT)
        broken[at] ^= 1 << (at % 8)
        if at < ENDS[-2]:
            assert re.search(r"`work/journal` is damaged at offset \d+", damage(broken)), at
        else:
            torn = Replay(3, 4, len(CONTENT) - ENDS[-2])
            assert read(bytes(broken)) == (torn, up_to(2)), at


@pytest.mark.parametrize("beyond", range(-30, 30, 7))
def test_damage_is_found_however_far_the_next_record_is(beyond: int) -> None:
    """Damage in a large record is detected wherever the next record starts. The search
    reads the file in windows, and the test moves the record across their boundary.
    """
    encoder = JournalEncoder(SALT)
    start = encoder.begin([])
    large = encoder.turn([u.CloseClientUpdate("x" * (SEARCHED + beyond))])
    content = bytearray(start + large + encoder.turn(TURNS[1]))
    content[len(start) + 40] ^= 1
    with pytest.raises(DataLossError, match=f"valid ones follow it at offset {len(start + large)}"):
        read(bytes(content))


def test_zeros_at_the_end_are_a_torn_write() -> None:
    """Zeros at the end of a journal are a torn write, as after a crash while it
    grew.
    """
    assert read(CONTENT + bytes(5000)) == (Replay(4, 7, 5000), up_to(3))


@given(tail=st.binary(max_size=200))
def test_whatever_follows_the_last_record_is_left_out(tail: bytes) -> None:
    """Bytes behind the last record that are not a record of this file are ignored."""
    assert read(CONTENT + tail)[1] == up_to(3)


@given(content=st.binary(max_size=300), marked=st.booleans())
def test_hostile_bytes_raise_one_error(content: bytes, marked: bool) -> None:
    """Bytes that are not a journal are rejected as damaged."""
    with pytest.raises(DataLossError):
        read(MARK + content if marked else content)


def test_a_record_of_another_file_does_not_count() -> None:
    """A record from an older file or a peer is ignored, as its salt differs."""
    stranger = JournalEncoder(SALT + 1)
    stranger.begin(SNAPSHOT)
    foreign = stranger.turn(TURNS[0])
    cut = CONTENT[: ENDS[0]]
    assert read(cut + foreign) == (Replay(1, 1, len(foreign)), SNAPSHOT)


@pytest.mark.parametrize(("first", "then"), [(0, 0), (0, 2)])
def test_records_follow_each_other(first: int, then: int) -> None:
    """A repeated record, or a record without its predecessor, is damage even at the
    end.
    """
    turns = [CONTENT[start:stop] for start, stop in itertools.pairwise(ENDS)]
    with pytest.raises(DataLossError, match=rf"record {then + 2} stands where record 3 should"):
        read(CONTENT[: ENDS[0]] + turns[first] + turns[then])


def test_updates_that_make_no_sense_are_damage() -> None:
    """An update that is invalid or cannot be applied is an error at its offset."""
    encoder = JournalEncoder(SALT)
    content = encoder.begin([]) + encoder.turn(["nonsense"])  # type: ignore[list-item]
    with pytest.raises(DataLossError, match="make no sense here"):
        read(content)

    def refuse(update: u.AnyUpdate) -> None:
        raise KeyError(4000)

    with pytest.raises(DataLossError, match="KeyError: 4000"):
        read_journal(CONTENT, "journal", refuse)


def test_a_later_schema_is_refused() -> None:
    """A later version's journal is left unchanged, and the error has the remedy."""
    with pytest.raises(
        FailedPreconditionError,
        match="later version of zmqdata: it has schema 6, and this version supports up to 1",
    ):
        read(CONTENT, schema=1)


def test_an_earlier_schema_is_migrated() -> None:
    """Every update of an older file passes the migrations to the current schema."""

    def rename(update: dict[str, Any]) -> dict[str, Any]:
        old = update.get("iteration")
        return update if old is None else {**update, "iteration": old + 1}

    def again(update: dict[str, Any]) -> dict[str, Any]:
        old = update.get("iteration")
        return update if old is None else {**update, "iteration": old * 2}

    found = read(CONTENT, schema=8, migrations={6: rename, 7: again})[1]
    assert found == [
        u.CloseTaskListUpdate(4002) if isinstance(one, u.CloseTaskListUpdate) else one
        for one in up_to(3)
    ]


def test_an_earlier_schema_without_a_migration_is_refused() -> None:
    """A journal that cannot be migrated is refused, with both schemas and a remedy."""
    with pytest.raises(
        FailedPreconditionError,
        match="earlier build of zmqdata: it has schema 6, and this version reads schema 8",
    ):
        read(CONTENT, schema=8, migrations={7: dict})


def test_what_a_fact_said_once_and_says_no_more_is_passed_over() -> None:
    """A journal with the ledgers' former number of dropped splits needs no
    migration.
    """
    former = {
        "type": "RestoreLedgerUpdate",
        "task": 4,
        "source": 0,
        "splits": [],
        "cuts": 1,
        "base": 3,
        "before": 7,
    }
    fact = msgspec.convert(former, u.RestoreLedgerUpdate)
    assert read(JournalEncoder(SALT).begin([fact]))[1] == [u.RestoreLedgerUpdate(4, 0, (), 1, 3)]


def test_a_header_that_makes_no_sense_is_damage() -> None:
    """A valid record that is not a header cannot start a journal."""
    payload = msgspec.msgpack.encode({"schema": "one"})
    numbered = bytes(8) + payload
    checksum = zlib.crc32(numbered, zlib.crc32(len(payload).to_bytes(4, "little"), 0))
    with pytest.raises(DataLossError, match="header cannot be decoded"):
        read(MARK + struct.pack("<II", len(payload), checksum) + numbered)
