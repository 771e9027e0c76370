"""Command line, module search path and beginning of the Python processes that a worker
starts. This module imports only the standard library.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterator, Sequence

PYTHON = (sys.executable, *(("-P",) if sys.version_info >= (3, 11) else ()))
"""First words of the command line. Without ``-P`` Python would import modules of the
working folder in place of installed ones, and any user may be able to write to that
folder.
"""


def working_folder() -> str:
    """Return the working folder of this process; "" if it was removed or cannot be
    entered.
    """
    try:
        return os.getcwd()
    except OSError:
        return ""


def folder_on_path(
    path: Sequence[str], folder: str, safe: bool = bool(getattr(sys.flags, "safe_path", False))
) -> str:
    """Return the position of the working folder in a child's module search path:
    ``first``, ``last`` or ``nowhere``.

    The position is ``nowhere`` if Python was started with ``-P`` or ``PYTHONSAFEPATH``.
    It is ``first`` if it is first in this process, as with ``python -m``. It is
    ``last`` otherwise: pipelines then find modules in the folder, and no module there
    hides a module of zmqdata or of an installed package.

    Args:
        path: ``sys.path`` of this process.
        folder: the working folder; "" if it was removed.
        safe: whether Python was told to omit the folder that it would put first.

    Example:
        >>> paths = ["/usr/bin", "/lib"], ["/tmp", "/lib"]
        >>> [folder_on_path(path, "/tmp", safe=False) for path in paths]
        ['last', 'first']
    """
    if safe or not folder:
        return "nowhere"
    return "first" if path and path[0] in ("", folder) else "last"


def add_folder(place: str, path: list[str]) -> None:
    """Add the working folder to a child's module search path, so that pipelines find
    the modules that the supervisor would find.

    Args:
        place: position in the path: ``first``, ``last`` or ``nowhere``.
        path: ``sys.path``, which already has the folder if Python has no ``-P``.

    Example:
        >>> path = ["/lib"]
        >>> add_folder("last", path)
        >>> path == ["/lib", os.getcwd()]
        True
    """
    folder = working_folder()
    if not folder:
        return  # the folder was removed meanwhile
    if place == "first" and path[0] not in ("", folder):
        path.insert(0, folder)
    elif place == "last" and not {"", folder} & set(path):
        path.append(folder)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """Pause the garbage collector while a new process loads its modules, and hide their
    objects from it afterwards.

    Modules live as long as their process. To look for garbage among their objects takes
    a sixth of the time in which a process starts.

    Example:
        >>> with loading():
        ...     import json
        >>> gc.isenabled()
        True
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
