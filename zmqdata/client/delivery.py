"""What stands in the queue between an iterator's thread and the training loop: blocks,
failures, and the end.

The queue between an iterator's thread and the training loop: what may be taken of it,
and in what pieces.
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


def nobody() -> None:
    """In place of who tells the oldest place that somebody may go back to: nobody
    may.
    """


class BlockPart:
    """Elements of one block that were delivered together; all before number ``told``
    were reported.

    The credit of a block, ``size``, returns with its last element.
    """

    __slots__ = ("header", "size", "stop", "told")

    def __init__(self, header: Block, skip: int, stop: int) -> None:
        self.header = header
        self.told = header.first + skip
        self.stop = header.first + stop
        self.size = header.size if stop == header.count else 0

    def report(self, through: int, size: int, oldest: int | None) -> TakenElements:
        """What to tell the core: the training loop has everything before this
        number.
        """
        first, self.told = self.told, through
        return TakenElements(self.header.task, self.header.attempt, first, through, size, oldest)


class Delivery:
    """A block in the queue, or part of one, or parts of several of which one element
    each is taken in turn.

    Its elements stand in an iterator that knows how many are left; a failure to raise
    stands for one of them.

    Args:
        blocks: the parts.
        elements: those of each part.
        failure: stands for the only element.

    Attributes:
        before: how many elements stood in the queue before it.
    """

    __slots__ = ("_count", "before", "dropped", "elements", "failure", "parts", "taken")

    def __init__(
        self,
        blocks: tuple[Deliver, ...],
        elements: list[Iterator[Any]],
        failure: DataServiceError | None = None,
    ) -> None:
        self.parts = [BlockPart(one.header, one.skip, one.stop) for one in blocks]
        # Made in the order in which they are taken, they also lie so in memory.
        woven = list(
            elements[0] if len(elements) == 1 else chain.from_iterable(zip(*elements, strict=True))
        )
        self._count = len(woven)
        self.elements: Iterator[Any] = iter(woven)
        self.failure = failure
        self.taken = False
        self.dropped = False
        self.before = 0

    @property
    def behind(self) -> int:
        """How many elements have stood in the queue up to its end."""
        return self.before + self._count

    @property
    def place(self) -> int:
        """How many elements the training loop has taken, if this is what it takes
        from.
        """
        return self.behind - self.left

    @property
    def left(self) -> int:
        """How many elements the training loop has still to take."""
        return operator.length_hint(self.elements)

    @property
    def returns_credit(self) -> bool:
        """Whether a block ends in it."""
        return any(part.size for part in self.parts)

    def report_all(self, oldest: Callable[[], int | None] = nobody) -> list[TakenElements]:
        """What to tell the core when all was taken. ``oldest``: tells the oldest place
        that somebody may go back to.
        """
        place = oldest()
        return [part.report(part.stop, part.size, place) for part in self.parts]

    def report_taken(self, oldest: Callable[[], int | None] = nobody) -> list[TakenElements]:
        """What to tell the core of what was taken and not told so far."""
        turns, place = divmod(self._count - self.left, len(self.parts))
        length = self._count // len(self.parts)
        taken = [
            part.stop - length + turns + (number < place) for number, part in enumerate(self.parts)
        ]
        # Asked afterwards: who has noted a place meanwhile has noted one behind what is
        # counted here.
        place_kept = oldest()
        pairs = zip(self.parts, taken, strict=True)
        return [
            part.report(through, 0, place_kept) for part, through in pairs if through > part.told
        ]

    def take_failure(self) -> DataServiceError | None:
        """The failure, once: kept here, its traceback would keep the iterator alive for
        ever.
        """
        failure, self.failure = self.failure, None
        if failure is not None:
            next(self.elements)
        return failure


class End:
    """What stands behind the last block: nothing more comes, perhaps because of an
    error, which is raised once.
    """

    def __init__(self, error: DataServiceError | None) -> None:
        self.error = error

    @classmethod
    def by(cls, command: Finish) -> End:
        """The end that the core has decided on."""
        if command.failure:
            with contextlib.suppress(ProtocolError):
                return cls(decode_failure(command.failure))
        return cls(named_error(command.error, command.text) if command.error else None)

    def take_error(self) -> DataServiceError | None:
        """The error, the first time."""
        error, self.error = self.error, None
        return error


LONGEST_STEP = 256
SHORT = 0.0005
LONG = 0.005


class DeliveryQueue:
    """Blocks and the end, in the order in which the training loop gets them.

    The first block is the one that is being read; it leaves when all of it was taken.
    So an interrupt at any point of ``next`` loses no block.

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
        """Waits until there is something to hand out, somebody wakes us, or the time is
        up.

        Not with a ``threading.Condition``: an interrupt in the midst of it leaves a
        lock that nobody can release.
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
    """Cuts the elements of blocks into pieces that a training loop takes in a few
    milliseconds. ``elements`` is one.

    Before each piece the lease is looked at. To do so before each element would cost
    fast loops more than all else that happens there; a slow loop gets one element at a
    time, and one that pauses in the midst of a piece gets another.
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
