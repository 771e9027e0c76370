"""mix, and the datasets that it reads. Its choices belong to ``schedules``.

``choices.Choose`` takes the elements, as for ``sample_from_datasets``.

Decision 0057.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from zmqdata.elements.nesting import nesting_of
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context, Name, Namer
from zmqdata.iterators.inputs import dataset_iterator
from zmqdata.iterators.naming import grouped
from zmqdata.nodes.base import Infer, every_node, first_of, in_label
from zmqdata.nodes.parts import split_count
from zmqdata.operations.choices import Choose, ChooseIterator
from zmqdata.operations.repeat import ENDLESS, Repeat, counting
from zmqdata.operations.schedules import DueChoices, DueChoicesIterator

_log = logging.getLogger("zmqdata")


@dataclass(frozen=True, kw_only=True)
class Mix(Choose):
    """Takes each element from the input that is due. It may also read ended inputs
    again (``stop="all"``).
    """

    names: tuple[str, ...] = field(metadata=in_label(first_of))
    """Names of the inputs."""
    with_names: bool = False
    """True to yield pairs of a name and an element."""
    name: str = "mix"
    operation: ClassVar[str] = "mix"

    @property
    def state_bytes(self) -> int:
        return 8 + 60 * len(self.inputs)

    @property
    def cardinality(self) -> int:
        assert isinstance(self.choices, DueChoices)
        counts = [node.cardinality for node in self.inputs]
        weights = self.choices.weights
        if self.stop == "once" and all(min(rates) for _, rates in weights) and min(counts) >= 0:
            return sum(counts)
        endless = [count == INFINITE_CARDINALITY for count in counts]
        if self.stop == "first":
            read = map(any, zip(*[rates for _, rates in weights], strict=True))
            is_endless = all(one for one, is_read in zip(endless, read, strict=True) if is_read)
        else:
            is_endless = any(map(min, endless, weights[-1][1]))
        return INFINITE_CARDINALITY if is_endless else UNKNOWN_CARDINALITY

    def spec(self, infer: Infer) -> Any:
        spec = super().spec(infer)
        return (TensorSpec((), np.str_), spec) if self.with_names else spec


class MixedInput(ElementIterator):
    """A dataset that a mixture reads, once or again and again.

    A task reads it again from the splits that it had in the first pass: the providers
    go back to where they were.

    Args:
        node: the mixture.
        context: context of the mixture, with providers that count splits.
        index: number of the dataset.

    Attributes:
        found: True if it has had an element, or a failure.
        turn: number of complete passes.
    """

    def __init__(self, node: Choose, context: Context, index: int) -> None:
        self._node, self._context, self._index = node, context, index
        providers: Any = context.into(node, index).providers or ()
        self._providers: tuple[Any, ...] = providers
        self._origins = [one.state() for one in self._providers]
        # The providers may have given splits in earlier repetitions.
        self._given_before = -sum(one.given for one in providers)
        self.found, self.turn, self._found_now = False, 0, False
        self._input = self._made()

    def _made(self) -> ElementIterator:
        context = self._context.into(self._node, self._index)
        repetition = context.repetition
        if self._node.stop == "all":
            repetition = repetition * ENDLESS + self.turn
        # The end of a dataset that is repeated below concerns the mixture alone.
        context = context.changed(repetition=repetition, beside_others=self._context.beside_others)
        source = dataset_iterator(self._node.inputs[self._index], context)
        number = self._index + self.turn * len(self._node.inputs)
        self._naming = grouped(source, number)
        return source

    @property
    def given(self) -> int:
        """Number of splits that it was given."""
        given: int = self._given_before + sum(one.given for one in self._providers)
        return given

    @property
    def is_alone(self) -> bool:
        """True if no other task has read a part of the dataset."""
        node = self._node.inputs[self._index]
        if not self._providers or self._context.owns_all_splits:
            return True
        repeats = [one for one in every_node(node) if isinstance(one, Repeat)]
        if not repeats:
            return self.given == split_count(node)
        # An endless repeat ends only once it has had all splits again and again.
        is_shared = not self._context.owns_splits and split_count(node) is not None
        return is_shared and any(one.count < 0 for one in repeats)

    @property
    def given_text(self) -> str:
        """The number of splits that it was given, for a log."""
        given, count = self.given, split_count(self._node.inputs[self._index])
        if count is None or given > count:
            return f"{given} splits"
        return f"{given} of its {count} splits"

    def __next__(self) -> Any:
        try:
            element = next(self._input)
        except StopIteration:
            raise
        except Exception:
            self.found = self._found_now = True
            raise
        self.found = self._found_now = True
        return element

    def begin_again(self) -> bool:
        """Begin another pass. Return False if it would have no element."""
        if not self._found_now:
            return False
        self._input.close()
        for provider, origin in zip(self._providers, self._origins, strict=True):
            provider.restore(origin)
        self.turn, self._found_now = self.turn + 1, False
        self._input = self._made()
        return True

    def namer(self) -> Namer | None:
        return self._name if self._input.namer() is not None else None

    def _name(self) -> Name | None:
        return self._naming()

    def state(self) -> Any:
        providers = [
            [one.state(), [[list(path), origin] for path, origin in one.origins.items()]]
            for one in self._providers
        ]
        begun = [self.found, self.turn, self._found_now, self.given]
        origins = self._origins if self._node.stop == "all" else []
        return [begun, self._input.state(), providers, origins]

    def restore(self, state: Any) -> None:
        (self.found, self.turn, self._found_now, given), inner, providers, origins = state
        self._origins = origins or self._origins
        for provider, (_, places) in zip(self._providers, providers, strict=True):
            provider.origins.update((tuple(path), origin) for path, origin in places)
        if self.turn:
            self._input = self._made()
        for provider, (entries, _) in zip(self._providers, providers, strict=True):
            provider.restore(entries)
        self._given_before = given - sum(one.given for one in self._providers)
        self._input.restore(inner)

    def close(self) -> None:
        self._input.close()


@make_iterator.register(Mix)
class MixIterator(ChooseIterator):
    """Takes each element from the dataset that is due, and counts the elements of
    each.
    """

    _node: Mix
    _choices: DueChoicesIterator

    def __init__(self, node: Mix, context: Context) -> None:
        counted = context.providers and counting(context.providers)
        super().__init__(node, context.changed(providers=counted))
        self._counts, self._keys = context.counts, [f"mix/{name}" for name in node.names]
        self._names, self._task = node.names, context.task
        self._with_names = node.with_names
        self._nestings: dict[int, Any] = {}

    def _input_of(self, context: Context, index: int) -> MixedInput:
        return MixedInput(self._node, context, index)

    def _name(self) -> Name | None:
        source = self._inputs[self._chosen]
        namer = None if source is None else source.namer()
        return None if namer is None else namer()

    def __next__(self) -> Any:
        element = ChooseIterator.__next__(self)
        chosen = self._chosen
        if chosen not in self._nestings:
            self._check_nesting(chosen, element)
        self._counts.add(self._keys[chosen])
        return (self._names[chosen], element) if self._with_names else element

    def _check_nesting(self, chosen: int, element: Any) -> None:
        """Raise if the first elements of two datasets have different structures."""
        found = self._nestings[chosen] = nesting_of(element)
        other, expected = next(iter(self._nestings.items()))
        if found != expected:
            del self._nestings[chosen]
            raise _ended(
                f"{self._node.label} joins datasets whose elements have the same structure. Those "
                f"of `{self._names[other]}` are {expected}, and those of `{self._names[chosen]}` "
                f"are {found}. Make them alike in a map()"
            )

    def _leave(self, number: int, source: ElementIterator) -> None:
        assert isinstance(source, MixedInput)
        node = self._node
        if not source.found:
            self._tell_lack(number, source)
        if node.stop == "first":
            source.close()
            self._ended = True
        elif node.stop == "all" and self._has_read_all(number):
            self._ended = True
        elif node.stop == "all" and source.begin_again():
            self._choices.again(number)
        else:
            source.close()
            self._inputs[number] = None
            self._choices.leave(number)
        if self._ended:
            self._choices.end()

    def _has_read_all(self, number: int) -> bool:
        """Return True if each dataset was read once, now that another has ended."""
        return all(
            source is None
            or index == number
            or (isinstance(source, MixedInput) and source.turn > 0)
            or not self._choices.wants(index)
            for index, source in enumerate(self._inputs)
        )

    def _tell_lack(self, number: int, source: MixedInput) -> None:
        """Log that a task goes without a dataset.

        Raises:
            InvalidArgumentError: the dataset has no element at all.
        """
        name = self._names[number]
        if source.is_alone:
            raise _ended(
                f"{self._node.label}: the dataset `{name}` has no elements, so it cannot have its "
                "share. Look at its files and filters, or leave it out"
            )
        _log.warning(
            "%s: the dataset `%s` had no elements for task %d, which got %s. %s. For its "
            "share in every task, it needs more splits, such as files, than the job has tasks",
            self._node.label,
            name,
            self._task,
            source.given_text,
            'The task ends (stop="first")'
            if self._node.stop == "first"
            else "The other datasets share out its part",
        )


def _ended(text: str) -> InvalidArgumentError:
    error = InvalidArgumentError(text)
    error.final = True
    return error
