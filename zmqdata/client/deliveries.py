"""The queue between an iterator's thread and the training loop: what may be taken of it, and in what pieces."""

from __future__ import annotations

import contextlib
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from zmqdata.client.delivery import Delivery, End

LONGEST_STEP = 256
SHORT = 0.0005
LONG = 0.005


class DeliveryQueue:
    """Blocks and the end, in the order in which the training loop gets them.

    The first block is the one that is being read; it leaves when all of it was taken. So an interrupt at any point of
    ``next`` loses no block.

    Args:
        holds: whether the client may hand out blocks now.
    """

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._items: deque[Delivery | End] = deque()
        self._holds = holds
        self._awaited = False
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    def __bool__(self) -> bool:
        return bool(self._items)

    # --- from the training thread

    def first(self) -> Delivery | End | None:
        """What comes next, if there is anything that may be handed out."""
        item = self._front()
        return item if isinstance(item, End) or self._holds() else None

    def _front(self) -> Delivery | End | None:
        try:
            return self._items[0]
        except IndexError:  # the other thread was faster
            return None

    def wait(self, seconds: float) -> None:
        """Waits until there is something to hand out, somebody wakes us, or the time is up.

        Not with a ``threading.Condition``: an interrupt in the midst of it leaves a lock that nobody can release.
        """
        self._awaited = True
        if self.first() is None:
            with contextlib.suppress(queue.Empty):
                self._wakes.get(timeout=seconds)
        self._awaited = False

    def remove(self, delivery: Delivery) -> None:
        """The training loop has taken the last element of the first block."""
        items = self._items  # which the other thread may put others in place of
        if items and items[0] is delivery:
            items.popleft()

    # --- from any thread

    def wake(self) -> None:
        """Ends the wait of the training thread."""
        self._wakes.put(None)

    # --- from the iterator's thread

    def put(self, item: Delivery | End) -> None:
        """Adds to the end."""
        self._items.append(item)
        self.tell()

    def tell(self) -> None:
        """Ends the wait of the training thread if it waits and need not."""
        if self._awaited and self.first() is not None:
            self.wake()

    def being_read(self) -> Delivery | None:
        """The first block, if that is what is there."""
        item = self._front()
        return item if isinstance(item, Delivery) else None

    def drop(self) -> None:
        """Forgets all blocks: they are not to be handed out, nor reported."""
        items = self._items.copy()
        self._items = deque(item for item in items if isinstance(item, End))
        for item in items:
            if isinstance(item, Delivery):
                item.dropped = True


class Strides:
    """Cuts the elements of blocks into pieces that a training loop takes in a few milliseconds. ``elements`` is one.

    Before each piece the lease is looked at. To do so before each element would cost fast loops more than all else that
    happens there; a slow loop gets one element at a time, and one that pauses in the midst of a piece gets another.
    """

    __slots__ = ("_since", "_size", "elements")

    def __init__(self) -> None:
        self.elements: Iterator[Any] = iter(())
        self._size = 1
        self._since = 0.0

    def begin(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Begins the next piece, and returns it."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        if seconds < SHORT:
            self._size = min(self._size * 2, LONGEST_STEP)
        elif seconds > LONG:
            self._size = 1
        self.elements = islice(elements, self._size)
        return self.elements

    def end(self) -> None:
        """Ends the present piece, from any thread."""
        self.elements = iter(())
