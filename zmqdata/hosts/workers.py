"""Options of the workers that a host starts."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

from zmqdata.cluster.processes import command_options
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.config.worker import WorkerConfig
from zmqdata.recipes import meant
from zmqdata.transport.keychoice import shown_settings
from zmqdata.worker.processes.options import ProcessSettings

OF_PROCESSES = frozenset(one.name for one in fields(ProcessSettings))
OF_WORKER = frozenset(one.name for one in fields(WorkerConfig)) - {
    *("dispatcher_address", "name", "port", "protocol", "metrics_port"),
}
"""Fields that are options of workers: a host chooses names, and several workers of a
machine cannot have the same port.
"""


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
