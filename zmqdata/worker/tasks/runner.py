"""The task runner: runs one pipeline in a thread of its own or, with others that are
read in turn, in one of theirs.

User code runs here and nowhere else. What it makes becomes blocks in
``worker.tasks.output`` and is handed to the worker's loop as events; it waits when it
has produced as much as it may.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice

from zmqdata.blocks import KEPT_AS_THEY_ARE, Compression
from zmqdata.core.credit import FEW_BYTES
from zmqdata.core.worker import events as e
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
)
from zmqdata.failures.codec import encode_failure
from zmqdata.failures.exceptions import text_of
from zmqdata.iterators import Context, ElementIterator, Stackable, make_iterator
from zmqdata.iterators.deciding import Deciding
from zmqdata.iterators.sharding import shard_statically
from zmqdata.messages import TaskState
from zmqdata.nodes import Node, options_of
from zmqdata.pipelines import FindPart
from zmqdata.splits import Split, SplitProvider
from zmqdata.worker.processes.crumbs import CrumbFile
from zmqdata.worker.tasks.events import Teller
from zmqdata.worker.tasks.ledger import LedgerProvider, Stopped
from zmqdata.worker.tasks.output import BLOCK_BYTES, Output
from zmqdata.worker.tasks.pipeline import context_of, opened
from zmqdata.worker.tasks.quarantine import TaskQuarantine
from zmqdata.worker.tasks.relay import Relays, Stint
from zmqdata.worker.tasks.states import StateTaker, restore
from zmqdata.worker.tasks.stride import BYTES, Stride
from zmqdata.worker.tasks.watch import TaskWatch, WatchedProvider

log = logging.getLogger(__name__)


def _close(iterator: ElementIterator, task: int) -> None:
    try:
        iterator.close()
    except BaseException:
        # The boundary to user code: all elements are made, and those who wait shall
        # have them.
        log.warning("task %s: what its pipeline does at its end has failed", task, exc_info=True)


def _placed(error: BaseException, label: str, watch: TaskWatch) -> BaseException:
    """The error with a place in the user's code: where no node has named itself, that
    of the pipeline's end.

    The watch hears of it first.
    """
    watch.failed(error)
    if isinstance(error, DataServiceError) or not label:
        return error
    text = f"{type(error).__name__}: {text_of(error)} (in the pipeline that ends with {label})"
    placed = PipelineError(text, node=label)
    placed.__cause__ = error
    return placed


class TaskRunner:
    """Runs one attempt of one task.

    Args:
        command: the task's lineage, and its packed pipeline or the reason why there is
            none.
        post: takes events for the worker core, from any thread.
        worker: our address, for error texts.
        find_part: gives the content of a part of the pipeline by its digest.
        window: the bytes of a cross-trainer cache, or of a chunk of a save.
        crumbs: where it notes what it is at.
        relays: tells with which others it takes turns in one thread.
        clock: the time in seconds.
        work: the seconds that the thread of a turn has worked.
    """

    def __init__(
        self,
        command: e.StartTask,
        post: Callable[[e.WorkerEvent], None],
        worker: str,
        find_part: FindPart,
        window: int = BLOCK_BYTES,
        crumbs: CrumbFile | None = None,
        relays: Relays | None = None,
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
    ) -> None:
        self.definition = definition = command.definition
        self._relay = None if relays is None else relays.of(definition)
        self._stint, self._stride = Stint(work), Stride()
        self._clock = clock
        self.key = (definition.task, definition.attempt)
        self.quarantine = TaskQuarantine(definition.task)
        self.watch = TaskWatch(crumbs or CrumbFile(), definition)
        self.deciding = Deciding(definition.first_decision, definition.decisions, self._pause)
        self.providers = [
            self._provider(source, entries) for source, entries in enumerate(definition.ledger)
        ]
        self._pipeline, self._reason = command.pipeline, command.reason
        self._find_part = find_part
        self._label = ""
        self._worker, self._post = worker, post
        # What goes to files is kept for long: there the size counts, not the time.
        clocks = (
            {} if definition.save_path else {"clock": time.perf_counter, "work": time.thread_time}
        )
        self.compression = Compression(definition.compression, **clocks)
        self._teller = Teller(self.key, self.providers, self.deciding, post)
        self._output = Output(
            definition,
            self._teller.tell,
            self.compression,
            worker=worker,
            placed=self._placed,
            window=window,
            note=self.watch.note,
        )
        self._states = StateTaker(len(self.providers), clock)
        self._ahead = deque(definition.states)  # what the pipeline has not passed
        self._allowed = 0
        self._most: int | None = None
        self._stopped = self._awaited = False
        self._emitted = 0  # before this turn
        self._changed = threading.Condition()
        self._begun, self._ended = False, threading.Event()
        self._carrier = 0
        self._life = self._live()

    def _provider(self, source: int, entries: Sequence[Split]) -> LedgerProvider:
        def want(repetition: int, have: int, waiting: bool, pace: float) -> None:
            self._post(e.SplitsWanted(*self.key, source, repetition, have, waiting, pace))

        base = self.definition.bases[source] if self.definition.bases else 0
        return LedgerProvider(entries, want, self._clock, source, base, self._away)

    def _away(self) -> AbstractContextManager[None]:
        """While a source waits for splits: the turn is for others. Threads of the
        pipeline have none to give.
        """
        mine = threading.get_ident() == self._carrier
        return self._relay.away(self) if self._relay is not None and mine else nullcontext()

    def _pause(self, seconds: float) -> None:
        """Waits before an element is called for again. From any thread of the
        pipeline.
        """
        with self._changed:
            if self._changed.wait_for(lambda: self._stopped, seconds):
                raise Stopped

    @property
    def takes_turns(self) -> bool:
        """Whether it makes elements in one thread with others."""
        return self._relay is not None

    # --- from the worker's loop

    def start(self) -> None:
        self._begun = True
        if self._relay is not None:
            self._relay.add(self)
        else:
            threading.Thread(
                target=self._run, name=f"zmqdata-task-{self.key[0]}", daemon=True
            ).start()

    def stop(self) -> None:
        """Ends the runner soon; user code that is running now is left to finish and is
        not heard any more.
        """
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._output.hungry = True  # it looks up after the next element
        self.watch.abandon()
        for provider in self.providers:
            provider.stop()
        if self._relay is not None:
            self._relay.leave(self)
            self._relay.wake(self)

    def join(self, timeout: float) -> bool:
        """Waits for its end; False when user code still keeps it."""
        return not self._begun or self._ended.wait(timeout)

    def allow(self, size: int, elements: int | None = None, few_bytes: int = FEW_BYTES) -> None:
        """Lets it produce until its blocks, few elements in ``few_bytes``, add up to
        ``size``, or to ``elements``.
        """
        self._output.few_bytes = self._stint.few_bytes = few_bytes
        with self._changed:
            self._allowed = max(self._allowed, size)
            self._most = elements
            self._changed.notify_all()
        if self._relay is not None:
            self._relay.wake(self)

    def flush(self) -> None:
        """Somebody waits: hand over what there is, or else the next element as soon as
        it is made.

        Who takes turns does that at the end of each, so only for one that lasts too
        long it has to be done.
        """
        if self._relay is None:
            self._output.flush()
        else:
            self._awaited = True
            self.look()

    def look(self) -> None:
        """Hands over, of a turn that lasts too long, what somebody waits for. To be
        called every now and then.
        """
        if self._awaited and self._states.clock() >= self._stint.until:
            self._awaited = False
            self._output.hand_over()

    def hand_over(self) -> None:
        """Hands over what there is."""
        self._output.hand_over()

    # --- in its own thread, or that of its relay

    @property
    def number(self) -> int:
        """Of the element that it makes next."""
        return self._output.number

    def may_go_on(self) -> bool:
        """Whether it would make anything, or end."""
        return self._stopped or self._may_make(self._output.nbytes)

    def go_on(self) -> bool:
        """Makes elements for one turn; True when that was the last one."""
        self._carrier = threading.get_ident()
        return next(self._life, True) is True

    def _run(self) -> None:
        for _ in self._life:
            pass

    def _live(self) -> Iterator[None]:
        """Does all that there is to do, with a pause at the end of each turn."""
        try:
            node, context = self._open()
            while not (yield from self._produce(node, context)):
                pass
        except (Stopped, GeneratorExit):
            pass
        except BaseException as error:
            # The boundary to user code: whatever it raises is data, sys.exit() too.
            self._fail(error)
        finally:
            self.watch.end()
            self._ended.set()

    def _open(self) -> tuple[Node, Context]:
        if self._reason:
            raise FailedPreconditionError(self._reason)
        encoded = self._pipeline or self._find_part(self.definition.digest) or b""
        whole = opened(encoded, self.definition, self._find_part)
        self._pipeline = b""
        self._label = whole.label
        task = self.definition
        node = shard_statically(
            whole, task.processing_mode, task.num_shards, task.shard, task.iteration_seed
        )
        providers: tuple[SplitProvider, ...] | None = None
        if task.processing_mode == "DYNAMIC":
            providers = tuple(WatchedProvider(provider, self.watch) for provider in self.providers)
        return node, context_of(
            task, providers, options_of(whole), self.quarantine, self.watch, self.deciding
        )

    def _produce(self, node: Node, context: Context) -> Generator[None, None, bool]:
        """Makes elements, to the end or until it can go on from a later state; True at
        the end.
        """
        state = self._take_leap()
        for provider in self.providers:
            provider.rewind()
        self._teller.seal()
        self.deciding.learns = bool(self._ahead)
        iterator = make_iterator(node, context)
        try:
            if state is not None:
                self.deciding.leap(state.decisions)
                restore(iterator, state)
                self._output.leap(state.number)
            return (yield from self._run_through(iterator))
        finally:
            _close(iterator, self.key[0])

    def _may_leap(self) -> bool:
        """Whether nobody needs what comes before the next state ahead. Those that were
        passed are forgotten.
        """
        while self._ahead and self._ahead[0].number <= self._output.number:
            self._ahead.popleft()
        return bool(self._ahead) and self._output.may_leap(self._ahead[0].number)

    def _take_leap(self) -> TaskState | None:
        """The furthest state that it may go on from."""
        state = None
        while self._may_leap():
            state = self._ahead.popleft()
        return state

    def _run_through(self, iterator: ElementIterator) -> Generator[None, None, bool]:
        output, states, clock, stint = self._output, self._states, self._states.clock, self._stint
        while True:
            now = clock()
            if self._relay is None:
                self._await_allowance()
            elif (
                now >= stint.until
                or output.number >= stint.stop
                or output.emitted > self._emitted
                or self._stopped
            ):
                yield from self._change_turn()
            if self._ahead:
                if self._may_leap():
                    return False
            elif now >= states.due and output.is_between_rounds:
                self._note(iterator)
            if not self._make_some(iterator):
                break
        if self.definition.cache:
            text = (
                "Cross-trainer caching requires the input dataset to be infinite. It ended after "
                f"{self._output.number} elements; add repeat() before distribute()."
            )
            self._output.fail(InvalidArgumentError(text))
        self._finish(self._output.end())
        return True

    def _make_some(self, iterator: ElementIterator) -> bool:
        """Makes elements for about a millisecond, fewer where one is waited for; False
        at the end.
        """
        output, stride, clock = self._output, self._stride, self._states.clock
        cells, at, since = self.watch.cells, self.watch.at, clock()
        first = number = output.number
        size, fresh = output.nbytes, output.fresh
        most = self._most_now(number, size)
        cells[at] = number
        try:
            if not output.takes_runs:
                output.add(next(iterator))
                return True
            if isinstance(iterator, Stackable):
                fresh += iterator.next_rows(most)
                return True
            while number < first + most:
                glance = min(first + most, number + stride.glance)
                for element in islice(iterator, glance - number):
                    if type(element) in KEPT_AS_THEY_ARE:
                        fresh.append(element)
                    else:
                        output.take(element)
                    number += 1
                    cells[at] = number
                    if output.hungry:
                        return True
                if number < glance:
                    return False
                if stride.is_over(clock() - since, number - first, element):
                    return True
            return True
        except StopIteration:
            return False
        except Stopped:
            raise
        except BaseException as error:  # the boundary to user code: the iteration goes on behind it
            if isinstance(error, DataLossError) and error.final:
                raise  # what comes behind it would have other numbers than before
            output.fail(error)
            return True
        finally:
            # What has to be pickled is hidden from who waits until the pipeline looks
            # up: so it looks up at once.
            seconds = clock() - since if output.settle() else math.inf
            stride.end(output.number - first, seconds, output.nbytes - size)

    def _most_now(self, number: int, size: int) -> int:
        """How many elements to make at once, from this one on, with so many bytes made.
        A turn goes on to its end.
        """
        ends = [number + self._stride.begin(self._allowed - size if self._relay is None else BYTES)]
        if self._relay is not None:
            ends.append(self._stint.stop)
        if self._most is not None:
            ends.append(self._most)
        return max(1, min(ends) - number)

    def _note(self, iterator: ElementIterator) -> None:
        """Notes where the pipeline is, so that another host can go on from there."""
        self._teller.seal()
        state = self._states.take(iterator, self._output.number)
        if state is not None:
            self._teller.tell(e.StateNoted(*self.key, state))

    def _await_allowance(self) -> None:
        if self._stopped:
            raise Stopped
        if self._may_make(self._output.nbytes):
            return
        self._output.hand_over()
        since = self._states.clock()
        self.watch.rest()
        self.compression.rest()
        with self._changed:
            while not self._may_make(self._output.emitted) and not self._stopped:
                self._changed.wait()
        self.compression.resume()
        self._states.idle(self._states.clock() - since)

    def _change_turn(self) -> Iterator[None]:
        """Ends a turn, with handing over what was made in it, and begins the next
        one.
        """
        output, stint, clock = self._output, self._stint, self._states.clock
        stint.end(output.number, output.nbytes - self._emitted, clock())
        output.hand_over()
        self.watch.rest()
        self.compression.rest()
        rests, since = not self._may_make(output.emitted), clock()
        yield
        self.compression.resume()
        if rests:
            self._states.idle(clock() - since)
        if self._stopped:
            raise Stopped
        self._emitted = output.emitted
        stint.begin(output.number, clock())

    def _may_make(self, size: int) -> bool:
        """Whether there may be one more element, with so many bytes made."""
        most = self._most
        return size < self._allowed and (most is None or self._output.number < most)

    def _placed(self, error: BaseException) -> BaseException:
        return _placed(error, self._label, self.watch)

    def _fail(self, error: BaseException) -> None:
        """Nothing, or nothing more, can be made: that is no element's failure but the
        job's.
        """
        try:
            self._output.hand_over()
        except Exception:  # such as a lack of memory: whoever waits for the rest has to hear of its end all the same
            log.exception("task %s could not hand over the last that it made", self.key[0])
        self.quarantine.end()
        if not self._stopped:
            self._post(
                e.TaskFailed(
                    *self.key,
                    encode_failure(self._placed(error), self._output.number, self._worker),
                )
            )

    def _finish(self, dropped: int) -> None:
        self._output.hand_over()
        self.quarantine.end()
        if not self._stopped:
            self._teller.tell(
                e.Exhausted(*self.key, self._output.number, dropped, self.quarantine.total)
            )
