"""Operations with several inputs: zip and concatenate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from zmqdata.elements.nesting import leaves_of, map_structure, nesting_of
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, merge_joined_specs
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context, Name, Namer, subgroup
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.naming import grouped
from zmqdata.iterators.random_access import element_at, element_of_uncounted, name_at, out_of_range
from zmqdata.nodes.base import NOTHING_AGAIN, Infer, Node, source_nodes
from zmqdata.splits import SplitProvider


@dataclass(frozen=True, kw_only=True)
class Zip(Node):
    """Joins an element of each input; ends with the shortest input."""

    template: Any
    """Nesting of the result, with the number of an input at each leaf."""
    operation: ClassVar[str] = "zip"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        if UNKNOWN_CARDINALITY in counts:
            return UNKNOWN_CARDINALITY
        return min((count for count in counts if count >= 0), default=INFINITE_CARDINALITY)

    def spec(self, infer: Infer) -> Any:
        specs = [infer(node) for node in self.inputs]
        return map_structure(lambda number: specs[number], self.template)


@dataclass(frozen=True, kw_only=True)
class Concatenate(Node):
    """Yields the elements of each input in turn."""

    operation: ClassVar[str] = "concatenate"
    restoring: ClassVar[str] = NOTHING_AGAIN

    @property
    def cardinality(self) -> int:
        counts = [node.cardinality for node in self.inputs]
        for endless in (INFINITE_CARDINALITY, UNKNOWN_CARDINALITY):
            if endless in counts:
                return endless
        return sum(counts)

    def spec(self, infer: Infer) -> Any:
        specs = map(infer, self.inputs)
        return merge_joined_specs(specs, lambda: [node.cardinality for node in self.inputs])


@make_iterator.register(Zip)
class ZipIterator(ElementIterator):
    """Joins an element of each input. An element that fails leaves the inputs
    aligned.

    When an input ends, the others are asked once more, as in tf.data: caches of equal
    length are then complete. What they return or raise then belongs to no element.
    """

    def __init__(self, node: Zip, context: Context) -> None:
        self._publish_in(context)
        self._inputs = [input_iterator(node, context, index) for index in range(len(node.inputs))]
        self._nesting, self._order = nesting_of(node.template), leaves_of(node.template)
        # A namedtuple also equals a tuple, so the type is compared.
        self._plain = type(node.template) is tuple and node.template == tuple(
            range(len(node.inputs))
        )
        self._ended = False

    def namer(self) -> Namer | None:
        namers = (source.namer() for source in self._inputs)
        return next((namer for namer in namers if namer is not None), None)

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        elements = self._pull()
        self._strand.place = self._own_place
        if self._plain:
            return tuple(elements)
        return self._nesting.unflatten([elements[number] for number in self._order])

    def _pull(self) -> list[Any]:
        elements, failed = [], None
        for source in self._inputs:
            try:
                elements.append(next(source))
            except StopIteration:
                self._ended = True
            except Exception as error:
                if not self._ended:
                    failed = failed or error
        if failed is not None:
            # The error of an earlier input is raised first, and the end on the next
            # call.
            raise failed
        if self._ended:
            raise StopIteration
        return elements

    def rewind(self, repetition: int) -> bool:
        self._ended = False
        for source in self._inputs:  # noqa: SIM110 - twice as fast as all() of a generator
            if not source.rewind(repetition):
                return False
        return True

    def state(self) -> Any:
        return [self._ended, [source.state() for source in self._inputs]]

    def restore(self, state: Any) -> None:
        self._ended, states = state
        for source, inner in zip(self._inputs, states, strict=True):
            source.restore(inner)

    def close(self) -> None:
        for source in self._inputs:
            source.close()


@make_iterator.register(Concatenate)
class ConcatenateIterator(ElementIterator):
    """Runs its inputs in order; creates each when its turn comes.

    With providers, its state also holds the states of the providers of later inputs. An
    iterator above may restore an older state of this iterator, from before those inputs
    began.
    """

    def __init__(self, node: Concatenate, context: Context) -> None:
        self._node, self._context = node, context
        self._index = 0
        self._input = input_iterator(node, context)
        self._ended: dict[int, ElementIterator] = {}  # of an earlier repetition
        self._naming = grouped(self._input, 0)
        self._found = False  # True if the last element came from this input
        self._last_name: Name | None = None  # of the last element of earlier inputs

    def __next__(self) -> Any:
        while True:
            try:
                element = next(self._input)
            except StopIteration:
                if self._index + 1 == len(self._node.inputs):
                    raise
            else:
                self._found = True
                return element
            self._last_name, self._found = self._name(), False
            self._input.close()
            self._enter(self._index + 1)

    def _enter(self, index: int) -> None:
        self._ended[self._index] = self._input
        self._index = index
        kept = self._ended.get(index)
        if kept is not None and kept.rewind(self._context.repetition):
            self._input = kept
        else:
            self._input = input_iterator(self._node, self._context, index)
        self._naming = grouped(self._input, index)

    def rewind(self, repetition: int) -> bool:
        self._input.close()
        self._context = self._context.repeated(repetition)
        self._enter(0)
        self._found, self._last_name = False, None
        return True

    def namer(self) -> Namer | None:
        return self._name

    def _name(self) -> Name | None:
        return self._naming() if self._found else self._last_name

    def _waiting(self, index: int) -> tuple[SplitProvider, ...]:
        """Return the providers of the inputs behind input ``index``."""
        if self._context.providers is None:
            return ()
        begun = sum(len(source_nodes(source)) for source in self._node.inputs[: index + 1])
        return self._context.providers[begun:]

    def state(self) -> Any:
        waiting = [provider.state() for provider in self._waiting(self._index)]
        return [self._index, self._input.state(), *waiting]

    def restore(self, state: Any) -> None:
        index, inner, *waiting = state
        if index != self._index:
            self._enter(index)
        for provider, entries in zip(self._waiting(index), waiting, strict=True):
            provider.restore(entries)
        self._input.restore(inner)

    def current_split(self) -> tuple[int, int] | None:
        return self._input.current_split()

    def close(self) -> None:
        self._input.close()


@element_at.register
def _(node: Concatenate, index: int) -> Any:
    for source in node.inputs[:-1]:
        count = source.cardinality
        if count < 0:
            return element_of_uncounted(source, index)
        if index < count:
            return element_at(source, index)
        index -= count
    return element_at(node.inputs[-1], index)


@element_at.register
def _(node: Zip, index: int) -> Any:
    count = min([one.cardinality for one in node.inputs if one.cardinality >= 0], default=-1)
    if 0 <= count <= index:  # also if the number of elements of another input is unknown
        raise out_of_range(node, index, count)
    elements = [element_at(source, index) for source in node.inputs]
    return map_structure(lambda number: elements[number], node.template)


@name_at.register
def _(node: Concatenate, index: int) -> Name:
    for number, source in enumerate(node.inputs):
        count = source.cardinality
        if count < 0 or index < count or number + 1 == len(node.inputs):
            group, position = name_at(source, index)
            return subgroup(group, number), position
        index -= count
    raise IndexError(index)
