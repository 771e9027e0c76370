"""Tests of ``zmqdata.operations.repeat``."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.iterators.checks import LedgerProvider, check_restore, plain, provided, run
from zmqdata.dataset import Dataset
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.operations.batch import Batch
from zmqdata.operations.cache import Cache
from zmqdata.operations.combinations import Concatenate, Zip
from zmqdata.operations.limits import Take
from zmqdata.operations.mapping import Filter, Map
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator, Range
from zmqdata.splits import Split


def repeated(node: Node, count: int = -1) -> Repeat:
    return Repeat(inputs=(node,), count=count)


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def ints(numbers: list[int]) -> list[Any]:
    return [plain(np.int64(number)) for number in numbers]


@pytest.mark.parametrize(("times", "expected"), [(0, []), (1, [0, 1]), (3, [0, 1, 0, 1, 0, 1])])
def test_repeats_so_many_times(times: int, expected: list[int]) -> None:
    """The input runs anew each time, and every step can be restored."""
    assert check_restore(repeated(count(2), times)) == ints(expected)


def test_repeats_for_ever() -> None:
    """A repeat with count -1 never ends on its own."""
    assert check_restore(repeated(count(2)), limit=7) == ints([0, 1, 0, 1, 0, 1, 0])


def test_nothing_for_ever_ends() -> None:
    """A local repeat ends if its input yields nothing in a whole pass, as in
    tf.data.
    """
    nothing = Filter(inputs=(count(3),), predicate=lambda x: False)
    assert check_restore(repeated(nothing)) == []
    assert check_restore(repeated(count(0))) == []


def filled(sizes: list[int]) -> Node:
    """Source whose passes have so many elements, one size after the other."""
    following = iter(sizes)
    return FromGenerator(generator=lambda: range(next(following)))


@dataclass(frozen=True, kw_only=True)
class Taken(Filter):
    """Filter of a source from which others take, too."""

    refills: ClassVar[bool] = True


def test_an_endless_repeat_of_empty_passes_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """If others may take the elements, a repeat goes on, and warns each time that the
    number of empty passes in a row has doubled.
    """
    calls = itertools.count(1)
    node = Taken(inputs=(count(1),), predicate=lambda x: next(calls) in (300, 365))
    iterator = make_iterator(repeated(node), Context())
    assert [next(iterator), next(iterator)] == [0, 0]
    said = [record.args for record in caplog.records]
    assert said == [("repeat()", 64), ("repeat()", 128), ("repeat()", 256), ("repeat()", 64)]


def test_a_finite_repeat_goes_on_after_empty_passes() -> None:
    """A finite repeat makes all of its passes, as in tf.data."""
    assert run(repeated(filled([0, 0, 1, 0, 2]), 5)) == [plain(0), plain(0), plain(1)]


def test_an_endless_repeat_ends_at_an_empty_pass() -> None:
    """The first pass without elements ends an endless repeat, as in tf.data."""
    assert run(repeated(filled([2, 1, 0, 3]))) == [plain(0), plain(1), plain(0)]
    assert run(repeated(repeated(filled([0, 1, 0, 0, 3]), 2))) == [plain(0)]


def test_a_shuffle_before_an_endless_repeat_ends_at_an_empty_pass() -> None:
    """A shuffle below changes nothing: the first pass without elements ends it."""
    for times, expected in ((-1, 2), (4, 6)):
        shuffled = Shuffle(inputs=(filled([2, 1, 0, 3]),), buffer_size=3)
        assert len(run(repeated(shuffled, times))) == expected + (times == -1)


def test_a_failure_shows_that_a_pass_is_not_empty() -> None:
    """An endless repeat goes on after a pass whose every element failed."""
    failures = iter([True, True, False])
    flaky = Map(inputs=(count(1),), function=lambda x: 1 // (not next(failures)))
    read = run(repeated(flaky), limit=3)
    assert [outcome[0] for outcome in read] == ["raised", "raised", "int"]


def test_many_passes_of_an_input_known_to_be_empty_take_no_time() -> None:
    """A repeat whose input is known to be empty ends without making its passes."""
    assert check_restore(repeated(count(0), 10**15)) == []


def test_a_pass_does_not_make_its_iterators_anew() -> None:
    """Operations that hold only their place are rewound for the next pass, which costs
    a tenth of new iterators.
    """
    # tf.data's documentation measures the ideal speed with the first.
    kinds = (
        lambda source: Cache(inputs=(Take(inputs=(source,), count=1),)),
        lambda source: Batch(inputs=(source,), batch_size=2, drop_remainder=False),
        lambda source: Shuffle(inputs=(source,), buffer_size=2),
        lambda source: Zip(inputs=(source, repeated(source, 2)), template=(0, 1)),
        lambda source: Concatenate(inputs=(source, count(1))),
    )
    for kind in kinds:
        iterator = make_iterator(repeated(kind(count(2))), Context())
        first = [next(iterator) for _ in range(9)]
        made = iterator._input  # type: ignore[attr-defined]
        assert len(first + [next(iterator) for _ in range(9)]) == 18
        assert iterator._input is made  # type: ignore[attr-defined]


def test_each_repetition_has_an_order_of_its_own() -> None:
    """Shuffles below a repeat reshuffle, also within another repeat. A restored repeat
    continues the same orders.
    """
    shuffled = Shuffle(inputs=(count(8),), buffer_size=8)
    read = check_restore(repeated(repeated(shuffled, 2), 2))
    orders = {tuple(number[3] for number in read[start : start + 8]) for start in range(0, 32, 8)}
    assert len(orders) == 4


def test_repetitions_pull_their_own_splits() -> None:
    """At the end of a pass the providers are reset, and the splits of the next
    repetition are read.
    """
    context = provided([[(0, 2)], [(4, 5), (7, 8)], [(1, 2)]])
    assert check_restore(repeated(count(9), 3), context) == ints([0, 1, 4, 7, 1])


def test_a_repetition_without_splits_does_not_end_it() -> None:
    """A worker without splits in a repetition asks for the next, whether or not the
    repeat is finite.
    """
    context = provided([[(0, 2)], [], [], [(3, 4)]])
    assert check_restore(repeated(count(9), 4), context) == ints([0, 1, 3])
    assert check_restore(repeated(count(9)), context, limit=3) == ints([0, 1, 3])


def test_passes_without_splits_are_no_reason_to_say_so(caplog: pytest.LogCaptureFixture) -> None:
    """A task whose passes were short of splits, because faster tasks had them, warns
    only after thousands; one whose splits gave nothing warns after 64 passes.
    """
    for empty, said in ((100, []), (5000, [4096])):
        caplog.clear()
        iterator = make_iterator(repeated(count(9)), provided([*[[]] * empty, [(1, 2)]])())
        assert next(iterator) == 1
        assert [record.args for record in caplog.records] == [("repeat()", n) for n in said]
    odd = Filter(inputs=(count(9),), predicate=lambda x: x % 2 == 1)
    caplog.clear()
    passes = [[(0, 1)], *[[]] * 100, [(1, 2)]]
    assert next(make_iterator(repeated(odd), provided(passes)())) == 1
    assert [record.args for record in caplog.records] == [("repeat()", 64)]


class Splits(LedgerProvider):
    """A provider that notes how many threads have begun since it was made, and run when
    it is reset.
    """

    def __init__(self, *ledger: Any) -> None:
        super().__init__([[*ranges] for ranges in ledger])
        self.earlier = set(threading.enumerate())
        self.running: list[int] = []

    def reset(self) -> None:
        self.running.append(len(set(threading.enumerate()) - self.earlier))
        super().reset()


@pytest.mark.parametrize(
    "ahead",
    [
        lambda d: d.map(abs, num_parallel_calls=2),
        lambda d: d.interleave(Dataset.from_tensors, cycle_length=2, num_parallel_calls=2),
        lambda d: d.prefetch(2),
    ],
    ids=["map", "interleave", "prefetch"],
)
def test_no_thread_pulls_splits_of_the_next_repetition(ahead: Callable[[Dataset], Dataset]) -> None:
    """The threads of an input that ends early end before the providers are reset, so
    that no split of the next repetition is lost.
    """
    repetitions = [[Split(number, n, n + 1) for n in range(9)] for number in range(4)]
    splits = Splits(*repetitions)
    dataset = ahead(Dataset.range(9)).take(2).repeat(4)
    iterator = make_iterator(dataset.node, Context(providers=(splits,)))
    assert [int(x) for x in iterator] == [0, 1] * 4
    assert splits.running == [0, 0, 0]


def owning(*sources: Any) -> Callable[[], Context]:
    """Return what makes the context of a task of a promised order."""
    return lambda: replace(provided(*sources)(), owns_splits=True)


def test_a_pass_without_own_splits_ends_it() -> None:
    """A task whose splits no other task may take ends an endless repeat after a pass
    without splits and elements, but goes on after a pass whose splits gave nothing.
    """
    assert check_restore(repeated(count(9)), owning([[], [(3, 4)]])) == []
    odd = Filter(inputs=(count(9),), predicate=lambda x: x % 2 == 1)
    passes = [[(0, 2)], [(2, 3)], [(4, 5), (6, 7)], [(3, 4)], [], [(5, 6)]]
    assert check_restore(repeated(odd), owning(passes)) == ints([1, 3])
    assert check_restore(repeated(odd, 6), owning(passes)) == ints([1, 3, 5])


def test_many_passes_without_elements_end_it(caplog: pytest.LogCaptureFixture) -> None:
    """A task that owns its splits ends after 64 passes in a row without elements, and
    warns; a state counts them.
    """
    picked = Filter(inputs=(count(9),), predicate=lambda x: x == 1)
    for empty, found in ((63, [1, 1]), (64, [1])):
        passes = [[(1, 2)], *[[(0, 1)]] * empty, [(1, 2)], []]
        caplog.clear()
        assert check_restore(repeated(picked), owning(passes)) == ints(found)
        assert any("The task ends" in record.message for record in caplog.records) == (empty == 64)


def test_an_input_beside_others_must_not_end() -> None:
    """A task that owns no split of an endless input beside others is an error."""
    for kind in (Zip, Concatenate):
        more: dict[str, Any] = {"template": (0, 1)} if kind is Zip else {}
        node = kind(inputs=(repeated(count(9)), count(9)), **more)
        with pytest.raises(InvalidArgumentError, match="no elements in one of the tasks"):
            next(make_iterator(node, owning([[], []], [[(0, 9)]])()))


def test_a_source_known_to_be_empty_ends_it() -> None:
    """A worker does not ask forever if its source is known to have no splits at all."""
    assert check_restore(repeated(count(0)), provided([[], [], []])) == []


def test_nested_repeats_go_through_the_ledger() -> None:
    """Repetitions of inner and outer repeats follow each other in the ledger, and
    restoring finds the place.
    """
    context = provided([[(n, n + 1)] for n in range(6)])
    assert check_restore(repeated(repeated(count(9), 2), 3), context) == ints([0, 1, 2, 3, 4, 5])


def test_what_is_left_of_a_repetition_is_skipped() -> None:
    """If a zip ends early, the remaining splits of the longer input belong to a past
    repetition.
    """
    pairs = Zip(inputs=(count(9), count(9)), template=(0, 1))
    context = provided([[(0, 1), (1, 2), (2, 3)], [(5, 6)]], [[(0, 1)], [(7, 8)]])
    read = check_restore(repeated(pairs, 2), context)
    assert read == [plain((np.int64(0), np.int64(0))), plain((np.int64(5), np.int64(7)))]


def test_a_reset_before_the_next_split_is_part_of_the_state() -> None:
    """A state taken between a reset and the next split restores into the new
    repetition.
    """
    ledger = [[Split(0, 0, 1)], [Split(0, 5, 6)]]
    node = repeated(count(9), 2)
    iterator = make_iterator(node, Context(providers=(LedgerProvider(ledger),)))
    assert next(iterator) == 0
    iterator._begin_again()  # type: ignore[attr-defined]
    other = make_iterator(node, Context(providers=(LedgerProvider(ledger),)))
    other.restore(iterator.state())
    assert list(other) == list(iterator) == [5]


def test_closing_closes_the_input() -> None:
    """close() releases what the current pass holds."""
    closed = []

    def generate() -> Any:
        try:
            yield from range(5)
        finally:
            closed.append(True)

    iterator = make_iterator(repeated(FromGenerator(generator=generate)), Context())
    next(iterator)
    iterator.close()
    assert closed == [True]


def test_inputs_that_wait_or_have_ended_keep_their_repetition() -> None:
    """A restored repeat has all providers in its repetition, including those that the
    current input does not read.
    """
    joined = Concatenate(inputs=(Range(start=0, stop=9), Range(start=0, stop=9)))
    ranges = [[(0, 2), (5, 8)], [(3, 4)], [(1, 2), (2, 9)]]
    assert len(check_restore(Repeat(inputs=(joined,), count=3), provided(ranges, ranges))) == 28
