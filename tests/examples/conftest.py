"""Clusters of the programs that these tests run."""

from __future__ import annotations

from functools import partial

import pytest

import zmqdata
from zmqdata import LocalCluster


@pytest.fixture
def on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clusters of a program in this process have threads as workers, which
    start at once.
    """
    monkeypatch.setattr(zmqdata, "LocalCluster", partial(LocalCluster, in_process=True))
