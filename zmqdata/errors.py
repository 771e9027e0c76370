"""Every exception that zmqdata raises on purpose. Nothing else lives here.

The classes follow tf.data service's status codes, so that code written against it
catches what it expects. Faults found locally in an argument are plain ``ValueError``
and ``TypeError``; where the same fault may also be found by a remote peer, the class
here inherits from both worlds.
"""

from __future__ import annotations


class DataServiceError(Exception):
    """Base of every error that concerns the service or a pipeline run by it.

    Attributes:
        final: whether the iterator that raises it has ended; else the next call goes on
            behind what failed.
    """

    final: bool = False


class InvalidArgumentError(DataServiceError, ValueError):
    """An argument or a combination of arguments can never work."""


class NotFoundError(DataServiceError, LookupError):
    """A dataset, job, protocol or file with this name does not exist."""


class AlreadyExistsError(DataServiceError):
    """Something with this name exists already and would be overwritten."""


class FailedPreconditionError(DataServiceError, RuntimeError):
    """The request is sound but the system is not in a state that allows it."""


class UnavailableError(DataServiceError, ConnectionError):
    """A peer cannot be reached, or has been silent for longer than allowed."""


class UnimplementedError(DataServiceError, NotImplementedError):
    """The operation makes sense but is not supported, for example splitting a source
    that cannot be split.
    """


class CancelledError(DataServiceError):
    """The operation was cancelled because its owner was closed or stopped."""


class DataLossError(DataServiceError):
    """Stored bytes are damaged: what was read back cannot be what was written."""


class PermissionDeniedError(DataServiceError, PermissionError):
    """The peer does not accept our credentials, or our role does not allow the
    request.
    """


class ResourceExhaustedError(DataServiceError):
    """A stated limit (ports, message size, number of streams) has been reached."""


class ProtocolError(DataServiceError, ValueError):
    """Bytes from a peer do not follow the protocol. The only exception that a decoder
    raises.
    """


class VersionMismatchError(ProtocolError, FailedPreconditionError):
    """A peer speaks another version of the protocol: its release of zmqdata and the one
    here do not go together.
    """


class MissingClassError(ProtocolError):
    """A peer's object is of a class that this process does not have: nothing is
    imported on its word.
    """


class ObjectsRefusedError(ProtocolError):
    """An element has leaves that would have to be unpickled, where the receiver allows
    no objects.
    """


class PipelineError(DataServiceError):
    """A user's function failed while a pipeline was running.

    The original exception is ``__cause__``; across processes it is rebuilt from its
    class name and plain arguments, never unpickled.

    Attributes:
        node: the operation and the place in the user's code that made it, e.g.
            ``"map(f) at train.py:12"``.
        element: number of the element within its task, or None when the failure belongs
            to no element.
        remote_traceback: the formatted traceback of the process where it happened, or
            "" when it happened here.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str = "",
        element: int | None = None,
        remote_traceback: str = "",
    ) -> None:
        super().__init__(message)
        self.node = node
        self.element = element
        self.remote_traceback = remote_traceback

    def __str__(self) -> str:
        text = str(self.args[0])
        if self.remote_traceback:
            text += f"\n\nRemote traceback:\n{self.remote_traceback.rstrip()}"
        return text


BY_NAME: dict[str, type[DataServiceError]] = {
    kind.__name__: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        FailedPreconditionError,
        UnavailableError,
        UnimplementedError,
        CancelledError,
        DataLossError,
        PermissionDeniedError,
        ResourceExhaustedError,
        ProtocolError,
        VersionMismatchError,
    )
}
"""The errors that may travel in a message, by class name."""


def named_error(name: str, text: str) -> DataServiceError:
    """An error as a message has it, by the name of its class; a ``PipelineError`` where
    no single element failed.

    Example:
        >>> named_error("NotFoundError", "no such dataset")
        NotFoundError('no such dataset')
    """
    kind = PipelineError if name == PipelineError.__name__ else BY_NAME.get(name, DataServiceError)
    return kind(text)
