"""Tests of ``zmqdata.storage.checksums``."""

from __future__ import annotations

import types

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zmqdata.storage import checksums
from zmqdata.storage.checksums import crc32c, masked_crc32c


@pytest.fixture(autouse=True)
def _new_tables() -> None:
    for table in (
        checksums._row_table,
        checksums._row_offsets,
        checksums._shift_table,
        checksums._shift_lists,
    ):
        table.cache_clear()


@pytest.mark.parametrize(
    ("content", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_known_values(content: bytes, crc: int) -> None:
    """The checksums match RFC 3720, and masking rotates and adds."""
    assert crc32c(content) == crc
    assert masked_crc32c(content) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) % 2**32


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.integers(0, 3000))
def test_both_ways_agree(tail: bytes, zeros: int) -> None:
    """Joining rows with numpy gives the result of the byte loop at any length."""
    content = bytes(range(1, 9)) + bytes(zeros) + tail
    assert checksums._crc_by_rows(content) == checksums._crc_by_bytes(content)


def test_long_content() -> None:
    """An odd number of rows and several groups are joined correctly. Memoryviews and
    bytes give the same checksum.
    """
    content = np.random.PCG64(1).random_raw(21_000).tobytes() + b"rest"
    assert checksums._crc_by_numpy(memoryview(content)) == checksums._crc_by_bytes(content)


def test_a_library_is_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed library computes the checksums, and numpy does without it."""

    def found(name: str) -> object:
        if name == "google_crc32c":
            raise ImportError(name)
        return types.SimpleNamespace(crc32c=len)

    monkeypatch.setattr(checksums, "importlib", types.SimpleNamespace(import_module=found))
    assert checksums._fastest() is len
    empty = types.SimpleNamespace(import_module=lambda name: types.SimpleNamespace())
    monkeypatch.setattr(checksums, "importlib", empty)
    assert checksums._fastest() is checksums._crc_by_numpy
