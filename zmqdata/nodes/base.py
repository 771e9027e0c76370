"""Base of all nodes: inputs, the user's line of code, a label, cardinality, splits and
spec.

The operations themselves are in ``operations``.
"""

from __future__ import annotations

import weakref
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.errors import UnimplementedError
from zmqdata.files.paths import shown_url
from zmqdata.peeking import peek
from zmqdata.splits import IndexSplits, SplitSource


class ByIdentity:
    """Base to put before ``Node`` if the node holds arrays or other values without a
    single answer to ``==``.

    Such a node is equal to itself only.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__


AT_ITS_PLACE = "continues at its position"
NOTHING_AGAIN = "repeats no work"
"""Values of ``Node.restoring`` for a source, and for an operation with an input, that
repeat no work.
"""
FILE_AGAIN = "reopens its file; a compressed file is decompressed up to the position"
"""Value of ``Node.restoring`` for a source that reads files."""


def function_name(function: Any) -> str:
    """Return the name of a user's function for a label."""
    return str(peek(function, "__name__") or type(function).__name__)


def _argument_text(value: Any) -> str:
    """Return the value of a field as a label shows it."""
    if callable(value):
        return function_name(value)
    return repr(value) if isinstance(value, str) else str(value)


def in_label(shown: Callable[[Any], str]) -> dict[str, Callable[[Any], str]]:
    """Return the metadata of a field whose value distinguishes the node in its label,
    as a function shows it.
    """
    return {"in_label": shown}


def first_of(names: Sequence[str]) -> str:
    """Return several names as a label shows them."""
    more = ", ..." if len(names) > 1 else ""
    return "".join(repr(shown_url(name)) for name in names[:1]) + more


IN_LABEL = in_label(_argument_text)
"""Metadata of a field whose value distinguishes the node in its label."""
Infer = Callable[["Node"], Any]
"""Returns the spec of a node, by running a part of the pipeline if necessary."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """Operation of a pipeline."""

    inputs: tuple[Node, ...] = ()
    """Nodes whose elements it takes, left to right; empty for a source."""
    site: str = field(default="", compare=False, repr=False)
    """Line of the user's code that made the node, as ``"train.py:12"``, or "". Ignored
    in comparisons.
    """

    operation: ClassVar[str] = ""
    """Name of the method of ``Dataset``."""
    restoring: ClassVar[str] = ""
    """Work and cost of restoring an iterator, for ``describe``: a phrase that begins
    with a verb; "" if it is not stated.
    """
    own_state: ClassVar[int] = 8
    """Approximate bytes that the node adds to the state of an iterator, unless
    ``state_bytes`` is more precise.
    """
    state_growth: ClassVar[str] = ""
    """Cause of growth of the state beyond ``state_bytes``, such as "16 bytes for each
    distinct element".
    """

    characteristics: ClassVar[Any] = None
    """Values, by name, that distinguish the node from a node whose state does not fit;
    None: all of its parameters.
    """

    split_unit: ClassVar[str] = "rows"
    """Unit of the splits of a source, in the plural."""

    is_source: ClassVar[bool] = False
    """True if it counts as a single source for splitting, although it has inputs."""

    refills: ClassVar[bool] = False
    """True if a pass without elements does not predict the next pass, because other
    clients also take from the source.
    """
    pulls_ahead: ClassVar[bool] = False
    """True if its iterator has threads, which pull its input before an element is
    wanted.
    """
    is_indexed: ClassVar[bool] = False
    """True for a source with random access, whose elements are its splits."""
    spec_option: ClassVar[str] = ""
    """Argument of the user, and field, that declares the spec of its elements."""

    @property
    def label(self) -> str:
        """Name in errors: ``"map(parse) at train.py:12"``."""
        text = f"{self.operation or type(self).__name__}({self.argument})"
        return f"{text} at {self.site}" if self.site else text

    @property
    def argument(self) -> str:
        """Argument that distinguishes the node from its neighbours, for the label: its
        fields with ``in_label``.
        """
        shown = [one for one in fields(self) if "in_label" in one.metadata]
        return ", ".join(one.metadata["in_label"](getattr(self, one.name)) for one in shown)

    @property
    def is_deterministic(self) -> bool:
        """True if the order of its elements follows from seeds and inputs."""
        return True

    @property
    def state_bytes(self) -> int:
        """Approximate bytes that the node adds to the state of an iterator."""
        return self.own_state

    @property
    def is_one_to_one(self) -> bool:
        """True if it makes one element of each element of its input, in order."""
        return False

    @property
    def holds_only(self) -> bool:
        """True if it holds or passes on elements, so that their spec follows from its
        input without it.
        """
        return False

    @property
    def is_lasting(self) -> bool:
        """True if it reads a whole source in an order that stays."""
        return False

    @property
    def lists_files(self) -> bool:
        """True if it yields names of files in an order that the dispatcher makes, which
        is the same for all readings of a turn if it is to stay.
        """
        return False

    @property
    def set_options(self) -> tuple[tuple[str, Any], ...]:
        """Options of the whole pipeline that it sets."""
        return ()

    @property
    def apart(self) -> tuple[Node, ...]:
        """Nodes that it runs besides its inputs. They are never split: each worker runs
        all of them.
        """
        return ()

    @property
    def cardinality(self) -> int:
        """Number of elements, INFINITE_CARDINALITY or UNKNOWN_CARDINALITY."""
        return UNKNOWN_CARDINALITY

    @property
    def batch_rows(self) -> int | None:
        """Number of rows that ``batch`` puts into an element; 0 if it varies or is
        unknown. None: its elements are not batches.
        """
        rows = {node.batch_rows for node in self.inputs}
        if None in rows or not rows:
            return None
        return rows.pop() if len(rows) == 1 else 0

    @property
    def split_source(self) -> SplitSource:
        """Description of this source's splits for the dispatcher.

        Raises:
            UnimplementedError: the source cannot be split.
        """
        if self.is_indexed:
            count = self.cardinality
            return IndexSplits(None if count == INFINITE_CARDINALITY else count)
        raise UnimplementedError(
            f"Cannot create split providers for dataset of type {type(self).__name__}: "
            f"{self.label} must be read as a whole. Distribute it with ShardingPolicy.OFF, where "
            "each worker reads all of it"
        )

    makes_windows: ClassVar[bool] = False
    """True if its elements hold datasets of elements of its input."""

    def empty_window(self, spec: Any) -> Any:
        """Return such a dataset without elements, of a spec."""
        raise NotImplementedError

    def part_left(self, count: int) -> range | None:
        """Return the places that it leaves of an order with a number of elements; None
        if it selects no such part.
        """
        return None

    def ordered_splits(self, source: SplitSource, fixed_seed: int) -> SplitSource:
        """Return the splits of a source that is its direct input, in the order in which
        it reads them.

        Args:
            source: the splits of the source.
            fixed_seed: seed of the orders that are drawn once.
        """
        return source

    @property
    def draws_once(self) -> bool:
        """True if something that it draws without a seed is the same in all iterations,
        or may be in the datasets that its function makes.
        """
        return self.kept_order is not None

    @property
    def kept_order(self) -> Ordinal | None:
        """The number of its order, if that is drawn once; else None."""
        return None

    @property
    def shipped(self) -> Node | None:
        """The pipeline that other processes run for it, if it is known."""
        return None

    @property
    def runs_elsewhere(self) -> bool:
        """True if other processes run the pipeline of this node."""
        return False

    @property
    def is_shared(self) -> bool:
        """True if other processes have copies of this node, and each of its elements
        goes to one of them.
        """
        return False

    @property
    def declared_spec(self) -> Any:
        """The spec that the user has declared for the results of its function, which
        are cast to it; None if there is none.
        """
        return getattr(self, self.spec_option, None) if self.spec_option else None

    def spec(self, infer: Infer) -> Any:
        """Return the spec of its elements, or None if only running an element can
        tell.
        """
        return self.declared_spec


@dataclass(frozen=True, kw_only=True)
class Unary(Node):
    """Operation with an input that preserves its spec and cardinality, unless a
    subclass overrides them.
    """

    @property
    def input(self) -> Node:
        return self.inputs[0]

    @property
    def cardinality(self) -> int:
        return self.input.cardinality

    def spec(self, infer: Infer) -> Any:
        return infer(self.input)


@dataclass(frozen=True, kw_only=True)
class Calling(Unary):
    """Operation whose elements a function of the user makes, so that their spec is the
    declared one, or follows from running the function.
    """

    def spec(self, infer: Infer) -> Any:
        return self.declared_spec


@dataclass(frozen=True, kw_only=True)
class Applying(Calling):
    """Operation that calls a function of the user with each element."""

    function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Function of the user."""


def unless_infinite(node: Node) -> int:
    """Return the cardinality of an operation that yields an unknown number of elements
    for a finite input, and never ends before an infinite one.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.repeat import Repeat
    >>> numbers = Range(start=0, stop=3)
    >>> unless_infinite(numbers), unless_infinite(Repeat(inputs=(numbers,), count=-1))
    (-2, -1)
    """
    endless = node.cardinality == INFINITE_CARDINALITY
    return INFINITE_CARDINALITY if endless else UNKNOWN_CARDINALITY


@dataclass(frozen=True, kw_only=True)
class ByNames(Node):
    """Base to put before a node whose draws follow from the names of elements."""

    seed: int | None = None
    """Seed of the user; None: that of the context."""


def every_node(node: Node) -> list[Node]:
    """Return a node and all nodes that it runs, through inputs and ``apart``, each
    once.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.limits import Take
    >>> node = Take(inputs=(Range(start=0, stop=3),), count=2)
    >>> [inner.label for inner in every_node(node)]
    ['take(2)', 'range(3)']
    """
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if id(current) not in found:
            found[id(current)] = current
            waiting.extend(reversed((*current.inputs, *current.apart)))
    return list(found.values())


def all_nodes(node: Node) -> list[Node]:
    """Return the nodes of a pipeline, and of the pipelines that other processes run for
    it.
    """
    found = every_node(node)
    for one in found:  # grows
        if one.shipped is not None:
            found.extend(every_node(one.shipped))
    return found


def kept_orders(node: Node) -> list[Ordinal]:
    """Return the numbers of all orders of a pipeline that are drawn once.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.shuffle import Shuffle
    >>> numbers = Range(start=0, stop=3)
    >>> once = Shuffle(inputs=(numbers,), buffer_size=3, reshuffle_each_iteration=False)
    >>> [order.number for order in kept_orders(once)]
    [0]
    """
    orders = {id(one): order for one in all_nodes(node) if (order := one.kept_order) is not None}
    return list(orders.values())


def source_nodes(node: Node) -> list[Node]:
    """Return the sources that feed a node, left to right, repeated as often as they are
    read.
    """
    found, pending = [], [node]
    while pending:
        current = pending.pop()
        if current.is_source or not current.inputs:
            found.append(current)
        else:
            pending.extend(reversed(current.inputs))
    return found


class _Unknown(Exception):
    """Signals that a function determines the spec."""


class _Missing(Exception):
    """Signals that the spec of another node is needed first."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


class ByNode:
    """Values of nodes, kept as long as the node lives, by identity: the equality of
    nodes may compare arrays.

    >>> from zmqdata.operations.sources import Range
    >>> node, specs = Range(start=0, stop=3), ByNode()
    >>> specs[node] = "int64"
    >>> node in specs, specs[node], Range(start=0, stop=3) in specs
    (True, 'int64', False)
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[weakref.ref[Node], Any]] = {}

    def __contains__(self, node: Node) -> bool:
        return id(node) in self._held

    def __getitem__(self, node: Node) -> Any:
        return self._held[id(node)][1]

    def __setitem__(self, node: Node, value: Any) -> None:
        held, key = self._held, id(node)
        held[key] = weakref.ref(node, lambda _: held.pop(key, None)), value


class Ordinal:
    """Number of an operation whose order is drawn once, without a seed, among those of
    the program that consist of the same operations.

    It is part of neither a fingerprint nor a comparison, because a program that builds
    a pipeline twice means the same pipeline. Loading a state of the pipeline sets it.

    Attributes:
        number: the number.
    """

    __slots__ = ("number",)

    def __init__(self, number: int = 0) -> None:
        self.number = number


@dataclass(frozen=True, kw_only=True)
class FileRows(Node):
    """Base of the sources of rows in files that may be drawn."""

    filenames: tuple[str, ...] = field(metadata=in_label(first_of))
    """Paths of the files."""
    batch_size: int | None = None
    """Maximum number of rows of an element; None: an element is a row."""
    shuffle: bool = False
    """True to read in a permutation of the splits, and to draw their rows."""
    seed: int | None = None
    """Seed of the permutation; None: that of the context."""
    reshuffle_each_iteration: bool = True
    """True to permute anew in each repetition."""
    open_splits: int = 4
    """Number of splits whose rows are drawn together."""
    storage_options: Mapping[str, Any] | None = field(default=None, repr=False)
    """Arguments of the client of the store that the files lie in."""
    ordinal: Ordinal = field(default_factory=Ordinal, compare=False, repr=False)
    """Number of its order among those of the program, if it is drawn once."""

    @property
    @abstractmethod
    def split_count(self) -> int:
        """Number of the splits."""

    @property
    def kept_order(self) -> Ordinal | None:
        is_kept = self.shuffle and self.seed is None and not self.reshuffle_each_iteration
        return self.ordinal if is_kept else None

    @property
    def split_source(self) -> SplitSource:
        return IndexSplits(self.split_count)

    @property
    def batch_rows(self) -> int | None:
        return None if self.batch_size is None else 0

    def shown(self, number: int) -> str:
        """Return the name of a file, for errors."""
        return shown_url(self.filenames[number])


_lineages = ByNode()


def lineage(node: Node) -> int:
    """Return a number that follows from the operations of a node and of the nodes below
    it.

    It is the same in every process and wherever the node stands in a pipeline, so that
    what is drawn once for a node is the same in all pipelines that contain it. It does
    not follow from cardinalities, which a save that grows changes.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.limits import Take
    >>> from zmqdata.operations.shuffle import Shuffle
    >>> numbers = Range(start=0, stop=3)
    >>> first, second = [Shuffle(inputs=(numbers,), buffer_size=n) for n in (2, 3)]
    >>> lineage(first) == lineage(second) != lineage(Take(inputs=(numbers,), count=2))
    True
    """
    if node not in _lineages:
        operations = ",".join(inner.operation for inner in every_node(node))
        _lineages[node] = zlib.crc32(operations.encode())
    return int(_lineages[node])


_known = ByNode()


def known_spec(node: Node) -> Any:
    """Return the spec of a node's elements if it follows without running anything, else
    None.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.mapping import Map
    >>> known_spec(Map(inputs=(Range(start=0, stop=3),), function=str)) is None
    True
    """

    def infer(inner: Node) -> Any:
        if inner not in _known:
            raise _Missing(inner)
        spec = _known[inner]
        if spec is None:
            raise _Unknown
        return spec

    # Not recursive, because a pipeline may have thousands of operations.
    waiting = [] if node in _known else [node]
    while waiting:
        try:
            _known[waiting[-1]] = waiting[-1].spec(infer)
        except _Missing as missing:
            waiting.append(missing.node)
            continue
        except _Unknown:
            _known[waiting[-1]] = None
        waiting.pop()
    return _known[node]


Wrap = Callable[[Node], Any]
"""Makes, from a node, the dataset that a user's function receives."""


def whole_only(node: Node, kind: str) -> UnimplementedError:
    """Return the error for requesting the splits of a source that has none; ``kind`` is
    its name in tf.data.
    """
    return UnimplementedError(
        f"Cannot create split providers for dataset of type {kind}: {node.label} must be read as "
        "a whole. Distribute it with ShardingPolicy.OFF, where each worker reads all of it"
    )


SHARD_HINT = -1
"""Value for both arguments of ``shard``: the service replaces it by the number of
workers and the index of the worker.
"""
