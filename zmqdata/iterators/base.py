"""Base of all iterators: the interface, the context that they run in, seeds, and errors
of user functions.

The executors are in ``operations``: a class per node, registered with
``make_iterator``.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cached_property, singledispatch
from types import GeneratorType
from typing import Any, ClassVar, TypeAlias

import numpy as np

from zmqdata.elements.nesting import field_names, instance_of, tuple_of
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import (
    DataLossError,
    DescriptorShortageError,
    FailedPreconditionError,
    PipelineError,
    pipeline_error,
)
from zmqdata.failures.exceptions import text_of
from zmqdata.iterators.deciding import Deciding, is_loss, loss
from zmqdata.iterators.ownthreads import OwnThreads, Place, Strand
from zmqdata.iterators.permutation import Order
from zmqdata.iterators.quarantine import Quarantine
from zmqdata.iterators.watch import Watch
from zmqdata.machine.descriptors import is_shortage, remedy
from zmqdata.measures.meter import LoopMeter
from zmqdata.nodes.base import Node, lineage, source_nodes
from zmqdata.nodes.options import Options
from zmqdata.peeking import peek
from zmqdata.splits import SplitProvider, turn_of

CLOSED = "The iterator was closed while a thread waited for its element"
"""Text of the ``CancelledError`` that this thread gets. StopIteration would say that it
has had all elements.
"""
NO_STATE = "zmqdata: this iterator cannot say where it is"
"""Placeholder for the state of an iterator that cannot report one yet. A caller may
note it, but must refuse to save it.
"""


def holds_no_state(state: Any) -> bool:
    """Return True if a state, or a part of it, is missing.

    >>> holds_no_state([3, {"input": NO_STATE}]), holds_no_state([3, "text"])
    (True, False)
    """
    if isinstance(state, dict):
        return any(map(holds_no_state, state.values()))
    if isinstance(state, (list, tuple)):
        return any(map(holds_no_state, state))
    return isinstance(state, str) and state == NO_STATE


class Bookmark(ABC):
    """Stand-in for a state that is costly to compute: the caller that saves it asks for
    its ``plain`` values.

    A bookmark is cheap, so a caller may note it at any time. It can compute its state
    for as long as it is alive.
    """

    @abstractmethod
    def plain(self) -> Any:
        """Return the state: numbers, texts, bytes, lists and None."""


def holds_bookmark(state: Any) -> bool:
    """Return True if a state is a bookmark, or holds one.

    >>> holds_bookmark([1, {"input": None}])
    False
    """
    if isinstance(state, dict):
        return any(map(holds_bookmark, state.values()))
    if isinstance(state, (list, tuple)):
        return any(map(holds_bookmark, state))
    return isinstance(state, Bookmark)


def plain_state(state: Any) -> Any:
    """Return a copy of a state in which every bookmark is replaced by its plain values.

    >>> class Here(Bookmark):
    ...     def plain(self):
    ...         return "here"
    >>> plain_state([1, {"input": Here()}])
    [1, {'input': 'here'}]
    """
    if isinstance(state, dict):
        return {key: plain_state(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [plain_state(value) for value in state]
    return state.plain() if isinstance(state, Bookmark) else state


def is_end(error: BaseException) -> bool:
    """Return True if an iterator that raises this error has no further elements.

    Any other error stands for a single element.

    >>> is_end(StopIteration()), is_end(PipelineError("the function failed"))
    (True, False)
    """
    return isinstance(error, StopIteration) or getattr(error, "final", False) is True


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


class PassedOver(Exception):
    """Signals that a part of a source was skipped."""


Steps: TypeAlias = "GeneratorType[Any, None, object]"
END = object()
"""Returned by a generator of steps after the last element, and never by one that an
error has ended.
"""


def steps_of(step: Callable[[], Any]) -> Steps:
    """Yield what a function returns until it raises StopIteration; return ``END``
    then.
    """

    def steps() -> Generator[Any, None, object]:
        try:
            while True:
                yield step()
        except StopIteration:
            return END

    return steps()  # type: ignore[return-value]  # the type of all generators


class ElementIterator(ABC):
    """Executor of a node: yields its elements, saves its state, and resumes from it.

    After its end it raises ``StopIteration`` on every call. After a ``PipelineError``
    the next call returns the following element.

    An executor publishes that it runs by ``self._strand.place = self._own_place``: a
    source before it reads, any other after each pull of its input, which has published
    itself meanwhile. An executor that only passes elements on need not.

    Attributes:
        begun: number of parts, such as files, that a source has begun.
    """

    begun = 0
    # No values here: Python 3.11 is slow to read attributes that the class has, too.
    _strand: Strand
    _own_place: Place

    def _publish_in(self, context: Context) -> None:
        """Publish from now on what runs in the strand of a context."""
        self._strand, self._own_place = context.strand, context.seen_at

    @property
    def is_shareable(self) -> bool:
        """True if threads may call ``next`` and ``state`` at the same time."""
        return False

    @property
    def in_part(self) -> bool:
        """True if the part that a source began last is not finished, so that a failure
        concerns a single element.
        """
        return True

    def __iter__(self) -> ElementIterator:
        return self

    @abstractmethod
    def __next__(self) -> Any:
        """Return the next element."""

    def steps(self) -> Steps:
        """Return a generator that yields the next elements and then returns ``END``.

        The interpreter resumes a generator faster than it calls ``next`` of this
        object, and refuses to resume one that is running.
        """
        return steps_of(self.__next__)

    @abstractmethod
    def state(self) -> Any:
        """Return the position, as numbers, texts, bytes, lists and None.

        ``restore`` of an equal iterator continues here.
        """

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Continue where ``state`` was taken. Call it on a new iterator of the same
        node and context.
        """

    def rewind(self, repetition: int) -> bool:
        """Return to the beginning, for another repetition of the same node and context,
        at a fraction of the cost of a new iterator.

        Returns:
            False if it cannot. Its position is undefined then: close it, and create a
            new one.
        """
        return False

    def renew(self, context: Context) -> bool:
        """Return to the beginning, for the context of another nested dataset with the
        same node, see ``rewind``.
        """
        return False

    def pass_part(self, ahead: int) -> None:
        """Skip the rest of a part of a source, which failed in an earlier attempt,
        without reading it.

        Args:
            ahead: offset of the part: 0 is the part being read; 1 is the next part, if
                the current part yields nothing more; and so on.

        Raises:
            PassedOver: the part was skipped.
        """
        raise PassedOver(ahead)

    def current_split(self) -> tuple[int, int] | None:
        """Return the first and last index (exclusive) of the split that the last
        element came from; of a batch, the split of its last row.

        None if it is unknown: without a provider, and behind operations that hold
        elements back, run ahead, or read several sources at a time.
        """
        return None

    def namer(self) -> Namer | None:
        """Return a function that returns the name of the last element, which is the
        same in every reading of the pipeline; None if no element has a name.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most iterators hold no resources
        """Release threads and files. Idempotent."""


class InputIterator(ElementIterator):
    """Base of the iterators over an input: their splits and names are those of the
    input, and their state is that of the input, behind a few values of their own.
    """

    _input: ElementIterator
    _kept: ClassVar[tuple[str, ...]] = ()
    """Names of the attributes whose values its state holds."""

    def state(self) -> Any:
        if not self._kept:
            return self._input.state()
        values = [getattr(self, name) for name in self._kept]
        return [*values, self._input.state()]

    def restore(self, state: Any) -> None:
        if self._kept:
            *values, state = state
            for name, value in zip(self._kept, values, strict=True):
                setattr(self, name, value)
        self._input.restore(state)

    def current_split(self) -> tuple[int, int] | None:
        return self._input.current_split()

    def namer(self) -> Namer | None:
        return self._input.namer()

    def close(self) -> None:
        self._input.close()


class Stackable(ElementIterator):
    """Iterator whose elements are in memory already and can be taken many at a time."""

    @abstractmethod
    def next_stacked(self, count: int) -> tuple[int, Any]:
        """Return between 1 and ``count`` elements, stacked as ``batch`` stacks them:
        their number, and the stack.
        """

    def next_rows(self, count: int) -> list[Any]:
        """Return between 1 and ``count`` elements, as repeated calls of ``next`` would
        return them.
        """
        return rows_of(*self.next_stacked(count))


def rows_of(count: int, stacked: Any) -> list[Any]:
    """Return the elements of a stack. An array shares memory with the other rows only.

    >>> rows_of(2, {"x": np.zeros((2, 1)), "y": (np.ones((2, 1)),)})
    [{'x': array([0.]), 'y': (array([1.]),)}, {'x': array([0.]), 'y': (array([1.]),)}]
    """
    if isinstance(stacked, np.ndarray):
        return list(stacked)
    if isinstance(stacked, RaggedTensor):
        return [stacked[index] for index in range(count)]
    if stacked is None:
        return [None] * count
    names = field_names(type(stacked))
    if names is not None:
        columns = [rows_of(count, getattr(stacked, name)) for name in names]
        return [instance_of(type(stacked), names, row) for row in zip(*columns, strict=True)]
    if not stacked:  # an empty structure
        return [stacked.copy() if isinstance(stacked, dict) else stacked for _ in range(count)]
    parts = stacked.values() if isinstance(stacked, dict) else stacked
    rows = zip(*[rows_of(count, part) for part in parts], strict=True)
    if isinstance(stacked, dict):
        return [dict(zip(stacked, row, strict=True)) for row in rows]
    kind = type(stacked)
    return list(rows) if kind is tuple else [tuple_of(kind, row) for row in rows]


UNFIT = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""Exceptions that ``ElementIterator.restore`` raises, besides its own errors, for a
value that is not a state of such an iterator.
"""


class Restoring:
    """Coordinates iterators of the service that are about to be restored with the
    iterator that they replace.

    Args:
        give_way: ends the replaced iterator. A job cannot begin anew while a client
            reads it, and the replaced iterator is such a reader.

    Attributes:
        gave_way: True once ``give_way`` was called.
        checks: functions that wait until the job is known to be resumable, and raise
            the reason if it is not.
    """

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self.gave_way = False
        self.checks: list[Callable[[], None]] = []

    def make_way(self) -> None:
        """End the replaced iterator before its job begins anew."""
        if not self.gave_way:
            self.gave_way = True
            self._give_way()


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


def mixed_seed(*parts: int) -> int:
    """Return a seed of 63 bits that depends on every part and is the same on every
    machine.

    >>> mixed_seed(1, 2) == mixed_seed(1, 2), mixed_seed(1, 2) == mixed_seed(2, 1)
    (True, False)
    """
    text = ",".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@singledispatch
def make_iterator(node: Node, context: Context) -> ElementIterator:
    """Return an iterator that runs a node, positioned at its beginning.

    Any module can make a new kind of node runnable: apply
    ``@make_iterator.register(TheNode)`` to a class or function that takes
    ``(node, context)``.

    >>> from zmqdata.operations.sources import Range
    >>> [int(number) for number in make_iterator(Range(start=0, stop=3), Context())]
    [0, 1, 2]
    """
    raise TypeError(
        f"No iterator is registered for a {type(node).__name__}: register an iterator with "
        "make_iterator.register, and import the module that does so"
    )


CALLED_FOR = "zmqdata_called_for"
"""Attribute of an exception that names the items that a function was called for."""


def failure(
    node: Node, error: BaseException, called_for: str = ""
) -> PipelineError | DataLossError:
    """Return the error that wraps the exception of a user function; raise it ``from``
    that exception.

    Args:
        node: the node that the function belongs to.
        error: the exception.
        called_for: names the element that the function was called for, as in
            "batch 3"; "" if the error does not name it.
    """
    if is_loss(error):
        return loss(text_of(error))
    hint = ""
    if _is_wrong_call(error):
        hint = _ARGUMENTS_OF.get(node.operation, _ARGUMENTS)
    elif _wants_tensor(error):
        hint = _ARRAYS
    elif isinstance(error, StopIteration):
        hint = f"{text_of(error) and '; '}{_STOPPED}"
    elif is_shortage(error) and not isinstance(error, DescriptorShortageError):
        hint = f". {remedy('It')}"
    called_for = called_for or peek(error, CALLED_FOR, "")
    failed = f"failed for {called_for}" if called_for else "failed"
    return pipeline_error(error)(
        f"{node.label} {failed}: {type(error).__name__}: {text_of(error)}{hint}", node=node.label
    )


def beyond_int64(node: Node, number: int) -> PipelineError:
    """Return the error of an operation that has counted beyond the numbers of its
    elements; raise it ``from None``.
    """
    return PipelineError(
        f"{node.label} cannot count to {number}: np.int64 holds numbers from -2**63 to 2**63 - 1. "
        "Begin with a smaller `start`, or take() fewer elements",
        node=node.label,
    )


_ARGUMENTS = (
    ". A plain tuple is passed as separate arguments, as in `lambda x, y: ...`; any other "
    "element as a single argument"
)
_ARGUMENTS_OF = {
    "batch": ". collate_fn gets the list of the elements of a batch as its only argument",
    "scan": (
        ". scan_func gets the state and the element as two arguments, even if the element is a "
        "tuple"
    ),
    "group_by_reducer": (
        f"{_ARGUMENTS}. reduce_func gets the state and the element as two arguments, even if the "
        "element is a tuple"
    ),
}
"""Operations whose function is not called with an element alone."""
_ARRAYS = (
    ". Elements hold numpy arrays: a tensor or list that a function returns is an array for the "
    "next function. Do both steps in one function, or convert the array there"
)
_STOPPED = (
    "a function cannot end its dataset by StopIteration, which may be that of an inner next(). "
    "End it with take_while(), or pass a default as in next(values, None)"
)
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CALLERS = tuple(os.path.join(_ROOT, folder) for folder in ("iterators", "operations"))


def _is_wrong_call(error: BaseException) -> bool:
    """Return True if a function was called with arguments that it does not accept, and
    never ran.
    """
    trace = error.__traceback__
    if (
        not isinstance(error, TypeError)
        or trace is None
        or "positional argument" not in text_of(error)
    ):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return os.path.dirname(trace.tb_frame.f_code.co_filename) in _CALLERS


def _wants_tensor(error: BaseException) -> bool:
    """Return True if a function used an array of numpy as a tensor or list."""
    return isinstance(error, AttributeError) and isinstance(error.obj, np.ndarray)


def call(function: Callable[..., Any], element: Any) -> Any:
    """Call a user's function as tf.data does: a plain tuple is passed as separate
    arguments.

    >>> call(max, (2, 5)), call(len, {"a": 1})
    (5, 1)
    """
    return function(*element) if type(element) is tuple else function(element)
