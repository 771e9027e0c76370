"""Tests of balance: steps of batches of nearly equal cost, restored at every step."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counts import how_many
from tests.iterators.checks import plain, run
from zmqdata import Dataset
from zmqdata.elements.ragged import RaggedTensor, RaggedTensorSpec
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY, TensorSpec
from zmqdata.errors import InvalidArgumentError, PipelineError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.operations import balance_plan
from zmqdata.operations.balance_plan import as_cost
from zmqdata.testing import check_iterator

LENGTHS = [int(n) for n in np.random.default_rng(0).lognormal(3, 1, 50)]
OPTIONS: list[dict[str, Any]] = [
    {"batch_size": 3, "window": 2},
    {"batch_size": 3, "window": 1, "drop_remainder": True},
    {"batch_size": 2, "steps": True},
    {"max_cost": 400, "window": 2},
    {"max_cost": 60, "window": 2, "oversize": "alone"},
    {"max_cost": 60, "window": 2, "oversize": "drop"},
    {"max_cost": 60, "window": 1, "steps": True, "oversize": "drop"},
]


def sequences(lengths: Sequence[int] = LENGTHS) -> Dataset:
    """Return sequences of tokens, each of which is the number of its sequence."""
    return Dataset.from_list([{"tokens": np.full(length, at)} for at, length in enumerate(lengths)])


def numbers_of(batch: Any) -> list[int]:
    """Return the numbers of the elements of a batch."""
    return [int(row[0]) for row in batch["tokens"]]


def steps_of(batches: Sequence[Any], width: int) -> list[list[list[int]]]:
    """Return the numbers of the elements of each step."""
    found = [numbers_of(batch) for batch in batches]
    return [found[at : at + width] for at in range(0, len(found), width)]


def squares(element: dict[str, Any]) -> float:
    return float(len(element["tokens"])) ** 2


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_any_step_continues_exactly(options: dict[str, Any]) -> None:
    """An iterator restored behind any of 50 elements yields what the first would have
    yielded.
    """
    check_iterator(sequences().balance(2, cost="tokens", **options))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_passes_are_equal(options: dict[str, Any]) -> None:
    """Passes of repeat yield the same elements, in other orders unless nothing is
    drawn.
    """
    dataset = sequences().balance(
        2, cost=squares, collate_fn=sorted_numbers, **options_for(options)
    )
    once, twice = ([plain(one) for one in dataset.repeat(count)] for count in (1, 2))
    assert flat(twice[: len(once)]) == flat(twice[len(once) :]) == flat(once)


def options_for(options: dict[str, Any]) -> dict[str, Any]:
    """Return options for squared costs."""
    return options | ({"max_cost": options["max_cost"] ** 2} if "max_cost" in options else {})


def sorted_numbers(elements: list[Any]) -> Any:
    return np.array(sorted(int(one["tokens"][0]) for one in elements))


def flat(values: Any) -> list[int]:
    """Return all numbers within nested values, sorted."""
    if isinstance(values, (list, tuple)):
        return sorted(number for one in values for number in flat(one))
    return [values] if isinstance(values, int) else []


@settings(max_examples=how_many(60, 300), deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=50),
    st.integers(1, 4),
    st.one_of(
        st.builds(lambda size: {"batch_size": size}, st.integers(1, 4)),
        st.builds(
            lambda most, fate: {"max_cost": most, "oversize": fate},
            st.integers(10, 60),
            st.sampled_from(["alone", "drop"]),
        ),
    ),
    st.integers(1, 3),
)
def test_every_element_once_in_whole_steps(
    lengths: list[int], consumers: int, options: dict[str, Any], window: int
) -> None:
    """Each element is in one batch, or dropped and counted; all steps but the last have
    a batch for each consumer, of equal number or within the budget.
    """
    dataset = sequences(lengths).balance(consumers, cost="tokens", window=window, **options)
    context = Context(seed=7)
    batches = [numbers_of(batch) for batch in make_iterator(dataset.node, context)]
    counts = context.counts
    size, most = options.get("batch_size"), options.get("max_cost", 0)
    kept = [
        at for at, one in enumerate(lengths) if options.get("oversize") != "drop" or one <= most
    ]
    assert sorted(number for batch in batches for number in batch) == kept
    assert counts.get("balance/dropped", 0) == len(lengths) - len(kept)
    rest = batches[len(batches) - len(batches) % consumers :]
    assert all(len(batch) == 1 for batch in rest)
    if size is not None:
        full = len(lengths) // (consumers * size) * consumers
        assert [len(batch) for batch in batches[:full]] == [size] * full
        assert dataset.cardinality() == len(batches)
        last = [len(batch) for batch in batches[full:]]
        assert not last or max(last) - min(last) <= 1
    else:
        costs = [sum(lengths[number] for number in batch) for batch in batches]
        assert all(
            cost <= most or len(batch) == 1 for cost, batch in zip(costs, batches, strict=True)
        )


def test_a_window_of_one_step_takes_elements_in_order() -> None:
    """Each step of ``window=1`` has the elements that it would have had in order, dealt
    otherwise.
    """
    batches = list(sequences().balance(2, cost="tokens", batch_size=3, window=1))
    for at, step in enumerate(steps_of(batches, 2)[:8]):
        assert sorted(step[0] + step[1]) == [*range(6 * at, 6 * at + 6)]


def test_elements_of_like_cost_meet() -> None:
    """Over a window, steps are far more equal than in order, and the counts say so."""
    lengths = [int(n) for n in np.random.default_rng(1).lognormal(7, 1, 16 * 4 * 8)]
    iterator = iter(sequences(lengths).balance(4, cost=squares, batch_size=8))
    assert len(list(iterator)) == 64
    stats = iterator.stats()
    assert 1 <= stats["data/balance_bound"] <= stats["data/balance"]
    assert stats["data/balance"] < stats["data/balance_in_order"] / 1.5


@pytest.mark.parametrize("amount", [0.0, 1e100])
def test_costs_at_their_limits(amount: float) -> None:
    """Steps of elements that cost nothing, or the most that they may, are equal."""
    iterator = iter(Dataset.range(64).balance(2, cost=lambda x: amount, batch_size=4))
    assert len(list(iterator)) == 16
    assert iterator.stats()["data/balance"] == pytest.approx(1)


def test_fill_of_budgets() -> None:
    """The counts have the share of the budget that batches use."""
    iterator = iter(Dataset.range(64).balance(2, cost=lambda x: 1, max_cost=10, window=2))
    assert len(list(iterator)) == 8
    assert iterator.stats()["data/balance_fill"] == 0.8


def test_the_end_of_a_task() -> None:
    """Elements at the end that fill no step make batches of nearly equal size, or if
    they are too few, a batch each. ``drop_remainder`` leaves both out, and counts them.
    """
    sizes = {8: [2] * 4, 11: [2] * 4 + [1] * 3, 15: [2] * 4 + [2, 2, 2, 1], 3: [1] * 3}
    for count, expected in sizes.items():
        for dropping in (False, True):
            found = Dataset.range(count).balance(
                4, cost=float, batch_size=2, window=2, drop_remainder=dropping
            )
            iterator = iter(found)
            lengths = sorted((len(batch) for batch in iterator), reverse=True)
            assert lengths == (expected[: count // 8 * 4] if dropping else expected)
            assert found.cardinality() == len(lengths)
            if dropping and count % 8:
                assert iterator.stats()["data/balance/dropped"] == count % 8


def test_steps_are_tuples() -> None:
    """``steps=True`` yields a tuple of batches for each step; the last has the
    elements that make no step.
    """
    dataset = Dataset.range(13).balance(3, cost=float, batch_size=2, steps=True)
    found = list(dataset)
    assert [[len(batch) for batch in step] for step in found] == [[2] * 3, [2] * 3, [1]]
    assert dataset.cardinality() == 3
    assert dataset.element_spec == (TensorSpec((None,), np.int64),) * 3


def test_batches_have_the_form_that_specs_say() -> None:
    """Leaves of known shape are stacked. Leaves of unknown length, and the leaf that
    ``cost`` names, become ragged, also in a batch of one element.
    """
    rows = [{"x": np.ones((2, n)), "y": np.int32(n), "z": np.zeros(3)} for n in (1, 2, 2)]
    found = list(Dataset.from_list(rows).balance(1, cost="x", batch_size=2, window=1))
    assert [type(batch["x"]) for batch in found] == [RaggedTensor, RaggedTensor]
    assert [batch["z"].shape for batch in found] == [(2, 3), (1, 3)]
    spec = {"x": TensorSpec((None, 2), np.float64)}
    known = Dataset.range(3).map(lambda n: {"x": np.ones((int(n), 2))}, output_spec=spec)
    made = known.balance(2, cost="x", batch_size=1)
    assert made.element_spec == {"x": RaggedTensorSpec((None, None, 2), np.float64, 1, "int64")}
    assert {type(batch["x"]) for batch in made} == {RaggedTensor}
    unknown = Dataset.range(4).map(lambda n: np.ones(3)).balance(2, cost=len, batch_size=2)
    assert {batch.shape for batch in unknown} == {(2, 3)}
    assert unknown.element_spec == TensorSpec((None, 3), np.float64)
    varying = Dataset.range(4).map(lambda n: {"t": np.ones(4), "x": np.ones(int(n))})
    found_spec = varying.balance(2, cost="t", batch_size=1).element_spec
    assert found_spec["x"] == TensorSpec((None, None), np.float64)


def test_cardinality_where_it_is_unknown() -> None:
    """A budget leaves the number of batches unknown; infinite input stays infinite."""
    numbers = Dataset.range(9)
    assert numbers.balance(2, cost=float, max_cost=9).cardinality() == UNKNOWN_CARDINALITY
    endless = numbers.repeat().balance(2, cost=float, max_cost=9)
    assert endless.cardinality() == INFINITE_CARDINALITY
    assert numbers.take(0).balance(2, cost=float, max_cost=9).cardinality() == 0


# --- failures


def failing(bad: int) -> Callable[[Any], float]:
    """Return a cost that fails for a number."""

    def cost(x: Any) -> float:
        if int(x) == bad:
            raise KeyError("no cost")
        return float(x)

    return cost


@pytest.mark.parametrize("bad", [0, 5, 13, 16])
@pytest.mark.parametrize("source", ["cost", "input"])
def test_a_failed_element_takes_the_place_of_a_batch(bad: int, source: str) -> None:
    """A failing element raises an error that names it, in the place of a batch, so that
    all other steps stay whole and no other element is lost.
    """
    numbers = Dataset.range(17)
    if source == "cost":
        dataset = numbers.balance(2, cost=failing(bad), batch_size=2, window=2)
    else:
        dataset = numbers.map(failing(bad)).balance(2, cost=float, batch_size=2, window=2)
    found = run(dataset.node)
    failures = [at for at, one in enumerate(found) if "no cost" in str(one)]
    assert len(failures) == 1
    assert source == "input" or f"element {bad}" in str(found[failures[0]])
    # 16 good elements: a failure, and batches of two in whole steps before the rest.
    batches = [one for at, one in enumerate(found) if at != failures[0]]
    kept = sorted(int(number) for batch in batches for number in batch[-1])
    assert kept == [number for number in range(17) if number != bad]
    assert all(len(batch[-1]) == 2 for batch in batches[:6])
    check_iterator(dataset)


FATES = st.sampled_from(["", "", "", "cost", "input"])


@settings(max_examples=how_many(40, 300), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([0, 1, 2.5, 9, 30]), FATES), max_size=30),
    st.integers(1, 4),
    st.sampled_from(
        [
            {"batch_size": 2},
            {"batch_size": 3, "steps": True},
            {"max_cost": 10, "oversize": "alone"},
            {"max_cost": 10, "oversize": "error", "steps": True},
            {"max_cost": 10, "oversize": "drop"},
        ]
    ),
    st.integers(1, 3),
)
def test_failures_anywhere(
    elements: list[tuple[float, str]], consumers: int, options: dict[str, Any], window: int
) -> None:
    """Each element that fails, at whatever place, raises one error, each other comes
    once, and an iterator restored at any of them continues exactly.
    """

    def made(x: Any) -> Any:
        if elements[int(x)][1] == "input":
            raise KeyError("input")
        return x

    def cost(x: Any) -> float:
        if elements[int(x)][1] == "cost":
            raise KeyError("cost")
        return elements[int(x)][0]

    numbers = Dataset.range(len(elements)).map(made)
    dataset = numbers.balance(consumers, cost=cost, window=window, **options)
    found = run(dataset.node)
    oversize, most = options.get("oversize"), options.get("max_cost", 99)
    broken = {at for at, (_, fate) in enumerate(elements) if fate}
    dear = {at for at, (one, _) in enumerate(elements) if one > most} - broken
    failed = broken | (dear if oversize == "error" else set())
    kept = set(range(len(elements))) - failed - (dear if oversize == "drop" else set())
    assert sum(one[0] == "raised" for one in found) == len(failed)
    assert numbers_in([one for one in found if one[0] != "raised"]) == sorted(kept)
    check_iterator(dataset)


def numbers_in(found: Any) -> list[int]:
    """Return the numbers of all arrays in the results of ``run``, sorted."""
    if isinstance(found, (list, tuple)) and found and found[0] == "ndarray":
        return sorted(found[3])
    if isinstance(found, (list, tuple)):
        return sorted(number for one in found for number in numbers_in(one))
    return []


@pytest.mark.parametrize("source", ["cost", "input"])
def test_a_failure_that_is_gone_after_a_restart(source: str) -> None:
    """A failure that waits for its place in a state is raised after a restart even if
    it is gone by then, and all other elements follow in whole steps.
    """
    bad = {0, 1}

    def flaky(x: Any) -> float:
        if int(x) in bad:
            raise OSError("no answer")
        return float(x)

    numbers = Dataset.range(20)
    if source == "cost":
        dataset = numbers.balance(2, cost=flaky, batch_size=2, window=1)
    else:
        dataset = numbers.map(flaky).balance(2, cost=float, batch_size=2, window=1)
    iterator = iter(dataset)
    with pytest.raises(PipelineError, match="no answer"):
        next(iterator)
    state = iterator.state_dict()
    bad.clear()
    again = iter(dataset)
    again.load_state_dict(state)
    with pytest.raises(PipelineError, match=r"element 1: .*failed when the state was taken"):
        next(again)
    batches = [batch.tolist() for batch in again]
    assert [len(batch) for batch in batches] == [2] * 8 + [1, 1]
    assert sorted(x for batch in batches for x in batch) == [*range(2, 20)]


@pytest.mark.parametrize("bad", [{5}, {4, 5}, {1, 5}, {0, 1, 2, 3, 5}, {0, 1, 2, 3, 4, 5}])
def test_passes_with_failures_are_whole_steps(bad: set[int]) -> None:
    """A pass with ``drop_remainder`` has whole steps also if elements fail at its end:
    the last error is repeated until the step is full.
    """

    def flaky(x: Any) -> Any:
        if int(x) in bad:
            raise OSError("no answer")
        return x

    dataset = (
        Dataset.range(6)
        .map(flaky)
        .balance(2, cost=float, batch_size=2, window=1, drop_remainder=True)
    )
    once, thrice = run(dataset.node), run(dataset.repeat(3).node)
    assert len(once) % 2 == 0
    assert len(thrice) == 3 * len(once)
    assert sum(one[0] == "raised" for one in once) - len(bad) in (0, 1)
    check_iterator(dataset.repeat(2))


def test_failures_alone_make_steps() -> None:
    """If each element fails, each raises its error once, and the pass ends."""
    dataset = Dataset.range(7).balance(3, cost=lambda x: 1 // 0, batch_size=2)
    iterator, failures = iter(dataset), 0
    while True:
        try:
            next(iterator)
        except StopIteration:
            break
        except PipelineError:
            failures += 1
    assert failures == 7


@pytest.mark.parametrize("cost", [-1, np.nan, np.inf, "12", None, np.ones(2), 10**400, True, 1e101])
def test_costs_are_finite_numbers(cost: Any) -> None:
    """A cost that is negative, NaN, infinite or no number is an error that names the
    element and the value.
    """
    text = r"failed for element 0: .*one finite number of at least 0, it returned"
    with pytest.raises(PipelineError, match=text):
        next(iter(Dataset.range(4).balance(2, cost=lambda x: cost, batch_size=1)))


def test_costs_of_numpy() -> None:
    """Scalars and arrays without axes of numpy are costs."""
    assert [as_cost(x) for x in (np.float32(2), np.array(3), 4)] == [2.0, 3.0, 4.0]


def test_elements_above_the_budget() -> None:
    """An element dearer than ``max_cost`` is an error that names it and the remedies,
    or a batch of its own, or is dropped and counted.
    """
    numbers = Dataset.from_list([1, 9, 2, 3])
    with pytest.raises(PipelineError, match=r"element 1: .*costs 9, and max_cost=5.*'alone'"):
        list(numbers.balance(2, cost=int, max_cost=5))
    alone = [batch.tolist() for batch in numbers.balance(2, cost=int, max_cost=5, oversize="alone")]
    assert [9] in alone
    assert sorted(x for batch in alone for x in batch) == [1, 2, 3, 9]
    iterator = iter(numbers.balance(2, cost=int, max_cost=5, oversize="drop"))
    assert sorted(x for batch in iterator for x in batch.tolist()) == [1, 2, 3]
    assert iterator.stats()["data/balance/dropped"] == 1


def test_a_collate_fn_that_fails() -> None:
    """A failing ``collate_fn`` raises an error that names the batch, and the next batch
    follows.
    """

    def collate(elements: list[Any]) -> Any:
        if 3 in elements:
            raise ValueError("three")
        return np.array(elements)

    iterator = iter(Dataset.range(8).balance(2, cost=float, batch_size=2, collate_fn=collate))
    found: list[int] = []
    errors: list[str] = []
    for _ in range(4):
        try:
            found += next(iterator).tolist()
        except PipelineError as error:
            errors.append(str(error))
    assert len(found) == 6
    assert len(errors) == 1
    assert "balance(collate_fn=collate)" in errors[0]
    assert "failed for the batch of elements 3, " in errors[0] or ", 3: " in errors[0]
    stepwise = Dataset.range(8).balance(2, cost=float, batch_size=2, collate_fn=collate, steps=True)
    texts = [str(one) for one in run(stepwise.node) if "raised" in one]
    assert len(texts) == 1
    lost = re.search(r"step of elements ([0-9, ]+) is lost", texts[0])
    assert lost is not None
    assert "3" in lost[1].split(", ")
    assert len(lost[1].split(", ")) == 4


def test_batches_that_cannot_be_stacked() -> None:
    """An error of stacking names the elements of the batch."""
    mixed = Dataset.range(2).map(lambda n: {"xy"[int(n)]: np.zeros(1)})
    with pytest.raises(PipelineError, match=r"failed for the batch of elements [01], [01]"):
        next(iter(mixed.balance(1, cost=lambda x: 1, batch_size=2)))


def test_a_leaf_that_is_missing() -> None:
    """A name that no leaf has, or a leaf without a length, is an error: at the call if
    the spec is known, and else one that names the element.
    """
    with pytest.raises(InvalidArgumentError, match="name of a leaf"):
        Dataset.range(3).balance(2, cost="tokens", batch_size=1)
    unknown = Dataset.range(3).map(lambda n: {"n": n})
    for name in ("tokens", "n"):
        with pytest.raises(PipelineError, match=f"element 0: .*length of the leaf '{name}'"):
            next(iter(unknown.balance(2, cost=name, batch_size=1)))


@pytest.mark.parametrize("name", ["text", "inner", "missing"])
@pytest.mark.parametrize("is_known", [False, True])
def test_names_that_have_no_length(name: str, is_known: bool) -> None:
    """A text, a nested dict and a missing leaf have no length, at the call if the spec
    is known, and else for each element.
    """
    rows: list[Any] = [{"text": "abc", "inner": {"x": np.ones(2)}, "n": np.ones(n)} for n in (1, 2)]
    if is_known:
        with pytest.raises(InvalidArgumentError, match="name of a leaf"):
            Dataset.from_list(rows).balance(1, cost=name, batch_size=1)
        return
    unknown = Dataset.range(2).map(lambda n: rows[int(n)])
    with pytest.raises(PipelineError, match=f"element 0: .*length of the leaf '{name}'"):
        next(iter(unknown.balance(1, cost=name, batch_size=1)))


def test_attributes_are_no_leaves() -> None:
    """The name of an attribute of arrays is no leaf."""
    with pytest.raises(InvalidArgumentError, match="name of a leaf"):
        Dataset.range(2).batch(2).balance(1, cost="shape", batch_size=1)
    unknown = Dataset.range(2).map(lambda n: np.ones((2, 2)))
    with pytest.raises(PipelineError, match="length of the leaf 'shape'"):
        next(iter(unknown.balance(1, cost="shape", batch_size=1)))


def test_ordered_dicts_beside_a_failure() -> None:
    """Elements that are other dicts keep their costs beside a failing neighbour."""

    def made(n: Any) -> Any:
        if int(n) == 1:
            raise KeyError("input")
        return OrderedDict(x=np.ones(int(n) + 1))

    found = run(Dataset.range(4).map(made).balance(1, cost="x", batch_size=1).node)
    assert sum("raised" in one for one in found) == 1
    assert len(found) == 4


# --- memory and states


def test_the_size_of_states_is_bounded() -> None:
    """A window of more elements than are ever held adds nothing to a state."""
    node = Dataset.range(9).balance(2, cost=float, batch_size=8, window=10**9).node
    assert node.state_bytes < 5 * balance_plan.MOST_ELEMENTS


def test_memory_is_a_window_and_a_step() -> None:
    """While a window leaves, one step's worth of the next is pulled for each step, and
    never more.
    """
    pulled: list[int] = []

    def pull(x: Any) -> Any:
        pulled.append(int(x))
        return x

    iterator = iter(Dataset.range(10_000).map(pull).balance(2, cost=float, batch_size=3, window=4))
    for batches in range(1, 60):
        next(iterator)
        assert len(pulled) <= 24 + 3 * batches
    assert len(pulled) >= 24 + 3 * 50


def test_states_are_small_and_hold_no_content() -> None:
    """A state has about four bytes for each element held, and restoring pulls at most
    two windows again, and calls the cost for the window in collection only.
    """
    calls: list[int] = []
    pulls: list[int] = []

    def cost(x: Any) -> float:
        calls.append(int(x))
        return float(x % 7)

    def pull(x: Any) -> Any:
        pulls.append(int(x))
        return x

    numbers = Dataset.range(100_000).map(pull)
    dataset = numbers.balance(4, cost=cost, batch_size=8, window=16)
    window = 16 * 4 * 8
    iterator = make_iterator(dataset.node, Context(seed=1))
    list(islice(iterator, 100))
    assert len(calls) == len(set(calls))
    state = iterator.state()
    held = sum(len(part) for part in state if isinstance(part, bytes))
    assert held <= 4 * (window + 4 * 8) + 4
    calls.clear()
    pulls.clear()
    again = make_iterator(dataset.node, Context(seed=1))
    again.restore(state)
    assert len(calls) < window < len(pulls) <= 2 * window
    assert [plain(x) for x in islice(again, 50)] == [plain(x) for x in islice(iterator, 50)]


def test_windows_end_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window ends early when its elements are many or large, but not below a step."""
    monkeypatch.setattr(balance_plan, "MOST_ELEMENTS", 10)
    batches = list(Dataset.range(24).balance(2, cost=float, batch_size=2))
    assert sorted(x for batch in batches[:4] for x in batch.tolist()) == [*range(8)]
    check_iterator(Dataset.range(24).balance(2, cost=float, batch_size=2))
    monkeypatch.setattr(balance_plan, "MOST_BYTES", 500_000)
    large = Dataset.range(12).map(lambda n: np.full(1 << 17, n, np.int8))
    batches = list(large.balance(2, cost=len, batch_size=2))
    assert sorted(int(x) for batch in batches[:2] for x in batch[:, 0]) == [*range(4)]
    check_iterator(large.balance(2, cost=len, batch_size=1))


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_windows_of_mixed_sizes(share: float) -> None:
    """A window ends at its bound of bytes, whatever the sizes of single elements are,
    and the next one is then pulled step by step.
    """
    sizes = np.where(np.random.default_rng(0).random(20_000) < share, 8 << 20, 100)
    pulled: list[int] = []

    def untouched(n: Any) -> Any:
        pulled.append(int(sizes[int(n)]))
        return np.empty(pulled[-1], np.uint8)

    dataset = Dataset.range(20_000).map(untouched).balance(2, cost=len, batch_size=4, window=10**6)
    iterator = iter(dataset)
    next(iterator)
    assert balance_plan.MOST_BYTES <= sum(pulled) < balance_plan.MOST_BYTES + (8 << 20)
    steps = len(pulled) // 8
    for _ in range(3):
        before = sum(pulled)
        for _ in range(2):
            next(iterator)
        assert sum(pulled) - before <= balance_plan.MOST_BYTES // steps + (8 << 20)


def test_an_interrupted_cost_loses_nothing() -> None:
    """An interrupt within ``cost`` loses no element, in this iterator and in one
    restored from its state.
    """
    due = [True]

    def cost(x: Any) -> float:
        if int(x) == 20 and due:
            due.clear()
            raise KeyboardInterrupt
        return float(x)

    dataset = Dataset.range(40).balance(2, cost=cost, batch_size=2, window=4)
    iterator, found = iter(dataset), list[int]()

    def read() -> None:
        for batch in iterator:
            found.extend(batch.tolist())

    with pytest.raises(KeyboardInterrupt):
        read()
    again = iter(dataset)
    again.load_state_dict(iterator.state_dict())
    for one in (iterator, again):
        rest = [x for batch in one for x in batch.tolist()]
        assert sorted(found + rest) == [*range(40)]


def test_the_order_follows_from_the_seed() -> None:
    """A seed fixes the order of steps and batches, another seed draws another, and each
    task its own.
    """

    def order(seed: int, task: int = 0) -> list[Any]:
        node = Dataset.range(96).balance(3, cost=float, batch_size=2, seed=seed).node
        return [plain(x) for x in make_iterator(node, Context(seed=5, task=task))]

    assert order(1) == order(1)
    assert len({str(order(1)), str(order(2)), str(order(1, task=1))}) == 3


# --- arguments


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (ValueError, "exactly one of them", {}),
        (ValueError, "exactly one of them", {"batch_size": 2, "max_cost": 2}),
        (ValueError, "num_consumers must be at least 1", {"num_consumers": 0, "batch_size": 2}),
        (ValueError, "batch_size must be at least 1", {"batch_size": 0}),
        (ValueError, "max_cost must be above 0", {"max_cost": 0}),
        (ValueError, "max_cost must be a finite number", {"max_cost": np.inf}),
        (ValueError, "max_cost must be a finite number", {"max_cost": 10**400}),
        (ValueError, r"max_cost must be at most 1e\+100", {"max_cost": 1e307}),
        (TypeError, "max_cost must be a number", {"max_cost": "7"}),
        (ValueError, "window must be at least 1", {"batch_size": 2, "window": 0}),
        (ValueError, "oversize must be", {"max_cost": 2, "oversize": "keep"}),
        (ValueError, "need `max_cost`", {"batch_size": 2, "oversize": "drop"}),
        (TypeError, "cost must be", {"batch_size": 2, "cost": 7}),
        (TypeError, "steps must be a bool", {"batch_size": 2, "steps": 1}),
        (TypeError, "collate_fn", {"batch_size": 2, "collate_fn": 3}),
    ],
)
def test_mistakes_are_errors_at_the_call(
    error: type[Exception], text: str, options: dict[str, Any]
) -> None:
    """The call refuses arguments that are wrong or contradict each other."""
    given_ = {"num_consumers": 2, "cost": float, **options}
    with pytest.raises(error, match=text):
        Dataset.range(4).balance(**given_)


def test_parameters_are_part_of_the_fingerprint() -> None:
    """Every parameter but the functions tells a state of another pipeline apart."""

    def structure(cost: Any = float, **options: Any) -> str:
        given_ = {"batch_size": 2, "num_consumers": 2, **options}
        return str(Dataset.range(9).balance(cost=cost, **given_).fingerprint().structure)

    others: list[dict[str, Any]] = [
        {"num_consumers": 3},
        {"batch_size": 3},
        {"batch_size": None, "max_cost": 3},
        {"batch_size": None, "max_cost": 3, "oversize": "drop"},
        {"window": 3},
        {"steps": True},
        {"drop_remainder": True},
        {"seed": 1},
    ]
    assert len({structure(), *[structure(**one) for one in others]}) == 1 + len(others)
    assert structure() == structure(cost=int)
