"""An exception in place of an element, as bytes: made by a worker, raised by a client.

The user's exception is data. It travels as plain values (``remote_errors``) with what
the consumer needs to find the fault: the node with the user's file and line, and the
element's number.
"""

from __future__ import annotations

import msgspec

from zmqdata.errors import BY_NAME, DataServiceError, PipelineError, ProtocolError
from zmqdata.failures.exceptions import RemoteError, describe_exception, rebuild_exception, text_of
from zmqdata.failures.names import PREFIX


class Failure(msgspec.Struct, frozen=True):
    """Why there is no element: an error of the service by name, or the user's
    exception.

    ``service_error`` names a class of ``zmqdata.errors`` when the fault lies with the
    pipeline as a whole.
    """

    text: str
    node: str
    element: int
    worker: str
    service_error: str
    cause: RemoteError


_decoder = msgspec.msgpack.Decoder(Failure)

MISSING_MODULE = (
    "If it is yours, send it along: distribute(..., ship=[the module]), or define what is used of "
    "it in the training "
    "script, which travels by itself. Otherwise install it on the worker (pip install), or start "
    "the worker where "
    "Python finds it (the same folder or PYTHONPATH as the training script)."
)
"""What to do about a module that a worker lacks."""


MISSING_SHIPPED_FILE = (
    "It belongs to a package that was shipped without it: hidden files, __pycache__, .pyc and "
    "backup files stay at "
    "home, and so does what was made after distribute(). Give it another name, or put it where "
    "workers can read it."
)
"""What to do about a part of a shipped package that a worker lacks."""


def _remedy(cause: BaseException) -> str:
    """What to do about code that is not here; "" where it is not that."""
    if isinstance(cause, FileNotFoundError) and PREFIX in str(cause.filename):
        return MISSING_SHIPPED_FILE
    if isinstance(cause, ModuleNotFoundError):
        return MISSING_SHIPPED_FILE if str(cause.name).startswith(PREFIX) else MISSING_MODULE
    return ""


def encode_failure(error: BaseException, element: int, worker: str) -> bytes:
    """Describes why element number ``element`` could not be made by ``worker``."""
    cause = (
        error.__cause__
        if isinstance(error, PipelineError) and error.__cause__ is not None
        else error
    )
    service_error = type(error).__name__ if type(error).__name__ in BY_NAME else ""
    text = (
        text_of(error)
        if isinstance(error, DataServiceError)
        else f"{type(error).__name__}: {text_of(error)}"
    )
    if remedy := _remedy(cause):
        text = f"{text}. {remedy}"
    node = text_of(Exception(error.node)) if isinstance(error, PipelineError) else ""
    return msgspec.msgpack.encode(
        Failure(text, node, element, worker, service_error, describe_exception(cause))
    )


def told_by(encoded: bytes) -> tuple[str, str]:
    """The error that a failure stands for: the name of its class and, without
    tracebacks, its text.

    Bytes that are no failure stand for the ``ProtocolError`` that says so.
    """
    try:
        error = decode_failure(encoded)
    except ProtocolError as unreadable:
        return type(unreadable).__name__, str(unreadable)
    return type(error).__name__, str(error.args[0])


def decode_failure(encoded: bytes) -> DataServiceError:
    """The exception to raise at the consumer.

    Raises:
        ProtocolError: the bytes are no failure.
    """
    try:
        failure = _decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"malformed failure: {error}") from None
    if failure.service_error in BY_NAME:
        return BY_NAME[failure.service_error](failure.text)
    text = f"{failure.text} (element {failure.element} of its task, on worker {failure.worker})"
    found = PipelineError(
        text, node=failure.node, element=failure.element, remote_traceback=failure.cause.traceback
    )
    found.__cause__ = rebuild_exception(failure.cause)
    return found
