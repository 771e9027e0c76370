"""A cluster that outlives the training programs of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zmqdata import LocalCluster


@pytest.fixture(scope="module")
def lasting() -> Iterator[str]:
    """Address of a cluster of two worker processes."""
    with LocalCluster(num_workers=2) as made:
        yield made.target
