"""``distribute``, ``register_dataset`` and ``from_dataset_id``, and the node of a
dataset that is read from the service.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, cast

from zmqdata import messages as m
from zmqdata.blocks import can_compress, validate_compression
from zmqdata.client.auto_placement import PlacedIterator, Placing
from zmqdata.client.decoding import check_spec_without_objects
from zmqdata.client.finished import has_finished, moments
from zmqdata.client.iterator import ServiceIterator
from zmqdata.client.options import (
    DISPATCHER_TIMEOUT,
    DistributeArguments,
    ReadOptions,
    RegisteredArguments,
    ShardingPolicy,
    check_consumers,
    check_dataset_id,
    check_placement,
    check_rounds,
    checked,
)
from zmqdata.client.quarantine import listing
from zmqdata.client.registration import (
    Registration,
    agreed_spec,
    check_declared,
    check_parts,
    describe_dataset,
    registration_of,
    spec_without_running,
)
from zmqdata.client.repetitions import Repetitions
from zmqdata.client.runs import DatasetRun, run_of_process
from zmqdata.client.splitting import check_losses, check_splitting, check_steps, consumers_of
from zmqdata.config.checks import Compression, Finite, check_timeout
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.config.settings import takes
from zmqdata.core.client.decider import ClientProfile
from zmqdata.dataset import Dataset
from zmqdata.dataset.arguments import optional_spec
from zmqdata.dataset.seeds import given_seed
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.measures.meter import LoopMeter
from zmqdata.messages.identity import Fingerprint
from zmqdata.nodes.base import Infer, Node
from zmqdata.pipelines import ShippedSource
from zmqdata.recipes import names_arguments
from zmqdata.transport.addresses import host_token
from zmqdata.transport.local import local_workers, token_of_process

log = logging.getLogger(__name__)
IteratorT = TypeVar("IteratorT", bound=ServiceIterator)


@dataclass(frozen=True, kw_only=True, eq=False)
class DataServiceDataset(Node):
    """A source that reads a job of the service. Each iterator reads the next
    repetition.
    """

    operation: ClassVar[str] = "distribute"
    refills: ClassVar[bool] = True
    restoring: ClassVar[str] = "begins the job anew where its tasks were"
    own_state: ClassVar[int] = 0

    registration: Registration
    """The dataset as it is registered at the dispatcher."""
    options: ReadOptions
    """Options of the job that reads it."""
    original: Node | None = None
    """The pipeline, or None if only its id is known."""
    element_spec: Any = None
    """Spec of the elements if only the id is known."""
    run: DatasetRun
    """The run to which this object belongs."""
    anonymous: str = field(default_factory=lambda: f"anonymous_{secrets.token_hex(8)}")
    """Name of the job if the user gave none."""
    repetitions: Repetitions = field(default_factory=Repetitions, compare=False)
    """Counts the iterators."""
    placing: Placing | None = None
    """Decides where the pipeline runs, or None if workers always run it."""
    made: int = field(default_factory=lambda: next(moments))
    """When this object was made, counted in this process."""
    server: object = field(default=None, compare=False, repr=False)
    """The server object that the user gave as the service, which must not be collected
    while it is read from; None in other processes.
    """

    def __getstate__(self) -> dict[str, Any]:
        own = dict(self.__dict__)
        del own["placing"], own["made"]
        own |= {"run": self.run.pickled(), "repetitions": self.repetitions.begun, "server": None}
        if own["run"].is_shipped:
            # Equal in each run of the program, so that workers know the pipeline again.
            own |= {"anonymous": "", "repetitions": 0}
        return own

    def __setstate__(self, state: dict[str, Any]) -> None:
        run: DatasetRun = state["run"]
        is_named = state["options"].job_name is not None
        made, counted = next(moments), Repetitions(state["repetitions"])
        if run.is_shipped and is_named:
            # Tasks come and go, and read what is left, so an empty repetition is right.
            run, made = run.unpickled(), -1
        elif run.is_of_parent:
            # A child of the process that pickled this object reads the same job.
            run, made = run.unpickled(), -1
        else:
            run, counted = run_of_process(is_named), Repetitions()
            state = state | {"anonymous": f"anonymous_{secrets.token_hex(8)}"}
        self.__dict__.update(state, run=run, repetitions=counted, made=made)
        self.__dict__.update(placing=placing_of(self.options, self.original))

    @property
    def characteristics(self) -> dict[str, Any]:
        """Everything that a state depends on, which excludes the service's address, the
        reading speed, and which of the consumers reads: all of them stand at one step.
        """
        options, registered = (
            self.options,
            Fingerprint.parse(self.registration.description.fingerprint).structure,
        )
        return {
            "dataset": registered if self.original is None else self.original,
            "processing_mode": options.processing_mode.name,
            "num_consumers": options.num_consumers,
            "finite": options.finite,
            "num_tasks": options.num_tasks,
        }

    @property
    def cardinality(self) -> int:
        """Number of elements, or ``INFINITE_CARDINALITY`` or ``UNKNOWN_CARDINALITY``.

        As in tf.data, it is known only if it is zero or infinite, as it is for
        coordinated reads. A worker's part of an infinite dataset may still end under
        the policies that divide files or follow a hint.
        """
        inner, policy = self.registration.description.cardinality, self.options.processing_mode.name
        if self.options.num_consumers is not None and (
            self.options.finite is None or self.options.num_tasks is None
        ):
            return INFINITE_CARDINALITY if self.options.finite is None else UNKNOWN_CARDINALITY
        if inner == 0 and policy != "HINT":
            return 0
        endless = inner == INFINITE_CARDINALITY and policy in ("OFF", "DYNAMIC", "DATA")
        return INFINITE_CARDINALITY if endless else UNKNOWN_CARDINALITY

    @property
    def batch_rows(self) -> int | None:
        """Number of rows of a batch of the pipeline, as ``Node.batch_rows``."""
        return self.registration.description.units.batch_rows

    @property
    def runs_elsewhere(self) -> bool:
        """True: workers run the pipeline."""
        return True

    def spec(self, infer: Infer) -> Any:
        """Return the spec of the pipeline's elements."""
        return infer(self.original) if self.original is not None else self.element_spec

    def check_objects(self) -> None:
        """Raise an error if elements are known to contain objects that this process
        must not unpickle.

        Raises:
            FailedPreconditionError: the spec has such a leaf. The text says where.
        """
        if not self.options.allow_objects and not self.options.is_local:
            spec = (
                self.element_spec if self.original is None else spec_without_running(self.original)
            )
            check_spec_without_objects(spec)

    def check_of_elements(self) -> Callable[[Any], None] | None:
        """Return what checks an element against a declared spec that the dispatcher
        could not confirm, or None if there is nothing to check.
        """
        registered, declared = self.registration, self.element_spec
        if declared is None or registered.description.element_spec is not None:
            return None
        return lambda element: check_declared(element, declared, registered.dataset_id or "")

    @property
    def is_shared(self) -> bool:
        """True if each element goes to one of the processes that hold a copy."""
        options = self.options
        return (
            self.run.is_copy
            and options.num_consumers is None
            and options.cross_trainer_cache is None
        )

    @property
    def shipped(self) -> Node | None:
        """The pipeline that workers run, or None if only its id is known."""
        return self.original

    def iterator_with(self, make: Callable[..., IteratorT], context: Context) -> IteratorT:
        """Return the iterator of the next repetition.

        Args:
            make: makes it from the arguments of ``ServiceIterator``.
            context: context of the reading.

        Raises:
            FailedPreconditionError: elements are known to contain objects that this
                process must not unpickle, or this is one of several processes of a
                DataLoader that would each read all elements.
        """
        self.check_objects()
        iterator = make(
            self.profile(context),
            self.repetitions.resumed,
            context.restoring,
            listing(context),
            self.check_of_elements(),
            context.meter if context.is_last else LoopMeter(time.perf_counter, context.meter),
        )
        if context.meter is not None:
            context.meter.add_reader(self, iterator)
        return iterator

    def profile(self, context: Context) -> ClientProfile:
        """Return the profile with which to read the next repetition.

        Args:
            context: context of the reading.
        """
        if self.options.job_name is None:
            self.run.check_loader()
        # A dataset that a function makes of an element, or returns for it, is no other
        # dataset for each element.
        fixed_seed = None if context.nest else context.fixed_seed
        options, cache = self.options, self.options.cross_trainer_cache
        number, turn = self.repetitions.begin()
        name = options.job_name or self.anonymous
        affiliation = self.run.affiliation(name, turn, options.on_existing)
        job = m.JobParameters(
            name=name,
            dataset_id=self.registration.resolve(fixed_seed),
            processing_mode=options.processing_mode.name,
            # What a copy in another process does not hand out goes to other copies.
            anonymous=options.job_name is None and not self.run.is_copy,
            cache=cache is not None,
            by_reference=options.is_local,
            seed=self._job_seed(context),
            fingerprint=self.registration.description.fingerprint,
            **options.sent,
        )
        return ClientProfile(
            client=secrets.token_hex(16),
            job=job,
            repetition=number,
            service=options.service,
            dispatcher_timeout=options.dispatcher_timeout,
            host=host_token(),
            transports=options.transports,
            heartbeat=options.heartbeat,
            reader=m.Reader(options.consumer_index, cache.trainer_id if cache is not None else ""),
            local_workers=local_workers(),
            process=token_of_process() if options.is_local else "",
            allow_objects=options.allow_objects,
            decompresses=can_compress(),
            affiliation=affiliation,
            cardinality=self.registration.description.cardinality,
            was_read=has_finished(options.service, name, affiliation, number, self.made),
            shows_task_log=options.forward_logs,
        )

    def _job_seed(self, context: Context) -> int:
        if self.repetitions.seed is not None:
            return self.repetitions.seed
        # A promised order is that of all its consumers. Other jobs draw as local
        # iterators do: each its own.
        is_promised = self.options.num_tasks is not None
        return self.options.seed if is_promised or not given_seed() else context.seed


def placing_of(options: ReadOptions, original: Node | None) -> Placing | None:
    """Return what decides where the pipeline runs, or None if workers always run it."""
    return Placing(original) if options.placement == "auto" and original is not None else None


@make_iterator.register(DataServiceDataset)
def _read(node: DataServiceDataset, context: Context) -> ElementIterator:
    check_consumers(node.options, node.registration.description.units.consumers, is_read=True)

    def serve() -> ServiceIterator:
        return node.iterator_with(ServiceIterator, context)

    if node.placing is None or node.original is None:
        return serve()
    return PlacedIterator(node.original, context, node.placing, serve)


@takes(DistributeArguments)
def distribute(given: DistributeArguments) -> Callable[[Dataset], Dataset]:
    """Return a function that makes the workers of the service run a dataset.

    Everything before ``apply(distribute(...))`` runs on workers, and everything after
    it in this process. The pipeline is packed when the function is applied, so an
    object that cannot be sent is an error at once. The first iterator contacts the
    dispatcher.

    Equivalent of ``tf.data.experimental.service.distribute``, which has the first five
    arguments, and those of *Workers and transport* up to ``target_workers``.

    Args:
        See ``DistributeArguments``.

    Returns:
        A function for ``Dataset.apply``.

    Raises:
        ValueError: an argument has an invalid type or value. The returned function
            raises it for a module that cannot be shipped.
        InvalidArgumentError: arguments contradict each other. The returned function
            raises it for a ``zip`` that would lose pairs in a promised order.
        FailedPreconditionError: (from iterators) the input of a coordinated read is
            finite and ``finite`` is None, another client reads as this consumer, or
            elements contain Python objects although ``allow_objects`` is False.
        FailedPreconditionError: several ranks give a job name, and nothing says which
            run they belong to.
        AlreadyExistsError: (from iterators) the job exists, and ``on_existing`` is
            ``"error"``.
        NotFoundError: ``service`` or ``data_transfer_protocol`` names a protocol that
            does not exist.
        TypeError: (from the returned function) the pipeline contains an object that
            cannot be sent to another process.

    Example:
        >>> import zmqdata
        >>> with zmqdata.LocalCluster(num_workers=1, in_process=True) as cluster:
        ...     ds = zmqdata.Dataset.range(3).map(lambda x: x * 2)
        ...     ds = ds.apply(zmqdata.distribute("distributed_epoch", cluster.target))
        ...     sorted(int(x) for x in ds)
        [0, 2, 4]
    """
    options = checked(given)

    def apply_distribute(dataset: Dataset) -> Dataset:
        if not isinstance(dataset, Dataset):
            raise TypeError(
                "`distribute` must be applied to a Dataset, as in "
                f"dataset.apply(distribute(...)). Got {dataset!r}"
            )
        if options.processing_mode is ShardingPolicy.DYNAMIC:
            check_parts(dataset.node)
        check_steps(dataset.node, options.processing_mode)
        check_consumers(options, consumers_of(dataset.node))
        check_splitting(dataset.node, options.processing_mode, options.num_tasks)
        registration = registration_of(
            dataset.node,
            options.service,
            options.compression,
            options.dispatcher_timeout,
            given.ship,
        )
        node, placing = dataset.node, placing_of(options, dataset.node)
        return Dataset(
            DataServiceDataset(
                run=run_of_process(given.job_name is not None),
                registration=registration,
                options=options,
                original=node,
                placing=placing,
                server=given.service,
            )
        )

    return apply_distribute


def for_consumer(
    dataset: Dataset, index: int, count: int, finite: Finite | None, job_name: str
) -> Dataset:
    """Return a distributed dataset as one of several consumers reads it in step.

    Args:
        dataset: the dataset, whose last operation is ``distribute``.
        index: number of the consumer.
        count: number of consumers.
        finite: as for ``distribute``.
        job_name: name of the job if the dataset has none.

    Raises:
        InvalidArgumentError: an option of the dataset excludes reads in step.
    """
    node = dataset.node
    assert isinstance(node, DataServiceDataset)
    options = replace(
        node.options,
        consumer_index=index,
        num_consumers=count,
        finite=finite,
        job_name=node.options.job_name or job_name,
    )
    check_rounds(options)
    check_placement(options)
    named = replace(options, names_consumer=True)
    check_consumers(named, node.registration.description.units.consumers)
    return Dataset(
        replace(
            node,
            options=options,
            run=run_of_process(is_named=True),
            repetitions=Repetitions(),
            placing=None,
            made=next(moments),
        )
    )


@names_arguments
def register_dataset(
    service: Service,
    dataset: Dataset,
    compression: Compression | None = "AUTO",
    dataset_id: str | None = None,
    *,
    dispatcher_timeout: float = DISPATCHER_TIMEOUT,
    ship: Sequence[ShippedSource] = (),
) -> str:
    """Register a dataset at the dispatcher, and return the id by which
    ``from_dataset_id`` finds it in any process.

    The functions of the dataset may run once here, to find the spec of its elements.

    Equivalent of ``tf.data.experimental.service.register_dataset``, which lacks
    ``dispatcher_timeout`` and ``ship``.

    Args:
        service: address of the dispatcher, as for ``distribute``.
        dataset: the dataset to register.
        compression: as for ``distribute``.
        dataset_id: the id to register it under. None: the dispatcher chooses an id.
            Registering again under an id keeps the first dataset.
        dispatcher_timeout: seconds to wait for the dispatcher.
        ship: as for ``distribute``.

    Returns:
        The id of the dataset.

    Raises:
        ValueError: an argument has an invalid value.
        TypeError: ``dataset`` is not a ``Dataset``, or the pipeline contains an object
            that cannot be sent to another process.
        InvalidArgumentError: a dataset with another structure has this id.
        UnavailableError: no dispatcher has answered within ``dispatcher_timeout``.

    Example:
        >>> import zmqdata
        >>> with zmqdata.LocalCluster(num_workers=1, in_process=True) as cluster:
        ...     ds = zmqdata.Dataset.range(3)
        ...     zmqdata.register_dataset(cluster.target, ds, dataset_id="three")
        'three'
    """
    endpoint = parse_service(service)
    if not isinstance(dataset, Dataset):
        raise TypeError(f"`dataset` must be a Dataset, got {dataset!r}")
    if dataset_id is not None:
        check_dataset_id(dataset_id)
    check_timeout("dispatcher_timeout", dispatcher_timeout)
    check_steps(dataset.node)
    registration = registration_of(
        dataset.node, endpoint, validate_compression(compression), dispatcher_timeout, ship
    )
    registration.tell_spec(dataset)
    return registration.register(dataset_id, keep=True)


@takes(RegisteredArguments)
def from_dataset_id(given: RegisteredArguments) -> Dataset:
    """Return a dataset that reads what was registered under an id.

    The spec, the cardinality and the compression come from the dispatcher. All
    arguments that are not listed here are those of ``distribute``.

    Equivalent of ``tf.data.experimental.service.from_dataset_id``.

    Args:
        dataset_id: the id that ``register_dataset`` returned.
        element_spec: spec of the elements if the dispatcher does not know it. The first
            element is then checked.
        job_name: as for ``distribute``. Jobs of different dataset ids never share a
            name.

    Returns:
        The distributed dataset.

    Raises:
        ValueError: an argument has an invalid value.
        TypeError: ``element_spec`` is not a spec.
        InvalidArgumentError: the spec of the registered dataset contradicts
            ``element_spec``, or the dataset loses pairs or choices in a promised order,
            as for ``distribute``.
        NotFoundError: no dataset is registered under this id.
        UnavailableError: no dispatcher has answered within ``dispatcher_timeout``.

    Example:
        >>> import zmqdata
        >>> with zmqdata.LocalCluster(num_workers=1, in_process=True) as cluster:
        ...     ds = zmqdata.Dataset.range(3)
        ...     three = zmqdata.register_dataset(cluster.target, ds)
        ...     ds = zmqdata.from_dataset_id("parallel_epochs", cluster.target, three)
        ...     [int(x) for x in ds]
        [0, 1, 2]
    """
    options, dataset_id = checked(given), given.dataset_id
    check_dataset_id(dataset_id)
    element_spec = optional_spec("element_spec", given.element_spec)
    description = describe_dataset(options.service, dataset_id, options.dispatcher_timeout)
    if description.element_spec is not None:
        element_spec = agreed_spec(element_spec, description.element_spec, dataset_id)
    check_losses(description.losses, options.processing_mode, options.num_tasks)
    check_consumers(options, description.units.consumers)
    name = None if options.job_name is None else _name_within(dataset_id, options.job_name)
    codec = cast("Compression | None", validate_compression(description.compression))
    options = replace(options, job_name=name, compression=codec)
    registration = Registration(
        options.service, options.dispatcher_timeout, description, dataset_id=dataset_id
    )
    return Dataset(
        DataServiceDataset(
            run=run_of_process(name is not None),
            registration=registration,
            options=options,
            element_spec=element_spec,
            server=given.service,
        )
    )


def _name_within(dataset_id: str, job_name: str) -> str:
    """Return the name of a job among the jobs of all datasets.

    It is unique for each pair of texts, whatever they contain.
    """
    return f"{dataset_id.replace('%', '%25').replace('/', '%2F')}/{job_name}"
