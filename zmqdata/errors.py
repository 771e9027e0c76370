"""Every exception that zmqdata raises on purpose. Nothing else belongs here.

The classes follow the status codes of the tf.data service, so that code written against
it catches what it expects. A fault found locally in an argument is a plain
``ValueError`` or ``TypeError``. If a remote peer can find the same fault, the class
here inherits from both hierarchies.
"""

from __future__ import annotations


class DataServiceError(Exception):
    """Base of every error that concerns the service or a pipeline run by it."""

    final: bool = False
    """True if the iterator that raises the error has ended. Otherwise the next call
    continues after the element that failed.
    """

    def __str__(self) -> str:
        # File names may hold bytes that are not UTF-8. A terminal, a log file and a
        # message must take the text all the same.
        return super().__str__().encode("utf-8", "backslashreplace").decode()


class InvalidArgumentError(DataServiceError, ValueError):
    """An argument, or a combination of arguments, can never work."""


class WrongTypeError(InvalidArgumentError, TypeError):
    """A value has a type, dtype, shape or nesting that its operation cannot take, such
    as a number that the function of ``flat_map`` returned.

    tf.data raises a ``TypeError`` for some operations and a ``ValueError`` for others;
    this class is both. While elements are read, it is the cause of a
    ``PipelineError``.
    """


class NotFoundError(DataServiceError, LookupError):
    """A dataset, job, protocol or file with this name does not exist."""


class NoFilesMatchedError(NotFoundError, InvalidArgumentError):
    """No file matches the patterns of ``list_files``. tf.data raises
    ``InvalidArgumentError`` then.
    """


class AlreadyExistsError(DataServiceError):
    """An object with this name exists already and would be overwritten."""


class FailedPreconditionError(DataServiceError, RuntimeError):
    """The request is valid, but the system is not in a state that allows it."""


class UnavailableError(DataServiceError, ConnectionError):
    """A peer cannot be reached, or has been silent for longer than allowed."""


class UnimplementedError(DataServiceError, NotImplementedError):
    """The operation is meaningful but not supported, for example splitting a source
    that cannot be split.
    """


class CancelledError(DataServiceError):
    """The operation was cancelled because its owner was closed or stopped."""


class DataLossError(DataServiceError):
    """Stored bytes are damaged: the bytes read back differ from the bytes written."""


class PermissionDeniedError(DataServiceError, PermissionError):
    """The peer does not accept the credentials of this process, or the role of this
    process does not allow the request.
    """


class ResourceExhaustedError(DataServiceError):
    """A configured limit (ports, message size, number of streams) has been reached."""


class DescriptorShortageError(ResourceExhaustedError, OSError):
    """This process has no file descriptor left (``ulimit -n``)."""


class ProtocolError(DataServiceError, ValueError):
    """Bytes from a peer do not follow the protocol. A decoder raises no other
    exception.
    """


class VersionMismatchError(ProtocolError, FailedPreconditionError):
    """A peer speaks another protocol version: its release of zmqdata is incompatible
    with the local release.
    """


class NoStatusError(UnavailableError, ProtocolError):
    """The peer at the address of a server sends no status: it is another program, or
    another release of zmqdata.
    """


class MissingClassError(ProtocolError):
    """A peer sent an object of a class that this process does not have. A message never
    triggers an import.
    """


class MissingCodecError(ProtocolError):
    """Bytes are compressed, and the package that decompresses them is not installed in
    this process.
    """


class MissingDtypeError(ProtocolError):
    """An array has a dtype of a package that is not installed in this process."""


class ObjectsRefusedError(ProtocolError):
    """An element has leaves that must be unpickled, and the receiver does not allow
    pickled objects.
    """


class PipelineError(DataServiceError):
    """A user's function, or an operation with an element, failed while a pipeline was
    running.

    The original exception is ``__cause__``. Across processes it is rebuilt from its
    class name and plain arguments, never unpickled.

    Attributes:
        node: the operation and the place in the user's code that created it, e.g.
            ``"map(f) at train.py:12"``.
        element: number of the element within its task, or None if the failure belongs
            to no element.
        remote_traceback: the formatted traceback from the process in which the failure
            happened, or "" if it happened in this process.
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
        text = super().__str__()
        if self.remote_traceback:
            text += f"\n\nRemote traceback:\n{self.remote_traceback.rstrip()}"
        return text


class InvalidElementError(PipelineError, InvalidArgumentError):
    """An operation cannot take an element of its input or the result of a function,
    such as rows of different shapes for ``batch``.

    It is a ``PipelineError`` whose cause is an ``InvalidArgumentError``, and both, so
    that code for tf.data catches it.
    """


def pipeline_error(cause: BaseException) -> type[PipelineError]:
    """Return the class of the error that an exception of a running pipeline becomes.

    Example:
        >>> pipeline_error(InvalidArgumentError("shapes differ")).__name__
        'InvalidElementError'
        >>> pipeline_error(ValueError("of the user")).__name__
        'PipelineError'
    """
    wrong = (InvalidArgumentError, StopIteration)
    return InvalidElementError if isinstance(cause, wrong) else PipelineError


BY_NAME: dict[str, type[DataServiceError]] = {
    kind.__name__: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        NoFilesMatchedError,
        AlreadyExistsError,
        FailedPreconditionError,
        UnavailableError,
        UnimplementedError,
        CancelledError,
        DataLossError,
        PermissionDeniedError,
        ResourceExhaustedError,
        DescriptorShortageError,
        ProtocolError,
        VersionMismatchError,
    )
}
"""The errors that a message may carry, by class name."""


def named_error(name: str, text: str) -> DataServiceError:
    """Return the error for a class name and text received in a message.

    The name ``PipelineError`` gives a ``PipelineError`` that concerns no single
    element. An unknown name gives a ``DataServiceError``.

    Example:
        >>> named_error("NotFoundError", "no such dataset")
        NotFoundError('no such dataset')
    """
    kind = PipelineError if name == PipelineError.__name__ else BY_NAME.get(name, DataServiceError)
    return kind(text)
