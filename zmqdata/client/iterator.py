"""The iterator that the training loop calls; the thread behind it is in
``client.shell``.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from zmqdata.client import lifetime
from zmqdata.client.admin import audit_of_repetition
from zmqdata.client.bookmarks import ServiceBookmark
from zmqdata.client.delivery import Delivery, End, Strides
from zmqdata.client.shell import ReaderShell
from zmqdata.core.client.decider import ClientProfile
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    UnimplementedError,
    named_error,
)
from zmqdata.iterators import ElementIterator, Restoring
from zmqdata.iterators.watching import LeftOut
from zmqdata.transport.forks import check_process

Resumed = Callable[[ClientProfile, Any], ClientProfile]
"""Makes the profile with which to go on from an encoded ``Checkpoint``."""
FIRST_ANSWER = 5.0
"""Seconds for which loading a state waits for the dispatcher to refuse it. ``next``
waits for one that is away.
"""


class ServiceIterator(ElementIterator):
    """Reads one repetition of a job (what ``iter`` of a distributed dataset gives).

    Args:
        profile: who reads what.
        resumed: the profile with which to go on from an encoded ``Checkpoint``.
        restoring: None: it reads from now on. Otherwise it begins with ``restore``, or
            when it is first used.
        quarantine: takes the elements that workers leave out because these bring them
            down.

    Raises (from ``next``):
        PipelineError: a user's function failed at this element; the next call goes on
            behind it.
        UnavailableError: the dispatcher has been away for longer than
            ``dispatcher_timeout``.
        DataServiceError: the service cannot go on; the text says why. When it could not
            even begin from a state, each call says so.
    """

    _shell: ReaderShell

    def __init__(
        self,
        profile: ClientProfile,
        resumed: Resumed | None = None,
        restoring: Restoring | None = None,
        quarantine: deque[LeftOut] | None = None,
    ) -> None:
        self._profile = profile
        self._resumed = resumed
        self._restoring = restoring
        self._quarantine = quarantine
        self._refusal: tuple[str, str] | None = None
        self._is_read = self._has_given = False
        self._strides = Strides()
        self._ended = False
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._finalizer: weakref.finalize[..., ServiceIterator] | None = None
        if restoring is None:
            self._begin(profile)

    def _begin(self, profile: ClientProfile) -> None:
        self._shell = self._open_shell(profile)
        self._is_read = self._has_given = False
        self._strides = self._shell.strides
        self._shell.loop.start()
        self._finalizer = weakref.finalize(self, lifetime.abandon, self._shell, self._pid)
        self._finalizer.atexit = False  # then close() waits for the goodbye
        lifetime.alive.add(self)

    def _open_shell(self, profile: ClientProfile) -> ReaderShell:
        """Make the thread and the sockets of this iterator."""
        return ReaderShell(profile, self._quarantine)

    def _begin_late(self) -> None:
        if self._finalizer is not None:
            return  # not even the lock: another thread may wait with it for an element
        with self._lock:
            if self._finalizer is None and not self._ended:
                self._begin(self._profile)

    def __next__(self) -> Any:
        for element in self._strides.elements:
            return element
        return self._next_block()

    def _next_block(self) -> Any:
        self._check_process()
        self._begin_late()
        if not self._is_read:
            self._is_read = True
            self._shell.look_in()
        with self._lock:
            while not self._ended:
                first = self._first()
                if isinstance(first, End):
                    self._end(first)
                elif isinstance(first, Delivery):
                    self._end_if_final(first)
                    self._has_given = True
                    failure = first.take_failure()
                    if failure is not None:
                        raise failure
                    for element in self._strides.begin(first.elements):
                        return element
                    self._shell.took_all(first)
        self._raise_refusal()
        raise StopIteration

    def _first(self) -> Delivery | End | None:
        """The block that is being read, or what has come to the front after it; None
        when it should be asked again.
        """
        shell, first = self._shell, self._shell.queue.first()
        if first is None:
            if shell.queue:
                shell.loop.post(shell.look_after_lease)
            shell.queue.wait(1.0)
            first = shell.queue.first()
        if first is None and not self._ended and not shell.loop.thread.is_alive():
            raise DataServiceError("the iterator's thread has ended; this is a fault in zmqdata")
        return first

    def _end_if_final(self, delivery: Delivery) -> None:
        """Ends a coordinated read whose input has ended where it may not: at the same
        step for every consumer.

        The failure does not count as taken, so whoever reads as one of them later gets
        it again.
        """
        if isinstance(delivery.failure, FailedPreconditionError) and self._shell.core.is_numbered:
            failure, delivery.failure = delivery.failure, None
            failure.final = True
            self.close()
            raise failure

    def _end(self, end: End) -> None:
        self._note_refusal(end)
        error = end.take_error()
        self._ended = True
        self.close()
        if error is not None:
            error.final = True
            raise error

    def check_begun(self) -> None:
        """After ``restore``, waits until it is known that there is anything to go on
        with. From any thread.

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
        if isinstance(first, End):
            self._note_refusal(first)
        self._raise_refusal()

    def _note_refusal(self, end: End) -> None:
        error = end.error
        if error is not None and self._shell.core.profile.resume and not self._has_given:
            self._refusal = (type(error).__name__, str(error))

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            error, text = self._refusal
            refusal = named_error(error, text)
            refusal.final = True
            raise refusal

    def _check_process(self) -> None:
        remedy = "Make a new iterator with iter(dataset) here, or start processes with the 'spawn' method."
        check_process(self._pid, "iterator", remedy)

    def state(self) -> ServiceBookmark:
        """The place reached. What it is an encoded ``Checkpoint`` of is put together
        when somebody saves it.
        """
        self._check_process()
        self._begin_late()
        return self._shell.bookmark()

    def restore(self, state: Any) -> None:
        """Goes on in a new incarnation of the job, from an encoded ``Checkpoint``. What
        was read before is left.

        Raises:
            DataLossError: it is damaged.
            InvalidArgumentError: it is no state of such an iterator.
            DataServiceError: the dispatcher refuses it. What takes that longer to find
                out (others read the job, files have changed) is raised by ``next``,
                each time.
        """
        self._check_process()
        if self._resumed is None:
            raise UnimplementedError("this iterator was made without a dataset that could go on")
        profile = self._resumed(
            self._profile, state.plain() if isinstance(state, ServiceBookmark) else state
        )
        if self._restoring is not None:
            self._restoring.make_way()
            self._restoring.checks.append(self.check_begun)
        if self._finalizer is not None:
            self.close()
        self._ended, self._refusal = False, None
        self._begin(profile)
        self._shell.wait_for_answer(FIRST_ANSWER)
        self._look_for_refusal()

    def close(self) -> None:
        """Stops reading: what was not handed out goes to other clients of the job.
        Idempotent; waits a few seconds.
        """
        if self._pid != os.getpid():
            return
        # In this order, so that an interrupt between any two lines leaves an iterator
        # that has ended.
        self._ended = True
        self._strides.end()
        if self._finalizer is not None and self._finalizer.alive:
            self._shell.ask_to_close()
            self._shell.queue.wake()
            self._finalizer.detach()
            if not self._shell.loop.join(lifetime.GOODBYE):
                lifetime.abandoned.add(self._shell.loop)  # its last report has not been taken yet

    def audit(self) -> dict[str, Any]:
        """What became of the splits and elements of this repetition of the job, as
        ``zmqdata.audit`` tells it.

        What this iterator has handed out is in it after a second, or as soon as it has
        ended or was closed.

        Raises:
            NotFoundError: the dispatcher does not know the job, or not any more.
            UnavailableError: the dispatcher has not answered.

        Ours: tf.data has nothing of the kind.
        """
        who = self._profile if self._finalizer is None else self._shell.core.profile
        return audit_of_repetition(who.service, who.job.name, who.repetition)

    def after_fork(self) -> None:
        """Forgets, in a child of fork, what is the parent's."""
        self._strides.end()
        self._lock = threading.RLock()
        if self._finalizer is not None:
            self._finalizer.detach()
