"""Arrays over memory-mapped files, which travel as the path of their file.

A pipeline carries the path and a digest of samples of the file. The client checks that
the file still holds what the array shows, and a worker that its file of that path is
the same. A small map, and a map with mode ``"c"``, whose pages may be private, is an
ordinary array.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
from typing import Any

import numpy as np
from msgspec.structs import astuple

from zmqdata.errors import FailedPreconditionError
from zmqdata.files.filenames import legible, native, portable
from zmqdata.messages.parts import MappedFile
from zmqdata.peeking import is_a

log = logging.getLogger(__name__)

MUCH = 100 << 20
"""Size in bytes from which the user is told that an array is sent, and from which a map
travels as the path of its file.
"""
LARGE = 1 << 20
"""Size in bytes from which buffers are kept outside the stream."""
SHARE = "Put the file where all workers find it under this path, for example on shared storage"
"""Remedy for a worker that lacks the file."""
_SAMPLES = 32
_SAMPLE_BYTES = 4096


def fault_of(file: MappedFile, place: str = "here", remedy: str = SHARE) -> str:
    """Return the error of a pipeline that maps a file; "" if the file is the same.

    Args:
        file: the range of the file.
        place: place or time of the comparison.
        remedy: the first of the ways out.
    """
    found = digest_of_file(native(file.path), file.start, file.size)
    if found == file.samples:
        return ""
    absent = f"does not exist {place}, is shorter or cannot be read"
    differs = absent if found is None else f"has other content {place}"
    return (
        f"The pipeline maps {file.size / 1e6:.0f} MB of the file {legible(file.path)}, which "
        f"{differs} ({platform.node()}). A memory map of this size travels as the path of its "
        f"file. {remedy}. Or save the elements once with `Dataset.save` to storage that all "
        "workers see. Or send the content as an array: np.array(the memory map)"
    )


def checked_map(array: np.ndarray[Any, Any]) -> MappedFile | None:
    """Return the range of a file that workers map for an array; None for an array that
    is sent.

    Raises:
        FailedPreconditionError: the file was removed, replaced or cut after the array
            was mapped.
    """
    file = mapped_file(array)
    if file is not None and (fault := fault_of(file, "now", "Map the file again")):
        raise FailedPreconditionError(fault)
    return file


def mapped_file(array: np.ndarray[Any, Any]) -> MappedFile | None:
    """Return the range of a file that an array shows, whether or not the file still has
    its path: an ``np.memmap``, or any view of one. None for other arrays, for small
    ones, and for arrays that may differ from their file.

    Raises:
        FailedPreconditionError: the file has become shorter. Reading the array would
            kill this process.
    """
    if array.nbytes < MUCH or array.dtype.hasobject:
        return None
    root = array
    while is_a(root.base, np.ndarray):
        root = root.base
    if not is_a(root, np.memmap) or root.filename is None or root.mode == "c":
        return None
    if root.mode != "r":
        root.flush()
    low, high = _bounds(array)
    path = portable(os.path.abspath(root.filename))
    start = int(root.offset) + low - _address(root)
    file: Any = root.base
    if file.size() < start + high - low:
        raise FailedPreconditionError(
            f"The file {legible(path)} is shorter than the range of it that the pipeline maps. The "
            "file was cut after it was mapped, so reading the map would kill this process. Map the "
            "file again"
        )
    whole = np.frombuffer(file, np.uint8)
    shown = whole[low - _address(whole) : high - _address(whole)]
    digest = _digest([bytes(shown[begin:end]) for begin, end in _places(high - low)])
    return MappedFile(path, start, high - low, digest)


def reduced_map(array: np.ndarray[Any, Any], file: MappedFile) -> tuple[Any, ...]:
    """Return the function and arguments that make an array over a range of a file."""
    offset = _address(array) - _bounds(array)[0]
    layout = (array.shape, array.dtype, array.strides, offset)
    return open_map, (*astuple(file), layout, array.flags.writeable, is_a(array, np.memmap))


def open_map(
    path: str,
    start: int,
    size: int,
    samples: str,
    layout: tuple[tuple[int, ...], Any, tuple[int, ...], int],
    writable: bool,
    is_memmap: bool,
    place: str = "here",
) -> np.ndarray[Any, Any]:
    """Map a range of a file. What the pipeline writes to the array stays in the
    process. Called while unpickling, with the place of this process.

    Raises:
        FailedPreconditionError: the process finds no such file, or it differs from that
            of the client.
    """
    shape, dtype, strides, offset = layout
    if fault := fault_of(MappedFile(path, start, size, samples), place):
        raise FailedPreconditionError(fault)
    mode: Any = "c" if writable else "r"
    mapped: Any = np.memmap(native(path), np.uint8, mode, start, (size,))
    made: Any = np.ndarray.__new__(
        np.memmap if is_memmap else np.ndarray, shape, dtype, mapped, offset, strides
    )
    if is_memmap:
        vars(made).update(vars(mapped))
    made.flags.writeable = writable
    return made  # type: ignore[no-any-return]  # of either class


def digest_of_file(path: str, start: int, nbytes: int) -> str | None:
    """Return the digest of samples of a range of a file; None if it cannot be read.

    >>> digest_of_file("/nowhere/train.bin", 0, 8) is None
    True
    """
    try:
        with open(path, "rb", buffering=0) as file:
            number = file.fileno()
            samples = [os.pread(number, end - at, start + at) for at, end in _places(nbytes)]
            return _digest(samples) if os.fstat(number).st_size >= start + nbytes else None
    except (OSError, ValueError):  # no file has a name with a NUL
        return None


def _digest(samples: list[bytes]) -> str:
    return hashlib.sha256(b"".join(samples)).hexdigest()


def _places(nbytes: int) -> list[tuple[int, int]]:
    """Return evenly spaced ranges, the first and the last bytes among them."""
    last = max(0, nbytes - _SAMPLE_BYTES)
    begins = sorted({last * i // (_SAMPLES - 1) for i in range(_SAMPLES)})
    return [(begin, min(nbytes, begin + _SAMPLE_BYTES)) for begin in begins]


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


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
        "workers. Put it in a file that workers see, which travels as its path: hold "
        "np.load(path, mmap_mode='r'), or Dataset.from_arrow(path) for a table. Or load it within "
        "the function.",
        operation,
        memory.nbytes / 1e6,
        path,
    )
    _told.add(place)
