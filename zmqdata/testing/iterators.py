"""Checks of pipelines and of operations built on them: restoring at every step
continues exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from zmqdata.elements.nesting import field_names
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node

MAX_STEPS = 200
"""Default limit of elements."""
_SHOWN = 400


class NotResumable(AssertionError):
    """Raised if a restored iterator continues differently. The text names the step and
    the difference.
    """


def plain(value: Any) -> Any:
    """Return an element in a form that ``==`` compares as a whole: arrays by dtype,
    shape and content.

    >>> plain((1, np.array([True])))
    ('tuple', ('int', 1), ('ndarray', 'bool', (1,), [True]))
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return (type(value).__name__, str(value.dtype), value.shape, _comparable(value))
    if isinstance(value, RaggedTensor):
        return ("RaggedTensor", plain(value.values), plain(value.row_splits))
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, *map(plain, value))
    names = field_names(type(value))
    if names is not None:
        return (type(value).__name__, *[plain(getattr(value, name)) for name in names])
    node = getattr(value, "node", None)
    if isinstance(node, Node):  # the element is a dataset
        return (type(value).__name__, *run(node))
    return (type(value).__name__, repr(value) if isinstance(value, float) else value)


def _comparable(array: Any) -> Any:
    if array.dtype.kind == "O":
        return [plain(item) for item in array.ravel().tolist()]
    # Two NaN are not equal, but their texts are.
    return (
        repr(array.tolist())
        if array.dtype.kind in "fc" and np.isnan(array).any()
        else array.tolist()
    )


def outcomes(iterator: Iterator[Any]) -> Iterator[Any]:
    """Yield elements and failures in order, as comparable values."""
    while True:
        try:
            yield plain(next(iterator))
        except StopIteration:
            return
        except Exception as error:
            yield ("raised", type(error).__name__, str(error))


def run(node: Node, context: Context | None = None, limit: int = MAX_STEPS) -> list[Any]:
    """Return the outcomes of a new iterator over a node, up to ``limit`` elements."""
    iterator = make_iterator(node, context or Context(seed=7))
    try:
        return list(islice(outcomes(iterator), limit))
    finally:
        iterator.close()


def check_iterator(
    dataset: Any,
    *,
    context: Callable[[], Context] = lambda: Context(seed=7),
    limit: int = MAX_STEPS,
) -> list[Any]:
    """Run a pipeline, restore it at every step, and compare what follows.

    Users of the library test with it that their pipelines and their own operations
    resume exactly.

    Also checks that two runs are equal, that states are plain values, that taking them
    disturbs nothing, and that an iterator stays ended. Functions are called very often,
    so the pipeline should be small.

    Has no counterpart in tf.data.

    Args:
        dataset: a ``Dataset`` or a node.
        context: makes the context of each run, equal each time.
        limit: number of elements to look at, for pipelines that are long or endless.

    Returns:
        The outcomes as ``plain`` values. A failure is ``("raised", class, text)``.

    Raises:
        NotResumable: a restored iterator continued differently.

    >>> from zmqdata.dataset import Dataset
    >>> len(check_iterator(Dataset.range(20).shuffle(5).batch(2)))
    10
    """
    node = dataset if isinstance(dataset, Node) else getattr(dataset, "node", None)
    if not isinstance(node, Node):
        raise TypeError(
            f"`check_iterator` needs a Dataset or a node, got a {type(dataset).__name__}"
        )
    expected = run(node, context(), limit)
    for step, state in enumerate(_states(node, context, expected, limit)):
        _check_step(node, context(), state, expected[min(step, len(expected)) :], step)
    return expected


def _states(
    node: Node, context: Callable[[], Context], expected: list[Any], limit: int
) -> list[bytes]:
    iterator = make_iterator(node, context())
    try:
        following = outcomes(iterator)
        states, seen = [_encoded(iterator)], []
        for outcome in islice(following, limit):
            seen.append(outcome)
            states.append(_encoded(iterator))
        _compare(
            seen,
            expected,
            "a second run, with its state taken after each element, differs from the first",
        )
        if len(expected) < limit:
            _compare(list(outcomes(iterator)), [], "an ended iterator continued")
            states.append(_encoded(iterator))
    finally:
        iterator.close()
    return states


def _encoded(iterator: ElementIterator) -> bytes:
    try:
        return msgspec.msgpack.encode(iterator.state())
    except TypeError as error:
        raise NotResumable(
            f"state() of {type(iterator).__name__} contains more than plain values: {error}"
        ) from error


def _check_step(node: Node, context: Context, state: bytes, expected: list[Any], step: int) -> None:
    restored = make_iterator(node, context)
    try:
        restored.restore(msgspec.msgpack.decode(state))
        _encoded(restored)
        seen = list(islice(outcomes(restored), len(expected)))
        _compare(seen, expected, f"restored after step {step}, it continues differently")
    finally:
        restored.close()


def _compare(seen: list[Any], expected: list[Any], fault: str) -> None:
    if seen == expected:
        return
    same = next(
        (i for i, pair in enumerate(zip(seen, expected, strict=False)) if pair[0] != pair[1]), None
    )
    place = min(len(seen), len(expected)) if same is None else same
    raise NotResumable(
        f"{fault}: the outcome at place {place} is {_at(seen, place)}, expected "
        f"{_at(expected, place)}"
    )


def _at(outcomes: list[Any], place: int) -> str:
    return repr(outcomes[place])[:_SHOWN] if place < len(outcomes) else "the end"
