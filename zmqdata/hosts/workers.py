"""Workers that a host starts: their options, and workers within an engine's process."""

from __future__ import annotations

import contextlib
import importlib
import logging
import threading
from dataclasses import asdict, fields, replace
from typing import Any

from zmqdata.cluster.fleet import DRAINING, RUNNING, STARTING
from zmqdata.cluster.processes import ServerProcess, command_options, stop_seconds
from zmqdata.config.endpoints import Service, endpoint_host, parse_service
from zmqdata.config.worker import WorkerConfig
from zmqdata.errors import InvalidArgumentError
from zmqdata.recipes import meant
from zmqdata.transport.addresses import LOOPBACK, REACHABLE, is_loopback
from zmqdata.transport.dispatcher_file import current_address
from zmqdata.transport.keychoice import shown_settings
from zmqdata.worker.processes.options import ProcessSettings

log = logging.getLogger(__name__)

OF_PROCESSES = frozenset(one.name for one in fields(ProcessSettings))
OF_WORKER = frozenset(one.name for one in fields(WorkerConfig)) - {
    *("dispatcher_address", "name", "port", "protocol", "metrics_port"),
}
"""Fields that are options of workers: a host chooses names, and several workers of a
machine cannot have the same port.
"""
ENDED = "ended"
"""State of a worker that runs no longer."""


class WorkerOptions:
    """The checked options of all workers of a host.

    Args:
        host: name of the host's class, for errors.
        service: address of the dispatcher.
        options: fields of ``WorkerConfig`` and ``ProcessSettings`` by name.
        shows_key: True if the workers use the key of this process unless an option
            names another.

    Raises:
        TypeError: an option is a field of neither, or has the wrong type.
        ValueError: an option is out of its range, or contradicts another.

    Example:
        >>> options = WorkerOptions("Local", "tcp://10.0.0.1:5050", {"processes": 2})
        >>> options.command("local-0")
        ['--dispatcher=tcp://10.0.0.1:5050', '--name=local-0', '--processes=2']
    """

    def __init__(
        self, host: str, service: Service, options: dict[str, Any], shows_key: bool = False
    ) -> None:
        unknown = sorted(options.keys() - OF_WORKER - OF_PROCESSES)
        if unknown:
            raise TypeError(
                f"{host}() has no argument {unknown[0]!r}. "
                f"{meant(unknown[0], sorted(OF_WORKER | OF_PROCESSES))}"
            )
        if shows_key and not {"key_file", "insecure"} & options.keys():
            options = options | asdict(shown_settings())
        of_processes = {name: options[name] for name in OF_PROCESSES & options.keys()}
        if "processes" in of_processes:
            of_processes["processes"] = str(of_processes["processes"])
        of_worker = {name: options[name] for name in OF_WORKER & options.keys()}
        self.config = WorkerConfig(parse_service(service), **of_worker)
        self.processes = ProcessSettings(**of_processes)

    @property
    def count(self) -> int | None:
        """Number of processes of each worker; None if it depends on the machine."""
        return None if self.processes.processes == "auto" else self.processes.count()

    def command(self, name: str) -> list[str]:
        """Return the options of the command that starts the worker with a name."""
        return [
            *command_options(replace(self.config, name=name)),
            *command_options(self.processes),
        ]


def loopback_address(service: Service) -> str:
    """Return the address of a dispatcher that only its own machine reaches; ``""`` for
    any other, and for a file without an address yet.

    Example:
        >>> loopback_address("tcp://localhost:5050"), loopback_address("10.0.0.1:5050")
        ('tcp://localhost:5050', '')
    """
    address = current_address(parse_service(service))
    host = endpoint_host(address)
    with contextlib.suppress(InvalidArgumentError):
        if host is None or is_loopback(host):
            return address
    return ""


def worker_interface(service: Service) -> str:
    """Return the address to listen on for workers that may be on other machines, if
    these can reach their dispatcher.

    Example:
        >>> worker_interface("tcp://127.0.0.1:5050"), worker_interface("10.0.0.1:5050")
        ('127.0.0.1', '0.0.0.0')
    """
    return LOOPBACK if loopback_address(service) else "0.0.0.0"  # noqa: S104 - for other nodes


def warn_of_loopback(service: Service) -> None:
    """Log a warning if workers on other machines cannot reach the dispatcher."""
    if address := loopback_address(service):
        log.warning(
            "the dispatcher at %s can be reached from its own machine alone, and workers on "
            "other nodes cannot register. %s",
            address,
            REACHABLE,
        )


def engine_package(name: str, host: str) -> Any:
    """Return the package of an engine.

    Args:
        name: name of the package.
        host: name of the host's class, for the error.

    Raises:
        ImportError: it cannot be imported. The text says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"`hosts.{host}` needs the package {name}, which cannot be imported here ({error}). "
            f"Install it: `pip install 'zmqdata[{host.lower()}]'`"
        ) from error


class PlacedWorker:
    """A worker whose process ends with the process of the engine that has placed it.

    Args:
        name: name of the worker.
        options: its options. The number of its processes is that of this machine.

    Raises:
        OSError: the process cannot be started.

    Example:
        >>> from zmqdata import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     options = WorkerOptions("Ray", dispatcher.target, {})
        ...     worker = PlacedWorker("ray-0", options)
        ...     first = worker.state()
        ...     worker.close()
        >>> first, worker.state()
        ('starting', 'ended')
    """

    def __init__(self, name: str, options: WorkerOptions) -> None:
        self._count = options.processes.count()
        self._drains: threading.Thread | None = None
        self._server = ServerProcess(
            "zmqdata.worker",
            options.command(name),
            self._count,
            stop_seconds=stop_seconds(options.config),
            name=name,
        )
        self._server.launch()

    def state(self) -> str:
        """Return ``starting``, ``running``, ``draining`` or ``ended``."""
        if not self._server.alive:
            return ENDED
        if self._drains is not None:
            return DRAINING
        return RUNNING if len(self._server.addresses) >= self._count else STARTING

    def ending(self) -> str:
        """Return how the worker has ended, and the last line of its log."""
        return self._server.ending

    def drain(self) -> None:
        """Drain the worker and end it, without waiting. A later call has no effect."""
        if self._drains is None:
            self._drains = threading.Thread(
                target=self._server.stop, name="zmqdata-drain", daemon=True
            )
            self._drains.start()

    def kill(self) -> None:
        """End the worker at once."""
        self._server.kill()

    def close(self) -> None:
        """Drain the worker, wait until it has ended, and delete its log. A worker that
        does not end in time is killed.
        """
        self._server.stop()
        self._server.close()
