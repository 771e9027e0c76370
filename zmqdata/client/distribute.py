"""``distribute``, ``register_dataset`` and ``from_dataset_id``: how a dataset comes to be read from the service."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec

from zmqdata import messages as m
from zmqdata.blocks import validate_compression
from zmqdata.client.calls import ask_dispatcher, check_timeout
from zmqdata.client.options import CrossTrainerCache, ReadOptions, checked_options
from zmqdata.client.policies import ShardingPolicy
from zmqdata.client.reader import ServiceIterator
from zmqdata.core.consumer import ConsumerProfile
from zmqdata.dataset import Dataset
from zmqdata.errors import FailedPreconditionError, NotFoundError, UnimplementedError
from zmqdata.iterators import Context, ElementIterator, make_iterator
from zmqdata.nodes import Infer, Node, split_sources
from zmqdata.pipelines import PackedPipeline, pack_pipeline
from zmqdata.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, decode_spec, encode_spec
from zmqdata.transport.addresses import host_token, parse_service
from zmqdata.transport.local import local_workers, token_of_process

log = logging.getLogger(__name__)

DISPATCHER_TIMEOUT = 3600.0
@dataclass
class Registration:
    """A dataset on its way to a dispatcher, or known there by its id. ``node`` is None where only the id is ours."""

    service: str | tuple[str, str]
    timeout: float
    description: m.DatasetDescription
    pipeline: bytes = b""
    dataset_id: str | None = None
    node: Node | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def resolve(self) -> str:
        """The dataset's id; registers it the first time, and again at a dispatcher that has forgotten it."""
        with self._lock:
            if self.dataset_id is not None and self.node is not None and not self._is_known(self.dataset_id):
                log.info("dataset %s is registered anew: the dispatcher was restarted", self.dataset_id)
                self._repack(self.node)
                self.dataset_id = None
            if self.dataset_id is None:
                self.dataset_id = self.register(None)
                # Hundreds of megabytes, perhaps, that are seldom needed again.
                self.pipeline = b""
            return self.dataset_id

    def _is_known(self, dataset_id: str) -> bool:
        """Whether the id still means this dataset: the next life of a dispatcher may give it to another."""
        try:
            found = describe_dataset(self.service, dataset_id, self.timeout)
        except NotFoundError:
            return False
        return found.fingerprint == self.description.fingerprint

    def _repack(self, node: Node) -> None:
        packed = pack_pipeline(node)
        self.pipeline = msgspec.msgpack.encode(packed)
        self.description = msgspec.structs.replace(self.description, digest=packed.digest)

    def __getstate__(self) -> dict[str, Any]:
        # A pipeline that reads from the service may itself be distributed.
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def register(self, dataset_id: str | None, keep: bool = False) -> str:
        """Registers it under this id, or one that the dispatcher chooses; to be kept also while nobody uses it."""

        def ask(request: str) -> m.RegisterDataset:
            return m.RegisterDataset(request, dataset_id, self.description, self.pipeline, keep)

        return ask_dispatcher(self.service, ask, m.DatasetRegistered, self.timeout).dataset_id


@dataclass(frozen=True, kw_only=True, eq=False)
class Distributed(Node):
    """A source that reads a job of the service. Each iterator made of it reads the next repetition."""

    operation: ClassVar[str] = "distribute"

    registration: Registration
    options: ReadOptions
    original: Node | None = None
    element_spec: Any = None
    anonymous: str = field(default_factory=lambda: f"anonymous_{secrets.token_hex(8)}")
    repetitions: Iterator[int] = field(default_factory=itertools.count)

    def __getstate__(self) -> dict[str, Any]:
        # A copy in another process is another dataset object: it has a job of its own and counts from the beginning.
        return {name: value for name, value in self.__dict__.items() if name not in ("anonymous", "repetitions")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, anonymous=f"anonymous_{secrets.token_hex(8)}", repetitions=itertools.count())

    @property
    def cardinality(self) -> int:
        """tf.data's rule: known only where it is zero or infinite."""
        inner = self.registration.description.cardinality
        return inner if inner in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        """What the pipeline's elements look like."""
        return infer(self.original) if self.original is not None else self.element_spec

    def profile(self) -> ConsumerProfile:
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
        )
        return ConsumerProfile(
            client=secrets.token_hex(16),
            job=job,
            repetition=next(self.repetitions),
            service=parse_service(options.service),
            dispatcher_timeout=options.dispatcher_timeout,
            max_outstanding=options.max_outstanding_requests,
            host=host_token(),
            transports=options.transports,
            heartbeat=options.heartbeat,
            reader=m.Reader(trainer_id=cache.trainer_id if cache is not None else ""),
            local_workers=local_workers(),
            process=token_of_process() if options.is_local else "",
        )


@make_iterator.register(Distributed)
def _read(node: Distributed, context: Context) -> ElementIterator:
    return ServiceIterator(node.profile())


def distribute(
    processing_mode: ShardingPolicy | str,
    service: str | tuple[str, str],
    job_name: str | None = None,
    *,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,
    compression: str | None = "AUTO",
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    task_refresh_interval_hint_ms: int | None = None,
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
) -> Callable[[Dataset], Dataset]:
    """Has the dataset that it is applied to run by the service's workers (tf.data's ``distribute``).

    Everything before ``apply(distribute(...))`` runs on workers, everything behind it here. The pipeline is packed at
    the call, so what cannot be sent is an error at once; the dispatcher is contacted by the first iterator.

    Args:
        processing_mode: ``ShardingPolicy.OFF`` / ``"parallel_epochs"`` (each worker reads all) or
            ``ShardingPolicy.DYNAMIC`` / ``"distributed_epoch"`` (each split of the sources goes to one worker), or a
            static policy (each worker has a fixed part, by its place in the dispatcher's ``worker_addresses``).
        service: the dispatcher, ``"tcp://host:port"``, ``"host:port"`` or ``(protocol, address)``.
        job_name: clients that give the same name share the job: each element goes to one of them. None: a job of its
            own for this dataset object.
        max_outstanding_requests: most elements that each worker may have on its way to this client; None: as many as
            it takes to keep the training loop from waiting, within a budget of bytes. Clients that share a job should
            give the same number: the first one's bounds how many elements travel together.
        data_transfer_protocol: ``"tcp"``, ``"ipc"`` (only workers on this host), ``"local"`` (only workers in this
            process), or None for the best for each worker.
        compression: ``"AUTO"`` (where it pays), None, or a blosc codec such as ``"lz4"`` or ``"zstd"``.
        cross_trainer_cache: several training jobs read the job ``job_name``, each all of it; see
            ``CrossTrainerCache``. The dataset must be infinite.
        target_workers: ``"AUTO"`` (all but those of other processes that are tagged COLOCATED), ``"ANY"`` (all), or
            ``"LOCAL"`` (those in this process; elements are taken as they are, without serialisation).
        task_refresh_interval_hint_ms: how often to speak to the dispatcher, in milliseconds; None: each second.
        dispatcher_timeout: seconds to do without an answer of the dispatcher before ``UnavailableError``; ours.

    Returns:
        A function for ``Dataset.apply``.

    Raises:
        ValueError: an argument has a wrong type or value; the text says what was expected.
        InvalidArgumentError: arguments contradict each other.
        NotFoundError: ``service`` or ``data_transfer_protocol`` names a protocol that does not exist.
        TypeError: (by the returned function) the pipeline holds something that cannot be sent to another process.

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
    )

    def apply_distribute(dataset: Dataset) -> Dataset:
        if not isinstance(dataset, Dataset):
            raise TypeError(f"distribute() is applied to a Dataset: dataset.apply(distribute(...)). Got {dataset!r}")
        registration = registration_of(dataset.node, options.service, options.compression, options.dispatcher_timeout)
        return Dataset(Distributed(registration=registration, options=options, original=dataset.node))

    return apply_distribute


def register_dataset(
    service: str | tuple[str, str],
    dataset: Dataset,
    compression: str | None = "AUTO",
    dataset_id: str | None = None,
    *,
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
) -> str:
    """Registers a dataset for ``from_dataset_id``, here or in other processes (tf.data's ``register_dataset``).

    Args:
        service: the dispatcher, as for ``distribute``.
        dataset: what to register.
        compression: as for ``distribute``.
        dataset_id: the id to register it under; None lets the dispatcher choose. Registering again under an id keeps
            the first dataset.
        dispatcher_timeout: seconds to wait for the dispatcher.

    Returns:
        The dataset's id.

    Raises:
        ValueError: an argument has a wrong value; the text says what was expected.
        TypeError: ``dataset`` is none, or the pipeline holds something that cannot be sent to another process.
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
    if dataset_id is not None and (not isinstance(dataset_id, str) or not dataset_id):
        raise ValueError(f"`dataset_id` must be a non-empty string or None, got {dataset_id!r}")
    check_timeout("dispatcher_timeout", dispatcher_timeout)
    registration = registration_of(dataset.node, service, validate_compression(compression), dispatcher_timeout)
    return registration.register(dataset_id, keep=True)


def from_dataset_id(
    processing_mode: ShardingPolicy | str,
    service: str | tuple[str, str],
    dataset_id: str,
    element_spec: Any = None,
    job_name: str | None = None,
    *,
    max_outstanding_requests: int | None = None,
    data_transfer_protocol: str | None = None,
    cross_trainer_cache: CrossTrainerCache | None = None,
    target_workers: str = "AUTO",
    task_refresh_interval_hint_ms: int | None = None,
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
) -> Dataset:
    """A dataset that reads what was registered under an id (tf.data's ``from_dataset_id``).

    Spec, cardinality and compression come from the dispatcher.

    Args:
        processing_mode: as for ``distribute``.
        service: as for ``distribute``.
        dataset_id: what ``register_dataset`` gave.
        element_spec: what elements look like, where the dispatcher does not know it.
        job_name: as for ``distribute``; jobs of different dataset ids never share a name.
        max_outstanding_requests: as for ``distribute``.
        data_transfer_protocol: as for ``distribute``.
        cross_trainer_cache: as for ``distribute``.
        target_workers: as for ``distribute``.
        task_refresh_interval_hint_ms: as for ``distribute``.
        dispatcher_timeout: as for ``distribute``.

    Returns:
        The distributed dataset.

    Raises:
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
    )
    if not isinstance(dataset_id, str) or not dataset_id:
        raise ValueError(f"`dataset_id` must be a non-empty string, got {dataset_id!r}")
    description = describe_dataset(service, dataset_id, dispatcher_timeout)
    if element_spec is None and description.element_spec is not None:
        element_spec = decode_spec(description.element_spec)
    options = replace(
        options, job_name=f"{dataset_id}_{job_name}" if job_name else None, compression=description.compression
    )
    registration = Registration(service, dispatcher_timeout, description, dataset_id=dataset_id)
    return Dataset(Distributed(registration=registration, options=options, element_spec=element_spec))


def describe_dataset(service: str | tuple[str, str], dataset_id: str, timeout: float) -> m.DatasetDescription:
    """What a dispatcher knows of a dataset.

    Raises:
        NotFoundError: nothing is registered under this id.
        UnavailableError: no dispatcher has answered in time.
    """

    def ask(request: str) -> m.DescribeDataset:
        return m.DescribeDataset(request, dataset_id)

    return ask_dispatcher(service, ask, m.DatasetDescribed, timeout).description


def registration_of(
    node: Node, service: str | tuple[str, str], compression: str | None, timeout: float
) -> Registration:
    """A dataset ready to be registered.

    Raises:
        TypeError: it holds something that cannot be sent to another process.
    """
    packed = pack_pipeline(node)
    pipeline = msgspec.msgpack.encode(packed)
    return Registration(service, timeout, _describe(node, packed, compression), pipeline, node=node)


def _describe(node: Node, packed: PackedPipeline, compression: str | None) -> m.DatasetDescription:
    try:
        sources, reason = tuple(split_sources(node)), ""
    except (UnimplementedError, FailedPreconditionError) as error:
        sources, reason = None, str(error)
    spec = _known_spec(node)
    return m.DatasetDescription(
        digest=packed.digest,
        fingerprint=packed.fingerprint,
        sources=sources,
        unsplittable=reason,
        element_spec=None if spec is None else encode_spec(spec),
        cardinality=node.cardinality,
        compression=compression,
        python=packed.python,
        version=packed.version,
    )


def _known_spec(node: Node) -> Any:
    """The spec as far as it follows from the nodes: registering must not run the user's functions here."""
    try:
        return node.spec(_known_spec)
    except Exception:  # a rule that needs the spec of an input that is not known
        return None
