"""What a task's pipeline makes becomes blocks here: numbered, dealt to lanes, collected, handed over.

A lane is a row of blocks for one numbered consumer of a coordinated job; the tasks of other jobs have a single one, for
everybody. Elements are numbered by rounds: one for each lane. Where there is one lane, a round is an element.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from zmqdata import commands as c
from zmqdata.blocks import BlockBuilder, Compression, ReferenceBuilder, size_of
from zmqdata.core.ranges import RangeSet
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures import encode_failure
from zmqdata.messages import TaskDefinition

BLOCK_BYTES = 512 << 10
BLOCK_ELEMENTS = 16_384

Placed = Callable[[BaseException], BaseException]


class Failure:
    """What stands in the place of an element that could not be made."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Lane:
    """A block in the making."""

    def __init__(self, index: int, definition: TaskDefinition) -> None:
        self.index = index
        self.builder: BlockBuilder | ReferenceBuilder = (
            ReferenceBuilder(shared=definition.cache)
            if definition.by_reference
            # Who reads a file would unpickle a stranger's bytes.
            else BlockBuilder(allow_objects=not definition.save_path)
        )
        self.first = 0


class Output:
    """Everything that one attempt of a task hands over.

    The pipeline's thread adds, the worker's loop may flush meanwhile.

    Args:
        definition: the task.
        post: takes ``Produced`` and ``Exhausted``.
        compression: what a block is compressed with that is handed over now.
        worker: our address, for error texts.
        placed: names the place in the user's code where an error belongs.
        window: the bytes of a cross-trainer cache: no block is larger unless it is a single element, so that one too
            large is found out.
    """

    def __init__(
        self,
        definition: TaskDefinition,
        post: Callable[[object], None],
        compression: Callable[[], Compression],
        worker: str,
        placed: Placed,
        window: int = BLOCK_BYTES,
    ) -> None:
        self.definition = definition
        self.number = 0  # of the next element
        self.emitted = 0
        self._post = post
        self._compression = compression
        self._worker = worker
        self._placed = placed
        self._skip = RangeSet(definition.skip)
        lanes = range(definition.num_consumers or 1)
        self._lanes = [Lane(index, definition) for index in lanes]
        self._passed = definition.passed or (0,) * len(self._lanes)
        self._round: list[Any] = []
        self._full = min(BLOCK_BYTES, window) if definition.cache else BLOCK_BYTES
        self._most = min(BLOCK_ELEMENTS, definition.block_elements or BLOCK_ELEMENTS)
        self._hungry = False
        self._lock = threading.Lock()

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
        self.number = number

    @property
    def nbytes(self) -> int:
        """The bytes handed over, or collected to be."""
        total = self.emitted
        for lane in self._lanes:  # asked for each element, for which a generator would be slow
            total += lane.builder.nbytes
        return total

    def flush(self) -> None:
        """Somebody waits: hands over what there is, or else the next round as soon as it is made."""
        with self._lock:
            self._hungry = not self._emit_all()

    def hand_over(self) -> None:
        """Hands over what there is."""
        with self._lock:
            self._emit_all()

    # --- from the pipeline's thread

    def add(self, element: object) -> None:
        """Takes the next element."""
        self._round.append(element)
        if len(self._round) == len(self._lanes):
            elements, self._round = self._round, []
            self._add_round(elements)

    def fail(self, error: BaseException) -> None:
        """Takes an error in the place of the next element."""
        self.add(Failure(error))

    def fail_all(self, error: BaseException) -> None:
        """Takes an error as the next element of everybody."""
        self._round = []
        self._add_round([Failure(error) for _ in self._lanes])

    def end(self) -> int:
        """There is no further element: makes a round of what is left, or returns how many are left over."""
        left, rule = self._round, self.definition.finite
        if self.definition.num_consumers is None:
            return 0
        if rule is None:
            text = (
                f"Encountered end of sequence on a round-robin read iterator, after {self.number} rounds of "
                f"{len(self._lanes)} elements. Coordinated reads expect a dataset without an end: add repeat() before "
                "distribute(), or say with finite='drop' or finite='pad' what becomes of a last round that is not full."
            )
            self.fail_all(FailedPreconditionError(text))
        elif left and rule == "pad":
            self._round = []
            self._add_round([left[at % len(left)] for at in range(len(self._lanes))])
        return len(self._round)

    def _add_round(self, elements: list[Any]) -> None:
        number = self.number
        if number in self._skip:
            self.hand_over()
        else:
            for lane, element in zip(self._lanes, elements, strict=True):
                if number >= self._passed[lane.index]:
                    self._put(lane, number, element)
        self.number = number + 1
        with self._lock:
            if self._hungry:
                self._hungry = not self._emit_all()

    def _put(self, lane: Lane, number: int, element: Any) -> None:
        if isinstance(element, Failure):
            self._put_failure(lane, number, element.error)
            return
        if self.definition.cache and lane.builder.nbytes + size_of(element) > self._full:
            self.hand_over()
        if not self._taken(lane, number, lambda: lane.builder.add(element, describe=False)):
            # Not with the lock held: objects may be pickled, which takes a while and runs the user's code.
            try:
                described: Any = lane.builder.describe(element)
            except TypeError as error:
                self._put_failure(lane, number, error)
                return
            if not self._taken(lane, number, lambda: lane.builder.add_described(described)):
                self.hand_over()
                self._taken(lane, number, lambda: lane.builder.add_described(described))

    def _taken(self, lane: Lane, number: int, add: Callable[[], bool]) -> bool:
        """Adds to a lane's block, which is handed over when it is full; False when the block does not take it."""
        with self._lock:
            if not add():
                return False
            if lane.builder.count == 1:
                lane.first = number
            if lane.builder.nbytes >= self._full or lane.builder.count >= self._most:
                self._emit(lane)
            return True

    def _put_failure(self, lane: Lane, number: int, error: BaseException) -> None:
        failure = encode_failure(self._placed(error), number, self._worker)
        with self._lock:
            if lane.builder.count:
                self._emit(lane)
            self.emitted += len(failure)
            self._hungry = False
            key = (self.definition.task, self.definition.attempt)
            self._post(c.Produced(*key, number, 1, len(failure), b"", (), failure, lane.index))

    def _emit_all(self) -> bool:
        """Hands all blocks over; False when there is none. The lock is held."""
        begun = [lane for lane in self._lanes if lane.builder.count]
        for lane in begun:
            self._emit(lane)
        return bool(begun)

    def _emit(self, lane: Lane) -> None:
        """Hands a block over. The lock is held."""
        block = lane.builder.build(self._compression())
        self.emitted += block.nbytes
        key = (self.definition.task, self.definition.attempt)
        first, count, size = lane.first, block.count, block.nbytes
        self._post(c.Produced(*key, first, count, size, block.meta, block.frames, lane=lane.index))
