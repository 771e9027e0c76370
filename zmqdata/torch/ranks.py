"""The ranks of a training program: the rank of this process, and what the ranks agree
on through the store of their process group.

Nothing here is a collective operation, so a rank may do alone what the others do not.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch import distributed

from zmqdata.config.checks import MOST_COUNT
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from zmqdata.machine.runkeys import ranks_told

log = logging.getLogger(__name__)

SAY_SO_AFTER = 10.0
"""Seconds of waiting for another rank after which a warning is logged, each time."""
FINITE = ("drop", "pad", "uneven")
"""Values of ``finite``."""
_made: Counter[str] = Counter()
"""Number of loaders of this process by the name of what they read."""
_launchers: dict[tuple[str, str], Any] = {}
"""Connections to the stores of launchers, by address and port."""


@dataclass(frozen=True)
class Consumer:
    """A consumer among those that share the batches of a loader."""

    index: int = 0
    """Number of the consumer, from 0."""
    count: int = 1
    """Number of consumers."""
    is_given: bool = False
    """True if the user has named the consumer, False if it is the rank of the
    process. A launcher such as that of Lightning says only later which rank it is.
    """
    has_copies: bool = False
    """True if several ranks are the same consumer, such as those of a tensor-parallel
    group.
    """

    @property
    def is_alone(self) -> bool:
        """True if no other consumer shares the batches."""
        return self.count == 1

    @property
    def agrees(self) -> bool:
        """True if ranks have to agree on what is read."""
        return not self.is_alone or self.has_copies


class BatchDealing:
    """Deals the batches of a pass to the consumers in turn.

    Args:
        consumer: the consumer that reads.
        finite: as for ``distribute_dataloader``.

    >>> [list(BatchDealing(Consumer(1, 2), finite).numbers(0, 5)) for finite in FINITE]
    [[1, 3], [1, 3, 0], [1, 3]]
    """

    def __init__(self, consumer: Consumer, finite: str) -> None:
        self.consumer = consumer
        self._finite = finite

    def total_received(self, base: int, steps: int) -> int:
        """Return the number of batches that all consumers together have received, in
        whole steps. After a padded or uneven step, it exceeds that of the pass.

        Args:
            base: their number before the first of the steps.
            steps: number of steps that this consumer has taken since.
        """
        return base + steps * self.consumer.count

    def numbers(self, base: int, count: int) -> Sequence[int]:
        """Return the numbers of the batches of this consumer.

        Args:
            base: number of batches that all consumers together have had. Nothing is
                left if it is beyond ``count``.
            count: number of batches of the pass.
        """
        consumer = self.consumer
        mine = range(base + consumer.index, count, consumer.count)
        if self._finite == "drop":
            return mine[: max(0, count - base) // consumer.count]
        padding = self.padding(base, count)
        return (
            [*mine, (base + consumer.index + len(mine) * consumer.count) % count]
            if padding
            else mine
        )

    def remainder(self, base: int, order: Sequence[Any]) -> int:
        """Return the number of samples of all consumers in their last step, if it has
        less than full batches, or repeats others behind them; otherwise 0.

        Args:
            base: as for ``numbers``.
            order: indices of the items of each batch of the pass.
        """
        count, world = len(order), self.consumer.count
        first = base + (len(self.numbers(base, count)) - 1) * world
        if world == 1 or first < base:
            return 0
        step = [order[number % count] for number in range(first, first + world)]
        sizes = [len(batch) if isinstance(batch, list) else 0 for batch in step]
        own, largest = sizes[: count - first], max(sizes)
        if {*own[:-1]} - {largest} or sum(own) == world * largest:
            return 0  # accelerate cuts off what is behind, and nothing in between
        return sum(own)

    def padding(self, base: int, count: int) -> int:
        """Return the number of batches of this consumer that repeat others, 0 or 1."""
        rest = max(0, count - base) % self.consumer.count
        return int(self._finite == "pad" and 0 < rest <= self.consumer.index)


def consumer_of(consumer_index: int | None, num_consumers: int | None) -> Consumer:
    """Return the consumer that a loader of this process is.

    Args:
        consumer_index: number of the consumer; None: the rank.
        num_consumers: number of consumers; None: the number of ranks.

    Raises:
        InvalidArgumentError: the numbers do not fit each other.
    """
    rank, world = rank_and_world()
    for name, value in (("consumer_index", consumer_index), ("num_consumers", num_consumers)):
        least = 0 if name == "consumer_index" else 1
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_number and least <= value <= MOST_COUNT):
            raise InvalidArgumentError(
                f"`{name}` must be a number of at least {least} or None, got {value!r}"
            )
    if consumer_index is not None and num_consumers is None and world > 1:
        raise InvalidArgumentError(
            f"`consumer_index={consumer_index}` does not say how many consumers share the batches, "
            f"and there are {world} ranks. Pass `num_consumers`, too: {world}, or the number of "
            "groups if the ranks of a group read the same"
        )
    is_given = consumer_index is not None or num_consumers is not None
    count = world if num_consumers is None else num_consumers
    has_copies = consumer_index is not None and count < world
    if consumer_index is None:
        if count not in (1, world):
            raise InvalidArgumentError(
                f"`num_consumers={count}` is not the number of ranks, which is {world}, so the "
                "rank does not tell which consumer this is. Pass `consumer_index`, too"
            )
        consumer_index = 0 if count == 1 else rank
    if consumer_index >= count:
        raise InvalidArgumentError(
            f"`consumer_index={consumer_index}` must be below the number of consumers, "
            f"{count}. Pass `num_consumers`, or start as many ranks"
        )
    return Consumer(consumer_index, count, is_given, has_copies)


def rank_and_world() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks: of its process group, or
    as its launcher says.
    """
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    if rank.isdecimal() and world.isdecimal() and int(rank) < int(world):
        return int(rank), int(world)
    return 0, 1


def numbered(name: str) -> str:
    """Return a name that the loaders of all ranks that read the same have in common.

    A loader that a rank makes alone shifts no names but those of loaders that read the
    same.

    Args:
        name: name of what the loader reads.
    """
    _made[name] += 1
    return f"{name}-{_made[name]}"


def is_first(consumer: Consumer) -> bool:
    """Return True if this process tells the others what it has drawn: rank 0, and a
    process that reads alone.
    """
    return not consumer.agrees or rank_and_world()[0] == 0


def value_of_first(consumer: Consumer, name: str, value: bytes, patience: float) -> bytes:
    """Return the value of rank 0, which publishes it to the other ranks.

    Args:
        consumer: the consumer that asks.
        name: name of the value.
        value: value of this process; it counts if this is rank 0.
        patience: seconds to wait for rank 0.

    Raises:
        FailedPreconditionError: the processes have no store in common.
        UnavailableError: rank 0 has not come in time.
    """
    if not consumer.agrees:
        return value
    store = _store()
    if is_first(consumer):
        store.set(name, value)
        return value
    if not _comes(store, name, patience):
        raise UnavailableError(
            f"Consumer {consumer.index} of {consumer.count} waited for {patience:g} s for rank 0 "
            "to begin the same pass. All ranks have to read a loader over equal data, pass after "
            "pass. A loader that a single rank reads needs `num_consumers=1`."
        )
    published: bytes = store.get(name)
    return published


def _comes(store: Any, name: str, patience: float) -> bool:
    """Wait for a value, and return False if it has not come in time."""
    waited = 0.0
    while waited < patience:
        turn = min(SAY_SO_AFTER, patience - waited)
        try:
            store.wait([name], timedelta(seconds=turn))
            return True
        except (RuntimeError, ValueError):  # it has not come yet, or its server is gone
            waited += turn
            log.warning(
                "waiting for %.0f s for rank 0 to begin the same pass of a loader: all ranks have "
                "to read a loader over equal data. One that a single rank reads needs "
                "num_consumers=1. %s",
                waited,
                ranks_told(),
            )
    return False


def copy_number(consumer: Consumer, name: str) -> int:
    """Return the number of this process among those that are the same consumer, such
    as the ranks of a tensor-parallel group. Each of them reads a job of its own.

    Args:
        consumer: the consumer that this process is.
        name: name that the loaders of all ranks have in common.
    """
    if not consumer.has_copies:
        return 0
    return int(_store().add(f"{name}/{consumer.index}/copies", 1)) - 1


def _store() -> Any:
    """Return the store of the process group, or that of the launcher.

    Raises:
        FailedPreconditionError: there is neither.
    """
    if distributed.is_available() and distributed.is_initialized():
        return distributed.distributed_c10d._get_default_store()
    address, port = os.environ.get("MASTER_ADDR", ""), os.environ.get("MASTER_PORT", "")
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and port.isdecimal():
        place = (address, port)
        if place not in _launchers:
            store = _launcher_store(address, int(port))
            # The store outlives a restart of the ranks, which begin anew.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            _launchers[place] = distributed.PrefixStore(f"zmqdata/{attempt}", store)
        return _launchers[place]
    raise FailedPreconditionError(
        "This process is one of several ranks, and has no store in which they could agree on the "
        "order of the batches. Call torch.distributed.init_process_group() before the loader is "
        "read, start the ranks with torchrun, or pass `num_consumers=1` if each rank reads data "
        f"of its own. {ranks_told()}"
    )


def _launcher_store(address: str, port: int) -> Any:
    """Return the store of a launcher, which is there before its ranks.

    Raises:
        FailedPreconditionError: it is not there.
    """
    for patience in (0.8 * SAY_SO_AFTER, 240.0):
        try:
            store = distributed.TCPStore(
                address, port, is_master=False, timeout=timedelta(seconds=patience)
            )
            store.set_timeout(timedelta(seconds=300))
            return store
        except RuntimeError as error:
            text = f"no launcher answers at {address}:{port} ({error}). {ranks_told()}"
            log.warning("%s", text)
    raise FailedPreconditionError(f"The ranks cannot agree on the order of the batches: {text}")
