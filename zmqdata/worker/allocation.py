"""How a worker's process gets its memory from the system: seldom, as a page that is new costs more than what it holds.

Pipelines make arrays of a hundred kilobytes by the thousand and drop them together once their block is sent. By default
glibc gives that memory back to the system each time, and takes it again for the next block: each page of it is cleared
and mapped anew, which can cost more than filling it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
KEPT_BYTES = 64 << 20
"""What may lie unused at the end of a heap."""
MAPPED_BYTES = 32 << 20
"""Larger pieces come from the system and go back to it one by one. Larger than this glibc does not take it."""
ARENAS = 2
"""Heaps, however many threads there are: each keeps what others could use. Threads mostly allocate one at a time."""


def keep_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Has this process keep memory that it will need again; False where that is not known how, or told otherwise.

    Who sets one of glibc's own variables (``MALLOC_ARENA_MAX``, ``GLIBC_TUNABLES``, ...) has decided for all of them,
    and an allocator that is preloaded is not affected.
    """
    if "GLIBC_TUNABLES" in environment or any(name.startswith("MALLOC_") for name in environment):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return False
    settings = {_TRIM_THRESHOLD: KEPT_BYTES, _MMAP_THRESHOLD: MAPPED_BYTES, _ARENA_MAX: ARENAS}
    return all(mallopt(*setting) == 1 for setting in settings.items())
