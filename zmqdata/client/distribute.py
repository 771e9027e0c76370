"""``distribute``, ``register_dataset`` and ``from_dataset_id``: how a dataset comes to
be read from the service.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from zmqdata import messages as m
from zmqdata.blocks import can_compress, validate_compression
from zmqdata.client.auto_placement import PlacedIterator, Placing
from zmqdata.client.calls import check_timeout
from zmqdata.client.decoding import check_spec_without_objects
from zmqdata.client.iterator import ServiceIterator
from zmqdata.client.options import (
    CrossTrainerCache,
    ReadOptions,
    ShardingPolicy,
    check_dataset_id,
    checked_options,
)
from zmqdata.client.registration import (
    Registration,
    agreed_spec,
    describe_dataset,
    registration_of,
    spec_without_running,
)
from zmqdata.client.repetitions import Repetitions
from zmqdata.config.endpoints import parse_service
from zmqdata.core.client.decider import ClientProfile
from zmqdata.dataset import Dataset
from zmqdata.dataset.arguments import optional_spec
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.iterators import Context, ElementIterator, make_iterator
from zmqdata.nodes import Infer, Node
from zmqdata.pipelines import ShippedSource
from zmqdata.transport.addresses import host_token
from zmqdata.transport.local import local_workers, token_of_process

log = logging.getLogger(__name__)

DISPATCHER_TIMEOUT = 3600.0
CONSUMER_TIMEOUT = 300.0


@dataclass(frozen=True, kw_only=True, eq=False)
class DataServiceDataset(Node):
    """A source that reads a job of the service. Each iterator made of it reads the next
    repetition.
    """

    operation: ClassVar[str] = "distribute"
    refills: ClassVar[bool] = True
    restoring: ClassVar[str] = "begins the job anew where its tasks were"
    own_state: ClassVar[int] = 0

    registration: Registration
    options: ReadOptions
    original: Node | None = None
    element_spec: Any = None
    anonymous: str = field(default_factory=lambda: f"anonymous_{secrets.token_hex(8)}")
    repetitions: Repetitions = field(default_factory=Repetitions, compare=False)
    placing: Placing | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process is another dataset object: it has a job of its own
        # and counts from the beginning.
        own = ("anonymous", "repetitions", "placing")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(
            state, anonymous=f"anonymous_{secrets.token_hex(8)}", repetitions=Repetitions()
        )
        self.__dict__.update(placing=placing_of(self.options, self.original))

    @property
    def characteristics(self) -> dict[str, Any]:
        """What a state depends on: not where the service is, nor how fast it is
        read.
        """
        options, registered = (
            self.options,
            self.registration.description.fingerprint.partition(":")[0],
        )
        return {
            "dataset": registered if self.original is None else self.original,
            "processing_mode": options.policy.name,
            "num_consumers": options.num_consumers,
            "consumer_index": options.consumer_index,
            "finite": options.finite,
            "num_tasks": options.num_tasks,
        }

    @property
    def cardinality(self) -> int:
        """tf.data's rule: known only where it is zero or infinite, as it is where
        consumers read in step.

        Under the policies that divide files or where a hint says so, the part of a
        worker may still end.
        """
        inner, policy = self.registration.description.cardinality, self.options.policy.name
        if self.options.num_consumers is not None and (
            self.options.finite is None or self.options.num_tasks is None
        ):
            return INFINITE_CARDINALITY if self.options.finite is None else UNKNOWN_CARDINALITY
        if inner == 0 and policy != "HINT":
            return 0
        endless = inner == INFINITE_CARDINALITY and policy in ("OFF", "DYNAMIC", "DATA")
        return INFINITE_CARDINALITY if endless else UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        """What the pipeline's elements look like."""
        return infer(self.original) if self.original is not None else self.element_spec

    def check_objects(self) -> None:
        """Refuses elements that this process would have to unpickle and may not, as far
        as it is known.

        Raises:
            FailedPreconditionError: there are such; the text says where.
        """
        if not self.options.allow_objects and not self.options.is_local:
            spec = (
                self.element_spec if self.original is None else spec_without_running(self.original)
            )
            check_spec_without_objects(spec)

    def profile(self) -> ClientProfile:
        """Who reads what, for the next repetition."""
        options, cache = self.options, self.options.cross_trainer_cache
        job = m.JobParameters(
            name=options.job_name or self.anonymous,
            dataset_id=self.registration.resolve(),
            processing_mode=options.policy.name,
            target_workers=options.target_workers,
            compression=options.compression,
            anonymous=options.job_name is None,
            block_elements=options.max_outstanding_requests,
            cache=cache is not None,
            by_reference=options.is_local,
            num_consumers=options.num_consumers,
            finite=options.finite,
            consumer_timeout=options.consumer_timeout,
            num_tasks=options.num_tasks,
            seed=options.seed if self.repetitions.seed is None else self.repetitions.seed,
            on_poison=options.on_poison,
            task_timeout=options.task_timeout,
            fingerprint=self.registration.description.fingerprint,
        )
        return ClientProfile(
            client=secrets.token_hex(16),
            job=job,
            repetition=next(self.repetitions),
            service=parse_service(options.service),
            dispatcher_timeout=options.dispatcher_timeout,
            max_outstanding=options.max_outstanding_requests,
            host=host_token(),
            transports=options.transports,
            heartbeat=options.heartbeat,
            reader=m.Reader(options.consumer_index, cache.trainer_id if cache is not None else ""),
            local_workers=local_workers(),
            process=token_of_process() if options.is_local else "",
            allow_objects=options.allow_objects,
            decompresses=can_compress(),
        )


def placing_of(options: ReadOptions, original: Node | None) -> Placing | None:
    """What decides where the pipeline runs, if that is to be decided."""
    return Placing(original) if options.placement == "auto" and original is not None else None


@make_iterator.register(DataServiceDataset)
def _read(node: DataServiceDataset, context: Context) -> ElementIterator:
    def serve() -> ServiceIterator:
        node.check_objects()
        return ServiceIterator(
            node.profile(), node.repetitions.resumed, context.restoring, context.quarantine
        )

    if node.placing is None or node.original is None:
        return serve()
    return PlacedIterator(node.original, context, node.placing, serve)


def distribute(
    processing_mode: ShardingPolicy | str,
    service: str | tuple[str, str],
    job_name: str | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    *,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,
    compression: str | None = "AUTO",
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    task_refresh_interval_hint_ms: int | None = None,
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
    ship: Sequence[ShippedSource] = (),
    finite: str | None = None,
    consumer_timeout: float = CONSUMER_TIMEOUT,
    deterministic: bool = False,
    num_tasks: int | None = None,
    on_poison: str = "fail",
    task_timeout: float | None = None,
    placement: str = "service",
    allow_objects: bool = True,
) -> Callable[[Dataset], Dataset]:
    """Has the dataset that it is applied to run by the service's workers (tf.data's
    ``distribute``).

    Everything before ``apply(distribute(...))`` runs on workers, everything behind it
    here. The pipeline is packed at the call, so what cannot be sent is an error at
    once; the dispatcher is contacted by the first iterator.

    Args:
        processing_mode: ``ShardingPolicy.OFF`` / ``"parallel_epochs"`` (each worker
            reads all) or ``ShardingPolicy.DYNAMIC`` / ``"distributed_epoch"`` (each
            split of the sources goes to one worker), or a static policy (each worker
            has a fixed part, by its place in the dispatcher's ``worker_addresses``).
        service: the dispatcher, ``"tcp://host:port"``, ``"host:port"`` or
            ``(protocol, address)``.
        job_name: clients that give the same name share the job: each element goes to
            one of them. None: a job of its own for this dataset object.
        consumer_index: for coordinated reads, which of the ``num_consumers`` this
            client is, from 0 on.
        num_consumers: how many clients read the job in step: step n of each of them
            comes from the same worker and the same round of ``num_consumers`` elements
            there (tf.data's coordinated reads).
        max_outstanding_requests: most elements that each worker may have on its way to
            this client; None: as many as it takes to keep the training loop from
            waiting, within a budget of bytes. Clients that share a job should give the
            same number: the first one's bounds how many elements travel together.
        data_transfer_protocol: ``"tcp"``; ``"ipc"`` or ``"shm"``, which is shared
            memory (only workers on this host); ``"local"`` (only workers in this
            process); or None for the best for each worker.
        compression: ``"AUTO"`` (what pays, as measured for each leaf: nothing on one
            host, more the slower the network is), None, or a blosc codec such as
            ``"lz4"`` or ``"zstd"``.
        cross_trainer_cache: several training jobs read the job ``job_name``, each all
            of it; see ``CrossTrainerCache``. The dataset must be infinite.
        target_workers: ``"AUTO"`` (all but those of other processes that are tagged
            COLOCATED), ``"ANY"`` (all), or ``"LOCAL"`` (those in this process; elements
            are taken as they are, without serialisation).
        task_refresh_interval_hint_ms: how often to speak to the dispatcher, in
            milliseconds; None: each second.
        dispatcher_timeout: seconds to do without an answer of the dispatcher before
            ``UnavailableError``; ours.
        ship: modules and packages of yours that workers lack: the modules themselves,
            their names, or paths to their folders or ``.py`` files. Their source goes
            along, once, and only this dataset imports it; what the script itself
            defines needs no mention. ``docs/shipping-code.md`` has the limits. Ours.
        finite: what becomes, in coordinated reads, of a last round that is not full:
            ``"drop"`` (left out and counted) or ``"pad"`` (filled with its own
            elements). None: the dataset must be infinite, as in tf.data; ours.
        consumer_timeout: seconds for which the other consumers of a coordinated job
            wait for one that has not come or has died; then all get
            ``UnavailableError``. Who comes in time goes on where that one was. The job
            has that of the consumer which opened it; ours.
        deterministic: the elements come in an order that follows from the pipeline,
            ``num_tasks`` and the seed of ``zmqdata.set_random_seed`` alone: the same
            with any number of workers, through their coming and going, in every run.
            One client reads the job, or the consumers of a coordinated one; ours.
        num_tasks: for ``deterministic=True``, into how many tasks the work is divided:
            split k goes to task k modulo ``num_tasks``, and one element of each task
            comes in turn. No more workers than that can take part, and so many times
            the buffers of the pipeline are held. None: 16; ours.
        on_poison: what becomes of an element at which the process of a worker has died
            three times: ``"fail"`` (the iteration ends with a ``PipelineError`` that
            names it) or ``"skip"`` (it is left out, and told in the iterator's
            ``quarantine`` and in the logs of dispatcher and worker). ``docs/poison.md``
            says which operations can leave one out; ours.
        task_timeout: seconds that a single call of a function of the pipeline may take;
            one that takes longer is ended with its process and counts as a death. None:
            any time, with a warning in the dispatcher's log. The job has that of the
            reader which opened it; ours.
        placement: ``"auto"``: a pipeline so cheap that to ship its elements costs more
            than to make them runs in this process, and the service is not even asked.
            The first iterator tries it here, in a tenth of a second at most, so the
            first elements, 2,048 at most, are made twice; what waits for an element
            then goes on until it has it. ``iterator.placement`` says what was found.
            Elements that are made here are what the functions returned, shared among
            them if the functions share. ``"service"``: on workers in any case; ours.
        allow_objects: whether elements may have leaves that are Python objects, which
            are pickled (``docs/decisions/0009-object-leaves.md``). False: this process
            unpickles nothing that workers send; an element with such a leaf ends the
            iteration, at ``iter()`` where it is known by then. Elements of workers in
            this process (``"LOCAL"``) are never pickled, so all of them come; ours.

    Returns:
        A function for ``Dataset.apply``.

    Raises:
        ValueError: an argument has a wrong type or value; the text says what was
            expected. By the returned function also for a module that cannot be shipped.
        InvalidArgumentError: arguments contradict each other.
        FailedPreconditionError: (by iterators) coordinated reads of a finite dataset
            without ``finite``, or as a consumer that another client reads as; elements
            with Python objects where ``allow_objects`` is False.
        NotFoundError: ``service`` or ``data_transfer_protocol`` names a protocol that
            does not exist.
        TypeError: (by the returned function) the pipeline holds something that cannot
            be sent to another process.

    Example:
        >>> import zmqdata
        >>> with zmqdata.LocalCluster(num_workers=1, in_process=True) as cluster:
        ...     ds = zmqdata.Dataset.range(3).map(lambda x: x * 2)
        ...     ds = ds.apply(zmqdata.distribute("distributed_epoch", cluster.target))
        ...     sorted(int(x) for x in ds)
        [0, 2, 4]
    """
    options = checked_options(
        processing_mode=processing_mode,
        service=service,
        job_name=job_name,
        max_outstanding_requests=max_outstanding_requests,
        data_transfer_protocol=data_transfer_protocol,
        compression=compression,
        cross_trainer_cache=cross_trainer_cache,
        target_workers=target_workers,
        task_refresh_interval_hint_ms=task_refresh_interval_hint_ms,
        dispatcher_timeout=dispatcher_timeout,
        consumer_index=consumer_index,
        num_consumers=num_consumers,
        finite=finite,
        consumer_timeout=consumer_timeout,
        deterministic=deterministic,
        num_tasks=num_tasks,
        on_poison=on_poison,
        task_timeout=task_timeout,
        placement=placement,
        allow_objects=allow_objects,
    )

    def apply_distribute(dataset: Dataset) -> Dataset:
        if not isinstance(dataset, Dataset):
            raise TypeError(
                "distribute() is applied to a Dataset: dataset.apply(distribute(...)). Got "
                f"{dataset!r}"
            )
        registration = registration_of(
            dataset.node, options.service, options.compression, options.dispatcher_timeout, ship
        )
        node, placing = dataset.node, placing_of(options, dataset.node)
        return Dataset(
            DataServiceDataset(
                registration=registration, options=options, original=node, placing=placing
            )
        )

    return apply_distribute


def register_dataset(
    service: str | tuple[str, str],
    dataset: Dataset,
    compression: str | None = "AUTO",
    dataset_id: str | None = None,
    *,
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
    ship: Sequence[ShippedSource] = (),
) -> str:
    """Registers a dataset for ``from_dataset_id``, here or in other processes
    (tf.data's ``register_dataset``).

    Its functions may run once here, to find what elements look like.

    Args:
        service: the dispatcher, as for ``distribute``.
        dataset: what to register.
        compression: as for ``distribute``.
        dataset_id: the id to register it under; None lets the dispatcher choose.
            Registering again under an id keeps the first dataset.
        dispatcher_timeout: seconds to wait for the dispatcher.
        ship: as for ``distribute``.

    Returns:
        The dataset's id.

    Raises:
        ValueError: an argument has a wrong value; the text says what was expected.
        TypeError: ``dataset`` is none, or the pipeline holds something that cannot be
            sent to another process.
        InvalidArgumentError: a dataset of another structure has this id.
        UnavailableError: no dispatcher has answered in time.

    Example:
        >>> import zmqdata
        >>> with zmqdata.LocalCluster(num_workers=1, in_process=True) as cluster:
        ...     zmqdata.register_dataset(cluster.target, zmqdata.Dataset.range(3), dataset_id="three")
        'three'
    """
    parse_service(service)
    if not isinstance(dataset, Dataset):
        raise TypeError(f"`dataset` must be a Dataset, got {dataset!r}")
    if dataset_id is not None:
        check_dataset_id(dataset_id)
    check_timeout("dispatcher_timeout", dispatcher_timeout)
    registration = registration_of(
        dataset.node, service, validate_compression(compression), dispatcher_timeout, ship
    )
    registration.tell_spec(dataset)
    return registration.register(dataset_id, keep=True)


def from_dataset_id(
    processing_mode: ShardingPolicy | str,
    service: str | tuple[str, str],
    dataset_id: str,
    element_spec: Any = None,
    job_name: str | None = None,
    consumer_index: int | None = None,
    num_consumers: int | None = None,
    *,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    task_refresh_interval_hint_ms: int | None = None,
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
    finite: str | None = None,
    consumer_timeout: float = CONSUMER_TIMEOUT,
    deterministic: bool = False,
    num_tasks: int | None = None,
    on_poison: str = "fail",
    task_timeout: float | None = None,
    allow_objects: bool = True,
) -> Dataset:
    """A dataset that reads what was registered under an id (tf.data's
    ``from_dataset_id``).

    Spec, cardinality and compression come from the dispatcher. All other arguments are
    those of ``distribute``.

    Args:
        dataset_id: what ``register_dataset`` gave.
        element_spec: what elements look like, where the dispatcher does not know it.
        job_name: as there; jobs of different dataset ids never share a name.

    Returns:
        The distributed dataset.

    Raises:
        ValueError: an argument has a wrong value; the text says what was expected.
        TypeError: ``element_spec`` is no spec.
        InvalidArgumentError: elements of the registered dataset do not look like
            ``element_spec``.
        NotFoundError: nothing is registered under this id.
        UnavailableError: no dispatcher has answered in time.

    Example:
        >>> import zmqdata
        >>> with zmqdata.LocalCluster(num_workers=1, in_process=True) as cluster:
        ...     three = zmqdata.register_dataset(cluster.target, zmqdata.Dataset.range(3))
        ...     ds = zmqdata.from_dataset_id("parallel_epochs", cluster.target, three)
        ...     [int(x) for x in ds]
        [0, 1, 2]
    """
    options = checked_options(
        processing_mode=processing_mode,
        service=service,
        job_name=job_name,
        max_outstanding_requests=max_outstanding_requests,
        data_transfer_protocol=data_transfer_protocol,
        compression="AUTO",
        cross_trainer_cache=cross_trainer_cache,
        target_workers=target_workers,
        task_refresh_interval_hint_ms=task_refresh_interval_hint_ms,
        dispatcher_timeout=dispatcher_timeout,
        consumer_index=consumer_index,
        num_consumers=num_consumers,
        finite=finite,
        consumer_timeout=consumer_timeout,
        deterministic=deterministic,
        num_tasks=num_tasks,
        on_poison=on_poison,
        task_timeout=task_timeout,
        allow_objects=allow_objects,
    )
    check_dataset_id(dataset_id)
    element_spec = optional_spec("element_spec", element_spec)
    description = describe_dataset(service, dataset_id, dispatcher_timeout)
    if description.element_spec is not None:
        element_spec = agreed_spec(element_spec, description.element_spec, dataset_id)
    name = None if job_name is None else _name_within(dataset_id, job_name)
    codec = validate_compression(description.compression)
    options = replace(options, job_name=name, compression=codec)
    registration = Registration(service, dispatcher_timeout, description, dataset_id=dataset_id)
    return Dataset(
        DataServiceDataset(registration=registration, options=options, element_spec=element_spec)
    )


def _name_within(dataset_id: str, job_name: str) -> str:
    """The name of a job among the jobs of all datasets. No two pairs have the same one,
    whatever the two texts hold.
    """
    return f"{dataset_id.replace('%', '%25').replace('/', '%2F')}/{job_name}"
