"""What a task's pipeline makes becomes blocks here: numbered, dealt to lanes,
collected, handed over.

A lane is a row of blocks for one numbered consumer of a coordinated job; the tasks of
other jobs have a single one, for everybody. Elements are numbered by rounds: one for
each lane. Where there is one lane, a round is an element.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from zmqdata.blocks import BlockBuilder, Compression, ReferenceBuilder, detached, size_of
from zmqdata.core.credit import FEW_BYTES, MOST_BYTES
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import events as e
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import encode_failure
from zmqdata.messages import TaskDefinition

BLOCK_BYTES = 2 << 20
BLOCK_ELEMENTS = 16_384
FEW_ELEMENTS = 32
"""Blocks of so few elements, large ones, are filled further, as the windows of those
who read allow.
"""

Placed = Callable[[BaseException], BaseException]


class FailedElement:
    """What stands in the place of an element that could not be made."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class LaneBlock:
    """A block in the making."""

    def __init__(self, index: int, definition: TaskDefinition) -> None:
        self.index = index
        self.builder: BlockBuilder | ReferenceBuilder = (
            ReferenceBuilder(shared=definition.cache)
            if definition.by_reference
            # Who reads a file would unpickle a stranger's bytes.
            else BlockBuilder(
                allow_objects=not definition.save_path, gather=not definition.save_path
            )
        )
        self.first = 0


class Output:
    """Everything that one attempt of a task hands over.

    The pipeline's thread adds, the worker's loop may flush meanwhile. Where there is
    one lane the pipeline appends to ``fresh`` and settles now and then: to look at each
    element by itself would cost more than to make many of them.

    Args:
        definition: the task.
        post: takes ``Produced`` and ``Exhausted``.
        compression: what compresses blocks.
        worker: our address, for error texts.
        placed: names the place in the user's code where an error belongs.
        window: the bytes of a cross-trainer cache, or of a chunk of a save: no block is
            larger unless it is a single element, so that one too large for a cache is
            found out.
        note: told which element is looked at where that may run the user's code.

    Attributes:
        fresh: elements that were made and have not been looked at, the next ones in
            number.
        hungry: somebody waits for the next element: it should be settled at once.
        emitted: the bytes handed over.
        few_bytes: up to this blocks of few elements are filled, and none beyond it.
    """

    def __init__(
        self,
        definition: TaskDefinition,
        post: Callable[[e.WorkerEvent], None],
        compression: Compression,
        worker: str,
        placed: Placed,
        window: int = BLOCK_BYTES,
        note: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.definition = definition
        self.fresh: list[Any] = []
        self.hungry = False
        self.emitted = 0
        self._settled = 0  # so many elements, or rounds, have been looked at
        self._post = post
        self._compression = compression
        self._worker = worker
        self._placed = placed
        self._note = note
        lanes = range(definition.num_consumers or 1)
        self._lanes = [LaneBlock(index, definition) for index in lanes]
        self._passed = definition.passed or (0,) * len(self._lanes)
        self._skip = RangeSet([*definition.skip, (0, min(self._passed))])
        self._skip_stop = max((stop for _, stop in self._skip), default=0)
        self._round: list[Any] = []
        bounded = bool(definition.cache or definition.save_path)
        self._full = min(BLOCK_BYTES, window) if bounded else BLOCK_BYTES
        self._few_most = window if bounded else MOST_BYTES
        self.few_bytes = FEW_BYTES
        self._most = min(BLOCK_ELEMENTS, definition.block_elements or BLOCK_ELEMENTS)
        self._lock = threading.Lock()
        self._held = False  # the pipeline looks at the first of the fresh elements by itself

    @property
    def number(self) -> int:
        """Of the next element."""
        with self._lock:
            return self._settled + len(self.fresh)

    @property
    def takes_runs(self) -> bool:
        """Whether elements may be appended to ``fresh``."""
        return len(self._lanes) == 1

    @property
    def is_between_rounds(self) -> bool:
        """Whether every element that was added has its number."""
        return not self._round

    def may_leap(self, number: int) -> bool:
        """Whether nobody needs what comes before element ``number``."""
        return self.is_between_rounds and self._skip.covers(self.number, number)

    def leap(self, number: int) -> None:
        """The next element that is added has this number."""
        self.hand_over()
        self._settled = number

    @property
    def nbytes(self) -> int:
        """The bytes handed over, or collected to be."""
        return self.emitted + sum(lane.builder.nbytes for lane in self._lanes)

    def flush(self) -> None:
        """Somebody waits: hands over what there is, or else the next round as soon as
        it is made.
        """
        self._settle_quickly()
        with self._lock:
            self.hungry = not self._emit_all()

    def hand_over(self) -> None:
        """Hands over what there is."""
        self._settle_quickly()
        with self._lock:
            self._emit_all()

    # --- from the pipeline's thread

    def add(self, element: object) -> None:
        """Takes the next element."""
        if self.takes_runs:
            self.fresh.append(element)
            self.settle()
            return
        self._round.append(element)
        if len(self._round) == len(self._lanes):
            elements, self._round = self._round, []
            self._add_round(elements)

    def take(self, element: object) -> None:
        """Takes the next element, in a run, which the pipeline may change to make the
        one behind it.
        """
        try:
            mine = detached(element)
        except (LookupError, RecursionError):
            self.add(element)
        else:
            self.fresh.append(mine)

    def settle(self) -> bool:
        """Puts the fresh elements into blocks; False if one of them had to be pickled,
        or was an error.
        """
        quickly = True
        while not self._settle_quickly():
            quickly = False
            self._settle_one()
        if self.hungry:
            with self._lock:
                self.hungry = not self._emit_all()
        return quickly

    def _settle_quickly(self) -> bool:
        """Puts fresh elements into blocks; False where one comes that takes longer.
        From any thread.
        """
        fresh, lane = self.fresh, self._lanes[0]
        while fresh:
            with self._lock:
                if self._held:
                    return False
                wanted = self._drop_unwanted()
                if wanted and (self.definition.cache or isinstance(fresh[0], FailedElement)):
                    return False
                builder = lane.builder
                most, full = self._room(builder.count)
                count = builder.extend(fresh[: min(wanted, most)], full) if wanted else 0
                if wanted and not count:
                    count = int(self._begin_block(lane, fresh[0]))
                    if not count:
                        return False
                if builder.count == count:
                    lane.first = self._settled
                del fresh[:count]
                self._settled += count
                self._emit_if_full(lane)
        return True

    def _room(self, count: int) -> tuple[int, int]:
        """How many elements a block of ``count`` may take, and up to how many bytes,
        before one looks if it is full.
        """
        few, few_full = min(FEW_ELEMENTS, self._most), min(self.few_bytes, self._few_most)
        return (
            (few - count, few_full)
            if count < few
            else (self._most - count, min(self._full, few_full))
        )

    def _begin_block(self, lane: LaneBlock, element: object) -> bool:
        """Puts an element into a new block, unless it would have to be pickled. The
        lock is held.
        """
        described: Any = lane.builder.describe_plain(element)
        if described is None:
            return False
        if lane.builder.count:
            self._emit(lane)
        return lane.builder.add_described(described)

    def _drop_unwanted(self) -> int:
        """Forgets the first fresh elements if nobody needs them; says how many are
        needed then. The lock is held.
        """
        first = self._settled
        stop = first + len(self.fresh)
        if first >= self._skip_stop:
            return stop - first
        wanted, end = next(iter(self._skip.missing(first, stop)), (stop, stop))
        if wanted > first:
            self._emit_all()
            del self.fresh[: wanted - first]
            self._settled = wanted
        return end - wanted

    def _settle_one(self) -> None:
        """Puts the first fresh element into a block, whatever it takes; meanwhile
        nobody else takes the next ones.
        """
        with self._lock:
            if not self._drop_unwanted():
                return
            self._held = True
        self._note(self._settled)
        try:
            self._put(self._lanes[0], self._settled, self.fresh[0])
        finally:
            with self._lock:
                del self.fresh[0]
                self._settled += 1
                self._held = False

    def fail(self, error: BaseException) -> None:
        """Takes an error in the place of the next element."""
        if self.takes_runs:
            self.settle()
        self.add(FailedElement(error))

    def fail_all(self, error: BaseException) -> None:
        """Takes an error as the next element of everybody."""
        self._round = []
        if self.takes_runs:
            self.fail(error)
        else:
            self._add_round([FailedElement(error) for _ in self._lanes])

    def end(self) -> int:
        """There is no further element: makes a round of what is left, or returns how
        many are left over.
        """
        left, rule = self._round, self.definition.finite
        if self.definition.num_consumers is None:
            return 0
        if rule is None:
            text = (
                f"Encountered end of sequence on a round-robin read iterator, after {self.number} "
                "rounds of "
                f"{len(self._lanes)} elements. Coordinated reads expect a dataset without an end: "
                "add repeat() before "
                "distribute(), or say with finite='drop' or finite='pad' what becomes of a last "
                "round that is not full."
            )
            self.fail_all(FailedPreconditionError(text))
        elif left and rule == "pad":
            self._round = []
            self._add_round([left[at % len(left)] for at in range(len(self._lanes))])
        return len(self._round)

    def _add_round(self, elements: list[Any]) -> None:
        number = self._settled
        if number in self._skip:
            self.hand_over()
        else:
            for lane, element in zip(self._lanes, elements, strict=True):
                if number >= self._passed[lane.index]:
                    self._put(lane, number, element)
        with self._lock:
            self._settled = number + 1
            if self.hungry:
                self.hungry = not self._emit_all()

    def _put(self, lane: LaneBlock, number: int, element: Any) -> None:
        if isinstance(element, FailedElement):
            self._put_failure(lane, number, element.error)
            return
        if self.definition.cache and lane.builder.nbytes + size_of(element) > self._full:
            self.hand_over()
        if not self._taken(lane, number, lambda: lane.builder.add(element, describe=False)):
            # Not with the lock held: objects may be pickled, which takes a while and
            # runs the user's code.
            try:
                described: Any = lane.builder.describe(element)
            except BaseException as error:
                # The boundary to user code: sys.exit() in it is an element's failure,
                # too.
                self._put_failure(lane, number, error)
                return
            if not self._taken(lane, number, lambda: lane.builder.add_described(described)):
                self.hand_over()
                self._taken(lane, number, lambda: lane.builder.add_described(described))

    def _taken(self, lane: LaneBlock, number: int, add: Callable[[], bool]) -> bool:
        """Adds to a lane's block, which is handed over when it is full; False when the
        block does not take it.
        """
        with self._lock:
            if not add():
                return False
            if lane.builder.count == 1:
                lane.first = number
            self._emit_if_full(lane)
            return True

    def _emit_if_full(self, lane: LaneBlock) -> None:
        """Hands a block over that is full. The lock is held."""
        if self._is_full(lane.builder.nbytes, lane.builder.count):
            self._emit(lane)

    def _is_full(self, nbytes: int, count: int) -> bool:
        few_full = min(self.few_bytes, self._few_most)
        if nbytes < min(self._full, few_full):
            return count >= self._most
        return nbytes >= few_full or count >= min(FEW_ELEMENTS, self._most)

    def _put_failure(self, lane: LaneBlock, number: int, error: BaseException) -> None:
        failure = encode_failure(self._placed(error), number, self._worker)
        with self._lock:
            if lane.builder.count:
                self._emit(lane)
            self.emitted += len(failure)
            self.hungry = False
            self._post(
                e.Produced(
                    task=self.definition.task,
                    attempt=self.definition.attempt,
                    first=number,
                    count=1,
                    size=len(failure),
                    meta=b"",
                    frames=(),
                    failure=failure,
                    lane=lane.index,
                )
            )

    def _emit_all(self) -> bool:
        """Hands all blocks over; False when there is none. The lock is held."""
        begun = [lane for lane in self._lanes if lane.builder.count]
        for lane in begun:
            self._emit(lane)
        return bool(begun)

    def _emit(self, lane: LaneBlock) -> None:
        """Hands a block over. The lock is held."""
        block = lane.builder.build(self._compression)
        self.emitted += block.nbytes
        first, count, size = lane.first, block.count, block.nbytes
        self._post(
            e.Produced(
                task=self.definition.task,
                attempt=self.definition.attempt,
                first=first,
                count=count,
                size=size,
                meta=block.meta,
                frames=block.frames,
                lane=lane.index,
            )
        )
