"""Tests of ``zmqdata.operations.combinations``."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, provided
from tests.nodes.samples import INT, STR, empty, endless, infer, slices, ten, unknown
from zmqdata.elements.specs import INFINITE_CARDINALITY as INFINITE
from zmqdata.elements.specs import UNKNOWN_CARDINALITY as UNKNOWN
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import UnavailableError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.cache import Cache
from zmqdata.operations.combinations import Concatenate, Zip
from zmqdata.operations.files import TextLines
from zmqdata.operations.mapping import Map
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator, Range, Tensors


def count(start: int, stop: int) -> Range:
    return Range(start=start, stop=stop)


def pairs(*inputs: Node) -> Zip:
    return Zip(inputs=inputs, template=tuple(range(len(inputs))))


def numbers(read: list[Any]) -> list[Any]:
    """Outcomes as ints, and tuples of ints, for comparison."""
    return [
        outcome[3] if outcome[0] == "int64" else tuple(part[3] for part in outcome[1:])
        for outcome in read
    ]


def test_zip_ends_with_the_shortest() -> None:
    """Elements are plain tuples, as many as the shortest input has."""
    read = check_restore(pairs(count(0, 5), count(7, 9)))
    assert numbers(read) == [(0, 7), (1, 8)]


def test_zip_follows_its_template() -> None:
    """Datasets in a nesting yield elements of that nesting."""
    node = Zip(inputs=(count(0, 2), count(5, 7)), template={"a": (1,), "b": 0})
    assert check_restore(node)[1] == plain({"a": (np.int64(6),), "b": np.int64(1)})


def test_a_failure_does_not_put_inputs_out_of_step() -> None:
    """If an input fails, the others advance as well, and the first failure is
    raised.
    """
    failing = Map(inputs=(count(0, 4),), function=lambda x: 1 // (int(x) - 1))
    read = check_restore(pairs(count(0, 4), failing, failing))
    assert [outcome[0] for outcome in read] == ["tuple", "raised", "tuple", "tuple"]
    assert read[2][1] == plain(np.int64(2))


def test_a_failure_comes_before_the_end_of_a_later_input() -> None:
    """A failing input raises its failure even if a later input ends, and the end
    follows.
    """
    failing = Map(inputs=(count(0, 4),), function=lambda x: 1 // (int(x) - 1))
    assert [outcome[0] for outcome in check_restore(pairs(failing, count(0, 1)))] == [
        "tuple",
        "raised",
    ]
    assert [outcome[0] for outcome in check_restore(pairs(count(0, 1), failing))] == ["tuple"]


def test_each_input_is_asked_as_often_as_the_others() -> None:
    """When an input ends, zip asks the others once more, as tf.data does, and never
    again.
    """
    asked: list[int] = []

    def noted(number: int, stop: int) -> Node:
        def note(x: Any) -> Any:
            asked.append(number)
            return 1 // (3 - int(x))  # fails for the element behind the end

        return Map(inputs=(count(0, stop),), function=note)

    iterator = make_iterator(pairs(count(0, 3), noted(1, 5), noted(2, 4), noted(3, 3)), Context())
    assert len(list(iterator)) == 3
    assert next(iterator, None) is None
    assert [asked.count(number) for number in (1, 2, 3)] == [4, 4, 3]


def test_zipped_file_caches_are_all_complete(tmp_path: Path) -> None:
    """Every cache that is zipped is complete after an epoch, and replays its files."""
    asked = []
    caches = [
        Cache(
            inputs=(Map(inputs=(count(0, 4),), function=asked.append),),
            filename=str(tmp_path / str(number)),
        )
        for number in range(3)
    ]
    for _ in range(2):
        assert len(list(make_iterator(pairs(*caches), Context()))) == 4
    assert len(asked) == 12


def test_each_input_has_its_own_provider() -> None:
    """The providers are dealt out from left to right."""
    context = provided([[(3, 5)]], [[(0, 1), (8, 9)]])
    assert numbers(check_restore(pairs(count(0, 9), count(0, 9)), context)) == [(3, 0), (4, 8)]
    joined = Concatenate(inputs=(count(0, 9), count(0, 9)))
    assert numbers(check_restore(joined, context)) == [3, 4, 0, 8]


def test_concatenate_reads_one_after_the_other() -> None:
    """All elements of the first input precede those of the second, and each step can be
    restored.
    """
    joined = Concatenate(inputs=(count(0, 2), count(5, 7)))
    assert numbers(check_restore(joined)) == [0, 1, 5, 6]
    assert check_restore(Concatenate(inputs=(count(0, 0), count(0, 0)))) == []


def test_other_errors_pass_through_zip() -> None:
    """An error of the service below a zip is raised unchanged."""

    class Unreachable(Node):
        """A source whose every element is an error."""

    class UnreachableIterator(make_iterator.dispatch(Range)):  # type: ignore[misc]
        def __init__(self, node: Node, context: Context) -> None:
            super().__init__(count(0, 3), context)

        def __next__(self) -> Any:
            super().__next__()
            raise UnavailableError("nobody there")

    make_iterator.register(Unreachable)(UnreachableIterator)
    iterator = make_iterator(pairs(Unreachable(), count(0, 3)), Context())
    with pytest.raises(UnavailableError):
        next(iterator)


def test_closing_closes_all_inputs() -> None:
    """Closing a zip closes every input that was begun."""
    closed = []

    def generate(name: str) -> Any:
        try:
            yield 1
            yield 2
        finally:
            closed.append(name)

    inputs = tuple(FromGenerator(generator=generate, args=(name,)) for name in "ab")
    for node, expected in [(pairs(*inputs), ["a", "b"]), (Concatenate(inputs=inputs), ["a"])]:
        closed.clear()
        iterator = make_iterator(node, Context())
        next(iterator)
        iterator.close()
        assert closed == expected


def test_zip_keeps_a_namedtuple() -> None:
    """Elements have the nesting of the template, even if it is a namedtuple."""
    named = namedtuple("named", ["x", "y"])
    (element,) = make_iterator(
        Zip(inputs=(count(0, 1), count(5, 6)), template=named(0, 1)), Context()
    )
    assert type(element) is named
    assert element == (0, 5)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_inputs_that_wait_get_their_splits_again(number: int) -> None:
    """If a repeat restores the providers and a buffer pulls again, inputs begin at the
    same places as before.
    """
    joined: Any = Concatenate(inputs=(count(0, 2), count(0, 2)))
    for _ in range(number - 1):
        joined = Concatenate(inputs=(joined, count(0, 2)))
    node = Repeat(inputs=(Shuffle(inputs=(joined,), buffer_size=3),), count=3)
    handed = [[(0, 1), (1, 2)], [(1, 2)], [(0, 2)]]
    assert len(check_restore(node, provided(*[handed] * (number + 1)))) == 5 * (number + 1)


def zipped(*inputs: Node) -> Zip:
    return Zip(inputs=inputs, template=tuple(range(len(inputs))))


def joined(first: Node, second: Node) -> Concatenate:
    return Concatenate(inputs=(first, second))


def test_labels_name_the_operation_alone() -> None:
    """The inputs have labels of their own."""
    assert zipped(ten(), ten()).label == "zip()"
    assert joined(ten(), ten()).label == "concatenate()"


@pytest.mark.parametrize(
    ("node", "cardinality"),
    [
        (zipped(ten(), Range(start=0, stop=3)), 3),
        (zipped(ten(), endless()), 10),
        (zipped(endless(), endless()), INFINITE),
        (zipped(ten(), unknown()), UNKNOWN),
        (zipped(empty(), unknown()), UNKNOWN),
        (zipped(endless(), unknown()), UNKNOWN),
        (joined(ten(), ten()), 20),
        (joined(empty(), empty()), 0),
        (joined(endless(), ten()), INFINITE),
        (joined(unknown(), endless()), INFINITE),
        (joined(ten(), unknown()), UNKNOWN),
    ],
)
def test_cardinalities_follow_from_the_inputs(node: Node, cardinality: int) -> None:
    """A zip has the length of its shortest input, and a concatenation the sum of both.
    Unknown lengths stay unknown.
    """
    assert node.cardinality == cardinality


@pytest.mark.parametrize(
    ("node", "spec"),
    [
        (zipped(ten(), slices(1)), (INT, {"x": TensorSpec((2,), np.int8), "y": INT})),
        (
            Zip(inputs=(ten(), TextLines(filenames=())), template={"a": (1, 0)}),
            {"a": (STR, INT)},
        ),
        (Zip(inputs=(ten(),), template=0), INT),
        (joined(ten(), ten()), INT),
        (
            joined(Tensors(tensors=np.zeros((2, 3))), Tensors(tensors=np.zeros((2, 4)))),
            TensorSpec((2, None), np.float64),
        ),
    ],
)
def test_specs_follow_from_the_inputs(node: Node, spec: Any) -> None:
    """A zip nests the specs of its inputs as its template does. A concatenation keeps
    their common spec.
    """
    assert node.spec(infer) == spec


def test_what_does_not_fit_cannot_be_concatenated() -> None:
    """Numbers and texts have no common spec."""
    with pytest.raises(TypeError, match="specs do not fit"):
        joined(ten(), TextLines(filenames=())).spec(infer)
