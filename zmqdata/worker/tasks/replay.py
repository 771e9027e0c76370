"""A task that a person runs again in a process of their own, up to one element.

The element is made as a worker makes it: from the same splits, seeds, states and
decisions. Nothing is sent.

Protocol 3.18.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from zmqdata.errors import FailedPreconditionError, NotFoundError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.deciding import Deciding
from zmqdata.messages import LeftOutElement, TaskDefinition, TaskState
from zmqdata.pipelines import FindPart
from zmqdata.splits import Split
from zmqdata.worker.processes.watch import WatchFile
from zmqdata.worker.tasks.generators import TaskGenerators
from zmqdata.worker.tasks.ledger import LedgerProvider, Stopped
from zmqdata.worker.tasks.output import LaneBlock
from zmqdata.worker.tasks.pipeline import opened
from zmqdata.worker.tasks.preparing import prepared
from zmqdata.worker.tasks.quarantine import TaskQuarantine
from zmqdata.worker.tasks.states import counting_of, restore
from zmqdata.worker.tasks.watch import TaskWatch


@dataclass(frozen=True)
class ReplayedElement:
    """An element that was made again, or its error."""

    number: int
    """Number of the element, or of the round, within its task."""
    began: int
    """Number of the element at which the pipeline began."""
    elements: tuple[Any, ...] = ()
    """The element; of a task with numbered consumers, one element for each."""
    error: BaseException | None = None
    """The error of the first of them that failed; None if none failed."""
    failed_before: tuple[int, ...] = ()
    """Numbers of earlier elements that failed."""
    left_out: tuple[LeftOutElement, ...] = field(default=(), repr=False)
    """Elements that operations skipped on the way."""


def nearest_state(definition: TaskDefinition, number: int) -> TaskState | None:
    """Return the newest state from which an element can be made; None to begin at the
    beginning.

    Raises:
        FailedPreconditionError: the dispatcher has forgotten what it takes.
    """
    before = [state for state in definition.states if state.number <= number]
    if before:
        return before[-1]
    if any(definition.bases):
        least = min((state.number for state in definition.states), default=None)
        rest = (
            "It has none of its elements left."
            if least is None
            else f"Element {least} is the first that can be made again."
        )
        raise FailedPreconditionError(
            f"Element {number} of task {definition.task} cannot be made again: it was delivered, "
            f"and the dispatcher has forgotten its splits. {rest}"
        )
    return None


def _pause(seconds: float) -> None:
    """Wait before an element is made once more. Nothing ends the wait early, because a
    person can interrupt the process.
    """
    threading.Event().wait(seconds)


class TaskReplay:
    """Makes an element of a task again, in this process.

    Args:
        definition: lineage of the task.
        pipeline: the packed pipeline; its digest is checked.
        find_part: returns the content of a part of the pipeline by its digest.

    Raises:
        FailedPreconditionError: the pipeline cannot be opened here; the text says why.
    """

    def __init__(
        self, definition: TaskDefinition, pipeline: bytes | memoryview, find_part: FindPart
    ) -> None:
        self._definition = definition
        self._whole = opened(pipeline, definition, find_part, "`zmqdata replay`")
        self._lanes = definition.job.num_consumers or 1

    def run(self, number: int) -> ReplayedElement:
        """Make the elements from the nearest state on, up to one element.

        Args:
            number: number of the element within the task; of a task with numbered
                consumers, of the round.

        Raises:
            NotFoundError: the task ends before that element.
            FailedPreconditionError: the dispatcher has not handed out the splits that
                it takes, or has forgotten them.
        """
        task = self._definition
        state = nearest_state(task, number)
        left_out: list[LeftOutElement] = []
        quarantine = TaskQuarantine(task, left_out.append)
        deciding = Deciding(task.first_decision, task.decisions, _pause)
        ledgers = [self._ledger(source, entries) for source, entries in enumerate(task.ledger)]
        watch = TaskWatch(WatchFile(), task)
        made = prepared(self._whole, task, ledgers, quarantine, watch, deciding)
        deciding.learns = False
        began, counting = (0, None) if state is None else (state.number, counting_of(state))
        made.generators.begin(began, counting)
        iterator = make_iterator(made.node, made.context)
        try:
            if state is not None:
                deciding.leap(state.decisions)
                restore(iterator, state)
            elements, error, failed = self._advance(iterator, made.generators, began, number)
        finally:
            iterator.close()
            watch.end()
        return ReplayedElement(number, began, elements, error, failed, tuple(left_out))

    def _ledger(self, source: int, entries: Sequence[Split]) -> LedgerProvider:
        """Return the splits of a source. Once they are used up, its reader gets no
        further split, because the dispatcher has assigned none.
        """

        def want(repetition: int, have: int, waiting: bool, pace: float) -> None:
            if waiting:
                ledger.stop()

        bases = self._definition.bases
        ledger = LedgerProvider(entries, want, source=source, base=bases[source] if bases else 0)
        return ledger

    def _advance(
        self, iterator: ElementIterator, generators: TaskGenerators, began: int, number: int
    ) -> tuple[tuple[Any, ...], BaseException | None, tuple[int, ...]]:
        failed: list[int] = []
        elements: list[Any] = []
        for at in range(began, number + 1):
            elements.clear()
            for _ in range(self._lanes):
                try:
                    element = self._next(iterator, generators, at)
                    if at == number:
                        self._pack(element)
                except (StopIteration, Stopped) as end:
                    raise self._ended(at, number, end) from None
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # the boundary to user code, as on a worker
                    if at == number:
                        return (), error, tuple(failed)
                    failed.append(at)
                else:
                    elements.append(element)
        return tuple(elements), None, tuple(dict.fromkeys(failed))

    @staticmethod
    def _next(iterator: ElementIterator, generators: TaskGenerators, at: int) -> Any:
        element = next(iterator)
        if at >= generators.due:
            generators.look(at)
        return element

    def _pack(self, element: Any) -> None:
        """Put the element into a block, as a worker does to send it: an object in it
        may be impossible to pickle.
        """
        builder = LaneBlock(0, self._definition).builder
        if not builder.add(element, describe=False):
            described: Any = builder.describe(element)
            builder.add_described(described)

    def _ended(self, at: int, number: int, end: Exception) -> Exception:
        task = self._definition.task
        if isinstance(end, Stopped):
            return FailedPreconditionError(
                f"Element {number} of task {task} cannot be made: the splits that the dispatcher "
                f"has handed out to the task end after element {at - 1}. Is the number right?"
            )
        return NotFoundError(
            f"Task {task} has no element {number}: it ends here after {at} elements, which are "
            "numbered from 0. Is the number right?"
        )
