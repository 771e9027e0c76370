"""Supplies of batches for a ``Loader``, pass by pass: from a dataset, or from a
``DataLoader`` of torch whose work is done by the service.

A supply says how long a pass is, begins a pass, and continues a pass from a state.
``loader`` hands the batches out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from zmqdata.client.distribute import DataServiceDataset
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import InvalidArgumentError
from zmqdata.nodes import Node
from zmqdata.torch.tensors import tensors_of


@dataclass(frozen=True)
class Pass:
    """One reading of all batches."""

    batches: Dataset
    """The batches as elements, from ``first`` on."""
    content: Callable[[Any], Any]
    """Returns the batch of an element."""
    count: int | None
    """Number of batches of the whole pass; None if unknown."""
    first: int = 0
    """Number of the first batch."""
    position: bytes = b""
    """Position in ``batches`` to continue from; empty for the beginning."""
    generators: bytes = b""
    """Generators of torch as they were when the pass began."""


class Supply(Protocol):
    """Begins the passes of a ``Loader``."""

    @property
    def dataset(self) -> Any:
        """The dataset that is read."""

    @property
    def name(self) -> str:
        """Kind of the supply, by which states are told apart."""

    def length(self) -> int | None:
        """Return the number of batches of a pass; None if it is unknown."""

    def begin(self, epoch: int) -> Pass:
        """Begin the next pass."""

    def resume(self, epoch: int, state: LoaderState) -> Pass:
        """Continue a pass."""

    def position(self, elements: DatasetIterator) -> bytes:
        """Return what is needed beside the number of batches to continue a pass."""

    def present(self) -> bytes:
        """Return the generators from which the next order may be drawn."""

    def set_epoch(self, epoch: int) -> None:
        """Tell samplers and datasets the number of the next pass."""


class LoaderState(msgspec.Struct, frozen=True):
    """The content of a state of a ``Loader``. All states have the same keys, as
    ``torch.distributed.checkpoint`` wants it.
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
    generators: bytes
    """Generators as they were when the pass began."""
    present: bytes
    """Generators as they were when the state was taken."""


class DatasetSupply:
    """Passes over a dataset.

    Args:
        dataset: the dataset.
        batches: number of batches of a pass; None for all of the dataset.
    """

    name = "dataset"

    def __init__(self, dataset: Dataset, batches: int | None) -> None:
        self.dataset = dataset
        self._batches = batches
        self._copies = not _is_sent(dataset.node)

    def length(self) -> int | None:
        count = self._known()
        if self._batches is None:
            return count
        if count is not None and count < self._batches:
            raise short(self._batches, count)
        return self._batches

    def _known(self) -> int | None:
        count = self.dataset.cardinality()
        return int(count) if count >= 0 else None

    def begin(self, epoch: int) -> Pass:
        return Pass(self.dataset, self._content, self.length())

    def resume(self, epoch: int, state: LoaderState) -> Pass:
        return Pass(self.dataset, self._content, self.length(), state.batches, state.position)

    def position(self, elements: DatasetIterator) -> bytes:
        return msgspec.msgpack.encode(elements.state_dict())

    def present(self) -> bytes:
        return b""

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: each iterator of a dataset reads its next repetition."""

    def _content(self, element: Any) -> Any:
        return tensors_of(element, copy=self._copies)

    @property
    def is_endless(self) -> bool:
        return bool(self.dataset.cardinality() == INFINITE_CARDINALITY)


def _is_sent(node: Node) -> bool:
    """Return True if elements come over the wire, so that they belong to the reader.
    Others may be views of the user's arrays, or lie in a cache.
    """
    if not isinstance(node, DataServiceDataset):
        return False
    return not node.options.is_local and node.options.placement == "service"


def short(wanted: int, found: int) -> InvalidArgumentError:
    """Return the error for a pass with too few batches."""
    return InvalidArgumentError(
        f"`batches={wanted}` batches were asked for, and the dataset has {found}: {wanted - found} "
        "are missing. Pass a smaller number, or call .repeat() on the dataset before it is "
        "distributed"
    )
