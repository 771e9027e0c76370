"""The answers to requests that change nothing durable: state, audit, echo, number of
workers, and the description of a task.

They may show facts that the journal does not have yet, because they are snapshots for a
person.

Protocol 3.10, 3.11, and 3.17 to 3.19.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from zmqdata import messages as m
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.core.dispatcher.decider import DispatcherCore
from zmqdata.core.dispatcher.tasks.lineage import ReplayableTask
from zmqdata.dispatcher.status import EventLog, audits_of, status_of
from zmqdata.dispatcher.store import PipelineStore
from zmqdata.errors import FailedPreconditionError, NotFoundError


class Answers:
    """Answers requests that change nothing durable.

    Args:
        core: the dispatcher's decider.
        store: the stored pipelines.
        target: address of the dispatcher.
        config: its configuration.
        rejected: numbers of rejected messages.
        clock: returns seconds since 1970.

    Attributes:
        events: the newest lines of the log, which are part of the state.
    """

    def __init__(
        self,
        core: DispatcherCore,
        store: PipelineStore,
        target: str,
        config: DispatcherConfig,
        rejected: Counter[str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.events = EventLog()
        self._core, self._store, self._clock = core, store, clock
        self._target, self._config, self._rejected = target, config, rejected

    def to(self, ask: m.Message, now: float) -> m.Message | None:
        """Return the answer to a request; None if the message is none of these."""
        if isinstance(ask, m.RequestStatus):
            found = status_of(
                self._core, now, self._target, self._config, self._rejected, self.events
            )
            return m.StatusReported(ask.request, msgspec.json.encode(found))
        if isinstance(ask, m.RequestAudit):
            return self._audit(ask)
        if isinstance(ask, m.RequestScale):
            return self._scale(ask, now)
        if isinstance(ask, m.RequestEcho):
            return m.EchoSent(ask.request, self._clock(), bytes(ask.size))
        if isinstance(ask, m.RequestTask):
            return self._task(ask)
        return None

    def _scale(self, ask: m.RequestScale, now: float) -> m.Message:
        desired = self._core.desired
        holder = desired.claim(ask.scaler, ask.interval, now)
        if holder != ask.scaler:
            text = (
                f"{holder} starts and stops the workers of this dispatcher already, and two "
                "programs would start workers for the same need. Stop it first. If it was killed, "
                "its place is free after three of its intervals."
            )
            return m.RequestRefused(ask.request, FailedPreconditionError.__name__, text)
        decision = desired.decision(now)
        return m.ScaleDecided(ask.request, decision.workers, decision.reason, desired.processes())

    def _audit(self, ask: m.RequestAudit) -> m.Message:
        found = audits_of(self._core, ask.job)
        if found:
            return m.AuditReported(ask.request, msgspec.json.encode(found))
        known = ", ".join(sorted(self._core.state.jobs)) or "none"
        text = (
            f"Job {ask.job!r} is unknown; the known jobs are: {known}. A job without a "
            "job_name has a generated name."
        )
        return m.RequestRefused(ask.request, "NotFoundError", text)

    def _task(self, ask: m.RequestTask) -> m.Message:
        found = self._core.hosting.replays.find(ask.task)
        if found is None:
            text = (
                f"Task {ask.task} is unknown. A dispatcher knows the tasks of living jobs, and "
                "the last unfinished tasks of jobs that have ended since it was started. "
                "`zmqdata status` lists the tasks of living jobs."
            )
            return m.RequestRefused(ask.request, NotFoundError.__name__, text)
        return self._described(ask, found)

    def _described(self, ask: m.RequestTask, found: ReplayableTask) -> m.Message:
        digest, parts = found.definition.digest, found.dataset.parts
        is_part = any(part.digest == digest for part in parts)
        pipeline = b"" if is_part else self._store.get(digest)
        if pipeline is None:
            text = (
                f"The pipeline of task {ask.task} is no longer stored: job {found.job} has ended, "
                "and no job has read its dataset for a long time. Start the job again."
            )
            return m.RequestRefused(ask.request, NotFoundError.__name__, text)
        return m.TaskDescribed(ask.request, found.job, found.definition, pipeline, parts)
