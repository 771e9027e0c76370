"""Test shuffles of a whole source of which several tasks read parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, plain, provided
from zmqdata.elements.ragged import RaggedTensor
from zmqdata.iterators import Context, make_iterator
from zmqdata.iterators.shuffle import ShuffleIterator
from zmqdata.nodes.base import Node
from zmqdata.nodes.combinations import Zip
from zmqdata.nodes.parts import split_sources
from zmqdata.nodes.sequences import FromSource
from zmqdata.nodes.sources import ListFiles, Range, TensorSlices
from zmqdata.nodes.transforms import Batch, Repeat, Shuffle, Take
from zmqdata.splits import FileSplits

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


def shuffled(source: Node, size: int | None = None, **options: Any) -> Shuffle:
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
    node = shuffled(SOURCES[source](), size)
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
    node = shuffled(ListFiles(patterns=(f"{tmp_path}/*",), shuffle=False), 9, **options)
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
    names = shuffled(ListFiles(patterns=(f"{tmp_path}/*",), shuffle=False))
    pairs = list(make_iterator(Zip(inputs=(names, names), template=(0, 1)), Context()))
    assert sum(one == other for one, other in pairs) < 15


@pytest.mark.parametrize("source", SOURCES)
def test_every_step_can_be_restored(source: str) -> None:
    """A state is a place in the order, whatever the pieces in which the splits come."""
    check_restore(shuffled(SOURCES[source]()), provided([[(0, 20), (50, 60)]]))


def test_batches_are_made_of_the_same_rows() -> None:
    """A batch that takes many elements at once has those that come one by one."""
    found = [
        [
            number
            for batch in make_iterator(
                Batch(
                    inputs=(shuffled(SOURCES["slices"]()),), batch_size=size, drop_remainder=False
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
    orders = [read(shuffled(SOURCES["range"](), seed=seed), [(0, COUNT)]) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    for reshuffles in (True, False):
        node = shuffled(SOURCES["range"](), seed=1, reshuffle_each_iteration=reshuffles)
        twice = Repeat(inputs=(node,), count=2)
        found = read(twice, [(0, COUNT)], [(0, COUNT)])
        first, second = found[:COUNT], found[COUNT:]
        assert sorted(first) == sorted(second)
        assert (first != second) == reshuffles


@pytest.mark.parametrize(
    "node",
    [
        shuffled(Range(start=0, stop=COUNT), COUNT - 1),
        shuffled(Take(inputs=(Range(start=0, stop=COUNT),), count=9), COUNT),
    ],
    ids=["smaller", "not a source"],
)
def test_other_shuffles_have_a_buffer(node: Shuffle) -> None:
    """A buffer smaller than the source, or over another operation, is a buffer."""
    assert isinstance(make_iterator(node, provided([[(0, 5)]])()), ShuffleIterator)


def test_a_shuffle_in_one_process_has_a_buffer() -> None:
    """Without splits of a dispatcher, a shuffle of a whole source has a buffer, too."""
    assert isinstance(make_iterator(shuffled(SOURCES["range"]()), Context()), ShuffleIterator)
