"""Facts about jobs that several training jobs read in full, on real sockets.
``simulated/test_cross_trainer_cache.py`` states what such a cache promises.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from tests.service.conftest import Service
from zmqdata import CrossTrainerCache, Dataset


@pytest.fixture
def one(make_service: Callable[..., Service]) -> Service:
    """A dispatcher with a single worker."""
    return make_service(workers=1)


def endless() -> Dataset:
    return Dataset.counter()


def reader(
    service: Service, trainer_id: str, dataset: Dataset | None = None, **options: Any
) -> Any:
    options.setdefault("job_name", "shared")
    mode = options.pop("mode", "parallel_epochs")
    cache = CrossTrainerCache(trainer_id=trainer_id)
    return iter(service.read(dataset or endless(), mode, cross_trainer_cache=cache, **options))


def test_every_job_gets_everything(one: Service) -> None:
    """Two training jobs read the same elements in the same order."""
    first, second = reader(one, "first"), reader(one, "second")
    assert (
        [int(x) for x in islice(first, 500)]
        == [int(x) for x in islice(second, 500)]
        == list(range(500))
    )


def test_what_a_job_writes_to_its_elements_is_its_own(one: Service) -> None:
    """A training job that writes to its elements changes no other's, even in the same
    process, where elements are not copied for transport.
    """
    dataset = endless().map(lambda x: np.full(2, x))
    first, second = (
        reader(one, name, dataset, target_workers="LOCAL") for name in ("first", "second")
    )
    for element in islice(first, 100):
        element[:] = -1
    assert [int(x[0]) for x in islice(second, 100)] == list(range(100))
