"""The task runner: it runs a pipeline in its own thread, or in a shared thread with
other tasks that are read in turn.

User code runs only here. ``worker.tasks.output`` turns its elements into blocks and
passes them to the worker's loop as events. The runner pauses when it has produced as
much as it may.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice

from zmqdata.blocks import Compression
from zmqdata.core.credit import FEW_BYTES
from zmqdata.core.worker import events as e
from zmqdata.elements.nesting import LEAF_TYPES
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
)
from zmqdata.failures.codec import encode_failure
from zmqdata.failures.exceptions import text_of
from zmqdata.iterators.base import ElementIterator, Stackable, make_iterator
from zmqdata.iterators.deciding import Deciding, Failures
from zmqdata.messages import TaskMeasures, TaskState
from zmqdata.pipelines import FindPart
from zmqdata.splits import Split
from zmqdata.worker.processes.watch import WatchFile
from zmqdata.worker.tasks.events import Teller
from zmqdata.worker.tasks.generators import TaskGenerators
from zmqdata.worker.tasks.ledger import LedgerProvider, Stopped
from zmqdata.worker.tasks.meter import UNOBSERVED, AttemptObserver, Doing, TaskMeter
from zmqdata.worker.tasks.output import BLOCK_BYTES, Output
from zmqdata.worker.tasks.pipeline import opened
from zmqdata.worker.tasks.preparing import PreparedTask, prepared
from zmqdata.worker.tasks.quarantine import TaskQuarantine
from zmqdata.worker.tasks.relay import Relays, Stint
from zmqdata.worker.tasks.sampling import NodeSampler
from zmqdata.worker.tasks.states import StateTaker, counting_of, restore
from zmqdata.worker.tasks.stride import BYTES, Stride
from zmqdata.worker.tasks.tasklog import TaskTap
from zmqdata.worker.tasks.watch import TaskWatch

log = logging.getLogger(__name__)


def _close(iterator: ElementIterator, task: int) -> None:
    try:
        iterator.close()
    except BaseException:
        # The boundary to user code: all elements are produced, and clients must get
        # them.
        text = "task %s: closing its pipeline has failed. Its elements are complete"
        log.warning(text, task, exc_info=True)


def _placed(error: BaseException, label: str, watch: TaskWatch) -> BaseException:
    """Return the error with a place in the user's code: that of the pipeline's last
    node, unless a node has already named itself.

    The watch is told first, because it may end the process.
    """
    watch.failed(error)
    if isinstance(error, DataServiceError) or not label:
        return error
    text = f"{type(error).__name__}: {text_of(error)} (in the pipeline that ends with {label})"
    placed = PipelineError(text, node=label)
    placed.__cause__ = error
    return placed


class TaskRunner:
    """Runs one attempt of a task.

    Args:
        command: the task's lineage, and its packed pipeline or the reason why it has
            none.
        post: receives events for the worker core, from any thread.
        worker: address of this worker, for error texts.
        find_part: returns the content of a part of the pipeline by its digest.
        window: size in bytes of a cross-trainer cache, or of a chunk of a save.
        watch_file: shared memory in which the runner records what it is working on.
        relays: returns the relay in which it takes turns with other tasks.
        tap: takes what its functions print and log.
        observer: listens to what the attempt does.
    """

    def __init__(
        self,
        command: e.StartTask,
        post: Callable[[e.WorkerEvent], None],
        worker: str,
        find_part: FindPart,
        window: int = BLOCK_BYTES,
        watch_file: WatchFile | None = None,
        relays: Relays | None = None,
        clock: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
        tap: TaskTap | None = None,
        observer: AttemptObserver = UNOBSERVED,
    ) -> None:
        self.definition = definition = command.definition
        self._tap = tap
        self._relay = None if relays is None else relays.of(definition)
        self._stint, self._stride = Stint(work), Stride()
        self._clock = clock
        self.key = (definition.task, definition.attempt)
        self.quarantine = TaskQuarantine(
            definition, lambda element: post(e.Quarantined(*self.key, element))
        )
        self.watch = TaskWatch(watch_file or WatchFile(), definition)
        self.deciding = Deciding(definition.first_decision, definition.decisions, self._pause)
        self.providers = [
            self._provider(source, entries) for source, entries in enumerate(definition.ledger)
        ]
        self._pipeline, self._reason = command.pipeline, command.reason
        self._find_part = find_part
        self._label = ""
        self._worker, self._post = worker, post
        # Files are kept for long: their size matters, not the time of compression.
        clocks = (
            {} if definition.save_path else {"clock": time.perf_counter, "work": time.thread_time}
        )
        self.compression = Compression(definition.job.compression, **clocks)
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
        self.meter = TaskMeter(self.key, clock, self._output, observer)
        self._states = StateTaker(len(self.providers), clock)
        self._ahead = deque(definition.states)  # states that the pipeline has not passed
        self._allowed = 0
        self._most: int | None = None
        self._stopped = self._awaited = False
        self._emitted = 0  # bytes handed over before this turn
        self._changed = threading.Condition()
        self._begun, self._ended = False, threading.Event()
        self._carrier = 0
        self._life = self._live()

    def _provider(self, source: int, entries: Sequence[Split]) -> LedgerProvider:
        def want(repetition: int, have: int, waiting: bool, pace: float) -> None:
            made = self._output.roughly
            self._post(e.SplitsWanted(*self.key, source, repetition, have, waiting, pace, made))

        base = self.definition.bases[source] if self.definition.bases else 0
        return LedgerProvider(entries, want, self._clock, source, base, self._away)

    @contextmanager
    def _away(self) -> Iterator[None]:
        """Return the context in which a source waits for splits. The thread that has
        the turn passes it on; other threads of the pipeline have none.
        """
        mine = threading.get_ident() == self._carrier
        away = self._relay.away(self) if self._relay is not None and mine else nullcontext()
        with self.meter.waiting_for_split(), away:
            yield

    def _pause(self, seconds: float) -> None:
        """Wait before an element is retried. Called from any thread of the pipeline."""
        with self._changed:
            if self._changed.wait_for(lambda: self._stopped, seconds):
                raise Stopped

    @property
    def takes_turns(self) -> bool:
        """True if it produces elements in a thread shared with other tasks."""
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
        """Stop the runner soon. User code that is running may finish, but its results
        are ignored.
        """
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._output.hungry = True  # the pipeline's loop checks after the next element
        for provider in self.providers:
            provider.stop()
        if self._relay is not None:
            self._relay.leave(self)
            self._relay.wake(self)

    def join(self, timeout: float) -> bool:
        """Wait for the end of the runner. Return False if user code is still
        running.
        """
        return not self._begun or self._ended.wait(timeout)

    def allow(self, size: int, elements: int | None = None, few_bytes: int = FEW_BYTES) -> None:
        """Let the runner produce until its limits.

        Args:
            size: maximum total size of its blocks in bytes.
            elements: maximum number of elements; None for any number.
            few_bytes: size up to which blocks of few elements are filled.
        """
        self._output.few_bytes = self._stint.few_bytes = few_bytes
        with self._changed:
            self._allowed = max(self._allowed, size)
            self._most = elements
            self._changed.notify_all()
        if self._relay is not None:
            self._relay.wake(self)

    def flush(self) -> None:
        """Hand over what is collected, or otherwise the next element as soon as it is
        produced, because a client waits.

        A task that takes turns hands over at the end of each turn. It needs this only
        if a turn lasts too long.
        """
        if self._relay is None:
            self._output.flush()
        else:
            self._awaited = True
            self.look()

    def look(self) -> None:
        """Hand over what a client waits for if the turn lasts too long. Must be called
        periodically.
        """
        if self._awaited and self._states.clock() >= self._stint.until:
            self._awaited = False
            self._output.hand_over()

    def hand_over(self) -> None:
        """Hand over what is collected."""
        self._output.hand_over()

    # --- in its own thread, or that of its relay

    @property
    def number(self) -> int:
        """Number of the next element."""
        return self._output.number

    def may_go_on(self) -> bool:
        """Return True if the task would produce anything, or end."""
        return self._stopped or self._may_make(self._output.nbytes)

    def go_on(self) -> bool:
        """Produce elements for one turn. Return True if it was the last turn."""
        self._carrier = threading.get_ident()
        with self._collected():
            return next(self._life, True) is True

    def _run(self) -> None:
        with self._collected():
            for _ in self._life:
                pass

    def _collected(self) -> AbstractContextManager[None]:
        """Return the context in which what functions print is collected."""
        return nullcontext() if self._tap is None else self._tap.collected()

    def _end_lines(self) -> None:
        if self._tap is not None:
            self._tap.end()

    def _live(self) -> Iterator[None]:
        """Run the whole task, yielding at the end of each turn."""
        try:
            task = self._open()
            self._output.strand = task.context.strand
            self.meter.begin(NodeSampler(task.node, task.context), task.context.counts)
            is_over = False
            while not is_over:
                is_over = yield from self._produce(task)
        except (Stopped, GeneratorExit):
            pass
        except BaseException as error:
            # The boundary to user code: all that it raises is data, even sys.exit().
            self._fail(error)
        finally:
            self.meter.end()
            self.watch.end()
            self._ended.set()

    def _last_measures(self) -> TaskMeasures | None:
        """Return the measures of the attempt, which has ended."""
        self.meter.turn(Doing.ENDED)
        return self.meter.report()

    def _open(self) -> PreparedTask:
        if self._reason:
            raise FailedPreconditionError(self._reason)
        encoded = self._pipeline or self._find_part(self.definition.digest) or b""
        opener = f"the worker at {self._worker}"
        whole = opened(encoded, self.definition, self._find_part, opener)
        self._pipeline = b""
        self._label = whole.label
        return prepared(
            whole,
            self.definition,
            self.providers,
            self.quarantine,
            self.watch,
            self.deciding,
            self._output.is_replaying,
        )

    def _produce(self, task: PreparedTask) -> Generator[None, None, bool]:
        """Produce elements until the end, or until the runner can continue from a later
        state. Return True at the end.
        """
        state = self._take_leap()
        for provider in self.providers:
            provider.rewind()
        self._teller.seal()
        self.deciding.learns = bool(self._ahead)
        number, counting = (0, None) if state is None else (state.number, counting_of(state))
        task.generators.begin(number, counting)
        iterator = make_iterator(task.node, task.context)
        try:
            if state is not None:
                self.deciding.leap(state.decisions)
                restore(iterator, state)
                self._output.leap(state.number)
            repeated = range(self._output.position, self._output.stop)
            self._failures = Failures(task.node, self.deciding, repeated)
            return (yield from self._run_through(iterator, task.generators))
        finally:
            _close(iterator, self.key[0])

    def _may_leap(self) -> bool:
        """Return True if no client needs the elements before the next state ahead.
        Remove states that were passed.
        """
        while self._ahead and self._ahead[0].number <= self._output.number:
            self._ahead.popleft()
        return bool(self._ahead) and self._output.may_leap(self._ahead[0].number)

    def _take_leap(self) -> TaskState | None:
        """Return the latest state from which the runner may continue; None if none."""
        state = None
        while self._may_leap():
            state = self._ahead.popleft()
        return state

    def _run_through(
        self, iterator: ElementIterator, generators: TaskGenerators
    ) -> Generator[None, None, bool]:
        output, states, clock, stint = self._output, self._states, self._states.clock, self._stint
        while True:
            now = clock()
            if self._relay is None:
                self._await_allowance()
            elif (
                stint.is_over(output.number, now, self._relay.is_wanted)
                or output.emitted > self._emitted
                or self._stopped
            ):
                yield from self._change_turn()
            if self._ahead:
                if self._may_leap():
                    return False
            elif now >= states.due and output.is_between_rounds:
                self._note(iterator, generators)
            if not self._make_some(iterator, generators):
                break
        if self.definition.job.cache:
            text = (
                "Cross-trainer caching requires the input dataset to be infinite. It ended after "
                f"{self._output.number} elements; add repeat() before distribute()."
            )
            self._output.fail(InvalidArgumentError(text))
        self._finish(self._output.end())
        return True

    def _make_some(self, iterator: ElementIterator, generators: TaskGenerators) -> bool:
        """Produce elements for about a millisecond, or fewer if a client waits. Return
        False at the end.
        """
        output, stride, clock = self._output, self._stride, self._states.clock
        failures = self._failures
        cells, at, since = self.watch.cells, self.watch.at, clock()
        first = number = output.number
        size, fresh = output.nbytes, output.fresh
        most = self._most_now(number, size, min(generators.due, failures.due))
        cells[at] = number
        try:
            if number >= generators.due or output.position >= failures.due:
                element = next(iterator)
                failures.made(output.position)
                generators.look(number)
                output.add(element)
                return True
            if not output.takes_runs:
                output.add(next(iterator))
                return True
            if isinstance(iterator, Stackable):
                fresh += iterator.next_rows(most)
                return True
            while number < first + most:
                glance = min(first + most, number + stride.glance)
                for element in islice(iterator, glance - number):
                    if type(element) in LEAF_TYPES:
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
        except BaseException as error:  # the boundary to user code: the iteration continues
            if getattr(error, "final", False) is True:
                raise  # later elements would have other numbers than in earlier attempts
            failures.failed(output.position, error)
            output.fail(error)
            return True
        finally:
            # Elements that must be pickled are invisible to a waiting client until the
            # pipeline's loop checks again, so the next stride is short.
            seconds = clock() - since if output.settle() else math.inf
            stride.end(output.number - first, seconds, output.nbytes - size)

    def _most_now(self, number: int, size: int, due: int) -> int:
        """Return the number of elements to produce in one stride from ``number`` on,
        when ``size`` bytes were produced, up to element ``due``. The limit in bytes
        does not interrupt a turn.
        """
        stride = self._stride.begin(self._allowed - size if self._relay is None else BYTES)
        ends = [number + stride, due]
        if self._relay is not None:
            ends.append(self._stint.stop)
        if self._most is not None:
            ends.append(self._most)
        return max(1, min(ends) - number)

    def _note(self, iterator: ElementIterator, generators: TaskGenerators) -> None:
        """Take a state of the pipeline, so that another host can continue from it."""
        self._teller.seal()
        state = self._states.take(iterator, self._output.number, generators.counting)
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
        self.meter.turn(Doing.FOR_READERS)
        with self._changed:
            while not self._may_make(self._output.emitted) and not self._stopped:
                self._changed.wait()
        self.meter.turn(Doing.MAKING)
        self.compression.resume()
        self._states.idle(self._states.clock() - since)

    def _change_turn(self) -> Iterator[None]:
        """End a turn, hand over what was produced in it, and begin the next turn."""
        output, stint, clock = self._output, self._stint, self._states.clock
        stint.end(output.number, output.nbytes - self._emitted, clock())
        output.hand_over()
        self.watch.rest()
        self.compression.rest()
        rests, since = not self._may_make(output.emitted), clock()
        self.meter.turn(Doing.FOR_READERS if rests else Doing.FOR_TURN)
        yield
        self.meter.turn(Doing.MAKING)
        self.compression.resume()
        if rests:
            self._states.idle(clock() - since)
        if self._stopped:
            raise Stopped
        self._emitted = output.emitted
        stint.begin(output.number, clock())

    def _may_make(self, size: int) -> bool:
        """Return True if another element may be produced after ``size`` bytes."""
        most = self._most
        return size < self._allowed and (most is None or self._output.number < most)

    def _placed(self, error: BaseException) -> BaseException:
        return _placed(error, self._label, self.watch)

    def _fail(self, error: BaseException) -> None:
        """Fail the job, because nothing more can be produced. This is not the failure
        of a single element.
        """
        try:
            self._output.hand_over()
        except Exception:
            # For example a lack of memory. The clients must be told of the failure all
            # the same.
            text = "task %s could not hand over its last elements. Its job ends with an error"
            log.exception(text, self.key[0])
        self.quarantine.end()
        self._end_lines()
        self.meter.fail(error)
        if not self._stopped:
            self._post(
                e.TaskFailed(
                    *self.key,
                    encode_failure(self._placed(error), self._output.number, self._worker),
                    measures=self._last_measures(),
                )
            )

    def _finish(self, rest: tuple[e.Produced, ...]) -> None:
        self._output.hand_over()
        self.quarantine.end()
        self._end_lines()
        if not self._stopped:
            total = self._output.number + bool(rest)
            measures = self._last_measures()
            self._teller.tell(
                e.Exhausted(*self.key, total, self.quarantine.total, rest, measures=measures)
            )
