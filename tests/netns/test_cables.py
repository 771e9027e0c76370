"""Tests of the guarantees while cables are pulled, wholly or in one direction.

``cables`` holds the storms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.netns.cables import CLIENT_TIMEOUT, CableStorm
from tests.netns.lan import Lan, NotPermittedError
from tests.processes.training_loop import KINDS

pytestmark = [pytest.mark.netns, pytest.mark.timeout(300)]

SOON = (0.5, 1.0)


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    """Two training loops, two workers and a dispatcher on a switch."""
    try:
        made = Lan(["dispatcher", "worker1", "worker2", "client", "client2"], tmp_path)
    except NotPermittedError as refusal:
        pytest.skip(f"network namespaces are not permitted here: {refusal}")
    with closing(made):
        yield made


def test_each_direction_of_each_connection(lan: Lan, tmp_path: Path) -> None:
    """A short loss of any direction of the control or data connections loses nothing
    else.
    """
    storm = CableStorm(lan, 1, "dynamic", tmp_path, count=8_000, pauses=(0.7,))
    storm.run(*every_direction(storm))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_each_direction_of_each_connection_for_long(lan: Lan, kind: str, tmp_path: Path) -> None:
    """A loss of any direction that outlasts every time-out loses nothing else."""
    storm = CableStorm(lan, 1, kind, tmp_path, count=40_000, pauses=(13.0,))
    storm.run(*every_direction(storm))


def every_direction(storm: CableStorm) -> list[Callable[[], None]]:
    pairs = itertools.combinations(("dispatcher", "worker2", "client"), 2)
    return [
        partial(storm.silence_one, *pair)
        for one, other in pairs
        for pair in ((one, other), (other, one))
    ]


@pytest.mark.full
def test_nothing_is_lost_when_cables_are_cut(lan: Lan, tmp_path: Path) -> None:
    """The promised order holds through a series of cuts between any machines."""
    CableStorm(lan, 1, "coordinated", tmp_path, count=3_000, pauses=SOON).run()


@pytest.mark.full
def test_who_reads_alone_and_reaches_nobody_stops(lan: Lan, tmp_path: Path) -> None:
    """A client without a network hands out nothing after its lease, and then continues:
    the dispatcher may give its elements to other clients.
    """
    storm = CableStorm(lan, 1, "ordered", tmp_path, count=200, pace=0.05)
    storm.run(storm.isolate_reader)
    lease = CLIENT_TIMEOUT / 1000 * 0.9
    assert 0 < storm.handed_out_alone <= lease / storm.pace + 1


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_lost_in_many_storms_of_cables(
    lan: Lan, kind: str, seed: int, tmp_path: Path
) -> None:
    """Each of twenty storms hands out every element exactly once, in the promised
    order, whatever time-outs expire.
    """
    CableStorm(lan, seed, kind, tmp_path).run()


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1, 3))
@pytest.mark.parametrize("kind", KINDS)
def test_slow_cables_cuts_and_deaths(lan: Lan, kind: str, seed: int, tmp_path: Path) -> None:
    """The promises hold on gigabit cables when each disturbance also kills a worker."""
    for machine in lan.machines:
        lan.limit(machine, "1gbit")
    CableStorm(lan, seed, kind, tmp_path, kills=True).run()
