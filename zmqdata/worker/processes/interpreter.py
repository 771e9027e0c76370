"""How Python is started for processes of ours, and where those look for modules.
Standard library only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

PYTHON = (sys.executable, *(("-P",) if sys.version_info >= (3, 11) else ()))
"""Begins a command line. Without -P modules that lie in the working folder would be
taken for those that we import, and that folder may be one in which anybody may write.
"""


def working_folder() -> str:
    """The folder in which this process works; "" when that is gone, or not to be
    entered.
    """
    try:
        return os.getcwd()
    except OSError:
        return ""


def folder_on_path(
    path: Sequence[str], folder: str, safe: bool = bool(getattr(sys.flags, "safe_path", False))
) -> str:
    """Where a child shall look for modules in the working folder: ``first``, ``last``
    or ``nowhere``.

    First if we do (``python -m``), nowhere if Python was told so (``-P``,
    ``PYTHONSAFEPATH``). Else last: pipelines find what lies there, and nothing in it is
    taken for a module of ours or of an installed package.

    Args:
        path: our ``sys.path``.
        folder: the working folder; "": it is gone.
        safe: whether Python was told to leave out the folder that it would put first.

    Example:
        >>> [folder_on_path(path, "/tmp", safe=False) for path in (["/usr/bin", "/lib"], ["/tmp", "/lib"])]
        ['last', 'first']
    """
    if safe or not folder:
        return "nowhere"
    return "first" if path and path[0] in ("", folder) else "last"


def add_folder(place: str, path: list[str]) -> None:
    """Has modules of pipelines found in the working folder, as the supervisor would
    find them.

    Args:
        place: where among others: ``first``, ``last`` or ``nowhere``.
        path: ``sys.path``, which has it already where Python knows no ``-P``.

    Example:
        >>> path = ["/lib"]
        >>> add_folder("last", path)
        >>> path == ["/lib", os.getcwd()]
        True
    """
    folder = working_folder()
    if not folder:
        return  # it was removed since
    if place == "first" and path[0] not in ("", folder):
        path.insert(0, folder)
    elif place == "last" and not {"", folder} & set(path):
        path.append(folder)
