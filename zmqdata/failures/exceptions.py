"""Exceptions between processes: described by plain values, and rebuilt without
unpickling.

Content from a peer is not trusted. Rebuilding imports nothing, runs no constructor
written in Python, and creates no exception that could end a process or a loop.
"""

from __future__ import annotations

import os
import traceback
from typing import Any

import msgspec

from zmqdata.failures.names import plain_name
from zmqdata.peeking import look_up
from zmqdata.printable import printable

FAILURES = (Exception, GeneratorExit)
"""Classes of exceptions that are the failure of a user's function. Others, such as
``KeyboardInterrupt``, end the program.
"""

_PLAIN = (str, bytes, int, float, bool, type(None))

MAX_ARGS = 16
MAX_ARG_CHARS = 4096
MAX_TRACEBACK_CHARS = 64 * 1024


class RemoteError(msgspec.Struct, frozen=True):
    """An exception as plain values."""

    kind: str
    """Module and qualified name of its class, such as ``"builtins.ValueError"``."""
    args: tuple[Any, ...] = ()
    """Its arguments; an argument that is not plain is replaced by its ``repr``."""
    traceback: str = ""
    """The formatted traceback with its causes, at most 64 KB."""

    def __post_init__(self) -> None:
        # msgspec has no union of str and bytes
        if not all(isinstance(arg, _PLAIN) for arg in self.args):
            raise ValueError(
                "arguments of a remote exception must be str, bytes, int, float, bool or None"
            )


class RemoteException(RuntimeError):
    """A stand-in for an exception whose class this process does not have. Its
    subclasses are named after that class.
    """

    kind: str = ""
    """Module and qualified name of the original class."""


def describe_exception(error: BaseException) -> RemoteError:
    """Describe an exception by plain values of limited size. This function never
    raises, whatever the exception is.

    >>> describe_exception(ValueError("bad", 3)).args
    ('bad', 3)
    """
    kind = type(error)
    return RemoteError(
        kind=_cut(plain_name(_text(f"{kind.__module__}.{kind.__qualname__}")), MAX_ARG_CHARS),
        args=tuple(_plain(arg) for arg in _args(error)[:MAX_ARGS]),
        traceback=_cut(plain_name(_text(formatted(error))), MAX_TRACEBACK_CHARS),
    )


def rebuild_exception(remote: RemoteError) -> Exception:
    """Create an exception of the same class if this process has imported it, else a
    ``RemoteException``.

    The class must be an ``Exception`` from an imported module. A constructor written in
    Python is not called: it may do anything, and rarely accepts the values in ``args``.
    ``StopIteration`` and classes outside ``Exception`` (``KeyboardInterrupt``,
    ``SystemExit``) are never created: they would end a training loop silently.

    >>> rebuild_exception(RemoteError("builtins.ValueError", ("bad", 3)))
    ValueError('bad', 3)
    >>> rebuild_exception(RemoteError("their.Odd", ("bad",)))
    Odd('bad')
    >>> isinstance(_, RemoteException)
    True
    """
    kind = _find_class(remote.kind)
    if kind is not None:
        try:
            error = kind.__new__(kind, *remote.args)
            if _is_native(kind, "__init__"):
                error.__init__(*remote.args)  # type: ignore[misc]  # which __new__ alone leaves out
            str(error)
        except Exception:
            # Its class wants other arguments, or cannot print itself without its
            # constructor.
            return _stand_in(remote)
        if type(error) is kind:
            return error
    return _stand_in(remote)


def _args(error: BaseException) -> tuple[object, ...]:
    args = getattr(error, "args", ())
    if isinstance(error, OSError) and error.filename is not None and len(args) == 2:
        return (*args, error.filename)  # OSError keeps its file name out of args
    return args if isinstance(args, tuple) else (args,)


def _plain(arg: object) -> str | bytes | int | float | bool | None:
    if arg is None or isinstance(arg, bool):
        return arg
    if isinstance(arg, int) and -(2**63) <= arg < 2**63:
        return int(arg)
    if isinstance(arg, float):
        return float(arg)
    if isinstance(arg, bytes):
        return bytes(arg[:MAX_ARG_CHARS])
    if isinstance(arg, str):
        return _cut(_text(str(arg)), MAX_ARG_CHARS)
    return _cut(_text(_safe_repr(arg)), MAX_ARG_CHARS)


def _safe_repr(arg: object) -> str:
    try:
        return repr(arg)
    except Exception:  # a user's __repr__, or an int of too many digits
        return f"<{type(arg).__qualname__} object>"


_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TRACEBACK: Any = vars(BaseException)["__traceback__"]


def formatted(error: BaseException) -> str:
    """Return an exception with its traceback as Python prints it, or in short if Python
    cannot print it. It begins with the first call of code that is not of this package.

    CPython parses the lines of a traceback for that. If two threads do so at a time,
    one of them may meet a ``SystemError`` (3.11.7).
    """
    try:
        first = error.__traceback__
        while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            first = first.tb_next
        return "".join(traceback.format_exception(type(error), error, first or error.__traceback__))
    except Exception:  # also a user's __str__ or a broken __cause__
        places = [
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}\n'
            for frame, line in traceback.walk_tb(_TRACEBACK.__get__(error))
        ]
        return "".join([*places, f"{type(error).__qualname__}: {text_of(error)}\n"])


def text_of(error: BaseException, limit: int = MAX_TRACEBACK_CHARS) -> str:
    """Return the text of an exception, of limited length and encodable for the wire,
    whatever its ``__str__`` does.

    >>> text_of(ValueError("bad"))
    'bad'
    """
    try:
        said = str(error)
    except Exception as second:  # a user's __str__ may do anything
        said = f"<its text cannot be obtained: {type(second).__name__}>"
    return _cut(_text(said), limit)


def _text(text: str) -> str:
    """Escape lone surrogates, which the wire format cannot encode."""
    return text.encode("utf-8", "backslashreplace").decode()


def _cut(text: str, limit: int) -> str:
    """Shorten a text in the middle: a traceback names the loop at its start and the
    failure at its end.
    """
    if len(text) <= limit:
        return text
    mark = "\n[...]\n"
    start = limit // 4
    return text[:start] + mark + text[-(limit - start - len(mark)) :]


def _find_class(kind: str) -> type[Exception] | None:
    parts = kind.split(".")
    for split in range(len(parts) - 1, 0, -1):
        found = look_up(".".join(parts[:split]), ".".join(parts[split:]))
        if found is not None:
            return _accepted(found)
    return None


def _accepted(found: object) -> type[Exception] | None:
    if not isinstance(found, type) or not issubclass(found, Exception):
        return None
    if issubclass(found, (StopIteration, StopAsyncIteration)) or not _is_native(found, "__new__"):
        return None
    return found


def _is_native(kind: type, method: str) -> bool:
    """Return True if a built-in class defines the method, rather than Python code."""
    owner = next(base for base in kind.__mro__ if method in base.__dict__)
    return owner.__module__ == "builtins"


def _stand_in(remote: RemoteError) -> RemoteException:
    module, _, name = printable(remote.kind[:200]).rpartition(".")
    kind: type[RemoteException] = type(
        name or "RemoteException",
        (RemoteException,),
        {"__module__": module or "unknown", "kind": remote.kind},
    )
    return kind(*remote.args)
