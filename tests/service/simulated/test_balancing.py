"""``balance`` in the service, in simulated time: all consumers get the batches of one
step at a time, and every element once, whatever happens to workers and readers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.full import seeds
from tests.kit.service import WatchedService
from zmqdata import Dataset
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError, PipelineError

Step = list[list[int]]
"""The elements of each consumer's batch."""
OPTIONS: list[dict[str, Any]] = [
    {"batch_size": 1, "window": 2},
    {"batch_size": 2, "window": 3},
    {"batch_size": 3, "window": 1, "drop_remainder": True},
    {"max_cost": 60, "window": 2},
    {"max_cost": 30, "window": 2, "oversize": "alone"},
]


def cost(x: Any) -> float:
    return float(int(x) * 7919 % 50)


def balanced(count: int, consumers: int, **options: Any) -> Dataset:
    """Return balanced batches of numbers. The map hides them from shortcuts."""
    return Dataset.range(count).map(lambda x: x).balance(consumers, cost=cost, **options)


class Ranks:
    """The consumers of a job, which take steps in turn.

    Args:
        service: the service.
        dataset: what they read.
        count: their number.
        options: of ``distribute``.
    """

    def __init__(
        self, service: WatchedService, dataset: Dataset, count: int, **options: Any
    ) -> None:
        self.service, self.count = service, count
        self._dataset, self._options = dataset, options
        self.readers = [self.reader(index) for index in range(count)]

    def reader(self, index: int) -> Iterator[Any]:
        """Return an iterator of a consumer."""
        place: dict[str, Any] = {"consumer_index": index, "num_consumers": self.count}
        named = {"job_name": "job", "finite": "drop", **place, **self._options}
        return iter(self.service.read(self._dataset, "distributed_epoch", **named))

    def take(self, index: int) -> list[int] | None:
        """Return the elements of the next batch of a consumer; None at its end."""
        try:
            return [int(x) for x in next(self.readers[index])]
        except StopIteration:
            return None
        except FailedPreconditionError as error:
            if "was read to its end in this process" not in str(error):
                raise
            return None  # its predecessor had the end

    def steps(self, befall: Any = lambda step, index: None) -> list[Step]:
        """Take all steps.

        Args:
            befall: called before each batch with the numbers of step and consumer.
        """
        found: list[Step] = []
        while True:
            batches = []
            for index in range(self.count):
                befall(len(found), index)
                batches.append(self.take(index))
            if None in batches:
                assert batches == [None] * self.count
                return found
            found.append(batches)  # type: ignore[arg-type]  # None is excluded


def calm(workers: int, dataset: Dataset, consumers: int, seed: int = 0, **job: Any) -> list[Step]:
    """Return the steps that consumers get if nothing disturbs them."""
    with WatchedService(workers, seed=seed) as service:
        return Ranks(service, dataset, consumers, **job).steps()


def elements(steps: list[Step]) -> list[int]:
    return sorted(x for step in steps for batch in step for x in batch)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_promised_order_is_that_of_any_number_of_workers(options: dict[str, Any]) -> None:
    """One, two and five workers make the same steps of the same tasks, and each element
    is read once.
    """
    dataset = balanced(151, 3, seed=1, **options)
    found = [
        calm(workers, dataset, 3, workers, deterministic=True, num_tasks=3) for workers in (1, 2, 5)
    ]
    assert found[0] == found[1] == found[2]
    read = elements(found[0])
    assert len(read) == len(set(read))
    assert len(read) > 151 - (27 if options.get("drop_remainder") else 3)


def test_each_step_is_one_of_its_task() -> None:
    """The batches that consumers get at a step are those that the only task makes in a
    row, as without the service.
    """
    dataset = balanced(96, 4, batch_size=3, window=2, seed=1)
    batches = [[int(x) for x in batch] for batch in dataset]
    steps = calm(2, dataset, 4, deterministic=True, num_tasks=1)
    assert steps == [batches[at : at + 4] for at in range(0, len(batches), 4)]


def disturbed(seed: int, **job: Any) -> None:
    """Read balanced batches while workers die, leave and come and readers are replaced,
    and check that steps are whole and elements are read once.
    """
    draw = random.Random(seed)
    consumers, count = draw.randint(1, 4), draw.choice([7, 40, 120])
    options = {**draw.choice(OPTIONS), "seed": seed}
    is_ordered = draw.random() < 0.5
    if is_ordered:
        job |= {"deterministic": True, "num_tasks": draw.choice([1, 2, 5])}
    dataset = balanced(count, consumers, **options)
    expected = calm(draw.randint(1, 3), dataset, consumers, seed, **job) if is_ordered else []
    with WatchedService(draw.randint(1, 3), seed=seed) as service:
        ranks = Ranks(service, dataset, consumers, **job)
        often = draw.choice([0.02, 0.1, 0.3])

        def befall(step: int, index: int) -> None:
            if draw.random() > often:
                return
            alive = [worker for worker in service.workers if worker.alive]
            if alive and draw.random() < 0.7:
                draw.choice(alive).kill()
            if draw.random() < 0.6 or len(alive) < 2:
                service.add_worker()
            # A successor of a consumer that has had all would begin another job.
            if draw.random() < 0.2 and step < 2 and count > 30:
                ranks.readers[index].close()  # type: ignore[attr-defined]  # of a dataset
                ranks.readers[index] = ranks.reader(index)

        steps = ranks.steps(befall)
    if is_ordered:
        assert steps == expected
    kept = Counter(range(count))
    found = Counter(elements(steps))
    if job.get("finite") == "pad":
        assert set(found) == set(kept) or options.get("drop_remainder")
    else:
        assert not found - kept
        assert options.get("drop_remainder") or sum((kept - found).values()) < consumers
    size = options.get("batch_size")
    if size and job.get("finite") != "pad":
        # The rests of tasks make the last rounds, of batches of nearly equal size.
        uneven = [step for step in steps if {len(batch) for batch in step} != {size}]
        assert all(len(batch) <= size for step in uneven for batch in step)


@pytest.mark.parametrize("finite", ["drop", "pad"])
@pytest.mark.parametrize("seed", seeds(60, core=8))
def test_nothing_is_lost_whatever_dies(seed: int, finite: str) -> None:
    """Workers that die in any window, and consumers that are replaced, change no step
    of a promised order, and lose or repeat no element.
    """
    disturbed(seed, finite=finite)


@pytest.mark.parametrize("seed", seeds(20, core=1))
def test_endless_input(seed: int) -> None:
    """Consumers of endless input get the steps of a promised order, while workers die
    at any step.
    """
    draw = random.Random(seed)
    dataset = Dataset.range(500).map(lambda x: x).repeat()
    dataset = dataset.balance(3, cost=cost, batch_size=2, window=2, seed=seed)
    found: list[list[Any]] = []
    for often in (0.0, 0.2):
        with WatchedService(2, seed=seed, worker_options={"buffer_bytes": 4096}) as service:
            ranks = Ranks(service, dataset, 3, finite=None, deterministic=True, num_tasks=2)
            steps = []
            for _ in range(25):
                if draw.random() < often:
                    draw.choice([one for one in service.workers if one.alive]).kill()
                    service.add_worker()
                steps.append([ranks.take(index) for index in range(3)])
        found.append(steps)
    assert found[0] == found[1]
    assert {len(batch or ()) for step in found[0] for batch in step} == {2}


def test_a_failure_reaches_its_consumer() -> None:
    """A failing cost is an error of a single consumer in the place of a batch, and all
    other steps are whole.
    """

    def fails(x: Any) -> float:
        if int(x) == 20:
            raise KeyError("no cost")
        return cost(x)

    dataset = Dataset.range(61).balance(3, cost=fails, batch_size=2, window=2, seed=1)
    errors, sizes, found = [], [], []
    with WatchedService(1) as service:
        ranks = Ranks(service, dataset, 3)
        for _ in range(10):
            for index in range(3):
                try:
                    batch = ranks.take(index) or []
                except PipelineError as error:
                    errors.append(str(error))
                    continue
                sizes.append(len(batch))
                found += batch
    assert len(errors) == 1
    assert "element 20" in errors[0]
    assert set(sizes) == {2}
    assert len(found) == len(set(found)) == 58


def test_counts_of_all_tasks() -> None:
    """The client and the status have the ratios of all tasks together."""
    with WatchedService(2) as service:
        ranks = Ranks(service, balanced(120, 2, batch_size=3, window=3), 2)
        ranks.steps()
        stats = ranks.readers[0].stats()  # type: ignore[attr-defined]  # of a dataset
    names = ("balance", "balance_in_order", "balance_bound")
    ratios = [stats[f"data/{name}"] for name in names]
    assert 1 <= ratios[2] <= ratios[0] < ratios[1]


def test_another_run_with_another_number_of_consumers() -> None:
    """Another number of consumers is refused before anything is read."""
    with WatchedService(1) as service, pytest.raises(InvalidArgumentError, match="to 4 consumers"):
        Ranks(service, balanced(20, 4, batch_size=2), 2)
