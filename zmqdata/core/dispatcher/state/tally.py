"""What is counted of an iteration beside what it needs to go on: the figures of an audit."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts of one iteration, durable as everything else is.

    ``splits``: by task, how many it was given and did not give back; ``rehosted``: how many of them a task had when it
    lost its host, each time. ``delivered``: by client, the elements that it reported first; ``repeats``: by client,
    those that came to it again, and that it dropped.
    """

    splits: dict[int, int] = field(default_factory=dict)
    rehosted: int = 0
    delivered: dict[str, int] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)

    def hand_out(self, task: int, splits: int) -> None:
        """Counts splits that a task was given; below zero, what came back."""
        self.splits[task] = self.splits.get(task, 0) + splits

    def lose_host(self, task: int) -> None:
        """Counts the splits of a task that goes on elsewhere."""
        self.rehosted += self.splits.get(task, 0)

    def deliver(self, client: str, elements: int) -> None:
        """Counts what a client has reported, before anybody else."""
        if client:
            self.delivered[client] = self.delivered.get(client, 0) + elements
