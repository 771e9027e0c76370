"""What all iterators have: the interface, the context that they run in, seeds, and
errors of user functions.

The executors are in the other modules of this package, one class per node, registered
with ``make_iterator``.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import numpy as np

from zmqdata.elements.ragged import RaggedTensor
from zmqdata.elements.specs import map_structure
from zmqdata.errors import DataLossError, FailedPreconditionError, PipelineError
from zmqdata.failures.exceptions import text_of
from zmqdata.iterators.deciding import Deciding, is_loss, loss
from zmqdata.iterators.watching import Watch
from zmqdata.nodes import Node, Options, source_nodes
from zmqdata.splits import SplitProvider, turn_of

NO_STATE = "zmqdata: this iterator cannot say where it is"
"""In place of a state, by iterators that have none yet. Others may note it; who saves a
state must refuse it.
"""


def holds_no_state(state: Any) -> bool:
    """Whether a state, or a part of it, is missing.

    >>> holds_no_state([3, {"input": NO_STATE}]), holds_no_state([3, "text"])
    (True, False)
    """
    if isinstance(state, dict):
        return any(map(holds_no_state, state.values()))
    if isinstance(state, (list, tuple)):
        return any(map(holds_no_state, state))
    return isinstance(state, str) and state == NO_STATE


class Bookmark(ABC):
    """In place of a state that is costly to work out: whoever saves it asks for its
    ``plain`` values.

    A bookmark is light and may be noted as often as wanted; while it is alive it can be
    asked.
    """

    @abstractmethod
    def plain(self) -> Any:
        """The state: numbers, texts, bytes, lists and None."""


def plain_state(state: Any) -> Any:
    """A state with all bookmarks in it worked out.

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
    """Whether an iterator that raises this has no further elements; else it stands for
    one of them.

    >>> is_end(StopIteration()), is_end(PipelineError("the function failed"))
    (True, False)
    """
    return isinstance(error, StopIteration) or getattr(error, "final", False) is True


class PassedOver(Exception):
    """A part of a source was left out."""


class ElementIterator(ABC):
    """Runs a node: yields its elements, can say where it is, and can go on from there.

    Once ended it raises ``StopIteration`` for ever. After a ``PipelineError`` the next
    call goes on with the following element.

    Attributes:
        begun: how many parts, as files, a source has begun.
    """

    begun = 0

    @property
    def in_part(self) -> bool:
        """Of a source: whether the part that it has begun last goes on; what fails then
        fails alone.
        """
        return True

    def __iter__(self) -> ElementIterator:
        return self

    @abstractmethod
    def __next__(self) -> Any:
        """The next element."""

    @abstractmethod
    def state(self) -> Any:
        """Where it is, as numbers, texts, bytes, lists and None: ``restore`` of an
        equal iterator continues here.
        """

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Continue where ``state`` was taken. To be called on a new iterator of the
        same node and context.
        """

    def pass_part(self, ahead: int) -> None:
        """Of a source: leaves out the rest of a part, which failed before, without
        reading it.

        Args:
            ahead: which one: 0 the one that is being read, 1 the next one, if this one
                gives nothing more, and so on.

        Raises:
            PassedOver: it was left out.
        """
        raise PassedOver(ahead)

    def current_split(self) -> tuple[int, int] | None:
        """First and last index (exclusive) of the split that the last element came
        from, of a batch its last row.

        None where nobody knows: without a provider, and behind what holds elements
        back, runs ahead, or reads several sources at a time.
        """
        return None

    def close(self) -> None:  # noqa: B027 - most iterators hold nothing that has to be given back
        """Give back threads and files. Idempotent."""


class Stackable(ElementIterator):
    """An iterator whose elements lie in memory already and can be had many at a
    time.
    """

    @abstractmethod
    def next_stacked(self, count: int) -> tuple[int, Any]:
        """At least one and up to ``count`` elements, stacked as ``batch`` would: their
        number, and they.
        """

    def next_rows(self, count: int) -> list[Any]:
        """At least one and up to ``count`` elements, as ``next`` would give them one by
        one.
        """
        return rows_of(*self.next_stacked(count))


def rows_of(count: int, stacked: Any) -> list[Any]:
    """The elements that were stacked; arrays share memory with nothing but their
    neighbours' rows.

    >>> rows_of(2, {"x": np.zeros((2, 1)), "y": (np.ones((2, 1)),)})
    [{'x': array([0.]), 'y': (array([1.]),)}, {'x': array([0.]), 'y': (array([1.]),)}]
    """
    if isinstance(stacked, np.ndarray):
        return list(stacked)
    if isinstance(stacked, RaggedTensor):
        return [stacked[index] for index in range(count)]
    parts = stacked.values() if isinstance(stacked, dict) else stacked
    rows = zip(*[rows_of(count, part) for part in parts], strict=True)
    if isinstance(stacked, dict):
        return [dict(zip(stacked, row, strict=True)) for row in rows]
    kind = type(stacked)
    return list(rows) if kind is tuple else [tuple.__new__(kind, row) for row in rows]


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
"""What ``ElementIterator.restore`` raises, beside its own errors, of what is no state
of such an iterator.
"""


class Restoring:
    """What iterators of the service that are about to be restored have to do with the
    one in whose place they come.

    Args:
        give_way: ends that one. Nobody begins a job anew while somebody reads it, not
            even we ourselves.

    Attributes:
        gave_way: whether it has come to that.
        checks: wait until it is known whether there is anything to go on with, and
            raise why not.
    """

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self.gave_way = False
        self.checks: list[Callable[[], None]] = []

    def make_way(self) -> None:
        """Before a job is begun anew."""
        if not self.gave_way:
            self.gave_way = True
            self._give_way()


@dataclass(frozen=True)
class Context:
    """What a pipeline runs in. With the same context, the same elements come in the
    same order.

    Attributes:
        seed: of the task, or of one local iterator.
        repetition: how often the pipeline, or the part under a ``repeat``, has been
            through.
        providers: where the sources get their splits from, left to right; None: each
            source reads all of itself.
        iteration: counts the iterators made of one dataset, or the repetitions of a
            job, so that fixed seeds reshuffle for each of them.
        fixed_seed: of what stays the same in all iterations (shuffle without
            reshuffle_each_iteration).
        shared_seed: takes the place of both where all tasks of an iteration must draw
            the same, because they read parts of one whole; None: there are no others.
        path: the place of the node in the tree.
        options: of the pipeline as a whole, see ``zmqdata.nodes.options_of``.
        quarantine: where operations note the elements that they left out; the newest
            1000.
        watch: where they note which element they are at; None: nobody wants to know.
        deciding: where operations write down which elements they leave out, and which
            not; None: nobody will make them again.
        forgiving: whether an operation further on leaves out what fails.
        restoring: None, unless iterators are made in order to be restored: those of the
            service do not begin then.
        nest: the place of the dataset of which this one was made by a function of an
            element; "": of none.
    """

    seed: int = 0
    repetition: int = 0
    providers: tuple[SplitProvider, ...] | None = None
    iteration: int = 0
    fixed_seed: int = 0
    shared_seed: int | None = None
    path: tuple[int, ...] = ()
    options: Options = field(default_factory=Options)
    quarantine: deque[Any] = field(
        default_factory=lambda: deque(maxlen=1000), compare=False, repr=False
    )
    watch: Watch | None = field(default=None, compare=False, repr=False)
    nest: str = ""
    restoring: Restoring | None = field(default=None, compare=False, repr=False)
    deciding: Deciding | None = field(default=None, compare=False, repr=False)
    forgiving: bool = False

    @property
    def forgives(self) -> bool:
        """Whether what fails has to fail again when somebody makes the elements
        again.
        """
        return self.forgiving and self.deciding is not None

    @property
    def place(self) -> str:
        """The place of the node in words: the same in every attempt of a task, and of
        no other node.

        >>> Context(path=(0, 1)).place, Context(path=(0,)).nested(7).place, Context(path=(0,)).repeated(2).place
        ('/0.1', '/0[7]/', '/0 in repetition 2')
        """
        turn = f" in repetition {self.repetition}" if self.repetition else ""
        return f"{self.nest}/{'.'.join(map(str, self.path))}{turn}"

    @property
    def turn(self) -> int:
        """The repetition over all iterations: what a reshuffling node mixes into its
        seed.
        """
        return turn_of(self.iteration, self.repetition)

    def provider(self) -> SplitProvider | None:
        """The provider of a source.

        Raises:
            FailedPreconditionError: not exactly one provider came down to it.
        """
        if self.providers is None:
            return None
        if len(self.providers) != 1:
            raise FailedPreconditionError(
                f"a source needs one split provider and got {len(self.providers)}: the number of "
                "providers must be the "
                "number of sources of the pipeline, see zmqdata.nodes.split_sources"
            )
        return self.providers[0]

    def into(self, node: Node, index: int = 0) -> Context:
        """The context of one input of a node: its own part of the providers."""
        providers = self.providers
        if providers is not None and len(node.inputs) > 1:
            first = sum(len(source_nodes(before)) for before in node.inputs[:index])
            last = (
                len(providers)
                if index == len(node.inputs) - 1
                else first + len(source_nodes(node.inputs[index]))
            )
            providers = providers[first:last]
        return replace(self, providers=providers, path=(*self.path, index))

    def nested(self, number: int) -> Context:
        """The context of the dataset that a function made of element ``number``: it
        reads all of its sources.
        """
        place = (*self.path, number)
        seeds = mixed_seed(self.seed, *place), mixed_seed(self.fixed_seed, *place)
        inside = replace(
            self, nest=f"{self.place}[{number}]", path=(), shared_seed=None, providers=None
        )
        return replace(inside, seed=seeds[0], fixed_seed=seeds[1])

    def repeated(self, repetition: int) -> Context:
        """The same, for another repetition."""
        return replace(self, repetition=repetition)


def mixed_seed(*parts: int) -> int:
    """A seed of 63 bits in which every part counts, the same on every machine.

    >>> mixed_seed(1, 2) == mixed_seed(1, 2), mixed_seed(1, 2) == mixed_seed(2, 1)
    (True, False)
    """
    text = ",".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1


@singledispatch
def make_iterator(node: Node, context: Context) -> ElementIterator:
    """An iterator that runs a node, at its beginning.

    A new kind of node is made runnable from anywhere with
    ``@make_iterator.register(TheNode)`` on a class or function that takes
    ``(node, context)``.

    >>> from zmqdata.nodes import Range
    >>> [int(number) for number in make_iterator(Range(start=0, stop=3), Context())]
    [0, 1, 2]
    """
    raise TypeError(
        f"there is no iterator for a {type(node).__name__}: register one with "
        "make_iterator.register, and import the "
        "module that does so"
    )


def failure(node: Node, error: BaseException) -> PipelineError | DataLossError:
    """What a user function's exception comes out as; to be raised ``from`` it."""
    if is_loss(error):
        return loss(text_of(error))
    hint = _ARGUMENTS if _is_wrong_call(error) else ""
    return PipelineError(
        f"{node.label} failed: {type(error).__name__}: {text_of(error)}{hint}", node=node.label
    )


_ARGUMENTS = ". An element that is a plain tuple comes as separate arguments, as lambda x, y takes; any other as one"
_HERE = os.path.dirname(os.path.abspath(__file__))


def _is_wrong_call(error: BaseException) -> bool:
    """Whether a function could not take what it was called with, and did not come to
    run.
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
    return os.path.dirname(trace.tb_frame.f_code.co_filename) == _HERE


def call(function: Callable[..., Any], element: Any) -> Any:
    """Call a user's function as tf.data does: a plain tuple becomes its arguments.

    >>> call(max, (2, 5)), call(len, {"a": 1})
    (5, 1)
    """
    return function(*element) if type(element) is tuple else function(element)


FINISHED = frozenset({np.dtype(code).type for code in "?bhilqBHILQefdgFDG"}) | frozenset(
    {np.ndarray, RaggedTensor, np.str_, int, float, bool, complex, str, bytes, type(None)}
)
"""Types in which no list can hide."""


def as_element(value: Any) -> Any:
    """What a user's function returned, as an element: lists become arrays, at any
    depth.

    >>> as_element({"x": [1, 2], "y": 3})
    {'x': array([1, 2]), 'y': 3}
    """
    kind = type(value)
    if kind in FINISHED:
        return value
    if kind is dict:
        return (
            value
            if _all_finished(value.values())
            else {key: as_element(part) for key, part in value.items()}
        )
    if kind is tuple:
        return value if _all_finished(value) else tuple([as_element(part) for part in value])
    return map_structure(_list_as_array, value)


def _list_as_array(leaf: Any) -> Any:
    if not isinstance(leaf, list):
        return leaf
    try:
        return np.asarray(leaf)
    except ValueError as error:
        raise ValueError(
            f"a list whose items differ in shape makes no array ({error}): return "
            "RaggedTensor.from_rows(...), or "
            "pad them; a tuple if they are several parts of an element"
        ) from None


def _all_finished(parts: Iterable[Any]) -> bool:
    for part in parts:  # a loop, as it is several times faster than all() of a generator  # noqa: SIM110
        if type(part) not in FINISHED:
            return False
    return True
