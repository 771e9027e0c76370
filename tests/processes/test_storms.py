"""Tests that the promises hold through storms over real processes.

``storms`` holds the cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full import full
from tests.processes.storms import Storm
from tests.processes.training_loop import KINDS

pytestmark = [pytest.mark.realprocess, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", [kind if kind == "coordinated" else full(kind) for kind in KINDS])
def test_nothing_is_lost_and_nothing_comes_twice(kind: str, tmp_path: Path) -> None:
    """Every element is handed out exactly once, in the promised order, whichever
    processes are killed, stopped or asked to end.
    """
    Storm(1, kind, tmp_path).run()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 51))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_many_storms(kind: str, seed: int, tmp_path: Path) -> None:
    """Two hundred storms, including the seeds of the test above, hand out every element
    exactly once.
    """
    Storm(seed, kind, tmp_path).run()
