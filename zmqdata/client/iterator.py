"""The iterator that the training loop calls. The thread behind it is in
``client.shell``.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from enum import Enum, auto
from typing import Any

from zmqdata.client import lifetime
from zmqdata.client.admin import audit_of_iteration
from zmqdata.client.bookmarks import ServiceBookmark
from zmqdata.client.delivery import Delivery, End, Strides
from zmqdata.client.finished import forget_finished, note_finished
from zmqdata.client.quarantine import ListLeftOut, list_nowhere
from zmqdata.client.shell import ReaderShell
from zmqdata.client.trace import begin_read_span, end_read_span
from zmqdata.core.client.decider import ClientProfile
from zmqdata.core.client.events import Finish
from zmqdata.errors import (
    CancelledError,
    DataServiceError,
    FailedPreconditionError,
    UnimplementedError,
)
from zmqdata.iterators.base import ElementIterator
from zmqdata.iterators.calling import CLOSED
from zmqdata.iterators.states import Restoring
from zmqdata.machine.descriptors import AN_ITERATOR, shortage_explained
from zmqdata.measures.meter import LoopMeter
from zmqdata.measures.situation import Situation
from zmqdata.measures.sums import RecentLoop
from zmqdata.messages import LoopSums
from zmqdata.transport.forks import check_process

Resumed = Callable[[ClientProfile, Any], ClientProfile]
"""Returns the profile with which to resume from an encoded ``Checkpoint``."""
CheckElement = Callable[[Any], None]
"""Raises a DataServiceError for an element that must not be handed out."""
FIRST_ANSWER = 5.0
"""Seconds for which loading a state waits for the dispatcher to refuse it. ``next``
waits for a dispatcher that is away.
"""


class ReadingPhase(Enum):
    """Progress of a service iterator."""

    READING = auto()
    """It reads, or begins to read on first use."""
    CLOSED = auto()
    """The user has closed it before its end."""
    OVER = auto()
    """It has reached the end or an error, or the program ends."""


class ServiceIterator(ElementIterator):
    """Iterator over a repetition of a job, as returned by ``iter`` of a distributed
    dataset.

    Args:
        profile: what to read, and in which role.
        resumed: returns the profile with which to resume from an encoded
            ``Checkpoint``.
        restoring: None: reading begins at once. Otherwise it begins with ``restore`` or
            on first use.
        list_left_out: takes the elements that workers skip.
        check_first: raises an error if the first element is not one of this dataset.
        meter: measures the waits of the loop; None: a meter of its own.

    Raises (from ``next``):
        PipelineError: a function of the pipeline failed at this element. The next call
            continues after it.
        UnavailableError: the dispatcher has been away for longer than
            ``dispatcher_timeout``.
        DataServiceError: the service cannot continue, and the text says why.

    An error after which nothing follows has ``final`` set, and every further call of
    ``next`` raises it again: StopIteration stands for the complete end only.
    """

    _shell: ReaderShell

    def __init__(
        self,
        profile: ClientProfile,
        resumed: Resumed | None = None,
        restoring: Restoring | None = None,
        list_left_out: ListLeftOut = list_nowhere,
        check_first: CheckElement | None = None,
        meter: LoopMeter | None = None,
    ) -> None:
        self._profile = profile
        self._meter = LoopMeter(time.perf_counter) if meter is None else meter
        self._resumed = resumed
        self._restoring = restoring
        self._list_left_out = list_left_out
        self._check_first = check_first
        self._failed: End | None = None
        self._is_read = self._has_given = False
        self._strides = Strides()
        self._phase = ReadingPhase.READING
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._finalizer: weakref.finalize[..., ServiceIterator] | None = None
        if restoring is None:
            self._begin(profile)

    @property
    def is_shareable(self) -> bool:
        return True

    @property
    def _is_reading(self) -> bool:
        return self._phase is ReadingPhase.READING

    def _begin(self, profile: ClientProfile) -> None:
        span, profile = begin_read_span(profile)
        with shortage_explained(AN_ITERATOR):
            self._shell = self._open_shell(profile)
        self._end_span = weakref.finalize(self, end_read_span, span, self._shell, self._meter)
        self._is_read = self._has_given = False
        self._strides = self._shell.strides
        self._shell.loop.start()
        self._finalizer = weakref.finalize(self, lifetime.abandon, self._shell, self._pid)
        self._finalizer.atexit = False  # close() at exit waits for the goodbye instead
        lifetime.begin(self)

    def _open_shell(self, profile: ClientProfile) -> ReaderShell:
        """Make the thread and the sockets of this iterator."""
        return ReaderShell(profile, self._list_left_out, self._meter)

    def _begin_late(self) -> None:
        if self._finalizer is not None:
            return  # without the lock: another thread may hold it while it waits for an element
        with self._lock:
            if self._finalizer is None and self._is_reading:
                self._begin(self._profile)

    def __next__(self) -> Any:
        for element in self._strides.elements:
            return element
        return self._next_block()

    def _next_block(self) -> Any:
        self._meter.ask()
        before = self._phase
        self._check_process()
        self._begin_late()
        if not self._is_read:
            self._is_read = True
            self._shell.start_reading()
        with self._lock:
            while self._is_reading:
                first = self._first()
                if isinstance(first, End):
                    self._end(first)
                    before = self._phase
                elif isinstance(first, Delivery) and self._shell.begin_delivery(first):
                    self._end_if_final(first)
                    self._has_given = True
                    failure = first.take_failure()
                    if failure is not None:
                        self._meter.give()
                        lifetime.call(lifetime.after_reading)
                        raise failure
                    for element in self._strides.begin(first.elements):
                        if self._check_first is not None:
                            self._check(element, self._check_first)
                        self._meter.give()
                        return element
                    self._shell.finish_delivery(first)
        self._meter.end()
        self._raise_failure()
        if self._phase is ReadingPhase.CLOSED and self._phase is not before:
            # Another thread has closed it. StopIteration would say that this is all.
            raise CancelledError(CLOSED)
        raise StopIteration

    def _check(self, element: Any, check: CheckElement) -> None:
        """Check the first element, and end with the error that the check raises."""
        self._check_first = None
        try:
            check(element)
        except DataServiceError as error:
            self._fail(error)
            self._raise_failure()

    def _first(self) -> Delivery | End | None:
        """Return the block being read or the item that came to the front after it, or
        None to be asked again.
        """
        shell, first = self._shell, self._shell.queue.first()
        if first is None:
            if shell.queue:
                shell.loop.post(shell.look_after_lease)
            shell.queue.wait(1.0)
            first = shell.queue.first()
        if first is None and self._is_reading and not shell.loop.thread.is_alive():
            raise DataServiceError(
                "The iterator's thread has ended unexpectedly. This is a fault in "
                "zmqdata; please report it."
            )
        return first

    def _end_if_final(self, delivery: Delivery) -> None:
        """End a coordinated read whose input ended where it may not, at the same step
        for every consumer.

        The failure does not count as taken, so a later client in this consumer's place
        gets it again.
        """
        if isinstance(delivery.failure, FailedPreconditionError) and self._shell.core.is_numbered:
            failure, delivery.failure = delivery.failure, None
            self._fail(failure)
            self._raise_failure()

    def _end(self, end: End) -> None:
        who = self._shell.core.profile
        if end.has_failed:
            self._failed = end
        elif not who.job.cache:
            note_finished(who.service, who.job.name, who.affiliation, who.repetition)
        self._close()

    def check_begun(self) -> None:
        """Wait, after ``restore``, until the dispatcher has accepted or refused the
        state.

        May be called from any thread.

        Raises:
            DataServiceError: the dispatcher has refused the state, or the service was
                gone before the first element.
        """
        shell = self._shell
        while not shell.is_decided and shell.loop.thread.is_alive():
            shell.queue.wait(1.0)
        self._look_for_refusal()

    def _look_for_refusal(self) -> None:
        first = self._shell.queue.first()
        if isinstance(first, End) and first.has_failed and not self._has_given:
            self._failed = first
        self._raise_failure()

    def _fail(self, error: DataServiceError) -> None:
        """End with an error, which every later call of ``next`` raises."""
        self._failed = End(Finish(type(error).__name__, str(error)))
        self._close()

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed.error()

    def _check_process(self) -> None:
        remedy = (
            "Make a new iterator with `iter(dataset)` in this process, or start "
            "processes with the 'spawn' method."
        )
        check_process(self._pid, "iterator", remedy)

    def state(self) -> ServiceBookmark:
        """Return the place reached. Its encoded ``Checkpoint`` is made when the place
        is saved.
        """
        self._check_process()
        self._begin_late()
        return self._shell.bookmark()

    def restore(self, state: Any) -> None:
        """Continue from an encoded ``Checkpoint``, in a new incarnation of the job.

        What was being read before is left.

        Raises:
            DataLossError: the checkpoint is damaged.
            InvalidArgumentError: it is not a state of such an iterator.
            DataServiceError: the dispatcher refuses it. Reasons found later (other
                readers of the job, changed files) are raised by every ``next``.
        """
        self._check_process()
        if self._resumed is None:
            raise UnimplementedError(
                "This iterator cannot restore a state, because it was made without a "
                "dataset. Restore an iterator made with `iter(dataset)`."
            )
        profile = self._resumed(
            self._profile, state.plain() if isinstance(state, ServiceBookmark) else state
        )
        self._end_older(profile)
        if self._restoring is not None:
            self._restoring.make_way()
            self._restoring.checks.append(self.check_begun)
        if self._finalizer is not None:
            self._close()
        self._phase, self._failed = ReadingPhase.READING, None
        self._begin(profile)
        self._shell.wait_for_answer(FIRST_ANSWER)
        self._look_for_refusal()

    def _end_older(self, profile: ClientProfile) -> None:
        """End the other iterators of this process that read the same job, which begins
        anew from a state.
        """
        forget_finished(profile.service, profile.job.name)
        for other in list(lifetime.alive):
            if isinstance(other, ServiceIterator) and other is not self:
                other.end_for_state(profile)

    def end_for_state(self, profile: ClientProfile) -> None:
        """End with an error if this iterator reads the job that begins anew from a
        state with this profile.
        """
        mine = self._profile if self._finalizer is None else self._shell.core.profile
        same = (mine.service, mine.job.name) == (profile.service, profile.job.name)
        if not same or not self._is_reading or self._finalizer is None:
            return
        if mine.resume and self._shell.core.iteration is None:
            return  # another reader of the job, which loads its own state at the same time
        text = (
            f"Job {mine.job.name!r} began anew from a state that another iterator of this process "
            "has loaded, which ended this iterator. Read on with that iterator."
        )
        self._fail(FailedPreconditionError(text))

    def close(self) -> None:
        """Stop reading. Elements that were not handed out go to other clients of the
        job.

        A thread that waits for an element gets a ``CancelledError``. Idempotent. Waits
        a few seconds for the goodbye.
        """
        if self._is_reading:
            self._phase = ReadingPhase.CLOSED
        self._close()

    def _close(self) -> None:
        if self.leave():
            self._shell.loop.join(lifetime.GOODBYE)
            lifetime.call(lifetime.after_reading)

    def leave(self) -> bool:
        """Stop reading as ``close`` does, without waiting for the goodbye. Return False
        if this iterator did not read any more.
        """
        if self._pid != os.getpid():
            return False
        # In this order, an interrupt between any two lines leaves an iterator that has
        # ended.
        if self._is_reading:
            self._phase = ReadingPhase.OVER
        self._strides.end()
        self._meter.end()
        if self._finalizer is None or not self._finalizer.alive:
            return False
        lifetime.abandon(self._shell, self._pid)
        self._end_span()
        self._shell.queue.wake()
        self._finalizer.detach()
        return True

    def situation(self, recent: RecentLoop) -> Situation:
        """Return what is known of the loop and of all that feeds it.

        Args:
            recent: turns the sums of the loop into recent ones.
        """
        if self._finalizer is None:
            return Situation(LoopSums())
        shell, core = self._shell, self._shell.core
        limit = core.profile.job.max_outstanding_requests
        found = core.links.evidence.situation(
            shell.measures(recent), core.reading.tasks.copy(), limit
        )
        return found if self._failed is None else replace(found, failure=str(self._failed.error()))

    def audit(self) -> dict[str, Any]:
        """Return what became of the splits and elements of this repetition of the job,
        as in ``zmqdata.audit``.

        It includes what this iterator has handed out after a second, or as soon as the
        iterator has ended or was closed.

        Raises:
            NotFoundError: the dispatcher does not know the job, or no longer.
            UnavailableError: the dispatcher has not answered.

        Has no counterpart in tf.data.
        """
        who = self._profile if self._finalizer is None else self._shell.core.profile
        number = None if self._finalizer is None else self._shell.core.iteration
        return audit_of_iteration(who.service, who.job.name, number)

    def after_fork(self) -> None:
        """Forget, in a child of a fork, what belongs to the parent."""
        self._strides.end()
        self._lock = threading.RLock()
        if self._finalizer is not None:
            self._end_span.detach()
            self._finalizer.detach()
