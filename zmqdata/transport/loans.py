"""Memory on loan: bytes that somebody has for as long as any view of them lives, and
that are given back then.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Loan:
    """What all views of the bytes keep alive: arrays have it as their base, as numpy
    looks no further than to it.
    """

    __slots__ = ("__array_interface__", "_give_back", "_process")

    def __init__(self, address: int, nbytes: int, give_back: Callable[[], None]) -> None:
        self.__array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }
        self._give_back = give_back
        self._process = os.getpid()

    def __del__(self) -> None:
        # Not in a forked child, which has copies of its parent's views: the parent may
        # go on with them.
        if os.getpid() == self._process:
            self._give_back()


def lend(address: int, nbytes: int, give_back: Callable[[], None]) -> Bytes:
    """Bytes at an address, writable. When the last view of them dies, in any thread,
    they are given back.

    Args:
        address: where they lie.
        nbytes: how many there are.
        give_back: called then, unless in a forked child. It keeps alive what the bytes
            are part of.

    >>> room = np.zeros(8, np.uint8)
    >>> lent = lend(room.__array_interface__["data"][0], 8, lambda: print("back"))
    >>> view = lent[2:4]
    >>> del lent
    >>> del view
    back
    """
    return np.asarray(Loan(address, nbytes, give_back))


def address_of(array: Bytes) -> int:
    """Where the first byte of an array lies."""
    address: int = array.__array_interface__["data"][0]
    return address


KEPT_BYTES = 64 << 20
POOL_FROM = 64 * 1024
"""Smaller buffers are warm anyway: they come from memory that the interpreter keeps."""
ALIGNMENT = 64


class Pool:
    """Buffers that are used again, since to touch fresh memory for the first time costs
    more than to copy into it.

    Args:
        kept: bytes that wait for their next use, at most. Those whose sizes were used
            longest ago make way for others.

    >>> pool = Pool()
    >>> first = pool.take(100_000)
    >>> address = address_of(first)
    >>> del first
    >>> address_of(pool.take(100_001)) == address
    True
    """

    def __init__(self, kept: int = KEPT_BYTES) -> None:
        self._most = kept
        self._lock = threading.Lock()
        self._free: dict[int, list[Bytes]] = {}
        self.kept = 0

    def take(self, nbytes: int) -> Bytes:
        """Writable bytes, aligned to 64, that come back when their last view dies.

        Raises:
            MemoryError: there is no memory.
        """
        size = _rounded(max(nbytes, 1) + ALIGNMENT)
        buffer = self._reuse(size) if size >= POOL_FROM else None
        if buffer is None:
            buffer = np.empty(size, np.uint8)
        address = address_of(buffer)
        start = -address % ALIGNMENT
        if size < POOL_FROM:
            return buffer[start : start + nbytes]
        kept = buffer
        return lend(address + start, nbytes, lambda: self._put(kept))

    def _reuse(self, size: int) -> Bytes | None:
        with self._lock:
            buffers = self._free.pop(size, None)
            if buffers is None:
                return None
            buffer = buffers.pop()
            if buffers:
                self._free[size] = buffers
            self.kept -= size
            return buffer

    def _put(self, buffer: Bytes) -> None:
        size = buffer.size
        # Somebody may be at it, even this thread, where the garbage collector has
        # called. One buffer is no great loss.
        if size > self._most or not self._lock.acquire(blocking=False):
            return
        try:
            buffers = self._free.pop(size, [])
            while self.kept + size > self._most:
                self._drop_oldest(buffers)
            self._free[size] = buffers
            buffers.append(buffer)
            self.kept += size
        finally:
            self._lock.release()

    def _drop_oldest(self, buffers: list[Bytes]) -> None:
        for other in self._free:
            self.kept -= other * len(self._free.pop(other))
            return
        self.kept -= buffers.pop().size


def _rounded(size: int) -> int:
    """The size of the buffer for so many bytes: a fourth too large at most, so that
    similar sizes share theirs.
    """
    step = 1 << max(size.bit_length() - 3, 6)
    return -(-size // step) * step
