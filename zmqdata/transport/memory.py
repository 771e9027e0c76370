"""Memory that a worker shares with one client of its host. The worker makes it and
writes, the client maps and reads.

It is a memfd: it has no name, and the kernel frees it when the last of both is gone,
however they died. The client opens it by the worker's descriptor under ``/proc``, which
only the same user can. Its size is sealed, so that no access to it can fail. It begins
with a token and a table of turns; slots lie behind.

A slot belongs to the client from the message that names it until the client writes the
slot's turn into the table. The processor must show the client's reads before that write
to the worker in this order, as x86 does by itself and others through the locks that
Python takes in between.
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
from typing import Any

import numpy as np

from zmqdata.blocks.gathered import is_joined, pieces_of
from zmqdata.config.worker import MOST_SHARED_MEMORY
from zmqdata.errors import ProtocolError
from zmqdata.messages import Memory, Slot
from zmqdata.transport.loans import Bytes, address_of, lend
from zmqdata.transport.slots import MOST_SLOTS, PAGE, Slots

log = logging.getLogger(__name__)

NAME = "zmqdata-link"
TOKEN_BYTES = 16
TABLE_START = 64
HEAD_BYTES = TABLE_START + 8 * MOST_SLOTS + -(TABLE_START + 8 * MOST_SLOTS) % (64 << 10)
"""Bytes before the first slot: a multiple of every page size there is."""
ALIGNMENT = 64
PLACE_FROM = 32 * 1024
"""Smaller frames travel in the message, and small values that were joined: their client
copies them apart again, and to copy them here would keep the interpreter from the
pipeline for as long.
"""
LET_GO_FROM = 512 * 1024
"""Copies of so many bytes let others have the interpreter meanwhile, which costs
waiting for it afterwards.
"""
MOST_MEMORY = HEAD_BYTES + MOST_SHARED_MEMORY
IS_AVAILABLE = sys.platform == "linux"


def aligned(size: int) -> int:
    """The next multiple of 64.

    >>> aligned(65)
    128
    """
    return size + -size % ALIGNMENT


def _table_of(memory: mmap.mmap) -> memoryview:
    """The turn in which each slot was given back last."""
    return memoryview(memory)[TABLE_START : TABLE_START + 8 * MOST_SLOTS].cast("Q")


class SharedMemory:
    """The worker's end.

    Args:
        size: bytes for slots, a page or more. They are taken from the system as they
            are needed, the lowest first.

    Raises:
        OSError: this system has no such memory, or none is left.
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
        """What it takes of the machine's memory."""
        return HEAD_BYTES + self._backed

    def place(self, frames: Sequence[Any]) -> Slot | None:
        """Copies the large ones of these frames into a slot; None where there is none,
        or nothing large.
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
        """Takes slots back from which the client has read all."""
        table = self._table
        for number in [
            number for number, slot in self._slots.taken.items() if table[number] == slot.turn
        ]:
            self._slots.free(number)

    def _back(self, number: int, stop: int) -> bool:
        """Has the system provide the bytes up to ``stop``: to run out of them while
        writing would be deadly.
        """
        if stop <= self._backed:
            return True
        try:
            os.posix_fallocate(self._descriptor, HEAD_BYTES + self._backed, stop - self._backed)
        except OSError as error:
            log.warning(
                "there is no more shared memory for a client of this host than %.1f MB (%s); what "
                "does not fit goes "
                "through a socket, which is slower", self._backed / 1e6, error.strerror,
            )  # fmt: skip
            self._slots.free(number)
            self._slots.end_at(self._backed)
            return False
        self._backed = stop
        return True

    def close(self) -> None:
        """Forgets it; what the client has of it goes on to live there."""
        os.close(self._descriptor)
        del self._table, self._bytes, self._view


# --- the client's end

_forking = threading.RLock()
_mapped: weakref.WeakSet[MappedMemory] = weakref.WeakSet()
_put_off: list[Callable[[], None]] | None = None
"""What is to be given back once the process has forked; None: it does not fork. The
garbage collector may find loans that nobody uses any more in the thread that forks,
which has the lock.
"""


class MappedMemory:
    """The client's end.

    Args:
        told: what the worker says of it.

    Raises:
        OSError: it cannot be opened from here.
        ProtocolError: it is not what the worker says.
    """

    def __init__(self, told: Memory) -> None:
        path = f"/proc/{told.process}/fd/{told.descriptor}"
        if not os.readlink(path).startswith(f"/memfd:{NAME}"):
            raise ProtocolError(
                f"{path} is no shared memory of a worker: it belongs to something else"
            )
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor).atexit = False
        _check_file(self._descriptor, told)
        memory = mmap.mmap(self._descriptor, told.size)
        if memory[:TOKEN_BYTES] != told.token:
            raise ProtocolError(f"{path} is the shared memory of another link")
        self._size = told.size - HEAD_BYTES
        self._table = _table_of(memory)
        # Whoever has bytes of it on loan keeps this object, and it the mapping.
        self._start = address_of(np.frombuffer(memory, np.uint8)) + HEAD_BYTES
        self._held: dict[tuple[int, int], tuple[int, int]] = {}
        self._moved: set[tuple[int, int]] = set()
        with _forking:
            _mapped.add(self)

    def take(self, slot: Slot) -> Bytes:
        """The bytes of a slot, writable, for as long as a view of them lives; then the
        slot is given back.

        Raises:
            ProtocolError: there is no such slot.
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
            if key in self._moved:
                self._moved.discard(key)
                if not _map_file(self._start + start, size, self._descriptor, HEAD_BYTES + start):
                    return  # nobody will ever write there again, which is all that is lost
        self._table[number] = turn

    def part(self) -> None:
        """Moves what is on loan into memory of this process, at the same addresses,
        since the process forks.

        Parent and child would else see each other's changes, and the child what the
        worker writes once the parent has given a slot back.
        """
        for key, (start, size) in [*self._held.items()]:
            if key not in self._moved and _move_to_private(self._start + start, size):
                self._moved.add(key)


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
            f"the shared memory of a worker has {found.st_size} bytes, {told.size} were told"
        )


# --- forks

_FAILED = ctypes.c_void_p(-1).value
_REMAP_MAYMOVE, _REMAP_FIXED, _MAP_FIXED = 1, 2, 0x10


def _system() -> Any:
    calls = ctypes.CDLL(None, use_errno=True)
    calls.mmap.restype = calls.mremap.restype = ctypes.c_void_p
    word, size, flag = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    calls.mmap.argtypes = (word, size, flag, flag, flag, ctypes.c_long)
    calls.mremap.argtypes = (word, size, size, flag, word)
    return calls


_READ_WRITE = mmap.PROT_READ | mmap.PROT_WRITE if IS_AVAILABLE else 0


def _move_to_private(address: int, size: int) -> bool:
    """Puts a private copy of some pages in their place, in one step for everybody who
    reads them meanwhile.
    """
    calls = _system()
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    copy = calls.mmap(None, size, _READ_WRITE, flags, -1, 0)
    if copy == _FAILED:
        log.warning(
            "there is no memory to copy %d bytes that this process shares with its forked child",
            size,
        )
        return False
    ctypes.memmove(copy, address, size)
    moved: int = calls.mremap(copy, size, size, _REMAP_MAYMOVE | _REMAP_FIXED, address)
    return moved == address


def _map_file(address: int, size: int, descriptor: int, offset: int) -> bool:
    """Puts the pages of a file there again."""
    found: int = _system().mmap(
        address, size, _READ_WRITE, mmap.MAP_SHARED | _MAP_FIXED, descriptor, offset
    )
    return found == address


def _before_fork() -> None:
    global _put_off
    _forking.acquire()  # nothing is lent or given back until the child is there
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
