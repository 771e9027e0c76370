"""How a peer is measured, within its process: the same loop for all of them."""

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
"""Seconds between looks at the clock, at least, so that looking costs nothing."""


@dataclass(frozen=True)
class Turn:
    """What a peer is to measure now; see ``cases.Case``.

    Args:
        measure: a name of ``MEASURES``.
        element: the kind of element.
        setting: of the peer.
        workers: processes that run the pipeline.
        seconds: how long to read.
        warm: how long to read before that, behind the first element.
        spins: steps of Python that an element of ``work`` takes.
    """

    measure: str
    element: str
    setting: str
    workers: int
    seconds: float
    warm: float
    spins: int


class Peer:
    """Somebody who is measured. A process has one, for all of its turns.

    Args:
        service: where servers of it run already, in the notation of the peer; ``""``:
            it starts its own, on this host.
    """

    packages: ClassVar[tuple[str, ...]] = ()
    """The distributions whose versions are told."""

    def __init__(self, service: str = "") -> None:
        self.service = service

    def read(self, turn: Turn) -> AbstractContextManager[Iterator[Any]]:
        """Endless elements of the turn's kind, from workers that have been started
        before.
        """
        raise NotImplementedError

    def prepare(self, turn: Turn) -> None:
        """Starts what reading needs and a user would have running already."""

    def measure(self, turn: Turn) -> float:
        """The value of one turn."""
        return MEASURES[turn.measure](self, turn)

    def forget(self) -> None:
        """Ends its servers, so that the next turn begins with cold ones."""

    def close(self) -> None:
        """Ends everything."""
        self.forget()


def ended() -> Iterator[Any]:
    """What stands behind the last element, as a measurement that reaches it is none."""
    raise EOFError("the elements came to an end while they were read")
    yield


def count(elements: Iterator[Any], touch: Callable[[Any], Any], seconds: float) -> float:
    """Elements per second, of so many seconds and one element at least.

    Raises:
        EOFError: there are no more elements.
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
    """Elements per second from the first element on, after a while of reading that does
    not count.
    """
    touch = touching(turn.element)
    peer.prepare(turn)
    with peer.read(turn) as elements:
        touch(next(elements))
        count(elements, touch, turn.warm)
        return count(elements, touch, turn.seconds)


def first(peer: Peer, turn: Turn) -> float:
    """Seconds from ``iter()`` to the first element, with servers that run and have
    served a reader before.
    """
    peer.prepare(turn)
    _until_first(peer, turn)
    return _until_first(peer, turn)


def cold(peer: Peer, turn: Turn) -> float:
    """Seconds to the first element, servers included."""
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
