"""Supplies of batches for a ``Loader``, pass by pass: from a dataset, or from a
``DataLoader`` of torch whose work is done by the service.

A supply says how long a pass is, begins a pass, and continues a pass from a state.
``loader`` hands the batches out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec

from zmqdata.client.distribute import DataServiceDataset, for_consumer
from zmqdata.client.splitting import counts_by_task
from zmqdata.config.checks import Finite
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.elements.nesting import EqualNesting
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.machine.runkeys import ranks_told
from zmqdata.messages.identity import Fingerprint, uncompared
from zmqdata.nodes.base import Node, every_node
from zmqdata.operations.batch import Batch
from zmqdata.operations.mapping import Collate, Filter, Map
from zmqdata.operations.padding import PaddedBatch
from zmqdata.operations.parallel import ParallelCollate, ParallelMap
from zmqdata.operations.prefetch import Prefetch
from zmqdata.operations.selections import WithOptions
from zmqdata.torch.ranks import Consumer, copy_number, numbered
from zmqdata.torch.tensors import tensors_of

log = logging.getLogger(__name__)

SupplyT = TypeVar("SupplyT", bound="Supply")
VERSION = 1
"""Version of the form of states. A change of their content increments it."""


@dataclass(frozen=True)
class Pass:
    """One reading of all batches."""

    batches: Dataset
    """The batches as elements, from ``first`` on."""
    content: Callable[[Any], Any]
    """Returns the batch of an element."""
    count: int | None
    """Number of batches of the whole pass; None if unknown."""
    is_endless: bool = False
    """True if the next pass goes on where this one has ended."""
    padding: int | None = 0
    """Number of batches at the end that other consumers have had, too; None if
    unknown.
    """
    remainder: int = 0
    """Number of samples that all consumers together have in their last step, if some of
    it repeats others or fills a batch; otherwise 0. -1: unknown.
    """
    first: int = 0
    """Number of the first batch."""
    base: int = 0
    """Number of batches that all consumers together had before the first."""
    position: bytes = b""
    """Position in ``batches`` to continue from; empty for the beginning."""
    generators: bytes = b""
    """Generators of torch as they were when the pass began."""
    is_next: bool = False
    """True if ``position`` is the end of the pass before."""
    source: Callable[[], str] = str
    """Returns by what a state knows again what is read; "" if that is not known."""
    rest: Iterator[Any] | None = None
    """The sampler behind its last batch if it draws once more when it ends."""
    rest_at: int = 0
    """Number of batches that the loop has had when torch asks for the rest."""


@dataclass(frozen=True)
class NextPass:
    """A pass before its first batch, at the cost that ``iter`` has in torch."""

    begin: Callable[[], Pass]
    """Begins the pass at the service."""
    generators: Callable[[], bytes] = bytes
    """Returns the generators of torch from which its order can be drawn again."""


class Supply(Protocol):
    """Begins the passes of a ``Loader``."""

    @property
    def dataset(self) -> Any:
        """The dataset that is read."""

    consumer: Consumer
    """The consumer that reads."""

    is_continued: bool
    """True if the order of a pass follows from the end of the pass before."""

    @property
    def is_divided(self) -> bool:
        """True if each batch goes to one of the processes that hold a copy."""

    @property
    def name(self) -> str:
        """Kind of the supply, by which states are told apart."""

    def length(self) -> int | None:
        """Return the number of batches of a pass; None if it is unknown."""

    def next_pass(self) -> NextPass:
        """Return the next pass, and draw what torch draws when an iterator is made."""

    def resume(self, state: LoaderState) -> NextPass:
        """Return the rest of a pass, with the generators as they were for the state."""

    def check(self, state: LoaderState) -> None:
        """Raise an error for a state that this loader cannot continue."""

    def become(self, consumer: Consumer) -> None:
        """Read as another consumer from now on."""

    def position(self, elements: DatasetIterator, pass_: Pass, count: int) -> bytes:
        """Return what is needed beside the number of batches to continue a pass."""

    def rank_states(self, generators: bytes, source: str) -> dict[str, RankState]:
        """Return the part of a state that belongs to this consumer, by its number.

        Args:
            generators: generators from which the order can be drawn again.
            source: hash of what is read; "" if the pass has not begun.
        """

    def present(self) -> bytes:
        """Return the generators from which the next order may be drawn."""

    def settle(self, present: bytes) -> None:
        """Set the global generators to those that ``present`` has returned."""

    def knows_epoch(self, is_resumed: bool) -> bool:
        """Return True if nothing that is told the number of a pass changes one that has
        begun with this number.

        Args:
            is_resumed: True if the pass continues from a state.
        """

    def set_epoch(self, epoch: int) -> None:
        """Tell samplers and datasets the number of the next pass."""


def supply_for(supply: SupplyT, consumer: Consumer) -> SupplyT:
    """Return a supply of the same batches for another consumer."""
    other = copy(supply)
    other.become(consumer)
    return other


class RankState(msgspec.Struct, frozen=True):
    """Part of a state that belongs to a single consumer."""

    present: bytes
    """Generators as they were when the state was taken."""
    generators: bytes = b""
    """Generators from which the order can be drawn again; empty if all consumers agreed
    on them.
    """
    source: str = ""
    """Hash of what is read; "" if it is the same for all consumers."""


class LoaderState(msgspec.Struct, frozen=True):
    """The content of a state of a ``Loader``.

    ``torch.distributed.checkpoint`` saves each key once, from any of the ranks that
    have it. So a value that differs between ranks has a key of its rank, in ``ranks``.
    """

    version: int
    """Version of this form."""
    kind: str
    """Name of the supply."""
    epoch: int
    """Number of the pass."""
    batches: int
    """Number of batches of the pass that the loop has received."""
    world: int
    """Number of consumers that share the batches."""
    position: bytes
    """Position in the pass."""
    is_next: bool
    """True if ``position`` is the end of the pass before."""
    source: str
    """Hash of the pipeline or the order that is read; "" if others compare it."""
    generators: bytes
    """Generators as they were when the pass began."""
    ranks: dict[str, RankState] = {}
    """Parts that belong to a single consumer, by its number."""


def checked_state(state: Any) -> LoaderState:
    """Return the content of a state that a user loads.

    Raises:
        InvalidArgumentError: it is not a state of a loader, or one of another version.
    """
    try:
        saved = msgspec.convert(state, LoaderState)
    except msgspec.ValidationError as error:
        raise InvalidArgumentError(
            f"a state must be a dict that state_dict() of a Loader returned, got a "
            f"{type(state).__name__}: {error}"
        ) from None
    if saved.version != VERSION:
        raise InvalidArgumentError(
            f"the state has version {saved.version}, and this zmqdata reads version {VERSION}. "
            "Load it with the release that saved it"
        )
    return saved


class DatasetSupply:
    """Passes over a dataset.

    Args:
        dataset: the dataset.
        batches: number of batches of a pass; None for all of the dataset.
        consumer: the consumer that reads.
        finite: as for ``Loader``.
    """

    name = "dataset"
    is_continued = True

    def __init__(
        self, dataset: Dataset, batches: int | None, consumer: Consumer, finite: Finite
    ) -> None:
        self.dataset = dataset
        self._batches = batches
        self._finite = finite
        self._copies = not _is_sent(dataset.node)
        self.become(consumer)

    def become(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self._read = self._as_consumer(self.dataset)
        self.length()  # Too few batches are refused now if their number is known.

    @property
    def is_divided(self) -> bool:
        return self._batches is None and _is_divided(self._read.node)

    def length(self) -> int | None:
        count = self._known()
        if self._batches is None:
            return count
        if count is not None and count < self._batches:
            raise too_few(self._batches, count)
        return self._batches

    def _as_consumer(self, dataset: Dataset) -> Dataset:
        """Return the dataset as this consumer reads it.

        Raises:
            InvalidArgumentError: each rank would read all of it.
        """
        node, consumer = dataset.node, self.consumer
        if not consumer.agrees:
            return dataset
        if not isinstance(node, DataServiceDataset):
            if consumer.is_alone:  # each of its copies reads all of it
                return dataset
            raise InvalidArgumentError(
                f"This process is consumer {consumer.index} of {consumer.count}, and the dataset "
                "does not end with `distribute`, so each of them would read all of it. Make "
                "`.apply(zmqdata.distribute(...))` its last operation, or pass "
                f"`num_consumers=1` if each process reads a dataset of its own. {ranks_told()}"
            )
        options = node.options
        if options.names_consumer:
            return dataset
        name = numbered(f"loader-{node.registration.description.fingerprint[:16]}")
        if consumer.has_copies and options.num_tasks is None:
            raise InvalidArgumentError(
                f"`consumer_index={consumer.index}` is that of another rank, too, which would get "
                "other batches: the order of this dataset is not promised. Pass "
                "`deterministic=True` to `distribute`"
            )
        copy = copy_number(consumer, name)
        if copy:
            name += f"-copy-{copy}"
        return for_consumer(dataset, consumer.index, consumer.count, self._finite, name)

    def _known(self) -> int | None:
        """Return the number of batches that the dataset has for this consumer, if that
        is known.
        """
        node = self._read.node
        if not isinstance(node, DataServiceDataset) or node.options.num_tasks is None:
            count = self._read.cardinality()
            return int(count) if count >= 0 else None
        tasks, consumers = node.options.num_tasks, node.options.num_consumers or 1
        counts = None if node.original is None else counts_by_task(node.original, tasks)
        if counts is None:
            return None
        if node.options.finite == "pad":
            return sum(-(-count // consumers) for count in counts)
        return sum(counts) // consumers

    def next_pass(self) -> NextPass:
        return NextPass(self._pass)

    def resume(self, state: LoaderState) -> NextPass:
        return NextPass(partial(self._pass, state.batches, state.position, state.is_next))

    def _pass(self, first: int = 0, position: bytes = b"", is_next: bool = False) -> Pass:
        is_padded = self._finite == "pad" and not self.consumer.is_alone
        return Pass(
            self._read,
            TensorContent(copy=self._copies),
            self.length(),
            self._read.cardinality() == INFINITE_CARDINALITY,
            None if is_padded else 0,
            -1 if is_padded else 0,
            first,
            position=position,
            is_next=is_next,
            source=self._source,
        )

    def _source(self) -> str:
        """Return the hash of a pipeline that runs in this process. The service compares
        those that its workers run.
        """
        if any(isinstance(node, DataServiceDataset) for node in every_node(self.dataset.node)):
            return ""
        return str(self.dataset.fingerprint().structure)

    def check(self, state: LoaderState) -> None:
        """Raise an error for a state that this loader cannot continue.

        Raises:
            FailedPreconditionError: other consumers shared the batches, or the state is
                of another dataset.
        """
        if state.world != self.consumer.count:
            raise other_world(state.world, self.consumer.count)
        then, now = Fingerprint.parse(state.source), Fingerprint.parse(self._source())
        if state.source and not then.is_comparable(now):
            log.warning("%s", uncompared(then, now))
        elif state.source and then.is_other(now):
            raise FailedPreconditionError(
                "this state is of a loader over another dataset: its operations or parameters "
                "differ. Load it into a loader over the dataset that it was taken from"
            )

    def position(self, elements: DatasetIterator, pass_: Pass, count: int) -> bytes:
        return msgspec.msgpack.encode(elements.state_dict())

    def present(self) -> bytes:
        return b""

    def rank_states(self, generators: bytes, source: str) -> dict[str, RankState]:
        return {}

    def settle(self, present: bytes) -> None:
        """Do nothing: no order is drawn from global generators."""

    def knows_epoch(self, is_resumed: bool) -> bool:
        return True

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: each iterator of a dataset reads its next repetition."""


_UNCOUNTED = frozenset(
    {Batch, Collate, Filter, Map, PaddedBatch, ParallelCollate, ParallelMap, Prefetch, WithOptions}
)
"""Operations that hand out what each element becomes, whatever came before it."""


class TensorContent:
    """Makes tensors of the elements of a pass, which have to be nested alike.

    Args:
        copy: as for ``tensors_of``.
    """

    def __init__(self, *, copy: bool) -> None:
        self._copy = copy
        self._nesting = EqualNesting()

    def __call__(self, element: Any) -> Any:
        self._nesting.check(element)
        return tensors_of(element, copy=self._copy)


def _is_sent(node: Node) -> bool:
    """Return True if elements come over the wire, so that they belong to the reader.
    Others may be views of the user's arrays, or lie in a cache.
    """
    if not isinstance(node, DataServiceDataset):
        return False
    return not node.options.is_local and node.options.placement == "service"


def _is_divided(node: Node) -> bool:
    """Return True if each element goes to one of the clients of a job, and no operation
    counts the elements of each client.
    """
    if type(node) in _UNCOUNTED:
        return all(map(_is_divided, node.inputs))
    if not isinstance(node, DataServiceDataset):
        return False
    options = node.options
    return (
        options.num_consumers is None
        and options.cross_trainer_cache is None
        and options.placement == "service"
        and not options.is_local
    )


def other_world(then: int, now: int) -> FailedPreconditionError:
    """Return the error for a state of another number of consumers."""
    return FailedPreconditionError(
        f"this state is of {then} consumers that shared the batches, and here are {now}. Each "
        "batch of such a loader belongs to a step of all consumers. Resume with as many ranks as "
        "before, or begin a new pass"
    )


def too_few(wanted: int, found: int) -> InvalidArgumentError:
    """Return the error for a pass with too few batches."""
    return InvalidArgumentError(
        f"a pass should have {wanted} batches, and the dataset has {found}: {wanted - found} are "
        "missing. With `batches=`, pass a smaller number, or call .repeat() on the dataset before "
        "it is distributed. With a `job_name`, another reader may have had them: choose one for "
        "each Loader that reads all of them"
    )
