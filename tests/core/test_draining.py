"""Facts about a worker on its way out."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from zmqdata.core.draining import Draining, goes_on_elsewhere
from zmqdata.messages import TaskDefinition

TASK = TaskDefinition(1, 1, 1, "dataset", "digest", "DYNAMIC", 1, None, (), ())


def task(**changes: Any) -> TaskDefinition:
    return structs.replace(TASK, **changes)


def test_a_worker_stays_while_others_may_take_its_tasks() -> None:
    """It leaves when they are gone, or when its time is up; asked again, the first time counts."""
    draining = Draining()
    draining.begin(10.0, 7.0)
    draining.begin(16.0, 7.0)
    assert not draining.may_leave(16.9, [TASK])
    assert draining.may_leave(16.9, [])
    assert draining.may_leave(17.0, [TASK])


def test_who_was_not_told_to_leave_stays() -> None:
    """A worker without tasks waits for some."""
    assert not Draining().may_leave(1e9, [])


def test_only_copies_end_with_their_worker() -> None:
    """Parts of the input, and tasks that numbered consumers read in step, go on elsewhere."""
    assert goes_on_elsewhere(task())
    assert goes_on_elsewhere(task(processing_mode="DATA"))
    assert goes_on_elsewhere(task(processing_mode="OFF", num_consumers=1))
    assert not goes_on_elsewhere(task(processing_mode="OFF"))
