"""Tests of how the elements of a pipeline become blocks."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.definitions import define
from zmqdata.blocks import Compression, decode_block
from zmqdata.core.credit import FEW_BYTES
from zmqdata.core.worker import events as e
from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import decode_failure
from zmqdata.iterators.ownthreads import Place
from zmqdata.worker.tasks.output import BLOCK_BYTES, FEW_ELEMENTS, Output
from zmqdata.worker.tasks.sampling import COMPRESSION, PACKING


class Press:
    """An output, and the blocks that it has handed over."""

    def __init__(self, **definition: Any) -> None:
        skip, window = definition.pop("skip", ()), definition.pop("window", BLOCK_BYTES)
        codec = definition.pop("codec", None)
        task = define(1, 2, 2000, "dataset", "digest", "OFF", 1, None, (), skip, **definition)
        self.posted: list[Any] = []
        self.output = Output(
            task, self.posted.append, Compression(codec), "worker", lambda error: error, window
        )

    def add(self, *elements: Any) -> None:
        for element in elements:
            if isinstance(element, BaseException):
                self.output.fail(element)
            else:
                self.output.add(element)

    @property
    def blocks(self) -> list[tuple[int, int, list[Any]]]:
        """Return lane, first number and elements of the blocks since the last look;
        errors as text.
        """
        found = []
        for made in self.posted:
            assert isinstance(made, e.Produced)
            assert (made.task, made.attempt) == (1, 2)
            if made.failure:
                found.append(
                    (made.lane, made.first, [str(decode_failure(made.failure)).splitlines()[0]])
                )
            else:
                elements = list(decode_block(made.meta, made.frames).elements())
                assert len(elements) == made.count
                found.append((made.lane, made.first, elements))
        self.posted.clear()
        return found


@pytest.mark.parametrize(
    ("codec", "published"),
    [("zstd", [PACKING, COMPRESSION, PACKING]), (None, [PACKING])],
)
def test_packing_and_compression_are_published(codec: str | None, published: list[Place]) -> None:
    """The pipeline's thread publishes that it packs and compresses. A block that the
    worker's loop compresses meanwhile changes nothing.
    """
    press, seen = Press(codec=codec, max_outstanding_requests=1), list[Place]()

    class Log:
        """A strand that keeps what is published in it, without repetitions."""

        def __setattr__(self, name: str, value: Place) -> None:
            super().__setattr__(name, value)
            if seen[-1:] != [value]:
                seen.append(value)

    press.output.strand = Log()  # type: ignore[assignment]
    press.add(bytes(10_000))
    assert seen == published
    press = Press(codec=codec)
    press.add(bytes(10_000))
    press.output.strand.place = (0,)
    press.output.flush()
    assert len(press.blocks) == 1
    assert press.output.strand.place == (0,)


def test_elements_are_collected_until_somebody_wants_them() -> None:
    """The output hands over elements only on request, and then all of them, once."""
    press = Press()
    press.add(5, 6)
    assert press.blocks == []
    press.output.flush()
    press.output.flush()
    assert press.blocks == [(0, 0, [5, 6])]
    press.add(7)
    assert press.blocks == [(0, 2, [7])]
    press.add(8)
    assert press.blocks == []
    press.output.hand_over()
    assert press.blocks == [(0, 3, [8])]
    assert press.output.number == 4


def test_no_block_of_a_cache_is_larger_than_its_window() -> None:
    """No block exceeds the window of the cache unless it holds a single element. Such a
    block reveals that the window cannot hold the element.
    """
    press = Press(cache=True, window=100)
    small, large = np.zeros(5), np.zeros(20)
    press.add(small, small, large, small, small, small)
    press.output.hand_over()
    sizes = [
        (first, sum(element.nbytes for element in elements)) for _, first, elements in press.blocks
    ]
    assert sizes == [(0, 80), (2, 160), (3, 80), (5, 40)]


def test_a_full_block_is_handed_over() -> None:
    """A block is full with many bytes, with more bytes of few large elements, or with
    the job's maximum of elements.
    """
    press = Press(max_outstanding_requests=2)
    press.add(1, 2, 3)
    assert press.blocks == [(0, 0, [1, 2])]
    press = Press()
    press.add(np.zeros(FEW_BYTES, np.uint8))
    assert len(press.posted) == 1
    assert press.output.emitted == press.output.nbytes >= FEW_BYTES
    press = Press()
    press.add(*[np.zeros(FEW_BYTES // 8, np.uint8)] * 8)
    assert len(press.posted) == 1
    press = Press()
    press.add(*[np.zeros(BLOCK_BYTES // FEW_ELEMENTS, np.uint8)] * FEW_ELEMENTS)
    assert len(press.posted) == 1


def test_blocks_of_few_elements_are_as_large_as_their_readers_like() -> None:
    """The preferred size of readers applies from the next block on, up to the size of a
    chunk of a save.
    """
    press, bounded = Press(), Press(save_path="/saves/one", window=FEW_BYTES)
    for one in (press, bounded):
        one.output.few_bytes = 2 * FEW_BYTES
        one.add(np.zeros(FEW_BYTES, np.uint8))
    assert (len(press.posted), len(bounded.posted)) == (0, 1)
    press.add(np.zeros(FEW_BYTES, np.uint8))
    assert [block.count for block in press.posted] == [2]


SIZES = st.sampled_from([1, 8, 8, 8, 60_000, 150_528, 150_528, 1 << 20, BLOCK_BYTES, FEW_BYTES])


@given(
    st.lists(SIZES, max_size=120),
    st.sampled_from([BLOCK_BYTES // 2, FEW_BYTES, 2 * FEW_BYTES]),
    st.integers(1, 80),
)
@example([8] * 40 + [300_000] * 8, BLOCK_BYTES // 2, 80)
def test_elements_made_together_lie_in_the_same_blocks(
    sizes: list[int], few_bytes: int, most: int
) -> None:
    """Elements of any size that are made together fill the same blocks as elements made
    singly.
    """
    elements = [np.broadcast_to(np.uint8(0), size) for size in sizes]
    apart, together = Press(max_outstanding_requests=most), Press(max_outstanding_requests=most)
    for press in (apart, together):
        press.output.few_bytes = few_bytes
    apart.add(*elements)
    together.output.fresh += elements
    together.output.settle()
    assert [(made.first, made.count) for made in together.posted] == [
        (made.first, made.count) for made in apart.posted
    ]


def test_images_are_put_into_a_block_together() -> None:
    """A block that grows beyond the bytes of small elements still takes images
    together, without a look at each image.
    """
    press, asked = Press(), []
    press.output.few_bytes = 2 * FEW_BYTES
    builder = press.output._lanes[0].builder
    extend = builder.extend
    builder.extend = lambda *arguments: asked.append(0) or extend(*arguments)
    press.output.fresh += [np.zeros(150_000, np.uint8)] * (FEW_ELEMENTS - 1)
    press.output.settle()
    assert (builder.count, press.posted) == (FEW_ELEMENTS - 1, [])
    assert builder.nbytes > BLOCK_BYTES
    assert len(asked) <= 2  # the first element begins the block


def test_another_structure_begins_another_block() -> None:
    """An element that does not fit into the open block begins the next block."""
    press = Press()
    press.add(1, {"x": 2}, {"x": 3})
    press.output.hand_over()
    assert press.blocks == [(0, 0, [1]), (0, 1, [{"x": 2}, {"x": 3}])]


def test_an_error_stands_in_its_place() -> None:
    """An error is a block of its own, between the blocks made before and after it."""
    press = Press()
    press.add(1, KeyError("two"), 3)
    press.output.hand_over()
    (_, _, one), (_, at, two), (_, after, three) = press.blocks
    assert (one, at, after, three) == ([1], 1, 2, [3])
    assert "two" in two[0]


def test_what_cannot_travel_is_an_error() -> None:
    """An element that no block can hold fails alone."""
    press = Press()
    press.add(1, {(1, 2): 3}, 4)
    press.output.hand_over()
    found = press.blocks
    assert [(at, len(elements)) for _, at, elements in found] == [(0, 1), (1, 1), (2, 1)]
    assert found[2][2] == [4]


def test_what_others_have_is_made_and_not_handed_over() -> None:
    """Numbers to be skipped are counted, and a block never spans them."""
    press = Press(skip=((1, 3),))
    press.add(0, 1, 2, 3)
    press.output.hand_over()
    assert press.blocks == [(0, 0, [0]), (0, 3, [3])]


def test_a_round_has_an_element_for_each_lane() -> None:
    """Elements are dealt to the lanes in turn and numbered by rounds. The end returns
    the elements after the last full round, each as a block.
    """
    press = Press(num_consumers=3, finite="drop")
    press.add(*range(8))
    press.output.hand_over()
    assert press.blocks == [(0, 0, [0, 3]), (1, 0, [1, 4]), (2, 0, [2, 5])]
    assert press.output.number == 2
    rest = press.output.end()
    assert press.blocks == []
    assert [(one.first, one.count, one.failure) for one in rest] == [(2, 1, b"")] * 2


def test_a_wish_is_granted_with_the_next_round() -> None:
    """All waiting consumers receive the next round as soon as it is complete."""
    press = Press(num_consumers=2, finite="drop")
    press.output.flush()
    press.add(0)
    assert press.blocks == []
    press.add(1)
    assert press.blocks == [(0, 0, [0]), (1, 0, [1])]


def test_what_a_consumer_has_behind_it_is_left_out() -> None:
    """After a change of host, each lane begins at the first element that its consumer
    lacks.
    """
    press = Press(num_consumers=2, finite="drop", passed=(2, 1), skip=((0, 1),))
    press.add(*range(6))
    press.output.hand_over()
    assert press.blocks == [(0, 2, [4]), (1, 1, [3, 5])]


@pytest.mark.parametrize(("left", "padded"), [([7], [7, 7, 7]), ([7, 8], [7, 8, 7]), ([], None)])
def test_a_last_round_is_filled_with_its_own_elements(
    left: list[int], padded: list[int] | None
) -> None:
    """The elements of the last round repeat in their order. Without elements the round
    is not made.
    """
    press = Press(num_consumers=3, finite="pad")
    press.add(*left)
    assert press.output.end() == ()
    press.output.hand_over()
    assert press.blocks == (
        [] if padded is None else [(lane, 0, [x]) for lane, x in enumerate(padded)]
    )


def test_an_end_without_a_rule_is_an_error_for_everybody() -> None:
    """All consumers receive the error in the same round, after the last complete
    round.
    """
    press = Press(num_consumers=2)
    press.add(0, 1, 2)
    assert press.output.end() == ()
    press.output.hand_over()
    failures = [decode_failure(one.failure) for one in press.posted if one.failure]
    assert [(one.lane, one.first) for one in press.posted if one.failure] == [(0, 1), (1, 1)]
    for failure in failures:
        assert isinstance(failure, FailedPreconditionError)
        assert (
            "Encountered end of sequence on a round-robin read iterator, after 1 rounds of 2"
            in str(failure)
        )


def test_an_error_for_everybody_takes_the_next_round() -> None:
    """An error for all consumers discards the rest of an incomplete round."""
    press = Press(num_consumers=2, finite="pad")
    press.add(0, 1, 2)
    press.output.fail_all(ValueError("no"))
    assert [(lane, at) for lane, at, _ in press.blocks] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert (press.output.number, press.output.end()) == (2, ())


def test_elements_may_be_handed_over_as_they_are() -> None:
    """Within a single process the output hands over elements without encoding them."""
    press = Press(by_reference=True)
    element = object()
    press.add(element)
    press.output.hand_over()
    [made] = press.posted
    assert list(made.frames.elements()) == [element]


def test_elements_go_on_behind_a_leap() -> None:
    """Elements collected before a leap keep their own numbers. A leap may only pass
    elements that no client needs.
    """
    press = Press(skip=((0, 3), (5, 9)))
    assert [press.output.may_leap(number) for number in (3, 4)] == [True, False]
    press.output.leap(3)
    press.add(3, 4)
    assert press.output.may_leap(8)
    press.output.leap(8)
    press.add(8, 9)
    press.output.hand_over()
    assert press.blocks == [(0, 3, [3, 4]), (0, 9, [9])]


def test_nothing_leaps_in_the_middle_of_a_round() -> None:
    """No leap happens within a round, as the started round would mix with elements of
    another round.
    """
    press = Press(skip=((0, 3),), num_consumers=2)
    press.add(0)
    assert not press.output.may_leap(2)
    press.add(1)
    assert press.output.may_leap(2)


# --- elements that are made in runs


def test_fresh_elements_are_handed_over_to_who_waits() -> None:
    """A waiting client also receives elements that the pipeline has not inspected while
    it makes the next element.
    """
    press = Press()
    press.output.fresh += [1, 2, 3]
    assert press.output.number == 3
    press.output.flush()
    assert press.blocks == [(0, 0, [1, 2, 3])]
    assert press.output.number == 3


def test_who_waits_gets_the_next_element_of_a_run() -> None:
    """The output asks the pipeline to look up, and hands over its elements when it
    settles.
    """
    press = Press()
    press.output.flush()
    assert press.output.hungry
    press.output.fresh.append(7)
    press.output.settle()
    assert press.blocks == [(0, 0, [7])]
    press.output.fresh.append(8)
    press.output.settle()
    assert press.blocks == []


class Nosy:
    """An object whose pickling takes so long that the worker's loop requests all
    elements meanwhile.
    """

    def __init__(self, output: Output) -> None:
        self._output = output

    def __reduce__(self) -> tuple[Any, ...]:
        self._output.hand_over()
        return (str, ("pickled",))


def test_nobody_overtakes_an_element_that_is_looked_at() -> None:
    """While an object is pickled, the loop receives the elements before it and none
    after it.
    """
    press = Press()
    press.output.fresh += [1, 2, Nosy(press.output), 4, 5]
    press.output.settle()
    press.output.hand_over()
    assert press.blocks == [(0, 0, [1, 2]), (0, 2, ["pickled"]), (0, 3, [4, 5])]


class Shy(dict[str, int]):
    """An object that raises when it is inspected."""

    def values(self) -> Any:
        raise SystemExit("do not look")

    items = values


@pytest.mark.parametrize("by_reference", [False, True])
def test_who_raises_when_it_is_looked_at_is_an_error_in_its_place(by_reference: bool) -> None:
    """The error does not disturb the loop that requests all elements. No element after
    it is lost or comes twice.
    """
    press = Press(by_reference=by_reference)
    press.output.fresh += [{"x": 1}, Shy(x=2), {"x": 3}]
    press.output.flush()
    press.output.settle()
    press.output.hand_over()
    if by_reference:
        assert sum(made.count for made in press.posted) == 3
    else:
        first, (lane, number, [text]), last = press.blocks
        assert (first, last) == ((0, 0, [{"x": 1}]), (0, 2, [{"x": 3}]))
        assert (lane, number) == (0, 1)
        assert text.startswith("SystemExit: do not look (element 1 of task 1, on worker worker)")


@given(
    st.lists(
        st.lists(st.sampled_from([1, 2.5, "text", np.int64(3), "error", "object"]), max_size=6),
        max_size=8,
    ),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=3),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_each_element_that_is_needed_comes_once_and_in_order(
    runs: list[list[Any]], skip: list[tuple[int, int]], most: int, random: Random
) -> None:
    """Each needed element comes once with its own number, whatever its kind and
    whenever a client requests it.
    """
    press = Press(skip=tuple(skip), max_outstanding_requests=most)
    expected: list[Any] = []
    for run in runs:
        for element in run:
            if element == "error":
                press.output.fail(ValueError("bad"))
            else:
                press.output.fresh.append({1} if element == "object" else element)
            expected.append({1} if element == "object" else element)
            if random.random() < 0.5:
                random.choice([press.output.flush, press.output.hand_over])()
        press.output.settle()
    press.output.hand_over()
    found = {
        first + at: one for _, first, elements in press.blocks for at, one in enumerate(elements)
    }
    needed = [
        number for number in range(len(expected)) if not any(a <= number < b for a, b in skip)
    ]
    assert list(found) == needed
    for number in needed:
        told = "ValueError: bad (element" if expected[number] == "error" else None
        assert found[number].startswith(told) if told else found[number] == expected[number]
    assert press.output.number == len(expected)


def test_a_block_of_a_save_ends_where_its_chunk_is_full() -> None:
    """Chunks consist of whole blocks. A small chunk is handed over together with the
    element that fills it.
    """
    press = Press(save_path="/saved", window=100)
    press.add(*[np.zeros(5)] * 5)
    press.output.hand_over()
    assert [sum(element.nbytes for element in elements) for _, _, elements in press.blocks] == [
        120,
        80,
    ]
