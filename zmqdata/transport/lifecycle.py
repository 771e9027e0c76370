"""The life of a server object: started once, stopped once, joined by whoever waits.
tf.data's rules for its servers.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from zmqdata.config.settings import check_type, check_wait
from zmqdata.transport.forks import check_process
from zmqdata.transport.loop import Loop

if TYPE_CHECKING:
    from typing_extensions import Self


def waitable(seconds: float | None) -> float | None:
    """The same time, as a lock can wait for it: None, which is for ever, stands for
    what is too long for one.

    Example:
        >>> waitable(2.5), waitable(float("inf"))
        (2.5, None)
    """
    return None if seconds is None or seconds > threading.TIMEOUT_MAX else seconds


class Shell(Protocol):
    """What a server runs: sockets in a loop."""

    loop: Loop

    def say_goodbye(self) -> None:
        """Tells peers that the end is near; called in the loop."""

    def close(self) -> None:
        """Frees sockets and threads; the loop has ended."""


ShellT = TypeVar("ShellT", bound=Shell)


class Server(ABC, Generic[ShellT]):
    """A shell in this process, in a thread of its own. A child forked from this process
    cannot use it, and hears so.

    It stops by itself when nothing refers to it any more, and when the process ends.

    Args:
        start: whether to start at once.
    """

    def __init__(self, start: bool) -> None:
        self._shell: ShellT | None = None
        self._owner = os.getpid()
        self._stopped = threading.Event()
        self._over = (
            threading.Event()
        )  # nobody need wait for its end: it has been stopped, or cannot do what it is for
        self._lock = threading.Lock()
        check_type("start", start, bool)
        if start:
            self.start()

    @abstractmethod
    def _open(self) -> ShellT:
        """Makes the shell; its sockets are bound when this returns."""

    def _own_shell(self) -> ShellT | None:
        """The shell, None before the start; a RuntimeError in a process that was forked
        behind it.
        """
        if self._shell is not None:
            name = type(self).__name__
            check_process(
                self._owner,
                name,
                f"Use it there, take its address before the fork, or make a new {name}.",
            )
        return self._shell

    def _started(self) -> ShellT:
        shell = self._own_shell()
        if shell is None:
            name = type(self).__name__
            if self._stopped.is_set():
                raise RuntimeError(
                    f"This {name} was stopped and never started, so it has no address. Make a new "
                    "one"
                )
            raise RuntimeError(f"A {name} has no address before start() was called")
        return shell

    def start(self) -> None:
        """Starts it and returns. Starting a second time changes nothing.

        Raises:
            RuntimeError: it has been stopped before, or runs in the process from which
                this one was forked.
            OSError: the address can not be listened on.
        """
        self._own_shell()
        with self._lock:
            if self._stopped.is_set():
                name = type(self).__name__
                raise RuntimeError(
                    f"Server cannot be started after it has been stopped. Make a new {name}."
                )
            if self._shell is None:
                self._owner = os.getpid()
                self._shell = self._open()
                self._shell.loop.start()
                # It must not refer to this object, which would keep it alive.
                self._end = weakref.finalize(self, end_shell, self._shell, self._owner)

    def stop(self) -> None:
        """Says goodbye, stops, and frees its ports. Stopping a second time changes
        nothing.

        Raises:
            RuntimeError: it runs in the process from which this one was forked; so do
                all other methods.
        """
        shell = self._own_shell()
        with self._lock:
            if shell is not None and not self._stopped.is_set():
                self._before_goodbye(shell)
                self._end()
            self._stopped.set()
            self._over.set()

    def _before_goodbye(self, shell: ShellT) -> None:
        """What is left to do in a shell that is told to stop, before its peers hear of
        it.
        """

    def join(self, timeout: float | None = None) -> bool:
        """Waits until it is stopped; False when it still runs after ``timeout``
        seconds, None: however long it takes.

        Raises:
            RuntimeError: it was never started, so there is nothing to wait for.
            TypeError, ValueError: ``timeout`` is no time.
        """
        check_wait("timeout", timeout)
        if self._own_shell() is None and not self._stopped.is_set():
            raise RuntimeError(
                f"This {type(self).__name__} was not started; call start() before join()"
            )
        return self._over.wait(waitable(timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # A forked child that leaves the block it was born in ends nothing of its
        # parent's, and is not to blame.
        if self._shell is None or self._owner == os.getpid():
            self.stop()


def end_shell(shell: Shell, owner: int) -> None:
    """Ends a shell's loop and frees what it has. A forked child owns nothing of its
    parent's.
    """
    if os.getpid() != owner:
        return
    if threading.current_thread() is shell.loop.thread:
        # Garbage is collected in any thread; the loop cannot wait for itself.
        threading.Thread(target=end_shell, args=(shell, owner), name="zmqdata-end").start()
        return
    shell.loop.post(shell.say_goodbye)
    shell.loop.stop()
    shell.loop.join()
    shell.close()
