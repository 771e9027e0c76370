"""Noting which element a user's function is called with, and leaving out those that
killed their process.

Only where the context has a ``Watch``, as in a worker's tasks: what runs in the user's
own process notes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from zmqdata.errors import PipelineError
from zmqdata.iterators.base import Context, failure
from zmqdata.iterators.watching import IDLE, LeftOut, Watch, WatchSlot
from zmqdata.nodes import Node

Call = Callable[[int, Any], tuple[Any, "BaseException | None"]]


class CallSite:
    """The calls of one node's function: each is noted while it lasts.

    Args:
        node: whose function it is.
        context: its context, which has a watch.
        skippable: whether the node can leave elements out.

    Attributes:
        special: the numbers of elements that are left out, or called for alone.
    """

    def __init__(self, node: Node, context: Context, watch: Watch, skippable: bool = True) -> None:
        self.label = node.label
        self._place, self._skippable = context.place, skippable
        self._watch, self._quarantine = watch, context.quarantine
        self._poisoned = frozenset(watch.poisoned.get(self._place, ()))
        self._suspects = frozenset(watch.suspects.get(self._place, ()))
        self.special = self._poisoned | self._suspects
        self._idle: list[WatchSlot] = []

    def slot(self) -> WatchSlot:
        """A slot for a thread that notes by itself."""
        slot = self._watch.open(self._place, self.label, self._skippable)
        self._idle.append(slot)
        return slot

    def __del__(self) -> None:
        for slot in self._idle:
            self._watch.close(slot)

    def alone(self) -> AbstractContextManager[object]:
        """Held while an element of ``special`` is called for."""
        return self._watch.alone()

    def heard(self, error: BaseException) -> None:
        """A function has raised an error that is not raised any further; called while
        its element is noted.
        """
        self._watch.failed(error)

    def failure(self, node: Node, error: BaseException) -> BaseException:
        """What to raise for what a function has raised; called while its element is
        noted.
        """
        self.heard(error)
        return failure(node, error)

    def poison(self, number: int, split: tuple[int, int] | None = None) -> LeftOut | None:
        """Element ``number`` as left out, if it is to be."""
        if number not in self._poisoned:
            return None
        return LeftOut(
            number,
            self.label,
            "it has killed its process several times (on_poison='skip')",
            "",
            split,
        )

    def leaves_out(self, number: int, split: tuple[int, int] | None = None) -> bool:
        """Whether element ``number`` is left out; then it is in the quarantine."""
        left_out = self.poison(number, split)
        if left_out is not None:
            self._quarantine.append(left_out)
        return left_out is not None

    def call(self, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """What the function makes of element ``number``. From any thread."""
        if number in self._suspects:
            with self._watch.alone():
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
    """Where the calls of a node are noted; None where nobody watches."""
    return None if context.watch is None else CallSite(node, context, context.watch, skippable)


def watched(node: Node, context: Context, run: Call) -> Call:
    """The same function from number and element to outcome, noted; what is poison comes
    out as left out.
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
