"""The queue between an iterator's thread and the training loop.

It contains blocks, failures and the end. This module also decides in what pieces the
training loop takes elements of it. ``client.shell`` fills it.
"""

from __future__ import annotations

import contextlib
import operator
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from zmqdata.core.client.events import Deliver, Finish, TakenElements
from zmqdata.errors import DataServiceError, ProtocolError, named_error
from zmqdata.failures.codec import decode_failure
from zmqdata.messages import Block


def no_place() -> None:
    """Return None: no operation may go back to a place."""


class BlockPart:
    """Elements of a block that were delivered together.

    All before number ``told`` have been reported. The credit of a block, ``size``,
    returns with its last element.
    """

    __slots__ = ("header", "size", "stop", "told")

    def __init__(self, header: Block, skip: int, stop: int) -> None:
        self.header = header
        self.told = header.first + skip
        self.stop = header.first + stop
        self.size = header.size if stop == header.stop else 0

    def report(self, through: int, size: int, oldest: int | None) -> TakenElements:
        """Return the event for the core that the training loop has taken everything
        before number ``through``.
        """
        first, self.told = self.told, through
        return TakenElements(self.header.task, self.header.attempt, first, through, size, oldest)


class Delivery:
    """A block in the queue, a part of a block, or parts of several blocks whose
    elements are taken in turn.

    Its elements are in an iterator that knows how many are left. A failure to raise
    stands for an element.

    Args:
        blocks: the parts.
        elements: the elements of each part.
        failure: stands for the only element.

    Attributes:
        before: number of elements that the training loop had taken when it came to this
            delivery; None before that.
        elements: the elements not yet taken.
        failure: the failure to raise, or None.
        parts: the parts of blocks.
        taken: True once the end of the delivery was reported.
        dropped: True if its elements must not be reported.
    """

    __slots__ = ("_count", "_owner", "before", "dropped", "elements", "failure", "parts", "taken")

    def __init__(
        self,
        blocks: tuple[Deliver, ...],
        elements: list[Iterator[Any]],
        failure: DataServiceError | None = None,
    ) -> None:
        self.parts = [BlockPart(one.header, one.skip, one.stop) for one in blocks]
        # Created in the order in which they are taken, so that they lie in that order
        # in memory too.
        woven = list(
            elements[0] if len(elements) == 1 else chain.from_iterable(zip(*elements, strict=True))
        )
        self._count = len(woven)
        self.elements: Iterator[Any] = iter(woven)
        self.failure = failure
        self.taken = False
        self.dropped = False
        self.before: int | None = None
        self._owner: dict[str, str] = {}

    def claim(self, owner: str) -> bool:
        """Return True if this owner may have the elements: the first that has claimed
        them, from any thread.
        """
        return self._owner.setdefault("owner", owner) == owner

    def is_of(self, task: int, attempt: int) -> bool:
        """Return True if all elements are of an attempt of a task."""
        header = self.parts[0].header
        return (header.task, header.attempt) == (task, attempt)

    @property
    def count(self) -> int:
        """Number of elements that it had at first."""
        return self._count

    @property
    def behind(self) -> int:
        """Number of elements that the training loop will have taken at its end."""
        return (self.before or 0) + self._count

    @property
    def place(self) -> int:
        """Number of elements that the training loop has taken, if it reads this
        delivery.
        """
        return self.behind - self.left

    @property
    def left(self) -> int:
        """Number of elements that the training loop has yet to take."""
        return operator.length_hint(self.elements)

    @property
    def returns_credit(self) -> bool:
        """True if a block ends in this delivery."""
        return any(part.size for part in self.parts)

    def report_all(self, oldest: Callable[[], int | None] = no_place) -> list[TakenElements]:
        """Return the events for the core after all elements were taken.

        Args:
            oldest: returns the oldest place to which an operation may go back.
        """
        place = oldest()
        return [part.report(part.stop, part.size, place) for part in self.parts]

    def report_taken(self, oldest: Callable[[], int | None] = no_place) -> list[TakenElements]:
        """Return the events for the core about elements taken and not yet reported."""
        turns, place = divmod(self._count - self.left, len(self.parts))
        length = self._count // len(self.parts)
        taken = [
            part.stop - length + turns + (number < place) for number, part in enumerate(self.parts)
        ]
        # Asked last: a place recorded meanwhile lies after what is counted here.
        place_kept = oldest()
        pairs = zip(self.parts, taken, strict=True)
        return [
            part.report(through, 0, place_kept) for part, through in pairs if through > part.told
        ]

    def take_failure(self) -> DataServiceError | None:
        """Return the failure, once.

        A failure kept here would keep the iterator alive for ever through its
        traceback.
        """
        failure, self.failure = self.failure, None
        if failure is not None:
            next(self.elements)
        return failure


class End:
    """The end of the queue: nothing more arrives, perhaps because of an error.

    Args:
        finish: what the core has decided.
    """

    def __init__(self, finish: Finish) -> None:
        self._finish = finish

    @property
    def has_failed(self) -> bool:
        """True if an error is the reason of the end."""
        return bool(self._finish.error or self._finish.failure)

    def error(self) -> DataServiceError:
        """Return the reason of a failed end. It is a new object each time, because the
        traceback of a raised error would keep the iterator alive.
        """
        told = self._finish
        error: DataServiceError | None = None
        if told.failure:
            with contextlib.suppress(ProtocolError):
                error = decode_failure(told.failure)
        error = error or named_error(told.error, told.text)
        error.final = True
        return error


LONGEST_STEP = 256
"""Most elements of a piece."""
SHORT = 0.0005
"""Seconds below which a piece is too short, so the next has twice as many elements."""
LONG = 0.005
"""Seconds above which a piece is too long, so the next has a single element."""


READER, DROPPED = "reader", "dropped"
"""Owners of a delivery: the training loop, and nobody if it was dropped."""


class DeliveryQueue:
    """Blocks and the end, in the order in which the training loop receives them.

    The first block is the one being read. It is removed once all of it was taken, so an
    interrupt at any point of ``next`` loses no block.

    Args:
        holds: returns True if the client may hand out blocks now.

    Attributes:
        late: seconds in which threads of this process had something to do for the
            training loop and did not come to run.
    """

    def __init__(self, holds: Callable[[], bool]) -> None:
        self._items: deque[Delivery | End] = deque()
        self._holds = holds
        self._awaited = False
        self._wakes: queue.SimpleQueue[float] = queue.SimpleQueue()
        self.late = 0.0

    def __bool__(self) -> bool:
        return bool(self._items)

    # --- from the training thread

    def first(self) -> Delivery | End | None:
        """Return the next item, or None if nothing may be handed out.

        A block of which everything was taken needs no lease: what lies behind it may be
        the end, of a client whose lease is over.
        """
        item = self._front()
        if isinstance(item, End) or (item is not None and not item.left):
            return item
        return item if self._holds() else None

    def _front(self) -> Delivery | End | None:
        try:
            return self._items[0]
        except IndexError:  # the other thread was faster, or nothing is queued
            return None

    def begin(self, delivery: Delivery, place: int) -> bool:
        """Begin to read the first block. Return False if it was dropped, and there is
        another first item. An interrupt in here, and another call, change nothing.

        Args:
            delivery: the first block.
            place: number of elements that the training loop has taken.
        """
        if delivery.before is None:
            delivery.before = place
        # The thread that has dropped it removes it, too. If both did, one of them could
        # remove the item after it.
        return delivery.claim(READER)

    def wait(self, seconds: float) -> None:
        """Wait until an item may be handed out, ``wake`` is called, or the time is up.

        This does not use a ``threading.Condition``: an interrupt within it leaves a
        lock that cannot be released.
        """
        self._awaited = True
        if self.first() is None:
            began = time.monotonic()
            with contextlib.suppress(queue.Empty):
                woken = self._wakes.get(timeout=seconds)  # perhaps before this wait
                self.late += time.monotonic() - max(began, woken)
        self._awaited = False

    def remove(self, delivery: Delivery) -> None:
        """Remove the first block after the training loop has taken its last element."""
        items = self._items  # the other thread may replace this deque
        if items and items[0] is delivery:
            items.popleft()

    # --- from any thread

    def wake(self) -> None:
        """End the wait of the training thread."""
        self._wakes.put(time.monotonic())

    # --- from the iterator's thread

    def put(self, item: Delivery | End) -> None:
        """Append an item."""
        self._items.append(item)
        self.tell()

    def tell(self) -> None:
        """End the wait of the training thread if an item may be handed out."""
        if self._awaited and self.first() is not None:
            self.wake()

    def being_read(self) -> Delivery | None:
        """Return the first block, or None if the queue is empty or at its end."""
        item = self._front()
        return item if isinstance(item, Delivery) else None

    def drop_unbegun(self, task: int, attempt: int, count: int) -> list[tuple[int, int]]:
        """Drop the last blocks of a task that the training loop has not begun, and
        return the ranges of their elements.

        Args:
            task: number of the task.
            attempt: attempt that sent the elements.
            count: maximum number of elements.
        """
        ranges = []
        for item in reversed(self._items.copy()):
            if not isinstance(item, Delivery) or not item.is_of(task, attempt):
                continue
            if item.count > count or not item.claim(DROPPED):
                break
            count -= item.count
            item.dropped = True
            part = item.parts[0]
            ranges.append((part.told, part.stop))
            with contextlib.suppress(ValueError):  # the training thread has removed it
                self._items.remove(item)
        return ranges

    def drop(self) -> None:
        """Forget all blocks. They must be neither handed out nor reported."""
        items = self._items.copy()
        self._items = deque(item for item in items if isinstance(item, End))
        for item in items:
            if isinstance(item, Delivery):
                item.dropped = True


class Strides:
    """Cuts the elements of blocks into pieces that a training loop takes in a few
    milliseconds.

    The lease is checked before each piece. A check before each element would cost fast
    loops more than everything else that happens there. A slow loop gets a single
    element at a time, and a loop that pauses within a piece gets another piece.

    Attributes:
        elements: the present piece.
    """

    __slots__ = ("_since", "_size", "elements")

    def __init__(self) -> None:
        self.elements: Iterator[Any] = iter(())
        self._size = 1
        self._since = 0.0

    def begin(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Begin the next piece, and return it."""
        now = time.monotonic()
        seconds, self._since = now - self._since, now
        if seconds < SHORT:
            self._size = min(self._size * 2, LONGEST_STEP)
        elif seconds > LONG:
            self._size = 1
        self.elements = islice(elements, self._size)
        return self.elements

    def end(self) -> None:
        """End the present piece, from any thread."""
        self.elements = iter(())
