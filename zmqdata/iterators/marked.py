"""Inputs whose states say which decisions lie behind them (``deciding``), for the operations that decide."""

from __future__ import annotations

from typing import Any

from zmqdata.iterators.base import Context, ElementIterator, input_iterator
from zmqdata.iterators.deciding import Decider, Deciding
from zmqdata.nodes import Node


def decider_for(node: Node, context: Context) -> Decider | None:
    """Who decides for a node that may pass over elements; None where nobody makes them again."""
    return None if context.deciding is None else Decider(node.label, context.place, context.deciding)


class MarkedInput(ElementIterator):
    """The input of an operation that decides, or of whose elements datasets are made in which others do.

    Its state says besides which decisions lie behind it. Whatever holds back what came, holds such a state.
    """

    def __init__(self, node: Node, context: Context, deciding: Deciding) -> None:
        self._input = input_iterator(node, context)
        self._deciding = deciding

    def __next__(self) -> Any:
        return next(self._input)

    def state(self) -> Any:
        # In this order: what is decided in between lies behind the state, or is needed for nothing.
        return [self._deciding.mark(), self._input.state()]

    def restore(self, state: Any) -> None:
        self._input.restore(state[1])

    def current_split(self) -> tuple[int, int] | None:
        return self._input.current_split()

    def close(self) -> None:
        self._input.close()


def marked_input(node: Node, context: Context) -> ElementIterator:
    """The input of such an operation, marked where somebody may make its elements again."""
    deciding = context.deciding
    return input_iterator(node, context) if deciding is None else MarkedInput(node, context, deciding)
