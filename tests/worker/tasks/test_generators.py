"""Tests of ``zmqdata.worker.tasks.generators``."""

from __future__ import annotations

import functools
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.worker.tasks.test_runner import COUNT, Run
from zmqdata.core.worker import events as e
from zmqdata.dataset import Dataset
from zmqdata.nodes.options import ExternalStatePolicy, Options
from zmqdata.pipelines import pack_pipeline
from zmqdata.worker.tasks import generators, pipeline
from zmqdata.worker.tasks.generators import TaskGenerators


def module_function() -> Callable[[Any], float]:
    """Return a function that uses a generator of this module."""
    return lambda x: RNG.random()


RNG = np.random.default_rng(1)


def test_generators_of_modules_belong_to_a_users_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker seeds the generators of modules in its own process, and not in that of a
    user.
    """
    node = Dataset.range(3).map(module_function()).node
    before = RNG.bit_generator.state
    TaskGenerators(node, 1).begin(0, None)
    assert before == RNG.bit_generator.state
    monkeypatch.setattr(pipeline, "_is_own_process", False)
    pipeline.own_process()
    TaskGenerators(node, 1).begin(0, None)
    assert before != RNG.bit_generator.state


def cached() -> Callable[[], Any]:
    @functools.lru_cache
    def rng() -> Any:
        return np.random.default_rng(42)

    return lambda: rng().random()


def cached_for_ever() -> Callable[[], Any]:
    @functools.cache
    def rng(seed: int) -> Any:
        return random.Random(seed)

    return lambda: rng(42).random()


def in_an_attribute() -> Callable[[], Any]:
    class Noise:
        def __init__(self) -> None:
            self.rng: Any = None

        def __call__(self) -> Any:
            if self.rng is None:
                self.rng = np.random.default_rng(42)
            return self.rng.random()

    return Noise()


def in_a_property() -> Callable[[], Any]:
    class Noise:
        @functools.cached_property
        def rng(self) -> Any:
            return np.random.RandomState(42)

        def __call__(self) -> Any:
            return self.rng.random_sample()

    return Noise()


def in_a_variable() -> Callable[[], Any]:
    rng: Any = None

    def noise() -> Any:
        nonlocal rng
        rng = rng or np.random.default_rng(42)
        return rng.random()

    return noise


def in_a_list() -> Callable[[], Any]:
    rngs: list[Any] = []

    def noise() -> Any:
        if not rngs:
            rngs.append(np.random.default_rng(42))
        return rngs[0].random()

    return noise


def in_an_attribute_of_the_thread() -> Callable[[], Any]:
    local: Any = None

    def noise() -> Any:
        nonlocal local
        if local is None:
            local = threading.local()
            local.rng = np.random.default_rng(42)
        return local.rng.random()

    return noise


def in_a_running_generator() -> Callable[[], Any]:
    def draw() -> Any:
        rng = np.random.default_rng(42)
        while True:
            yield rng.random()

    draws: list[Any] = []

    def noise() -> Any:
        if not draws:
            draws.append(draw())
        return next(draws[0])

    return noise


MAKING: dict[str, Callable[[], Callable[[], Any]]] = {
    "cached": cached,
    "cached for ever": cached_for_ever,
    "attribute": in_an_attribute,
    "property": in_a_property,
    "variable": in_a_variable,
    "list": in_a_list,
    "thread": in_an_attribute_of_the_thread,
    "running generator": in_a_running_generator,
}


def noisy(name: str) -> Dataset:
    """Return a dataset whose elements depend on two generators that are made late."""
    coin, noise = MAKING[name](), MAKING[name]()
    return (
        Dataset.range(COUNT)
        .filter(lambda x: coin() < 0.7)
        .shuffle(8)
        .map(lambda x: [float(x), noise()])
    )


@pytest.mark.parametrize("name", MAKING)
def test_what_functions_make_draws_anew_in_each_task(name: str) -> None:
    """No draw of a generator that a function makes comes again in the task, or in
    another one, but that of the first element.
    """
    runs = [Run(noisy(name), seed=seed, hurried=False) for seed in (1, 2, 3)]
    drawn = [element[1] for run in runs for element in run.elements.values()]
    assert len(set(drawn)) + 2 == len(drawn) > 350


def test_nothing_is_read_again_for_a_generator() -> None:
    """A source that can be read once loses no element if a function makes a generator,
    and a function that counts its calls counts each element once.
    """
    waiting, calls, noise = list(range(COUNT)), [0], in_an_attribute()

    def take() -> Any:
        while waiting:
            yield waiting.pop()

    def count(x: Any) -> Any:
        noise()
        calls[0] += 1
        return [x, calls[0]]

    elements = Run(Dataset.from_generator(take).map(count).shuffle(50)).elements.values()
    for values in zip(*elements, strict=True):
        assert sorted(values) in ([*range(COUNT)], [*range(1, COUNT + 1)])


def test_a_state_decides_for_which_generators_elements_are_counted() -> None:
    """A state of a pipeline whose functions had no generators fits one whose functions
    have them.
    """

    def later(rng: Any) -> Dataset:
        return Dataset.range(COUNT).map(lambda x: x if rng is None else x + rng.random())

    first = Run(later(None))
    state = next(one.state for one in first.of(e.StateNoted) if one.state.number >= 100)
    now = later(np.random.default_rng(1))
    second = Run(
        now, first.definition, digest=pack_pipeline(now.node).digest, states=(state,),
        skip=((0, state.number),), attempt=2,
    )  # fmt: skip
    assert len(second.elements) == COUNT - state.number


def test_what_is_made_late_is_seeded_for_the_task() -> None:
    """A generator that is made for a later element draws differently in each task
    soon.
    """

    def rare() -> Dataset:
        noise = in_an_attribute()
        return Dataset.range(COUNT).map(lambda x: noise() if x >= 10 else -1.0)

    one, other = (Run(rare(), seed=seed).elements for seed in (1, 2))
    same = {number for number in one if one[number] == other[number]}
    assert same == set(range(17))


def test_a_generator_of_each_element_is_the_functions_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A function that makes a generator in each call, from the element, draws as it
    does locally, without a warning.
    """

    class Noise:
        rng: Any = None

        def __call__(self, x: Any) -> Any:
            self.rng = np.random.default_rng(int(x))
            return float(self.rng.random())

    dataset = Dataset.range(COUNT).map(Noise())
    assert [*Run(dataset, hurried=False).elements.values()] == list(dataset)
    assert "random_map" not in caplog.text


def test_a_policy_decides_what_is_said_of_a_generator_that_is_made(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WARN logs each generator once for a process, IGNORE nothing, and FAIL fails the
    task.
    """
    monkeypatch.setattr(generators, "_told", set())
    caplog.set_level(logging.WARNING)
    options = Options()
    for policy, texts, fails in (
        (ExternalStatePolicy.IGNORE, 0, False),
        (ExternalStatePolicy.WARN, 2, False),
        (None, 2, False),
        (ExternalStatePolicy.FAIL, 2, True),
    ):
        options.experimental_external_state_policy = policy
        elements = Run(noisy("attribute").with_options(options), hurried=False).elements
        assert caplog.text.count("Use random_map(function, seed=...)") == texts
        assert (str(elements[1]).count("ExternalStatePolicy.FAIL") == 1) == fails


@pytest.mark.parametrize("first", [0, 1000])
def test_functions_are_searched_a_few_times(first: int) -> None:
    """The functions of a million elements are searched after the first one, and ten
    times later, wherever the task begins.
    """
    task = TaskGenerators(Dataset.range(3).map(abs).node, 1)
    task.begin(first, None)
    looked = []
    while task.due < first + 2**20:
        looked.append(task.due - first)
        task.look(task.due)
    assert looked == [0, *(4**power for power in range(10))]
