"""CRC-32C (Castagnoli) of bytes, and the masked form that record files store. Nothing
else belongs here.

Short values use a table of 256 entries, long ones use numpy. The checksum is linear, so
rows of 512 bytes are looked up independently and joined pairwise. If ``google_crc32c``
or ``crc32c`` is installed, it is used instead.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78
_ROW = 512
_SHORT = 64  # bytes up to which a loop is faster than numpy
_FEW = 32  # rows up to which a loop joins them faster than numpy
_ROWS_AT_ONCE = 128  # so that the looked-up part stays in the processor's cache

Bytes = bytes | bytearray | memoryview
Words = np.ndarray[Any, np.dtype[np.uint32]]


def _make_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _make_table()


def _crc_by_bytes(content: Bytes) -> int:
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in content:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@cache
def _row_table() -> Words:
    """Return the table of contributions to a row's checksum.

    Byte ``value`` at ``position`` of a row has its contribution at
    ``position * 256 + value``.
    """
    table = np.array(_TABLE, np.uint32)
    rows = np.empty((_ROW, 256), np.uint32)
    rows[-1] = table
    for position in range(_ROW - 2, -1, -1):
        rows[position] = table[rows[position + 1] & 0xFF] ^ rows[position + 1] >> 8
    return rows.ravel()


@cache
def _row_offsets() -> np.ndarray[Any, np.dtype[np.intp]]:
    return np.arange(0, _ROW * 256, 256, dtype=np.intp)


@cache
def _shift_table(doublings: int) -> Words:
    """Return the table that appends ``_ROW << doublings`` zeros, for each of the four
    bytes of a checksum.
    """
    if doublings == 0:
        table = np.array(_TABLE, np.uint32)
        shifted = (
            np.arange(256, dtype=np.uint32)[None, :] << np.array([0, 8, 16, 24], np.uint32)[:, None]
        )
        for _ in range(_ROW):
            shifted = table[shifted & 0xFF] ^ shifted >> 8
        return shifted
    half = _shift_table(doublings - 1)
    return _shifted(half, doublings - 1)


def _shifted(crcs: Words, doublings: int) -> Words:
    table = _shift_table(doublings)
    found: Words = table[0][crcs & 0xFF]
    for place in (1, 2, 3):
        found = found ^ table[place][crcs >> 8 * place & 0xFF]
    return found


@cache
def _shift_lists() -> list[list[int]]:
    shifts: list[list[int]] = _shift_table(0).tolist()
    return shifts


def _crc_by_rows(content: Bytes) -> int:
    """Compute the checksum with numpy, in rows of ``_ROW`` bytes.

    Leading zeros change nothing if the register starts at zero. Inverting the first 4
    bytes makes it start there.
    """
    count = -(-len(content) // _ROW)
    padded = np.zeros(count * _ROW, np.uint8)
    front = len(padded) - len(content)
    padded[front:] = np.frombuffer(content, np.uint8)
    padded[front : front + 4] ^= 0xFF
    rows = padded.reshape(count, _ROW)
    table, offsets = _row_table(), _row_offsets()
    crcs = np.empty(count, np.uint32)
    for first in range(0, count, _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        np.bitwise_xor.reduce(table.take(rows[part] + offsets), axis=1, out=crcs[part])
    return _joined(crcs) ^ 0xFFFFFFFF


def _joined(crcs: Words) -> int:
    """Return the checksum of consecutive rows from their independent checksums."""
    if len(crcs) <= _FEW:
        crc, (first, second, third, fourth) = 0, _shift_lists()
        for row in crcs.tolist():
            crc = (
                first[crc & 0xFF]
                ^ second[crc >> 8 & 0xFF]
                ^ third[crc >> 16 & 0xFF]
                ^ fourth[crc >> 24]
                ^ row
            )
        return crc
    doublings = 0
    while len(crcs) > 1:
        if len(crcs) % 2:
            crcs = np.concatenate([np.zeros(1, np.uint32), crcs])
        crcs = _shifted(crcs[0::2], doublings) ^ crcs[1::2]
        doublings += 1
    return int(crcs[0])


def _crc_by_numpy(content: Bytes) -> int:
    return _crc_by_bytes(content) if len(content) <= _SHORT else _crc_by_rows(content)


def _fastest() -> Callable[[Bytes], int]:
    for module, name in (("google_crc32c", "value"), ("crc32c", "crc32c")):
        try:
            found: Callable[[Bytes], int] = getattr(importlib.import_module(module), name)
            return found
        except (ImportError, AttributeError):
            continue
    return _crc_by_numpy


_crc = _fastest()


def crc32c(content: Bytes) -> int:
    """Return the CRC-32C of bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return _crc(content)


def masked_crc32c(content: Bytes) -> int:
    """Return the masked CRC-32C, as record files store it. Masking keeps the checksum
    strong for bytes that contain checksums.

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc = _crc(content)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
