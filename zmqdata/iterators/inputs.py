"""The inputs of operations: plain, or such that the same fails when a task is made
again (``deciding``).

An operation that decides has a marked input: its state says which decisions lie behind
it. Below ``ignore_errors`` all inputs are marked, as everything that fails there is
decided where it fails: what operations in between make of a fault would be other
elements if it did not come again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NoReturn

from zmqdata.errors import DataLossError, PipelineError
from zmqdata.iterators.base import Context, ElementIterator, PassedOver, is_end, make_iterator
from zmqdata.iterators.deciding import Decider, Deciding
from zmqdata.nodes import Node


def decider_for(node: Node, context: Context) -> Decider | None:
    """Who decides for a node that may pass over elements; None where nobody makes them
    again.
    """
    return (
        None if context.deciding is None else Decider(node.label, context.place, context.deciding)
    )


def fault_decider(node: Node, context: Context) -> Decider | None:
    """Who decides for a node that raises what is left out further on; None where
    nothing is, or nobody follows.
    """
    return decider_for(node, context) if context.forgives else None


class MarkedInput(ElementIterator):
    """An input whose state says besides which decisions lie behind it. Whatever holds
    back what came, has such a state.

    Attributes:
        number: how many came so far. One that fails counts, too.
    """

    def __init__(self, source: ElementIterator, deciding: Deciding) -> None:
        self._input = source
        self._deciding = deciding
        self.number = 0

    def __next__(self) -> Any:
        try:
            element = next(self._input)
        except Exception as error:
            self.number += not is_end(error)
            raise
        self.number += 1
        return element

    def state(self) -> Any:
        # In this order: what is decided in between lies behind the state, or is needed
        # for nothing.
        return [self._deciding.mark(), self.number, self._input.state()]

    def restore(self, state: Any) -> None:
        _, self.number, inner = state
        self._input.restore(inner)

    def current_split(self) -> tuple[int, int] | None:
        return self._input.current_split()

    def close(self) -> None:
        self._input.close()


SLOTS = 16
"""Of the numbers under which it is decided on each element of a source."""
FAR_AHEAD, ALONE, KEPT = SLOTS - 3, SLOTS - 2, SLOTS - 1


class FollowedSource(ElementIterator):
    """A source that fails where it failed before, and nowhere else: a fault of a disk
    need not come again.

    How element ``n`` failed is told by the number from ``SLOTS * n`` on: the first ones
    stand for a part (a file) that ended with it, and how many parts ahead that was
    begun; then come those that were too far ahead to be told, an element that failed
    alone, and one that came.
    """

    def __init__(self, source: ElementIterator, decider: Decider) -> None:
        self._source, self._decider = source, decider
        self._number = 0

    def __next__(self) -> Any:
        source, decider, first = self._source, self._decider, SLOTS * self._number
        failed = decider.first_left_out(first, first + KEPT)
        if failed is not None:
            self._fail_again(failed)
        begun = source.begun
        try:
            element = next(source)
        except StopIteration as error:
            if decider.was_kept(first + KEPT):
                raise decider.loss(self._number, error) from None
            raise
        except (PipelineError, DataLossError) as error:
            if is_end(error):
                raise
            if decider.was_kept(first + KEPT):
                raise decider.loss(self._number, error) from error
            self._number += 1
            decider.leave_out(
                first + (ALONE if source.in_part else min(source.begun - begun, FAR_AHEAD))
            )
            raise
        self._number += 1
        decider.keep(first + KEPT)
        return element

    def _fail_again(self, failed: int) -> NoReturn:
        number, how = divmod(failed, SLOTS)
        self._decider.leave_out(failed)
        try:
            if how == ALONE:
                next(self._source)
            elif how != FAR_AHEAD:
                self._source.pass_part(how)
        except PassedOver:
            how = ALONE
        except (PipelineError, DataLossError, StopIteration) as error:
            if how != ALONE or not self._source.in_part:
                raise self._decider.loss(number, error) from error
        if how != ALONE:
            raise self._decider.loss(number, PipelineError("it failed, and now comes"))
        self._number = number + 1
        raise PipelineError(f"element {number} could not be read when this task was made before")

    def state(self) -> Any:
        return [self._number, self._source.state()]

    def restore(self, state: Any) -> None:
        self._number, inner = state
        try:
            self._source.restore(inner)
        except PipelineError as error:  # of one that runs again up to its place
            raise self._decider.loss(self._number, error) from error

    def current_split(self) -> tuple[int, int] | None:
        return self._source.current_split()

    def close(self) -> None:
        self._source.close()


def dataset_iterator(node: Node, context: Context) -> ElementIterator:
    """An iterator over a node from which somebody reads: an input, or a dataset that a
    function made of an element.
    """
    iterator = make_iterator(node, context)
    if not context.forgives:
        return iterator
    assert context.deciding is not None
    if not node.inputs:
        iterator = FollowedSource(iterator, Decider(node.label, context.place, context.deciding))
    return MarkedInput(iterator, context.deciding)


def input_iterator(node: Node, context: Context, index: int = 0) -> ElementIterator:
    """An iterator over one input of a node."""
    return dataset_iterator(node.inputs[index], context.into(node, index))


def marked_input(node: Node, context: Context) -> ElementIterator:
    """The input of an operation that decides, or of whose elements datasets are made in
    which others do.

    It is marked where somebody may make its elements again.
    """
    source, deciding = input_iterator(node, context), context.deciding
    return (
        source
        if deciding is None or isinstance(source, MarkedInput)
        else MarkedInput(source, deciding)
    )


def forgiving_input(node: Node, context: Context) -> ElementIterator:
    """The input of an operation that leaves out what fails in front of it."""
    return marked_input(node, replace(context, forgiving=True))


def followed(
    node: Node, context: Context, source: ElementIterator, function: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that is called with what has just come from an input: it fails for
    what it failed for before.

    Args:
        node: whose function it is.
        context: that of the node.
        source: its input.
        function: called once for each element at most.
    """
    decider = fault_decider(node, context)
    if decider is None:
        return function
    assert isinstance(source, MarkedInput)

    def follow(*arguments: Any) -> Any:
        return decider.follow(source.number - 1, function, *arguments)

    return follow
