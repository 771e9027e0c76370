"""What is promised holds while cables are cut, wholly or in one direction. The storms are in ``cuts``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.netns.cuts import CutStorm
from tests.netns.lan import Lan, NotPermittedError
from tests.processes.training_loop import KINDS

pytestmark = [pytest.mark.netns, pytest.mark.timeout(300)]

SOON = (0.5, 3.0)


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    """Two training loops, two workers and a dispatcher on a switch."""
    try:
        made = Lan(["dispatcher", "worker1", "worker2", "client", "client2"], tmp_path)
    except NotPermittedError as refusal:
        pytest.skip(f"network namespaces are not permitted here: {refusal}")
    with closing(made):
        yield made


@pytest.mark.parametrize("kind", ["dynamic", "ordered"])
def test_nothing_is_lost_when_cables_are_cut(lan: Lan, kind: str, tmp_path: Path) -> None:
    """Whoever does not hear whom for a while: each element is handed out, none twice, in the order promised."""
    CutStorm(lan, 1, kind, tmp_path, pauses=SOON).run()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_many_storms_of_cuts(lan: Lan, kind: str, seed: int, tmp_path: Path) -> None:
    """Twenty storms, with cuts that outlast every time-out."""
    CutStorm(lan, seed, kind, tmp_path).run()
