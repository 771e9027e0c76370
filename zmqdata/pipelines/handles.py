"""Locks of ``threading``, and files that are open for reading: what a worker makes in
their place. A lock there is free and belongs to the worker alone. A file is opened
again by its path, and continues at the position.

Two holders of one lock hold one lock afterwards, as of any object of a pickle.
"""

from __future__ import annotations

import gc
import io
import os
import stat
import threading
from collections.abc import Callable
from typing import Any

from zmqdata.pipelines.holding import body, class_names, lineage

FILE = "Open it inside the function: every worker then opens its own (the path must exist there)"
"""Remedy for a file that no worker can open again."""
ANY_FILE: Any = io.FileIO.__mro__[-2]
"""The base of all files, also of those in C."""

# --- locks


def _count(semaphore: Any) -> int:
    return int(getattr(semaphore, "_initial_value", semaphore._value))


_ARGUMENTS: dict[Any, Callable[[Any], tuple[Any, ...]]] = {
    type(threading.Lock()): lambda lock: (),
    type(threading.RLock()): lambda lock: (),
    threading._RLock: lambda lock: (),
    threading.Condition: lambda condition: (condition._lock,),
    threading.Event: lambda event: (),
    threading.Semaphore: lambda semaphore: (_count(semaphore),),
    threading.Barrier: lambda one: (one.parties, one._action, one._timeout),
}
_MAKERS = {type(threading.Lock()): threading.Lock, type(threading.RLock()): threading.RLock}
"""Functions that make the objects of classes that cannot be called in each version."""


_OWN_WAYS = {"__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__slots__"}


def _reduced_lock(thing: Any) -> Any:
    kind = type(thing)
    if kind in _MAKERS:
        return new_lock, (kind is type(threading.RLock()),)
    base = next(one for one in lineage(kind) if one in _ARGUMENTS)
    if any(_OWN_WAYS & body(one).keys() for one in lineage(kind)[: lineage(kind).index(base)]):
        return NotImplemented
    arguments = _ARGUMENTS[base](thing)
    usual = vars(base(*arguments))
    own = {name: value for name, value in vars(thing).items() if name not in usual}
    if base is threading.Event and thing.is_set():
        own["_flag"] = True
    return new_synchronizer, (kind, base, *arguments), own or None


def new_lock(is_reentrant: bool) -> object:
    """Create a lock. Called while unpickling."""
    return threading.RLock() if is_reentrant else threading.Lock()


def new_synchronizer(kind: Any, base: Any, *arguments: object) -> object:
    """Create an object of ``threading`` that has locks of its own. Called while
    unpickling.
    """
    made: object = object.__new__(kind)
    base.__init__(made, *arguments)
    return made


# --- files

_INSIDE = {"gzip.GzipFile": "myfileobj", "bz2.BZ2File": "_fp", "lzma.LZMAFile": "_fp"}
"""Attributes that hold the file of a compressed file."""
_OF_IO = (io.FileIO, io.BufferedReader, io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)
_NEWLINES = ("", "\n", "\r", "\r\n")


class RefusedError(Exception):
    """The object that is pickled cannot be sent, for this reason."""


def _reduced_file(file: Any) -> Any:
    inside = _INSIDE.get(class_names(type(file))[0])
    if type(file) not in _OF_IO and inside is None:
        return NotImplemented
    if file.closed or file.writable():
        raise RefusedError(f"Only a file that is open for reading can. {FILE}")
    try:
        return *_reopened(file, inside), file.tell(), None, None, seek
    except (AttributeError, OSError, TypeError, ValueError) as error:
        raise RefusedError(f"Its path and position are not known: {error}. {FILE}") from None


def _reopened(file: Any, inside: str | None) -> tuple[Any, tuple[Any, ...]]:
    """Return the function and arguments that open a file again.

    Args:
        file: the file.
        inside: the attribute that holds the file of a compressed one; None: it is not
            compressed.
    """
    kind = type(file)
    if kind is io.TextIOWrapper:
        file.seek(file.tell())  # drops the characters that were decoded ahead
        told = [one for one in gc.get_referents(file) if type(one) is str and one in _NEWLINES]
        return kind, (file.buffer, file.encoding, file.errors, *(told or (None,)))
    if kind is io.BufferedReader:
        return kind, (file.raw,)
    return kind, (path_of(file if inside is None else getattr(file, inside)), "rb")


def path_of(file: Any) -> str:
    """Return the absolute path of the file that a file object has open.

    Raises:
        OSError: there is no regular file at the path, or another one.
        TypeError: it was opened by a number.
    """
    path = os.path.abspath(os.fsdecode(file.name))
    opened = os.fstat(file.fileno())
    if not stat.S_ISREG(opened.st_mode) or not os.path.samestat(opened, os.stat(path)):
        raise FileNotFoundError(f"{path!r} is not the file that is open")
    return path


def seek(file: Any, position: int) -> None:
    """Continue at a position of a file. Called while unpickling."""
    file.seek(position)


REDUCERS: dict[type, Callable[[Any], Any]] = {
    **dict.fromkeys(_ARGUMENTS, _reduced_lock),
    ANY_FILE: _reduced_file,
}
