"""Buffers on loan: bytes that return to their owner when their last view dies."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Bytes: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"


class Loan:
    """The base object of all views of a loan, which keeps the loan alive. numpy sets it
    as the base of each view.
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

    def __del__(
        self,
        ends: Callable[[], bool] = sys.is_finalizing,
        process: Callable[[], int] = os.getpid,
    ) -> None:
        # As defaults, since modules lose their names while the interpreter ends. Owners
        # have lost theirs, too. A forked child has copies of its parent's views, which
        # the parent may still use.
        if not ends() and process() == self._process:
            self._give_back()


def lend(address: int, nbytes: int, give_back: Callable[[], None]) -> Bytes:
    """Lend the bytes at an address, as a writable array. They are given back when their
    last view dies, in any thread.

    Args:
        address: address of the first byte.
        nbytes: number of bytes.
        give_back: called at the end of the loan, except in a forked child. It must keep
            alive the memory that contains the bytes.

    >>> room = np.zeros(8, np.uint8)
    >>> lent = lend(room.__array_interface__["data"][0], 8, lambda: print("back"))
    >>> view = lent[2:4]
    >>> del lent
    >>> del view
    back
    """
    return np.asarray(Loan(address, nbytes, give_back))


def address_of(array: Bytes) -> int:
    """Return the address of the first byte of an array."""
    address: int = array.__array_interface__["data"][0]
    return address


KEPT_BYTES = 64 << 20
POOL_FROM = 64 * 1024
"""Smaller buffers are not pooled: they come from memory that the interpreter recycles
anyway.
"""
ALIGNMENT = 64


class Pool:
    """A pool of buffers, since touching fresh memory for the first time costs more than
    copying into it.

    Args:
        kept: limit of the bytes that wait for their next use. The sizes used least
            recently are dropped first.

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
        """Return writable bytes, aligned to 64, that return to the pool when their last
        view dies.

        Raises:
            MemoryError: no memory is left.
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
        # The lock may be held, even by this thread if the garbage collector called.
        # Then dropping the buffer is cheaper than waiting, and cannot deadlock.
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
    """Return the size of the buffer for a request: up to a fourth larger, so that
    similar sizes share buffers.
    """
    step = 1 << max(size.bit_length() - 3, 6)
    return -(-size // step) * step
