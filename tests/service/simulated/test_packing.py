"""``pack`` in the service, in simulated time: no token is lost or repeated, whatever
happens to workers and readers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from tests.service.simulated.parts import moved_tasks
from zmqdata import Dataset
from zmqdata.dataset.resuming import DatasetIterator
from zmqdata.errors import PipelineError

COUNT = 400
WAYS: list[dict[str, Any]] = [
    {"bins": 4},
    {"bins": 4, "overflow": "split"},
    {"policy": "next_fit"},
    {"policy": "concat"},
]


def document(n: Any) -> dict[str, Any]:
    return {"tokens": np.arange(1 + n * 7 % 16) + 1000 * n, "name": n}


def documents() -> Dataset:
    return Dataset.range(COUNT).map(document)


def plain() -> Dataset:
    return documents().map(lambda one: one["tokens"])


def tokens(rows: Iterable[Any]) -> Counter[int]:
    """Return the tokens of rows, after checking that each is at its place."""
    found: Counter[int] = Counter()
    for row in rows:
        for number, name in enumerate(row["name"].tolist(), 1):
            mine = row["tokens_segment_ids"] == number
            assert (row["tokens"][mine] - row["tokens_positions"][mine] == 1000 * name).all()
        found.update(row["tokens"][row["tokens_segment_ids"] > 0].tolist())
    return found


EVERYTHING = Counter(token for n in range(COUNT) for token in document(n)["tokens"].tolist())


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("behind", [False, True], ids=["on workers", "in the client"])
def test_a_job_that_packs_resumes_with_more_workers(way: dict[str, Any], behind: bool) -> None:
    """Rows from two workers, and rows of a resumed reader from three others, are
    together every token once. That holds before and behind ``distribute``.
    """
    length = 16 if way.get("overflow") != "split" else 9

    def dataset(cluster: WatchedService) -> Dataset:
        read = cluster.distribute("distributed_epoch")
        if behind:
            return documents().apply(read).pack(length, meta=("name",), **way)
        return documents().pack(length, meta=("name",), **way).apply(read)

    with WatchedService(2) as first:
        iterator: DatasetIterator = iter(dataset(first))
        before = list(islice(iterator, 41))
        state = iterator.state_dict()
        iterator.close()
    with WatchedService(3) as second:
        again: DatasetIterator = iter(dataset(second))
        again.load_state_dict(state)
        after = list(again)
    assert tokens(before) + tokens(after) == EVERYTHING


def test_clients_that_share_a_job_resume_with_the_documents_that_they_hold() -> None:
    """Clients of a shared job do not receive the same documents again, so the state of
    each has the documents in its open rows.
    """

    def datasets(cluster: WatchedService) -> list[Dataset]:
        read = cluster.distribute("distributed_epoch", job_name="shared")
        return [documents().apply(read).pack(16, bins=4, meta=("name",)) for _ in range(2)]

    with WatchedService(2) as first:
        iterators: list[DatasetIterator] = [*map(iter, datasets(first))]
        found = [row for _ in range(20) for one in iterators for row in islice(one, 1)]
        states = [iterator.state_dict() for iterator in iterators]
        for iterator in iterators:
            iterator.close()
    assert all(state["position"][-1] for state in states), "no documents in a state"
    with WatchedService(3) as second:
        iterators = [*map(iter, datasets(second))]
        for iterator, state in zip(iterators, states, strict=True):
            iterator.load_state_dict(state)
        found += [row for _ in range(COUNT) for one in iterators for row in islice(one, 1)]
    assert tokens(found) == EVERYTHING


def test_a_killed_worker_costs_no_token() -> None:
    """A task that continues on another worker packs as the first did."""
    with WatchedService(2) as service:
        read = service.distribute("distributed_epoch")
        packed = documents().pack(9, bins=8, overflow="split", meta=("name",))
        iterator = iter(packed.apply(read))
        before = list(islice(iterator, 30))
        service.workers[0].kill()
        moved: list[Any] = []
        for row in iterator:
            before.append(row)
            moved += moved_tasks(service)
    assert tokens(before) == EVERYTHING
    assert moved


@pytest.mark.parametrize("num_tasks", [1, 3])
def test_a_promised_order_is_that_of_any_number_of_workers(num_tasks: int) -> None:
    """Any number of workers yields the same rows in a promised order; a single task
    those of the pipeline without the service.
    """
    found = []
    for workers in (1, 2, 5):
        with WatchedService(workers) as service:
            read = service.distribute("distributed_epoch", deterministic=True, num_tasks=num_tasks)
            found.append([row["tokens"].tolist() for row in plain().pack(16, bins=4).apply(read)])
    if num_tasks == 1:
        found.append([row["tokens"].tolist() for row in plain().pack(16, bins=4)])
    assert all(rows == found[0] for rows in found)


def test_a_document_that_is_too_long_fails_alone() -> None:
    """The reader gets an error that names the document, and all other documents."""
    with WatchedService(2) as service:
        read = service.distribute("distributed_epoch")
        iterator = iter(documents().pack(15, bins=4, meta=("name",)).apply(read))
        rows, errors = [], []
        while True:
            try:
                rows.append(next(iterator))
            except StopIteration:
                break
            except PipelineError as error:
                errors.append(str(error))
    long = {n for n in range(COUNT) if len(document(n)["tokens"]) > 15}
    assert len(errors) == len(long) > 0
    assert all("'tokens' has 16 tokens" in text for text in errors)
    kept = {token: 1 for token in EVERYTHING if token // 1000 not in long}
    assert tokens(rows) == kept


def test_tasks_count_together() -> None:
    """The status has the sums of all tasks, and their ratios; ``stats()`` has them of
    the tasks that the client has heard.
    """
    with WatchedService(2) as service:
        read = service.distribute("distributed_epoch")
        iterator = iter(documents().pack(16, bins=4, meta=("name",)).apply(read))
        rows = list(iterator)
        [totals], stats = service.status()["totals"], iterator.stats()
    counts, whole = totals["counts"], sum(EVERYTHING.values())
    assert (counts["pack/tokens"], counts["pack/room"]) == (whole, 16 * len(rows))
    assert counts["pack/fill"] == pytest.approx(whole / (16 * len(rows)), abs=1e-4)
    assert counts["pack/fill"] + counts["pack/padding"] == pytest.approx(1.0, abs=1e-3)
    assert counts.keys() <= {name.removeprefix("data/") for name in stats}
