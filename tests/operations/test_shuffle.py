"""Tests of ``zmqdata.operations.shuffle``."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.iterators.checks import check_restore, plain, provided
from zmqdata.dataset import Dataset
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.errors import PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node
from zmqdata.nodes.parts import split_sources
from zmqdata.operations import shuffle
from zmqdata.operations.batch import Batch
from zmqdata.operations.combinations import Zip
from zmqdata.operations.files import ListFiles
from zmqdata.operations.limits import Take
from zmqdata.operations.mapping import Map
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sequences import FromSource
from zmqdata.operations.shuffle import Shuffle, ShuffleIterator
from zmqdata.operations.sources import Range, TensorSlices
from zmqdata.splits import FileSplits


def shuffled(node: Node, size: int | None, **arguments: Any) -> Shuffle:
    return Shuffle(inputs=(node,), buffer_size=size, **arguments)


def count(stop: int) -> Range:
    return Range(start=0, stop=stop)


def order(node: Node, context: Context | None = None) -> list[int]:
    return [int(x) for x in make_iterator(node, context or Context(seed=1))]


@given(st.integers(0, 60), st.none() | st.integers(1, 70))
def test_every_element_comes_once(stop: int, size: int | None) -> None:
    """The elements are those of the input, whatever the buffer, and every step can be
    restored.
    """
    read = check_restore(shuffled(count(stop), size), limit=100)
    assert sorted(outcome[3] for outcome in read) == list(range(stop))


@given(st.integers(1, 20))
def test_the_buffer_bounds_how_early_an_element_comes(size: int) -> None:
    """The element at place n is at most number n + size - 1 of the input."""
    assert all(x < place + size for place, x in enumerate(order(shuffled(count(100), size))))


@pytest.mark.parametrize("size", [2, 7, 50])
def test_no_element_becomes_very_old(size: int) -> None:
    """An element is yielded before much more than five buffers of elements pass it."""
    early = order(shuffled(count(3000), size))
    assert max(place - x for place, x in enumerate(early)) <= 5 * size + 1
    assert sorted(early) == list(range(3000))


def test_a_buffer_of_one_keeps_the_order() -> None:
    """A buffer of one place leaves nothing to draw from."""
    assert order(shuffled(count(9), 1)) == list(range(9))


def test_all_positions_are_equally_likely() -> None:
    """Each element is first about equally often if the buffer holds all elements."""
    firsts = [order(shuffled(count(4), None), Context(seed=seed))[0] for seed in range(400)]
    assert np.bincount(firsts, minlength=4).min() > 60


def test_the_order_depends_on_seed_place_and_repetition() -> None:
    """Without a seed of its own a shuffle uses the context's seed, its place in the
    tree, and the repetition.
    """
    node = shuffled(count(20), 20)
    contexts = [
        Context(seed=1),
        Context(seed=2),
        Context(seed=1, repetition=1),
        Context(seed=1, iteration=1),
        Context(seed=1, path=(0,)),
    ]
    orders = {tuple(order(node, context)) for context in contexts}
    assert len(orders) == len(contexts)
    assert order(node, contexts[0]) == order(node, contexts[0])


def test_a_fixed_seed_decides_alone() -> None:
    """The order under a seed of its own is the same in any context, and differs for
    each repetition.
    """
    node = shuffled(count(20), 20, seed=5)
    assert order(node, Context(seed=1)) == order(node, Context(seed=2, path=(3,)))
    assert order(node, Context(repetition=1)) != order(node, Context())
    assert order(node) != order(shuffled(count(20), 20, seed=6))


@pytest.mark.parametrize("seed", [None, 5])
def test_without_reshuffling_the_order_stays(seed: int | None) -> None:
    """Repetitions, iterations and iterators have the same order if
    ``reshuffle_each_iteration`` is False.
    """
    node = shuffled(count(20), 20, seed=seed, reshuffle_each_iteration=False)
    contexts = [Context(seed=1), Context(seed=2, repetition=1), Context(seed=3, iteration=4)]
    assert len({tuple(order(node, context)) for context in contexts}) == 1
    assert (order(node) == order(node, Context(fixed_seed=9))) is (seed is not None)


def test_the_order_is_the_same_for_ever() -> None:
    """A change of this order would break resuming runs that an older version began."""
    assert order(shuffled(count(10), 4, seed=1)) == [0, 4, 1, 6, 7, 5, 8, 3, 9, 2]


def test_a_buffer_of_one_is_no_buffer() -> None:
    """A shuffle with a buffer of a single element is its input."""
    node = shuffled(count(3), 1)
    assert order(node) == [0, 1, 2]
    assert type(make_iterator(node, Context())) is type(make_iterator(count(3), Context()))


@pytest.mark.parametrize("size", [3, 7])
def test_failures_keep_their_place(size: int) -> None:
    """A failing element is raised while the buffer is filled and takes no place in
    it.
    """
    failing = Map(inputs=(count(9),), function=lambda x: 1 // (int(x) - 4) and int(x))
    read = check_restore(shuffled(failing, size))
    assert [outcome[0] for outcome in read].count("raised") == 1
    assert len(read) == 9


def test_splits_are_shuffled_after_they_came() -> None:
    """A shuffle over a provider restores the ledger as well."""
    read = check_restore(shuffled(count(20), 4), provided([[(3, 6), (10, 15), (0, 2)]]))
    assert sorted(outcome[3] for outcome in read) == [0, 1, 3, 4, 5, 10, 11, 12, 13, 14]


def test_states_hold_no_elements() -> None:
    """A state takes about four bytes for each place of the buffer, however large the
    elements are.
    """
    large = Map(inputs=(count(10**6),), function=lambda x: np.full(10_000, x))
    iterator = make_iterator(shuffled(large, 50), Context())
    for _ in range(200):
        next(iterator)
    assert len(msgspec.msgpack.encode(iterator.state())) < 50 * 4 + 50
    iterator.close()


@pytest.mark.parametrize("size", [2, 7, 300])
def test_small_and_large_buffers_draw_alike(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of planning give the same order."""
    orders = []
    for few in (0, 10**6):
        monkeypatch.setattr(shuffle, "_FEW", few)
        orders.append(order(shuffled(count(5000), size)))
    assert orders[0] == orders[1]


@pytest.mark.parametrize("size", [5, 300])
def test_numbers_may_pass_four_bytes(size: int) -> None:
    """Numbers are kept modulo 2**32, and the order around that number is the same as
    elsewhere.
    """
    node, shift = shuffled(count(3000), size), 2**32 - 1000
    iterator = make_iterator(node, Context())
    for _ in range(700):
        next(iterator)
    (first, inner, pulled), *rest = iterator.state()
    later = make_iterator(node, Context())
    later.restore([[first + shift, inner, pulled + shift], *rest])
    assert list(islice(later, 1000)) == list(islice(iterator, 1000))
    (first, inner, pulled), *rest = iterator.state()
    assert later.state() == [[first + shift, inner, pulled + shift], *rest]
    assert list(later) == list(iterator)


def kilobyte(x: Any) -> Any:
    return np.zeros(1024, np.uint8)


def growth(build: Callable[[int], Any], size: int) -> int:
    """Return the peak memory beyond that of half the size, which leaves out any
    constant part.
    """

    def peak(size: int) -> int:
        tracemalloc.start()
        try:
            return tracemalloc.get_traced_memory()[1] if build(size) else 0
        finally:
            tracemalloc.stop()

    return peak(2 * size) - peak(size)


def growths(make: Callable[[Any], Any], size: int) -> tuple[int, int]:
    """Return the growth of a shuffle in progress, and that of a list."""

    def shuffle_on(size: int) -> Any:
        iterator = make_iterator(
            shuffled(Map(inputs=(count(10**9),), function=make), size), Context()
        )
        deque(islice(iterator, 3 * size), maxlen=0)
        return iterator

    shuffle_on(100)  # objects made once in the first run do not count
    return growth(shuffle_on, size), growth(lambda size: [make(x) for x in range(size)], size)


def test_the_buffer_takes_little_more_than_its_elements() -> None:
    """The buffer takes at most 1.2 times a list of the elements, for large and small
    elements, at any time.
    """
    # In a process of its own, as the memory of other threads would be traced, too.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        for shuffle, elements in pool.map(growths, [kilobyte, float], [500, 5000]):
            assert elements < shuffle <= 1.2 * elements


@pytest.mark.parametrize("seed", range(8))
def test_states_follow_each_other(seed: int) -> None:
    """A restored iterator can be saved at once, and another restored from that
    state.
    """
    dataset = Dataset.range(500).shuffle(100, seed=seed, reshuffle_each_iteration=False)
    expected, found = [int(x) for x in dataset], []
    iterator = iter(dataset)
    for count in (137 + 11 * seed, 3, 150):
        found += [int(next(iterator)) for _ in range(count)]
        state = iterator.state_dict()
        iterator = iter(dataset)
        iterator.load_state_dict(state)
    assert found + [int(x) for x in iterator] == expected


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_failure_below_has_no_other_error_in_its_traceback(size: int) -> None:
    """The error of a user's function is shown with its cause alone."""
    dataset = Dataset.range(3).map(lambda x: 1 // int(x), num_parallel_calls=2)
    with closing(iter(dataset.shuffle(size))) as iterator:
        with pytest.raises(PipelineError) as raised:
            list(iterator)
        cause = raised.value.__cause__
        assert isinstance(cause, ZeroDivisionError)
        assert cause.__context__ is None


COUNT = 300
SOURCES: dict[str, Callable[[], Node]] = {
    "range": lambda: Range(start=7, stop=7 + 3 * COUNT, step=3),
    "slices": lambda: TensorSlices(tensors={"x": np.arange(COUNT)}),
    "ragged": lambda: TensorSlices(
        tensors=RaggedTensor.from_rows([[number] * (number % 3 + 1) for number in range(COUNT)])
    ),
    "source": lambda: FromSource(sequence=range(COUNT)),
    "shuffled source": lambda: FromSource(sequence=range(COUNT), shuffle=True),
}


def shuffled_of_shuffle_of_sources(
    source: Node, size: int | None = None, **options: Any
) -> Shuffle:
    return Shuffle(inputs=(source,), buffer_size=size, **options)


def read(node: Node, *repetitions: list[tuple[int, int]]) -> list[Any]:
    """Return what a task reads, given its splits in each repetition."""
    return [plain(element) for element in make_iterator(node, provided(repetitions)())]


@pytest.mark.parametrize("size", [None, COUNT, COUNT + 1])
@pytest.mark.parametrize("source", SOURCES)
def test_tasks_read_parts_of_one_permutation(source: str, size: int | None) -> None:
    """Tasks that read different splits read each element once together, and each of
    them reads a random part.
    """
    node = shuffled_of_shuffle_of_sources(SOURCES[source](), size)
    parts = [read(node, [(0, 100), (250, COUNT)]), read(node, [(100, 250)])]
    together = [element for part in parts for element in part]
    everything = [plain(element) for element in make_iterator(SOURCES[source](), Context())]
    assert sorted(map(str, together)) == sorted(map(str, everything))
    assert together != everything
    assert len(parts[1]) == 150
    assert parts[1] != everything[100:250]


@pytest.mark.parametrize("options", [{}, {"seed": 3}, {"reshuffle_each_iteration": False}])
def test_names_of_files_come_as_the_dispatcher_orders_them(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """A shuffle of names has no buffer: a task yields those that it is assigned, and a
    local reader those of the dispatcher's order.
    """
    paths = [str(tmp_path / f"{number:02}") for number in range(30)]
    for path in paths:
        Path(path).touch()
    node = shuffled_of_shuffle_of_sources(
        ListFiles(patterns=(f"{tmp_path}/*",), shuffle=False), 9, **options
    )
    assert not isinstance(make_iterator(node, provided([[(0, 3)]])()), ShuffleIterator)
    (splits,) = split_sources(node, fixed_seed=7)
    assert isinstance(splits, FileSplits)
    orders = []
    for repetition in range(3):
        context = Context(fixed_seed=7, repetition=repetition)
        orders.append(list(make_iterator(node, context)))
        assert sorted(orders[-1]) == paths
        if options:
            assert orders[-1] == list(splits.ordered(paths, 1, context.turn))
    stays = "reshuffle_each_iteration" in options
    assert len({*map(tuple, orders)}) == (1 if stays else 3)
    check_restore(node)


def test_two_shuffles_of_names_draw_for_themselves(tmp_path: Path) -> None:
    """Unseeded shuffles of the same names differ."""
    for number in range(30):
        (tmp_path / f"{number:02}").touch()
    names = shuffled_of_shuffle_of_sources(ListFiles(patterns=(f"{tmp_path}/*",), shuffle=False))
    pairs = list(make_iterator(Zip(inputs=(names, names), template=(0, 1)), Context()))
    assert sum(one == other for one, other in pairs) < 15


@pytest.mark.parametrize("source", SOURCES)
def test_every_step_can_be_restored(source: str) -> None:
    """A state is a place in the order, whatever the pieces in which the splits come."""
    check_restore(
        shuffled_of_shuffle_of_sources(SOURCES[source]()), provided([[(0, 20), (50, 60)]])
    )


def test_batches_are_made_of_the_same_rows() -> None:
    """A batch that takes many elements at once has those that come one by one."""
    found = [
        [
            number
            for batch in make_iterator(
                Batch(
                    inputs=(shuffled_of_shuffle_of_sources(SOURCES["slices"]()),),
                    batch_size=size,
                    drop_remainder=False,
                ),
                provided([[(0, COUNT)]])(),
            )
            for number in batch["x"].tolist()
        ]
        for size in (1, 32)
    ]
    assert found[0] == found[1] != sorted(found[0])


def test_the_order_follows_from_seed_and_repetition() -> None:
    """A seed gives the same order again. Each repetition has its own, unless the user
    asks for the same one.
    """
    orders = [
        read(shuffled_of_shuffle_of_sources(SOURCES["range"](), seed=seed), [(0, COUNT)])
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    for reshuffles in (True, False):
        node = shuffled_of_shuffle_of_sources(
            SOURCES["range"](), seed=1, reshuffle_each_iteration=reshuffles
        )
        twice = Repeat(inputs=(node,), count=2)
        found = read(twice, [(0, COUNT)], [(0, COUNT)])
        first, second = found[:COUNT], found[COUNT:]
        assert sorted(first) == sorted(second)
        assert (first != second) == reshuffles


@pytest.mark.parametrize(
    "node",
    [
        shuffled_of_shuffle_of_sources(Range(start=0, stop=COUNT), COUNT - 1),
        shuffled_of_shuffle_of_sources(Take(inputs=(Range(start=0, stop=COUNT),), count=9), COUNT),
    ],
    ids=["smaller", "not a source"],
)
def test_other_shuffles_have_a_buffer(node: Shuffle) -> None:
    """A buffer smaller than the source, or over another operation, is a buffer."""
    assert isinstance(make_iterator(node, provided([[(0, 5)]])()), ShuffleIterator)


def test_a_shuffle_in_one_process_has_a_buffer() -> None:
    """Without splits of a dispatcher, a shuffle of a whole source has a buffer, too."""
    assert isinstance(
        make_iterator(shuffled_of_shuffle_of_sources(SOURCES["range"]()), Context()),
        ShuffleIterator,
    )
