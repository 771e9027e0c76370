"""The arguments of ``distribute`` and ``from_dataset_id``, validated at the call, and
the sharding policies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, get_args

import numpy as np

from zmqdata.blocks import validate_compression
from zmqdata.client.calls import check_name, check_timeout
from zmqdata.core.job_rules import ON_EXISTING, ON_POISON
from zmqdata.core.limits import MOST_CONSUMERS, MOST_TASKS
from zmqdata.dataset.seeds import given_seed
from zmqdata.errors import InvalidArgumentError, NotFoundError
from zmqdata.words import Finite, Placement, TargetWorkers

TRANSPORTS = {
    None: ("shm", "ipc", "tcp"),
    "tcp": ("tcp",),
    "ipc": ("ipc",),
    "shm": ("shm",),
    "local": ("local",),
}
"""Transports that each ``data_transfer_protocol`` permits, the best first."""
MOST_COUNT = 2**53
"""Largest count that is accepted."""
NUM_TASKS = 16
"""Default number of tasks of a job that promises an order."""
TARGETS = get_args(TargetWorkers)
"""Values of ``target_workers``."""
PLACEMENTS = get_args(Placement)
"""Values of ``placement``."""
_NUMBERS = (
    "max_outstanding_requests",
    "task_refresh_interval_hint_ms",
    "consumer_index",
    "num_consumers",
    "num_tasks",
)
"""Options that may be integers of numpy."""


@dataclass(frozen=True)
class CrossTrainerCache:
    """Lets several training jobs read one job of the service, each all of it and at its
    own pace.

    Workers keep a window of the newest elements, of
    ``WorkerConfig.cross_trainer_cache_size_bytes`` bytes. The fastest trainer makes
    them produce further elements. A trainer that falls behind the window skips
    elements, which are counted and logged. A window ends with its worker. A trainer
    then lacks what faster trainers had read of the window and it had not. It logs how
    many elements these are.

    Equivalent of ``tf.data.experimental.service.CrossTrainerCache``.

    Args:
        trainer_id: id of the trainer. Trainers with the same id share a single copy of
            the elements.

    Raises:
        ValueError: the id is empty or too long.

    Example:
        >>> CrossTrainerCache(trainer_id="learning-rate-0.1").trainer_id
        'learning-rate-0.1'
    """

    trainer_id: str
    """Id of the trainer."""

    def __post_init__(self) -> None:
        if not isinstance(self.trainer_id, str) or not self.trainer_id:
            raise ValueError(
                "tf.data service cross-trainer cache requires a non-empty trainer "
                f"ID. Got {self.trainer_id!r}: name the training job, for example "
                "CrossTrainerCache(trainer_id='run-1')"
            )
        check_name("trainer_id", self.trainer_id)


@dataclass(frozen=True)
class ReadOptions:
    """Validated arguments of a distributed dataset. See ``distribute``."""

    policy: ShardingPolicy
    """The sharding policy."""
    service: str
    """Endpoint of the dispatcher."""
    job_name: str | None
    """Name of the job, or None for an anonymous job."""
    max_outstanding_requests: int | None
    """Most elements in flight per worker, or None."""
    data_transfer_protocol: str | None
    """The transport that the user chose, or None."""
    cross_trainer_cache: CrossTrainerCache | None
    """The cache that the job reads through, or None."""
    target_workers: str
    """``"AUTO"``, ``"ANY"`` or ``"LOCAL"``."""
    task_refresh_interval_hint_ms: int | None
    """Milliseconds between two heartbeats, or None."""
    dispatcher_timeout: float
    """Seconds without an answer of the dispatcher before an error."""
    consumer_index: int | None
    """Number of this consumer in a coordinated job, or None."""
    num_consumers: int | None
    """Number of consumers of a coordinated job, or None."""
    finite: str | None
    """Fate of a last round that is not full: ``"drop"``, ``"pad"`` or None."""
    consumer_timeout: float
    """Seconds for which consumers wait for a missing consumer."""
    deterministic: bool
    """True if the job promises an order."""
    num_tasks: int | None
    """Number of tasks of a job that promises an order, or None."""
    on_poison: str
    """Fate of elements that end a worker's process: ``"fail"`` or
    ``"skip"``.
    """
    task_timeout: float | None
    """Seconds that a call of a function may take, or None."""
    placement: str = "service"
    """``"service"`` or ``"auto"``."""
    allow_objects: bool = True
    """True if leaves of elements may be unpickled."""
    on_existing: str = "share"
    """Reaction to a new run that finds the job in use."""
    forward_logs: bool = True
    """True if this process shows what functions on workers print and log."""
    compression: str | None = "AUTO"
    """Codec, ``"AUTO"`` or None."""
    seed: int = 0
    """Seed of a job that promises an order."""
    names_consumer: bool = False
    """True if the user has said which consumer reads. A promised order needs one, too,
    which is the only one if the user names none.
    """

    @property
    def heartbeat(self) -> float:
        """Seconds between two heartbeats."""
        return (self.task_refresh_interval_hint_ms or 1000) / 1000

    @property
    def is_local(self) -> bool:
        """True if elements are taken, without serialisation, from workers in this
        process.
        """
        return self.target_workers == "LOCAL" and self.data_transfer_protocol in (None, "local")

    @property
    def transports(self) -> tuple[str, ...]:
        """Transports that links may use, the best first."""
        return TRANSPORTS["local" if self.is_local else self.data_transfer_protocol]


def checked(options: ReadOptions) -> ReadOptions:
    """Return the arguments of the user after validating all of them."""
    given = {name: getattr(options, name) for name in _NUMBERS}
    whole: dict[str, Any] = {
        name: int(one) for name, one in given.items() if isinstance(one, np.integer)
    }
    options = replace(options, **whole)
    consumers, cache = options.num_consumers, options.cross_trainer_cache
    _check_job_name(options.job_name)
    _check_count("max_outstanding_requests", options.max_outstanding_requests)
    _check_count("task_refresh_interval_hint_ms", options.task_refresh_interval_hint_ms)
    target = _checked_target(options.target_workers, options.data_transfer_protocol)
    _check_cache(cache, options.job_name)
    _check_consumer(options.consumer_index, consumers, options.finite, options.job_name)
    check_timeout("consumer_timeout", options.consumer_timeout)
    check_failures(options.on_poison, options.task_timeout)
    _check_switch("allow_objects", options.allow_objects)
    _check_switch("forward_logs", options.forward_logs)
    _check_choice("on_existing", options.on_existing, ON_EXISTING)
    tasks = _checked_tasks(options.deterministic, options.num_tasks, options.policy)
    if consumers is not None or tasks is not None:
        _check_rounds(consumers is not None, target, cache)
    check_timeout("dispatcher_timeout", options.dispatcher_timeout)
    options = replace(
        options,
        target_workers=target,
        compression=validate_compression(options.compression),
        num_tasks=tasks,
        seed=given_seed() if tasks is not None else 0,
        names_consumer=consumers is not None,
    )
    if tasks is not None and consumers is None:
        # A single reader, each of whose rounds is a single element.
        options = replace(options, consumer_index=0, num_consumers=1, finite="drop")
    _check_placement(options)
    return options


def _check_placement(options: ReadOptions) -> None:
    """Raise an error if ``placement="auto"`` is combined with an argument that only the
    service can honour.
    """
    if not isinstance(options.placement, str) or options.placement not in PLACEMENTS:
        raise ValueError(f"`placement` must be 'service' or 'auto', got {options.placement!r}")
    policy = options.policy.name
    asked = {
        "job_name": options.job_name is not None,
        "num_consumers": options.num_consumers is not None and options.num_tasks is None,
        "deterministic=True": options.num_tasks is not None,
        "cross_trainer_cache": options.cross_trainer_cache is not None,
        "target_workers='LOCAL'": options.target_workers == "LOCAL",
        "on_poison='skip'": options.on_poison != "fail",
        "task_timeout": options.task_timeout is not None,
        f"ShardingPolicy.{policy}": policy != "DYNAMIC",  # copies, or parts that only workers have
    }
    wanted = [name for name, given in asked.items() if given]
    if options.placement == "auto" and wanted:
        raise InvalidArgumentError(
            "`placement='auto'` is for the only reader of its own job, because the "
            f"pipeline may run in the reader's process. {', '.join(wanted)} needs the "
            "service: leave one of the two out."
        )


def _check_job_name(job_name: object) -> None:
    if job_name is not None and not isinstance(job_name, str):
        raise ValueError(
            f"`job_name` must be a string, but `job_name` was of type {type(job_name)}: "
            f"{job_name!r}"
        )
    if isinstance(job_name, str):
        check_name("job_name", job_name)


def _check_switch(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"`{name}` must be True or False, got {value!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, choices))}, got {value!r}")


def _check_count(name: str, count: object) -> None:
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_COUNT):
        raise InvalidArgumentError(
            f"`{name}` must be a positive integer up to 2**53, or None, got {count!r}"
        )


def _checked_target(target: object, protocol: object) -> str:
    """Return the target workers, after checking them together with the transport."""
    if not isinstance(target, str) or target.upper() not in TARGETS:
        raise InvalidArgumentError(
            f"Unrecognized target workers: {target!r}. `target_workers` is 'AUTO', 'ANY' or 'LOCAL'"
        )
    if protocol is not None and (not isinstance(protocol, str) or protocol not in TRANSPORTS):
        names = ", ".join(repr(name) for name in TRANSPORTS if name)
        raise NotFoundError(
            f"Protocol {protocol!r} is not available: `data_transfer_protocol` is None, {names}"
        )
    if protocol == "local" and target.upper() == "ANY":
        raise InvalidArgumentError(
            "`data_transfer_protocol='local'` reads only from workers of this "
            "process, and `target_workers='ANY'` reads from all: leave one of the "
            "two out."
        )
    return "LOCAL" if protocol == "local" else target.upper()


def check_failures(on_poison: object, task_timeout: object) -> None:
    """Raise an error if ``on_poison`` or ``task_timeout`` has an invalid value."""
    if not isinstance(on_poison, str) or on_poison not in ON_POISON:
        raise ValueError(f"`on_poison` must be 'fail' or 'skip', got {on_poison!r}")
    if task_timeout is not None:
        check_timeout("task_timeout", task_timeout)


def _check_consumer(index: object, count: object, finite: object, job_name: object) -> None:
    """Raise an error if the arguments do not name a consumer of a coordinated job."""
    if count is None and index is None:
        if finite is not None:
            raise ValueError(
                f"`finite` applies only to coordinated reads: got finite={finite!r} "
                "without `num_consumers`"
            )
        return
    if count is None or index is None:
        raise ValueError(
            "`consumer_index` and `num_consumers` belong together: set both or neither. Got "
            f"consumer_index={index!r} and num_consumers={count!r}. Must either set both "
            "`consumer_index` and `num_consumers`, or neither"
        )
    if type(count) is not int or not 1 <= count <= MOST_CONSUMERS:
        raise ValueError(
            f"`num_consumers` must be an integer from 1 to {MOST_CONSUMERS}, or None, got {count!r}"
        )
    if type(index) is not int or not 0 <= index < count:
        raise ValueError(
            f"`consumer_index` must be an integer from 0 to num_consumers - 1, {count - 1}; got "
            f"{index!r}"
        )
    if finite not in (None, *get_args(Finite)):
        raise ValueError(f"`finite` must be None, 'drop' or 'pad', got {finite!r}")
    if job_name is None:
        raise ValueError(
            "`job_name` must be set when setting `num_consumers`: the consumers find "
            "each other by this name"
        )


def check_rounds(options: ReadOptions) -> None:
    """Raise an error if an option excludes coordinated reads."""
    _check_rounds(True, options.target_workers, options.cross_trainer_cache)
    _check_placement(options)


def _check_rounds(coordinated: bool, target: str, cache: object) -> None:
    """Raise an error if an argument excludes the rounds of coordinated and
    deterministic jobs.
    """
    kind, argument = "Deterministic reads", "`deterministic`"
    if coordinated:
        kind, argument = "Coordinated reads", "`num_consumers`"
    if target == "LOCAL":
        raise InvalidArgumentError(
            f'{kind} require non-local workers, but `target_workers` is "LOCAL" (or '
            "data_transfer_protocol='local'). Elements come from every worker wherever it "
            "runs: use 'AUTO' or 'ANY'."
        )
    if cache is not None:
        raise InvalidArgumentError(
            f"Cross-trainer caching does not support {kind.lower()}. Leave out "
            f"`cross_trainer_cache` or {argument}"
        )


def _checked_tasks(deterministic: object, num_tasks: object, policy: ShardingPolicy) -> int | None:
    """Return the number of tasks of a job that promises an order, and None for other
    jobs.
    """
    _check_switch("deterministic", deterministic)
    if num_tasks is not None and (type(num_tasks) is not int or not 1 <= num_tasks <= MOST_TASKS):
        raise ValueError(
            f"`num_tasks` must be an integer from 1 to {MOST_TASKS} or None, got {num_tasks!r}"
        )
    if not deterministic:
        if num_tasks is not None:
            raise InvalidArgumentError(
                f"`num_tasks={num_tasks}` needs `deterministic=True`: the number of "
                "tasks is fixed only if an order is promised, and otherwise each "
                "worker has one task. Set `deterministic=True`, or leave `num_tasks` "
                "out."
            )
        return None
    if policy is ShardingPolicy.OFF:
        raise InvalidArgumentError(
            "`deterministic=True` needs a policy that divides the input among tasks, "
            "but under ShardingPolicy.OFF each worker reads all of it: use "
            "ShardingPolicy.DYNAMIC."
        )
    return NUM_TASKS if num_tasks is None else num_tasks


def _check_cache(cache: object, job_name: object) -> None:
    if cache is None:
        return
    if not isinstance(cache, CrossTrainerCache):
        raise ValueError(
            f"`cross_trainer_cache` must be a CrossTrainerCache or None, got {cache!r}"
        )
    if not job_name:
        raise InvalidArgumentError(
            "Cross-trainer caching requires named jobs. Got empty `job_name`. Give "
            "every training job the same `job_name`."
        )


def check_dataset_id(dataset_id: object) -> None:
    """Raise an error if a value cannot be the id of a dataset.

    Raises:
        ValueError: it is not a string, empty, or too long.
    """
    if not isinstance(dataset_id, str) or not dataset_id:
        raise ValueError(f"`dataset_id` must be a non-empty string, got {dataset_id!r}")
    check_name("dataset_id", dataset_id)


class ShardingPolicy(Enum):
    """Rule by which the workers of a job share its input.

    * ``OFF``: every worker reads all of the input, in its own order. The job yields as
      many copies as there are workers.
    * ``DYNAMIC``: the dispatcher gives each split of the sources to a single worker.
      The job yields every element once.

    The other policies are static: worker i of the n workers in the dispatcher's
    ``worker_addresses`` reads part i and no other.

    * ``FILE``: each worker reads its part of the files. The pipeline must read files,
      at least as many as there are workers.
    * ``DATA``: each worker runs the whole pipeline and keeps every n-th of its
      elements.
    * ``FILE_OR_DATA``: as ``FILE`` if the pipeline reads files, otherwise as ``DATA``.
    * ``HINT``: ``shard(SHARD_HINT, SHARD_HINT)`` in the pipeline marks the place of
      division.

    Equivalent of ``tf.data.experimental.service.ShardingPolicy``.
    """

    OFF = 0
    DYNAMIC = 1
    FILE = 2
    DATA = 3
    FILE_OR_DATA = 4
    HINT = 5


STRINGS = {"parallel_epochs": ShardingPolicy.OFF, "distributed_epoch": ShardingPolicy.DYNAMIC}
"""tf.data's strings for two of the policies."""


def parse_processing_mode(processing_mode: object) -> ShardingPolicy:
    """Return the policy that the user names by enum or by one of tf.data's strings.

    Raises:
        ValueError: it is neither.

    Example:
        >>> parse_processing_mode("distributed_epoch")
        <ShardingPolicy.DYNAMIC: 1>
    """
    policy = STRINGS.get(processing_mode) if isinstance(processing_mode, str) else processing_mode
    if not isinstance(policy, ShardingPolicy):
        raise ValueError(
            'tf.data service processing mode should be a `ShardingPolicy`, `"parallel_epochs"`, or '
            f'`"distributed_epoch"`. Got {processing_mode!r}. Give one of them as '
            f"`processing_mode`; the policies are {', '.join(ShardingPolicy.__members__)}"
        )
    return policy
