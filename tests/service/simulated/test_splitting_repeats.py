"""Facts about repetitions of a split pipeline, and about caches, which replay the
elements of their worker.
"""

from __future__ import annotations

import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.kit.service import WatchedService
from tests.service.simulated.parts import by_task, grouped, moved_tasks, tagged, together
from zmqdata import Dataset, TextLineDataset
from zmqdata.core.dispatcher.splits import SplitAssigner
from zmqdata.errors import AlreadyExistsError
from zmqdata.messages import RequestSplits

COUNT = 60


def counts(dataset: Any) -> Counter[int]:
    return Counter(map(int, dataset))


def in_repetitions(part: list[Any]) -> list[list[int]]:
    """Return the elements of each repetition of a task, whose ``enumerate()`` below
    ``repeat()`` counts from 0 in each.
    """
    found: list[list[int]] = []
    for index, element in part:
        if index == 0:
            found.append([])
        found[-1].append(int(element))
    return found


def passes(part: list[Any], times: int) -> list[list[int]]:
    """Return the elements of each repetition of a task that has equally many elements
    in all of them.
    """
    length, rest = divmod(len(part), times)
    assert rest == 0
    return [list(map(int, part[length * n : length * (n + 1)])) for n in range(times)]


# --- repeat


def test_repetitions_are_split_anew(service: WatchedService) -> None:
    """A task has other elements in each repetition, and all tasks together have all
    elements in each.
    """
    parts = by_task(service, Dataset.range(COUNT).enumerate().repeat(3))
    first, second = map(in_repetitions, parts)
    assert len(first) == len(second) == 3
    for one, other in zip(first, second, strict=True):
        assert sorted(one + other) == list(range(COUNT))
    for part in (first, second):
        assert len(set(map(frozenset, part))) == 3


def test_repeats_of_repeats(service: WatchedService) -> None:
    """Nested repeats multiply."""
    assert counts(service.read(Dataset.range(COUNT).repeat(2).repeat(3))) == dict.fromkeys(
        range(COUNT), 6
    )


def test_repeats_of_a_part(service: WatchedService) -> None:
    """Each repeat asks only for repetitions of its own sources."""
    first, second, third = (
        Dataset.range(20).repeat(3),
        Dataset.range(20, 40),
        Dataset.range(40, 60).repeat(2),
    )
    dataset = first.concatenate(second).concatenate(third)
    expected = (
        dict.fromkeys(range(20), 3)
        | dict.fromkeys(range(20, 40), 1)
        | dict.fromkeys(range(40, 60), 2)
    )
    assert counts(service.read(dataset)) == expected
    assert counts(service.read(dataset.repeat(2))) == {x: 2 * n for x, n in expected.items()}


def test_files_are_repeated(service: WatchedService, tmp_path: Path) -> None:
    """All files come in each repetition."""
    for number in range(5):
        (tmp_path / str(number)).write_text(f"{number}\n{number}\n")
    dataset = (
        Dataset.list_files(f"{tmp_path}/*").interleave(TextLineDataset, cycle_length=2).repeat(3)
    )
    assert counts(service.read(dataset)) == dict.fromkeys(range(5), 6)


def test_files_whose_names_are_not_utf8_are_read(service: WatchedService, tmp_path: Path) -> None:
    """Patterns and names with other bytes arrive as the file system has them, in every
    repetition, and a state continues behind them.
    """
    folder = tmp_path / os.fsdecode(b"d\xe9")
    folder.mkdir()
    for number in range(5):
        (folder / os.fsdecode(b"\xff%d" % number)).write_text(f"{number}\n")
    names = Dataset.list_files(f"{folder}/*").repeat(2)
    assert set(service.read(names)) == {str(path) for path in folder.iterdir()}
    lines = service.read(names.interleave(TextLineDataset, cycle_length=2))
    assert counts(lines) == dict.fromkeys(range(5), 2)
    first = iter(service.read(names, job_name="resumed"))
    before = [next(first) for _ in range(4)]
    restored = iter(service.read(names, job_name="resumed"))
    restored.load_state_dict(first.state_dict())
    assert Counter([*before, *restored]) == {str(path): 2 for path in folder.iterdir()}


def test_a_worker_without_a_split_goes_on(service: WatchedService) -> None:
    """A worker without a split in a repetition goes on; in the end both workers have
    had elements, and the count is right.
    """
    parts = by_task(service, Dataset.range(1).repeat(300))
    assert together(parts) == [0] * 300


def test_repeating_for_ever(service: WatchedService) -> None:
    """A repeat without a count does not end, and all elements come."""
    elements = iter(service.read(Dataset.range(10).repeat()))
    assert counts(islice(elements, 1_000)).keys() == set(range(10))
    elements.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("length", [2, 5])
def test_short_repetitions_continue_elsewhere(
    make_service: Callable[..., WatchedService], length: int
) -> None:
    """Repetitions that a worker got ahead of time move with its tasks when it is
    killed, and a state continues behind what was read of them.
    """

    def read(service: WatchedService, job: str) -> Any:
        numbered = Dataset.range(length).repeat().enumerate()
        options: dict[str, Any] = {"deterministic": True, "num_tasks": 2, "job_name": job}
        return iter(service.read(numbered, max_outstanding_requests=4, **options))

    service = make_service()
    expected = [*islice(read(service, "calm"), 200)]
    iterator = read(service, "moved")
    found = [*islice(iterator, 50)]
    service.workers[0].kill()
    found += islice(iterator, 70)
    again = read(service, "moved")
    again.load_state_dict(iterator.state_dict())
    assert [*found, *islice(again, 80)] == expected


def test_a_state_has_the_repetitions_of_a_worker_that_stands_still(
    make_service: Callable[..., WatchedService],
) -> None:
    """The splits of a worker that stands still come after a resume, even if another
    worker has made forty repetitions since.
    """
    drawn = Dataset.range(5).random_map(lambda x, rng: [x, rng.integers(1 << 62)], seed=7).repeat()

    def read(service: WatchedService) -> Any:
        return iter(service.read(drawn, job_name="job", max_outstanding_requests=4))

    first, second = make_service(), make_service()
    iterator = read(first)
    found = [*islice(iterator, 5)]
    first.workers[0].pace = 1000.0
    found += islice(iterator, 200)
    again = read(second)
    again.load_state_dict(iterator.state_dict())
    expected = {int(name) for _, name in islice(drawn, 30 * 5)}
    names = [int(name) for _, name in [*found, *islice(again, 400)]]
    assert len(set(names)) == len(names)
    assert expected <= set(names)


def test_a_worker_that_stands_still_does_not_hold_the_limit(
    make_service: Callable[..., WatchedService],
) -> None:
    """Each worker has its share of ``max_outstanding_requests``, so that the others go
    on while one makes nothing.
    """
    for number in range(2):
        service = make_service()
        service.workers[number].pace = 1000.0
        elements = iter(service.read(Dataset.range(5).repeat(), max_outstanding_requests=4))
        assert len([*islice(elements, 100)]) == 100
        assert service.clock.now < 100


def test_short_repetitions_take_few_messages(
    make_service: Callable[..., WatchedService], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two tasks that read a single split without end ask less than once for two
    repetitions.
    """
    asked, answer = [], SplitAssigner.request

    def request(splits: SplitAssigner, peer: Any, ask: RequestSplits, now: float) -> None:
        asked.append(ask)
        answer(splits, peer, ask, now)

    monkeypatch.setattr(SplitAssigner, "request", request)
    elements = iter(make_service().read(Dataset.range(1).repeat(), max_outstanding_requests=4))
    assert [*islice(elements, 300)] == [0] * 300
    assert 300 <= max(ask.repetition for ask in asked) > 2 * len(asked)


def test_taking_of_what_repeats_for_ever(service: WatchedService) -> None:
    """take(n) after repeat() is n elements of each worker."""
    parts = by_task(service, Dataset.range(10).repeat().take(35))
    assert list(map(len, parts)) == [35, 35]


def test_repeat_behind_distribute_begins_new_iterations(service: WatchedService) -> None:
    """The dispatcher has an iteration for each repetition."""
    dataset = service.read(Dataset.range(COUNT), job_name="job").repeat(3)
    assert counts(dataset) == dict.fromkeys(range(COUNT), 3)
    found = [one["repetition"] for one in service.status()["iterations"] if one["job"] == "job"]
    assert {0, 1, 2} <= set(found)


# --- shuffle


@pytest.mark.parametrize(("seed", "again"), [(None, True), (3, True), (3, False), (None, False)])
def test_shuffles_before_repeat(
    make_service: Callable[..., WatchedService], seed: int | None, again: bool
) -> None:
    """Each repetition has a new order, or the same order with
    reshuffle_each_iteration=False.
    """
    dataset = (
        Dataset.range(COUNT).shuffle(COUNT, seed=seed, reshuffle_each_iteration=again).repeat(2)
    )
    first, second = passes(list(make_service(workers=1).read(dataset)), 2)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert (first == second) is not again


def test_shuffles_before_and_behind_repeat(service: WatchedService) -> None:
    """Each element comes in every repetition on several workers, with and without a
    seed.
    """
    for seed in (None, 3):
        before = Dataset.range(COUNT).shuffle(20, seed=seed).repeat(3)
        behind = Dataset.range(COUNT).repeat(3).shuffle(20, seed=seed)
        assert (
            counts(service.read(before))
            == counts(service.read(behind))
            == dict.fromkeys(range(COUNT), 3)
        )


# --- cache


@pytest.fixture
def seen() -> Iterator[list[int]]:
    """Elements for which tasks in this process called ``watched``."""
    module = types.ModuleType("zmqdata_tests_seen")
    module.elements = []  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    yield module.elements  # type: ignore[attr-defined]
    del sys.modules[module.__name__]


def watched(x: Any) -> Any:
    sys.modules["zmqdata_tests_seen"].elements.append(int(x))
    return x


PLACES = ["memory", "file"]


def cached(dataset: Dataset, place: str, folder: Path) -> Dataset:
    return dataset.cache(str(folder / "cache") if place == "file" else "")


@pytest.mark.parametrize("place", PLACES)
def test_each_worker_replays_its_own_part(
    service: WatchedService, tmp_path: Path, seen: list[int], place: str
) -> None:
    """Each task makes its elements once, and replays them in one order in every
    repetition; together the tasks have all of them.
    """
    dataset = cached(Dataset.range(COUNT).shuffle(10).map(watched), place, tmp_path).repeat(4)
    parts = [passes(part, 4) for part in by_task(service, dataset, each=3 * 4)]
    assert all(part[0] == one for part in parts for one in part)
    assert sorted(x for part in parts for x in part[0]) == list(range(COUNT))
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("place", PLACES)
def test_iterations_do_not_share_what_tasks_cached(
    service: WatchedService, tmp_path: Path, seen: list[int], place: str
) -> None:
    """A new iteration is split anew, perhaps among other workers, and makes everything
    again: nothing is missing.
    """
    dataset = service.read(cached(Dataset.range(COUNT).map(watched), place, tmp_path).repeat(2))
    assert counts(dataset) == dict.fromkeys(range(COUNT), 2)
    service.add_worker()
    service.workers.pop(0).stop()
    assert counts(dataset) == dict.fromkeys(range(COUNT), 2)
    assert Counter(seen) == dict.fromkeys(range(COUNT), 2)


@pytest.mark.parametrize("place", PLACES)
def test_a_shuffle_behind_a_cache_is_new_each_time(
    make_service: Callable[..., WatchedService], tmp_path: Path, place: str
) -> None:
    """A cache keeps the elements below it, so a shuffle after it draws anew."""
    dataset = cached(Dataset.range(COUNT), place, tmp_path).shuffle(COUNT).repeat(2)
    first, second = passes(list(make_service(workers=1).read(dataset)), 2)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first != second


@pytest.mark.parametrize("place", PLACES)
def test_a_new_host_goes_on_with_what_the_task_cached(
    make_service: Callable[..., WatchedService], tmp_path: Path, place: str
) -> None:
    """A task that continues elsewhere, in any repetition, loses no element and gives
    none twice.
    """
    service = make_service(workers=1)
    dataset = cached(Dataset.range(2000).shuffle(50), place, tmp_path).repeat(4)
    elements = iter(
        service.read(
            dataset.map(lambda x: x), data_transfer_protocol="tcp", max_outstanding_requests=64
        )
    )
    found = [int(next(elements)) for _ in range(5_000)]
    service.add_worker()
    service.workers.pop(0).stop()
    assert len(moved_tasks(service)) == 1
    found += map(int, elements)
    assert Counter(found) == dict.fromkeys(range(2000), 4)


def test_no_files_are_left_behind(service: WatchedService, tmp_path: Path) -> None:
    """A task that ends deletes the files of its cache."""
    dataset = cached(Dataset.range(COUNT), "file", tmp_path).repeat(2)
    elements = iter(service.read(tagged(dataset)))
    found = [next(elements)]
    assert any((tmp_path / "cache").glob("task-*"))
    found += elements
    assert len(together(grouped(found))) == 2 * COUNT
    assert service.run_until(lambda: not any((tmp_path / "cache").glob("task-*")), 30.0)


@pytest.mark.parametrize("place", PLACES)
def test_a_cache_that_nothing_repeats(service: WatchedService, tmp_path: Path, place: str) -> None:
    """A cache that no repeat in the pipeline would replay keeps nothing, and a new
    iteration reads anew.
    """
    dataset = service.read(tagged(cached(Dataset.range(COUNT), place, tmp_path)))
    for _ in range(2):
        assert together(grouped(dataset)) == list(range(COUNT))
    assert list(tmp_path.iterdir()) == []


def test_caches_that_are_not_split_share_a_file(service: WatchedService, tmp_path: Path) -> None:
    """Workers of a machine under OFF would all write the same file, so the job fails
    with an error that says what to do.
    """
    dataset = cached(Dataset.range(COUNT), "file", tmp_path)
    with pytest.raises(
        AlreadyExistsError, match=r"concurrent caching iterator.*run one worker on each machine"
    ):
        list(service.read(dataset, "parallel_epochs"))


@pytest.mark.parametrize("place", PLACES)
def test_one_of_two_inputs_is_cached(service: WatchedService, tmp_path: Path, place: str) -> None:
    """The uncached input is split anew in each repetition."""
    kept = cached(Dataset.range(COUNT), place, tmp_path)
    dataset = Dataset.range(COUNT, 2 * COUNT).concatenate(kept).repeat(3)
    assert counts(service.read(dataset)) == dict.fromkeys(range(2 * COUNT), 3)


def test_caches_in_a_function_are_its_own(service: WatchedService) -> None:
    """Each task caches a dataset that a function returns as a whole."""
    whole = Dataset.range(5).cache()
    dataset = Dataset.range(20).flat_map(lambda x: whole.map(lambda y: 5 * x + y)).repeat(2)
    assert counts(together(by_task(service, dataset))) == dict.fromkeys(range(100), 2)
