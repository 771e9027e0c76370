"""The options of ``distribute`` and ``from_dataset_id``, each declared once with its
type, default, check and meaning; the rules between them, and the sharding policies.

The signatures, the help and the parameters of the job follow from the declarations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, get_args

from zmqdata.blocks import validate_compression
from zmqdata.config.checks import (
    MODE_WORDS,
    Compression,
    Finite,
    OnExisting,
    OnPoison,
    Placement,
    ProcessingMode,
    TargetWorkers,
    Transport,
    check_name,
    check_switch,
    check_timeout,
    optional_count,
    optional_name,
    optional_timeout,
    plain_number,
    whole_number,
    word_of,
)
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.config.settings import declaration_of, setting
from zmqdata.core.job_rules import ON_EXISTING, ON_POISON
from zmqdata.core.limits import MOST_CONSUMERS, MOST_TASKS
from zmqdata.dataset.seeds import given_seed
from zmqdata.errors import InvalidArgumentError, NotFoundError
from zmqdata.pipelines import ShippedSource

TRANSPORTS = {
    None: ("shm", "ipc", "tcp"),
    "tcp": ("tcp",),
    "ipc": ("ipc",),
    "shm": ("shm",),
    "local": ("local",),
}
"""Transports that each ``data_transfer_protocol`` permits, the best first."""
NUM_TASKS = 16
"""Default number of tasks of a job that promises an order."""
TARGETS = get_args(TargetWorkers)
"""Values of ``target_workers``."""
DISPATCHER_TIMEOUT = 3600.0
"""Default number of seconds without an answer of the dispatcher before an error."""
CONSUMER_TIMEOUT = 300.0
"""Default number of seconds for which consumers wait for a missing consumer."""


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


STRINGS = {word: ShardingPolicy[name] for name, word in MODE_WORDS.items()}
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


def _number_of_tasks(name: str, value: object) -> int | None:
    number = whole_number(value)
    if value is not None and (number is None or not 1 <= number <= MOST_TASKS):
        raise ValueError(
            f"`{name}` must be an integer from 1 to {MOST_TASKS} or None, got {value!r}"
        )
    return number


def _codec(name: str, value: object) -> str | None:
    return validate_compression(value)


def _protocol(name: str, value: object) -> object:
    if value is not None and (not isinstance(value, str) or value not in TRANSPORTS):
        names = ", ".join(repr(name) for name in TRANSPORTS if name)
        raise NotFoundError(f"Protocol {value!r} is not available: `{name}` is None, {names}")
    return value


def _target(name: str, value: object) -> str:
    if not isinstance(value, str) or value.upper() not in TARGETS:
        raise InvalidArgumentError(
            f"Unrecognized target workers: {value!r}. `{name}` is 'AUTO', 'ANY' or 'LOCAL'"
        )
    return value.upper()


def _cache(name: str, value: object) -> object:
    if value is not None and not isinstance(value, CrossTrainerCache):
        raise ValueError(f"`{name}` must be a CrossTrainerCache or None, got {value!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class KeywordOptions:
    """Options that both readers of a job take by keyword. ``DistributeArguments``
    explains them.
    """

    finite: Finite | None = setting(None, sent=True)
    consumer_timeout: float = setting(CONSUMER_TIMEOUT, check=check_timeout, sent=True)
    deterministic: bool = setting(False, check=check_switch)
    num_tasks: int | None = setting(None, check=_number_of_tasks, sent=True)
    on_poison: OnPoison = setting("fail", check=word_of(ON_POISON), sent=True)
    task_timeout: float | None = setting(None, check=optional_timeout, sent=True)
    on_existing: OnExisting = setting("share", check=word_of(ON_EXISTING))
    dispatcher_timeout: float = setting(DISPATCHER_TIMEOUT, check=check_timeout)
    max_outstanding_requests: int | None = setting(None, check=optional_count, sent=True)
    data_transfer_protocol: Transport | None = setting(None, check=_protocol)
    compression: Compression | None = setting("AUTO", check=_codec, sent=True)
    cross_trainer_cache: CrossTrainerCache | None = setting(None, check=_cache)
    target_workers: TargetWorkers = setting("AUTO", check=_target, sent=True)
    task_refresh_interval_hint_ms: int | None = setting(None, check=optional_count)
    placement: Placement = setting("service", check=word_of(get_args(Placement)))
    ship: Sequence[ShippedSource] = setting(())
    allow_objects: bool = setting(True, check=check_switch)
    forward_logs: bool = setting(True, check=check_switch)


@dataclass(frozen=True)
class DistributeArguments(KeywordOptions):
    """Arguments of ``distribute``, as the user gave them. The text below is its help.

    Args:
        processing_mode: the sharding policy. ``ShardingPolicy.OFF`` or
            ``"parallel_epochs"``: each worker reads all of the input.
            ``ShardingPolicy.DYNAMIC`` or ``"distributed_epoch"``: each split of the
            sources goes to a single worker. A static policy: each worker has a fixed
            part, by its place in the dispatcher's ``worker_addresses``.
        service: address of the dispatcher, ``"tcp://host:port"``, ``"host:port"`` or
            ``(protocol, address)``, or a ``LocalCluster`` or ``DispatchServer`` of this
            process.
        job_name: name of the job. Clients of a run that give the same name share the
            job, and each element goes to one of them. None: this dataset object has a
            job of its own, which copies of it in child processes share.

    Several consumers, and a promised order:
        consumer_index: number of this client among the ``num_consumers`` consumers of a
            coordinated read, from 0 on.
        num_consumers: number of clients that read the job in step. Step n of every
            consumer comes from the same worker and there from the same round of
            ``num_consumers`` elements (tf.data's coordinated reads).
        finite: what happens in coordinated reads to what fills no round of its task:
            ``"drop"`` (all tasks together make the last rounds, and fewer elements than
            there are consumers are left out and counted) or ``"pad"`` (each task fills
            its last round with its own elements). None: the dataset must be infinite,
            as in tf.data.
        consumer_timeout: seconds for which the other consumers of a coordinated job
            wait for a consumer that has not come or has died. Then all get
            ``UnavailableError``. A successor that comes in time continues at its
            predecessor's step. The consumer that opened the job sets this value.
        deterministic: True for an order that follows only from the pipeline,
            ``num_tasks`` and the seed of ``zmqdata.set_random_seed``. It is the same in
            every run, with any number of workers, while workers come and go. A single
            client reads the job, or the consumers of a coordinated job do.
        num_tasks: number of tasks into which ``deterministic=True`` divides the work.
            Split k goes to task k modulo ``num_tasks``, and the tasks yield elements in
            turn. At most that many workers can take part, and every task has its own
            buffers of the pipeline. None: 16.

    Failures and restarts:
        on_poison: what happens to an element at which the process of a worker has died
            three times. ``"fail"``: the iteration ends with a ``PipelineError`` that
            names the element. ``"skip"``: it is skipped, and listed in the iterator's
            ``quarantine`` and in the logs of the dispatcher and the worker.
            The page on poison says which operations can skip an element.
        task_timeout: seconds that a single call of a function of the pipeline may take.
            A longer call is ended together with its process, and counts as a death.
            None: no limit, and a warning in the dispatcher's log. The reader that
            opened the job sets this value.
        on_existing: what happens if this is a new run of the program and its
            ``job_name`` is in use. ``"share"``: if living readers of another run read
            the job, this run reads with them; otherwise it begins anew. ``"new"``: it
            begins anew. ``"continue"``: it reads what a run has left that died.
            ``"error"``: ``AlreadyExistsError``. All processes of a run pass the same
            value. The page on restarting says what a run is.
        dispatcher_timeout: seconds without an answer of the dispatcher before
            ``UnavailableError``.

    Workers and transport:
        max_outstanding_requests: most elements in flight to this client, from all
            workers together, of which each task has its share; from each worker, if the
            client is a numbered consumer.
            None: as many as keep the training loop from waiting, within a budget of
            bytes. Clients that share a job should give the same number, because the
            first client's number limits how many elements travel together.
        data_transfer_protocol: ``"tcp"``; ``"ipc"`` or ``"shm"``, which is shared
            memory (only workers on this host); ``"local"`` (only workers in this
            process); or None for the best protocol for each worker.
        compression: ``"AUTO"`` (what pays off, measured for each leaf: none on the same
            host, more on slower networks), None, or a blosc codec such as ``"lz4"`` or
            ``"zstd"``. Of tf.data's names, ``"GZIP"`` and ``"ZLIB"`` stand for
            ``"zlib"``, and ``"SNAPPY"`` for ``"lz4"``.
        cross_trainer_cache: lets several training jobs read the job ``job_name``, each
            all of it; see ``CrossTrainerCache``. The dataset must be infinite.
        target_workers: ``"AUTO"``: all workers except COLOCATED workers of other
            processes. ``"ANY"``: all workers. ``"LOCAL"``: workers in this process,
            whose elements are taken without serialisation.
        task_refresh_interval_hint_ms: milliseconds between two heartbeats to the
            dispatcher. None: 1000.
        placement: ``"auto"``: a pipeline whose elements cost less to produce than to
            ship runs in this process, and the service is not even contacted. The first
            iterator tries it here for a tenth of a second at most, so up to 2,048 first
            elements are produced twice. A trial that waits for an element continues
            until it has the element. ``iterator.placement`` says what was found.
            Elements produced here are the objects that the functions returned, and are
            shared if the functions share them. ``"service"``: always on workers.

    Code, objects and output:
        ship: your modules and packages that workers lack: the modules themselves, their
            names, or paths to their folders or ``.py`` files. Their source is sent
            once, and only this dataset imports it. Definitions of the script itself
            need no mention. The page on shipping code has the limits.
        allow_objects: True if elements may have leaves that are Python objects, which
            are pickled. False: this process
            unpickles nothing that workers send. An element with such a leaf ends the
            iteration, at ``iter()`` if the spec shows it. Elements of workers in this
            process (``"LOCAL"``) are never pickled, so all of them are allowed.
        forward_logs: True to show here what functions of the pipeline print and log on
            workers, after the names of the worker and the task. If several clients read
            a task, the first of them that passes True shows its lines. False: the lines
            are only in the workers' own output. The page on logging has the limits.
    """

    processing_mode: ShardingPolicy | ProcessingMode
    service: Service
    job_name: str | None = setting(None, check=optional_name)
    consumer_index: int | None = setting(None, check=plain_number)
    num_consumers: int | None = setting(None, check=plain_number, sent=True)


@dataclass(frozen=True)
class RegisteredArguments(KeywordOptions):
    """Arguments of ``from_dataset_id``, as the user gave them.

    The compression and the code of a registered dataset are known, and workers run it.
    """

    processing_mode: ShardingPolicy | ProcessingMode
    service: Service
    dataset_id: str
    element_spec: Any = None
    job_name: str | None = None
    consumer_index: int | None = None
    num_consumers: int | None = None
    compression: Compression | None = field(default=None, init=False)
    placement: Placement = field(default="service", init=False)
    ship: Sequence[ShippedSource] = field(default=(), init=False)


@dataclass(frozen=True)
class ReadOptions(DistributeArguments):
    """Arguments of either reader after their check, in their normal form."""

    processing_mode: ShardingPolicy
    """The sharding policy."""
    service: str
    """Endpoint of the dispatcher."""
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

    @property
    def sent(self) -> dict[str, Any]:
        """The options that the parameters of a job have under the same names."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(DistributeArguments)
            if one.metadata and declaration_of(one).sent
        }


def checked(given: DistributeArguments | RegisteredArguments) -> ReadOptions:
    """Return the arguments of the user in their normal form, after checking each for
    itself and then together.
    """
    values: dict[str, Any] = {
        "processing_mode": parse_processing_mode(given.processing_mode),
        "service": parse_service(given.service),
    }
    for one in fields(DistributeArguments):
        if one.name not in values:
            check, value = declaration_of(one).check, getattr(given, one.name)
            values[one.name] = value if check is None else check(one.name, value)
    # Modules cannot be pickled, as the options may be. Only registering needs them.
    options = ReadOptions(**values | {"ship": ()})
    options = replace(options, target_workers=_joint_target(options))
    _check_cache(options)
    options = _with_consumer(options)
    options = replace(options, num_tasks=_ordered_tasks(options))
    if options.num_consumers is not None or options.num_tasks is not None:
        check_rounds(options)
    if options.num_tasks is not None:
        options = replace(options, seed=given_seed())
        if not options.names_consumer:
            # A single reader, each of whose rounds is a single element.
            options = replace(options, consumer_index=0, num_consumers=1, finite="drop")
    check_placement(options)
    return options


def _joint_target(options: ReadOptions) -> TargetWorkers:
    """Return the target workers that follow from the transport, too."""
    if options.data_transfer_protocol != "local":
        return options.target_workers
    if options.target_workers == "ANY":
        raise InvalidArgumentError(
            "`data_transfer_protocol='local'` reads only from workers of this "
            "process, and `target_workers='ANY'` reads from all: leave one of the "
            "two out."
        )
    return "LOCAL"


def _check_cache(options: ReadOptions) -> None:
    if options.cross_trainer_cache is not None and not options.job_name:
        raise InvalidArgumentError(
            "Cross-trainer caching requires named jobs. Got empty `job_name`. Give "
            "every training job the same `job_name`."
        )


def _with_consumer(options: ReadOptions) -> ReadOptions:
    """Return the options after checking that they name a consumer of a coordinated job,
    or none.
    """
    index, count, finite = options.consumer_index, options.num_consumers, options.finite
    if count is None and index is None:
        if finite is not None:
            raise ValueError(
                f"`finite` applies only to coordinated reads: got finite={finite!r} "
                "without `num_consumers`"
            )
        return options
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
    if options.job_name is None:
        raise ValueError(
            "`job_name` must be set when setting `num_consumers`: the consumers find "
            "each other by this name"
        )
    return replace(options, names_consumer=True)


def _ordered_tasks(options: ReadOptions) -> int | None:
    """Return the number of tasks of a job that promises an order, and None for other
    jobs.
    """
    if not options.deterministic:
        if options.num_tasks is not None:
            raise InvalidArgumentError(
                f"`num_tasks={options.num_tasks}` needs `deterministic=True`: the number of "
                "tasks is fixed only if an order is promised, and otherwise each "
                "worker has one task. Set `deterministic=True`, or leave `num_tasks` "
                "out."
            )
        return None
    if options.processing_mode is ShardingPolicy.OFF:
        raise InvalidArgumentError(
            "`deterministic=True` needs a policy that divides the input among tasks, "
            "but under ShardingPolicy.OFF each worker reads all of it: use "
            "ShardingPolicy.DYNAMIC."
        )
    return NUM_TASKS if options.num_tasks is None else options.num_tasks


def check_rounds(options: ReadOptions) -> None:
    """Raise an error if an option excludes the rounds of coordinated and deterministic
    jobs.
    """
    kind, argument = "Deterministic reads", "`deterministic`"
    if options.num_consumers is not None:
        kind, argument = "Coordinated reads", "`num_consumers`"
    if options.target_workers == "LOCAL":
        raise InvalidArgumentError(
            f'{kind} require non-local workers, but `target_workers` is "LOCAL" (or '
            "data_transfer_protocol='local'). Elements come from every worker wherever it "
            "runs: use 'AUTO' or 'ANY'."
        )
    if options.cross_trainer_cache is not None:
        raise InvalidArgumentError(
            f"Cross-trainer caching does not support {kind.lower()}. Leave out "
            f"`cross_trainer_cache` or {argument}"
        )


def check_consumers(options: ReadOptions, dealt: int | None, *, is_read: bool = False) -> None:
    """Raise an error if ``balance`` deals to another number of consumers than read.

    Args:
        options: the options of the job.
        dealt: number of consumers among whom the pipeline deals; None: any number.
        is_read: True if the job is about to be read, so that consumers must be known.

    Raises:
        InvalidArgumentError: the numbers differ, or nothing says who reads.
    """
    count = options.num_consumers
    is_unknown = count is None or (count == 1 and not options.names_consumer)
    if dealt is None or count == dealt or (is_unknown and (not is_read or dealt == 1)):
        return
    given = "no `num_consumers`" if is_unknown else f"num_consumers={count}"
    raise InvalidArgumentError(
        f"balance() deals batches to {dealt} consumers, and {given} of `distribute` or `Loader` "
        "reads them. Batch i of a step is for consumer i, so both numbers must be the same. Pass "
        f"num_consumers={dealt} and `consumer_index`, use a `zmqdata.torch.Loader` in each of "
        f"{dealt} ranks, or call balance(..., steps=True) for a program that deals steps itself"
    )


def check_placement(options: ReadOptions) -> None:
    """Raise an error if ``placement="auto"`` is combined with an argument that only the
    service can honour.
    """
    policy = options.processing_mode.name
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


def check_dataset_id(dataset_id: object) -> None:
    """Raise an error if a value cannot be the id of a dataset.

    Raises:
        ValueError: it is not a string, empty, or too long.
    """
    if not isinstance(dataset_id, str) or not dataset_id:
        raise ValueError(f"`dataset_id` must be a non-empty string, got {dataset_id!r}")
    check_name("dataset_id", dataset_id)
