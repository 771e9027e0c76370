"""Arrays over memory-mapped files, which travel as the path of their file.

A pipeline carries the path and a digest of samples of the file. The client checks that
the file still holds what the array shows, and a worker that its file of that path is
the same. A worker without such a file gets the content from the client. An array that
differs from its file, as one mapped copy-on-write may, is an ordinary array.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import platform
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from zmqdata.errors import FailedPreconditionError
from zmqdata.filenames import legible, native, portable
from zmqdata.peeking import is_a

log = logging.getLogger(__name__)

MUCH = 100 << 20
"""Size in bytes from which the user is told that an array is sent."""
LARGE = 1 << 20
"""Size in bytes from which buffers are kept outside the stream, and maps travel by
their path.
"""
READ_AT_A_TIME = 4 << 20
"""Size in bytes of the pieces in which a range is read."""
_SAMPLES = 32
_SAMPLE_BYTES = 4096


class FilePart(NamedTuple):
    """A range of a file that an array shows."""

    path: str
    """Absolute path of the file, in the portable form."""
    start: int
    """Number of the first byte of the range."""
    nbytes: int
    """Length of the range in bytes."""
    digest: str
    """SHA-256 of samples of the range."""

    @property
    def name(self) -> str:
        """Name of the range in messages: the SHA-256 of all fields. The content of a
        range is too large for a digest of its own, unless a worker lacks it.
        """
        return hashlib.sha256(repr(tuple(self)).encode()).hexdigest()

    def fault(self) -> str:
        """Return the error of a pipeline that maps the file here; "" if it is the
        same.
        """
        found = digest_of_file(native(self.path), self.start, self.nbytes)
        if found == self.digest:
            return ""
        absent = "does not exist here, is shorter or cannot be read"
        differs = absent if found is None else "has other content here"
        return (
            f"the pipeline maps bytes {self.start} to {self.start + self.nbytes} of the file "
            f"{legible(self.path)}, which {differs} ({platform.node()}). A memory map travels as "
            "the path of its file. Put the file where all workers find it under this path, or send "
            "its content: pass np.array(the memory map), which the client copies into memory"
        )

    def read(self, begin: int, end: int) -> bytes:
        """Return these bytes of the range.

        Raises:
            OSError: the file cannot be read.
            EOFError: the file is shorter.
        """
        with open(native(self.path), "rb", buffering=0) as file:
            file.seek(self.start + begin)
            content = file.read(end - begin) or b""
        if len(content) != end - begin:
            raise EOFError(f"{legible(self.path)} is shorter than it was")
        return content

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes of the range in order. Raises as ``read``."""
        for begin in range(0, self.nbytes, READ_AT_A_TIME):
            yield self.read(begin, min(self.nbytes, begin + READ_AT_A_TIME))


def file_part(array: np.ndarray[Any, Any]) -> FilePart | None:
    """Return the range of a file that an array shows: an ``np.memmap``, or any view of
    one. None for other arrays, for small ones, and for arrays that may differ from
    what the file holds.
    """
    if array.nbytes < LARGE or array.dtype.hasobject:
        return None
    root = array
    while is_a(root.base, np.ndarray):
        root = root.base
    if not is_a(root, np.memmap) or root.filename is None or root.mode == "c":
        return None
    if root.mode != "r":
        root.flush()
    low, high = _bounds(array)
    path = os.path.abspath(root.filename)
    start = int(root.offset) + low - _address(root)
    file: Any = root.base
    whole = np.frombuffer(file, np.uint8)
    shown = whole[low - _address(whole) : high - _address(whole)]
    digest = _digest([bytes(shown[begin:end]) for begin, end in _places(high - low)])
    if digest_of_file(path, start, high - low) != digest:
        return None
    return FilePart(portable(path), start, high - low, digest)


class OpenRange(NamedTuple):
    """The buffer of a range of a file, for the unpickler."""

    part: FilePart
    """The range."""
    content: memoryview | bytearray | None
    """The content from the client; None if it is in the file here."""


def reduced_map(array: np.ndarray[Any, Any], place: pickle.PickleBuffer) -> tuple[Any, ...]:
    """Return the function and arguments that make an array over a range of a file.

    Args:
        array: the array.
        place: buffer in whose place opening finds the range.
    """
    offset = _address(array) - _bounds(array)[0]
    layout = (array.shape, array.dtype, array.strides, offset)
    return open_map, (place, layout, array.flags.writeable, is_a(array, np.memmap))


def open_map(
    opened: OpenRange,
    layout: tuple[tuple[int, ...], Any, tuple[int, ...], int],
    writable: bool,
    is_memmap: bool,
) -> np.ndarray[Any, Any]:
    """Map a range of a file. What the pipeline writes to the array stays in the
    process. Called while unpickling.

    Raises:
        FailedPreconditionError: there is no such file here, or it differs from that of
            the client.
    """
    shape, dtype, strides, offset = layout
    memory: Any = opened.content
    if memory is None:
        memory = _map_file(opened.part, writable)
    made: Any = np.ndarray.__new__(
        np.memmap if is_memmap else np.ndarray, shape, dtype, memory, offset, strides
    )
    if is_memmap:
        # Without a file, it is an ordinary array for whoever sends it on.
        none = {"filename": None, "offset": 0, "mode": "c", "_mmap": None}
        vars(made).update(vars(memory) if opened.content is None else none)
    made.flags.writeable = writable
    return made  # type: ignore[no-any-return]  # of either class


def _map_file(part: FilePart, writable: bool) -> np.memmap[Any, Any]:
    if fault := part.fault():
        raise FailedPreconditionError(fault)
    path, mode = native(part.path), "c" if writable else "r"
    mapped: Any = np.memmap(path, np.uint8, mode, part.start, (part.nbytes,))  # type: ignore[call-overload]  # mode is one
    return mapped  # type: ignore[no-any-return]  # it is one


def digest_of_file(path: str, start: int, nbytes: int) -> str | None:
    """Return the digest of samples of a range of a file; None if it cannot be read.

    >>> digest_of_file("/nowhere/train.bin", 0, 8) is None
    True
    """
    try:
        with open(path, "rb", buffering=0) as file:
            samples = []
            for begin, end in _places(nbytes):
                file.seek(start + begin)
                samples.append(file.read(end - begin))
                if len(samples[-1]) != end - begin:
                    return None
    except (OSError, ValueError):  # no file has a name with a NUL
        return None
    return _digest(samples)


def _digest(samples: list[bytes]) -> str:
    return hashlib.sha256(b"".join(samples)).hexdigest()


def _places(nbytes: int) -> list[tuple[int, int]]:
    """Return evenly spaced ranges, the first and the last bytes among them."""
    last = max(0, nbytes - _SAMPLE_BYTES)
    begins = sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)})
    return [(begin, min(nbytes, begin + _SAMPLE_BYTES)) for begin in begins]


def _address(array: np.ndarray[Any, Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _bounds(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the addresses of the first byte of an array and after its last byte."""
    steps = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    low = _address(array) + sum(step for step in steps if step < 0)
    high = _address(array) + sum(step for step in steps if step > 0) + array.itemsize
    return low, high


_told: set[tuple[str, int]] = set()
"""Path and address of the arrays that the user was told of."""


def warn_of_size(memory: memoryview, operation: str, path: str) -> None:
    """Warn that a large array is sent: once, and not each time a loader packs its
    dataset for a pass.

    Args:
        memory: memory of the array.
        operation: the operation that holds it.
        path: where it is held.
    """
    place = path, np.frombuffer(memory, np.uint8).ctypes.data
    log.log(
        logging.DEBUG if place in _told else logging.WARNING,
        "%s holds an array of %.0f MB (%s), which is sent to the dispatcher and the "
        "workers. Put it in a file that workers see and hold np.load(path, "
        "mmap_mode='r'), which travels as its path, or load it within the function.",
        operation,
        memory.nbytes / 1e6,
        path,
    )
    _told.add(place)
