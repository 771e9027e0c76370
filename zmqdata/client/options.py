"""The arguments of ``distribute`` and ``from_dataset_id``, checked: every mistake is an
error at the call.

How an iteration is divided among workers, in tf.data's words.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from zmqdata.blocks import validate_compression
from zmqdata.client.calls import check_name, check_timeout
from zmqdata.config.endpoints import parse_service
from zmqdata.core.job_rules import ON_POISON
from zmqdata.core.limits import MOST_CONSUMERS, MOST_TASKS
from zmqdata.dataset.seeds import given_seed
from zmqdata.errors import InvalidArgumentError, NotFoundError

TRANSPORTS = {
    None: ("shm", "ipc", "tcp"),
    "tcp": ("tcp",),
    "ipc": ("ipc",),
    "shm": ("shm",),
    "local": ("local",),
}
MOST_COUNT = 2**53
NUM_TASKS = 16
"""Of a job that promises an order, unless said otherwise."""
TARGETS = ("AUTO", "ANY", "LOCAL")
PLACEMENTS = ("service", "auto")


@dataclass(frozen=True)
class CrossTrainerCache:
    """Lets several training jobs read one job of the service, each all of it, at its
    own pace (tf.data's class).

    Workers keep a window of the newest elements
    (``WorkerConfig.cross_trainer_cache_size_bytes``). The fastest has new ones made;
    one that is slower than the window holds skips ahead, which is counted and warned
    of.

    Args:
        trainer_id: who reads: those with the same id share one copy.

    Raises:
        ValueError: the id is empty, or too long.

    Example:
        >>> CrossTrainerCache(trainer_id="learning-rate-0.1").trainer_id
        'learning-rate-0.1'
    """

    trainer_id: str

    def __post_init__(self) -> None:
        if not isinstance(self.trainer_id, str) or not self.trainer_id:
            raise ValueError(
                "tf.data service cross-trainer cache requires a non-empty trainer ID. Got "
                f"{self.trainer_id!r}: name "
                "the training job, for example CrossTrainerCache(trainer_id='run-1')"
            )
        check_name("trainer_id", self.trainer_id)


@dataclass(frozen=True)
class ReadOptions:
    """How a distributed dataset is read."""

    policy: ShardingPolicy
    service: str | tuple[str, str]
    job_name: str | None
    max_outstanding_requests: int | None
    data_transfer_protocol: str | None
    compression: str | None
    cross_trainer_cache: CrossTrainerCache | None
    target_workers: str
    heartbeat: float
    dispatcher_timeout: float
    consumer_index: int | None
    num_consumers: int | None
    finite: str | None
    consumer_timeout: float
    num_tasks: int | None
    seed: int
    on_poison: str
    task_timeout: float | None
    placement: str = "service"
    allow_objects: bool = True

    @property
    def is_local(self) -> bool:
        """Whether elements are taken as they are from workers in this process."""
        return self.target_workers == "LOCAL" and self.data_transfer_protocol in (None, "local")

    @property
    def transports(self) -> tuple[str, ...]:
        """What links may use, the best first."""
        return TRANSPORTS["local" if self.is_local else self.data_transfer_protocol]


def checked_options(
    *,
    processing_mode: object,
    service: object,
    job_name: object,
    max_outstanding_requests: object,
    data_transfer_protocol: object,
    compression: object,
    cross_trainer_cache: object,
    target_workers: object,
    task_refresh_interval_hint_ms: object,
    dispatcher_timeout: object,
    consumer_index: object,
    num_consumers: object,
    finite: object,
    consumer_timeout: object,
    deterministic: object,
    num_tasks: object,
    on_poison: object,
    task_timeout: object,
    placement: object = "service",
    allow_objects: object = True,
) -> ReadOptions:
    """The arguments as the user gave them, after all have been checked."""
    max_outstanding_requests = _whole(max_outstanding_requests)
    task_refresh_interval_hint_ms = _whole(task_refresh_interval_hint_ms)
    consumer_index = _whole(consumer_index)
    num_consumers = _whole(num_consumers)
    num_tasks = _whole(num_tasks)
    policy = parse_processing_mode(processing_mode)
    parse_service(service)  # type: ignore[arg-type]  # says itself what is wrong
    _check_job_name(job_name)
    _check_count("max_outstanding_requests", max_outstanding_requests)
    _check_count("task_refresh_interval_hint_ms", task_refresh_interval_hint_ms)
    target = _checked_target(target_workers, data_transfer_protocol)
    _check_cache(cross_trainer_cache, job_name)
    _check_consumer(consumer_index, num_consumers, finite, job_name)
    check_timeout("consumer_timeout", consumer_timeout)
    check_failures(on_poison, task_timeout)
    if not isinstance(allow_objects, bool):
        raise ValueError(f"`allow_objects` must be True or False, got {allow_objects!r}")
    tasks = _checked_tasks(deterministic, num_tasks, policy)
    if num_consumers is not None or tasks is not None:
        _check_rounds(num_consumers is not None, target, cross_trainer_cache)
    if tasks is not None and num_consumers is None:
        # One reader, each of whose rounds is one element.
        consumer_index, num_consumers, finite = 0, 1, "drop"
    check_timeout("dispatcher_timeout", dispatcher_timeout)
    milliseconds = 1000 if task_refresh_interval_hint_ms is None else task_refresh_interval_hint_ms
    options = ReadOptions(
        policy=policy,
        service=service,  # type: ignore[arg-type]  # checked above, as is what follows
        job_name=job_name,  # type: ignore[arg-type]  # checked above
        max_outstanding_requests=max_outstanding_requests,  # type: ignore[arg-type]  # checked above
        data_transfer_protocol=data_transfer_protocol,  # type: ignore[arg-type]  # checked above
        compression=validate_compression(compression),
        cross_trainer_cache=cross_trainer_cache,  # type: ignore[arg-type]  # checked above
        target_workers=target,
        heartbeat=milliseconds / 1000,  # type: ignore[operator]  # checked above
        dispatcher_timeout=dispatcher_timeout,  # type: ignore[arg-type]  # checked above
        consumer_index=consumer_index,  # type: ignore[arg-type]  # checked above
        num_consumers=num_consumers,  # type: ignore[arg-type]  # checked above
        finite=finite,  # type: ignore[arg-type]  # checked above
        consumer_timeout=consumer_timeout,  # type: ignore[arg-type]  # checked above
        num_tasks=tasks,
        seed=given_seed() if tasks is not None else 0,
        on_poison=on_poison,  # type: ignore[arg-type]  # checked above
        task_timeout=task_timeout,  # type: ignore[arg-type]  # checked above
        placement=placement,  # type: ignore[arg-type]  # checked now
        allow_objects=allow_objects,
    )
    _check_placement(options)
    return options


def _check_placement(options: ReadOptions) -> None:
    """Refuses what promises something that only the service can keep, where a pipeline
    may run without it.
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
        f"ShardingPolicy.{policy}": policy != "DYNAMIC",  # copies, and parts that only workers have
    }
    wanted = [name for name, given in asked.items() if given]
    if options.placement == "auto" and wanted:
        raise InvalidArgumentError(
            "placement='auto' is for one reader of a job of its own, as the pipeline may run in "
            "its process; "
            f"{', '.join(wanted)} needs the service: leave one of the two out"
        )


def _whole(number: object) -> object:
    """An integer of numpy's as Python's; anything else is left as it is."""
    return int(number) if isinstance(number, np.integer) else number


def _check_job_name(job_name: object) -> None:
    if job_name is not None and not isinstance(job_name, str):
        raise ValueError(
            f"`job_name` must be a string, but `job_name` was of type {type(job_name)}: "
            f"{job_name!r}"
        )
    if isinstance(job_name, str):
        check_name("job_name", job_name)


def _check_count(name: str, count: object) -> None:
    if count is not None and (type(count) is not int or not 1 <= count <= MOST_COUNT):
        raise InvalidArgumentError(
            f"`{name}` must be a positive integer up to 2**53, or None, got {count!r}"
        )


def _checked_target(target: object, protocol: object) -> str:
    """Which workers to read from, by what was said of them and of the way to them."""
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
            "data_transfer_protocol='local' reads from workers of this process only, "
            "target_workers='ANY' from "
            "all: leave one of the two out"
        )
    return "LOCAL" if protocol == "local" else target.upper()


def check_failures(on_poison: object, task_timeout: object) -> None:
    """Refuses what cannot become of elements that kill their worker, or of calls that
    take for ever.
    """
    if not isinstance(on_poison, str) or on_poison not in ON_POISON:
        raise ValueError(f"`on_poison` must be 'fail' or 'skip', got {on_poison!r}")
    if task_timeout is not None:
        check_timeout("task_timeout", task_timeout)


def _check_consumer(index: object, count: object, finite: object, job_name: object) -> None:
    """Refuses what does not name one of the consumers of a coordinated job."""
    if count is None and index is None:
        if finite is not None:
            raise ValueError(
                f"`finite` is for coordinated reads: got finite={finite!r} without `num_consumers`"
            )
        return
    if count is None or index is None:
        raise ValueError(
            "`consumer_index` and `num_consumers` belong together: set both or neither. Got "
            f"consumer_index={index!r} and num_consumers={count!r}"
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
    if finite not in (None, "drop", "pad"):
        raise ValueError(f"`finite` must be None, 'drop' or 'pad', got {finite!r}")
    if job_name is None:
        raise ValueError(
            "`job_name` must be set when setting `num_consumers`: it is by this name that the "
            "consumers find each other"
        )


def _check_rounds(coordinated: bool, target: str, cache: object) -> None:
    """Refuses what does not go with rounds, by which coordinated and deterministic jobs
    are read.
    """
    kind, argument = "Deterministic reads", "`deterministic`"
    if coordinated:
        kind, argument = "Coordinated reads", "`num_consumers`"
    if target == "LOCAL":
        raise InvalidArgumentError(
            f"{kind} require non-local workers: elements come from every worker, wherever it runs. "
            "Got "
            "target_workers='LOCAL' (or data_transfer_protocol='local'); use 'AUTO' or 'ANY'"
        )
    if cache is not None:
        raise InvalidArgumentError(
            f"Cross-trainer caching does not support {kind.lower()}. Leave out "
            f"`cross_trainer_cache` or {argument}"
        )


def _checked_tasks(deterministic: object, num_tasks: object, policy: ShardingPolicy) -> int | None:
    """The number of tasks of a job that promises an order; None of others."""
    if not isinstance(deterministic, bool):
        raise ValueError(f"`deterministic` must be True or False, got {deterministic!r}")
    if num_tasks is not None and (type(num_tasks) is not int or not 1 <= num_tasks <= MOST_TASKS):
        raise ValueError(
            f"`num_tasks` must be an integer from 1 to {MOST_TASKS} or None, got {num_tasks!r}"
        )
    if not deterministic:
        if num_tasks is not None:
            raise InvalidArgumentError(
                f"num_tasks={num_tasks} without deterministic=True: only where an order is "
                "promised is the number of "
                "tasks fixed; elsewhere each worker has one. Give deterministic=True, or leave "
                "num_tasks out"
            )
        return None
    if policy is ShardingPolicy.OFF:
        raise InvalidArgumentError(
            "deterministic=True needs a policy that divides the input among tasks, got "
            "ShardingPolicy.OFF, under which "
            "each worker reads all of it: use ShardingPolicy.DYNAMIC"
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
            "Cross-trainer caching requires named jobs. Got empty `job_name`. Give every training "
            "job the same job_name"
        )


def check_dataset_id(dataset_id: object) -> None:
    """Refuses what is no id of a dataset.

    Raises:
        ValueError: it is no text, empty, or too long.
    """
    if not isinstance(dataset_id, str) or not dataset_id:
        raise ValueError(f"`dataset_id` must be a non-empty string, got {dataset_id!r}")
    check_name("dataset_id", dataset_id)


class ShardingPolicy(Enum):
    """How the workers of a job share its input (tf.data's ``ShardingPolicy``).

    * ``OFF``: each worker reads everything, in its own order; the job gives as many
      copies as there are workers.
    * ``DYNAMIC``: the dispatcher hands each split of the sources to one worker; the job
      gives every element once.

    The others are static: worker i of the n in the dispatcher's ``worker_addresses``
    takes part i, and only that.

    * ``FILE``: each worker reads its part of the files. There must be a reader of
      files, and as many files as workers.
    * ``DATA``: each worker runs all of the pipeline and keeps every n-th of its
      elements.
    * ``FILE_OR_DATA``: as ``FILE`` where the pipeline reads files, else as ``DATA``.
    * ``HINT``: ``shard(SHARD_HINT, SHARD_HINT)`` in the pipeline says where it is
      divided.
    """

    OFF = 0
    DYNAMIC = 1
    FILE = 2
    DATA = 3
    FILE_OR_DATA = 4
    HINT = 5


STRINGS = {"parallel_epochs": ShardingPolicy.OFF, "distributed_epoch": ShardingPolicy.DYNAMIC}


def parse_processing_mode(processing_mode: object) -> ShardingPolicy:
    """The policy that a user names by enum or by tf.data's strings.

    Raises:
        ValueError: it is neither.

    Example:
        >>> parse_processing_mode("distributed_epoch")
        <ShardingPolicy.DYNAMIC: 1>
    """
    policy = STRINGS.get(processing_mode) if isinstance(processing_mode, str) else processing_mode
    if not isinstance(policy, ShardingPolicy):
        raise ValueError(
            "`processing_mode` must be a ShardingPolicy "
            f"({', '.join(ShardingPolicy.__members__)}), "
            f"{' or '.join(map(repr, STRINGS))}. Got {processing_mode!r}."
        )
    return policy
