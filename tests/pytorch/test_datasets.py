"""A ``Loader`` over a dataset: what it refuses, and when."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.errors import InvalidArgumentError
from zmqdata.torch import Loader


def mixed_up(x: Any) -> Any:
    """Return a number under another name for the second element."""
    return {"y" if x == 1 else "x": x}


@pytest.mark.parametrize("device", [None, "cpu"])
def test_batches_that_are_nested_otherwise_are_refused(device: str | None) -> None:
    """A batch that is not nested as the first is an error in its place, which shows
    both. The next batch comes, and the next pass may have another nesting.
    """
    loader = Loader(Dataset.range(3).map(mixed_up), device=device)
    batches = iter(loader)
    assert next(batches) == {"x": 0}
    with pytest.raises(InvalidArgumentError, match=r"one has element\['y'\], and the first had "):
        next(batches)
    assert next(batches) == {"x": 2}
    assert loader.state_dict()["batches"] == 3


def test_too_few_batches_are_refused_at_the_call() -> None:
    """A dataset that is known to have fewer batches than ``batches`` is refused when
    the loader is made: a local one, and one in a promised order.
    """
    numbers = Dataset.range(6).batch(2)
    with LocalCluster(num_workers=1, in_process=True) as cluster:
        read = distribute("distributed_epoch", cluster, deterministic=True)
        for dataset in (numbers, Dataset.range(3).apply(read)):
            assert len(Loader(dataset, batches=3)) == 3
            with pytest.raises(InvalidArgumentError, match="has 3: 2 are missing"):
                Loader(dataset, batches=5)


def test_a_loader_whose_job_another_one_has_read_names_the_remedy() -> None:
    """The second loader over a named job has no batches, and the error says how each
    of them reads all.
    """
    with LocalCluster(num_workers=1, in_process=True) as cluster:
        read = distribute(
            "distributed_epoch", cluster, deterministic=True, num_tasks=1, job_name="shared"
        )
        loaders = [Loader(Dataset.range(4).apply(read)) for _ in range(2)]
        assert len(list(loaders[0])) == 4
        with pytest.raises(InvalidArgumentError, match=r"4 are missing.* `job_name`.*one for each"):
            list(loaders[1])
