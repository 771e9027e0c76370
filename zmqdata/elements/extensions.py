"""Dtypes that the package ``ml_dtypes`` adds to numpy, such as bfloat16, float8 and
int4.

numpy describes each of them as raw bytes (``<V2``), so they travel by name. The package
is imported only if such a dtype is met.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, TypeAlias

import numpy as np

from zmqdata.errors import MissingDtypeError, ProtocolError

DType: TypeAlias = "np.dtype[Any]"

PACKAGE = "ml_dtypes"
_NAME = re.compile(rf"{PACKAGE}\.[a-z][a-z0-9_]{{0,40}}")
_ADDED = 2
"""Value of ``isbuiltin`` for a dtype that a package has added."""


def is_extension(dtype: DType) -> bool:
    """Return True if ``ml_dtypes`` defines the dtype.

    >>> is_extension(np.dtype("V2"))
    False
    """
    return dtype.isbuiltin == _ADDED and dtype.type.__module__ == PACKAGE


def described(dtype: DType) -> str:
    """Return a dtype without fields as text: numpy's own text, or the name of an
    extension.

    Raises:
        TypeError: another package defines the dtype, and numpy's text would lose it.

    >>> described(np.dtype(">f4"))
    '>f4'
    """
    if is_extension(dtype):
        return f"{PACKAGE}.{dtype.name}"
    if dtype.char == "T":
        if dtype != np.dtype("T"):
            raise TypeError(f"{dtype!r} has a marker for missing values, which cannot be sent")
        return "T"
    if dtype.isbuiltin == _ADDED or (dtype.kind == "V" and dtype.type is not np.void):
        raise TypeError(
            f"dtype {dtype} of the package {dtype.type.__module__} cannot be sent, because numpy "
            "describes it as raw bytes: convert the array to a dtype of numpy or ml_dtypes in a "
            "map()"
        )
    return dtype.str


def is_name(text: str) -> bool:
    """Return True if a description names an extension.

    >>> is_name("ml_dtypes.bfloat16"), is_name("<f4"), is_name("os.path")
    (True, False, False)
    """
    return bool(_NAME.fullmatch(text))


def rebuilt(text: str) -> DType:
    """Return the dtype for a text of ``described``.

    Raises:
        MissingDtypeError: it is an extension that this process does not have.
        ProtocolError: the package has no such dtype.
    """
    if not is_name(text):
        return np.dtype(text)
    name = text.partition(".")[2]
    found = extension(name)
    if found is None:
        raise ProtocolError(f"{PACKAGE} defines no dtype {name!r}")
    return found


def extension(name: str) -> DType | None:
    """Return the extension of a name, or None if the package knows no such dtype.

    Raises:
        MissingDtypeError: the package is not installed, or its release is too old.
    """
    try:
        package = importlib.import_module(PACKAGE)
    except ImportError as error:
        raise MissingDtypeError(
            f"dtype {name} belongs to the package `{PACKAGE}`, which cannot be imported in this "
            f"process ({error}). Install it with `pip install {PACKAGE}`, or convert the arrays "
            "to a dtype of numpy in a map(), with astype(np.float32)"
        ) from None
    kind = getattr(package, name, None)
    if not (isinstance(kind, type) and issubclass(kind, np.generic)):
        return None
    found: DType = np.dtype(kind)
    return found if is_extension(found) else None
