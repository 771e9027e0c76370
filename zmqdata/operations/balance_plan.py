"""Dealing of elements by cost: into batches of nearly equal cost, and steps of such
batches, each for a consumer.

Dealing is a function of costs and a seed. ``operations.balancing`` pulls the elements;
a ``Collection`` holds those of a window.

Decision 0059.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapreplace
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from zmqdata.elements.specs import spec_of
from zmqdata.elements.tensors import as_stackable
from zmqdata.errors import WrongTypeError
from zmqdata.iterators.draws import RawDraws
from zmqdata.peeking import shown

Costs: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
"""Cost of each element, by its position in a window."""
Batch: TypeAlias = "list[int]"
"""Positions of the elements of a batch."""
Step: TypeAlias = "list[Batch]"
"""A batch for each consumer."""
Places: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"
"""Positions of elements."""

CLOSE = 1.002
"""Ratio of the dearest batch to the mean up to which no elements are exchanged."""
FILLED = 0.97
"""Share of ``max_cost`` up to which a window fills its batches on average. Batches are
then equal without a further step.
"""

MOST_BYTES = 256 << 20
"""Bytes of elements from which on a window ends early."""
MOST_ELEMENTS = 100_000
"""Number of elements from which on a window ends early."""
_AT_ONCE = 32
"""Maximum number of elements that are pulled together."""
_NOT_FULL = 0.99
"""Most share of a window that has less than a step."""
MOST_COST = 1e100
"""Maximum cost of an element or a batch. Sums of many stay finite."""
_LEAST_COST = float(np.finfo(np.float64).tiny)
"""Cost that elements without a cost have in counts, so that their steps are equal."""
_EXACT = 1 << 53
"""Sum of costs below which each is finite, and a float if it is an integer."""


def as_cost(value: Any) -> float:
    """Return what a cost function returned, as a float.

    Raises:
        WrongTypeError: it is not a finite number of at least 0, or above ``MOST_COST``.

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
    if 0 <= cost <= MOST_COST:
        return cost
    raise WrongTypeError(
        f"Invalid `cost`: cost must return one finite number of at least 0, it returned "
        f"{shown(given):.100} of type {type(given).__name__}. Convert it with float(); the "
        f"maximum is {MOST_COST:g}"
    )


def are_costs(values: Sequence[Any], most: float) -> bool:
    """Return True if all of some values are plain numbers, and costs up to ``most``.

    >>> are_costs([1, 2.5], 3.0), are_costs([1, -1], 3.0), are_costs([], 3.0)
    (True, False, False)
    """
    if not values or not {*map(type, values)} <= {int, float}:
        return False
    return bool(min(values) >= 0 and max(values) <= most and sum(values) < _EXACT)


@dataclass(frozen=True)
class LengthOf:
    """Cost of an element by the length of a leaf."""

    name: str
    """Name of the leaf."""

    def __call__(self, element: Any) -> int:
        """Return the length.

        Raises:
            WrongTypeError: the element is no dict with such a leaf, or the leaf has no
                axis.
        """
        if type(element) is dict:  # the usual case, without the checks of classes below
            leaf = element.get(self.name)
            if type(leaf) is np.ndarray and leaf.ndim:
                return len(leaf)
        leaf = element.get(self.name) if isinstance(element, Mapping) else None
        if not isinstance(leaf, (str, bytes, tuple, Mapping)):
            with suppress(TypeError):
                return len(leaf)  # type: ignore[arg-type]  # None has no length either
        raise WrongTypeError(
            f"the cost is the length of the leaf {self.name!r}, and the element is "
            f"{spec_of(element)}. Name a leaf of a dict, with an axis, or pass a function "
            "as `cost`"
        )


class WindowSteps(NamedTuple):
    """Steps of a window."""

    steps: list[Step]
    """The steps in the order in which they leave."""
    left: list[int]
    """Positions that make no whole step with the others."""


class StepCosts(NamedTuple):
    """Costs of steps, added up."""

    dearest: float
    """Cost of the dearest batch of each step."""
    means: float
    """Mean cost of the batches of each step."""
    in_order: float
    """Cost of the dearest batch of each step if the same elements were cut in order."""
    bound: float
    """The larger of the mean batch and the dearest element of each step: no dealing of
    the elements of a step has a cheaper dearest batch.
    """
    filled: float
    """Cost of all batches within the budget; 0 without a budget."""
    room: float
    """Budgets of these batches together."""


@dataclass(frozen=True)
class BalanceRules:
    """Rules by which elements become steps. Either ``batch_size`` or ``max_cost`` is
    set.

    >>> rules = BalanceRules(consumers=2, window=1, batch_size=2)
    >>> [sorted(batch) for batch in rules.plan(np.array([9.0, 1, 5, 4])).steps[0]]
    [[0, 1], [2, 3]]
    """

    consumers: int
    """Number of batches in a step."""
    window: int
    """Number of steps that are balanced together."""
    batch_size: int | None = None
    """Number of elements in a batch."""
    max_cost: float | None = None
    """Maximum cost of a batch of several elements."""

    @property
    def least(self) -> int:
        """Number of elements from which on there is a step."""
        return self.consumers * (self.batch_size or 1)

    @property
    def whole(self) -> float:
        """Number of elements of a window, or their costs together, each at most
        ``max_cost``.
        """
        steps = self.consumers * self.window
        if self.batch_size is not None:
            return steps * self.batch_size
        assert self.max_cost is not None
        return FILLED * self.max_cost * steps

    def plan(self, costs: Costs, waiting: int = 0, *, is_last: bool = False) -> WindowSteps:
        """Deal the elements of a window.

        Args:
            costs: cost of each element, in the order of the input.
            waiting: number of first elements that an earlier window has left.
            is_last: True if no further elements come.
        """
        if self.max_cost is not None:
            return self._within_budget(costs, self.max_cost, waiting, is_last)
        whole = len(costs) - len(costs) % self.least
        if whole or not is_last or len(costs) < self.consumers:
            steps = equal_steps(costs[:whole], self.consumers, self.least // self.consumers)
            return WindowSteps(steps, [*range(whole, len(costs))])
        return WindowSteps([exchanged(costs, dealt(costs, range(len(costs)), self.consumers))], [])

    def _within_budget(self, costs: Costs, most: float, waiting: int, is_last: bool) -> WindowSteps:
        """Deal elements so that no batch costs more than ``most``, but for batches of a
        single element that does.
        """
        left: list[int] = []
        oversized = [int(place) for place in np.flatnonzero(costs > most)]
        usual: Places = np.flatnonzero(costs <= most)
        if not is_last:
            without = len(oversized) % self.consumers
            if without and oversized[0] >= waiting:
                # They wait for company, but not for a second window.
                left, oversized = oversized[-without:], oversized[:-without]
            if len(usual) > self.consumers and costs[usual].sum() > self.whole:
                left.append(int(usual[-1]))  # it would need another step
                usual = usual[:-1]
        count = max(min(1, len(usual)), math.ceil(costs[usual].sum() / most))
        count += -(count + len(oversized)) % self.consumers
        batches: list[Batch] | None = None
        while batches is None and count <= len(usual):
            batches = spread(costs, usual, count, most)
            count += self.consumers
        if batches is None:
            # Not even one element for each batch: as many as fill steps, each alone.
            every = sorted([*oversized, *usual.tolist()])
            whole = len(every) - len(every) % self.consumers
            left += every[whole:]
            oversized, batches = [], [[place] for place in every[:whole]]
        batches += [[place] for place in oversized]
        batches.sort(key=lambda batch: float(costs[batch].sum()), reverse=True)
        steps = [batches[at : at + self.consumers] for at in range(0, len(batches), self.consumers)]
        return WindowSteps(steps, sorted(left))


def equal_steps(costs: Costs, consumers: int, size: int) -> list[Step]:
    """Return steps of batches with ``size`` elements each, which use all elements.

    The target of a step is the larger of the mean batch of all that remains, and the
    dearest element with the ``size - 1`` cheapest. Each batch takes the dearest element
    left, and a run of neighbours in order of cost that comes nearest to the target.

    Args:
        costs: cost of each element; their number is that of whole steps.
        consumers: number of batches in a step.
        size: number of elements in a batch.

    >>> equal_steps(np.array([8.0, 1, 1, 7, 2, 5]), 3, 2)
    [[[0, 1], [3, 4], [5, 2]]]
    """
    order = np.argsort(costs, kind="stable")
    values, places = costs[order].tolist(), order.tolist()
    total, steps, others = float(costs.sum()), [], size - 1
    while values:
        target = max(total * size / len(values), values[-1] + sum(values[:others]))
        step, sums = [], []
        for _ in range(consumers):
            dearest, batch = values.pop(), [places.pop()]
            wanted, low, high = target - dearest, 0, len(values) - others
            while low < high:
                middle = (low + high) // 2
                if sum(values[middle : middle + others]) < wanted:
                    low = middle + 1
                else:
                    high = middle
            found = sum(values[low : low + others])
            if low:
                before = sum(values[low - 1 : low - 1 + others])
                if wanted - before < found - wanted:
                    low, found = low - 1, before
            batch += places[low : low + others]
            del places[low : low + others], values[low : low + others]
            step.append(batch)
            sums.append(dearest + found)
        total -= sum(sums)
        if max(sums) * consumers > CLOSE * sum(sums):
            step = exchanged(costs, step)
        steps.append(step)
    return steps


def dealt(costs: Costs, places: Sequence[int], count: int) -> Step:
    """Return elements in batches of nearly equal size: the dearest to the first, the
    next to the second, and back from the last.

    >>> dealt(np.array([5.0, 4, 3, 2, 1]), range(5), 2)
    [[0, 4, 3], [1, 2]]
    """
    order = sorted(places, key=lambda place: -costs[place])
    turn = 2 * count
    return [order[at::turn] + order[turn - 1 - at :: turn] for at in range(count)]


def exchanged(costs: Costs, step: Step) -> Step:
    """Return a step after exchanges of single elements between its dearest and its
    cheapest batch, each of which makes both as equal as possible. It ends where the
    mean, or the dearest element alone, allows no cheaper step.

    >>> exchanged(np.array([6.0, 5, 4, 3]), [[0, 1], [2, 3]])
    [[2, 1], [0, 3]]
    """
    held = [costs[batch] for batch in step]
    sums = [float(one.sum()) for one in held]
    dearest = max(float(one.max()) for one in held)
    enough = CLOSE * max(sum(sums) / len(sums), dearest)
    for _ in range(2 * len(step)):
        high, low = sums.index(max(sums)), sums.index(min(sums))
        gap = sums[high] - sums[low]
        if sums[high] <= enough:
            break
        order = np.argsort(held[low], kind="stable")
        wanted, sorted_low = held[high] - gap / 2, held[low][order]
        # The partner nearest to what is wanted is a neighbour of its place.
        places = np.searchsorted(sorted_low, wanted).clip(1, max(1, len(order) - 1))
        before = places - 1
        after = np.minimum(places, len(order) - 1)
        is_before = wanted - sorted_low[before] <= sorted_low[after] - wanted
        partners = np.where(is_before, before, after)
        one = int(np.abs(sorted_low[partners] - wanted).argmin())
        other = int(order[partners[one]])
        amount = float(held[high][one] - held[low][other])
        if not 0.0 < amount < gap:
            break
        step[high][one], step[low][other] = step[low][other], step[high][one]
        held[high][one] -= amount
        held[low][other] += amount
        sums[high] -= amount
        sums[low] += amount
    return step


def spread(costs: Costs, places: Places, count: int, most: float) -> list[Batch] | None:
    """Return elements in ``count`` batches, the dearest first and each into the
    cheapest batch; None if a batch would cost more than ``most``.

    >>> spread(np.array([3.0, 2, 2]), np.arange(3), 2, 4.0)
    [[0], [1, 2]]
    """
    batches: list[Batch] = [[] for _ in range(count)]
    emptiest = [(0.0, 0, at) for at in range(count)]
    for place in places[np.argsort(-costs[places], kind="stable")].tolist():
        cost, size, at = emptiest[0]
        cost += float(costs[place])
        if cost > most:
            return None
        batches[at].append(place)
        heapreplace(emptiest, (cost, size + 1, at))
    return batches


def shuffled(steps: list[Step], seed: int) -> list[Step]:
    """Return steps, and the batches within each, in an order that follows from a
    seed.

    >>> shuffled([[[0], [1]], [[2], [3]]], 1)
    [[[1], [0]], [[3], [2]]]
    """
    draws, at, found = RawDraws(seed), len(steps), []
    for place in np.argsort(draws.at(0, at), kind="stable").tolist():
        step = steps[place]
        order = np.argsort(draws.at(at, len(step)), kind="stable").tolist()
        at += len(step)
        found.append([step[one] for one in order])
    return found


def step_costs(costs: Costs, steps: list[Step], most: float | None = None) -> StepCosts:
    """Return what steps cost, and what they would cost in order.

    Args:
        costs: cost of each element.
        steps: the steps.
        most: budget of a batch; None if there is none.

    >>> step_costs(np.array([3.0, 3, 1, 1]), [[[0, 2], [1, 3]]], 5.0)[:5]
    (4.0, 4.0, 6.0, 4.0, 8.0)
    """
    costs = np.maximum(costs, _LEAST_COST)
    batches = [batch for step in steps for batch in step]
    flat = np.fromiter(chain.from_iterable(batches), np.int64)
    starts = np.cumsum([0, *map(len, batches[:-1])])
    shape = len(steps), len(steps[0])
    sums = np.add.reduceat(costs[flat], starts).reshape(shape)
    cuts = np.linspace(0, len(flat), len(batches), endpoint=False).astype(np.int64)
    in_order = np.add.reduceat(costs[np.sort(flat)], cuts).reshape(shape)
    means = sums.mean(1)
    largest = np.maximum.reduceat(costs[flat], starts).reshape(shape).max(1)
    return StepCosts(
        dearest=float(sums.max(1).sum()),
        means=float(means.sum()),
        in_order=float(in_order.max(1).sum()),
        bound=float(np.maximum(means, largest).sum()),
        filled=0.0 if most is None else float(sums[sums <= most].sum()),
        room=0.0 if most is None else float(most * (sums <= most).sum()),
    )


class Collection:
    """The elements of a window.

    Args:
        rules: rules of dealing them.

    Attributes:
        numbers: numbers of the elements in the input.
        elements: the elements; None for those that have left.
        costs: their costs; -1 if unknown.
        sizes: their bytes.
        share: share of the window that they fill, by the bound that they are nearest
            to: elements or costs of the window, ``MOST_ELEMENTS`` and ``MOST_BYTES``.
        first: number of the oldest of them.
    """

    def __init__(self, rules: BalanceRules) -> None:
        self._least = rules.least
        self._most = rules.max_cost
        self._whole = math.inf if self._most is None else rules.whole
        self._most_elements = MOST_ELEMENTS
        if self._most is None:
            self._most_elements = min(MOST_ELEMENTS, int(rules.whole))
        self.numbers: list[int] = []
        self.elements: list[Any] = []
        self.costs: list[float] = []
        self.sizes: list[int] = []
        self.share = 0.0
        self.first = sys.maxsize
        self._cost = 0.0
        self._bytes = 0

    def room(self, due: float) -> int:
        """Return the number of elements that may be added together to reach a share of
        the window, unless their bytes do earlier.
        """
        # Never more than one at a time would be: what is pulled follows from the state.
        most = math.ceil(round(due * self._most_elements - len(self.elements), 6))
        if self._most is not None:
            most = min(most, int((due * self._whole - self._cost) / self._most))
        return max(1, min(_AT_ONCE, most))

    def room_in_bytes(self, due: float) -> float:
        """Return the number of bytes that may be added to reach a share of the
        window.
        """
        return due * MOST_BYTES - self._bytes

    def add(
        self,
        numbers: Sequence[int],
        elements: Sequence[Any],
        costs: Sequence[float],
        sizes: Sequence[int],
    ) -> None:
        """Add elements with their numbers, costs and bytes."""
        self.numbers += numbers
        self.elements += elements
        self.costs += costs
        self.sizes += sizes
        self.first = min(self.first, *numbers)
        self._bytes += sum(sizes)
        if self._most is not None:
            for cost in costs:
                self._cost += min(cost, self._most)
        count = len(self.elements)
        share = max(count / self._most_elements, self._bytes / MOST_BYTES, self._cost / self._whole)
        self.share = share if count >= self._least else min(share, _NOT_FULL)

    def taken(self, places: list[int]) -> list[Any]:
        """Return the elements of a batch, which leave."""
        elements = [self.elements[place] for place in places]
        for place in places:
            self.elements[place] = None
        return elements
