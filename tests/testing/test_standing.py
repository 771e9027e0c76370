"""Facts about the checks of checkpoints: they hold in a calm world, and find what is
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from tests.kit.checks import LawBroken
from tests.kit.runner import SimulatedPipeline
from tests.kit.world import SimulatedClient, World
from zmqdata import messages as m

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


def ended(seed: int) -> World:
    """Return a world whose consumers have read to the end of a task with a rest."""
    world = World(
        seed,
        "OFF",
        SimulatedPipeline(splits=100, most=1, slips=9),
        num_consumers=3,
        finite="drop",
        consumer_timeout=1e5,
    )
    world.add_worker()
    for consumer in range(3):
        world.add_client(consumer=consumer)
    world.run_until(lambda: world.all_done)
    return world


def last_checkpoint(client: SimulatedClient) -> m.Checkpoint:
    return client.core.standing.checkpoint(client.core.reading.passed.count)


def test_a_consumer_at_the_end_needs_nothing_of_a_rest() -> None:
    """The checkpoint of a consumer that has read to the end lacks what makes the rest.
    One that reads on must have it.
    """
    world = ended(2)
    for client in world.clients:
        client.check_standing()
    client = world.clients[0]
    whole = last_checkpoint(client)
    assert (whole.over, whole.tasks[0].rest, whole.tasks[0].states) == (True, 2, ())
    with pytest.raises(LawBroken, match="does not know what was decided"):
        world.standings.check_consumer(
            client.name,
            structs.replace(whole, over=False),
            client.had,
            client.core.standing.indices,
            world.steps.names,
        )


def test_a_consumer_within_the_last_rounds_has_taken_of_a_rest() -> None:
    """The step of a checkpoint counts the last rounds that the client has taken, and no
    other.
    """
    world = World(2, "OFF", SimulatedPipeline(splits=5, most=1), num_consumers=2, finite="drop")
    for _ in range(4):
        world.add_worker()
    for consumer in range(2):
        world.add_client(consumer=consumer).gulp = 1
    client = world.clients[0]
    reading = client.core.reading
    world.run_until(lambda: reading.last_before(reading.steps) is not None)
    whole = last_checkpoint(client)
    assert (whole.over, [part.rest for part in whole.tasks]) == (False, [1, 1, 1, 1])
    client.check_standing()
    with pytest.raises(LawBroken, match=r"has taken round 2 .* says 2 rounds"):
        world.standings.check_consumer(
            client.name,
            structs.replace(whole, step=whole.step - 1),
            client.had,
            client.core.standing.indices,
            world.steps.names,
        )


@pytest.mark.parametrize("seed", range(40, 44))
def test_the_states_of_the_last_step_fit_together(seed: int) -> None:
    """Consumers say the same of a task with a rest as soon as the first of them has
    read to the end.
    """
    world = ended(seed)
    said = {(part.total, part.rest) for one in world.clients for part in last_checkpoint(one).tasks}
    assert len(said) == 1
