"""Calls of the functions of users, and the errors that an operation raises."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from zmqdata.errors import DataLossError, DescriptorShortageError, PipelineError, pipeline_error
from zmqdata.failures.exceptions import text_of
from zmqdata.iterators.deciding import is_loss, loss
from zmqdata.machine.descriptors import is_shortage, remedy
from zmqdata.nodes.base import Node
from zmqdata.peeking import peek

CLOSED = "The iterator was closed while a thread waited for its element"
"""Text of the ``CancelledError`` that this thread gets. StopIteration would say that it
has had all elements.
"""


def is_end(error: BaseException) -> bool:
    """Return True if an iterator that raises this error has no further elements.

    Any other error stands for a single element.

    >>> is_end(StopIteration()), is_end(PipelineError("the function failed"))
    (True, False)
    """
    return isinstance(error, StopIteration) or getattr(error, "final", False) is True


class PassedOver(Exception):
    """Signals that a part of a source was skipped."""


def call(function: Callable[..., Any], element: Any) -> Any:
    """Call a user's function as tf.data does: a plain tuple is passed as separate
    arguments.

    >>> call(max, (2, 5)), call(len, {"a": 1})
    (5, 1)
    """
    return function(*element) if type(element) is tuple else function(element)


CALLED_FOR = "zmqdata_called_for"
"""Attribute of an exception that names the items that a function was called for."""


def failure(
    node: Node, error: BaseException, called_for: str = ""
) -> PipelineError | DataLossError:
    """Return the error that wraps the exception of a user function; raise it ``from``
    that exception.

    Args:
        node: the node that the function belongs to.
        error: the exception.
        called_for: names the element that the function was called for, as in
            "batch 3"; "" if the error does not name it.
    """
    if is_loss(error):
        return loss(text_of(error))
    hint = ""
    if _is_wrong_call(error):
        hint = _ARGUMENTS_OF.get(node.operation, _ARGUMENTS)
    elif _wants_tensor(error):
        hint = _ARRAYS
    elif isinstance(error, StopIteration):
        hint = f"{text_of(error) and '; '}{_STOPPED}"
    elif is_shortage(error) and not isinstance(error, DescriptorShortageError):
        hint = f". {remedy('It')}"
    called_for = called_for or peek(error, CALLED_FOR, "")
    failed = f"failed for {called_for}" if called_for else "failed"
    return pipeline_error(error)(
        f"{node.label} {failed}: {type(error).__name__}: {text_of(error)}{hint}", node=node.label
    )


def beyond_int64(node: Node, number: int) -> PipelineError:
    """Return the error of an operation that has counted beyond the numbers of its
    elements; raise it ``from None``.
    """
    return PipelineError(
        f"{node.label} cannot count to {number}: np.int64 holds numbers from -2**63 to 2**63 - 1. "
        "Begin with a smaller `start`, or take() fewer elements",
        node=node.label,
    )


_ARGUMENTS = (
    ". A plain tuple is passed as separate arguments, as in `lambda x, y: ...`; any other "
    "element as a single argument"
)
_ARGUMENTS_OF = {
    "batch": ". collate_fn gets the list of the elements of a batch as its only argument",
    "scan": (
        ". scan_func gets the state and the element as two arguments, even if the element is a "
        "tuple"
    ),
    "group_by_reducer": (
        f"{_ARGUMENTS}. reduce_func gets the state and the element as two arguments, even if the "
        "element is a tuple"
    ),
}
"""Operations whose function is not called with an element alone."""
_ARRAYS = (
    ". Elements hold numpy arrays: a tensor or list that a function returns is an array for the "
    "next function. Do both steps in one function, or convert the array there"
)
_STOPPED = (
    "a function cannot end its dataset by StopIteration, which may be that of an inner next(). "
    "End it with take_while(), or pass a default as in next(values, None)"
)
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CALLERS = tuple(os.path.join(_ROOT, folder) for folder in ("iterators", "operations"))


def _is_wrong_call(error: BaseException) -> bool:
    """Return True if a function was called with arguments that it does not accept, and
    never ran.
    """
    trace = error.__traceback__
    if (
        not isinstance(error, TypeError)
        or trace is None
        or "positional argument" not in text_of(error)
    ):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return os.path.dirname(trace.tb_frame.f_code.co_filename) in _CALLERS


def _wants_tensor(error: BaseException) -> bool:
    """Return True if a function used an array of numpy as a tensor or list."""
    return isinstance(error, AttributeError) and isinstance(error.obj, np.ndarray)
