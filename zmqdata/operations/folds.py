"""Operations that carry a running state of the user: scan and group_by_reducer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np

from zmqdata.blocks import copied
from zmqdata.elements.conversion import as_element
from zmqdata.elements.nesting import leaves_of
from zmqdata.elements.specs import UNKNOWN_CARDINALITY, spec_of
from zmqdata.failures.exceptions import FAILURES
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import call, failure
from zmqdata.iterators.carried import NotPlainError, RunningState, from_plain, to_plain
from zmqdata.iterators.context import Context, Namer
from zmqdata.iterators.element_maker import ElementMaker
from zmqdata.iterators.inference import first_element, spec_by_running
from zmqdata.iterators.inputs import UnaryIterator, followed
from zmqdata.iterators.results import as_index, state_and_output
from zmqdata.nodes.base import IN_LABEL, Applying, ByIdentity, Calling
from zmqdata.peeking import peek


@dataclass(frozen=True, kw_only=True, eq=False)
class Scan(ByIdentity, Applying):
    """Yields the second result of a function of a running state and the element; the
    first result is the next state.
    """

    initial_state: Any = field(repr=False)
    """State for the first element."""
    operation: ClassVar[str] = "scan"
    restoring: ClassVar[str] = (
        "repeats no work if its state consists of arrays, numbers and texts; otherwise runs "
        "everything again"
    )

    @property
    def state_bytes(self) -> int:
        sizes: list[int] = [peek(leaf, "nbytes", 8) for leaf in leaves_of(self.initial_state)]
        return 8 + sum(sizes) + 16 * len(sizes)


@dataclass(frozen=True)
class Reducer:
    """Functions with which ``group_by_reducer`` folds the elements of a key.

    >>> counter = Reducer(lambda key: 0, lambda count, element: count + 1, int)
    >>> counter.init_func(7)
    0

    As ``tf.data.experimental.Reducer``.
    """

    init_func: Callable[[Any], Any]
    """Makes the first state from a key."""
    reduce_func: Callable[[Any, Any], Any]
    """Makes the next state from a state and an element."""
    finalize_func: Callable[..., Any]
    """Makes the result from the last state; a plain tuple is passed as several
    arguments, as for ``map``.
    """

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not callable(value):
                raise TypeError(
                    f"{name} must be callable, got {value!r} of type {type(value).__name__}"
                )


@dataclass(frozen=True, kw_only=True)
class GroupByReducer(Calling):
    """Yields a result for each key, in ascending order: the fold of all elements of
    that key.
    """

    key_function: Callable[..., Any] = field(metadata=IN_LABEL)
    """Returns the key of an element."""
    reducer: Reducer
    """Folds the elements of a key."""
    operation: ClassVar[str] = "group_by_reducer"
    batch_rows: ClassVar[None] = None
    cardinality: ClassVar[int] = UNKNOWN_CARDINALITY
    restoring: ClassVar[str] = (
        "repeats no work if states consist of arrays, numbers and texts; otherwise folds "
        "everything again"
    )
    state_growth: ClassVar[str] = "the state of each key"


@make_iterator.register(Scan)
class ScanIterator(UnaryIterator):
    """Calls a function with its running state and each element; returns the second
    result, and keeps the first as the next state.

    The user's state is part of the iterator's state if it consists of arrays, numbers
    and texts in dicts and tuples. If it contains anything else, restoring runs the
    function again from the first element on.
    """

    _node: Scan

    def __init__(self, node: Scan, context: Context) -> None:
        super().__init__(node, context)
        self._function = followed(node, context, self._input, node.function)
        self._made = ElementMaker(node, context).element
        self._state = copied(node.initial_state)
        self._states = RunningState(node.initial_state, "scan_func")
        self._origin = self._input.state()
        self._pulled = 0

    def __next__(self) -> Any:
        self._pulled += 1
        element = next(self._input)
        self._strand.place = self._own_place
        try:
            state, output = state_and_output(self._function(self._state, element), self._made)
            if type(state) is not self._states.settled:
                self._states.check(state)
        except FAILURES as error:
            raise failure(self._node, error) from error
        self._state = state
        return output

    def rewind(self, repetition: int) -> bool:
        if not self._input.rewind(repetition):
            return False
        self._state = copied(self._node.initial_state)
        self._origin = self._input.state()
        self._pulled = 0
        return True

    def state(self) -> Any:
        try:
            return [to_plain(self._state), self._input.state()]
        except NotPlainError:
            return [None, self._origin, self._pulled]

    def restore(self, state: Any) -> None:
        carried, inner, *pulled = state
        self._input.restore(inner)
        if carried is not None:
            self._state = from_plain(carried)
            self._states.check(self._state)
            return
        for _ in range(pulled[0]):
            try:
                next(self)
            except StopIteration:
                break
            except Exception:  # noqa: S112 - the error was raised before the state was taken
                continue


@make_iterator.register(GroupByReducer)
class GroupByReducerIterator(UnaryIterator):
    """Folds its whole input before the first result, then returns the results in
    ascending order of keys.

    The user's states of all keys are part of the iterator's state if they consist of
    arrays, numbers and texts in dicts and tuples. If they contain anything else,
    restoring folds again from the first element on.
    """

    def __init__(self, node: GroupByReducer, context: Context) -> None:
        super().__init__(node, context)
        self._key_function = followed(node, context, self._input, partial(call, node.key_function))
        self._reducer = node.reducer
        self._made = ElementMaker(node, context).element
        self._states: dict[int, Any] = {}
        self._kinds: RunningState | None = None
        self._origin = self._input.state()
        self._pulled = 0
        self._ended = False
        # Plain states of all results, in order; set once the input has ended.
        self._carried: list[Any] | None = None

    def namer(self) -> Namer | None:
        return None  # results are folded from many elements

    def __next__(self) -> Any:
        while not self._ended:
            self._fold()
        if not self._states:
            raise StopIteration
        self._strand.place = self._own_place
        state = self._states.pop(next(iter(self._states)))
        try:
            return self._made(call(self._reducer.finalize_func, state))
        except FAILURES as error:
            raise failure(self._node, error) from error

    def _fold(self) -> None:
        try:
            element = next(self._input)
        except StopIteration:
            self._end()
            return
        finally:
            self._pulled += 1
        self._strand.place = self._own_place
        try:
            key = as_index(self._key_function(element), "key_func")
            before = (
                self._states[key] if key in self._states else self._reducer.init_func(np.int64(key))
            )
            if self._kinds is None:
                self._kinds = RunningState(before, "reduce_func", "init_func")
            state = as_element(self._reducer.reduce_func(before, element))
            self._kinds.check(state)
            self._states[key] = state
        except FAILURES as error:
            raise failure(self._node, error) from error

    def current_split(self) -> None:
        """Return None: results combine elements of all splits."""

    def _end(self) -> None:
        self._ended = True
        self._states = dict(sorted(self._states.items()))

    def state(self) -> Any:
        try:
            carried = self._carried
            if carried is None:
                carried = [[key, to_plain(state)] for key, state in self._states.items()]
                self._carried = carried if self._ended else None
            return [self._ended, carried[len(carried) - len(self._states) :], self._input.state()]
        except NotPlainError:
            return [self._ended, None, self._origin, self._pulled, len(self._states)]

    def restore(self, state: Any) -> None:
        ended, carried, inner, *again = state
        self._input.restore(inner)
        if carried is not None:
            self._ended = ended
            self._states = {key: from_plain(plain) for key, plain in carried}
            return
        pulled, left = again
        while self._pulled < pulled and not self._ended:
            with contextlib.suppress(Exception):
                # The error was raised before the state was taken.
                self._fold()
        while len(self._states) > left:
            del self._states[next(iter(self._states))]


@spec_by_running.register
def _(node: GroupByReducer, past_failures: bool) -> Any:
    # Of what the reducer makes of the first element alone.
    element, reducer = first_element(node.input), node.reducer
    try:
        initial = reducer.init_func(
            np.int64(as_index(call(node.key_function, element), "key_func"))
        )
        state = as_element(reducer.reduce_func(initial, element))
        RunningState(initial, "reduce_func", "init_func").check(state)
        return spec_of(as_element(call(reducer.finalize_func, state)))
    except Exception as error:
        raise failure(node, error) from error
