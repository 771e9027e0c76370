"""Facts about mixtures of split datasets: each task has a schedule of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.service import WatchedService
from tests.service.simulated.parts import moved_tasks
from tests.service.simulated.test_resuming import gone_on, stopped
from zmqdata import Dataset
from zmqdata.errors import DataServiceError, InvalidArgumentError

PARTS = {"a": Dataset.range(300), "b": Dataset.range(1000, 1060), "c": Dataset.range(2000, 2003)}
WEIGHTS = {"a": 0.6, "b": 0.3, "c": 0.1}
STOPS = ("first", "all", "once")


def mixed(**options: Any) -> Dataset:
    return Dataset.mix(PARTS, options.pop("weights", WEIGHTS), seed=3, **options)


def numbers(dataset: Any) -> list[int]:
    return [int(x) for x in dataset]


@pytest.mark.parametrize("stop", STOPS)
def test_the_order_does_not_depend_on_the_workers(stop: str) -> None:
    """In a promised order, 1, 2 and 5 workers give the same order, and a single task
    gives the order without the service.
    """
    found = []
    for workers in (1, 2, 5):
        with WatchedService(workers) as service:
            options = {"deterministic": True, "num_tasks": 4}
            found.append(numbers(service.read(mixed(stop=stop), "distributed_epoch", **options)))
    assert found[0] == found[1] == found[2]
    with WatchedService(2) as service:
        one = service.read(mixed(stop=stop), "distributed_epoch", deterministic=True, num_tasks=1)
        assert numbers(one) == numbers(mixed(stop=stop))


def test_shares_hold_for_each_task(service: WatchedService) -> None:
    """As long as each task has splits of each dataset, shares hold within one for each
    task.
    """
    datasets = {"a": Dataset.range(10_000), "b": Dataset.range(10_000, 20_000)}
    read = iter(service.read(Dataset.mix(datasets, {"a": 3, "b": 1})))
    found = [int(next(read)) >= 10_000 for _ in range(400)]
    assert abs(sum(found) - 100) <= 2 + 400 // 100


def test_once_gives_each_element_once(service: WatchedService) -> None:
    """``once`` gives each element of the job once, from any number of tasks."""
    every = [number for part in PARTS.values() for number in numbers(part)]
    assert sorted(numbers(service.read(mixed(stop="once")))) == every


def test_all_hands_out_each_dataset_once(service: WatchedService) -> None:
    """``all`` ends when the splits of all datasets were handed out, and gives each
    element at least once.
    """
    found = Counter(numbers(service.read(mixed(stop="all"))))
    assert set(found) == {number for part in PARTS.values() for number in numbers(part)}
    assert {found[number] for number in range(300)} == {1}
    assert found[1000] > 1


def test_first_says_how_many_splits_a_small_dataset_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A task without a split of a dataset that is due ends under ``first``, and says
    how many splits the dataset has.
    """
    with WatchedService(2) as service:
        with pytest.warns(UserWarning, match="`c` has 3 splits, fewer than the 5 tasks"):
            read = service.read(mixed(), "distributed_epoch", deterministic=True, num_tasks=5)
        found = numbers(read)
    assert 0 < len(found) < 100
    assert "`c` had no elements for task 3, which got 0 of its 3 splits" in caplog.text


def test_an_endless_dataset_without_a_split_ends_a_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In a promised order, a task that has no split of a repeated dataset ends
    under ``first``, and says how many splits the dataset has.
    """
    datasets = {"a": Dataset.range(40), "b": Dataset.range(1000, 1002).repeat()}
    with WatchedService(2) as service:
        read = service.read(
            Dataset.mix(datasets, stop="first"),
            "distributed_epoch",
            deterministic=True,
            num_tasks=3,
        )
        found = numbers(read)
    assert "`b` had no elements for task 2, which got 0 of its 2 splits" in caplog.text
    assert 50 < len(found) < 80


def empty() -> Dataset:
    return Dataset.range(9).filter(lambda x: False)


EMPTY: dict[str, Callable[[], Dataset]] = {
    "filtered": empty,
    "repeated": lambda: empty().repeat(2),
    "endless": lambda: empty().repeat(),
    "concatenated": lambda: empty().concatenate(empty()),
    "mixed": lambda: Dataset.mix({"p": Dataset.range(3), "q": Dataset.range(4)}).filter(
        lambda x: False
    ),
}


@pytest.mark.parametrize("kind", EMPTY)
def test_an_empty_dataset_fails_the_job(kind: str, service: WatchedService) -> None:
    """A dataset without elements in the only task ends the job with an error that names
    the dataset.
    """
    parts = {"a": Dataset.range(30), "b": EMPTY[kind]()}
    read = service.read(Dataset.mix(parts), "distributed_epoch", deterministic=True, num_tasks=1)
    with pytest.raises(InvalidArgumentError, match="dataset `b` has no elements"):
        numbers(read)


def test_readers_of_one_job_have_the_same_weights(service: WatchedService) -> None:
    """A reader with other weights is refused while others read the job, and the error
    has both.
    """
    named = {"job_name": "mixed", "max_outstanding_requests": 4}
    first = iter(service.read(mixed(), **named))
    next(first)
    another = iter(service.read(mixed(weights={"a": 1, "b": 1, "c": 1}, reweight=True), **named))
    with pytest.raises(InvalidArgumentError, match=r"weights of mix.*'a': 6.*got.*'a': 1"):
        next(another)


def test_an_endless_empty_dataset_fails_the_tasks_that_share_it(service: WatchedService) -> None:
    """A mixture does not wait without end for an empty dataset that is repeated."""
    parts = {"a": Dataset.range(30), "b": EMPTY["endless"]()}
    with pytest.raises(InvalidArgumentError, match="dataset `b` has no elements"):
        numbers(service.read(Dataset.mix(parts)))


def test_names_arrive(service: WatchedService) -> None:
    """Elements come with the names of their datasets."""
    read = service.read(mixed(stop="once", names=True))
    assert Counter(name for name, _ in read) == {"a": 300, "b": 60, "c": 3}


@pytest.mark.parametrize("stop", STOPS)
def test_a_killed_worker_changes_nothing(
    stop: str, make_service: Callable[..., WatchedService]
) -> None:
    """Workers that die take no element along, and the order that was promised stays."""
    options = {"deterministic": True, "num_tasks": 3}
    with WatchedService(1) as plain:
        expected = numbers(plain.read(mixed(stop=stop), "distributed_epoch", **options))
    service = make_service(3, worker_options={"buffer_bytes": 1024})
    read = iter(
        service.read(mixed(stop=stop), "distributed_epoch", max_outstanding_requests=4, **options)
    )
    found = [int(next(read)) for _ in range(15)]
    service.workers[0].kill()
    found += [int(next(read)) for _ in range(15)]
    assert moved_tasks(service)
    service.workers[1].kill()
    assert [*found, *numbers(read)] == expected


# --- states


def made(service: WatchedService, **options: Any) -> Dataset:
    above = options.pop("above", lambda dataset: dataset)
    return above(mixed(stop="once", **options)).apply(
        service.distribute("distributed_epoch", job_name="training", max_outstanding_requests=4)
    )


ABOVE: dict[str, Callable[[Dataset], Dataset]] = {
    "plain": lambda dataset: dataset,
    "shuffled": lambda dataset: dataset.shuffle(20, seed=1),
    "ahead": lambda dataset: dataset.shuffle(9, seed=1).batch(3).unbatch().prefetch(5),
}


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize("count", [0, 3, 40, 150])
def test_new_weights_in_the_service_lose_and_repeat_nothing(above: str, count: int) -> None:
    """A job that resumes with other weights on other workers gives the other elements,
    each once, also if it resumes again.
    """
    with WatchedService(2) as service:
        before, state = stopped(made(service, above=ABOVE[above]), count)
    other = {"a": 1, "b": 5, "c": 1}
    with WatchedService(3) as service:
        iterator = iter(made(service, above=ABOVE[above], weights=other, reweight=True))
        iterator.load_state_dict(state)
        between = [int(next(iterator)) for _ in range(60)]
        state = iterator.state_dict()
        iterator.close()
    if above == "plain" and count < 100:
        assert Counter(number // 1000 for number in between)[1] > 30
    with WatchedService(1) as service:
        after = gone_on(made(service, above=ABOVE[above], weights=other), state)
    every = [number for part in PARTS.values() for number in numbers(part)]
    assert sorted(before + between + after) == every


def test_a_job_refuses_the_state_of_other_weights() -> None:
    """Without ``reweight``, a job does not continue with other weights."""
    with WatchedService(2) as service:
        _, state = stopped(made(service), 40)
    with (
        WatchedService(2) as service,
        pytest.raises(DataServiceError, match=r"has the weights .'a': 6, 'b': 3, 'c': 1"),
    ):
        gone_on(made(service, weights={"a": 1, "b": 1, "c": 1}), state)


@pytest.mark.parametrize("stop", STOPS)
def test_a_mixture_resumes_at_any_element(stop: str) -> None:
    """A promised order continues exactly, with another number of workers."""

    def ordered(service: WatchedService) -> Dataset:
        return mixed(stop=stop).apply(
            service.distribute("distributed_epoch", deterministic=True, num_tasks=2)
        )

    with WatchedService(1) as service:
        expected = numbers(ordered(service))
    for count in (0, 1, 7, 29):
        with WatchedService(2) as service:
            before, state = stopped(ordered(service), count)
        with WatchedService(3) as service:
            assert before + gone_on(ordered(service), state) == expected


@pytest.mark.parametrize(("passes", "cuts"), [(1, (1, 7)), (1, (7, 20)), (3, (90, 7))])
def test_weights_may_become_earlier_ones_again(passes: int, cuts: tuple[int, int]) -> None:
    """Runs that go back to the weights of an earlier run lose and repeat nothing, also
    if workers die.
    """
    datasets = {"a": Dataset.range(100), "b": Dataset.range(1000, 1020)}
    weights = [{"a": 1, "b": 5}, {"a": 3, "b": 1}, {"a": 1, "b": 5}]
    found: list[int] = []
    state = None
    for number, count in enumerate((*cuts, 1000)):
        with WatchedService(2) as service:
            dataset = Dataset.mix(
                datasets, weights[number], seed=1, stop="once", reweight=number > 0
            ).repeat(passes)
            options = {"deterministic": True, "num_tasks": 1, "max_outstanding_requests": 4}
            iterator = iter(service.read(dataset, "distributed_epoch", **options))
            if state is not None:
                iterator.load_state_dict(state)
            for at, element in enumerate(iterator, 1):
                found.append(int(element))
                if at == 5:
                    service.workers[0].kill()
                    service.workers[1].kill()
                    service.add_worker()
                if at == count:
                    break
            state = iterator.state_dict()
            iterator.close()
    every = [*range(100), *range(1000, 1020)]
    assert Counter(found) == Counter(every * passes)


def test_a_task_that_has_ended_keeps_its_weights() -> None:
    """A task that had made its last element before the state was taken ends there
    again, also if the next run has other weights.
    """
    datasets = {"a": Dataset.range(300), "b": Dataset.range(1000, 1020)}

    def made(service: WatchedService, weights: Any, reweight: bool = False) -> Dataset:
        options = {"deterministic": True, "num_tasks": 3, "max_outstanding_requests": 8}
        mixture = Dataset.mix(datasets, weights, seed=1, stop="first", reweight=reweight)
        return mixture.apply(service.distribute("distributed_epoch", **options))

    with WatchedService(2) as service:
        before, state = stopped(made(service, {"a": 1, "b": 5}), 20)
    with WatchedService(2) as service:
        after = gone_on(made(service, {"a": 1, "b": 1}, reweight=True), state)
    assert max(Counter(before + after).values()) == 1
