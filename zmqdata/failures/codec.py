"""Failures as bytes: a worker encodes an exception in place of an element, and a client
decodes and raises it.

The user's exception travels as plain values (``failures.exceptions``). The node with
file and line in the user's code and the element's number travel with it, so that the
user can find the fault.
"""

from __future__ import annotations

import msgspec

from zmqdata.errors import BY_NAME, DataServiceError, PipelineError, ProtocolError, pipeline_error
from zmqdata.failures.exceptions import RemoteError, describe_exception, rebuild_exception, text_of
from zmqdata.failures.names import PREFIX


class Failure(msgspec.Struct, frozen=True):
    """The reason why an element is missing: an error of the service by name, or the
    user's exception.
    """

    text: str
    """Text of the error."""
    node: str
    """The failed node, with file and line in the user's code."""
    element: int
    """Number of the element within its task."""
    worker: str
    """The worker that ran the task."""
    service_error: str
    """Name of a class of ``zmqdata.errors`` if the fault concerns the pipeline as a
    whole, else empty.
    """
    cause: RemoteError
    """The original exception."""
    task: int = 0
    """Id of the task; 0 if the element cannot be made again by `zmqdata replay`."""


_decoder = msgspec.msgpack.Decoder(Failure)


def missing_module(opener: str = "the worker") -> str:
    """Return advice for a module that a process lacks.

    Args:
        opener: name of the process.

    >>> "Otherwise install it for the worker (pip install)" in missing_module()
    True
    """
    return (
        "If it is your own module, ship it: distribute(..., ship=[the module]), or define "
        "what you use of it in the training script, which is shipped automatically. "
        f"Otherwise install it for {opener} (pip install), or start {opener} where Python "
        "finds it (the same folder or PYTHONPATH as the training script)."
    )


MISSING_SHIPPED_FILE = (
    "It belongs to a package that was shipped without it: hidden files, __pycache__, "
    ".pyc and backup files are not shipped, and neither are files created after "
    "distribute(). Give it another name, or put it where workers can read it."
)
"""Advice for a file of a shipped package that a worker lacks."""


def _remedy(cause: BaseException) -> str:
    """Return advice on missing code; "" for any other exception."""
    if isinstance(cause, FileNotFoundError) and PREFIX in str(cause.filename):
        return MISSING_SHIPPED_FILE
    if isinstance(cause, ModuleNotFoundError):
        return MISSING_SHIPPED_FILE if str(cause.name).startswith(PREFIX) else missing_module()
    return ""


def encode_failure(error: BaseException, element: int, worker: str, task: int = 0) -> bytes:
    """Encode the reason why ``worker`` could not produce element number ``element`` of
    a task; 0: the element cannot be made again elsewhere.
    """
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
        Failure(text, node, element, worker, service_error, describe_exception(cause), task)
    )


def told_by(encoded: bytes) -> tuple[str, str]:
    """Return the class name and, without tracebacks, the text of the error in an
    encoded failure.

    For bytes that are not a failure, return class name and text of the resulting
    ``ProtocolError``.
    """
    try:
        error = decode_failure(encoded)
    except ProtocolError as unreadable:
        return type(unreadable).__name__, str(unreadable)
    return type(error).__name__, str(error.args[0])


def decode_failure(encoded: bytes) -> DataServiceError:
    """Return the exception to raise at the client.

    Raises:
        ProtocolError: the bytes are not a failure.
    """
    try:
        failure = _decoder.decode(encoded)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ProtocolError(f"malformed failure: {error}") from None
    if failure.service_error in BY_NAME:
        return BY_NAME[failure.service_error](failure.text)
    of = f"task {failure.task}" if failure.task else "its task"
    text = f"{failure.text} (element {failure.element} of {of}, on worker {failure.worker})"
    if failure.task:
        command = f"zmqdata replay {failure.task} {failure.element}"
        text += f". While the dispatcher runs, `{command}` makes it again in a debugger."
    cause = rebuild_exception(failure.cause)
    found = pipeline_error(cause)(
        text, node=failure.node, element=failure.element, remote_traceback=failure.cause.traceback
    )
    found.__cause__ = cause
    return found
