"""Interface of all iterators. The executors are in ``operations``: a class per node,
registered with ``make_iterator``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import singledispatch
from types import GeneratorType
from typing import Any, ClassVar, TypeAlias

import numpy as np

from zmqdata.elements.nesting import field_names, instance_of, tuple_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.iterators.calling import PassedOver
from zmqdata.iterators.context import Context, Namer
from zmqdata.iterators.ownthreads import Place, Strand
from zmqdata.nodes.base import Node

Steps: TypeAlias = "GeneratorType[Any, None, object]"
END = object()
"""Returned by a generator of steps after the last element, and never by one that an
error has ended.
"""


def steps_of(step: Callable[[], Any]) -> Steps:
    """Yield what a function returns until it raises StopIteration; return ``END``
    then.
    """

    def steps() -> Generator[Any, None, object]:
        try:
            while True:
                yield step()
        except StopIteration:
            return END

    return steps()  # type: ignore[return-value]  # the type of all generators


class ElementIterator(ABC):
    """Executor of a node: yields its elements, saves its state, and resumes from it.

    After its end it raises ``StopIteration`` on every call. After a ``PipelineError``
    the next call returns the following element.

    An executor publishes that it runs by ``self._strand.place = self._own_place``: a
    source before it reads, any other after each pull of its input, which has published
    itself meanwhile. An executor that only passes elements on need not.

    Attributes:
        begun: number of parts, such as files, that a source has begun.
    """

    begun = 0
    # No values here: Python 3.11 is slow to read attributes that the class has, too.
    _strand: Strand
    _own_place: Place

    def _publish_in(self, context: Context) -> None:
        """Publish from now on what runs in the strand of a context."""
        self._strand, self._own_place = context.strand, context.seen_at

    @property
    def is_shareable(self) -> bool:
        """True if threads may call ``next`` and ``state`` at the same time."""
        return False

    @property
    def in_part(self) -> bool:
        """True if the part that a source began last is not finished, so that a failure
        concerns a single element.
        """
        return True

    def __iter__(self) -> ElementIterator:
        return self

    @abstractmethod
    def __next__(self) -> Any:
        """Return the next element."""

    def steps(self) -> Steps:
        """Return a generator that yields the next elements and then returns ``END``.

        The interpreter resumes a generator faster than it calls ``next`` of this
        object, and refuses to resume one that is running.
        """
        return steps_of(self.__next__)

    @abstractmethod
    def state(self) -> Any:
        """Return the position, as numbers, texts, bytes, lists and None.

        ``restore`` of an equal iterator continues here.
        """

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Continue where ``state`` was taken. Call it on a new iterator of the same
        node and context.
        """

    def rewind(self, repetition: int) -> bool:
        """Return to the beginning, for another repetition of the same node and context,
        at a fraction of the cost of a new iterator.

        Returns:
            False if it cannot. Its position is undefined then: close it, and create a
            new one.
        """
        return False

    def renew(self, context: Context) -> bool:
        """Return to the beginning, for the context of another nested dataset with the
        same node, see ``rewind``.
        """
        return False

    def pass_part(self, ahead: int) -> None:
        """Skip the rest of a part of a source, which failed in an earlier attempt,
        without reading it.

        Args:
            ahead: offset of the part: 0 is the part being read; 1 is the next part, if
                the current part yields nothing more; and so on.

        Raises:
            PassedOver: the part was skipped.
        """
        raise PassedOver(ahead)

    def current_split(self) -> tuple[int, int] | None:
        """Return the first and last index (exclusive) of the split that the last
        element came from; of a batch, the split of its last row.

        None if it is unknown: without a provider, and behind operations that hold
        elements back, run ahead, or read several sources at a time.
        """
        return None

    def namer(self) -> Namer | None:
        """Return a function that returns the name of the last element, which is the
        same in every reading of the pipeline; None if no element has a name.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most iterators hold no resources
        """Release threads and files. Idempotent."""


class InputIterator(ElementIterator):
    """Base of the iterators over an input: their splits and names are those of the
    input, and their state is that of the input, behind a few values of their own.
    """

    _input: ElementIterator
    _kept: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes whose values its state holds."""

    def state(self) -> Any:
        if not self._kept:
            return self._input.state()
        values = [getattr(self, name) for name in self._kept]
        return [*values, self._input.state()]

    def restore(self, state: Any) -> None:
        if self._kept:
            *values, state = state
            for name, value in zip(self._kept, values, strict=True):
                setattr(self, name, value)
        self._input.restore(state)

    def current_split(self) -> tuple[int, int] | None:
        return self._input.current_split()

    def namer(self) -> Namer | None:
        return self._input.namer()

    def close(self) -> None:
        self._input.close()


class Stackable(ElementIterator):
    """Iterator whose elements are in memory already and can be taken many at a time."""

    @abstractmethod
    def next_stacked(self, count: int) -> tuple[int, Any]:
        """Return between 1 and ``count`` elements, stacked as ``batch`` stacks them:
        their number, and the stack.
        """

    def next_rows(self, count: int) -> list[Any]:
        """Return between 1 and ``count`` elements, as repeated calls of ``next`` would
        return them.
        """
        return rows_of(*self.next_stacked(count))


def rows_of(count: int, stacked: Any) -> list[Any]:
    """Return the elements of a stack. An array shares memory with the other rows only.

    >>> rows_of(2, {"x": np.zeros((2, 1)), "y": (np.ones((2, 1)),)})
    [{'x': array([0.]), 'y': (array([1.]),)}, {'x': array([0.]), 'y': (array([1.]),)}]
    """
    if isinstance(stacked, np.ndarray):
        return list(stacked)
    if isinstance(stacked, RaggedTensor):
        return [stacked[index] for index in range(count)]
    if stacked is None:
        return [None] * count
    names = field_names(type(stacked))
    if names is not None:
        columns = [rows_of(count, getattr(stacked, name)) for name in names]
        return [instance_of(type(stacked), names, row) for row in zip(*columns, strict=True)]
    if not stacked:  # an empty structure
        return [stacked.copy() if isinstance(stacked, dict) else stacked for _ in range(count)]
    parts = stacked.values() if isinstance(stacked, dict) else stacked
    rows = zip(*[rows_of(count, part) for part in parts], strict=True)
    if isinstance(stacked, dict):
        return [dict(zip(stacked, row, strict=True)) for row in rows]
    kind = type(stacked)
    return list(rows) if kind is tuple else [tuple_of(kind, row) for row in rows]


@singledispatch
def make_iterator(node: Node, context: Context) -> ElementIterator:
    """Return an iterator that runs a node, positioned at its beginning.

    Any module can make a new kind of node runnable: apply
    ``@make_iterator.register(TheNode)`` to a class or function that takes
    ``(node, context)``.

    >>> from zmqdata.operations.sources import Range
    >>> [int(number) for number in make_iterator(Range(start=0, stop=3), Context())]
    [0, 1, 2]
    """
    raise TypeError(
        f"No iterator is registered for a {type(node).__name__}: register an iterator with "
        "make_iterator.register, and import the module that does so"
    )
