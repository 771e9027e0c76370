"""Pipelines between major versions of numpy: names that these do not share."""

from __future__ import annotations

import numpy as np

_MAJOR = int(np.__version__.partition(".")[0])
_RENAMED = (
    ("numpy._core", "numpy.core"),
    ("numpy.rec", "numpy.core.records"),
    ("numpy.strings", "numpy.core.defchararray"),
)
"""Names of a module in numpy 2 and in numpy 1."""


def module_here(module: str, major: int = _MAJOR) -> str:
    """Return the name that a module of numpy has in a version of numpy, by default the
    installed one. Other names are returned unchanged.

    >>> module_here("numpy._core.umath", 1), module_here("numpy.core.umath", 2)
    ('numpy.core.umath', 'numpy._core.umath')
    """
    if not module.startswith("numpy."):
        return module
    for new, old in _RENAMED:
        theirs, ours = (new, old) if major == 1 else (old, new)
        if module == theirs or module.startswith(f"{theirs}."):
            return ours + module[len(theirs) :]
    return module


def other_numpy(version: str, opener: str) -> str:
    """Return the likely cause of a failure and the remedy if a client's numpy is of
    another major version than the installed one, otherwise "".

    >>> other_numpy(np.__version__, "this worker")
    ''
    """
    major = version.partition(".")[0]
    if not major or int(major) == _MAJOR:
        return ""
    return (
        f"The likely cause is that the client has numpy {version} and {opener} numpy "
        f"{np.__version__}. Arrays travel between these versions, but some other objects of "
        f"numpy do not. Install the same major version on both sides (pip install "
        f"'numpy=={major}.*' for {opener}), or make the object inside the function."
    )
