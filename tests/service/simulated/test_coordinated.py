"""Facts about coordinated reads: consumers read in step, even when peers come and
go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from zmqdata import Dataset, distribute
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
    UnavailableError,
)

ENDLESS = 10**15
Made = tuple[int, int]
"""The number of an element, and the thread of the task that made it."""


def numbered(count: int = ENDLESS) -> Dataset:
    """Return numbers, each with the thread of the task that makes it. The filter hides
    the cardinality.
    """
    return Dataset.range(count).filter(lambda x: True).map(lambda x: (x, threading.get_ident()))


def consumer(
    service: WatchedService, index: int, count: int, dataset: Dataset, mode: str, **options: Any
) -> Iterator[Any]:
    """Return an iterator that reads the job "job" as a consumer."""
    named = {"job_name": "job", **options}
    return iter(service.read(dataset, mode, consumer_index=index, num_consumers=count, **named))


def consumers(
    service: WatchedService,
    count: int,
    dataset: Dataset,
    mode: str = "parallel_epochs",
    **options: Any,
) -> list[Iterator[Any]]:
    """Return an iterator for each consumer of a job."""
    return [consumer(service, index, count, dataset, mode, **options) for index in range(count)]


def steps(readers: list[Iterator[Any]], count: int) -> list[list[Made]]:
    """Take steps, each of which is one element for every consumer."""
    return [[(int(x), int(maker)) for x, maker in map(next, readers)] for _ in range(count)]


def rounds(taken: list[list[Made]]) -> dict[int, list[list[int]]]:
    """Return the rounds of each task in the order in which consumers read them. Fail if
    a step has elements of two tasks.
    """
    found: dict[int, list[list[int]]] = {}
    for step in taken:
        [maker] = {maker for _, maker in step}
        found.setdefault(maker, []).append([x for x, _ in step])
    return found


def whole(rounds_of_one: list[list[int]], first: int = 0) -> bool:
    """Return whether the rounds of a copy are complete, in order, and without a gap."""
    flat = [x for one in rounds_of_one for x in one]
    return flat == list(range(first, first + len(flat)))


def drained(readers: list[Iterator[Any]]) -> tuple[list[list[int]], list[Exception | None]]:
    """Return the elements that each consumer gets until the end, in turn, and the error
    that ends it.
    """
    found: list[list[int]] = [[] for _ in readers]
    errors: list[Exception | None] = [None for _ in readers]
    reading = list(range(len(readers)))
    while reading:
        for index in reading.copy():
            try:
                found[index].append(int(next(readers[index])[0]))
            except StopIteration:
                reading.remove(index)
            except DataServiceError as error:
                errors[index] = error
                reading.remove(index)
    return found, errors


# --- in step


def test_a_step_is_one_round_of_one_task(make_service: Callable[..., WatchedService]) -> None:
    """A single worker makes each step of four consumers, as four elements in a row, and
    the three workers take turns.
    """
    taken = steps(consumers(make_service(workers=3), 4, numbered()), 300)
    by_task = rounds(taken)
    assert [len(found) for found in by_task.values()] == [100, 100, 100]
    assert all(whole(found) for found in by_task.values())


def test_all_consumers_get_batches_of_one_bucket(
    make_service: Callable[..., WatchedService],
) -> None:
    """All consumers get sentences of the same bucket of lengths at each step."""
    edges = [10, 30, 60]
    sentences = Dataset.counter().map(lambda x: np.zeros(int(x * 7919 % 97) + 1, np.int8))
    batches = sentences.bucket_by_sequence_length(len, edges, [4] * 4)
    # Each bucket gives as many batches in a row as there are consumers.
    rows = batches.group_by_window(
        lambda batch: int(np.searchsorted(edges, batch.shape[1])), lambda key, ds: ds, 4
    )
    readers = consumers(make_service(workers=2), 4, rows)
    seen = [
        [int(np.searchsorted(edges, next(reader).shape[1])) for reader in readers]
        for _ in range(50)
    ]
    assert [len(set(step)) for step in seen] == [1] * 50
    assert len({step[0] for step in seen}) > 1


def test_a_consumer_that_runs_ahead_meets_the_same_steps(
    make_service: Callable[..., WatchedService],
) -> None:
    """The n-th elements of all consumers belong to the same round, even if the
    consumers are many steps apart.
    """
    ahead, behind = consumers(make_service(workers=2), 2, numbered())
    first = [(int(x), int(maker)) for x, maker in islice(ahead, 200)]
    second = [(int(x), int(maker)) for x, maker in islice(behind, 200)]
    assert [(x + 1, maker) for x, maker in first] == second


def test_the_next_repetition_is_read_in_step_too(
    make_service: Callable[..., WatchedService],
) -> None:
    """Further iterators of the consumers' datasets each read all of the input again."""
    service = make_service(workers=2)
    datasets = [
        service.read(
            numbered(30), consumer_index=index, num_consumers=2, job_name="job", finite="drop"
        )
        for index in range(2)
    ]
    for _ in range(2):
        found, errors = drained([iter(dataset) for dataset in datasets])
        assert errors == [None, None]
        assert len(found[0]) == len(found[1]) >= 14
        assert len(set(found[0] + found[1])) == len(found[0] + found[1])


def test_errors_take_the_place_of_their_element(
    make_service: Callable[..., WatchedService],
) -> None:
    """A failing element raises an error for its own consumer at its step, and no other
    consumer notices.
    """

    def no_five(x: Any) -> Any:
        if x == 5:
            raise KeyError("five")
        return x, threading.get_ident()

    first, second = consumers(make_service(workers=1), 2, Dataset.counter().map(no_five))
    assert [int(x) for x, _ in islice(first, 5)] == [0, 2, 4, 6, 8]
    assert [int(x) for x, _ in islice(second, 2)] == [1, 3]
    with pytest.raises(PipelineError, match="five"):
        next(second)
    assert [int(x) for x, _ in islice(second, 2)] == [7, 9]


# --- the end


@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
@pytest.mark.parametrize("finite", ["drop", "pad"])
def test_every_consumer_gets_a_round_or_none_does(
    make_service: Callable[..., WatchedService], mode: str, finite: str
) -> None:
    """Finite input ends at the same step for all consumers. Fewer elements than there
    are consumers are dropped, or each task fills its last round.
    """
    service = make_service(workers=3)
    found, errors = drained(consumers(service, 4, numbered(101), mode, finite=finite))
    assert errors == [None] * 4
    assert len({len(one) for one in found}) == 1
    given = [x for one in found for x in one]
    tasks = service.status()["tasks"]
    copies = 1 if mode == "distributed_epoch" else len(tasks)
    assert set(given) <= set(range(101))
    if finite == "pad":
        assert set(given) == set(range(101))
        assert len(given) - copies * 101 in range(3 * len(tasks) + 1)
    else:
        assert len(given) == copies * 101 // 4 * 4


def test_the_end_of_input_without_a_rule_is_an_error_for_all(
    make_service: Callable[..., WatchedService],
) -> None:
    """Input that proves to be finite ends with the same error at the same step for
    every consumer, then and later.
    """
    service = make_service(workers=1)
    for _ in range(2):
        found, errors = drained(consumers(service, 2, numbered(11)))
        assert [len(one) for one in found] in ([5, 5], [0, 0])
        for error in errors:
            assert isinstance(error, FailedPreconditionError)
            assert "Encountered end of sequence on a round-robin read iterator" in str(error)


def test_known_finite_input_needs_a_rule(service: WatchedService) -> None:
    """The call refuses finite input unless a rule decides about the rest."""
    text = "Round robin reads require .* infinite cardinality, but the dataset has cardinality 100"
    with pytest.raises(FailedPreconditionError, match=text):
        next(consumer(service, 0, 1, Dataset.range(100), "parallel_epochs"))


def test_empty_input_ends_at_once(service: WatchedService) -> None:
    """Consumers of empty input end at once."""
    assert drained(consumers(service, 3, numbered(0), finite="pad")) == ([[], [], []], [None] * 3)


# --- consumers come and go


def test_a_second_reader_of_a_consumer_is_refused(service: WatchedService) -> None:
    """The dispatcher refuses a second reader of a consumer, and says how far the
    consumer has come.
    """
    readers = consumers(service, 2, numbered())
    steps(readers, 20)
    with pytest.raises(FailedPreconditionError, match="current round has already reached"):
        next(consumer(service, 1, 2, numbered(), "parallel_epochs"))
    steps(readers, 20)


def test_a_successor_goes_on_where_a_consumer_stopped(
    make_service: Callable[..., WatchedService],
) -> None:
    """A reader in the place of a closed consumer gets its next step, and the other
    consumers wait and notice nothing.
    """
    service = make_service(workers=2)
    first, second = consumers(service, 2, numbered())
    taken = steps([first, second], 25)
    second.close()  # type: ignore[attr-defined]
    before = [next(first) for _ in range(3)]
    third = consumer(service, 1, 2, numbered(), "parallel_epochs")
    taken += [[(int(x), int(maker)) for x, maker in (mine, next(third))] for mine in before]
    taken += steps([first, third], 100)
    assert all(map(whole, rounds(taken).values()))


def test_all_consumers_may_be_started_again(make_service: Callable[..., WatchedService]) -> None:
    """A job whose consumers have all stopped continues with new consumers, each at the
    step where its predecessor stopped.
    """
    service = make_service(workers=2)
    taken: list[list[Made]] = []
    for count in (5, 40, 3):
        readers = consumers(service, 3, numbered())
        taken += steps(readers, count)
        for reader in readers:
            reader.close()  # type: ignore[attr-defined]
    assert all(map(whole, rounds(taken).values()))


def test_those_who_wait_in_vain_get_an_error(make_service: Callable[..., WatchedService]) -> None:
    """Consumers that wait too long for another get an error with the number that came
    and the names of the missing.
    """
    service = make_service(worker_options={"buffer_bytes": 4096})
    readers = [
        consumer(service, index, 3, numbered(), "parallel_epochs", consumer_timeout=3.0)
        for index in (0, 2)
    ]
    for reader in readers:
        with pytest.raises(UnavailableError, match=r"2 of 3 consumers are present.*consumer 1"):
            next(reader)
    with pytest.raises(UnavailableError, match="2 of 3 consumers are present"):
        next(consumer(service, 1, 3, numbered(), "parallel_epochs", consumer_timeout=3.0))


def test_a_consumer_that_leaves_is_missed(make_service: Callable[..., WatchedService]) -> None:
    """The other consumers get the error when a consumer stops and no successor comes in
    time.
    """
    service = make_service(worker_options={"buffer_bytes": 4096})
    first, second = consumers(service, 2, numbered(), consumer_timeout=3.0)
    steps([first, second], 10)
    second.close()  # type: ignore[attr-defined]
    with pytest.raises(
        UnavailableError,
        match=r"1 of 2 consumers are present.*consumer 1, which has not come, or died",
    ):
        for _ in first:
            pass


# --- workers come and go


def test_a_new_worker_is_read_from_a_step_that_all_agree_on(
    make_service: Callable[..., WatchedService],
) -> None:
    """A worker that joins takes its turn at the same step for every consumer, however
    far apart the consumers are.
    """
    service = make_service(workers=1)
    ahead, behind = consumers(service, 2, numbered())
    for _ in range(50):
        next(ahead)
    service.add_worker()
    found = [[(int(x), int(maker)) for x, maker in islice(ahead, 100)]]
    for _ in range(50):
        next(behind)
    found.append([(int(x), int(maker)) for x, maker in islice(behind, 100)])
    # The loop runs until the horizon has moved.
    deadline = service.clock.now + 20
    while len({maker for _, maker in found[0]}) < 2 and service.clock.now < deadline:
        for one, reader in zip(found, (ahead, behind), strict=True):
            one += [(int(x), int(maker)) for x, maker in islice(reader, 100)]
    by_task = rounds([list(step) for step in zip(*found, strict=True)])
    assert len(by_task) == 2
    assert all(whole(one, one[0][0]) for one in by_task.values())


def test_rounds_of_a_lost_worker_are_made_again(
    make_service: Callable[..., WatchedService],
) -> None:
    """Another worker continues the task of a worker that has left with the very next
    round, for every consumer.
    """
    service = make_service(workers=2, worker_options={"buffer_bytes": 4096})
    readers = consumers(service, 3, Dataset.counter().map(lambda x: (x, 0)))
    taken = [[int(x) for x, _ in map(next, readers)] for _ in range(50)]
    service.workers[0].stop()
    taken += [[int(x) for x, _ in map(next, readers)] for _ in range(2000)]
    # The two copies take turns, and neither misses a round.
    assert whole(taken[::2])
    assert whole(taken[1::2])


def test_consumers_wait_for_the_first_worker(make_service: Callable[..., WatchedService]) -> None:
    """Consumers may start before any worker does."""
    service = make_service(workers=0)
    readers = consumers(service, 2, numbered())
    assert service.run_until(
        lambda: [job["clients"] for job in service.status()["jobs"]] == [2], 30.0
    )
    service.add_worker()
    assert len(steps(readers, 10)) == 10


# --- what does not fit together


def test_every_consumer_gives_the_same_number_of_them(service: WatchedService) -> None:
    """The dispatcher refuses another number of consumers for a job, and the error names
    both numbers.
    """
    readers = consumers(service, 2, numbered())
    steps(readers, 1)
    with pytest.raises(InvalidArgumentError, match="Existing number of consumers: <2>; got <3>"):
        next(consumer(service, 0, 3, numbered(), "parallel_epochs"))
    with pytest.raises(InvalidArgumentError, match="Existing number of consumers: <2>; got <None>"):
        next(iter(service.read(numbered(), "parallel_epochs", job_name="job")))


@pytest.mark.parametrize(
    ("error", "text", "options"),
    [
        (ValueError, "`job_name` must be set", {"consumer_index": 0, "num_consumers": 2}),
        (ValueError, "both or neither", {"consumer_index": 0}),
        (ValueError, "both or neither", {"num_consumers": 2}),
        (
            ValueError,
            "from 0 to num_consumers - 1, 1; got 2",
            {"consumer_index": 2, "num_consumers": 2},
        ),
        (ValueError, "got -1", {"consumer_index": -1, "num_consumers": 2}),
        (
            ValueError,
            "`num_consumers` must be an integer from 1 to 10000",
            {"consumer_index": 0, "num_consumers": 0},
        ),
        (
            ValueError,
            "`num_consumers` must be an integer from 1 to 10000",
            {"consumer_index": 0, "num_consumers": "2"},
        ),
        (
            ValueError,
            "`consumer_index` must be an integer",
            {"consumer_index": True, "num_consumers": 2},
        ),
        (ValueError, "without `num_consumers`", {"finite": "drop"}),
        (
            ValueError,
            "'drop' or 'pad'",
            {"consumer_index": 0, "num_consumers": 2, "finite": "keep"},
        ),
        (ValueError, "`consumer_timeout`", {"consumer_timeout": 0}),
        (
            InvalidArgumentError,
            "Coordinated reads require non-local workers",
            {"consumer_index": 0, "num_consumers": 2, "target_workers": "LOCAL", "job_name": "job"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mistakes_are_errors_at_the_call(
    error: type[Exception], text: str, options: dict[str, Any]
) -> None:
    """The call refuses arguments that do not name a consumer of a coordinated job,
    before it sends anything.
    """
    with pytest.raises(error, match=text):
        distribute("parallel_epochs", "tcp://nowhere:1", **options)


def test_what_is_known_of_the_length(service: WatchedService) -> None:
    """Coordinated reads have infinite cardinality, as in tf.data, unless they may
    end.
    """
    endless = service.read(Dataset.range(5), consumer_index=0, num_consumers=2, job_name="job")
    finite = service.read(
        Dataset.range(5), consumer_index=0, num_consumers=2, job_name="job", finite="pad"
    )
    assert (endless.cardinality(), finite.cardinality()) == (-1, -2)
