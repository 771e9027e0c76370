"""Placement of cheap pipelines in the reading process:
``distribute(..., placement="auto")``.

A trial runs the pipeline in this process for a moment. It compares the cost of
producing an element with the cost of packing and unpacking it (decision 0022).
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
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.nodes.options import options_of

log = logging.getLogger(__name__)

PATIENCE = 0.1
"""Seconds that a trial may take. If it takes longer, elements, or the first element,
are costly.
"""
TRIAL_SECONDS = 0.02
"""Seconds of producing elements after which a trial has measured enough."""
TRIAL_ELEMENTS = 2048
"""Most elements that a trial produces."""
TRIAL_BYTES = 8 << 20
"""Most bytes of elements that a trial produces."""
GAIN = 2.0
"""A pipeline runs here if its elements cost at most this many times what packing and
unpacking them costs.

Shipping costs more than that. And a pipeline that costs about as much on a worker's
core delivers no sooner from there.
"""


@dataclass(frozen=True)
class AutoPlacement:
    """The place at which the elements of an iterator are produced, and the reason.

    >>> print(AutoPlacement(True, 0.5e-6, 0.6e-6))
    here: an element costs 0.5 us, and shipping it 0.6 us or more
    """

    local: bool
    """True if elements are produced in this process."""
    cost: float | None = None
    """Seconds per element if the pipeline runs alone. None if the trial took too
    long.
    """
    shipping: float | None = None
    """Seconds to pack and unpack an element. None if it was not tried."""
    reason: str = field(default="as recorded in the loaded state", compare=False)
    """Why there are no costs."""

    def __str__(self) -> str:
        where = "here" if self.local else "in the service"
        if self.cost is None or self.shipping is None:
            return f"{where}: {self.reason}"
        return (
            f"{where}: an element costs {self.cost * 1e6:.1f} us, and shipping it "
            f"{self.shipping * 1e6:.1f} us or more"
        )


def placement_of(cost: float, shipping: float) -> AutoPlacement:
    """Return the placement of a pipeline with these costs per element, in seconds.

    >>> placement_of(1e-6, 1e-6).local, placement_of(1e-3, 1e-6).local
    (True, False)
    """
    return AutoPlacement(cost <= GAIN * shipping, cost, shipping)


class Placing:
    """Decides once, for a dataset, where its pipeline runs.

    Args:
        node: the pipeline.
        clock: returns the time in seconds.
        patience: seconds after which an unfinished trial shows that the pipeline is
            costly.
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
        """Return where the pipeline runs. The first call finds out by a trial, which
        takes a tenth of a second at most.
        """
        with self._lock:
            if self._found is None:
                self._found = self._tried()
                log.info("placement='auto': %s runs %s", self._node.label, self._found)
            return self._found

    def _tried(self) -> AutoPlacement:
        late = (
            "producing, packing and unpacking some elements took longer than "
            f"{self._patience * 1000:.0f} ms"
        )
        answers: list[AutoPlacement] = []
        ended, is_late = threading.Event(), threading.Event()

        def check() -> None:
            if is_late.is_set():
                raise TimeoutError(late)

        def run() -> None:
            try:
                answers.append(self._try(check))
            # A function that fails here may succeed on a worker, which has other files
            # and modules. `sys.exit()` is no `Exception`.
            except BaseException as error:
                reason = (
                    f"the trial in this process failed ({type(error).__name__}: {text_of(error)})"
                )
                answers.append(AutoPlacement(False, reason=reason))
            finally:
                ended.set()

        # In its own thread, because the first element may take minutes. A late trial
        # ends with its next element.
        threading.Thread(target=run, name="zmqdata-trial", daemon=True).start()
        ended.wait(self._patience)
        is_late.set()
        return answers[0] if answers else AutoPlacement(False, reason=late)

    def _try(self, check: Callable[[], None]) -> AutoPlacement:
        """Run the trial. ``check`` raises when the result is no longer awaited."""
        iterator = make_iterator(self._node, local_context(self._node, Context()))
        try:
            made = list(itertools.islice(iterator, 1))  # the cost of starting does not count
            cost = self._cost(iterator, made, check)
        finally:
            iterator.close()
        if not made:
            return AutoPlacement(True, 0.0, 0.0)
        sent = made if size_of(made[-1]) <= TRIAL_BYTES else made[-1:]
        return placement_of(cost, shipping_cost(sent, self._clock, check))

    def _cost(self, iterator: ElementIterator, made: list[Any], check: Callable[[], None]) -> float:
        """Return the seconds per element of further elements, and append them to
        ``made``.
        """
        start, spent, first = self._clock(), 0.0, len(made)
        while made and spent < TRIAL_SECONDS and len(made) < TRIAL_ELEMENTS:
            check()
            # Few elements at first, and no look at the clock for each, which would cost
            # as much as a cheap element.
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
    """Return the seconds that packing an element into a block and unpacking it takes.

    Args:
        elements: the elements to try.
        clock: returns the time in seconds.
        check: called now and then; raises to end the trial.

    Raises:
        TypeError: an element cannot be sent.
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
    # Copied, because the way over a socket is at least a copy.
    frames = [bytes(whole(frame)) for frame in block.frames]
    return sum(1 for _ in decode_block(block.meta, frames).elements())


def local_context(node: Node, context: Context) -> Context:
    """Return the context in which a pipeline runs that would otherwise be a job of the
    service.
    """
    return replace(
        context, path=(*context.path, 0), options=options_of(node), providers=None, shared_seed=None
    )


class Auditable(Protocol):
    """An iterator that reads from the service."""

    def audit(self) -> dict[str, Any]:
        """Return what the service knows of the iterator's repetition."""


class PlacedIterator(ElementIterator):
    """Iterator over a pipeline, from where the pipeline was placed.

    Its ``__next__`` is that of the iterator that produces the elements.

    Args:
        node: the pipeline, to run here.
        context: the context in which it runs here.
        placing: decides where it runs.
        serve: makes the iterator that reads it from the service.

    Attributes:
        placement: where it was placed, or None until a state is loaded.
    """

    # A slot, so that no Python frame lies between an element and the loop.
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

    @property
    def is_shareable(self) -> bool:
        return self._running is not None and self._running.is_shareable

    def _run(self, placement: AutoPlacement) -> ElementIterator:
        context = local_context(self._node, self._context)
        self._running = running = (
            make_iterator(self._node, context) if placement.local else self._serve()
        )
        self.placement = placement
        self.__next__ = running.__next__
        return running

    def state(self) -> Any:
        """Return the position, and where the pipeline runs. A stream that began here
        continues here.
        """
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
                "The state was not taken from a distributed dataset with "
                "`placement='auto'`. Load it into the pipeline that it was saved "
                "from."
            )
        self._run(AutoPlacement(state[0])).restore(state[1])

    def close(self) -> None:
        if self._running is not None:
            self._running.close()

    def audit(self) -> dict[str, Any]:
        """Return what the service knows of the iterator's repetition.

        Raises:
            FailedPreconditionError: the pipeline does not run in the service.
        """
        if self.placement is None or self.placement.local:
            raise FailedPreconditionError(
                "The elements of this iterator are produced in this process, not by "
                f"a job ({self.placement}), so there is nothing to audit. Leave out "
                "`placement='auto'` to have workers produce them."
            )
        return cast("Auditable", self._running).audit()
