"""Checks of pipelines, of ours and of those built on them: that restoring at every step
continues exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from zmqdata.elements.ragged import RaggedTensor
from zmqdata.iterators import Context, ElementIterator, make_iterator
from zmqdata.nodes import Node

MAX_STEPS = 200
_SHOWN = 400


class NotResumable(AssertionError):
    """An iterator did not continue as it should have; the text says after which step,
    and what came instead.
    """


def plain(value: Any) -> Any:
    """An element in a form that ``==`` compares as a whole: arrays by dtype, shape and
    content.

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
    node = getattr(value, "node", None)
    if isinstance(node, Node):  # an element that is a dataset
        return (type(value).__name__, *run(node))
    return (type(value).__name__, repr(value) if isinstance(value, float) else value)


def _comparable(array: Any) -> Any:
    if array.dtype.kind == "O":
        return [plain(item) for item in array.ravel().tolist()]
    # Two NaN are not equal, their texts are
    return (
        repr(array.tolist())
        if array.dtype.kind in "fc" and np.isnan(array).any()
        else array.tolist()
    )


def outcomes(iterator: Iterator[Any]) -> Iterator[Any]:
    """Elements and failures in order, as values that can be compared."""
    while True:
        try:
            yield plain(next(iterator))
        except StopIteration:
            return
        except Exception as error:
            yield ("raised", type(error).__name__, str(error))


def run(node: Node, context: Context | None = None, limit: int = MAX_STEPS) -> list[Any]:
    """What a new iterator over a node does, up to ``limit`` elements."""
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

    Also checks that two runs are equal, that states are plain values, that taking them
    disturbs nothing, and that an iterator stays ended. Functions are called very often:
    make the pipeline small.

    Args:
        dataset: a ``Dataset`` or a node.
        context: makes the context of each run, equal each time.
        limit: how many elements to look at, for pipelines that are long or endless.

    Returns:
        What came, as ``plain`` values; a failure as ``("raised", class, text)``.

    Raises:
        NotResumable: a restored iterator went on differently.

    >>> from zmqdata.dataset import Dataset
    >>> len(check_iterator(Dataset.range(20).shuffle(5).batch(2)))
    10

    Ours.
    """
    node = dataset if isinstance(dataset, Node) else getattr(dataset, "node", None)
    if not isinstance(node, Node):
        raise TypeError(
            f"check_iterator() takes a Dataset or a node, got a {type(dataset).__name__}"
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
            _compare(list(outcomes(iterator)), [], "an ended iterator went on")
            states.append(_encoded(iterator))
    finally:
        iterator.close()
    return states


def _encoded(iterator: ElementIterator) -> bytes:
    try:
        return msgspec.msgpack.encode(iterator.state())
    except TypeError as error:
        raise NotResumable(
            f"state() of {type(iterator).__name__} holds more than plain values: {error}"
        ) from error


def _check_step(node: Node, context: Context, state: bytes, expected: list[Any], step: int) -> None:
    restored = make_iterator(node, context)
    try:
        restored.restore(msgspec.msgpack.decode(state))
        _encoded(restored)
        seen = list(islice(outcomes(restored), len(expected)))
        _compare(seen, expected, f"restored after step {step}, it goes on differently")
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
        f"{fault}: at place {place} came {_at(seen, place)}, expected {_at(expected, place)}"
    )


def _at(outcomes: list[Any], place: int) -> str:
    return repr(outcomes[place])[:_SHOWN] if place < len(outcomes) else "the end"
