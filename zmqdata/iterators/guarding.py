"""Calls of user functions that may fail: retries, and skipped elements, which are
listed in the quarantine.

Threads belong to ``crew``; the executors choose the elements to call for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

from zmqdata.errors import PipelineError
from zmqdata.failures.exceptions import FAILURES, formatted, text_of
from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.calling import failure, is_end
from zmqdata.iterators.callsites import watched
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.deciding import PAUSES, Decider
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inputs import MarkedInput, decider_for, fault_decider, input_iterator
from zmqdata.iterators.naming import NamingIterator, carrying, named_call
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.nodes.base import Applying, Node

Outcome = tuple[Any, "BaseException | None"]
"""Result of a call: an element, or an exception. A ``LeftOut`` in place of the element
means that the element was skipped.
"""


def skips(node: Node) -> bool:
    """Return True if a node leaves out elements that fail."""
    return getattr(node, "on_error", "raise") == "skip"


def guarded_call(
    node: Applying, context: Context, invoke: Callable[[int, Any], Any] | None = None
) -> Callable[[int, Any], Outcome]:
    """Return a function from an element's number and the element to the outcome of the
    map. It never raises.

    Args:
        node: the map.
        context: its context.
        invoke: calls the user's function, with number and element; None: the function
            of the map, with the element.
    """
    label, call_user = node.label, invoke or _plain_call(node)
    made = ElementMaker(node, context).element
    attempts = 1 + getattr(node, "retries", 0)
    numbered = getattr(node, "numbered", "")
    skipping = skips(node)

    def run(number: int, element: Any) -> Outcome:
        failed: BaseException | None = None
        for _ in range(attempts):
            try:
                return made(call_user(number, element)), None
            except FAILURES as error:
                failed = error
            except BaseException as error:
                # Such an error ends the pipeline, whatever ``on_error`` says.
                return None, error
        assert failed is not None
        raised = failure(node, failed, f"{numbered} {number}" if numbered else "")
        raised.__cause__ = failed
        if not skipping:
            return None, raised
        reason = f"{type(failed).__name__}: {text_of(failed)}"
        return LeftOut(number, label, reason, formatted(failed), place=context.place), raised

    return run


class Budget:
    """Counts the elements left out, and adds them to the context's quarantine."""

    def __init__(self, node: Node, context: Context) -> None:
        self._most: int | None = getattr(node, "max_errors", None)
        self._quarantine = context.quarantine
        self.spent = 0

    def leave_out(self, left_out: LeftOut, raised: BaseException) -> None:
        """Record an element as left out.

        Raises:
            PipelineError: the number exceeds ``max_errors``.
        """
        self._quarantine.append(left_out)
        if self._most is not None and self.spent >= self._most:
            raise PipelineError(
                f"{raised}\n{self._most} elements were left out before, and max_errors allows no "
                "more: see iterator.quarantine for the failures",
                node=left_out.node,
            ) from raised.__cause__
        self.spent += 1


class _Placed(NamedTuple):
    """Element with its split."""

    element: Any
    """The element."""
    split: tuple[int, int] | None
    """Split that the element came from, if known."""


class _PlacingInput(MarkedInput):
    """Input that attaches to each element its split, since a thread may ask for it too
    late.
    """

    def __next__(self) -> Any:
        return _Placed(next(self._input), self._input.current_split())


def _plain_call(node: Applying) -> Callable[[int, Any], Any]:
    function = node.function

    def call_user(number: int, element: Any) -> Any:
        return function(*element) if type(element) is tuple else function(element)

    return call_user


class Guarded(NamedTuple):
    """Map that threads run: what they pull from and call."""

    source: ElementIterator
    """Input that threads pull from."""
    call: Callable[[int, Any], Outcome]
    """Function that they call."""
    decider: Decider | None
    """Decider of the elements that are left out."""
    named: bool
    """True if results are pairs of an element and its name."""


def guarded_source(
    node: Applying, context: Context, draw: Callable[[Name, Any], Any] | None = None
) -> Guarded:
    """Return a map for threads. Elements that are left out know their split.

    Args:
        node: the map.
        context: context of the map.
        draw: calls the user's function, with the name of the element and the element;
            None: the function of the map, with the element.
    """
    decider = guarding_decider(node, context)
    source = carrying(input_iterator(node, context), context)
    named = isinstance(source, NamingIterator)
    invoke = None if draw is None else _drawing(draw, context, named)
    run = watched(node, context, seeded(node, context, guarded_call(node, context, invoke)))
    if named:
        run = named_call(run, takes_names=draw is not None)
    if decider is None:
        return Guarded(source, run, None, named)
    follow = following(node, run, decider, poisoned(context))

    def run_placed(number: int, placed: _Placed) -> Outcome:
        value, raised = follow(number, placed.element)
        return (replace(value, split=placed.split) if isinstance(value, LeftOut) else value), raised

    assert context.deciding is not None
    return Guarded(_PlacingInput(source, context.deciding), run_placed, decider, named)


def _drawing(
    draw: Callable[[Name, Any], Any], context: Context, named: bool
) -> Callable[[int, Any], Any]:
    """Return the function to invoke for elements, or for pairs of an element and its
    name.
    """
    if named:
        return lambda number, pair: draw(pair[1] or context.counted(number), pair[0])
    return lambda number, element: draw(context.counted(number), element)


def seeded(
    node: Applying, context: Context, run: Callable[[int, Any], Outcome]
) -> Callable[[int, Any], Outcome]:
    """Return ``run``; the generators that the function holds are seeded for it, once
    for all retries of an element.
    """
    seed_for = context.seeder(node)
    if seed_for is None:
        return run

    def run_seeded(number: int, element: Any) -> Outcome:
        seed_for(number)
        return run(number, element)

    return run_seeded


def guarding_decider(node: Node, context: Context) -> Decider | None:
    """Return the decider of a node that leaves out failures, or whose failures a later
    node leaves out; else None.
    """
    return decider_for(node, context) if skips(node) else fault_decider(node, context)


def poisoned(context: Context) -> Collection[int]:
    """Return the numbers of the elements that are left out of a node because they
    killed their process.
    """
    return () if context.watch is None else context.watch.poisoned.get(context.place, ())


def following(
    node: Node,
    run: Callable[[int, Any], Outcome],
    decider: Decider,
    poisoned: Collection[int] = (),
) -> Callable[[int, Any], Outcome]:
    """Wrap ``run`` to follow earlier decisions: an element that failed is not called
    for, and an element that was delivered must not fail.

    Args:
        node: the operation.
        run: makes an outcome from an element's number and the element.
        decider: knows which elements failed.
        poisoned: numbers that ``run`` leaves out: they count as not failed, whatever
            the node does with failures.
    """
    skipping = skips(node)

    def fails(outcome: Outcome) -> bool:
        value, raised = outcome
        return isinstance(value, LeftOut) or (
            not skipping and isinstance(raised, Exception) and not is_end(raised)
        )

    def follow(number: int, element: Any) -> Outcome:
        if decider.is_left_out(number) and (skipping or number not in poisoned):
            text = "it was left out in an earlier attempt of this task"
            raised = PipelineError(f"{node.label}: {text}", node=node.label)
            if not skipping:
                return None, raised
            return LeftOut(number, node.label, text, "", place=decider.place), raised
        outcome = run(number, element)
        if decider.was_kept(number):
            for seconds in PAUSES:
                if not fails(outcome):
                    return outcome
                decider.pause(seconds)
                outcome = run(number, element)
            if fails(outcome):
                return None, decider.loss(number, outcome[1])
        return outcome

    return follow
