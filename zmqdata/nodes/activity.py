"""Activity of the processes elsewhere that run the pipeline of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskActivity:
    """Activity of an attempt of a task."""

    worker: str
    """Address of its worker."""
    seen: Mapping[str, int]
    """Counts of what it was seen at, as in the status of a worker."""
    produced: int
    """Number of elements that it has produced."""


Activity = Mapping[tuple[int, int], TaskActivity]
"""Activity of attempts of tasks, by number of the task and the attempt."""
