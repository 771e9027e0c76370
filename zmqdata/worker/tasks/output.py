"""The output of a task's pipeline: elements are numbered, dealt to lanes, collected
into blocks, and handed over.

A lane is a sequence of blocks for one numbered consumer of a coordinated job. The tasks
of other jobs have a single lane for all clients. Elements are numbered by rounds, which
have one element for each lane. With a single lane, a round is an element.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from zmqdata.blocks import BlockBuilder, Compression, ReferenceBuilder, detached, size_of
from zmqdata.core.credit import FEW_BYTES, MOST_BYTES
from zmqdata.core.ranges import RangeSet
from zmqdata.core.worker import events as e
from zmqdata.core.worker.streams import occupied
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import encode_failure
from zmqdata.iterators.ownthreads import Strand
from zmqdata.messages import TaskDefinition
from zmqdata.worker.tasks.sampling import COMPRESSION, PACKING

BLOCK_BYTES = 2 << 20
"""Size of a full block of small elements, in bytes."""
BLOCK_ELEMENTS = 16_384
"""Maximum number of elements in a block."""
FEW_ELEMENTS = 32
"""Number of elements up to which a block counts as having few, large elements. Such a
block is filled further, as far as the readers' windows allow.
"""

Placed = Callable[[BaseException], BaseException]


class FailedElement:
    """Stands for an element that could not be computed."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class LaneBlock:
    """The block of a lane that is being filled."""

    def __init__(self, index: int, definition: TaskDefinition) -> None:
        self.index = index
        self.builder: BlockBuilder | ReferenceBuilder = (
            ReferenceBuilder(shared=definition.job.cache)
            if definition.job.by_reference
            # The reader of a file would otherwise unpickle bytes of unknown origin.
            else BlockBuilder(
                allow_objects=not definition.save_path, gather=not definition.save_path
            )
        )
        self.first = 0


class Output:
    """Everything that one attempt of a task hands over.

    The pipeline's thread adds elements, while the worker's loop may flush. With a
    single lane the pipeline appends to ``fresh`` and settles now and then, because
    handling each element by itself would cost more than producing many of them.

    Args:
        definition: the task.
        post: receives ``Produced``.
        compression: compresses the blocks.
        worker: address of this worker, for error texts.
        placed: adds the place in the user's code to an error.
        window: size in bytes of a cross-trainer cache, or of a chunk of a save. A block
            is larger only if it is a single element, so that an element too large for a
            cache is detected.
        note: called with the number of an element before code of the user may run for
            it.

    Attributes:
        fresh: elements that were produced and not settled, in order.
        hungry: True if a client waits for the next element, which must then be settled
            at once.
        emitted: number of bytes that the blocks handed over have occupied.
        moved: size in bytes of these blocks.
        few_bytes: size up to which blocks of few elements are filled; no block is
            larger.
        strand: what the pipeline's thread runs.
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
        self.emitted = self.moved = 0
        self.strand = Strand()
        self._leapt = 0  # number of elements, or rounds, that were not made
        self._settled = 0  # number of elements, or rounds, that were settled
        self._post = post
        self._compression = compression
        compression.tell = self._publish
        self._worker = worker
        self._placed = placed
        self._note = note
        lanes = range(definition.job.num_consumers or 1)
        self._lanes = [LaneBlock(index, definition) for index in lanes]
        self._passed = definition.passed or (0,) * len(self._lanes)
        self._skip = RangeSet([*definition.skip, (0, min(self._passed))])
        self._skip_stop = max((stop for _, stop in self._skip), default=0)
        states = [state.number for state in definition.states]
        self._old_stop = max([self._skip_stop, *self._passed, *states])
        self._round: list[Any] = []
        bounded = bool(definition.job.cache or definition.save_path)
        self._full = min(BLOCK_BYTES, window) if bounded else BLOCK_BYTES
        self._few_most = window if bounded else MOST_BYTES
        self.few_bytes = FEW_BYTES
        self._most = min(BLOCK_ELEMENTS, definition.job.max_outstanding_requests or BLOCK_ELEMENTS)
        self._lock = threading.Lock()
        self._held = False  # True while the pipeline's thread settles the first fresh element

    @property
    def number(self) -> int:
        """Number of the next element."""
        with self._lock:
            return self._settled + len(self.fresh)

    @property
    def position(self) -> int:
        """Number of the next element, counted over all lanes."""
        return self.number * len(self._lanes) + len(self._round)

    @property
    def stop(self) -> int:
        """Number of the first element, counted over all lanes, that no client has
        received, nor any element after it.
        """
        return max(self._skip_stop, max(self._passed)) * len(self._lanes)

    @property
    def roughly(self) -> int:
        """Number of the next element, perhaps some elements ago.

        Does not need the lock, which a thread may hold that waits for the ledger.
        """
        return self._settled + len(self.fresh)

    def is_replaying(self) -> bool:
        """Return True unless all elements were made that consumers have, or before
        which an earlier attempt took a state.
        """
        return self.roughly < self._old_stop

    @property
    def takes_runs(self) -> bool:
        """True if elements may be appended to ``fresh``."""
        return len(self._lanes) == 1

    @property
    def is_between_rounds(self) -> bool:
        """True if every element that was added has its number."""
        return not self._round

    def may_leap(self, number: int) -> bool:
        """Return True if no client needs the elements before ``number``."""
        return self.is_between_rounds and self._skip.covers(self.number, number)

    @property
    def made(self) -> int:
        """Number of elements made, of all lanes. Does not need the lock."""
        return (self.roughly - self._leapt) * len(self._lanes)

    def leap(self, number: int) -> None:
        """Continue with this number for the next element."""
        self.hand_over()
        self._leapt += number - self._settled
        self._settled = number

    @property
    def nbytes(self) -> int:
        """Number of bytes that are occupied by what was handed over or collected."""
        begun = (lane.builder for lane in self._lanes if lane.builder.count)
        return self.emitted + sum(occupied(builder.nbytes) for builder in begun)

    def flush(self) -> None:
        """Hand over what is collected, or otherwise the next round as soon as it is
        complete, because a client waits.
        """
        self._settle_quickly()
        with self._lock:
            self.hungry = not self._emit_all()

    def hand_over(self) -> None:
        """Hand over what is collected."""
        self._settle_quickly()
        with self._lock:
            self._emit_all()

    def _publish(self, compresses: bool) -> None:
        """Publish that the pipeline's thread begins or ends to compress. Compression in
        the worker's loop is not part of the pipeline.
        """
        before, after = (PACKING, COMPRESSION) if compresses else (COMPRESSION, PACKING)
        if self.strand.place is before:
            self.strand.place = after

    # --- from the pipeline's thread

    def add(self, element: object) -> None:
        """Add the next element."""
        self.strand.place = PACKING
        if self.takes_runs:
            self.fresh.append(element)
            self.settle()
            return
        self._round.append(element)
        if len(self._round) == len(self._lanes):
            elements, self._round = self._round, []
            self._add_round(elements)

    def take(self, element: object) -> None:
        """Add the next element of a run. The element is copied, because the pipeline
        may modify it to produce the next.
        """
        self.strand.place = PACKING
        try:
            mine = detached(element)
        except (LookupError, RecursionError):
            self.add(element)
        else:
            self.fresh.append(mine)

    def settle(self) -> bool:
        """Put the fresh elements into blocks. Return False if any of them had to be
        pickled, or was an error.
        """
        quickly = True
        self.strand.place = PACKING
        while not self._settle_quickly():
            quickly = False
            self._settle_one()
        if self.hungry:
            with self._lock:
                self.hungry = not self._emit_all()
        return quickly

    def _settle_quickly(self) -> bool:
        """Put fresh elements into blocks. Return False if an element needs the slow
        path. Thread-safe.
        """
        fresh, lane = self.fresh, self._lanes[0]
        while fresh:
            with self._lock:
                if self._held:
                    return False
                wanted = self._drop_unwanted()
                if wanted and (self.definition.job.cache or isinstance(fresh[0], FailedElement)):
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
        """Return the number of elements that a block of ``count`` elements may take,
        and the size up to which it may grow, until the next check whether it is full.
        """
        few, few_full = min(FEW_ELEMENTS, self._most), min(self.few_bytes, self._few_most)
        return (
            (few - count, few_full)
            if count < few
            else (self._most - count, min(self._full, few_full))
        )

    def _begin_block(self, lane: LaneBlock, element: object) -> bool:
        """Put an element into a new block, unless it would have to be pickled. Requires
        the lock.
        """
        described: Any = lane.builder.describe_plain(element)
        if described is None:
            return False
        if lane.builder.count:
            self._emit(lane)
        return lane.builder.add_described(described)

    def _drop_unwanted(self) -> int:
        """Drop the first fresh elements that no client needs, and return the number of
        needed elements that follow. Requires the lock.
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
        """Put the first fresh element into a block on the slow path. Meanwhile no other
        thread takes the elements after it.
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
        """Add an error in place of the next element."""
        if self.takes_runs:
            self.settle()
        self.add(FailedElement(error))

    def fail_all(self, error: BaseException) -> None:
        """Add an error as the next element of every lane."""
        self._round = []
        if self.takes_runs:
            self.fail(error)
        else:
            self._add_round([FailedElement(error) for _ in self._lanes])

    def end(self) -> tuple[e.Produced, ...]:
        """End the output. Complete the last round if the job asks for that; otherwise
        return the elements after the last full round.
        """
        left, rule = self._round, self.definition.job.finite
        if self.definition.job.num_consumers is None:
            return ()
        if rule is None:
            few = (
                " The task may own no split of the input: give distribute() a `num_tasks` of at "
                "most the number of splits."
            )
            text = (
                f"Encountered end of sequence on a round-robin read iterator, after {self.number} "
                f"rounds of {len(self._lanes)} elements. Coordinated reads expect a dataset "
                "without an end: add repeat() before distribute(), or choose with finite='drop' "
                "or finite='pad' what happens to an incomplete last round."
            )
            text += few if self.definition.num_shards else ""
            self.fail_all(FailedPreconditionError(text))
        elif left and rule == "pad":
            self._round = []
            self._add_round([left[at % len(left)] for at in range(len(self._lanes))])
        return tuple(map(self._alone, range(len(self._round))))

    def _alone(self, place: int) -> e.Produced:
        """Return an element of the last round as a block, for a lane that is not known
        yet.
        """
        element, number, lane = self._round[place], self._settled, LaneBlock(0, self.definition)
        if isinstance(element, FailedElement):
            return self._failed(lane, number, element.error)
        try:
            if not lane.builder.add(element, describe=False):
                described: Any = lane.builder.describe(element)
                lane.builder.add_described(described)
        except BaseException as error:  # code of the user: see _put
            return self._failed(lane, number, error)
        lane.first = number
        return self._built(lane)

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
        if self.definition.job.cache and lane.builder.nbytes + size_of(element) > self._full:
            self.hand_over()
        if not self._taken(lane, number, lambda: lane.builder.add(element, describe=False)):
            # The lock is not held here: pickling objects takes time and runs code of
            # the user.
            try:
                described: Any = lane.builder.describe(element)
            except BaseException as error:
                # The boundary to user code: sys.exit() in it also counts as a failure
                # of the element.
                self._put_failure(lane, number, error)
                return
            if not self._taken(lane, number, lambda: lane.builder.add_described(described)):
                self.hand_over()
                self._taken(lane, number, lambda: lane.builder.add_described(described))

    def _taken(self, lane: LaneBlock, number: int, add: Callable[[], bool]) -> bool:
        """Add an element to a lane's block, and hand over the block if it is full.
        Return False if the block does not take the element.
        """
        with self._lock:
            if not add():
                return False
            if lane.builder.count == 1:
                lane.first = number
            self._emit_if_full(lane)
            return True

    def _emit_if_full(self, lane: LaneBlock) -> None:
        """Hand over a block if it is full. Requires the lock."""
        if self._is_full(lane.builder.nbytes, lane.builder.count):
            self._emit(lane)

    def _is_full(self, nbytes: int, count: int) -> bool:
        few_full = min(self.few_bytes, self._few_most)
        if nbytes < min(self._full, few_full):
            return count >= self._most
        return nbytes >= few_full or count >= min(FEW_ELEMENTS, self._most)

    def _put_failure(self, lane: LaneBlock, number: int, error: BaseException) -> None:
        failed = self._failed(lane, number, error)
        with self._lock:
            if lane.builder.count:
                self._emit(lane)
            self.emitted += occupied(failed.size)
            self.moved += failed.size
            self.hungry = False
            self._post(failed)

    def _failed(self, lane: LaneBlock, number: int, error: BaseException) -> e.Produced:
        """Return a failure in place of an element."""
        failure = encode_failure(self._placed(error), number, self._worker, self.definition.task)
        return e.Produced(
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

    def _emit_all(self) -> bool:
        """Hand over all blocks. Return False if all were empty. Requires the lock."""
        begun = [lane for lane in self._lanes if lane.builder.count]
        for lane in begun:
            self._emit(lane)
        return bool(begun)

    def _emit(self, lane: LaneBlock) -> None:
        """Hand over a block. Requires the lock."""
        made = self._built(lane)
        self.emitted += occupied(made.size)
        self.moved += made.size
        self._post(made)

    def _built(self, lane: LaneBlock) -> e.Produced:
        block = lane.builder.build(self._compression)
        return e.Produced(
            task=self.definition.task,
            attempt=self.definition.attempt,
            first=lane.first,
            count=block.count,
            size=block.nbytes,
            meta=block.meta,
            frames=block.frames,
            lane=lane.index,
        )
