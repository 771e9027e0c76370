"""Inputs of operations: plain, or marked so that a replay of the task fails where the
first run failed (``deciding``).

The input of an operation that decides is marked: its state names the first decision
that a replay from it needs. Below ``ignore_errors`` every input is marked, because each
failure there is decided where it occurs. An operation in between turns a fault into
other elements, so a fault that did not recur would change what follows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from zmqdata.errors import DataLossError, PipelineError
from zmqdata.iterators.base import ElementIterator, InputIterator, make_iterator
from zmqdata.iterators.calling import PassedOver, is_end
from zmqdata.iterators.context import Context
from zmqdata.iterators.deciding import Decider, Deciding
from zmqdata.nodes.base import Node, Unary


def decider_for(node: Node, context: Context) -> Decider | None:
    """Return the decider of a node that may leave out elements; None if the task is
    never replayed.
    """
    return (
        None if context.deciding is None else Decider(node.label, context.place, context.deciding)
    )


def fault_decider(node: Node, context: Context) -> Decider | None:
    """Return the decider of a node whose failures a later node skips; None if no later
    node skips, or the task is never replayed.
    """
    return decider_for(node, context) if context.forgives else None


class MarkedInput(InputIterator):
    """Input whose state also names the decisions needed to replay from it. Every
    operation that holds elements back has such a state.

    Attributes:
        number: elements pulled so far, failed elements included.
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
        # Take the mark first: a decision made in between then lies behind the state, or
        # the state does not need it.
        return [self._deciding.mark(), self.number, self._input.state()]

    def restore(self, state: Any) -> None:
        _, self.number, inner = state
        self._input.restore(inner)


SLOTS = 16
"""Numbers reserved for the decisions on each element of a source."""
FAR_AHEAD, ALONE, KEPT = SLOTS - 3, SLOTS - 2, SLOTS - 1


class FollowedSource(InputIterator):
    """Source that replays the failures of an earlier attempt: it fails where that
    attempt failed, and nowhere else.

    A disk fault may not recur, so the numbers from ``SLOTS * n`` on record how element
    ``n`` failed. The first numbers mean that a part (a file) ended with the failure,
    and give the offset of that part. The last three mean: the offset was too large to
    record, the element failed alone, the element was delivered.
    """

    _kept = ("_number",)

    def __init__(self, source: ElementIterator, decider: Decider) -> None:
        self._input, self._decider = source, decider
        self._number = 0

    def __next__(self) -> Any:
        source, decider, first = self._input, self._decider, SLOTS * self._number
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
                next(self._input)
            elif how != FAR_AHEAD:
                self._input.pass_part(how)
        except PassedOver:
            how = ALONE
        except (PipelineError, DataLossError, StopIteration) as error:
            if how != ALONE or not self._input.in_part:
                raise self._decider.loss(number, error) from error
        if how != ALONE:
            raise self._decider.loss(
                number, PipelineError("it failed in an earlier attempt and succeeds now")
            )
        self._number = number + 1
        raise PipelineError(
            f"Element {number} could not be read in an earlier attempt of this task"
        )

    def restore(self, state: Any) -> None:
        try:
            super().restore(state)
        except PipelineError as error:
            # Raised by a source that is run again up to its position.
            raise self._decider.loss(self._number, error) from error


def dataset_iterator(node: Node, context: Context) -> ElementIterator:
    """Return an iterator over a node that another iterator reads: an input, or a
    dataset that a function made of an element.
    """
    iterator = make_iterator(node, context)
    if not context.forgives:
        return iterator
    assert context.deciding is not None
    if not node.inputs:
        iterator = FollowedSource(iterator, Decider(node.label, context.place, context.deciding))
    return MarkedInput(iterator, context.deciding)


def input_iterator(node: Node, context: Context, index: int = 0) -> ElementIterator:
    """Return an iterator over an input of a node."""
    source = dataset_iterator(node.inputs[index], context.into(node, index))
    if context.seeder(node) is None:
        return source
    return _marked(source, context)


def marked_input(node: Node, context: Context) -> ElementIterator:
    """Return the input of an operation that decides, or whose elements become datasets
    with operations that decide.

    The input is marked if the task may be replayed.
    """
    return _marked(input_iterator(node, context), context)


def _marked(source: ElementIterator, context: Context) -> ElementIterator:
    if context.deciding is None or isinstance(source, MarkedInput):
        return source
    return MarkedInput(source, context.deciding)


def forgiving_input(node: Node, context: Context) -> ElementIterator:
    """Return the input of an operation that leaves out elements that fail before it."""
    return marked_input(node, context.changed(forgiving=True))


def _seeded(
    function: Callable[..., Any], seed_for: Callable[[int], None], source: MarkedInput
) -> Callable[..., Any]:
    def call_seeded(*arguments: Any) -> Any:
        seed_for(source.number - 1)
        return function(*arguments)

    return call_seeded


def followed(
    node: Node, context: Context, source: ElementIterator, function: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function that fails for exactly the elements that it failed for in an
    earlier attempt, and for which the generators that it holds are seeded.

    Args:
        node: the node that the function belongs to.
        context: context of the node.
        source: input of the node; the function is called with its latest element.
        function: the function to wrap; called at most once for each element.
    """
    decider, seed_for = fault_decider(node, context), context.seeder(node)
    if seed_for is not None and isinstance(source, MarkedInput):
        function = _seeded(function, seed_for, source)
    if decider is None:
        return function
    assert isinstance(source, MarkedInput)

    def follow(*arguments: Any) -> Any:
        return decider.follow(source.number - 1, function, *arguments)

    return follow


class UnaryIterator(InputIterator):
    """Base of the iterators of operations with an input."""

    def __init__(self, node: Unary, context: Context) -> None:
        self._node: Unary = node
        self._publish_in(context)
        self._input = input_iterator(node, context)


class CountingIterator(UnaryIterator):
    """Base of the iterators that count elements."""

    _kept = ("_count",)

    def __init__(self, node: Unary, context: Context, count: int) -> None:
        super().__init__(node, context)
        self._count = count
