"""Facts about the checks of checkpoints: they hold in a calm world, and find what is
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from zmqdata import messages as m
from zmqdata.testing import LawBroken, SimulatedPipeline, World
from zmqdata.testing.world import SimulatedClient

Change = Callable[[m.Checkpoint], m.Checkpoint]


def change_task(**changes: Any) -> Change:
    return lambda found: structs.replace(
        found, tasks=(structs.replace(found.tasks[0], **changes), *found.tasks[1:])
    )


def taken(**job: Any) -> SimulatedClient:
    """Return a client in the middle of its reading."""
    world = World(2, pipeline=SimulatedPipeline(splits=90), **job)
    world.add_worker()
    client = world.add_client(consumer=0 if "num_consumers" in job else None)
    world.run_until(lambda: client.taken > 60)
    return client


def test_a_checkpoint_of_a_calm_world_is_whole() -> None:
    """A checkpoint at any moment has each element that was taken, and everything else
    can be made.
    """
    client = taken()
    before = client.world.standings.checked
    client.check_standing()
    client.world.run_until(lambda: client.world.all_done)
    client.check_standing()
    assert client.world.standings.checked >= before + 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (change_task(delivered=((0, 1),)), "not in its checkpoint"),
        (change_task(delivered=((0, 10**6),)), "too much"),
        (change_task(ledger=((),)), "does not know its split"),
        (
            lambda found: structs.replace(found, sources=(m.SourcePart(0, ((0, 90),), 0),)),
            "missing",
        ),
    ],
)
def test_what_is_missing_is_found(change: Change, complaint: str) -> None:
    """The checks find missing elements, started splits, and splits that no task has."""
    client = taken()
    core = client.core
    checkpoint = change(core.standing.checkpoint(core.reading.passed.count))
    indices = dict(core.standing.indices)
    with pytest.raises(LawBroken, match=complaint):
        client.world.standings.check(client.name, checkpoint, client.had, indices, is_alone=True)


def test_a_consumer_that_has_more_than_its_step_says_is_found() -> None:
    """The checkpoint of a consumer must name a step after all that it took."""
    client = taken(num_consumers=1, finite="drop")
    client.check_standing()
    core = client.core
    checkpoint = structs.replace(core.standing.checkpoint(core.reading.passed.count), step=3)
    with pytest.raises(LawBroken, match="has taken round"):
        client.world.standings.check_consumer(
            client.name, checkpoint, client.had, core.standing.indices, client.world.steps.names
        )
