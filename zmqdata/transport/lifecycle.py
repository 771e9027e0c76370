"""Lifecycle of a server object: start once, stop once, join. The rules are
tf.data's servers.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from zmqdata.config.checks import check_type, check_wait
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.recipes import name_arguments_in
from zmqdata.transport.forks import check_process
from zmqdata.transport.loop import Loop

if TYPE_CHECKING:
    from typing_extensions import Self


def waitable(seconds: float | None) -> float | None:
    """Return a timeout that a lock accepts: None, which waits forever, replaces a time
    that is too long.

    Example:
        >>> waitable(2.5), waitable(float("inf"))
        (2.5, None)
    """
    return None if seconds is None or seconds > threading.TIMEOUT_MAX else seconds


class Shell(Protocol):
    """The part of a server that runs in a loop and owns the sockets."""

    loop: Loop
    """The loop that runs the shell."""

    def say_goodbye(self) -> None:
        """Tell the peers that the server is about to stop; called in the loop's
        thread.
        """

    def close(self) -> None:
        """Close the sockets and end the threads; called after the loop has ended."""


ShellT = TypeVar("ShellT", bound=Shell)


class Server(ABC, Generic[ShellT]):
    """A server in this process, with a thread of its own. In a forked child its methods
    raise an error.

    It stops by itself when it is garbage collected, and when the process ends.

    Args:
        start: True to start at once.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        name_arguments_in(cls)

    def __init__(self, start: bool) -> None:
        self._shell: ShellT | None = None
        self._owner = os.getpid()
        self._stopped = threading.Event()
        # Set when join() need not wait any longer: the server was stopped, or has
        # failed.
        self._over = threading.Event()
        self._lock = threading.Lock()
        check_type("start", start, bool)
        if start:
            self.start()

    @abstractmethod
    def _open(self) -> ShellT:
        """Create the shell; its sockets are bound when this returns."""

    def _own_shell(self) -> ShellT | None:
        """Return the shell, None before the start; raise RuntimeError in a process
        forked after the start.
        """
        if self._shell is not None:
            name = type(self).__name__
            check_process(
                self._owner,
                name,
                f"Use it there, take its address before the fork, or make a new {name}.",
            )
        return self._shell

    @property
    def _is_new(self) -> bool:
        """True if the server was neither started nor stopped."""
        return self._own_shell() is None and not self._stopped.is_set()

    def _started(self) -> ShellT:
        shell = self._own_shell()
        if shell is None:
            name = type(self).__name__
            if self._stopped.is_set():
                raise RuntimeError(
                    f"This {name} was stopped and never started, so it has no address. Make a new "
                    "server."
                )
            raise RuntimeError(
                f"A {name} has no address before start() is called, because it listens on any "
                "free port. Start it, or configure a fixed `port`."
            )
        return shell

    def start(self) -> None:
        """Start the server and return. A second call has no effect.

        Raises:
            RuntimeError: the server was stopped before, or runs in the process from
                which this process was forked.
            OSError: the address cannot be bound, or too few file descriptors are left.
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
                with shortage_explained(f"a {type(self).__name__}"):
                    self._shell = self._open()
                self._shell.loop.start()
                # The finalizer must not refer to this object, which would keep it
                # alive.
                self._end = weakref.finalize(self, end_shell, self._shell, self._owner)

    def stop(self) -> None:
        """Tell the peers, stop, and free the ports. A second call has no effect.

        Raises:
            RuntimeError: the server runs in the process from which this process was
                forked; all other methods raise it, too.
        """
        shell = self._own_shell()
        with self._lock:
            if shell is not None and not self._stopped.is_set():
                self._before_goodbye(shell)
                self._end()
            self._stopped.set()
            self._over.set()

    def _before_goodbye(self, shell: ShellT) -> None:
        """Prepare the shell for its end, before its peers are told. Subclasses override
        it.
        """

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the server is stopped; return False if it still runs after
        ``timeout`` seconds. None waits forever.

        Raises:
            RuntimeError: the server was never started.
            TypeError, ValueError: ``timeout`` is not a duration.
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
        # A forked child that leaves the with block of its parent must neither stop the
        # parent's server nor fail.
        if self._shell is None or self._owner == os.getpid():
            self.stop()


def end_shell(shell: Shell, owner: int) -> None:
    """End a shell's loop and free its resources. A forked child leaves its parent's
    shell alone.
    """
    if os.getpid() != owner:
        return
    if threading.current_thread() is shell.loop.thread:
        # The garbage collector runs in any thread; the loop cannot wait for itself.
        threading.Thread(target=end_shell, args=(shell, owner), name="zmqdata-end").start()
        return
    shell.loop.post(shell.say_goodbye)
    shell.loop.stop()
    shell.loop.join()
    shell.close()
