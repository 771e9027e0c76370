"""What cores and shells tell each other when a worker shall leave, or a client was given up. No behaviour here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Event: the worker shall leave, within ``patience`` seconds, once others have its tasks."""

    patience: float


@dataclass(frozen=True, slots=True)
class DropQueued:
    """Command: what was delivered and not handed out belongs to others by now; forget it, the reports of it too."""
