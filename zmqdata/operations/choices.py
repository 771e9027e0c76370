"""Draws and choices: sample_from_datasets, choose_from_datasets, rejection_resample,
and counter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.specs import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    TensorSpec,
    merge_joined_specs,
)
from zmqdata.errors import InvalidArgumentError
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import beyond_int64, call, failure
from zmqdata.iterators.context import Context, Name, Namer
from zmqdata.iterators.draws import Draws, NamedDraws, drawing_seed, named_seed
from zmqdata.iterators.indexed import IndexedIterator
from zmqdata.iterators.inputs import (
    CountingIterator,
    UnaryIterator,
    dataset_iterator,
    followed,
    input_iterator,
)
from zmqdata.iterators.naming import grouped, unnamed
from zmqdata.iterators.random_access import element_at, refusal
from zmqdata.iterators.results import as_index
from zmqdata.nodes.base import (
    AT_ITS_PLACE,
    IN_LABEL,
    NOTHING_AGAIN,
    Applying,
    ByNames,
    Infer,
    Node,
    Unary,
)
from zmqdata.splits import IndexSplits, SplitSource


@dataclass(frozen=True, kw_only=True)
class Counter(Node):
    """Yields ``start``, ``start + step`` and so on, without end; each iterator counts
    for itself.
    """

    start: Any = field(default=0, metadata=IN_LABEL)
    """First number."""
    step: Any = field(default=1, metadata=IN_LABEL)
    """Difference between consecutive numbers."""
    dtype: str = "int64"
    """Dtype of the numbers."""
    operation: ClassVar[str] = "counter"
    cardinality: ClassVar[int] = INFINITE_CARDINALITY
    restoring: ClassVar[str] = AT_ITS_PLACE

    split_source: ClassVar[SplitSource] = IndexSplits(None)

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), self.dtype)


@dataclass(frozen=True, kw_only=True)
class DrawnChoices(Node):
    """Base of the nodes that draw numbers from 0 on."""

    seed: int | None = None
    """Seed of the user; None: that of the context."""
    rerandomize: bool = False
    """True to draw anew in each repetition."""

    @property
    def draws_once(self) -> bool:
        return self.seed is None and not self.rerandomize

    def spec(self, infer: Infer) -> Any:
        return TensorSpec((), np.int64)


@dataclass(frozen=True, kw_only=True)
class RandomChoices(DrawnChoices):
    """Draws without end, with fixed weights."""

    weights: tuple[float, ...]
    """Weight of each number."""
    operation: ClassVar[str] = "choices"
    cardinality: ClassVar[int] = INFINITE_CARDINALITY
    restoring: ClassVar[str] = AT_ITS_PLACE


@dataclass(frozen=True, kw_only=True)
class WeightedChoices(DrawnChoices, Unary):
    """Draws a number for each element of its input, which holds the weights for this
    draw.
    """

    count: int
    """Number of weights."""
    operation: ClassVar[str] = "choices"
    batch_rows: ClassVar[None] = None
    restoring: ClassVar[str] = NOTHING_AGAIN


@dataclass(frozen=True, kw_only=True)
class Choose(Node):
    """Takes the next element from the input that ``choices`` names."""

    choices: Node
    """Yields the number of an input. It is not an input itself: it is never split, and
    each worker runs all of it.
    """
    stop: str
    """``"first"`` to end when the chosen input has ended; ``"once"`` to skip that
    choice.
    """
    name: str
    """Name of the operation in the user's code."""
    operation: ClassVar[str] = "choose_from_datasets"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def label(self) -> str:
        return f"{self.name}({len(self.inputs)} datasets)" + (
            f" at {self.site}" if self.site else ""
        )

    @property
    def apart(self) -> tuple[Node, ...]:
        return (self.choices,)

    @property
    def state_bytes(self) -> int:
        return 8 + 2 * len(self.inputs)

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        if len(counts) == 1 and isinstance(self.choices, RandomChoices):
            return counts[0]
        endless = [count == INFINITE_CARDINALITY for count in counts]
        if self.choices.cardinality == INFINITE_CARDINALITY and (
            all(endless) or (any(endless) and self.stop == "once")
        ):
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        specs = map(infer, self.inputs)
        return merge_joined_specs(specs, lambda: [node.cardinality for node in self.inputs])


@dataclass(frozen=True, kw_only=True)
class RejectionResample(ByNames, Applying):
    """Yields pairs of class and element, and drops elements until the classes have the
    target distribution.
    """

    target: tuple[float, ...]
    """Wanted probability of each class."""
    initial: tuple[float, ...] | None = None
    """Probability of each class in the input; None: estimated at run time."""
    operation: ClassVar[str] = "rejection_resample"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def state_bytes(self) -> int:
        return 16 + 4 * len(self.target)

    @property
    def cardinality(self) -> int:
        count = self.input.cardinality
        return (
            count if self.keeps_all or count in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY
        )

    @property
    def keeps_all(self) -> bool:
        """True if the input has the target distribution, so that no element is
        dropped.
        """
        return self.initial == self.target and all(self.target)


# Elements of each class counted as seen before the first element, as in tf.data.
_SMOOTHING = 10


@make_iterator.register(Counter)
class CounterIterator(IndexedIterator):
    """Counts independently of the splits: with a provider, each index permits one more
    element.
    """

    def __init__(self, node: Counter, context: Context) -> None:
        super().__init__(context, 2**62)
        self._node = node
        self._start, self._step = node.start, node.step
        self._kind = np.dtype(node.dtype).type
        self._wraps = self._kind is not np.int64 and issubclass(self._kind, np.integer)
        self._count = 0

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        while self._next >= self._stop:
            self._advance()
        self._next += self._stride
        count = self._count
        self._count = count + 1
        number = self._start + count * self._step
        try:
            return np.int64(number).astype(self._kind) if self._wraps else self._kind(number)
        except OverflowError:
            raise beyond_int64(self._node, number) from None

    def rewind(self, repetition: int) -> bool:
        self._count = 0
        return self._to_beginning(repetition)

    def state(self) -> Any:
        return [self._count, super().state()]

    def restore(self, state: Any) -> None:
        self._count, inner = state
        super().restore(inner)


def _limits(weights: Sequence[float]) -> list[float]:
    """Return the lower bounds of all numbers but the first in the weights, normalized
    and accumulated from 0 to 1.
    """
    total = sum(weights)
    if not total > 0 or min(weights) < 0:
        raise ValueError(f"weights must be at least 0, and not all 0; got {list(weights)}")
    return [limit / total for limit in accumulate(weights)][:-1]


@make_iterator.register(RandomChoices)
class RandomChoicesIterator(ElementIterator):
    """Draws numbers; each number depends only on the seed and the number of the
    draw.
    """

    def __init__(self, node: RandomChoices, context: Context) -> None:
        self._publish_in(context)
        self._draws = Draws(drawing_seed(node.seed, node.rerandomize, context, context.task))
        self._limits = _limits(node.weights)
        self._count = 0

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        count = self._count
        self._count = count + 1
        return bisect_right(self._limits, self._draws.at(count))

    def state(self) -> Any:
        return self._count

    def restore(self, state: Any) -> None:
        self._count = state


@make_iterator.register(WeightedChoices)
class WeightedChoicesIterator(CountingIterator):
    """Draws a number for each element of its input, with the weights in that
    element.
    """

    def __init__(self, node: WeightedChoices, context: Context) -> None:
        super().__init__(node, context, 0)
        self._expected = node.count
        self._draws = Draws(drawing_seed(node.seed, node.rerandomize, context, context.task))

    def __next__(self) -> Any:
        weights = next(self._input)
        self._strand.place = self._own_place
        count = self._count
        self._count = count + 1
        try:
            flat = np.asarray(weights, np.float64).tolist()
            if np.shape(flat) != (self._expected,):
                raise ValueError(
                    f"weights have the shape {np.shape(flat)}, expected {self._expected}, one "
                    "weight for each dataset"
                )
            return bisect_right(_limits(flat), self._draws.at(count))
        except FAILURES as error:
            raise failure(self._node, error) from error


@make_iterator.register(Choose)
class ChooseIterator(ElementIterator):
    """Takes the next element from the input that the choices name. The choices are not
    an input, because they are never split.
    """

    def __init__(self, node: Choose, context: Context) -> None:
        self._node = node
        # Each task reads a copy of the choices.
        apart = context.changed(
            providers=None, copy=context.task, path=(*context.path, len(node.inputs))
        )
        self._choices = dataset_iterator(node.choices, apart)
        inputs = [self._input_of(context, index) for index in range(len(node.inputs))]
        self._inputs: list[ElementIterator | None] = [*inputs]
        self._naming = [grouped(source, index) for index, source in enumerate(inputs)]
        self._chosen = 0
        self._ended = False

    def _input_of(self, context: Context, index: int) -> ElementIterator:
        return input_iterator(self._node, context, index)

    def namer(self) -> Namer | None:
        return self._name

    def _name(self) -> Name | None:
        return self._naming[self._chosen]()

    def __next__(self) -> Any:
        while not self._ended:
            try:
                choice = next(self._choices)
            except StopIteration:
                self._ended = True
                break
            number = choice if type(choice) is int else self._checked(choice)
            if not 0 <= number < len(self._inputs):
                number = self._checked(number)
            source = self._inputs[number]
            if source is None:
                continue
            try:
                element = next(source)
            except StopIteration:
                self._leave(number, source)
            else:
                self._chosen = number
                return element
        raise StopIteration

    def _checked(self, choice: Any) -> int:
        try:
            number = as_index(choice, "choice_dataset")
            if not 0 <= number < len(self._inputs):
                raise InvalidArgumentError(
                    f"choice_dataset yielded {number}, which is out of range, expected a number "
                    f"from 0 to {len(self._inputs) - 1}: the operation has {len(self._inputs)} "
                    "datasets"
                )
        except FAILURES as error:
            raise failure(self._node, error) from error
        return number

    def _leave(self, number: int, source: ElementIterator) -> None:
        source.close()
        self._inputs[number] = None
        self._ended = self._node.stop == "first" or not any(one is not None for one in self._inputs)

    def state(self) -> Any:
        inputs = [None if source is None else [source.state()] for source in self._inputs]
        return [self._ended, self._choices.state(), inputs]

    def restore(self, state: Any) -> None:
        self._ended, choices, inputs = state
        self._choices.restore(choices)
        for index, (source, inner) in enumerate(zip(self._inputs, inputs, strict=True)):
            assert source is not None
            if inner is None:
                self._inputs[index] = None
            else:
                source.restore(inner[0])

    def close(self) -> None:
        self._choices.close()
        for source in self._inputs:
            if source is not None:
                source.close()


@make_iterator.register(RejectionResample)
class RejectionResampleIterator(UnaryIterator):
    """Draws for each element whether it passes.

    The draw follows from the seed, the repetition and the element's name. Its
    probability follows from the distribution of the classes: if that was given, the
    same elements pass whoever reads them; if it is estimated, each task estimates it
    from the elements that it saw before.
    """

    _node: RejectionResample

    def __init__(self, node: RejectionResample, context: Context) -> None:
        super().__init__(node, context.changed(named=True))
        self._context = context
        self._name = self._input.namer() or unnamed
        self._classify = followed(node, context, self._input, partial(call, node.function))
        self._target = node.target
        self._draws = NamedDraws(named_seed(node, True, context))
        self._count = 0  # number of elements
        self._seen = [_SMOOTHING] * len(node.target)
        self._known = None if node.initial is None else acceptance(node.initial, node.target)

    def __next__(self) -> Any:
        for element in self._input:
            self._strand.place = self._own_place
            value, number = classified(self._node, self._classify, element)
            if self._may_pass(number):
                return value, element
        raise StopIteration

    def _may_pass(self, number: int) -> bool:
        known = self._known
        if known is None:
            self._seen[number] += 1
            total = sum(self._seen)
            known = acceptance([seen / total for seen in self._seen], self._target)
        count = self._count
        self._count = count + 1
        return self._draws.of(self._name() or self._context.counted(count)) < known[number]

    def state(self) -> Any:
        return [self._count, list(self._seen), self._input.state()]

    def restore(self, state: Any) -> None:
        self._count, seen, inner = state
        self._seen = list(seen)
        self._input.restore(inner)


def classified(
    node: RejectionResample, classify: Callable[[Any], Any], element: Any
) -> tuple[Any, int]:
    """Return the class of an element as the function returned it, and the number of the
    class.

    Raises:
        PipelineError: the function failed, or returned an unknown class.
    """
    try:
        value = classify(element)
        number = as_index(value, "class_func")
        if not 0 <= number < len(node.target):
            raise IndexError(
                f"class_func returned the class {number}, expected a class from 0 to "
                f"{len(node.target) - 1}, as many as target_dist has"
            )
    except FAILURES as error:
        raise failure(node, error) from error
    return value, number


def acceptance(initial: Sequence[float], target: Sequence[float]) -> list[float]:
    """Return the probability of each class to pass: as high as the target permits.

    >>> acceptance([0.75, 0.25], [0.5, 0.5])
    [0.3333333333333333, 1.0]
    """
    ratios = [
        wanted / (have or np.finfo(np.float64).tiny.item())
        for have, wanted in zip(initial, target, strict=True)
    ]
    most = max(ratios)
    return [ratio / most for ratio in ratios]


@element_at.register
def _(node: Counter, index: int) -> Any:
    counter = make_iterator(node, Context())
    counter.restore([index, 0])
    return next(counter)


@element_at.register
def _(node: RejectionResample, index: int) -> Any:
    if not node.keeps_all:
        raise refusal(node, index)
    element = element_at(node.input, index)
    return classified(node, lambda one: call(node.function, one), element)[0], element
