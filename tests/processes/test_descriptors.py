"""Tests of the file descriptors that iterators take."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.errors import ResourceExhaustedError
from zmqdata.machine.descriptors import LEAST, PER_ITERATOR, PER_WORKER
from zmqdata.testing.cluster import await_condition

pytestmark = pytest.mark.realprocess

WORKERS = 2


def in_use() -> int:
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def few(spare: int) -> Iterator[None]:
    """Leave this process a number of descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (in_use() + spare, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_iterators_take_few_descriptors_and_say_so_if_none_is_left() -> None:
    """An iterator takes 3 descriptors and 5 for each worker. Without any left, the
    error names the limit, and the other iterators read on.
    """
    with LocalCluster(WORKERS, heartbeat_interval_ms=100) as cluster:
        numbers = Dataset.range(2_000).apply(distribute("parallel_epochs", cluster.target))
        assert sum(1 for _ in numbers) == WORKERS * 2_000
        before = in_use()  # with those of the process, which all iterators share
        first, second = iter(numbers), iter(numbers)
        next(first)
        begun = sum(1 for _ in zip(range(1_500), second, strict=False))
        most = before + 2 * (PER_ITERATOR + WORKERS * PER_WORKER)
        await_condition(lambda: in_use() <= most, what="handshakes are over")
        with (
            few(LEAST - 2),
            pytest.raises(ResourceExhaustedError, match=r"an iterator \(3 descriptors, and 5 for"),
        ):
            iter(numbers)
        assert begun + sum(1 for _ in second) == WORKERS * 2_000
        first.close()
        assert sum(1 for _ in numbers) == WORKERS * 2_000
