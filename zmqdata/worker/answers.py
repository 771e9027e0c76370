"""The answers of a worker to a person who looks at it: its state, echoes, and recorded
spans.

Protocol 3.10, 3.17 and 11.4.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec

from zmqdata import messages as m
from zmqdata.config.checks import MOST_CHARACTERS
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.worker.measuring import Measuring
from zmqdata.worker.status import status_of


class WorkerAnswers:
    """Answers requests that change no task.

    Args:
        core: the worker's decider.
        config: its configuration.
        rejected: numbers of rejected messages.
        measuring: knows the tasks, and records spans.
        clock: returns seconds since 1970.
    """

    def __init__(
        self,
        core: WorkerCore,
        config: WorkerConfig,
        rejected: Counter[str],
        measuring: Measuring,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._core, self._config, self._rejected = core, config, rejected
        self._measuring, self._clock = measuring, clock

    def to(self, ask: m.Message) -> m.Message | None:
        """Return the answer to a request; None if the message is none of these.

        Answers repeat the id of the request only so far as it has a usual length. They
        would otherwise pile up in the queue of a peer that reads none.
        """
        if isinstance(ask, m.RequestStatus):
            return m.StatusReported(ask.request[:MOST_CHARACTERS], self._status())
        if isinstance(ask, m.RequestEcho):
            return m.EchoSent(ask.request[:MOST_CHARACTERS], self._clock(), bytes(ask.size))
        if isinstance(ask, m.RequestTrace):
            short = msgspec.structs.replace(ask, request=ask.request[:MOST_CHARACTERS])
            return self._measuring.recorder.answer(short, f"worker {self._core.profile.address}")
        return None

    def _status(self) -> bytes:
        left_out = {
            key: runner.quarantine.shown() for key, runner in self._measuring.runners.items()
        }
        found = status_of(self._core, self._config, self._rejected, left_out)
        return msgspec.json.encode(found)
