"""Facts about jobs that several training jobs read in full."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.kit.service import WatchedService
from zmqdata import CrossTrainerCache, Dataset
from zmqdata.errors import DataServiceError, InvalidArgumentError


@pytest.fixture
def one(make_service: Callable[..., WatchedService]) -> WatchedService:
    """A dispatcher with a single worker."""
    return make_service(workers=1)


def endless() -> Dataset:
    return Dataset.counter()


def reader(
    service: WatchedService, trainer_id: str, dataset: Dataset | None = None, **options: Any
) -> Any:
    options.setdefault("job_name", "shared")
    mode = options.pop("mode", "parallel_epochs")
    cache = CrossTrainerCache(trainer_id=trainer_id)
    return iter(service.read(dataset or endless(), mode, cross_trainer_cache=cache, **options))


def test_every_job_gets_everything(one: WatchedService) -> None:
    """Two training jobs read the same elements in the same order."""
    first, second = reader(one, "first"), reader(one, "second")
    assert (
        [int(x) for x in islice(first, 500)]
        == [int(x) for x in islice(second, 500)]
        == list(range(500))
    )


def test_a_function_runs_once_for_all(one: WatchedService) -> None:
    """The second training job reads the elements made for the first."""
    dataset = endless().map(lambda x: (x, __import__("os").urandom(8)))
    first, second = reader(one, "first", dataset), reader(one, "second", dataset)
    assert list(islice(first, 100)) == list(islice(second, 100))


def test_equal_ids_share_one_copy(one: WatchedService) -> None:
    """Two clients of the same training job get disjoint elements."""
    first, second = reader(one, "same"), reader(one, "same")
    found = [*islice(first, 300), *islice(second, 300)]
    assert len({int(x) for x in found}) == 600


def test_the_next_client_begins_where_the_last_was_closed(one: WatchedService) -> None:
    """The next client of a training job begins with the first element that the closed
    client did not hand out, also within a block.
    """
    first = reader(one, "same")
    assert [int(x) for x in islice(first, 10)] == list(range(10))
    first.close()
    assert [int(x) for x in islice(reader(one, "same"), 10)] == list(range(10, 20))


def test_each_client_reads_all_of_several_workers(service: WatchedService) -> None:
    """Both copies of two workers reach each training job."""
    first, second = reader(service, "first"), reader(service, "second")
    for it in (first, second):
        found = [int(x) for x in islice(it, 2000)]
        assert 0 in found
        assert len(found) == 2000


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_splits_may_be_shared_out_too(service: WatchedService, mode: str) -> None:
    """DYNAMIC and OFF both work with a cache."""
    dataset = Dataset.range(1000).repeat()
    first = reader(service, "first", dataset, mode=mode)
    second = reader(service, "second", dataset, mode=mode)
    assert {int(x) for x in islice(first, 4000)} <= set(range(1000))
    assert len(list(islice(second, 4000))) == 4000


@pytest.mark.parametrize("stop", [0, 10])
def test_finite_datasets_are_refused(one: WatchedService, stop: int) -> None:
    """The service refuses a cache for a dataset that is known to be finite."""
    with pytest.raises(InvalidArgumentError, match="requires the input dataset to be infinite"):
        next(reader(one, "first", Dataset.range(stop)))


def test_a_dataset_that_ends_after_all_is_refused_then(one: WatchedService) -> None:
    """A dataset whose end was unknown raises the error when it ends."""
    it = reader(one, "first", Dataset.range(10).filter(lambda x: True))
    with pytest.raises(InvalidArgumentError, match="requires the input dataset to be infinite"):
        list(it)


def test_only_one_repetition(one: WatchedService) -> None:
    """A dataset object with a cache cannot be read a second time."""
    ds = one.read(
        endless(),
        "parallel_epochs",
        job_name="shared",
        cross_trainer_cache=CrossTrainerCache("first"),
    )
    next(iter(ds))
    with pytest.raises(
        InvalidArgumentError, match="disallows multiple repetitions of the same dataset"
    ):
        next(iter(ds))


def test_a_job_is_cached_for_all_or_for_none(one: WatchedService) -> None:
    """A reader without a cache cannot join a job with a cache, nor the reverse; the
    refusal names both sides.
    """
    next(reader(one, "first"))
    with pytest.raises(
        InvalidArgumentError, match="Existing cross-trainer cache: <enabled>; got <disabled>"
    ):
        next(iter(one.read(endless(), "parallel_epochs", job_name="shared")))
    next(iter(one.read(endless(), "parallel_epochs", job_name="plain")))
    with pytest.raises(
        InvalidArgumentError, match="Existing cross-trainer cache: <disabled>; got <enabled>"
    ):
        next(reader(one, "first", job_name="plain"))


def test_compression_must_agree(one: WatchedService) -> None:
    """The dispatcher refuses a training job that asks for another compression of the
    cache.
    """
    next(reader(one, "first"))
    with pytest.raises(InvalidArgumentError, match="Data type mismatch"):
        next(reader(one, "second", compression=None))


def test_a_name_is_required(one: WatchedService) -> None:
    """The call requires a job name, because training jobs cannot share a job without a
    name.
    """
    with pytest.raises(
        InvalidArgumentError,
        match=r"Cross-trainer caching requires named jobs. Got empty `job_name`.",
    ):
        reader(one, "first", job_name=None)


@pytest.mark.parametrize("trainer_id", [None, "", 5])
def test_a_trainer_id_is_required(trainer_id: Any) -> None:
    """The cache refuses a trainer id that is empty or not text at once."""
    with pytest.raises(ValueError, match="requires a non-empty trainer ID"):
        CrossTrainerCache(trainer_id=trainer_id)


def test_the_argument_is_checked_at_the_call(one: WatchedService) -> None:
    """The call refuses an argument that is not a cache."""
    with pytest.raises(ValueError, match="must be a CrossTrainerCache or None"):
        one.read(endless(), "parallel_epochs", job_name="shared", cross_trainer_cache="first")


def test_a_failing_element_reaches_everybody(one: WatchedService) -> None:
    """A user's error takes the place of its element for each training job, and both
    continue after it.
    """
    dataset = endless().map(lambda x: 1 // (int(x) - 3))
    for it in (reader(one, "first", dataset), reader(one, "second", dataset)):
        assert len(list(islice(it, 3))) == 3
        with pytest.raises(DataServiceError, match="ZeroDivisionError"):
            next(it)
        assert next(it) == 1


def test_a_new_worker_starts_over(one: WatchedService) -> None:
    """Another worker replaces the only worker that is lost, with elements of its
    own.
    """
    it = reader(one, "first")
    assert len(list(islice(it, 10))) == 10
    one.workers[0].stop()
    one.add_worker()
    assert one.run_until(lambda: one.workers[1].num_tasks() == 1, 30.0)
    found = [int(x) for x in islice(it, 3_000)]
    rest = len(found) - found.index(0)
    assert rest > 1_000
    assert found[-rest:] == list(range(rest))


def test_a_slow_training_job_skips_ahead_and_is_told(
    make_service: Callable[..., WatchedService], caplog: pytest.LogCaptureFixture
) -> None:
    """A training job skips the elements that left the window before it read them; it
    counts them and warns of them.
    """
    size = {"cross_trainer_cache_size_bytes": 1 << 16, "buffer_bytes": 1 << 14}
    service = make_service(workers=1, worker_options=size)
    dataset = endless().map(lambda x: np.full(100, int(x)))
    fast, slow = (
        reader(service, "fast", dataset),
        reader(service, "slow", dataset, max_outstanding_requests=1),
    )
    assert next(slow)[0] == 0
    for _ in range(2000):
        next(fast)
    with caplog.at_level("WARNING", "zmqdata"):
        ahead = [int(next(slow)[0]) for _ in range(200)]
        assert ahead[-1] > 1000
        assert service.run_until(lambda: "fell out of the cross-trainer cache" in caplog.text, 30.0)

    def skipped() -> int:
        return sum(task["skipped"].get("slow", 0) for task in service.status()["tasks"])

    assert service.run_until(lambda: skipped() > 1000, 30.0)
