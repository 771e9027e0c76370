"""What is promised holds through storms over real processes. The cases are in
``storms``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.full import full
from tests.processes.storms import Storm
from tests.processes.training_loop import KINDS

pytestmark = [pytest.mark.realprocess, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "kind", [kind if kind in ("dynamic", "coordinated") else full(kind) for kind in KINDS]
)
def test_nothing_is_lost_and_nothing_comes_twice(kind: str, tmp_path: Path) -> None:
    """Whoever is killed, stopped or asked to end: each element is handed out, none
    twice, in the order promised.
    """
    Storm(1, kind, tmp_path).run()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 51))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_many_storms(kind: str, seed: int, tmp_path: Path) -> None:
    """Two hundred storms, with those of the test above."""
    Storm(seed, kind, tmp_path).run()
