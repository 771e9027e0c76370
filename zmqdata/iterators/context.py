"""The context that a pipeline runs in: its seeds, splits and place, the names of its
elements, and what watches it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.deciding import Deciding
from zmqdata.iterators.ownthreads import OwnThreads, Place, Strand
from zmqdata.iterators.permutation import Order
from zmqdata.iterators.quarantine import Quarantine
from zmqdata.iterators.states import Courses, Restoring
from zmqdata.iterators.watch import Watch
from zmqdata.measures.meter import LoopMeter
from zmqdata.measures.sums import OperationCounts
from zmqdata.nodes.base import Node, lineage, source_nodes
from zmqdata.nodes.options import Options
from zmqdata.splits import SplitProvider, turn_of

Name = tuple[int, int]
"""Name of an element, see ``naming``: a group, and a position in it."""
Namer = Callable[[], Name | None]
"""Function that returns the name of an iterator's last element; None if it has none."""
_BITS = (1 << 64) - 1


def subgroup(group: int, number: int) -> int:
    """Return the group of names within member ``number`` of a group, as 64 bits. It is
    the same on every machine.

    >>> subgroup(subgroup(0, 1), 2) == subgroup(subgroup(0, 2), 1)
    False
    """
    mixed = (group + (number + 1) * 0x9E3779B97F4A7C15) & _BITS
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & _BITS
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & _BITS
    return mixed ^ mixed >> 31


def mixed_seed(*parts: int) -> int:
    """Return a seed of 63 bits that depends on every part and is the same on every
    machine.

    >>> mixed_seed(1, 2) == mixed_seed(1, 2), mixed_seed(1, 2) == mixed_seed(2, 1)
    (True, False)
    """
    text = ",".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@dataclass(frozen=True)
class Context:
    """Environment that a pipeline runs in. With the same context, the same elements
    come in the same order.
    """

    seed: int = 0
    """Seed of the task, or of a local iterator."""
    repetition: int = 0
    """Number of complete passes so far of the pipeline, or of the part under a
    ``repeat``.
    """
    providers: tuple[SplitProvider, ...] | None = None
    """Split providers of the sources, left to right; None: each source reads all of its
    input.
    """
    owns_splits: bool = False
    """True if the splits of each repetition are dealt to the tasks by their number, so
    that no other task may take those of this one.
    """
    owns_all_splits: bool = False
    """True if there is a single such task, so that all splits are its own."""
    beside_others: bool = False
    """True if a later operation also reads other inputs."""
    iteration: int = 0
    """Number of the iterator of a dataset, or of the repetition of a job. A node with a
    fixed seed mixes it in to reshuffle in each iteration.
    """
    fixed_seed: int = 0
    """Seed of the program for what is drawn once, without a seed of the user, and stays
    in all iterations, tasks and pipelines (shuffle without reshuffle_each_iteration).
    """
    shared_seed: int | None = None
    """Seed that replaces ``seed`` where all tasks of an iteration must draw the same
    numbers, because they read parts of the same whole; None: the task reads alone.
    """
    order: Callable[[int], Order] | None = None
    """Returns the permutation in which the source below yields its elements, for a
    repetition; None: in order.
    """
    first: int = 0
    """First place in this order that belongs to the part that ``take`` and ``skip``
    have left, see ``nodes.parts``.
    """
    in_part: bool = False
    """True if the source below yields such a part."""
    task: int = 0
    """Number of the task in its iteration; 0 for a local iterator."""
    copy: int = 0
    """Number of the copy, where each task reads all of the input; else 0."""
    group: int = 0
    """Group of the names of a source's elements. In a nested dataset, it follows from
    the name of the element that the dataset was made from.
    """
    named: bool = False
    """True if a later operation asks for the names of elements."""
    path: tuple[int, ...] = ()
    """Position of the node in the tree: input indices from the root."""
    options: Options = field(default_factory=Options)
    """Options of the whole pipeline, see ``nodes.options.options_of``."""
    quarantine: Quarantine = field(default_factory=Quarantine, compare=False, repr=False)
    """Elements that operations left out."""
    watch: Watch | None = field(default=None, compare=False, repr=False)
    """Records the element that each operation is processing; None: calls are not
    recorded.
    """
    nest: str = ""
    """Place of the operation whose function made this dataset from an element; "" for
    the outermost dataset.
    """
    restoring: Restoring | None = field(default=None, compare=False, repr=False)
    """Set while iterators are created in order to be restored: iterators of the service
    do not begin their job then; else None.
    """
    deciding: Deciding | None = field(default=None, compare=False, repr=False)
    """Record of the elements that operations leave out and keep; None: the task is
    never replayed.
    """
    courses: Courses = field(default_factory=Courses, compare=False, repr=False)
    """Weights by which the mixtures of the pipeline have chosen so far."""
    captured: Callable[[Node, Context], Callable[[int], None] | None] | None = field(
        default=None, compare=False, repr=False
    )
    """Returns a function that seeds the random generators that a node holds, see
    ``captured``; None: generators are left alone, as in a local reading.
    """
    inferring: bool = False
    """True while elements are run only to find the spec of a node."""
    forgiving: bool = False
    """True if a later operation leaves out elements that fail."""
    meter: LoopMeter | None = field(default=None, compare=False, repr=False)
    """Measures the waits of the loop that reads the iterator; None if nobody asks."""
    counts: OperationCounts = field(default_factory=OperationCounts, compare=False, repr=False)
    """Sums of what the operations did, by name, for ``stats()`` and the metrics."""
    threads: OwnThreads = field(default_factory=lambda: OwnThreads({}), compare=False, repr=False)
    """All threads that work for this iterator."""
    strand: Strand = field(default_factory=Strand, compare=False, repr=False)
    """The strand in which the node's executor runs."""
    reader: Strand = field(default_factory=Strand, compare=False, repr=False)
    """The strand of the operation that reads ahead of its own reader, if ``strand`` is
    that of its input.
    """
    seen_at: Place = ()
    """Position of the node for measures. All nodes of a dataset that a function has
    made count for the operation with the function.
    """

    @property
    def is_last(self) -> bool:
        """True if the loop itself takes the elements of the node."""
        return not self.path and not self.depth

    @property
    def whole_path(self) -> Place:
        """Position of the node, also among those of the datasets around its own."""
        return self.path

    @property
    def own_threads(self) -> OwnThreads:
        """Threads that work for the node."""
        return self.threads.at(self.whole_path, self.strand, self.seen_at)

    @property
    def forgives(self) -> bool:
        """True if an element that fails must fail again in a replay of the task."""
        return self.forgiving and self.deciding is not None

    @property
    def place(self) -> str:
        """Position of the node as text: stable across the attempts of a task, and
        unique among its nodes.

        >>> Context(path=(0, 1)).place
        '/0.1'
        >>> first = Context(path=(0,))
        >>> first.nested(7).place, first.repeated(2).place
        ('/0[7]/', '/0 in repetition 2')
        """
        turn = f" in repetition {self.repetition}" if self.repetition else ""
        return f"{self.nest}/{'.'.join(map(str, self.path))}{turn}"

    @property
    def depth(self) -> int:
        """Number of datasets around this one that it was made from elements of."""
        return 0

    @property
    def turn(self) -> int:
        """Repetition counted over all iterations; a reshuffling node mixes it into its
        seed.
        """
        return turn_of(self.iteration, self.repetition)

    def kept_place(self, node: Node) -> tuple[int, ...]:
        """Return what tells a node whose order is drawn once from the others, in
        whatever pipelines it stands: the parts of a shuffled dataset must be parts of
        the same order.
        """
        order = node.kept_order
        return lineage(node), 0 if order is None else order.number

    def counted(self, number: int) -> Name:
        """Return the name of element ``number`` of an input whose elements have no
        names: each task counts its own.
        """
        return subgroup(self.group, self.task) if self.task else self.group, number

    def seeder(self, node: Node) -> Callable[[int], None] | None:
        """Return a function that seeds the random generators that a node holds for the
        element with a number; None if it holds none, or outside of tasks.
        """
        return None if self.captured is None else self.captured(node, self)

    def provider(self) -> SplitProvider | None:
        """Return the split provider of a source, or None without providers.

        Raises:
            FailedPreconditionError: the source received no provider, or several.
        """
        if self.providers is None:
            return None
        if len(self.providers) != 1:
            raise FailedPreconditionError(
                f"a source needs exactly one split provider and got {len(self.providers)}: pass "
                "as many providers as the pipeline has sources, see nodes.parts.split_sources"
            )
        return self.providers[0]

    def into(self, node: Node, index: int = 0) -> Context:
        """Return the context of an input of a node: it receives the providers of its
        own sources.
        """
        providers, beside_others = self.providers, self.beside_others
        if providers is not None and len(node.inputs) > 1:
            beside_others = True
            first = sum(len(source_nodes(before)) for before in node.inputs[:index])
            last = (
                len(providers)
                if index == len(node.inputs) - 1
                else first + len(source_nodes(node.inputs[index]))
            )
            providers = providers[first:last]
        path = (*self.path, index)
        return self.changed(
            providers=providers,
            beside_others=beside_others,
            path=path,
            seen_at=self._seen_at(path),
        )

    def _seen_at(self, path: Place) -> Place:
        """Return the position, for measures, of the node with this path."""
        return path

    def nested(self, number: int, name: Name | None = None, maker: Node | None = None) -> Context:
        """Return the context of the dataset that a function made of element ``number``:
        it reads all of its sources.

        Args:
            number: number of the element.
            name: name of the element; None if it has none.
            maker: the operation whose function made the dataset; None if it is the only
                one.
        """
        values = vars(self).copy()
        for lazy in ("seed", "fixed_seed", "nest", "group"):
            values.pop(lazy, None)
        values["path"], values["shared_seed"], values["providers"] = (), None, None
        values["outer"], values["number"], values["name"] = self, number, name
        values["maker"] = maker
        return _with_values(NestedContext, values)

    def ahead(self) -> Context:
        """Return the same context for a node whose input runs in other threads than its
        reader.
        """
        return self.changed(strand=self.threads.new_strand(), reader=self.strand)

    def repeated(self, repetition: int) -> Context:
        """Return the same context for another repetition."""
        return self.changed(repetition=repetition)

    def changed(self, **changes: Any) -> Context:
        """Return the same context with other values. ``dataclasses.replace`` would drop
        what surrounds a nested dataset.
        """
        return _with_values(type(self), {**vars(self), **changes})


class NestedContext(Context):
    """Context of the dataset that a function made of an element. Most datasets need
    neither seeds nor names nor place, which are therefore computed at the first access.
    """

    outer: Context
    number: int
    name: Name | None
    maker: Node | None

    @cached_property
    def group(self) -> int:
        group, position = self.outer.counted(self.number) if self.name is None else self.name
        return subgroup(subgroup(self.outer.group, group), position)

    @property
    def depth(self) -> int:
        return self.outer.depth + 1

    @property
    def whole_path(self) -> Place:
        return (*self.outer.whole_path, self.number, *self.path)

    def _seen_at(self, path: Place) -> Place:
        return self.seen_at

    @cached_property
    def seed(self) -> int:
        return mixed_seed(self.outer.seed, *self.outer.path, self.number)

    @cached_property
    def fixed_seed(self) -> int:
        # Not the path, because what stays must be the same in all pipelines.
        made = 0 if self.maker is None else lineage(self.maker)
        return mixed_seed(self.outer.fixed_seed, made, self.number)

    def kept_place(self, node: Node) -> tuple[int, ...]:
        # Not the number: the function that made the dataset may run often.
        return (lineage(node),)

    @cached_property
    def nest(self) -> str:
        return f"{self.outer.place}[{self.number}]"


def _with_values(kind: type[Context], values: dict[str, Any]) -> Context:
    """Return a context with these attributes. ``dataclasses.replace`` takes five times
    as long, and every pass of a repeat or nested dataset needs several contexts.
    """
    made = object.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    return made
