"""Tests of ``zmqdata.iterators.captured``: generators that functions hold, in tasks."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import check_restore, run
from zmqdata.dataset import Dataset
from zmqdata.iterators.captured import Captured
from zmqdata.iterators.context import Context
from zmqdata.iterators.deciding import Deciding
from zmqdata.nodes.base import Node, every_node
from zmqdata.pipelines.generators import generators_of

D = Dataset


def task(node: Node, seed: int = 1) -> Context:
    """Return the context of a task, in which generators are seeded."""
    found = {id(one): [held.generator for held in generators_of(one)] for one in every_node(node)}
    captured = Captured(seed)
    captured.begin({key: held for key, held in found.items() if held})
    return Context(seed=7, captured=captured.seeder, deciding=Deciding(0, (), lambda seconds: None))


GENERATORS: dict[str, Callable[[], Any]] = {
    "numpy": lambda: np.random.default_rng(42),
    "philox": lambda: np.random.Generator(np.random.Philox(42)),
    "mersenne": lambda: np.random.Generator(np.random.MT19937(42)),
    "legacy": lambda: np.random.RandomState(42),
    "legacy on other bits": lambda: np.random.RandomState(np.random.SFC64(42)),
    "python": lambda: random.Random(42),
}


def noisy(rng: Any) -> Dataset:
    return D.range(40).map(lambda x: float(rng.random()))


@pytest.mark.parametrize("name", GENERATORS)
def test_tasks_and_elements_draw_for_themselves(name: str) -> None:
    """Three tasks and their elements share no draw, and a task draws the same in each
    attempt.
    """
    node = noisy(GENERATORS[name]()).node
    tasks = [[str(one) for one in run(node, task(node, seed))] for seed in (1, 2, 3)]
    assert len({one for drawn in tasks for one in drawn}) == 120
    assert [str(one) for one in run(node, task(node, 2))] == tasks[1]


def test_spawned_generators_differ_from_task_to_task() -> None:
    """Tasks spawn different generators from a seed sequence, or a generator, that a
    function holds; the entropy is the user's.
    """
    sequence, rng = np.random.SeedSequence(42), np.random.default_rng(42)
    spawns: list[Callable[[Any], float]] = [
        lambda x: np.random.default_rng(sequence.spawn(1)[0]).random(),
        lambda x: np.random.default_rng(rng.bit_generator.seed_seq.spawn(1)[0]).random(),
    ]
    for spawn in spawns:
        node = D.range(20).map(spawn).node
        drawn = [str(one) for seed in (1, 2, 3) for one in run(node, task(node, seed))]
        assert len(set(drawn)) == 60
    assert sequence.entropy == 42


def test_a_local_reading_leaves_the_generator_to_the_user() -> None:
    """The draws of a local reading are those of the user's generator."""
    expected = np.random.default_rng(42).random(40).tolist()
    assert list(noisy(np.random.default_rng(42))) == expected


def made(rng: Any) -> dict[str, Dataset]:
    """Return datasets whose elements depend on draws, in number and order."""
    base = D.range(30)
    coin = lambda *x: bool(rng.random() < 0.5)  # noqa: E731

    def generate() -> Any:
        yield from rng.permutation(20)

    class Drawing:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> float:
            return float(index + rng.random())

    return {
        "filter": base.filter(coin),
        "filter behind a filter": base.filter(coin).filter(coin),
        "shuffled": base.filter(coin).shuffle(9).map(lambda x: (x, rng.random())),
        "taken": base.map(lambda x: rng.random()).take_while(lambda x: x > 0.05),
        "skipping": base.map(lambda x: 1 / coin() and rng.random(), on_error="skip"),
        "threads": base.map(int, num_parallel_calls=2).filter(coin),
        "nested": D.range(8).flat_map(lambda x: D.from_tensor_slices(rng.permutation(3))),
        "interleaved": D.range(8).interleave(
            lambda x: D.from_tensor_slices(rng.permutation(3)), cycle_length=3
        ),
        "batches": base.map_batches(lambda x: x + rng.random(len(x)), 7),
        "lists": base.batch(4, collate_fn=lambda some: (sum(some), rng.random())),
        "folded": base.scan(0.0, lambda s, x: (s + 1, rng.random())),
        "generator": D.from_generator(generate).filter(coin),
        "source": D.from_source(Drawing(), shuffle=True, seed=1),
        "repeated": D.range(20).filter(coin).repeat(3),
        "drawn": base.random_map(lambda x, own: rng.random() + own.random()).filter(coin),
    }


@pytest.mark.parametrize("name", made(None))
def test_a_task_continues_from_any_state_with_the_same_draws(name: str) -> None:
    """An iterator restored at any step yields the elements of the first attempt, so a
    replay repeats and loses nothing.
    """
    node = made(np.random.default_rng(42))[name].node
    assert len(set(map(str, check_restore(node, lambda: task(node))))) >= 3


def test_a_retry_draws_further_numbers() -> None:
    """A call that fails by chance succeeds in a retry, and again in a replay."""
    rng = np.random.default_rng(42)
    node = D.range(40).map(lambda x: 1 / (rng.random() < 0.5), on_error="retry", retries=20).node
    first = check_restore(node, lambda: task(node))
    assert {outcome[0] for outcome in first} == {"float"}


def test_threads_do_not_repeat_draws() -> None:
    """Calls on several threads share a generator, and draw different numbers."""
    rng = np.random.default_rng(42)
    node = D.range(200).map(lambda x: rng.random(), num_parallel_calls=3).node
    assert len(set(map(str, run(node, task(node))))) == 200
