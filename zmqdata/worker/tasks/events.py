"""The order in which a task runner reports events to the worker's loop: each event
after everything that it depends on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from zmqdata.core.worker import events as e
from zmqdata.iterators.deciding import Deciding
from zmqdata.worker.tasks.ledger import LedgerProvider


class Teller:
    """Posts the events of one attempt of a task. Thread-safe.

    Args:
        key: task and attempt.
        providers: split providers of the task's sources.
        deciding: decisions of the task's operations.
        post: receives the events.
    """

    def __init__(
        self,
        key: tuple[int, int],
        providers: Sequence[LedgerProvider],
        deciding: Deciding,
        post: Callable[[e.WorkerEvent], None],
    ) -> None:
        self._key = key
        self._providers = providers
        self._deciding = deciding
        self._post = post
        self._started: tuple[tuple[int, int], ...] = ()
        self._turn = threading.Lock()

    def tell(self, event: e.WorkerEvent) -> None:
        """Post an event, preceded by new decisions and new positions of the sources."""
        with self._turn:
            self._tell_decisions()
            started = tuple([provider.started for provider in self._providers])
            if started != self._started:
                self._started = started
                self._post(e.SplitsStarted(*self._key, started))
            self._post(event)

    def seal(self) -> None:
        """Post all decisions and close them, so that a state taken now needs none of
        them.
        """
        with self._turn:
            self._tell_decisions()
            self._deciding.seal()

    def _tell_decisions(self) -> None:
        news = self._deciding.news()
        if news is not None:
            first, decisions = news
            self._post(e.Decided(*self._key, first, decisions))
