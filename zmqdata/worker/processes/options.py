"""What the worker's command is told of its child processes, beside the configuration of
each.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata.config.settings import MOST_MILLISECONDS, check_settings, setting
from zmqdata.threads import available_cores
from zmqdata.worker.processes.accounts import Account, account_of
from zmqdata.worker.processes.limits import Limits, bytes_of, tasks_of
from zmqdata.worker.processes.supervisor import MOST_PROCESSES, check_processes

MOST_TASKS = MOST_MILLISECONDS


@dataclass(frozen=True)
class ProcessSettings:
    """How many processes a worker has, and what they are held to; each is a worker of
    its own to the dispatcher.

    Raises:
        TypeError: a field has another type.
        ValueError: a field is out of its range, or there is no such user.

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
        "user by name or number whose rights the processes that run pipelines have, for a worker "
        "that is started as "
        "root; without one those of whoever started it",
        metavar="NAME|UID",
    )
    memory_limit: str | None = setting(
        None,
        "most memory of each of these processes, shared memory not counted, as a number with or "
        "without MiB or GiB; "
        "one that needs more dies, and the element that it died at counts as its cause; none: what "
        "the system has",
        metavar="BYTES|2GiB",
    )
    max_tasks: int = setting(
        0,
        "after how many tasks a process hands over what it has and is started again, half of it to "
        "all of it where "
        "there are several, so that they take turns; 0: never",
        least=0,
        most=MOST_TASKS,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        self.count()
        self.limits(0)
        self.account()

    def count(self) -> int:
        """How many processes there are."""
        return count_of_processes(self.processes)

    def account(self) -> Account | None:
        """The user whose rights they have; None: our own."""
        return None if self.user is None else account_of(self.user)

    def limits(self, index: int) -> Limits:
        """What one of them is held to."""
        memory = 0 if self.memory_limit is None else bytes_of(self.memory_limit)
        return Limits(
            memory, tasks_of(self.max_tasks, index, self.count()), confined=self.user is not None
        )


def count_of_processes(text: str) -> int:
    """The value of ``--processes``."""
    if text == "auto":
        return min(available_cores(), MOST_PROCESSES)
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ValueError(f"`processes`: expected a number from 1 up, or auto, got {text!r}")
    try:
        check_processes(int(text))
    except ValueError as error:
        raise ValueError(f"`processes`: {error}") from None
    return int(text)
