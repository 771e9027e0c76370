"""balance: batches of nearly equal cost for the consumers that read in step. How
elements are dealt is in ``balance_plan``.

Decision 0059.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.ragged import RaggedTensorSpec
from zmqdata.elements.specs import (
    TensorSpec,
    with_leading_axis,
    with_leading_length,
)
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import CALLED_FOR, call, failure, is_end
from zmqdata.iterators.context import Context, mixed_seed
from zmqdata.iterators.inference import spec_by_running, spec_of_elements
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.stacking import stack
from zmqdata.iterators.trail import Again, Trail
from zmqdata.iterators.tuning import byte_size
from zmqdata.nodes.base import IN_LABEL, Infer, Unary, known_spec, unless_infinite
from zmqdata.operations.balance_plan import (
    MOST_ELEMENTS,
    BalanceRules,
    Batch,
    Collection,
    LengthOf,
    are_costs,
    as_cost,
    shuffled,
    step_costs,
)
from zmqdata.operations.batch import BatchMaker, ragged_axes, ragged_rows
from zmqdata.operations.mapping import Collate

_MARK_EVERY, _MARKED_STEPS = 32, 4
"""Minimum number of elements, and number of steps, between two noted states."""
_MOST_NAMED = 32
"""Number of elements of a batch that an error names."""
_INFERRED = 4
"""Number of batches from which an unknown spec is inferred."""
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
        if self.batch_size is None:
            return 64
        step = self.rules.least
        return 64 + 4 * (step + max(step, min(MOST_ELEMENTS, self.window * step)))

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
    numbered: ClassVar[str] = ""


class Dealt(list[Any]):
    """Elements of a batch.

    Attributes:
        name: names the batch by the numbers of its elements.
    """

    name = ""


@dataclass(frozen=True)
class OfEach:
    """Function that makes a batch, or the batches of a step, of their elements. Its
    errors name the elements.
    """

    function: Callable[[list[Any]], Any]
    """Makes a batch of the list of its elements."""
    steps: bool
    """True to make a tuple of batches."""

    @property
    def __name__(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, *batches: Dealt) -> Any:
        """Return the batch, or the batches of a step."""
        made = [*map(self._made, batches)]
        return tuple(made) if self.steps else made[0]

    def _made(self, batch: Dealt) -> Any:
        try:
            return self.function([*batch])
        except FAILURES as error:
            with suppress(AttributeError):
                setattr(error, CALLED_FOR, batch.name)
            raise


@dataclass(frozen=True)
class Unusable:
    """Stands for an element that failed, or has no cost."""

    error: BaseException
    """The failure."""


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
        self._trail = Trail(input_iterator(node, context), every, self._oldest)
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
        self._window = Collection(self._rules)  # the present window
        self._planned: deque[Batch] = deque()  # its batches that have not left
        self._count = 0  # its batches, also those that have left
        self._next = Collection(self._rules)
        self._failed: deque[tuple[int, Unusable]] = deque()
        self._failing = 0  # failures that make up the rest of a step
        self._windows = 0  # windows planned so far
        self._waiting = 0  # first elements in collection that an earlier window left
        self._ended = False
        self._pulled: tuple[int, list[Any], list[int]] = 0, [], []  # not collected yet

    def _oldest(self) -> int:
        firsts = [self._window.first] if self._planned else []
        firsts += self._pulled[:1] if self._pulled[1] else []
        firsts += [number for number, _ in self._failed]
        return min(self._trail.pulled, self._next.first, *firsts)

    def __next__(self) -> Any:
        self._keep_pulled()
        self._collect()
        width = self._rules.consumers
        if self._failed:
            self._raise_in_turn(1 if self._node.steps else width)
        if not self._planned:
            self._finish()
        if not self._node.steps:
            return self._made(self._planned.popleft())
        parts = [self._planned.popleft() for _ in range(min(width, len(self._planned)))]
        step = [place for part in parts for place in part]
        return tuple(self._made(part, step) for part in parts)

    def _raise_in_turn(self, width: int) -> None:
        """Raise a failure if it may take a place now: that of a batch, or in a step of
        failures alone.
        """
        if not self._planned and not self._failing:
            if self._ended and self._node.drop_remainder:
                # The next pass begins with a step.
                self._failed.extend([self._failed[-1]] * (width - len(self._failed)))
            self._failing = min(width, len(self._failed))
        if self._planned and not self._node.steps:
            places, window = self._planned.popleft(), self._window
            for place, element in zip(places, window.taken(places), strict=True):
                cost = window.costs[place]
                raw = cost if cost >= 0 else self._raws([element])[0]
                self._keep([window.numbers[place]], [element], [raw], [window.sizes[place]])
        elif self._failing:
            self._failing -= 1
        raise self._failed.popleft()[1].error

    def rewind(self, repetition: int) -> bool:
        self._begin(self._context.repeated(repetition))
        return self._trail.rewind(repetition)

    # --- collecting

    def _collect(self) -> None:
        """Pull as many elements of the next window as its share of what has left of the
        present window; if nothing is left of that, plan the next window.
        """
        planned, most = self._planned, self._rules.consumers
        due = 1.0 - len(planned) // most * most / self._count if planned else 1.0
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
        following = self._next
        while following.share < due and count and not self._ended:
            size = min(count, following.room(due))
            self._pull_some(size, following.room_in_bytes(due))
            count -= size
            if len(self._failed) >= most:
                break

    def _pull_some(self, size: int, room_in_bytes: float) -> None:
        trail, pull = self._trail, self._trail.pull
        elements, sizes = list[Any](), list[int]()
        self._pulled = trail.pulled, elements, sizes
        try:
            for _ in range(size):
                try:
                    element = pull()
                except Exception as error:
                    if is_end(error):
                        raise
                    elements.append(Unusable(error))
                    sizes.append(0)
                    break
                elements.append(element)
                sizes.append(byte_size(element))
                room_in_bytes -= sizes[-1]
                if room_in_bytes <= 0:
                    break
        except StopIteration:
            self._ended = True
        finally:
            self._strand.place = self._own_place
            self._keep_pulled()

    def _keep_pulled(self) -> None:
        """Collect the elements that were pulled last. If an interrupt ends a cost
        function, they wait for the next call.
        """
        first, elements, sizes = self._pulled
        if elements:
            numbers, raws = range(first, first + len(elements)), self._raws(elements)
            self._pulled = first, [], []
            self._keep(numbers, elements, raws, sizes)

    def _raws(self, elements: Sequence[Any]) -> list[Any]:
        """Return what the cost function returns for each element, or its failure. Only
        the last element may stand for a failure.
        """
        failed = [one for one in elements[-1:] if type(one) is Unusable]
        usable = len(elements) - len(failed)
        raws: list[Any] = []
        while len(raws) < usable:
            try:
                # A failure leaves what came before it.
                raws.extend(map(self._cost, islice(elements, len(raws), usable)))
            except FAILURES as error:
                raws.append(Unusable(error))
        return raws + failed

    def _keep(
        self,
        numbers: Sequence[int],
        elements: Sequence[Any],
        raws: Sequence[Any],
        sizes: Sequence[int],
    ) -> None:
        """Collect elements, or their failures.

        Args:
            numbers: their numbers.
            elements: the elements.
            raws: what ``_raws`` returned for them.
            sizes: their bytes.
        """
        if are_costs(raws, self._most):
            self._next.add(numbers, elements, raws, sizes)
            return
        for number, element, raw, size in zip(numbers, elements, raws, sizes, strict=True):
            cost = self._cost_of(number, element, raw)
            if type(cost) is Unusable:
                self._failed.append((number, cost))
            elif cost is not None:
                self._next.add([number], [element], [cost], [size])

    def _cost_of(self, number: int, element: Any, raw: Any) -> Any:
        """Return the cost of an element, or its failure; None if it is left out.

        Args:
            number: number of the element.
            element: the element.
            raw: what ``_raws`` returned for it.
        """
        if type(element) is Unusable:
            return element
        try:
            if type(raw) is Unusable:
                raise raw.error
            cost = as_cost(raw)
            return cost if cost <= self._most or not self._is_left_out(cost) else None
        except FAILURES as error:
            return self._failure_of(number, error)

    def _failure_of(self, number: int, error: BaseException) -> Unusable:
        failed = Unusable(failure(self._node, error, f"element {number}"))
        failed.error.__cause__ = error
        return failed

    def _is_left_out(self, cost: float) -> bool:
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
        held, node = self._next, self._node
        count = len(held.elements)
        if not count or (self._ended and node.drop_remainder and count < self._rules.least):
            return
        costs = np.array(held.costs, np.float64)
        plan = self._rules.plan(costs, self._waiting, is_last=self._ended)
        if not plan.steps:
            return
        self._window, self._next = held, Collection(self._rules)
        self._waiting = len(plan.left)
        for place, element in zip(plan.left, held.taken(plan.left), strict=True):
            self._next.add(
                [held.numbers[place]], [element], [held.costs[place]], [held.sizes[place]]
            )
        steps = shuffled(plan.steps, self._seed())
        self._windows += 1
        self._planned.extend(batch for step in steps for batch in step)
        self._count = len(self._planned)
        found = step_costs(costs, steps, node.max_cost)
        for name, amount in found._asdict().items():
            if amount:
                self._counts.add(f"balance/{name}", amount)

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
            self._window, self._count = rest, len(rest.elements)
            self._planned.extend([place] for place in range(self._count))
            return
        raise StopIteration

    # --- batches

    def _made(self, places: Batch, step: Sequence[int] = ()) -> Any:
        elements = self._window.taken(places)
        numbers = self._window.numbers

        def listed(places: Sequence[int]) -> str:
            shown = [str(numbers[place]) for place in places[:_MOST_NAMED]]
            return ", ".join(shown) + (", ..." if len(places) > _MOST_NAMED else "")

        def named() -> str:
            lost = f", and its step of elements {listed(step)} is lost with it" if step else ""
            return f"the batch of elements {listed(places)}{lost}"

        if self._node.in_lists:
            dealt = Dealt(elements)
            dealt.name = named()
            return dealt
        return self._maker.made(elements, self._join, named)

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
        numbers = self._window.numbers
        pulled = range(self._pulled[0], self._pulled[0] + len(self._pulled[1]))
        planned = [
            numbers[place] - first | (0 if at else _BEGIN)
            for batch in self._planned
            for at, place in enumerate(batch)
        ]
        return [
            trail,
            _packed(planned),
            _packed([number - first for number in (*self._next.numbers, *pulled)]),
            _packed([number - first for number, _ in self._failed]),
            [self._count, self._failing, self._windows, self._waiting],
            self._ended,
        ]

    def restore(self, state: Any) -> None:
        trail, planned, collected, failed, counts, self._ended = state
        self._count, self._failing, self._windows, self._waiting = counts
        first, window = trail[0], self._window
        for place, packed in enumerate(np.frombuffer(planned, "<u4").tolist()):
            if packed & _BEGIN:
                self._planned.append([])
            self._planned[-1].append(place)
            window.numbers.append(first + (packed & ~_BEGIN))
        waiting, pending = (
            [first + offset for offset in np.frombuffer(packed, "<u4").tolist()]
            for packed in (collected, failed)
        )
        found = self._trail.restore(trail, {*window.numbers, *waiting, *pending})
        window.elements = [found[number] for number in window.numbers]
        window.costs = [-1.0] * len(window.elements)
        window.sizes = [*map(byte_size, window.elements)]
        window.first = min(window.numbers, default=sys.maxsize)
        for number in pending:
            self._failed.append((number, self._failed_again(number, found)))
        elements = [
            Unusable(found.failed[number]) if number in found.failed else found[number]
            for number in waiting
        ]
        raws = [raw for element in elements for raw in self._raws([element])]
        self._keep(waiting, elements, raws, [*map(byte_size, elements)])

    def _failed_again(self, number: int, found: Again) -> Unusable:
        """Return the failure of an element that failed before the state was taken, and
        still has to take a place, also if it does not fail now.
        """
        if number in found.failed:
            return Unusable(found.failed[number])
        element = found[number]
        failed = self._cost_of(number, element, self._raws([element])[0])
        if type(failed) is Unusable:
            return failed
        text = (
            "it failed when the state was taken, and does not fail now. Its error takes the "
            "place of a batch, as it would have then"
        )
        return self._failure_of(number, FailedPreconditionError(text))

    def close(self) -> None:
        self._trail.source.close()


def _packed(numbers: list[int]) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def _differing_axes(arrays: Sequence[Any]) -> int:
    """Return the number of leading axes up to the last that differs between arrays."""
    shapes = {getattr(array, "shape", ()) for array in arrays}
    if len(shapes) == 1 or len({len(shape) for shape in shapes}) > 1:
        return 0
    lengths = [one.pop() if len(one) == 1 else None for one in map(set, zip(*shapes, strict=True))]
    return ragged_axes(TensorSpec(tuple(lengths)), True)


@spec_by_running.register
def _(node: Balance, past_failures: bool) -> Any:
    found = spec_of_elements(node, past_failures, least=_INFERRED)
    return with_leading_length(found, None)
