"""Tests of a whole run on real processes, small enough for each version of Python."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.errors import PipelineError

pytestmark = pytest.mark.realprocess


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2) as made:
        yield made


def test_each_element_comes_once_from_other_processes(cluster: LocalCluster) -> None:
    """A closure runs on two workers; arrays, texts and numbers arrive once each, as the
    function made them.
    """
    offset = 7
    dataset = Dataset.range(2_000).map(
        lambda x: {"array": np.full((4, 3), x + offset), "text": f"é{x}", "maker": os.getpid()}
    )
    found = list(dataset.apply(distribute("distributed_epoch", cluster.target)))
    numbers = [int(element["array"][0, 0]) - offset for element in found]
    assert sorted(numbers) == list(range(2_000))
    assert all(
        element["text"] == f"é{number}" and element["array"].shape == (4, 3)
        for number, element in zip(numbers, found, strict=True)
    )
    assert os.getpid() not in {int(element["maker"]) for element in found}


def test_compressed_elements_and_failures_arrive(cluster: LocalCluster) -> None:
    """A codec chosen by name loses nothing; an exception of the user arrives with its
    place, and later elements follow.
    """

    def made(x: int) -> np.ndarray:
        if x == 50:
            raise ValueError(f"no {x}")
        return np.arange(x, x + 4_096)

    dataset = Dataset.range(100).map(made)
    elements = iter(
        dataset.apply(distribute("distributed_epoch", cluster.target, compression="zstd"))
    )
    found, failures = [], []
    while True:
        try:
            found.append(next(elements))
        except StopIteration:
            break
        except PipelineError as error:
            failures.append(str(error))
    assert sorted(int(one[0]) for one in found) == [x for x in range(100) if x != 50]
    assert all((one == np.arange(one[0], one[0] + 4_096)).all() for one in found)
    assert len(failures) == 1
    assert "no 50" in failures[0]
    assert "test_interpreters.py" in failures[0]
