"""``LocalCluster``: a dispatcher and workers on this machine, for scripts, notebooks
and tests.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from zmqdata.client import lifetime
from zmqdata.client.calls import status
from zmqdata.cluster.following import MOST_WORKERS
from zmqdata.cluster.host import HostError
from zmqdata.cluster.localhost import LocalHost
from zmqdata.cluster.processes import ServerProcess, command_options, stop_seconds
from zmqdata.cluster.starting import NOT_HERE, START_SECONDS, ServerHandle
from zmqdata.config.checks import check_int, check_type
from zmqdata.config.dispatcher import DispatcherConfig
from zmqdata.config.worker import WorkerConfig
from zmqdata.dataset.bars import show_save
from zmqdata.errors import DataLossError, DataServiceError, UnavailableError
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.operations.loading import raised
from zmqdata.recipes import meant
from zmqdata.storage.manifests import is_done, read_save, read_save_error
from zmqdata.storage.progress import GOES_ON, SaveProgress, progress_of
from zmqdata.transport.closed import LAST_LIFE, SAVES, note_closed
from zmqdata.transport.folders import SocketFolder
from zmqdata.transport.forks import check_process
from zmqdata.transport.keychoice import shown_settings

log = logging.getLogger(__name__)

OF_DISPATCHER = frozenset(field.name for field in fields(DispatcherConfig)) - {"protocol"}
OF_WORKER = frozenset(field.name for field in fields(WorkerConfig)) - {
    "protocol",
    "port",
    "dispatcher_address",
    "forward_logs",
}
"""Settings of a worker of a cluster. Its output is passed on as a whole, so that it
forwards no lines.
"""

WORKERS_END, DISPATCHER_ENDS = 2.0, 1.0
"""Seconds that all workers together may take at the end of the program before they are
killed, and then the dispatchers.
"""
LOOK_EVERY, SAY_EVERY = 0.25, 10.0
"""Seconds between two looks at saves that are awaited, and between two log lines."""
_open: weakref.WeakSet[LocalCluster] = weakref.WeakSet()


class LocalCluster:
    """A dispatcher and workers on this machine, which end with this object, or with
    this process at the latest.

    What functions of a pipeline print, and their warnings, appear on the standard error
    of this process, with the number of the worker before each line.

    They are processes that can import what this process can import. A script that
    starts them needs no ``__main__`` guard.

    The end of a ``with`` block, ``close()`` and the end of the program wait for each
    ``distributed_save`` that is in progress. Ctrl-C ends the wait. An exception that
    ends the block, or the program with a traceback, ends the cluster at once, and a
    warning names the unfinished saves. ``sys.exit()`` without a code does wait.

    Only the arguments configure them;
    ``ZMQDATA_*`` variables are ignored. The exception is the key: unless an argument
    names it, the servers use the key that this process shows (``use_key_file``,
    ``ZMQDATA_KEY_FILE``), since this process could not read from them otherwise.

    Args:
        num_workers: number of workers to start.
        in_process: True to run everything in threads of this process instead, for tests
            and debuggers.
        processes_per_worker: number of processes that run pipelines in each worker.
        options: fields of ``DispatcherConfig`` and ``WorkerConfig`` by name; ``host``
            applies to both, ``port`` to the dispatcher. Without a ``work_dir`` the
            dispatcher gets a temporary folder, so that it continues after a restart;
            ``fault_tolerant_mode=False`` makes it forget everything.

    Raises:
        TypeError: an option is a field of neither configuration, or has the wrong type.
        ValueError: an option is out of its range, or contradicts another.
        UnavailableError: a server did not start; the text has the end of its log.

    Example:
        >>> with LocalCluster(1, in_process=True, heartbeat_interval_ms=200) as cluster:
        ...     len(cluster.workers), cluster.target.startswith("tcp://127.0.0.1:")
        (1, True)

    Ours: tf.data has a test fixture of this kind only.
    """

    def __init__(
        self,
        num_workers: int = 2,
        *,
        in_process: bool = False,
        processes_per_worker: int = 1,
        **options: Any,
    ) -> None:
        num_workers = check_int("num_workers", num_workers, least=0, most=MOST_WORKERS)
        processes_per_worker = check_int(
            "processes_per_worker", processes_per_worker, least=1, most=MOST_WORKERS
        )
        check_type("in_process", in_process, bool)
        _check_names(options)
        if in_process and processes_per_worker > 1:
            raise ValueError(
                "in_process=True runs a worker in a single thread; got "
                f"processes_per_worker={processes_per_worker}. Leave out either argument, or start "
                "more workers"
            )
        if not {"key_file", "insecure"} & options.keys():
            options |= asdict(shown_settings())
        self._in_process = in_process
        self._processes = processes_per_worker
        self._lends_folder = (
            options.get("work_dir") is None and options.get("fault_tolerant_mode") is not False
        )
        of_dispatcher = {**options, "work_dir": "temporary"} if self._lends_folder else options
        config = DispatcherConfig(**_only(of_dispatcher, OF_DISPATCHER))
        self._worker_options = _only(options, OF_WORKER)
        worker = WorkerConfig("127.0.0.1:1", **self._worker_options)
        _check_together(config, worker, num_workers * processes_per_worker)
        self._servers: list[ServerHandle] = []
        self._numbers = itertools.count()
        self._owner = os.getpid()
        self._host: LocalHost | None = None
        self._closing = threading.RLock()
        with shortage_explained("a LocalCluster"):
            folder = SocketFolder() if self._lends_folder else None
        if folder is not None:
            config = replace(config, work_dir=str(folder.path / "dispatcher"))
        elif config.work_dir:  # the program may change its folder
            config = replace(config, work_dir=os.path.abspath(config.work_dir))
        self._dispatcher_config = config
        self._finalizer = weakref.finalize(self, _close_servers, self._servers, self._owner, folder)
        self._finalizer.atexit = False  # iterators say goodbye first
        _open.add(self)
        try:
            self._start(num_workers)
        except BaseException:
            self._close(None)
            raise

    def _start(self, num_workers: int) -> None:
        self.dispatcher = self._new_dispatcher()
        self._begin([self.dispatcher])
        self._target = self.dispatcher.address
        self.workers: list[ServerHandle] = [self._new_worker() for _ in range(num_workers)]
        self._begin(self.workers)

    @property
    def target(self) -> str:
        """Address of the dispatcher, for ``distribute(service=...)``."""
        return self._target

    def add_worker(self) -> ServerHandle:
        """Start another worker, wait until it is registered, and return its handle.

        Raises:
            UnavailableError: the worker did not start; the text has the end of its log.
            RuntimeError: the cluster is closed, or belongs to the process from which
                this process was forked.
        """
        self._check_open()
        worker = self._new_worker()
        self._begin([worker])
        self.workers.append(worker)
        if self._host is not None:
            self._host.adopt([worker])
        return worker

    def adapt(self, minimum: int, maximum: int, *, interval: float = 5.0) -> None:
        """Keep as many workers as the dispatcher wants, until the cluster closes. A
        second call changes the bounds.

        A worker that ends by itself, or by its handle, is replaced by another handle in
        ``workers``. Workers that are not wanted drain, and leave the list.

        Args:
            minimum: least number of workers.
            maximum: maximum number of workers.
            interval: seconds between two questions to the dispatcher; a second at most
                while it wants no worker.

        Raises:
            TypeError, ValueError: a bound is no number of workers, the minimum exceeds
                the maximum, or ``interval`` is out of range.
            FailedPreconditionError: another program follows the number of the
                dispatcher.
            RuntimeError: the cluster is closed, or belongs to the process from which
                this process was forked.

        Example:
            >>> with LocalCluster(0, in_process=True) as cluster:
            ...     cluster.adapt(1, 4)

        Ours; Dask's clusters have ``adapt``, too.
        """
        self._check_open()
        if self._host is None:
            config = WorkerConfig(self._target, **self._worker_options)
            patience = stop_seconds(config)
            # The thread of the host must not keep this object alive.
            here = weakref.ref(self)
            host = LocalHost(
                self._target,
                "worker",
                self._processes,
                patience,
                lambda name: _of(here)._new_worker(),
                lambda worker, is_new: _of(here)._list(worker, is_new),
                "LocalCluster",
            )
            host.adopt([worker for worker in self.workers if worker.alive])
            weakref.finalize(self, host.abandon).atexit = False
            self._host = host
        self._host.adapt(minimum, maximum, interval=interval)

    def _list(self, worker: ServerHandle, is_new: bool) -> None:
        """List a worker that the host has started, or has seen end."""
        for servers in (self._servers, self.workers):
            if is_new:
                servers.append(worker)
            elif worker in servers:
                servers.remove(worker)
        if not is_new:
            worker.close()

    def close(self) -> None:
        """Wait for distributed saves in progress, then end the workers and the
        dispatcher. A second call, or a call in a forked child, has no effect.

        Raises:
            UnavailableError: a save is unfinished, and no dispatcher or worker is left.
                The cluster is closed.
            DataLossError: the folder of a save has vanished. The cluster is closed.
            Exception: a save has failed during the wait, and this is why. The cluster
                is closed.
        """
        try:
            self._await_saves()
        finally:
            self._close(None)

    def _await_saves(self) -> None:
        # Without a journal nobody continues the saves of earlier clusters.
        config = self._dispatcher_config
        is_closed = os.getpid() != self._owner or not self._finalizer.alive
        if config.fault_tolerant_mode and config.work_dir and not is_closed:
            _await_saves(self.dispatcher, self.workers, config.work_dir)

    def _check_open(self) -> None:
        check_process(self._owner, "LocalCluster", NOT_HERE)
        if not self._finalizer.alive:
            raise RuntimeError("This LocalCluster is closed; make a new LocalCluster")

    def _close(self, program_ends: float | None) -> None:
        # At the end of the program a finalizer cannot be called any more. It lives on
        # if this is interrupted, so that close() can be called again.
        if os.getpid() != self._owner:  # the lock may be that of a thread of the parent
            return
        with self._closing:  # several threads may have waited for the same save
            if self._host is not None:
                self._host.abandon()
            ending = self._finalizer.peek()
            if ending is not None:
                servers, owner, folder = ending[2]
                _close_servers(servers, owner, folder, program_ends)
                self._finalizer.detach()

    def _ask_workers_to_stop(self) -> None:
        if os.getpid() == self._owner:
            for worker in self._servers[1:]:
                worker.ask_to_stop()

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(self, kind: object, error: object, *trace: object) -> None:
        if kind is None or (isinstance(error, SystemExit) and not error.code):
            self.close()
        else:
            self._close(None)

    def __repr__(self) -> str:
        if self._owner != os.getpid():
            return f"<LocalCluster {self.target} of process {self._owner}>"
        state = (
            f"{sum(worker.alive for worker in self.workers)} workers"
            if self._finalizer.alive
            else "closed"
        )
        return f"<LocalCluster {self.target} {state}>"

    def _begin(self, servers: Sequence[ServerHandle]) -> None:
        """Start servers concurrently and wait for all of them."""
        self._servers.extend(servers)
        for server in servers:
            server.launch()
        for server in servers:
            server.await_ready(START_SECONDS)

    def _new_dispatcher(self) -> ServerHandle:
        if self._in_process:
            from zmqdata.cluster.threads import dispatcher_thread

            return dispatcher_thread(self._dispatcher_config, self._lends_folder)
        options = command_options(self._dispatcher_config)
        return ServerProcess(
            "zmqdata.dispatcher",
            [*options, "--temporary-work-dir"] if self._lends_folder else options,
            hold_port=True,
            name="dispatcher",
        )

    def _new_worker(self) -> ServerHandle:
        config = WorkerConfig(self._target, forward_logs=False, **self._worker_options)
        if self._in_process:
            from zmqdata.cluster.threads import worker_thread

            return worker_thread(config)
        command = [*command_options(config), "--processes", str(self._processes)]
        # A restarted worker keeps its place in a list of addresses only if it returns
        # to its former port.
        keeps = self._processes == 1 and bool(self._dispatcher_config.worker_addresses)
        return ServerProcess(
            "zmqdata.worker",
            command,
            self._processes,
            keeps,
            stop_seconds=stop_seconds(config),
            name=f"worker {next(self._numbers)}",
        )


def _of(cluster: weakref.ref[LocalCluster]) -> LocalCluster:
    found = cluster()
    if found is None:
        raise HostError("The LocalCluster of this worker is gone.")
    return found


def _only(options: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _check_names(options: Mapping[str, Any]) -> None:
    known = OF_DISPATCHER | OF_WORKER
    unknown = sorted(set(options) - known)
    if unknown:
        names = ("num_workers", "in_process", "processes_per_worker", *sorted(known))
        raise TypeError(
            f"LocalCluster() has no argument {unknown[0]!r}. {meant(unknown[0], names)}"
        )


def _check_together(dispatcher: DispatcherConfig, worker: WorkerConfig, workers: int) -> None:
    """Raise an error for settings that the servers cannot use, together or at all."""
    if worker.heartbeat_interval_ms >= dispatcher.worker_timeout_ms:
        raise ValueError(
            f"`heartbeat_interval_ms`={worker.heartbeat_interval_ms} must be shorter than "
            f"`worker_timeout_ms`={dispatcher.worker_timeout_ms}. A restarted dispatcher hears of "
            "its workers with their next heartbeat, and would give them up before that"
        )
    if worker.announced_port and workers > 1:
        raise ValueError(
            f"{workers} workers cannot all be announced as "
            f"`worker_address`={worker.worker_address!r}; write %port%, which stands for the port "
            "of each worker"
        )
    ports = worker.usable_data_ports
    if ports is not None and ports[1] - ports[0] + 1 < workers:
        raise ValueError(
            f"data ports {ports[0]}-{ports[1]} do not suffice for {workers} workers: each needs at "
            "least one port; give more `data_ports`"
        )


def _close_servers(
    servers: list[ServerHandle],
    owner: int,
    folder: SocketFolder | None,
    program_ends: float | None = None,
) -> None:
    """End the workers first, so that they can deregister. A forked child does not own
    its parent's servers.

    Args:
        servers: the dispatcher, then the workers.
        owner: the process that they belong to.
        folder: folder that the cluster lends to the dispatcher.
        program_ends: time at which the program began to end, after which the servers
            have ``WORKERS_END`` and ``DISPATCHER_ENDS`` seconds; None: each has its
            own ``stop_seconds``.
    """
    if os.getpid() != owner:
        return
    workers, dispatcher = servers[1:], servers[:1]
    addresses = [server.address for server in dispatcher if server.address]
    if folder is not None:
        with contextlib.suppress(OSError):  # the dispatcher has not begun
            (folder.path / "dispatcher" / LAST_LIFE).touch()
    for worker in workers:
        worker.ask_to_stop()
    for group, seconds in ((workers, WORKERS_END), (dispatcher, WORKERS_END + DISPATCHER_ENDS)):
        # A dispatcher that is told twice would end before it has told its clients.
        for server in group:
            left = None if program_ends is None else program_ends + seconds - time.monotonic()
            server.close(None if left is None else max(0.0, left))
    for address in addresses:
        note_closed(address)
    if folder is not None:
        folder.close()


def _await_saves(dispatcher: ServerHandle, workers: Sequence[ServerHandle], work_dir: str) -> None:
    """Wait until no save of a cluster is in progress.

    Raises:
        UnavailableError: a save cannot proceed.
        Exception: a save has failed meanwhile, and this is why.
    """
    awaited, counts, say_at = set[str](), dict[str, tuple[int, int]](), 0.0
    while running := [*_in_progress(work_dir, counts)]:
        awaited.update(one.path for one in running)
        lacking = _lacking(dispatcher, workers)
        if lacking:
            raise UnavailableError(
                f"{lacking}, and the distributed save to {running[0].path} is unfinished, with "
                f"{running[0].elements} elements. Call `close()` while dispatcher and workers "
                "live, and it waits for the save"
            )
        if time.monotonic() >= say_at:
            say_at = time.monotonic() + SAY_EVERY
            for one in running:
                show_save(one.path)
                log.warning("the cluster ends after this save (Ctrl-C ends the wait): %s", one.line)
        time.sleep(LOOK_EVERY)
    for path in awaited:
        failed = read_save_error(path)
        if failed is not None:
            raise raised(failed)
        if not is_done(path):
            raise DataLossError(
                f"The folder of the distributed save to {path} was removed or changed before the "
                "save was done. Save again, and leave the folder alone until then"
            )


def _lacking(dispatcher: ServerHandle, workers: Sequence[ServerHandle]) -> str:
    """Return why saves cannot proceed; "" if they can."""
    if not dispatcher.alive:
        return "The dispatcher of this LocalCluster has ended"
    if any(worker.alive for worker in workers):
        return ""
    try:  # a worker may have come from elsewhere
        return "" if status(dispatcher.address)["workers"] else "This LocalCluster has no worker"
    except DataServiceError as error:
        return f"The dispatcher of this LocalCluster does not answer ({error})"


def _in_progress(work_dir: str, counts: dict[str, tuple[int, int]]) -> Iterator[SaveProgress]:
    """Yield the progress of each unfinished save of a dispatcher, given its folder."""
    saves = Path(work_dir) / SAVES
    for line in saves.read_text(encoding="utf-8").splitlines() if saves.exists() else ():
        # Its folder is gone, for example, or its dispatcher was killed at the line.
        with contextlib.suppress(OSError, ValueError, DataServiceError):
            path = json.loads(line)
            description = None if is_done(path) else read_save(path)
            if description and description.work_dir == work_dir:
                yield from (one for one in [progress_of(path, counts)] if one.state in GOES_ON)


def _close_all() -> None:
    """Close all clusters together at the end of the program."""
    clusters = list(_open)
    if getattr(sys, "last_value", None) is None:  # no exception ends the program
        for cluster in clusters:
            try:
                cluster._await_saves()
            except (Exception, KeyboardInterrupt) as error:
                log.error("a distributed save is unfinished at the end of the program: %r", error)
    began = time.monotonic()
    for cluster in clusters:
        cluster._ask_workers_to_stop()
    for cluster in clusters:
        cluster._close(began)


lifetime.after_goodbyes.append(_close_all)
