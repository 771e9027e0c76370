"""``Local``: workers on this machine, as many as are wanted."""

from __future__ import annotations

from typing import Any

from zmqdata.cluster.localhost import LocalHost
from zmqdata.cluster.processes import ServerProcess, stop_seconds
from zmqdata.cluster.starting import ServerHandle
from zmqdata.config.endpoints import Service
from zmqdata.hosts.workers import WorkerOptions


class Local(LocalHost):
    """Keeps workers of a dispatcher running as processes of this machine.

    The dispatcher may be anywhere. The workers end with this program, however it ends.
    Their output appears on standard error, with the name of the worker before a line.

    Args:
        service: address of the dispatcher, as for ``distribute``.
        worker_options: fields of ``WorkerConfig``, and ``processes``, ``memory_limit``
            and the other options of ``zmqdata worker``, by name. Only they configure
            the workers; ``ZMQDATA_*`` variables are ignored but for the key, as for
            ``LocalCluster``.

    Raises:
        TypeError: an option does not exist, or has the wrong type.
        ValueError: an option is out of its range, or contradicts another.

    Example:
        >>> from zmqdata import DispatchServer
        >>> with DispatchServer() as dispatcher, Local(dispatcher.target) as host:
        ...     host.adapt(0, 4)
        ...     host.running()
        {}

    Ours. Dask's ``LocalCluster`` has ``scale`` and ``adapt``, too.
    """

    def __init__(self, service: Service, **worker_options: Any) -> None:
        options = WorkerOptions("Local", service, worker_options, shows_key=True)
        patience = stop_seconds(options.config)

        def make(name: str) -> ServerHandle:
            return ServerProcess(
                "zmqdata.worker",
                options.command(name),
                options.processes.count(),
                stop_seconds=patience,
                name=name,
            )

        def listed(server: ServerHandle, is_new: bool) -> None:
            if not is_new:
                server.close()

        count = options.processes.count()
        super().__init__(service, "local", count, patience, make, listed)
