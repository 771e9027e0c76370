"""Fixtures of these tests, which may set the seed of the program but leave no seed
behind.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zmqdata.dataset.seeds import _seeds


@pytest.fixture(autouse=True)
def _unseeded() -> Iterator[None]:
    """Leave no seed behind for other tests."""
    before = _seeds.seed, _seeds.fixed, _seeds.count
    yield
    _seeds.seed, _seeds.fixed, _seeds.count = before
