"""Base of all hosts: programs that keep a number of workers running by the means of an
engine, such as the operating system or Slurm. No engine is known here.

``fleet`` decides. A thread of the host asks the engine, and carries out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from zmqdata.client import lifetime
from zmqdata.cluster.fleet import DRAINING, QUEUED, Fleet
from zmqdata.cluster.following import MOST_WORKERS, Bounds, Follower
from zmqdata.config.checks import check_int
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.errors import DataServiceError, UnavailableError
from zmqdata.transport.forks import check_process

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger(__name__)

LOOK_EVERY = 1.0
"""Seconds between two questions to the engine."""
KILLED_WITHIN = 10.0
"""Seconds within which killed workers have ended."""

_open: weakref.WeakSet[Host] = weakref.WeakSet()


class HostError(UnavailableError):
    """Raised if an engine refuses or cannot be asked. The text has its words."""


class Host(AbstractContextManager["Host"]):
    """Keeps workers running by the means of an engine.

    A host has a wish: the workers that are to run. A worker that ends by itself is
    started again under its name. A worker that waits in a queue of the engine stays
    there. After a failed start the next one waits, up to a minute after ten in a row,
    and the log has the engine's words.

    The end of a ``with`` block, ``close()`` and the end of the program drain all
    workers that this host has started, and no others.

    Args:
        service: address of the dispatcher, as for ``distribute``.
        kind: beginning of the names of its workers.
        processes: number of processes of each worker; None if it differs from machine
            to machine.
        patience: seconds that a worker may take to drain and end.
        title: what the host is called in texts; None for the name of its class.

    Attributes:
        poll: seconds between two questions whether the last workers have ended.
        look_every: seconds between two questions to the engine otherwise.

    Ours: Dask's cluster managers have ``scale`` and ``adapt``, too.
    """

    poll = 0.05
    look_every = LOOK_EVERY

    def __init__(
        self,
        service: Service,
        kind: str,
        processes: int | None,
        patience: float,
        title: str | None = None,
    ) -> None:
        self.service = parse_service(service)
        self._title = title or type(self).__name__
        self._follower = Follower(self.service, self._title, processes)
        self._fleet = Fleet(f"{kind}-{secrets.token_hex(2)}")
        self._patience = patience
        self._owner = os.getpid()
        self._state = threading.RLock()
        self._lock_owner: Callable[[], bool] = self._state._is_owned  # type: ignore[attr-defined]  # as Condition uses it
        self._wake, self._halted = threading.Event(), threading.Event()
        self._is_ended = False
        self._thread: threading.Thread | None = None
        self._bounds: Bounds | None = None
        self._said: dict[str, str] = {}
        self._endings: dict[str, str] = {}

    # --- of each engine

    @abstractmethod
    def _states(self) -> dict[str, str]:
        """Return the state of each worker of this host that the engine has, by name.

        Raises:
            HostError: the engine cannot be asked.
        """

    @abstractmethod
    def _launch(self, name: str) -> None:
        """Have the engine start a worker.

        Raises:
            HostError: the engine refuses.
        """

    @abstractmethod
    def _drain(self, names: Iterable[str]) -> None:
        """Have the engine drain and end workers, without waiting. Unknown names have no
        effect.

        Raises:
            HostError: the engine cannot be asked.
        """

    @abstractmethod
    def _kill(self, names: Iterable[str]) -> None:
        """Have the engine end workers at once.

        Raises:
            HostError: the engine cannot be asked.
        """

    @abstractmethod
    def _known(self) -> list[str]:
        """Return the workers that may still run, with the engine's name for each."""

    def _last_words(self, name: str) -> str:
        """Return how a worker has ended, and the end of its log."""
        return self._endings.pop(name, "has ended")

    # --- of users

    def start(self, n: int) -> list[str]:
        """Wish for ``n`` more workers, and return their names at once. They start in
        the background.

        Raises:
            TypeError, ValueError: ``n`` is no number of workers.
            RuntimeError: the host is closed, or belongs to another process.
        """
        n = check_int("n", n, least=0, most=MOST_WORKERS)
        with self._changing():
            return self._fleet.grow(n)

    def stop(self, names: Iterable[str]) -> None:
        """Drain workers and end them, and wish for that many fewer. Returns at once.
        Unknown names have no effect.

        Raises:
            TypeError: ``names`` is a single string.
            RuntimeError: the host is closed, or belongs to another process.
        """
        if isinstance(names, str):
            raise TypeError(f"`names` must be a list of names, got {names!r}; write [{names!r}]")
        with self._changing():
            self._fleet.shrink(names)

    def scale(self, n: int) -> None:
        """Wish for ``n`` workers in all, and return at once. Queued ones are given up
        first, then the newest. Ends an ``adapt``.

        Raises:
            TypeError, ValueError: ``n`` is no number of workers.
            RuntimeError: the host is closed, or belongs to another process.
        """
        n = check_int("n", n, least=0, most=MOST_WORKERS)
        self._bounds = None
        self._say_goodbye()
        self._resize(n)

    def running(self) -> dict[str, str]:
        """Return the state of each worker, by name, as the engine says now: ``queued``,
        ``starting``, ``running`` or ``draining``.

        Raises:
            HostError: the engine cannot be asked.
            RuntimeError: the host is closed, or belongs to another process.
        """
        self._check_open()
        states = self._states()
        with self._state:
            wanted = self._fleet.wanted
        found = {name: states.get(name, QUEUED) for name in wanted}
        return found | {name: DRAINING for name in states if name not in found}

    def adapt(self, minimum: int, maximum: int, *, interval: float = 5.0) -> None:
        """Follow the number of workers that the dispatcher wants, until ``scale`` or
        ``close``.

        The dispatcher admits a single program that follows its number. While it does
        not answer, the host keeps its workers, ``minimum`` at least.

        Args:
            minimum: least number of workers.
            maximum: maximum number of workers.
            interval: seconds between two questions to the dispatcher; a second at most
                while it wants no worker.

        Raises:
            TypeError, ValueError: a bound is no number of workers, the minimum exceeds
                the maximum, or ``interval`` is out of range.
            FailedPreconditionError: another program follows the number. The text names
                it.
            RuntimeError: the host is closed, or belongs to another process.
        """
        bounds = Bounds(minimum, maximum, interval)
        self._check_open()
        try:
            number = self._follower.ask(bounds)
        except UnavailableError as error:
            self._say("dispatcher", error)
            with self._state:
                number = bounds.clamped(len(self._fleet.wanted), 1)
        self._bounds = bounds
        self._resize(number)

    def close(self) -> None:
        """Drain all workers that this host has started, and wait until they have ended.
        A call after that, or in a forked child, has no effect. A call that was
        interrupted, or has failed, may be repeated.

        Raises:
            HostError: the engine cannot be asked, or workers have not ended. The text
                names the workers that may still run.
            RuntimeError: a signal handler that has interrupted another call of this
                host calls it.
        """
        if self._owner != os.getpid() or self._is_ended:
            return
        self._halt()
        left, error = self._known(), None
        try:
            self._drain(list(self._states()))
            for kills in (False, True):
                until = time.monotonic() + (KILLED_WITHIN if kills else self._patience)
                while time.monotonic() < until:
                    if not (left := list(self._states())):
                        self._end()
                        return
                    time.sleep(self.poll)
                if not kills:
                    log.warning("workers %s have not drained in time, and are killed", left)
                    self._kill(left)
        except HostError as found:
            error = found
        raise HostError(
            f"{self._title} is closed, but these workers may still run: "
            f"{', '.join(left) or 'unknown'}. {error or 'They did not end in time.'} Close it "
            "again, or end them by the means of the engine. They end by themselves after "
            "`--death-timeout` without a dispatcher."
        ) from error

    def abandon(self) -> None:
        """Carry out no wish any more, and leave all workers to their owner."""
        if self._owner == os.getpid() and not self._is_ended:
            self._halt()
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- within

    def _halt(self) -> None:
        """End the thread. It may be halted already."""
        is_own = threading.current_thread() is self._thread
        # The thread may wait for the lock, so that a wait for the thread never ended.
        if self._lock_owner() and not is_own:
            raise RuntimeError(
                f"A signal handler has interrupted a call of this {self._title}, and cannot close "
                "it. Let the handler raise SystemExit: the end of the program closes hosts"
            )
        self._halted.set()
        self._wake.set()
        if self._thread is not None and not is_own:
            self._thread.join()
        self._bounds = None
        self._say_goodbye()

    def _end(self) -> None:
        self._is_ended = True
        _open.discard(self)

    def _check_open(self) -> None:
        check_process(self._owner, self._title, "Make a new one here.")
        if self._halted.is_set():
            raise RuntimeError(f"This {self._title} is closed; make a new one")

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Change the wish, and have the thread carry it out."""
        self._check_open()
        with self._state:
            yield
            if self._thread is None:
                _open.add(self)
                self._thread = threading.Thread(target=self._run, name="zmqdata-host", daemon=True)
                self._thread.start()
        self._wake.set()

    def _resize(self, number: int) -> None:
        self._check_open()
        states: dict[str, str] = {}
        with contextlib.suppress(HostError):  # the thread says so
            states = self._states()
        with self._changing():
            self._fleet.resize(number, states)

    def _follow(self) -> None:
        """Wish for the number that the dispatcher wants, if it is time to ask."""
        bounds = self._bounds
        if bounds is None:
            self._say_goodbye()
        elif self._follower.is_due(time.monotonic()):
            number = self._follower.ask(bounds)
            self._said.pop("dispatcher", None)
            with self._state:
                changes = number != len(self._fleet.wanted)
            if self._bounds is None:  # since the question
                self._say_goodbye()
            elif changes and bounds is self._bounds:
                self._resize(number)

    def _say_goodbye(self) -> None:
        if self._follower.asks:
            self._follower.close()

    def _run(self) -> None:
        while not self._halted.is_set():
            self._wake.clear()
            for subject, act in (("dispatcher", self._follow), ("engine", self._turn)):
                try:
                    act()
                except Exception as error:  # whatever it is, workers are to be kept
                    self._say(subject, error)
            self._wake.wait(self.look_every)

    def _turn(self) -> None:
        now, states = time.monotonic(), self._states()
        self._said.pop("engine", None)
        with self._state:
            actions = self._fleet.decide(now, states)
        for name in actions.ended:
            log.warning("worker %s is started again: it %s", name, self._last_words(name))
        for name in actions.start:
            if self._halted.is_set():
                return
            try:
                self._launch(name)
            except HostError as error:
                log.warning("worker %s could not be started: %s", name, error)
                with self._state:
                    self._fleet.refused(now)
                break
            with self._state:
                self._fleet.accepted(name)
        if actions.stop:
            try:
                self._drain(actions.stop)
            except BaseException:
                with self._state:
                    self._fleet.stay(actions.stop)
                raise

    def _say(self, subject: str, error: Exception) -> None:
        """Log an error, unless it was the last one of this subject, too."""
        known = isinstance(error, (OSError, DataServiceError))
        text = str(error) if known else f"{type(error).__name__}: {error}"
        if self._said.get(subject) != text:
            self._said[subject] = text
            log.warning("%s", text)


def _close_all() -> None:
    for host in list(_open):
        try:
            host.close()
        except HostError as error:
            log.error("%s", error)


lifetime.after_goodbyes.append(_close_all)
