"""Settings of the worker's command for its child processes, beside the configuration of
each child.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from zmqdata.config.endpoints import parse_service
from zmqdata.config.keys import WITHOUT_KEY
from zmqdata.config.settings import MOST_MILLISECONDS, check_settings, setting
from zmqdata.config.worker import WorkerConfig
from zmqdata.machine.threads import available_cores
from zmqdata.transport.addresses import REACHABLE, is_loopback, is_this_machine
from zmqdata.worker.processes.accounts import Account, account_of
from zmqdata.worker.processes.limits import (
    MOST_PROCESSES,
    Limits,
    bytes_of,
    check_processes,
    tasks_of,
)

MOST_TASKS = MOST_MILLISECONDS


def start_warnings(config: WorkerConfig) -> Iterator[str]:
    """Yield what a worker says once, when it starts, whatever the number of its
    processes.

    Raises:
        InvalidArgumentError: its host cannot be resolved.

    Example:
        >>> list(start_warnings(WorkerConfig("tcp://127.0.0.1:5050")))
        []
    """
    if config.insecure:
        yield WITHOUT_KEY
    dispatcher = parse_service(config.dispatcher_address)
    is_announced = config.worker_address is not None
    if not is_announced and is_loopback(config.host) and not is_this_machine(dispatcher):
        yield (
            f"this worker listens on {config.host} alone, and the dispatcher at {dispatcher} is "
            "another machine: only clients on the machine of the worker can read from it. "
            f"{REACHABLE}"
        )


@dataclass(frozen=True)
class ProcessSettings:
    """The number of a worker's processes, and their limits. Each process is a separate
    worker to the dispatcher.

    Raises:
        TypeError: a field has another type.
        ValueError: a field is out of its range, or the machine has no such user.

    Example:
        >>> ProcessSettings(processes="2", memory_limit="2GiB", max_tasks=10).limits(1)
        Limits(memory=2147483648, tasks=8, confined=False)
    """

    processes: str = setting(
        "1",
        f"processes that run pipelines, at most {MOST_PROCESSES}; auto: one for each core",
        metavar="N|auto",
    )
    user: str | None = setting(
        None,
        "user, by name or number, whose rights the processes that run pipelines "
        "have; only a worker started as root can set it; none: the user that started "
        "the worker",
        metavar="NAME|UID",
    )
    memory_limit: str | None = setting(
        None,
        "most memory of each of these processes, without shared memory, as a number "
        "with or without MiB or GiB; a process that has nine tenths of it is recycled "
        "between elements; one that needs more than all of it dies, and the element in "
        "progress counts as the cause; none: no limit",
        metavar="BYTES|2GiB",
    )
    max_tasks: int = setting(
        0,
        "number of tasks after which a process hands over its tasks and is "
        "restarted; several processes use different numbers, from half of it to all "
        "of it, so that they restart in turn; 0: never",
        least=0,
        most=MOST_TASKS,
    )
    lifetime: float = setting(
        0.0,
        "number of seconds after which the worker hands its tasks over and ends, so that "
        "it does so before its engine's time limit; 0: none",
        least=0,
        metavar="S",
    )
    lifetime_stagger: float = setting(
        0.0,
        "maximum number of seconds by which the lifetime is shortened, drawn anew at each "
        "start, so that workers that were started together do not end together",
        least=0,
        metavar="S",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        self.count()
        self.limits(0)
        self.account()
        if self.lifetime_stagger and self.lifetime_stagger >= self.lifetime:
            raise ValueError(
                f"`lifetime_stagger`={self.lifetime_stagger:g} must be less than "
                f"`lifetime`={self.lifetime:g}, which it shortens"
            )

    def count(self) -> int:
        """Return the number of processes."""
        return count_of_processes(self.processes)

    def drawn_lifetime(self) -> float:
        """Return the seconds that the worker lives; infinite if it has no end."""
        stagger = random.uniform(0.0, self.lifetime_stagger)  # noqa: S311 - no secret
        return self.lifetime - stagger if self.lifetime else inf

    def account(self) -> Account | None:
        """Return the user whose rights the processes have; None if they keep the rights
        of this process.
        """
        return None if self.user is None else account_of(self.user)

    def limits(self, index: int) -> Limits:
        """Return the limits of the process with this index."""
        memory = 0 if self.memory_limit is None else bytes_of(self.memory_limit)
        return Limits(
            memory, tasks_of(self.max_tasks, index, self.count()), confined=self.user is not None
        )


def count_of_processes(text: str) -> int:
    """Return the number of processes that a value of ``--processes`` denotes."""
    if text == "auto":
        return min(available_cores(), MOST_PROCESSES)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"`processes`: expected a number from 1 up, or auto, got {text!r}")
    try:
        check_processes(int(text))
    except ValueError as error:
        raise ValueError(f"`processes`: {error}") from None
    return int(text)
