"""Facts about ``zmqdata.testing.iterators``."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.sources import Range, RangeIterator
from zmqdata.testing import NotResumable, check_iterator
from zmqdata.testing.iterators import plain


def broken(kind: type[RangeIterator]) -> Node:
    """Return a node of a new class, whose executor has a fault."""

    class Broken(Range):
        """A node with a counting fault."""

    make_iterator.register(Broken)(kind)
    return Broken(start=0, stop=4)


class Forgets(RangeIterator):
    def restore(self, state: Any) -> None:
        self._next = 0


class Disturbs(RangeIterator):
    def state(self) -> Any:
        self._next += 1
        return self._next


class KeepsElements(RangeIterator):
    def state(self) -> Any:
        return np.int64(self._next)


class GoesOn(RangeIterator):
    def __next__(self) -> Any:
        if self._next >= self._stop:
            self._stop += 1
            raise StopIteration
        return super().__next__()


class EndsEarly(RangeIterator):
    def restore(self, state: Any) -> None:
        self._next = 4


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Forgets, "restored after step 1, .* outcome at place 0 is .*0.*, expected .*1"),
        (Disturbs, "state taken after each element"),
        (KeepsElements, "more than plain values"),
        (GoesOn, "an ended iterator continued"),
        (EndsEarly, "is the end"),
    ],
)
def test_faults_are_found(kind: type[RangeIterator], text: str) -> None:
    """The check reports each way in which an iterator does not resume, with the step
    and the element.
    """
    with pytest.raises(NotResumable, match=text):
        check_iterator(broken(kind))


def test_a_run_that_depends_on_more_than_its_seed_is_found() -> None:
    """A function with a memory makes the second run differ from the first."""
    numbers = count()
    with pytest.raises(NotResumable, match="second run"):
        check_iterator(Dataset.range(3).map(lambda x: next(numbers)))


def test_what_came_is_returned() -> None:
    """The check returns elements and failures in order, endless pipelines up to the
    limit; the context is the caller's.
    """
    assert check_iterator(Dataset.range(2).map(lambda x: 1 // int(x)))[0][:2] == (
        "raised",
        "PipelineError",
    )
    assert len(check_iterator(Dataset.range(2).repeat(), limit=7)) == 7
    orders = [
        check_iterator(Dataset.range(9).shuffle(9), context=lambda n=n: Context(seed=n))
        for n in range(2)
    ]
    assert orders[0] != orders[1]


def test_elements_compare_by_type_and_content() -> None:
    """Dtypes, shapes and kinds count; two NaN are equal; a dataset compares by its
    elements.
    """
    different = [
        1,
        True,
        1.0,
        np.int64(1),
        np.array(1),
        np.array([1]),
        "1",
        (1,),
        {"a": 1},
        Dataset.range(1),
        None,
    ]
    assert len({str(plain(value)) for value in different}) == len(different)
    assert plain(np.array([Dataset.range(1), None])) == plain(np.array([Dataset.range(1), None]))
    assert plain((float("nan"), np.array([np.nan]))) == plain((float("nan"), np.array([np.nan])))
    assert plain(Dataset.range(2)) == plain(Dataset.range(2))


def test_only_pipelines_are_checked() -> None:
    """The check refuses a value that is not a pipeline, and names it."""
    with pytest.raises(TypeError, match="needs a Dataset or a node, got a list"):
        check_iterator([1, 2])
