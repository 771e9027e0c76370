"""Call sites of user functions: they record the element of each call, and leave out
elements that killed their process.

They are used only if the context has a ``Watch``, as in a worker's tasks. Code in the
user's own process records nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from zmqdata.errors import PipelineError
from zmqdata.iterators.calling import failure
from zmqdata.iterators.context import Context
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.iterators.watch import IDLE, Watch, WatchSlot
from zmqdata.nodes.base import Node

Call = Callable[[int, Any], tuple[Any, "BaseException | None"]]
EVERY = range(1 << 63)
"""The number of every element."""


class CallSite:
    """Call site of a node's function: records each call while it lasts.

    Args:
        node: the node that the function belongs to.
        context: context of the node.
        watch: keeps the records.
        skippable: True if the node can leave elements out.

    Attributes:
        special: numbers of the elements that are left out. While the task makes its
            suspects, it has every number, since their calls run alone.
    """

    def __init__(self, node: Node, context: Context, watch: Watch, skippable: bool = True) -> None:
        self.label = node.label
        self._place, self._skippable = context.place, skippable
        self._watch, self._quarantine = watch, context.quarantine
        self._poisoned = frozenset(watch.poisoned.get(self._place, ()))
        self.special: Collection[int] = EVERY if watch.is_trying else self._poisoned
        self._idle: list[WatchSlot] = []

    def slot(self) -> WatchSlot:
        """Return a slot for a thread that records its calls itself."""
        slot = self._watch.open(self._place, self.label, self._skippable)
        self._idle.append(slot)
        return slot

    def __del__(self) -> None:
        for slot in self._idle:
            self._watch.close(slot)

    @contextmanager
    def trying(self, number: int) -> Iterator[None]:
        """Make a call for an element of ``special``."""
        with self._watch.trying(self._place, self.label, self._skippable, number):
            yield
        if not self._watch.is_trying:
            self.special = self._poisoned

    def heard(self, error: BaseException) -> None:
        """Report an error that a function raised and that is not raised further. Call
        it while the element is recorded.
        """
        self._watch.failed(error)

    def failure(self, node: Node, error: BaseException) -> BaseException:
        """Return the error to raise for an error of the function. Call it while the
        element is recorded.
        """
        self.heard(error)
        return failure(node, error)

    def poison(self, number: int, split: tuple[int, int] | None = None) -> LeftOut | None:
        """Return a ``LeftOut`` for element ``number`` if the element must be left out,
        else None.
        """
        if number not in self._poisoned:
            return None
        return LeftOut(
            number,
            self.label,
            "it killed its process several times (on_poison='skip')",
            "",
            split,
            self._place,
        )

    def leaves_out(self, number: int, split: tuple[int, int] | None = None) -> bool:
        """Return True if element ``number`` is left out, after adding it to the
        quarantine.
        """
        left_out = self.poison(number, split)
        if left_out is not None:
            self._quarantine.append(left_out)
        return left_out is not None

    def call(self, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call the function for element ``number`` and return its result.
        Thread-safe.
        """
        if number in self.special:
            with self.trying(number):
                return self._noted(number, function, arguments)
        return self._noted(number, function, arguments)

    def _noted(self, number: int, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = self._watch.open(self._place, self.label, self._skippable)
        cells, at = slot
        cells[at] = number
        try:
            return function(*arguments)
        except Exception as error:
            self.heard(error)
            raise
        finally:
            cells[at] = IDLE
            self._idle.append(slot)


def call_site(node: Node, context: Context, skippable: bool = True) -> CallSite | None:
    """Return the call site of a node; None if the context has no watch."""
    return None if context.watch is None else CallSite(node, context, context.watch, skippable)


def watched(node: Node, context: Context, run: Call) -> Call:
    """Wrap a function from number and element to outcome so that its calls are
    recorded; a poisoned element comes out as left out.
    """
    site = call_site(node, context)
    if site is None:
        return run

    def run_heard(number: int, element: Any) -> tuple[Any, BaseException | None]:
        outcome = run(number, element)
        if outcome[1] is not None:
            site.heard(outcome[1])
        return outcome

    def run_noted(number: int, element: Any) -> tuple[Any, BaseException | None]:
        left_out = site.poison(number) if number in site.special else None
        if left_out is not None:
            return left_out, PipelineError(f"{site.label}: {left_out.error}", node=site.label)
        outcome: tuple[Any, BaseException | None] = site.call(number, run_heard, number, element)
        return outcome

    return run_noted
