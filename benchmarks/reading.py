"""Measurement within a peer's process: the same loop for all peers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain, islice
from time import perf_counter
from typing import Any, ClassVar

from benchmarks.workloads import touching

LOOK = 0.005
"""Minimum of seconds between looks at the clock, so that looking costs nothing."""


@dataclass(frozen=True)
class Turn:
    """A measurement for a peer to make; see ``cases.Case``."""

    measure: str
    """Key of ``MEASURES``."""
    element: str
    """Kind of element."""
    setting: str
    """Setting of the peer."""
    workers: int
    """Number of processes that run the pipeline."""
    seconds: float
    """Seconds to read."""
    warm: float
    """Seconds to read before, after the first element."""
    spins: int
    """Steps of Python that an element of ``work`` takes."""


class Peer:
    """A library under measurement. A process has a single peer, for all its turns.

    Args:
        service: address of servers that already run, in the peer's notation; empty: the
            peer starts its own, on this host.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    """Distributions whose versions are reported."""

    def __init__(self, service: str = "") -> None:
        self.service = service

    def read(self, turn: Turn) -> AbstractContextManager[Iterator[Any]]:
        """Return endless elements of the turn's kind, from workers that were started
        before.
        """
        raise NotImplementedError

    def prepare(self, turn: Turn) -> None:
        """Start what reading needs and a user would have running already."""

    def measure(self, turn: Turn) -> float:
        """Return the value of a turn."""
        return MEASURES[turn.measure](self, turn)

    def forget(self) -> None:
        """End the peer's servers, so that the next turn starts cold."""

    def close(self) -> None:
        """End everything."""
        self.forget()


def ended() -> Iterator[Any]:
    """Raise an error behind the last element, since a measurement that reaches it is
    invalid.
    """
    raise EOFError("the elements ended while they were being measured")
    yield


def count(elements: Iterator[Any], touch: Callable[[Any], Any], seconds: float) -> float:
    """Return the elements per second, over at least ``seconds`` and at least an
    element.

    Raises:
        EOFError: the elements have ended.
    """
    portion, total = 1, 0
    guarded = chain(elements, ended())
    begin = last = perf_counter()
    while not total or last - begin < seconds:
        deque(map(touch, islice(guarded, portion)), maxlen=0)
        total += portion
        now = perf_counter()
        if now - last < LOOK:
            portion *= 2
        last = now
    return total / (last - begin)


def rate(peer: Peer, turn: Turn) -> float:
    """Return the elements per second after the first element and a warm-up."""
    touch = touching(turn.element)
    peer.prepare(turn)
    with peer.read(turn) as elements:
        touch(next(elements))
        count(elements, touch, turn.warm)
        return count(elements, touch, turn.seconds)


def first(peer: Peer, turn: Turn) -> float:
    """Return the seconds from ``iter()`` to the first element, with servers that have
    served a reader before.
    """
    peer.prepare(turn)
    _until_first(peer, turn)
    return _until_first(peer, turn)


def cold(peer: Peer, turn: Turn) -> float:
    """Return the seconds to the first element, with the start of servers."""
    peer.forget()
    begin = perf_counter()
    peer.prepare(turn)
    _until_first(peer, turn)
    spent = perf_counter() - begin
    peer.forget()
    return spent


def _until_first(peer: Peer, turn: Turn) -> float:
    begin = perf_counter()
    with peer.read(turn) as elements:
        next(elements)
        return perf_counter() - begin


MEASURES: dict[str, Callable[[Peer, Turn], float]] = {"rate": rate, "first": first, "cold": cold}
