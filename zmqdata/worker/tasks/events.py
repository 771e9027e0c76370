"""How a task runner tells the worker's loop what it has made: behind all that this
depends on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from zmqdata.core.worker import events as e
from zmqdata.iterators.deciding import Deciding
from zmqdata.worker.tasks.ledger import LedgerProvider


class Teller:
    """Posts the events of one attempt of a task. From any thread.

    Args:
        key: of task and attempt.
        providers: where its sources get their splits from.
        deciding: what its operations decide.
        post: takes the events.
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
        """Posts an event, and before it what was decided and how far the sources are,
        if it is new.
        """
        with self._turn:
            self._tell_decisions()
            started = tuple([provider.started for provider in self._providers])
            if started != self._started:
                self._started = started
                self._post(e.SplitsStarted(*self._key, started))
            self._post(event)

    def seal(self) -> None:
        """What was decided is told, and does not grow any more: a state that is taken
        now needs none of it.
        """
        with self._turn:
            self._tell_decisions()
            self._deciding.seal()

    def _tell_decisions(self) -> None:
        news = self._deciding.news()
        if news is not None:
            first, decisions = news
            self._post(e.Decided(*self._key, first, decisions))
