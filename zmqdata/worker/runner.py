"""The task runner: a thread that runs one pipeline.

User code runs here and nowhere else. What it makes becomes blocks in ``worker.output`` and is handed to the worker's
loop as events; it waits when it has produced as much as it may.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from zmqdata import commands as c
from zmqdata.blocks import Compression
from zmqdata.errors import DataServiceError, FailedPreconditionError, InvalidArgumentError, PipelineError
from zmqdata.failures import encode_failure
from zmqdata.iterators import Context, ElementIterator, make_iterator
from zmqdata.messages import TaskDefinition, TaskState
from zmqdata.nodes import Node, Options, options_of
from zmqdata.pipelines import FindPart, PackedPipeline, open_pipeline
from zmqdata.remote_errors import text_of
from zmqdata.sharding import shard_statically
from zmqdata.splits import Split, SplitProvider
from zmqdata.transport.folders import own_folder
from zmqdata.worker.crumbs import CrumbFile
from zmqdata.worker.ledger import LedgerProvider, Stopped
from zmqdata.worker.output import Output
from zmqdata.worker.quarantine import TaskQuarantine
from zmqdata.worker.states import StateTaker, decoded
from zmqdata.worker.watch import TaskWatch, WatchedProvider

log = logging.getLogger(__name__)


def _context(
    definition: TaskDefinition,
    providers: tuple[SplitProvider, ...] | None,
    options: Options,
    quarantine: TaskQuarantine,
    watch: TaskWatch,
) -> Context:
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
        quarantine=quarantine,
        watch=watch,
    )


class TaskRunner:
    """Runs one attempt of one task in a thread of its own.

    Args:
        command: the task's lineage, and its packed pipeline or the reason why there is none.
        post: takes events for the worker core, from any thread.
        worker: our address, for error texts.
        has_far_client: whether somebody on another host reads; on one host "AUTO" compresses nothing.
        find_part: gives the content of a part of the pipeline by its digest.
        window: the bytes of a cross-trainer cache.
        crumbs: where it notes what it is at.
    """

    def __init__(
        self,
        command: c.StartTask,
        post: Callable[[object], None],
        worker: str,
        has_far_client: Callable[[], bool],
        find_part: FindPart,
        window: int = 0,
        crumbs: CrumbFile | None = None,
    ) -> None:
        self.definition = definition = command.definition
        self.key = (definition.task, definition.attempt)
        self.quarantine = TaskQuarantine(definition.task)
        self.watch = TaskWatch(crumbs or CrumbFile(), definition)
        self.providers = [self._provider(source, entries) for source, entries in enumerate(definition.ledger)]
        self._pipeline = command.pipeline
        self._reason = command.reason
        self._find_part = find_part
        self._label = ""
        self._worker = worker
        self._post = post
        self._has_far_client = has_far_client
        self._far_compression = Compression(definition.compression)
        self._near_compression = Compression(definition.compression, local=True)
        self._started: tuple[tuple[int, int], ...] = ()
        self._telling = threading.Lock()
        self._output = Output(definition, self._tell, self._compression, worker, self._placed, window)
        self._states = StateTaker(len(self.providers))
        self._ahead = deque(definition.states)  # what the pipeline has not passed
        self._allowed = 0
        self._most: int | None = None
        self._stopped = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"zmqdata-task-{definition.task}", daemon=True)

    def _provider(self, source: int, entries: Sequence[Split]) -> LedgerProvider:
        def want(repetition: int, have: int, waiting: bool, pace: float) -> None:
            self._post(c.SplitsWanted(*self.key, source, repetition, have, waiting, pace))

        base = self.definition.bases[source] if self.definition.bases else 0
        return LedgerProvider(entries, want, source=source, base=base)

    def _tell(self, event: object) -> None:
        """Posts an event, and before it how far the sources are if that has changed. From any thread."""
        with self._telling:
            started = tuple([provider.started for provider in self.providers])
            if started != self._started:
                self._started = started
                self._post(c.SplitsStarted(*self.key, started))
            self._post(event)

    # --- from the worker's loop

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the runner soon; user code that is running now is left to finish and is not heard any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.watch.abandon()
        for provider in self.providers:
            provider.stop()

    def join(self, timeout: float) -> bool:
        """Waits for the thread; False when user code still keeps it."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def allow(self, size: int, elements: int | None = None) -> None:
        """Lets it produce until its blocks add up to ``size`` bytes, or there are so many ``elements``."""
        with self._changed:
            self._allowed = max(self._allowed, size)
            self._most = elements
            self._changed.notify_all()

    def flush(self) -> None:
        """Somebody waits: hand over what there is, or else the next element as soon as it is made."""
        self._output.flush()

    # --- in its own thread

    def _run(self) -> None:
        try:
            node, context = self._open()
            while not self._produce(node, context):
                pass
        except Stopped:
            pass
        except BaseException as error:  # the boundary to user code: whatever it raises is data, sys.exit() too
            self._fail(error)
        finally:
            self.watch.end()

    def _open(self) -> tuple[Node, Context]:
        if self._reason:
            raise FailedPreconditionError(self._reason)
        encoded = self._pipeline or self._find_part(self.definition.digest) or b""
        if hashlib.sha256(encoded).hexdigest() != self.definition.digest:
            raise FailedPreconditionError(
                "The dispatcher sent another pipeline than the one that was registered. Was its work folder changed?"
            )
        whole = open_pipeline(PackedPipeline.decode(encoded), self._find_part, own_folder())
        self._pipeline = b""
        self._label = whole.label
        task = self.definition
        node = shard_statically(whole, task.processing_mode, task.num_shards, task.shard, task.iteration_seed)
        providers: tuple[SplitProvider, ...] | None = None
        if task.processing_mode == "DYNAMIC":
            providers = tuple(WatchedProvider(provider, self.watch) for provider in self.providers)
        return node, _context(task, providers, options_of(whole), self.quarantine, self.watch)

    def _produce(self, node: Node, context: Context) -> bool:
        """Makes elements, to the end or until it can go on from a later state; True at the end."""
        state = self._take_leap()
        for provider in self.providers:
            provider.rewind()
        iterator = make_iterator(node, context)
        try:
            if state is not None:
                iterator.restore(decoded(state))
                self._output.leap(state.number)
            return self._run_through(iterator)
        finally:
            iterator.close()

    def _may_leap(self) -> bool:
        """Whether nobody needs what comes before the next state ahead. Those that were passed are forgotten."""
        while self._ahead and self._ahead[0].number <= self._output.number:
            self._ahead.popleft()
        return bool(self._ahead) and self._output.may_leap(self._ahead[0].number)

    def _take_leap(self) -> TaskState | None:
        """The furthest state that it may go on from."""
        state = None
        while self._may_leap():
            state = self._ahead.popleft()
        return state

    def _run_through(self, iterator: ElementIterator) -> bool:
        output, states, clock = self._output, self._states, self._states.clock
        cells, at = self.watch.cells, self.watch.at
        while True:
            self._await_allowance()
            if self._ahead:
                if self._may_leap():
                    return False
            elif clock() >= states.due and output.is_between_rounds:
                self._note(iterator)
            cells[at] = output.number
            try:
                element = next(iterator)
            except StopIteration:
                break
            except Stopped:
                raise
            except BaseException as error:  # the boundary to user code: the iteration goes on behind it
                output.fail(error)
                continue
            output.add(element)
        if self.definition.cache:
            text = (
                "Cross-trainer caching requires the input dataset to be infinite, but it ended after "
                f"{self._output.number} elements. Add repeat() before distribute()."
            )
            self._output.fail(InvalidArgumentError(text))
        self._finish(self._output.end())
        return True

    def _note(self, iterator: ElementIterator) -> None:
        """Notes where the pipeline is, so that another host can go on from there."""
        state = self._states.take(iterator, self._output.number)
        if state is not None:
            self._tell(c.StateTaken(*self.key, state))

    def _await_allowance(self) -> None:
        if self._stopped:
            raise Stopped
        if self._may_make(self._output.nbytes):
            return
        self._output.hand_over()
        since = self._states.clock()
        self.watch.rest()
        with self._changed:
            while not self._may_make(self._output.emitted) and not self._stopped:
                self._changed.wait()
        self._states.idle(self._states.clock() - since)

    def _may_make(self, size: int) -> bool:
        """Whether there may be one more element, with so many bytes made."""
        most = self._most
        return size < self._allowed and (most is None or self._output.number < most)

    def _compression(self) -> Compression:
        return self._far_compression if self._has_far_client() else self._near_compression

    def _placed(self, error: BaseException) -> BaseException:
        """The error with a place in the user's code: where no node has named itself, that of the pipeline's end."""
        if isinstance(error, DataServiceError) or not self._label:
            return error
        text = f"{type(error).__name__}: {text_of(error)} (in the pipeline that ends with {self._label})"
        placed = PipelineError(text, node=self._label)
        placed.__cause__ = error
        return placed

    def _fail(self, error: BaseException) -> None:
        """Nothing, or nothing more, can be made: that is no element's failure but the job's."""
        self._output.hand_over()
        self.quarantine.end()
        if not self._stopped:
            failure = encode_failure(self._placed(error), self._output.number, self._worker)
            self._post(c.TaskFailed(*self.key, failure))

    def _finish(self, dropped: int) -> None:
        self._output.hand_over()
        self.quarantine.end()
        if not self._stopped:
            self._tell(c.Exhausted(*self.key, self._output.number, dropped, self.quarantine.total))
