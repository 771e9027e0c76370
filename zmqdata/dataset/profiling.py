"""Profiling: running a pipeline for some seconds and measuring the time spent in each
operation.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from zmqdata.dataset.drawing import tree_lines
from zmqdata.iterators.base import ElementIterator, InputIterator, Stackable, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.iterators.inputs import input_iterator
from zmqdata.measures.meter import LoopMeter, MeteredIterator
from zmqdata.measures.situation import Situation, doing_of, operations, unit_of
from zmqdata.measures.sums import RecentLoop, added
from zmqdata.measures.verdict import COMPUTE_BOUND, INPUT_BOUND, judge, shown_seconds
from zmqdata.messages import TaskSums
from zmqdata.nodes.base import Infer, Node, Unary, every_node
from zmqdata.operations.batch import Batch
from zmqdata.operations.grouping import GroupByWindow
from zmqdata.operations.mapping import Collate, Filter, Map
from zmqdata.operations.nested import FlatMap
from zmqdata.operations.parallel import ParallelInterleave, ParallelMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator
from zmqdata.peeking import counted, peek

_active = threading.local()


@dataclass(eq=False)
class Measured:
    """The measured cost of an operation."""

    label: str
    """The operation."""
    node: Node = field(repr=False)
    """Its node; of nodes at one place in nested datasets, the first."""
    elements: int = 0
    """Number of elements that it yielded."""
    seconds: float = 0.0
    """Time spent in it and not in its inputs, in seconds, over all threads."""
    calls: float = 0.0
    """Time spent in calls of its function on other threads, in seconds."""
    nested: dict[Any, Measured] = field(default_factory=dict, repr=False)
    """Cost of the operations of datasets that its function created, by their places in
    these datasets.
    """
    lock: Any = field(default_factory=threading.Lock, repr=False)
    """Protects the sums."""

    @property
    def kind(self) -> type[Node]:
        """Class of its node."""
        return type(self.node)

    def add(self, seconds: float, elements: int) -> None:
        """Add a call. A lock protects the sums, because an operation may run on several
        threads.
        """
        with self.lock:
            self.seconds += seconds
            self.elements += elements


@dataclass(frozen=True, kw_only=True)
class _Clocked(Unary):
    """Node that measures the time spent in its input."""

    measured: Measured
    """Receives the cost of the input."""

    def spec(self, infer: Infer) -> Any:
        return infer(self.input)


@make_iterator.register(_Clocked)
def _make_clocked(node: _Clocked, context: Context) -> ElementIterator:
    source = input_iterator(node, context)
    kind = _ClockedStackable if isinstance(source, Stackable) else _ClockedIterator
    return kind(source, node.measured)


class _ClockedIterator(InputIterator):
    def __init__(self, source: ElementIterator, measured: Measured) -> None:
        self._input, self._measured = source, measured

    def __next__(self) -> Any:
        return self._clock(lambda: (1, next(self._input)))[1]

    def _clock(self, pull: Callable[[], tuple[int, Any]]) -> tuple[int, Any]:
        outer, count = getattr(_active, "inner", 0.0), 0
        _active.inner = 0.0  # sums the time of inputs on this thread meanwhile
        begin = time.perf_counter()
        try:
            count, element = pull()
            return count, element
        finally:
            whole = time.perf_counter() - begin
            self._measured.add(whole - _active.inner, count)
            _active.inner = outer + whole


class _ClockedStackable(_ClockedIterator, Stackable):
    def next_stacked(self, count: int) -> tuple[int, Any]:
        source = self._input
        assert isinstance(source, Stackable)
        return self._clock(lambda: source.next_stacked(count))


class _ClockedCall:
    """Wrapper of a user's function that measures calls on other threads."""

    def __init__(self, function: Callable[..., Any], measured: Measured) -> None:
        self._function, self._measured = function, measured
        self.__name__ = peek(function, "__name__", type(function).__name__)

    def __call__(self, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self._function(*arguments)
        finally:
            with self._measured.lock:
                self._measured.calls += time.perf_counter() - begin


@dataclass(frozen=True)
class _Nested:
    """A dataset with clocks, as a user's function returns it."""

    node: Node
    """The last operation of the dataset."""


class _ClockedDatasets(_ClockedCall):
    """Wrapper of a user's function that creates datasets, which get their own clocks.
    Datasets at the same place share a clock.
    """

    def __call__(self, *arguments: Any) -> Any:
        made = super().__call__(*arguments)
        inner = peek(made, "node")
        return (
            _Nested(_clocked(inner, self._measured.nested, {}, ()))
            if isinstance(inner, Node)
            else made
        )


def _clocked(
    node: Node,
    measured: dict[Any, Measured],
    made: dict[int, Node],
    place: tuple[int, ...] | None = None,
) -> Node:
    """Return a node and its inputs with clocks.

    Args:
        measured: receives the cost of each node. Its keys are identities of nodes or,
            with a ``place``, the place with class and line, because a function creates
            new datasets for each element.
        made: nodes that already have clocks.
    """
    if id(node) in made:
        return made[id(node)]
    key = id(node) if place is None else (place, type(node), node.site)
    clock = measured.setdefault(key, Measured(node.label, node))
    inputs = tuple(
        _clocked(source, measured, made, None if place is None else (*place, index))
        for index, source in enumerate(node.inputs)
    )
    changed = replace(node, inputs=inputs) if inputs else node
    if isinstance(changed, ParallelMap):
        changed = replace(changed, function=_ClockedCall(changed.function, clock))
    if isinstance(changed, (FlatMap, GroupByWindow)):
        changed = replace(changed, function=_ClockedDatasets(changed.function, clock))
    made[id(node)] = _Clocked(inputs=(changed,), measured=clock)
    return made[id(node)]


@dataclass(frozen=True)
class Profile:
    """The result of ``Dataset.profile``."""

    seconds: float
    """Duration of the run."""
    elements: int
    """Number of elements that the pipeline yielded."""
    operations: tuple[Measured, ...]
    """Costs in the order of the drawing, the last operation first, followed by
    operations in nested datasets.
    """
    bottleneck: Measured
    """The operation with the highest cost."""
    advice: str
    """Advice on speeding it up."""
    verdict: str
    """Limit of the loop, as in ``DatasetIterator.stats``; empty if the dataset is not
    distributed.
    """
    headspace: float | None
    """Elements per second with elements from memory; None if that was not asked for."""
    text: str = field(repr=False)
    """The printed report."""

    def __str__(self) -> str:
        return self.text


Step = Callable[[Any], object]
"""The training loop's work on an element."""
HEADSPACE_ELEMENTS = 4
"""Number of elements that are repeated from memory."""


@dataclass
class _LoopRun:
    """A run of a pipeline through a loop."""

    count: int = 0
    """Number of elements that the loop has taken."""
    seconds: float = 0.0
    """Duration."""
    first: float = 0.0
    """Seconds until the first element."""
    kept: list[Any] = field(default_factory=list)
    """The first elements."""

    def loop(self, elements: Iterable[Any], seconds: float, step: Step | None) -> None:
        """Take elements for some seconds, or to their end. The wait for the first one
        counts for the duration, and not for the rate.
        """
        begin = time.perf_counter()
        for element in elements:
            self.count += 1
            self.first = self.first or time.perf_counter() - begin
            if step is not None:
                step(element)
            if len(self.kept) < HEADSPACE_ELEMENTS:
                self.kept.append(element)
            self.seconds = time.perf_counter() - begin
            if self.seconds >= seconds:
                break

    @property
    def rate(self) -> float:
        """Elements per second, without the wait for the first one."""
        seconds = self.seconds - self.first
        return self.count / seconds if seconds > 0 else 0.0


def profile(
    node: Node, seconds: float, context: Context, step: Step | None = None, headspace: bool = False
) -> Profile:
    """Run a pipeline for some seconds, or to its end, and return the cost of each
    operation.

    Args:
        node: the pipeline.
        seconds: longest duration.
        context: context in which it runs.
        step: called with each element, in place of a training loop.
        headspace: True to run the loop on elements from memory as well.
    """
    measured: dict[int, Measured] = {}
    unit = unit_of(node.batch_rows)
    meter = LoopMeter(time.perf_counter)
    made = make_iterator(_clocked(node, measured, {}), replace(context, meter=meter))
    run = _LoopRun()
    try:
        run.loop(MeteredIterator(made.__next__, meter), seconds, step)
        operations = _with_nested(measured)
        situations = _situations(meter, unit, is_unpaced=step is None)
    finally:
        made.close()
    worst = max(operations, key=_weight)
    advice = _advice(worst, sum(map(_weight, operations)))
    if any(worst in outer.nested.values() and not _has_threads(outer) for outer in operations):
        advice += (
            " Or read several datasets at a time: interleave(..., num_parallel_calls=AUTOTUNE)."
        )
    rate = f"{counted(run.count, unit)} in {run.seconds:.2f} s, {run.rate:.3g} per second"
    lines = tree_lines(node, lambda inner: _row(measured[id(inner)], run.seconds, inner.label))
    for outer in operations:
        if outer.nested:
            rows = [_row(one, run.seconds, one.label) for one in outer.nested.values()]
            lines += [f"in the datasets that {outer.label} made:", *(f"   {row}" for row in rows)]
    for label, situation in situations:
        lines += [f"on the workers of {label}:", *(f"   {row}" for row in worker_rows(situation))]
    verdict, limit = "", worst.label
    if worst.node.runs_elsewhere and situations:
        judged = max((judge(one) for _, one in situations), key=lambda one: one.node_share)
        verdict, advice = judged.word, judged.advice
        if verdict == COMPUTE_BOUND:
            limit = "the loop itself"
        elif verdict == INPUT_BOUND:
            limit = judged.node or limit
    elif any(source.runs_elsewhere for source in every_node(worst.node)):
        verdict, advice = INPUT_BOUND, _BEHIND_WORKERS
    lines.append(f"bottleneck: {limit}. {verdict + ': ' if verdict else ''}{advice}")
    possible = None
    if headspace and run.kept:
        memory = _LoopRun()
        memory.loop(itertools.cycle(run.kept), max(seconds / 2, 0.1), step)
        possible = memory.rate
        lines.append(_headspace_line(possible, run.rate, step is None))
    text = "\n".join([rate, *lines])
    return Profile(run.seconds, run.count, operations, worst, advice, verdict, possible, text)


def _situations(meter: LoopMeter, unit: str, is_unpaced: bool) -> list[tuple[str, Situation]]:
    """Return the evidence of the readers of the service, each with its node's label."""
    loop = meter.measures(RecentLoop())
    found: list[tuple[str, Situation]] = []
    for node, reader in meter.readers:
        assert isinstance(node, Node)
        own = unit_of(node.batch_rows) if is_unpaced else unit
        situation = replace(reader.situation(RecentLoop()), unit=own, is_unpaced=is_unpaced)
        found.append((node.label, situation))
    if is_unpaced:
        return found
    waiting = sum(one.loop.waiting for _, one in found)
    return [
        (label, replace(one, loop=loop.recent, served=structs.replace(one.loop, waiting=waiting)))
        for label, one in found
    ]


def worker_rows(situation: Situation) -> list[str]:
    """Return a row for each operation that workers run, with its share, and a row for
    what their tasks do.

    Example:
        >>> from zmqdata.measures.situation import TaskEvidence
        >>> from zmqdata.messages import LoopSums, NodeTime
        >>> node = NodeTime("0", "map(f)", 3.0, 3.0)
        >>> sums = TaskSums(seconds=4.0, making=3.0, for_readers=1.0)
        >>> task = TaskEvidence("tcp://a:1", sums, (node,))
        >>> worker_rows(Situation(LoopSums(), (task,)))
        ['100 % map(f)', 'making 75 %, for readers 25 %, for splits 0 %']
    """
    whole = added([task.recent for task in situation.tasks], TaskSums())
    if not whole.seconds:
        return ["nothing is known yet: profile() for a longer time"]
    rows = sorted(operations(situation.tasks), key=lambda row: -row.share)
    doing = {
        "making": whole.making,
        "for readers": whole.for_readers,
        "for splits": whole.for_splits,
    }
    return [
        *(f"{100 * row.share:.0f} % {row.node} {doing_of(row)}".rstrip() for row in rows),
        ", ".join(f"{what} {100 * one / whole.seconds:.0f} %" for what, one in doing.items()),
    ]


def _headspace_line(possible: float, present: float, has_no_step: bool) -> str:
    times = possible / present if present else 0.0
    text = f"headspace: with elements from memory the loop takes {possible:.3g} per second, "
    if has_no_step:
        return (
            f"{text}but it does nothing with them: pass step=, the work of the training loop on an "
            "element, to learn how fast training could be."
        )
    if times < 1.05:
        return f"{text}no more than now: faster input would not speed up training."
    return f"{text}{times:.3g} times as many as now: so much faster could training be."


def _with_nested(measured: dict[Any, Measured]) -> tuple[Measured, ...]:
    """Return all measured costs, each pipeline before the pipelines nested in it."""
    found = list(measured.values())
    for one in found:
        found += one.nested.values()
    return tuple(found)


def _weight(one: Measured) -> float:
    """Return the time spent on work, in seconds. An operation with threads waits on the
    consumer's thread, so only its function counts.
    """
    if _has_threads(one):
        return one.calls
    return 0.0 if issubclass(one.kind, Prefetch) else one.seconds


def _has_threads(one: Measured) -> bool:
    return issubclass(
        one.kind,
        (ParallelMap, ParallelInterleave),
    )


def _row(one: Measured, ran: float, label: str) -> str:
    each = shown_seconds(one.seconds / one.elements if one.elements else 0.0)
    share = 100 * one.seconds / ran if ran else 0.0
    made = counted(one.elements, unit_of(one.node.batch_rows))
    text = f"{label}: {one.seconds:.3f} s ({share:.0f} %), {made}, {each} each"
    return text + (f", calls {one.calls:.3f} s on threads" if _has_threads(one) else "")


_BEHIND_WORKERS = (
    "It runs in this process, behind distribute(). Move it before distribute(), so that the "
    "workers do it."
)
_ADVICE: tuple[tuple[type[Node], str], ...] = (
    (
        ParallelMap,
        "Its function keeps the threads busy: make it faster, or distribute() it to more machines.",
    ),
    (
        Collate,
        "If its function waits or is numpy on large arrays: num_parallel_calls=AUTOTUNE. If it is "
        "Python: distribute() it to other processes.",
    ),
    (
        Map,
        "If its function waits or is numpy on large arrays: num_parallel_calls=AUTOTUNE. If it is "
        "Python: call it for a batch() at a time, or distribute() it to other processes.",
    ),
    (
        ParallelInterleave,
        "Its datasets are read more slowly than they are requested: raise cycle_length and "
        "num_parallel_calls, or distribute().",
    ),
    (
        FlatMap,
        "Its datasets are read sequentially: interleave(..., num_parallel_calls=AUTOTUNE).",
    ),
    (
        Filter,
        "Its predicate is called for each element: filter before costly maps, or select rows of a "
        "batch.",
    ),
    (
        Batch,
        "Elements are stacked individually: batch() directly after from_tensor_slices() or "
        "range() cuts whole batches out of the arrays; apply later map() calls to batches.",
    ),
    (
        Shuffle,
        "Shuffle before batch() and before decoding, where elements are small.",
    ),
    (
        FromGenerator,
        "The generator itself is slow: prefetch(AUTOTUNE) after it hides its waiting; files or "
        "arrays as the source can be split over workers.",
    ),
)


def _advice(worst: Measured, whole: float) -> str:
    if whole and _weight(worst) < 0.3 * whole:
        return "No operation stands out: distribute() the pipeline to speed up all of them."
    found = [text for kind, text in _ADVICE if issubclass(worst.kind, kind)]
    return (
        found[0] if found else "prefetch(AUTOTUNE) after it lets it run beside the training loop."
    )
