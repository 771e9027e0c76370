"""The task runner: a thread that runs one pipeline and turns its elements into blocks.

User code runs here and nowhere else. What it makes is handed to the worker's loop as events; it waits when it has
produced as much as it may.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from zmqdata import commands as c
from zmqdata.blocks import BlockBuilder, Compression, ReferenceBuilder
from zmqdata.core.ranges import RangeSet
from zmqdata.errors import DataServiceError, FailedPreconditionError, InvalidArgumentError, PipelineError
from zmqdata.failures import encode_failure
from zmqdata.iterators import Context, ElementIterator, make_iterator
from zmqdata.messages import TaskDefinition
from zmqdata.nodes import Options, options_of
from zmqdata.pipelines import PackedPipeline, open_pipeline
from zmqdata.remote_errors import text_of
from zmqdata.sharding import shard_statically
from zmqdata.splits import Split, SplitProvider

log = logging.getLogger(__name__)

BLOCK_BYTES = 512 << 10
BLOCK_ELEMENTS = 16_384


class Stopped(Exception):
    """The task was taken away from this runner; not an error."""


class LedgerProvider:
    """The splits of one source, from the task's ledger, which grows on request (a ``SplitProvider``).

    Args:
        entries: the ledger so far.
        want: called with (repetition, entries had) when another entry is needed.
    """

    def __init__(self, entries: Sequence[Split], want: Callable[[int, int], None]) -> None:
        self._entries = list(entries)
        self._want = want
        self._at = 0
        self._repetition = 0
        self._ended = False
        self._changed = threading.Condition()
        self._stopped = False

    def next_split(self) -> Split | None:
        """The next range of splits of this repetition; None at its end. Waits for the dispatcher if it must."""
        while not self._ended:
            entry = self._next_entry()
            if entry.repetition < self._repetition:
                continue
            if not entry.is_end:
                return entry
            self._ended = True
        return None

    def _next_entry(self) -> Split:
        with self._changed:
            if self._at == len(self._entries):
                self._want(self._repetition, self._at)
            while self._at == len(self._entries):
                if self._stopped:
                    raise Stopped
                self._changed.wait()
            self._at += 1
            return self._entries[self._at - 1]

    def reset(self) -> None:
        """Goes on to the next repetition."""
        self._repetition += 1
        self._ended = False

    def state(self) -> int:
        """The number of ledger entries consumed so far."""
        return self._at

    def restore(self, state: int) -> None:
        """Continues as if ``state`` ledger entries had been consumed."""
        self._at = state
        before = self._entries[state - 1] if state else None
        self._repetition = before.repetition if before is not None else 0
        self._ended = before is not None and before.is_end

    def feed(self, splits: Sequence[Split]) -> None:
        """Adds entries that the dispatcher has assigned. Called by the worker's loop."""
        with self._changed:
            self._entries.extend(splits)
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends every wait for splits."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


def _context(definition: TaskDefinition, providers: tuple[SplitProvider, ...] | None, options: Options) -> Context:
    """What a task's pipeline runs in. It is the same for every attempt.

    Nothing unseeded is the same in two iterations: ``fixed_seed`` is the task's. Copies (OFF) have nothing in common.
    """
    return Context(
        seed=definition.seed,
        fixed_seed=definition.seed,
        shared_seed=None if providers is None else definition.iteration_seed,
        iteration=definition.repetition,
        providers=providers,
        options=options,
    )


class TaskRunner:
    """Runs one attempt of one task in a thread of its own.

    Args:
        definition: the task's lineage.
        pipeline: the packed pipeline, or empty with the ``reason`` why there is none.
        post: takes events for the worker core, from any thread.
        worker: our address, for error texts.
        has_far_client: whether somebody on another host reads; on one host "AUTO" compresses nothing.
    """

    def __init__(
        self,
        definition: TaskDefinition,
        pipeline: bytes,
        reason: str,
        post: Callable[[object], None],
        worker: str,
        has_far_client: Callable[[], bool],
    ) -> None:
        self.definition = definition
        self.key = (definition.task, definition.attempt)
        self.providers = [self._provider(source, entries) for source, entries in enumerate(definition.ledger)]
        self._pipeline = pipeline
        self._reason = reason
        self._label = ""
        self._post = post
        self._worker = worker
        self._skip = RangeSet(definition.skip)
        self._builder: BlockBuilder | ReferenceBuilder = (
            ReferenceBuilder()
            if definition.by_reference
            # Who reads a file would unpickle a stranger's bytes.
            else BlockBuilder(allow_objects=not definition.save_path)
        )
        self._has_far_client = has_far_client
        self._far_compression = Compression(definition.compression)
        self._near_compression = Compression(definition.compression, local=True)
        self._most = min(BLOCK_ELEMENTS, definition.block_elements or BLOCK_ELEMENTS)
        self._first = 0
        self._number = 0
        self._hungry = False
        self._emitted = 0
        self._allowed = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._run, name=f"zmqdata-task-{definition.task}", daemon=True)

    def _provider(self, source: int, entries: Sequence[Split]) -> LedgerProvider:
        def want(repetition: int, have: int) -> None:
            self._post(c.SplitsWanted(*self.key, source, repetition, have))

        return LedgerProvider(entries, want)

    # --- from the worker's loop

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the runner soon; user code that is running now is left to finish and is not heard any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for provider in self.providers:
            provider.stop()

    def join(self, timeout: float) -> bool:
        """Waits for the thread; False when user code still keeps it."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def allow(self, size: int) -> None:
        """Lets it produce until its blocks add up to ``size`` bytes."""
        with self._changed:
            self._allowed = max(self._allowed, size)
            self._changed.notify_all()

    def flush(self) -> None:
        """Somebody waits: hand over what there is, or else the next element as soon as it is made."""
        with self._lock:
            if self._builder.count:
                self._emit()
            else:
                self._hungry = True

    # --- in its own thread

    def _run(self) -> None:
        iterator: ElementIterator | None = None
        try:
            iterator = self._open()
            self._produce(iterator)
        except Stopped:
            pass
        except BaseException as error:  # the boundary to user code: whatever it raises is data, sys.exit() too
            self._fail(error)
            self._finish()
        finally:
            if iterator is not None:
                iterator.close()

    def _open(self) -> ElementIterator:
        if self._reason:
            raise FailedPreconditionError(self._reason)
        packed = msgspec.msgpack.decode(self._pipeline, type=PackedPipeline)
        if packed.digest != self.definition.digest:
            raise FailedPreconditionError(
                "The dispatcher sent another pipeline than the one that was registered. Was its work folder changed?"
            )
        whole = open_pipeline(packed)
        self._pipeline = b""
        self._label = whole.label
        task = self.definition
        node = shard_statically(whole, task.processing_mode, task.num_shards, task.shard, task.iteration_seed)
        providers = tuple(self.providers) if task.processing_mode == "DYNAMIC" else None
        return make_iterator(node, _context(task, providers, options_of(whole)))

    def _produce(self, iterator: ElementIterator) -> None:
        while True:
            self._await_allowance()
            try:
                element = next(iterator)
            except StopIteration:
                break
            except Stopped:
                raise
            except BaseException as error:  # the boundary to user code: the iteration goes on behind it
                self._fail(error)
                continue
            if not self._add(element):
                self._add_described(element)
        self._finish()

    def _await_allowance(self) -> None:
        if self._stopped:
            raise Stopped
        if self._emitted + self._builder.nbytes < self._allowed:
            return
        with self._changed:
            if self._builder.count:
                self._emit()
            while self._emitted >= self._allowed and not self._stopped:
                self._changed.wait()

    def _add(self, element: object, described: Any = None) -> bool:
        """Takes the next element; False when it must be described first: nothing is pickled while the lock is held."""
        with self._lock:
            number = self._number
            if number in self._skip:
                if self._builder.count:
                    self._emit()
                self._number = number + 1
                return True
            if described is not None:
                if not self._builder.add_described(described):
                    self._emit()
                    self._builder.add_described(described)
            elif not self._builder.add(element, describe=False):
                return False
            if self._builder.count == 1:
                self._first = number
            self._number = number + 1
            if self._hungry or self._builder.nbytes >= BLOCK_BYTES or self._builder.count >= self._most:
                self._emit()
            return True

    def _add_described(self, element: object) -> None:
        try:
            described = self._builder.describe(element)
        except TypeError as error:
            self._fail(error)
        else:
            self._add(element, described)

    def _emit(self) -> None:
        """Hands the block over. The lock is held."""
        block = self._builder.build(self._far_compression if self._has_far_client() else self._near_compression)
        self._hungry = False
        self._emitted += block.nbytes
        self._post(c.Produced(*self.key, self._first, block.count, block.nbytes, block.meta, block.frames))

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self._emit_failure(error)

    def _emit_failure(self, error: BaseException) -> None:
        if self._builder.count:
            self._emit()
        self._hungry = False
        number, self._number = self._number, self._number + 1
        if number not in self._skip:
            failure = encode_failure(self._placed(error), number, self._worker)
            self._emitted += len(failure)
            self._post(c.Produced(*self.key, number, 1, len(failure), b"", (), failure))

    def _placed(self, error: BaseException) -> BaseException:
        """The error with a place in the user's code: where no node has named itself, that of the pipeline's end."""
        if isinstance(error, DataServiceError) or not self._label:
            return error
        text = f"{type(error).__name__}: {text_of(error)} (in the pipeline that ends with {self._label})"
        placed = PipelineError(text, node=self._label)
        placed.__cause__ = error
        return placed

    def _finish(self) -> None:
        if self.definition.cache and not self._stopped:
            self._fail(
                InvalidArgumentError(
                    "Cross-trainer caching requires the input dataset to be infinite, but it ended after "
                    f"{self._number} elements. Add repeat() before distribute()."
                )
            )
        with self._lock:
            if self._builder.count:
                self._emit()
            if not self._stopped:
                self._post(c.Exhausted(*self.key, self._number))
