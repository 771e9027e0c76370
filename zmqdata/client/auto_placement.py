"""Where a pipeline runs that costs less than to ship its elements:
``distribute(..., placement="auto")``.

A trial runs it in this process for a moment, and holds what an element costs against
what it costs to pack and unpack.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from zmqdata.blocks import BlockBuilder, decode_block, size_of, whole
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.failures.exceptions import text_of
from zmqdata.iterators import Context, ElementIterator, make_iterator
from zmqdata.nodes import Node, options_of

log = logging.getLogger(__name__)

PATIENCE = 0.1
"""Seconds that a trial may take: where it takes longer, elements, or the first one, are
costly.
"""
TRIAL_SECONDS = 0.02
TRIAL_ELEMENTS = 2048
TRIAL_BYTES = 8 << 20
GAIN = 2.0
"""A pipeline runs here if it costs no more than so many times what shipping costs. That
is more than to pack and to unpack, and what costs about as much on a worker's core
comes no sooner from there.
"""


@dataclass(frozen=True)
class AutoPlacement:
    """Where the elements of an iterator are made, and why.

    Attributes:
        local: whether it is this process.
        cost: seconds that an element costs where the pipeline runs alone; None: more
            than a trial would wait for.
        shipping: seconds that packing and unpacking one costs; None: it was not tried.
        reason: why there are no costs.

    >>> print(AutoPlacement(True, 0.5e-6, 0.6e-6))
    here: an element costs 0.5 us, to ship it 0.6 us and more
    """

    local: bool
    cost: float | None = None
    shipping: float | None = None
    reason: str = field(default="as the state says that was loaded", compare=False)

    def __str__(self) -> str:
        where = "here" if self.local else "in the service"
        if self.cost is None or self.shipping is None:
            return f"{where}: {self.reason}"
        return f"{where}: an element costs {self.cost * 1e6:.1f} us, to ship it {self.shipping * 1e6:.1f} us and more"


def placement_of(cost: float, shipping: float) -> AutoPlacement:
    """Where a pipeline runs whose elements cost so much each, in seconds.

    >>> placement_of(1e-6, 1e-6).local, placement_of(1e-3, 1e-6).local
    (True, False)
    """
    return AutoPlacement(cost <= GAIN * shipping, cost, shipping)


class Placing:
    """Decides once for a dataset where its pipeline runs.

    Args:
        node: the pipeline.
        clock: the time in seconds.
        patience: seconds after which a trial that has not ended says enough.
    """

    def __init__(
        self, node: Node, clock: Callable[[], float] = time.perf_counter, patience: float = PATIENCE
    ) -> None:
        self._node = node
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        self._found: AutoPlacement | None = None

    def decide(self) -> AutoPlacement:
        """Where it runs; found by a trial the first time, which takes a tenth of a
        second at most.
        """
        with self._lock:
            if self._found is None:
                self._found = self._tried()
                log.info("placement='auto': %s runs %s", self._node.label, self._found)
            return self._found

    def _tried(self) -> AutoPlacement:
        late = f"making, packing and unpacking some elements took longer than {self._patience * 1000:.0f} ms"
        answers: list[AutoPlacement] = []
        ended, is_late = threading.Event(), threading.Event()

        def check() -> None:
            if is_late.is_set():
                raise TimeoutError(late)

        def run() -> None:
            try:
                answers.append(self._try(check))
            # What fails here may be right on a worker, which has other files and
            # modules; sys.exit() is no exception.
            except BaseException as error:
                reason = f"it could not be tried here ({type(error).__name__}: {text_of(error)})"
                answers.append(AutoPlacement(False, reason=reason))
            finally:
                ended.set()

        # In a thread of its own, as a first element may take minutes. One that is late
        # ends with its next element.
        threading.Thread(target=run, name="zmqdata-trial", daemon=True).start()
        ended.wait(self._patience)
        is_late.set()
        return answers[0] if answers else AutoPlacement(False, reason=late)

    def _try(self, check: Callable[[], None]) -> AutoPlacement:
        """``check`` raises when nobody waits any more."""
        iterator = make_iterator(self._node, local_context(self._node, Context()))
        try:
            made = list(itertools.islice(iterator, 1))  # what it takes to begin is no measure
            cost = self._cost(iterator, made, check)
        finally:
            iterator.close()
        if not made:
            return AutoPlacement(True, 0.0, 0.0)
        sent = made if size_of(made[-1]) <= TRIAL_BYTES else made[-1:]
        return placement_of(cost, shipping_cost(sent, self._clock, check))

    def _cost(self, iterator: ElementIterator, made: list[Any], check: Callable[[], None]) -> float:
        """Seconds for each element, which are added to those that were made."""
        start, spent, first = self._clock(), 0.0, len(made)
        while made and spent < TRIAL_SECONDS and len(made) < TRIAL_ELEMENTS:
            check()
            # Few at first, and no look at the clock for each of them, which costs as
            # much as many an element.
            room = max(1, TRIAL_BYTES // max(1, size_of(made[-1])))
            fresh = list(itertools.islice(iterator, min(len(made), room)))
            spent = self._clock() - start
            made += fresh
            if not fresh or len(made) >= room:
                break
        return spent / max(1, len(made) - first)


def shipping_cost(
    elements: list[Any], clock: Callable[[], float], check: Callable[[], None] = lambda: None
) -> float:
    """Seconds that it takes to pack one of these elements into a block, and to unpack
    it.

    ``check`` is called now and then, and raises what ends it.

    Raises:
        TypeError: one of them does not travel.
    """
    check()
    builder, start = BlockBuilder(), clock()
    count = 0
    for element in elements:
        if not builder.add(element):
            check()
            count += _unpacked(builder)
            builder.add(element)
    count += _unpacked(builder)
    return (clock() - start) / count


def _unpacked(builder: BlockBuilder) -> int:
    block = builder.build()
    # As bytes of its own, for the way over a socket is at least a copy.
    frames = [bytes(whole(frame)) for frame in block.frames]
    return sum(1 for _ in decode_block(block.meta, frames).elements())


def local_context(node: Node, context: Context) -> Context:
    """What a pipeline runs in that would have been a job of the service."""
    return replace(
        context, path=(*context.path, 0), options=options_of(node), providers=None, shared_seed=None
    )


class Auditable(Protocol):
    """An iterator that reads from the service."""

    def audit(self) -> dict[str, Any]:
        """What the service knows of it."""


class PlacedIterator(ElementIterator):
    """Reads a pipeline from where it was placed; its ``__next__`` is that of the
    iterator which does.

    Args:
        node: the pipeline, to run here.
        context: what it runs in here.
        placing: decides.
        serve: makes the iterator that reads it from the service.

    Attributes:
        placement: where it was placed; None until the state of another is loaded.
    """

    # As a slot, so that no frame of Python lies between an element and the loop.
    __slots__ = ("__next__", "_context", "_node", "_running", "_serve", "placement")
    __next__: Callable[[], Any]

    def __init__(
        self, node: Node, context: Context, placing: Placing, serve: Callable[[], ElementIterator]
    ) -> None:
        self._node, self._context, self._serve = node, context, serve
        self.placement: AutoPlacement | None = None
        self._running: ElementIterator | None = None
        if not context.restoring:
            self._run(placing.decide())

    def _run(self, placement: AutoPlacement) -> ElementIterator:
        context = local_context(self._node, self._context)
        self._running = running = (
            make_iterator(self._node, context) if placement.local else self._serve()
        )
        self.placement = placement
        self.__next__ = running.__next__
        return running

    def state(self) -> Any:
        """Where it is, with where it runs: a stream that began here goes on here."""
        assert self.placement is not None
        assert self._running is not None
        return [self.placement.local, self._running.state()]

    def restore(self, state: Any) -> None:
        if (
            not isinstance(state, (list, tuple))
            or len(state) != 2
            or not isinstance(state[0], bool)
        ):
            raise InvalidArgumentError(
                "the state was not taken from a distributed dataset with placement='auto'"
            )
        self._run(AutoPlacement(state[0])).restore(state[1])

    def close(self) -> None:
        if self._running is not None:
            self._running.close()

    def audit(self) -> dict[str, Any]:
        """What the service knows of it, if it is read from there.

        Raises:
            FailedPreconditionError: it is not.
        """
        if self.placement is None or self.placement.local:
            raise FailedPreconditionError(
                "this iterator's elements are made in this process, not by a job "
                f"({self.placement}): there is nothing "
                "to audit. Leave placement='auto' out to have workers make them"
            )
        return cast("Auditable", self._running).audit()
