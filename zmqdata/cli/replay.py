"""The command that runs a failing element of a job again in this process, in a
debugger.

It opens the pipeline of the job, so the code of the job runs with the rights of the
person who calls the command.
"""

from __future__ import annotations

import argparse
import inspect
import os
import platform
import reprlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

from zmqdata.cli.asking import DispatcherSettings, opened
from zmqdata.cli.options import command_parser, guarded, say
from zmqdata.config.keys import KeySettings
from zmqdata.errors import PipelineError
from zmqdata.failures.exceptions import text_of
from zmqdata.printable import printable

if TYPE_CHECKING:
    from zmqdata.client.replaying import FetchedTask
    from zmqdata.worker.tasks.replay import ReplayedElement

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
MOST_CHARACTERS = 400
"""Maximum number of characters of a value."""


def replay_main(arguments: Sequence[str], program: str = "zmqdata replay") -> int:
    """Run an element of a task again; return the exit code: 0 if it does not fail here,
    1 if it fails.
    """
    parser = command_parser(
        program,
        "Makes an element of a task again in this process, from the same splits, seeds and "
        "states, and opens a debugger where it fails. The code of the job runs with your rights.",
        DispatcherSettings,
        KeySettings,
    )
    parser.add_argument(
        "task", type=int, metavar="TASK", help="id of the task, as the error of the element says"
    )
    parser.add_argument(
        "element",
        type=_number,
        metavar="ELEMENT",
        help="number of the element within the task; in coordinated reads, of the round",
    )
    parser.add_argument(
        "--no-pdb",
        action="store_true",
        help="print the traceback and the arguments instead of opening a debugger",
    )
    chosen = parser.parse_args(arguments)
    return guarded(program, lambda: replay(chosen))


def _number(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"elements are numbered from 0, got {number}")
    return number


def replay(chosen: argparse.Namespace) -> int:
    """Fetch the task, run it up to the element, and tell what happens."""
    wanted = opened(DispatcherSettings, chosen)
    from zmqdata.client.replaying import fetch_task
    from zmqdata.worker.tasks.pipeline import own_process
    from zmqdata.worker.tasks.replay import TaskReplay

    task = fetch_task(wanted.dispatcher_address, chosen.task, wanted.timeout)
    # Generators of modules are seeded for each task, as in a worker's process.
    own_process()
    found = TaskReplay(task.definition, task.pipeline, task.parts.get).run(chosen.element)
    return tell_replayed(task, found, None if chosen.no_pdb else post_mortem)


def tell_replayed(
    task: FetchedTask,
    found: ReplayedElement,
    debug: Callable[[TracebackType], None] | None,
) -> int:
    """Print what became of an element; return the exit code.

    Args:
        task: the task.
        found: the element.
        debug: called with the traceback if the element failed; None to print the
            arguments of the user's function instead.
    """
    name = f"Element {found.number} of task {task.definition.task} (job {task.job})"
    for line in _notes(found):
        say(printable(line))
    if found.error is None:
        say(printable(f"{name} does not fail here ({platform.node()})."))
        for element in found.elements:
            say(printable(f"  {summary_of(element)}"))
        say(
            "If it fails on a worker, compare packages, files and memory there with those here, "
            "and look for a function that depends on time or on unseeded random numbers."
        )
        return 0
    cause = cause_of(found.error)
    say(printable(f"{name} fails here: {type(cause).__name__}: {text_of(cause)}"))
    for line in "".join(traceback.format_exception(cause)).rstrip().split("\n"):
        say(printable(line))
    if debug is not None and cause.__traceback__ is not None:
        debug(cause.__traceback__)
        return 1
    frame = user_frame(cause.__traceback__)
    if frame is None:
        say("No Python function of yours was running; its arguments are unknown.")
        return 1
    say(printable(f"Arguments of {frame.f_code.co_name}():"))
    for line in arguments_of(frame):
        say(printable(f"  {line}"))
    return 1


def _notes(found: ReplayedElement) -> Iterator[str]:
    if found.began:
        yield f"The pipeline continues from a state before element {found.began}."
    if found.failed_before:
        yield f"Earlier elements fail, too: {reprlib.repr(list(found.failed_before))}."
    if found.left_out:
        newest = found.left_out[-1]
        yield (
            f"{len(found.left_out)} elements are skipped on the way, the last is number "
            f"{newest.number} at {newest.label}: {newest.error}"
        )


def post_mortem(raised: TracebackType) -> None:
    """Open the debugger in the frame that raised."""
    import pdb

    pdb.post_mortem(raised)


def cause_of(error: BaseException) -> BaseException:
    """Return the exception of the user's function that an error of a pipeline stands
    for.

    Example:
        >>> cause = ValueError("bad")
        >>> error = PipelineError("map(f) failed")
        >>> error.__cause__ = cause
        >>> cause_of(error) is cause
        True
    """
    while isinstance(error, PipelineError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def user_frame(raised: TracebackType | None) -> FrameType | None:
    """Return the outermost frame of a traceback that is not zmqdata's own: the function
    that the pipeline has called. None if there is none.
    """
    while raised is not None:
        if not raised.tb_frame.f_code.co_filename.startswith(PACKAGE):
            return raised.tb_frame
        raised = raised.tb_next
    return None


def arguments_of(frame: FrameType) -> Iterator[str]:
    """Yield a line for each argument of the function of a frame.

    Example:
        >>> def function(x, *rest):
        ...     return list(arguments_of(inspect.currentframe()))
        >>> function(1, 2)
        ['x = 1', 'rest = (2,)']
    """
    names, others, options, values = inspect.getargvalues(frame)
    for name in [*names, *filter(None, (others, options))]:
        if name in values:  # the function may have deleted it
            yield f"{name} = {summary_of(values[name])}"


def summary_of(value: Any) -> str:
    """Return a value as a short text: shape and dtype of an array, and the beginning of
    its content.

    Example:
        >>> import numpy as np
        >>> summary_of(np.zeros((2, 3)))
        'ndarray, shape (2, 3), dtype float64: [[0. 0. 0.] [0. 0. 0.]]'
        >>> summary_of("text")
        "'text'"
    """
    try:
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if isinstance(shape, tuple) and shape and dtype is not None:
            shown = f"{type(value).__name__}, shape {shape}, dtype {dtype}: {value!s}"
        else:
            shown = repr(value)
    except Exception as error:  # the boundary to user code
        shown = f"{type(value).__name__}, whose repr fails with {type(error).__name__}"
    text = " ".join(shown.split())
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 3]}..."
