"""The end of a client's part in an iteration: when it may end, and how it leaves.

``ReadingEnd`` decides when a client may end while other clients hold elements.
``Goodbye`` repeats the last report until the dispatcher has counted it. Neither has a
clock. When a client leaves is decided in ``core.client.decider``, and which clients may
go in ``core.dispatcher.readers.leaving``.

Decision 0047; protocol 3.4 and 3.5.
"""

from __future__ import annotations

from collections.abc import Callable

from zmqdata import messages as m
from zmqdata.core.client import events as e
from zmqdata.core.client.lease import PATIENCE_ALONE, ClientLease
from zmqdata.core.client.notices import Notices
from zmqdata.core.client.tasks import Reading
from zmqdata.core.job_rules import is_copied
from zmqdata.messages import MayEnd

REPEAT = 0.5
"""Seconds between two repetitions of the goodbye."""
COPIES_PATIENCE = 3.0
"""Seconds without an answer after which a client ends that has read copies of the
input.
"""
PATIENCE = 2.0
"""Seconds after which a goodbye without an unreported element is given up."""
LAST_REPORT = 300.0
"""Seconds after which even a report that other clients depend on is given up."""


class Goodbye:
    """The last message of a client, sent under a single name.

    Args:
        client: name of the client.
        reading: the elements that it has handed out.
        notices: notices to the user, which also know how long to continue without a
            dispatcher.
        counts: True if other clients would receive the unreported elements again.
        do: receives the resulting commands.

    Attributes:
        has_begun: True if the client is leaving.
        is_over: True if nothing more is sent.
        closing: time at which the user closed the iterator, or None. ``Closed`` is then
            returned when the goodbye is over.
    """

    def __init__(
        self,
        client: str,
        reading: Reading,
        notices: Notices,
        counts: bool,
        do: Callable[[e.ClientCommand], None],
    ) -> None:
        self.has_begun = self.is_over = False
        self.closing: float | None = None
        self._client = client
        self._reading = reading
        self._notices = notices
        self._counts = counts
        self._do = do
        self._sent_at = 0.0
        self._is_at_end = False

    def close(self, now: float) -> None:
        """Record that the user has closed the iterator."""
        self.closing = now
        if self.is_over:
            self._do(e.Closed())

    def begin(self, now: float, at_end: bool) -> None:
        """Leave with a goodbye.

        Args:
            now: present time.
            at_end: True if the training loop has read everything.
        """
        self.has_begun, self._is_at_end = True, at_end
        self._say(now)

    def forgive(self, seconds: float) -> None:
        """Discount time in which this process did not run."""
        if self.closing is not None:
            self.closing += seconds

    def omit(self) -> None:
        """Leave without a goodbye, or stop repeating it.

        The dispatcher does not know this client, does not listen to it, has counted its
        goodbye, or has closed for good.
        """
        self.has_begun = True
        if not self.is_over:
            self.is_over = True
            if self.closing is not None:
                self._do(e.Closed())

    def stop(self, answer: m.IterationClosed) -> None:
        """Stop repeating the goodbye, because the dispatcher has counted the last
        report.
        """
        if self.has_begun and answer.client == self._client:
            self.omit()

    def tick(self, now: float) -> None:
        """Repeat the goodbye, for a limited time if a caller waits for the iterator to
        close.
        """
        if self.closing is not None and now - self.closing >= self.patience:
            lost = self.describe_losses(f"for {self.patience:.0f} s")
            if lost:
                self._do(e.LogLine("warning", lost))
            self.omit()
        elif not self.is_over and now - self._sent_at >= REPEAT:
            self._say(now)

    @property
    def num_owed(self) -> int:
        """Number of elements that others receive again unless the dispatcher counts the
        last report.
        """
        return self._reading.count_unreported() if self._counts and not self.is_over else 0

    def describe_losses(self, when: str) -> str:
        """Return what others receive again; an empty text if nothing is.

        Args:
            when: time for which, or at which, the dispatcher does not answer.
        """
        return self._notices.unheard(when, self.num_owed) if self.num_owed else ""

    @property
    def must_be_heard(self) -> bool:
        """True if a numbered consumer has read to its end and the dispatcher has not
        counted all of it. A successor would repeat these steps without the others.
        """
        return self._is_at_end and self._notices.is_numbered and self.num_owed > 0

    @property
    def patience(self) -> float:
        """Seconds from the closing to the last repetition."""
        return (
            max(PATIENCE, min(LAST_REPORT, self._notices.patience)) if self.num_owed else PATIENCE
        )

    def _say(self, now: float) -> None:
        self._sent_at = now
        report, delivered, steps = self._reading.next_report()
        goodbye = m.CloseIteration(
            self._client,
            report,
            delivered,
            steps,
            repeats=self._reading.repeats,
            given_back=self._reading.given_back,
            at_end=self._is_at_end,
            measures=self._reading.measures,
        )
        self._do(e.Send(e.DISPATCHER, goodbye))


class ReadingEnd:
    """The time since which a client is done, and whether the dispatcher has found
    heirs of everything that is still owed.

    Args:
        client: name of the client.
        job: the job that it reads.
        is_numbered: True if it is a numbered consumer.
        reading: the elements that the client has handed out.
        notices: notices to the user, which also measure the silence of the dispatcher.

    Attributes:
        has_begun: True if the client has no element left to hand out, and others may
            still receive elements.
    """

    def __init__(
        self,
        client: str,
        job: m.JobParameters,
        is_numbered: bool,
        reading: Reading,
        notices: Notices,
    ) -> None:
        self._client = client
        self._is_copied = is_copied(job)
        self._is_numbered, self._is_anonymous = is_numbered, job.anonymous
        self._reading = reading
        self._notices = notices
        self.revoke()

    def revoke(self) -> None:
        """Record that the client has elements to hand out, still or again."""
        self.has_begun, self._since, self._beat, self._is_granted = False, 0.0, 0, False

    def number(self, beat: int) -> int:
        """Return the number of the first heartbeat that has said that the client is
        done; 0 if it is not. A heartbeat numbered ``beat`` is sent now.
        """
        if self.has_begun and not self._beat:
            self._beat = beat
        return self._beat

    def may_end(self, answer: MayEnd) -> None:
        """Take the dispatcher's permission to end, unless the client was not done in
        between.
        """
        if answer.client == self._client and self._beat and answer.beat == self._beat:
            self._is_granted = True

    def forgive(self, seconds: float) -> None:
        """Discount time in which no peer could have answered."""
        self._since += seconds

    def has_come(self, now: float, task_list: m.TaskList, lease: ClientLease) -> bool:
        """True if a client that is done may end: nothing is owed, the dispatcher
        permits it, or no dispatcher has answered for too long.

        Args:
            now: present time.
            task_list: the newest task list.
            lease: lease of the client.
        """
        is_alone = lease.alone and not task_list.owed_elsewhere
        if not self._is_owed(task_list, lease) or self._is_granted:
            return True
        if not self.has_begun:
            self.has_begun, self._since = True, now
        silence = now - max(self._since, self._notices.heard)
        patience = PATIENCE_ALONE if is_alone else max(lease.seconds, PATIENCE_ALONE)
        if self._is_copied:
            patience = COPIES_PATIENCE  # a dispatcher that does not answer begins no copy
        if silence < min(patience, self._notices.patience):
            return False
        if not self._is_copied and not self._has_all(task_list):
            self._notices.ended_alone(silence, self._reading.count_unreported())
        return True

    def _is_owed(self, task_list: m.TaskList, lease: ClientLease) -> bool:
        """Return True if this client may receive more, as far as it knows. Each task of
        the list owes elements to some client, and the dispatcher decides to which.
        """
        if not task_list.closed:
            return True
        if self._is_numbered or lease.is_free:
            return False  # no client receives what another holds
        # Nobody follows the last reader of an anonymous job, so its report can wait.
        is_known = self._is_anonymous and self._has_all(task_list)
        return bool(task_list.tasks or task_list.owed_elsewhere) and not is_known

    def _has_all(self, task_list: m.TaskList) -> bool:
        """Return True if this client has received all elements that are owed."""
        owed = {place.task for place in task_list.tasks} | {*task_list.owed_elsewhere}
        return self._reading.has_all(owed)
