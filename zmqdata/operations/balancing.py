"""balance: batches of nearly equal cost for the consumers that read in step. How
elements are dealt is in ``balance_plan``.

Decision 0059.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.ragged import RaggedTensorSpec
from zmqdata.elements.specs import (
    TensorSpec,
    spec_of,
    with_leading_axis,
    with_leading_length,
)
from zmqdata.elements.tensors import as_stackable
from zmqdata.errors import InvalidArgumentError, WrongTypeError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import call, failure
from zmqdata.iterators.context import Context, mixed_seed
from zmqdata.iterators.inference import spec_by_running, spec_of_elements
from zmqdata.iterators.inputs import CatchingIterator, Failed
from zmqdata.iterators.stacking import stack
from zmqdata.iterators.trail import Trail
from zmqdata.iterators.tuning import byte_size
from zmqdata.nodes.base import IN_LABEL, Infer, Unary, known_spec, unless_infinite
from zmqdata.operations.balance_plan import BalanceRules, shuffled, step_costs
from zmqdata.operations.batch import BatchMaker, ragged_axes, ragged_rows
from zmqdata.operations.mapping import Collate
from zmqdata.peeking import shown

MOST_BYTES = 256 << 20
"""Bytes of elements from which on a window ends early."""
MOST_ELEMENTS = 100_000
"""Number of elements from which on a window ends early."""
_MEASURED = 16
"""Every n-th element is measured, and each element as long as they are large."""
_LARGE = 1 << 16
"""Bytes of a large element."""
_MARK_EVERY, _MARKED_STEPS = 32, 4
"""Minimum number of elements, and number of steps, between two noted states."""
_EXACT = 1 << 53
"""Integers below are floats, too."""
_NOT_FULL = 0.99
"""Most share of a window that has less than a step."""
_BEGIN = 1 << 31
"""Bit that marks the first element of a batch in a state."""


@dataclass(frozen=True, kw_only=True)
class Balance(Unary):
    """Deals elements into batches of nearly equal cost, a batch for each consumer."""

    num_consumers: int = field(metadata=IN_LABEL)
    """Number of batches in a step."""
    cost: Callable[..., Any] | str = field(metadata=IN_LABEL)
    """Returns the cost of an element; or the name of a leaf, whose length counts."""
    batch_size: int | None = None
    """Number of elements in a batch; None: ``max_cost`` bounds the batches."""
    max_cost: float | None = None
    """Maximum cost of a batch; None: ``batch_size`` is set."""
    window: int = 16
    """Number of steps that are balanced together."""
    oversize: str = "error"
    """Fate of an element dearer than ``max_cost``: ``"error"``, ``"alone"`` or
    ``"drop"``.
    """
    steps: bool = False
    """True to yield each step as a tuple of batches."""
    drop_remainder: bool = False
    """True to drop the elements at the end that make no full step."""
    seed: int | None = None
    """Seed of the order of steps and batches; None: that of the context."""
    in_lists: bool = False
    """True if a batch is the list of its elements, which ``BalancedCollate`` takes."""
    operation: ClassVar[str] = "balance"
    restoring: ClassVar[str] = "pulls up to two windows of elements again"
    state_growth: ClassVar[str] = "4 bytes for each element held, if max_cost bounds the batches"

    @property
    def rules(self) -> BalanceRules:
        """Rules of dealing the elements."""
        return BalanceRules(self.num_consumers, self.window, self.batch_size, self.max_cost)

    @property
    def state_bytes(self) -> int:
        steps = 0 if self.batch_size is None else self.window + 1
        return 64 + 4 * steps * self.rules.least

    def batches_of(self, count: int) -> int:
        """Return the number of elements that it makes of ``count`` elements, if each
        batch has ``batch_size`` of them.
        """
        full, left = divmod(count, self.rules.least)
        left = 0 if self.drop_remainder else min(left, self.num_consumers)
        return full + (left > 0) if self.steps else full * self.num_consumers + left

    @property
    def cardinality(self) -> int:
        count = unless_infinite(self.input)
        known = self.input.cardinality
        if known < 0 or self.batch_size is None:
            return 0 if known == 0 else count
        return self.batches_of(known)

    @property
    def batch_rows(self) -> int:
        within = self.input.batch_rows
        return (self.batch_size or 0) * (1 if within is None else within)

    def spec(self, infer: Infer) -> Any:
        if self.in_lists or known_spec(self.input) is None:
            return None
        length = self.batch_size if self.drop_remainder else None

        def batched(leaf: Any) -> Any:
            rank = ragged_axes(leaf, True)
            if not rank:
                return with_leading_axis(leaf, length)
            return RaggedTensorSpec((length, *leaf.shape), leaf.dtype, rank, "int64")

        batch = map_structure(batched, infer(self.input))
        return (batch,) * self.num_consumers if self.steps else batch


@dataclass(frozen=True, kw_only=True)
class BalancedCollate(Collate):
    """Calls a function with the list of elements of each batch that ``Balance``
    yields.
    """

    operation: ClassVar[str] = "balance"
    spec_option: ClassVar[str] = ""


@dataclass(frozen=True)
class OfEach:
    """Function that makes the batches of a step, given the lists of their elements."""

    function: Callable[[list[Any]], Any]
    """Makes a batch of the list of its elements."""

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, *batches: list[Any]) -> Any:
        """Return the batches of a step."""
        return tuple(map(self.function, batches))


@dataclass(frozen=True)
class LengthOf:
    """Cost of an element by the length of a leaf."""

    name: str
    """Name of the leaf."""

    def __call__(self, element: Any) -> int:
        """Return the length.

        Raises:
            WrongTypeError: the element has no such leaf, or it has no length.
        """
        try:
            leaf = element[self.name] if type(element) is dict else getattr(element, self.name)
            return len(leaf)
        except (KeyError, AttributeError, TypeError):
            raise WrongTypeError(
                f"the cost is the length of the leaf {self.name!r}, and the element is "
                f"{spec_of(element)}. Name a leaf of a dict, with an axis, or pass a function "
                "as `cost`"
            ) from None


def as_cost(value: Any) -> float:
    """Return what a cost function returned, as a float.

    Raises:
        WrongTypeError: it is not a finite number of at least 0.

    >>> as_cost(np.int32(7))
    7.0
    """
    given = value
    if type(value) is not int and type(value) is not float:
        value = as_stackable(value)
        is_number = isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "iuf"
        value = float(value) if is_number and value.shape == () else math.nan
    try:
        cost = float(value)
    except OverflowError:
        cost = math.inf
    if 0 <= cost < math.inf:
        return cost
    raise WrongTypeError(
        f"Invalid `cost`: cost must return one finite number of at least 0, it returned "
        f"{shown(given):.100} of type {type(given).__name__}. Convert it with float()"
    )


Held: TypeAlias = "tuple[int, Any, float]"
"""An element with its number in the input and its cost."""


class Collection:
    """The elements of the window that is being collected.

    Args:
        rules: rules of dealing them.

    Attributes:
        elements: the elements.
        share: share of the window that they fill, 1 if it has all of its elements or
            ends early.
        first: number of the oldest of them.
    """

    def __init__(self, rules: BalanceRules) -> None:
        self._least, self._most, self._whole = rules.least, rules.max_cost, rules.whole
        self.elements: list[Held] = []
        self.share = 0.0
        self.first = sys.maxsize
        self._cost = self._bytes = 0.0
        self._size = 0

    def add(self, held: Held) -> None:
        """Add an element."""
        elements, most = self.elements, self._most
        if self._size >= _LARGE or not len(elements) % _MEASURED:
            self._size = byte_size(held[1])
        elements.append(held)
        count = len(elements)
        if held[0] < self.first:
            self.first = held[0]
        self._bytes += self._size
        if most is None:
            share = count / self._whole
        else:
            self._cost += min(held[2], most)
            share = self._cost / self._whole
        if count < self._least:
            share = min(share, _NOT_FULL)
        elif self._bytes >= MOST_BYTES or count >= MOST_ELEMENTS:
            share = 1.0
        self.share = share


@make_iterator.register(Balance)
class BalanceIterator(ElementIterator):
    """Holds the batches of a window that are still to come, and collects the elements
    of the next window while they leave.

    The state holds the numbers of the elements, which are pulled again. The cost
    function is called again for elements of the window in collection.

    A failed element takes the place of a batch, whose elements are dealt once more
    later. The batches behind it thus stay in their steps.
    """

    def __init__(self, node: Balance, context: Context) -> None:
        self._node = node
        self._publish_in(context)
        self._counts = context.counts
        self._rules = rules = node.rules
        if context.inferring:
            consumers = node.num_consumers if node.steps else 1
            self._rules = replace(rules, consumers=consumers, window=1)
        every = max(_MARK_EVERY, min(_MARKED_STEPS, node.window) * rules.least)
        self._trail = Trail(CatchingIterator(node, context), every, self._oldest)
        self._cost = LengthOf(node.cost) if isinstance(node.cost, str) else partial(call, node.cost)
        self._most = math.inf if node.max_cost is None else node.max_cost
        self._maker = BatchMaker(node, context)
        known = known_spec(node.input)
        self._ranks = (
            None if known is None else map_structure(lambda leaf: ragged_axes(leaf, True), known)
        )
        self._begin(context)

    def _begin(self, context: Context) -> None:
        self._context = context
        self._planned: deque[list[Held]] = deque()
        self._count = 0  # batches of the present window, also those that have left
        self._first = sys.maxsize  # number of its oldest element
        self._next = Collection(self._rules)
        self._failed: deque[Held] = deque()
        self._failing = 0  # failures that make up the rest of a step
        self._windows = 0  # windows planned so far
        self._waiting = 0  # first elements in collection that an earlier window left
        self._ended = False

    def _oldest(self) -> int:
        failed = self._failed[0][0] if self._failed else sys.maxsize
        first = self._first if self._planned else sys.maxsize
        return min(first, self._next.first, failed, self._trail.pulled)

    def __next__(self) -> Any:
        self._collect()
        width = self._rules.consumers
        if self._failed:
            self._raise_in_turn(1 if self._node.steps else width)
        if not self._planned:
            self._finish()
        if not self._node.steps:
            return self._made(self._planned.popleft())
        parts = [self._planned.popleft() for _ in range(min(width, len(self._planned)))]
        return tuple(map(self._made, parts))

    def _raise_in_turn(self, width: int) -> None:
        """Raise a failure if it may take a place now: that of a batch, or in a step of
        failures alone.
        """
        if not self._planned and not self._failing:
            self._failing = min(width, len(self._failed))
        if self._planned and not self._node.steps:
            for held in self._planned.popleft():
                self._keep(*held)
        elif self._failing:
            self._failing -= 1
        failed: Failed = self._failed.popleft()[1]
        raise failed.error

    def rewind(self, repetition: int) -> bool:
        self._begin(self._context.repeated(repetition))
        return self._trail.rewind(repetition)

    # --- collecting

    def _collect(self) -> None:
        """Pull as many elements of the next window as its share of what has left of the
        present window; if nothing is left of that, plan the next window.
        """
        planned, most = self._planned, self._rules.consumers
        due = (self._count - len(planned)) / self._count if planned else 1.0
        while not self._failing:
            self._pull(due, 1 if planned else most)
            if len(self._failed) >= (1 if planned else most):
                return
            if not planned:
                self._plan()
            if planned or self._ended:
                return
            self._pull(2.0, most, 1)  # what was collected made no step

    def _pull(self, due: float, most: int, count: int = sys.maxsize) -> None:
        """Collect elements up to a share of the next window.

        Args:
            due: the share.
            most: number of failures after which to end.
            count: maximum number of elements.
        """
        trail, following, failed = self._trail, self._next, self._failed
        pull, keep = trail.pull, self._keep
        while following.share < due and count and not self._ended and len(failed) < most:
            number = trail.pulled
            try:
                element = pull()
            except StopIteration:
                self._ended = True
                break
            keep(number, element)
            count -= 1
        self._strand.place = self._own_place

    def _keep(self, number: int, element: Any, cost: float = -1.0) -> None:
        """Collect an element, or its failure.

        Args:
            number: number of the element.
            element: the element.
            cost: its cost; -1: not known.
        """
        if type(element) is Failed:
            self._failed.append((number, element, 0.0))
            return
        try:
            if cost < 0:
                cost = self._cost(element)
                if type(cost) is not int or not 0 <= cost < _EXACT:
                    cost = as_cost(cost)
            if self._most < cost and self._is_too_dear(cost):
                return
        except FAILURES as error:
            raised = failure(self._node, error, f"element {number}")
            raised.__cause__ = error
            self._failed.append((number, Failed(raised), 0.0))
            return
        self._next.add((number, element, cost))

    def _is_too_dear(self, cost: float) -> bool:
        """Return True if an element above ``max_cost`` is left out, and count it.

        Raises:
            InvalidArgumentError: it is an error.
        """
        if self._node.oversize == "error":
            raise InvalidArgumentError(
                f"it costs {cost:g}, and max_cost={self._most:g} bounds a batch. Pass a larger "
                "`max_cost`, oversize='alone' for a batch of its own, or oversize='drop' to leave "
                "such elements out"
            )
        is_dropped = self._node.oversize == "drop"
        self._counts.add("balance/dropped", float(is_dropped))
        return is_dropped

    def _plan(self) -> None:
        """Deal the collected elements, as far as they make whole steps."""
        held, node = self._next.elements, self._node
        if not held or (self._ended and node.drop_remainder and len(held) < self._rules.least):
            return
        costs = np.array([cost for _, _, cost in held])
        plan = self._rules.plan(costs, self._waiting, is_last=self._ended)
        if not plan.steps:
            return
        self._first = self._next.first
        self._next = Collection(self._rules)
        self._waiting = len(plan.left)
        for place in plan.left:
            self._next.add(held[place])
        steps = shuffled(plan.steps, self._seed())
        self._windows += 1
        self._planned.extend([held[place] for place in batch] for step in steps for batch in step)
        self._count = len(self._planned)
        found = step_costs(costs, steps)
        for name, amount in found._asdict().items():
            self._counts.add(f"balance/{name}", amount)
        if node.max_cost is not None:
            filled = [cost for cost in map(_cost_of, self._planned) if cost <= node.max_cost]
            self._counts.add("balance/filled", sum(filled))
            self._counts.add("balance/room", len(filled) * node.max_cost)

    def _seed(self) -> int:
        context, node = self._context, self._node
        base = (context.seed, *context.path) if node.seed is None else (node.seed,)
        return mixed_seed(*base, context.turn, context.task, self._windows)

    def _finish(self) -> None:
        """Let the elements that make no step leave, each as a batch, or drop them.

        Raises:
            StopIteration: all elements have left.
        """
        rest, self._next = self._next, Collection(self._rules)
        if self._node.drop_remainder and rest.elements:
            self._counts.add("balance/dropped", len(rest.elements))
        elif rest.elements:
            self._first = rest.first
            self._planned.extend([held] for held in rest.elements)
            self._count = len(self._planned)
            return
        raise StopIteration

    # --- batches

    def _made(self, batch: list[Held]) -> Any:
        elements = [element for _, element, _ in batch]
        if self._node.in_lists:
            return elements
        numbers = ", ".join(str(number) for number, _, _ in batch[:8])
        more = ", ..." if len(batch) > 8 else ""
        return self._maker.made(elements, self._join, f"the batch of elements {numbers}{more}")

    def _join(self, elements: list[Any]) -> Any:
        return stack(elements, "", self._join_leaves, self._ranks)

    def _join_leaves(self, elements: Sequence[Any], place: str, rank: int | None) -> Any:
        named = place == f"[{self._node.cost!r}]"

        def rank_of(arrays: Sequence[Any]) -> int:
            return max(_differing_axes(arrays), int(named)) if rank is None else rank

        return ragged_rows(elements, place, rank_of, np.dtype(np.int64))

    # --- states

    def state(self) -> Any:
        trail = self._trail.state()
        first = trail[0]
        planned = [
            number - first | (0 if at else _BEGIN)
            for batch in self._planned
            for at, (number, _, _) in enumerate(batch)
        ]
        return [
            trail,
            _packed(planned),
            _packed([number - first for number, _, _ in self._next.elements]),
            _packed([number - first for number, _, _ in self._failed]),
            [self._count, self._failing, self._windows, self._waiting],
            self._ended,
        ]

    def restore(self, state: Any) -> None:
        trail, planned, collected, failed, numbers, self._ended = state
        first = trail[0]
        batches: list[list[int]] = []
        for packed in np.frombuffer(planned, "<u4").tolist():
            if packed & _BEGIN:
                batches.append([])
            batches[-1].append(first + (packed & ~_BEGIN))
        waiting = [first + offset for offset in np.frombuffer(collected, "<u4").tolist()]
        broken = [first + offset for offset in np.frombuffer(failed, "<u4").tolist()]
        self._count, self._failing, self._windows, self._waiting = numbers
        every = {number for batch in batches for number in batch}
        found = self._trail.restore(trail, every.union(waiting, broken))
        self._planned.extend([(number, found[number], -1.0) for number in one] for one in batches)
        self._first = min(every, default=sys.maxsize)
        for number in (*waiting, *broken):
            self._keep(number, found[number])

    def close(self) -> None:
        self._trail.source.close()


def _packed(numbers: list[int]) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def _cost_of(batch: list[Held]) -> float:
    return sum(cost for _, _, cost in batch)


def _differing_axes(arrays: Sequence[Any]) -> int:
    """Return the number of leading axes up to the last that differs between arrays."""
    shapes = {getattr(array, "shape", ()) for array in arrays}
    if len(shapes) == 1 or len({len(shape) for shape in shapes}) > 1:
        return 0
    lengths = [one.pop() if len(one) == 1 else None for one in map(set, zip(*shapes, strict=True))]
    return ragged_axes(TensorSpec(tuple(lengths)), True)


@spec_by_running.register
def _(node: Balance, past_failures: bool) -> Any:
    return with_leading_length(spec_of_elements(node, past_failures), None)
