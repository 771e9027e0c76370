"""Memory that a worker shares with a client of the same host. The worker creates it and
writes; the client maps it and reads.

The memory is a memfd: it has no name, and the kernel frees it when neither process uses
it, however they died. The client opens it through the worker's descriptor under
``/proc``, which only the same user can. Its size is sealed, so accesses cannot fail. It
begins with a token and a table of turns, followed by the slots.

A slot belongs to the client from the message that names it until the client writes the
slot's turn into the table. The worker must see the client's reads before that write.
x86 guarantees this order; on other processors the locks that Python takes in between
do.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import mmap
import os
import secrets
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from zmqdata.blocks.gathered import is_joined, pieces_of
from zmqdata.config.worker import MOST_SHARED_MEMORY
from zmqdata.errors import ProtocolError
from zmqdata.messages import Memory, Slot
from zmqdata.printable import shown_size
from zmqdata.transport.loans import Bytes, lend
from zmqdata.transport.slots import MOST_SLOTS, PAGE, Slots

log = logging.getLogger(__name__)

NAME = "zmqdata-link"
TOKEN_BYTES = 16
TABLE_START = 64
HEAD_BYTES = TABLE_START + 8 * MOST_SLOTS + -(TABLE_START + 8 * MOST_SLOTS) % (64 << 10)
"""Bytes before the first slot: a multiple of every page size in use."""
ALIGNMENT = 64
PLACE_FROM = 32 * 1024
"""Smaller frames travel in the message. So do joined small values: their client copies
them apart again, and copying them here would keep the interpreter from the pipeline as
long.
"""
LET_GO_FROM = 512 * 1024
"""Copies from this size on release the interpreter, which costs waiting for it
afterwards.
"""
MOST_MEMORY = HEAD_BYTES + MOST_SHARED_MEMORY
IS_AVAILABLE = sys.platform == "linux"


def aligned(size: int) -> int:
    """Return ``size`` rounded up to a multiple of 64.

    >>> aligned(65)
    128
    """
    return size + -size % ALIGNMENT


def _table_of(memory: mmap.mmap) -> memoryview:
    """Return the table that holds the turn in which each slot was given back last."""
    return memoryview(memory)[TABLE_START : TABLE_START + 8 * MOST_SLOTS].cast("Q")


class SharedMemory:
    """The worker's end of a shared memory.

    Args:
        size: bytes for slots, at least a page. The system provides them as needed, the
            lowest first.

    Raises:
        OSError: this system has no memfd, or no memory is left.
    """

    def __init__(self, size: int) -> None:
        if not IS_AVAILABLE:
            raise OSError("this system has no memfd")
        self._descriptor = os.memfd_create(NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            whole = HEAD_BYTES + size - size % PAGE
            os.ftruncate(self._descriptor, whole)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, seals)
            os.posix_fallocate(self._descriptor, 0, HEAD_BYTES)
            memory = mmap.mmap(self._descriptor, whole)
        except BaseException:
            os.close(self._descriptor)
            raise
        token = secrets.token_bytes(TOKEN_BYTES)
        memory[:TOKEN_BYTES] = token
        self._table = _table_of(memory)
        self._view = memoryview(memory)[HEAD_BYTES:]
        self._bytes: Bytes = np.frombuffer(self._view, np.uint8)
        self._slots = Slots(size)
        self._backed = 0
        self.told = Memory(
            os.getpid(), self._descriptor, os.fstat(self._descriptor).st_ino, whole, token
        )
        self.full = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the machine's memory that are in use."""
        return HEAD_BYTES + self._backed

    def place(self, frames: Sequence[Any]) -> Slot | None:
        """Copy the large frames into a slot; return None if no frame is large, or no
        slot is free.
        """
        sizes = tuple(
            [len(one) if len(one) >= PLACE_FROM and not is_joined(one) else -1 for one in frames]
        )
        needed = sum([aligned(size) for size in sizes if size > 0])
        if not needed:
            return None
        self._collect()
        taken = self._slots.take(needed)
        if taken is None or not self._back(taken.number, taken.stop):
            self.full += 1
            return None
        place = taken.start
        for frame, size in zip(frames, sizes, strict=True):
            if size < 0:
                continue
            at = place
            for piece in pieces_of(frame):
                stop = at + piece.nbytes
                if piece.nbytes < LET_GO_FROM:
                    self._view[at:stop] = piece
                else:
                    np.copyto(self._bytes[at:stop], np.frombuffer(piece, np.uint8))
                at = stop
            place += aligned(size)
        return Slot(taken.number, taken.turn, taken.start, sizes)

    def _collect(self) -> None:
        """Free the slots that the client has given back."""
        table = self._table
        for number in [
            number for number, slot in self._slots.taken.items() if table[number] == slot.turn
        ]:
            self._slots.free(number)

    def _back(self, number: int, stop: int) -> bool:
        """Make the system provide the bytes up to ``stop``, since running out of memory
        during a write kills the process.
        """
        if stop <= self._backed:
            return True
        try:
            os.posix_fallocate(self._descriptor, HEAD_BYTES + self._backed, stop - self._backed)
        except OSError as error:
            log.warning(
                "shared memory for a client of this host ends at %s (%s); blocks that do not "
                "fit travel through a socket, which is slower",
                shown_size(self._backed),
                error.strerror,
            )
            self._slots.free(number)
            self._slots.end_at(self._backed)
            return False
        self._backed = stop
        return True

    def close(self) -> None:
        """Close the worker's end; the client keeps what it has mapped."""
        os.close(self._descriptor)
        del self._table, self._bytes, self._view


# --- the client's end

_forking = threading.RLock()
_mapped: weakref.WeakSet[MappedMemory] = weakref.WeakSet()
_put_off: list[Callable[[], None]] | None = None
"""Slots to give back after the fork in progress; None if no fork is in progress. The
garbage collector may end loans in the forking thread, which holds the lock.
"""


class MappedMemory:
    """The client's end of a shared memory.

    Args:
        told: the worker's description of it.

    Raises:
        OSError: this process cannot open it.
        ProtocolError: it does not match the description.
    """

    def __init__(self, told: Memory) -> None:
        path = f"/proc/{told.process}/fd/{told.descriptor}"
        if not os.readlink(path).startswith(f"/memfd:{NAME}"):
            raise ProtocolError(
                f"{path} is not the shared memory of a worker: it belongs to something else"
            )
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            _check_file(descriptor, told)
            # A mapping of the module ``mmap`` would keep a descriptor of its own.
            start = _map(told.size, mmap.MAP_SHARED, descriptor)
        finally:
            os.close(descriptor)
        # Each loan keeps this object alive, and this object keeps the mapping.
        weakref.finalize(self, _unmap, start, told.size).atexit = False
        if ctypes.string_at(start, TOKEN_BYTES) != told.token:
            raise ProtocolError(f"{path} is the shared memory of another link")
        self._size = told.size - HEAD_BYTES
        self._table = (ctypes.c_uint64 * MOST_SLOTS).from_address(start + TABLE_START)
        self._start = start + HEAD_BYTES
        self._held: dict[tuple[int, int], tuple[int, int]] = {}
        self._moved: dict[tuple[int, int], int] = {}
        with _forking:
            _mapped.add(self)

    def take(self, slot: Slot) -> Bytes:
        """Lend the bytes of a slot, writable. The slot is given back when their last
        view dies.

        Raises:
            ProtocolError: the slot does not lie within the memory, or is lent already.
        """
        size = sum([aligned(size) for size in slot.sizes if size > 0])
        fits = (
            slot.start >= 0
            and slot.start % PAGE == 0
            and size > 0
            and slot.start + size <= self._size
        )
        if not fits or not 0 <= slot.number < MOST_SLOTS or not 0 < slot.turn < 2**64:
            raise ProtocolError(
                f"a slot of {size} bytes at {slot.start} is not within {self._size} bytes of memory"
            )
        key = (slot.number, slot.turn)
        with _forking:
            if key in self._held:
                raise ProtocolError(f"slot {slot.number} was sent twice in turn {slot.turn}")
            self._held[key] = (slot.start, size + -size % PAGE)
        return lend(self._start + slot.start, size, lambda: self._give_back(key))

    def _give_back(self, key: tuple[int, int]) -> None:
        number, turn = key
        with _forking:
            if _put_off is not None:
                _put_off.append(lambda: self._give_back(key))
                return
            start, size = self._held.pop(key)
            shared = self._moved.pop(key, None)
            if shared is not None and not _move(shared, size, self._start + start):
                return  # the slot stays in use for good; nothing else is lost
        self._table[number] = turn

    def part(self) -> None:
        """Move the lent slots into private memory of this process, at the same
        addresses, before it forks.

        Otherwise parent and child would see each other's changes, and the child would
        see what the worker writes after the parent has given a slot back.
        """
        for key, (start, size) in [*self._held.items()]:
            if key not in self._moved:
                shared = _move_to_private(self._start + start, size)
                if shared is not None:
                    self._moved[key] = shared


def _check_file(descriptor: int, told: Memory) -> None:
    found = os.fstat(descriptor)
    seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    if found.st_uid != os.geteuid() or found.st_ino != told.inode:
        raise ProtocolError("the shared memory that a worker names is not its own")
    if not seals & fcntl.F_SEAL_SHRINK or seals & fcntl.F_SEAL_WRITE:
        raise ProtocolError(
            f"the shared memory of a worker has the seals {seals}: it could vanish while it is read"
        )
    if found.st_size != told.size or not HEAD_BYTES < told.size <= MOST_MEMORY:
        raise ProtocolError(
            f"the shared memory of a worker has {found.st_size} bytes, but {told.size} were "
            "announced"
        )


# --- mappings

_FAILED = ctypes.c_void_p(-1).value
_REMAP_MAYMOVE, _REMAP_FIXED = 1, 2


@cache
def _system() -> Any:
    calls = ctypes.CDLL(None, use_errno=True)
    calls.mmap.restype = calls.mremap.restype = ctypes.c_void_p
    word, size, flag = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    calls.mmap.argtypes = (word, size, flag, flag, flag, ctypes.c_long)
    calls.mremap.argtypes = (word, size, size, flag, word)
    calls.munmap.argtypes = (word, size)
    return calls


_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE if IS_AVAILABLE else 0


def _map(size: int, flags: int, descriptor: int) -> int:
    """Map memory anywhere, and return its address."""
    address: int = _system().mmap(None, size, _READ_WRITE, flags, descriptor, 0)
    if address == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return address


def _unmap(address: int, size: int) -> None:
    _system().munmap(address, size)


def _move(address: int, size: int, to: int) -> bool:
    """Move a mapping to another address, in place of the mapping there, atomically for
    all threads that read it.
    """
    moved: int = _system().mremap(address, size, size, _REMAP_MAYMOVE | _REMAP_FIXED, to)
    return moved == to


def _move_to_private(address: int, size: int) -> int | None:
    """Replace some shared pages by a private copy, atomically for all threads that read
    them.

    Returns:
        The address of another mapping of the shared pages; None if no memory is left.
    """
    # Without an old size it maps the same pages a second time.
    shared: int = _system().mremap(address, 0, size, _REMAP_MAYMOVE, None)
    if shared != _FAILED:
        try:
            copy = _map(size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1)
        except OSError:
            _unmap(shared, size)
        else:
            ctypes.memmove(copy, address, size)
            if _move(copy, size, address):
                return shared
            for one in (copy, shared):
                _unmap(one, size)
    log.warning(
        "no memory is left to copy %d bytes that this process shares with its forked child",
        size,
    )
    return None


# --- forks


def _before_fork() -> None:
    global _put_off
    _forking.acquire()  # no slot is lent or given back until the child exists
    _put_off = []
    for memory in [*_mapped]:
        memory.part()


def _in_parent() -> None:
    global _put_off
    late, _put_off = _put_off or [], None
    try:
        for give_back in late:
            give_back()
    finally:
        _forking.release()


def _in_child() -> None:
    global _forking, _put_off
    _forking, _put_off = threading.RLock(), None
    _mapped.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
