"""The state of a worker as plain data, for ``zmqdata status --worker`` and for
tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zmqdata.config.worker import WorkerConfig
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.saving import Written
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.iterators.watching import OUTSIDE, WAITS_FOR_READERS, WAITS_FOR_SPLITS
from zmqdata.messages import shown_name
from zmqdata.worker.processes.crumbs import CrumbNote, active


@dataclass(frozen=True)
class SnapshotTaskProgress:
    """A worker's progress with a stream of a distributed save."""

    path: str
    """Path of the save."""
    stream_index: int
    """Index of the stream."""
    completed: bool
    """True if all of the stream is on disk."""


class Activity:
    """Counts, at each tick of the worker's loop, what each task is at: the label of an
    operation whose function runs, or one of the texts of ``iterators.watching``.

    The share of a count is the share of time, whatever a tick costs.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], Counter[str]] = {}

    def look(self, notes: Sequence[CrumbNote], tasks: Iterable[HostedTask]) -> None:
        """Count what each started task is at until it has ended, and forget tasks that
        are gone.
        """
        calls: dict[tuple[int, int], set[str]] = {}
        waiting = set()
        for note in notes:
            if note.waiting:
                waiting.add(note.key)
        for note in active(notes):
            if note.place:
                calls.setdefault(note.key, set()).add(note.label)
        kept: dict[tuple[int, int], Counter[str]] = {}
        for task in tasks:
            kept[task.key] = self._seen.get(task.key, Counter())
            if not task.started or task.total is not None:
                continue
            if task.waits_for_readers:
                seen = {WAITS_FOR_READERS}
            elif task.key in waiting:
                seen = {WAITS_FOR_SPLITS}
            else:
                seen = calls.get(task.key, {OUTSIDE})
            kept[task.key].update(seen)
        self._seen = kept

    def shown(self) -> Mapping[tuple[int, int], dict[str, dict[str, int]]]:
        """Return the counts of each task, for the status."""
        return {key: {"seen_at": dict(seen)} for key, seen in self._seen.items()}


NOTHING_YET: dict[str, Any] = {"left_out": 0, "quarantine": [], "seen_at": {}}
"""The status of a task that has skipped no elements, and at which no look was taken."""


def status_of(
    core: WorkerCore,
    config: WorkerConfig,
    rejected: Counter[str],
    left_out: Mapping[tuple[int, int], dict[str, Any]],
    activity: Mapping[tuple[int, int], dict[str, Any]],
) -> dict[str, Any]:
    """Return configuration, tasks and clients as a JSON-compatible dict. Clients are
    shown by derived names, never by their ids; pipelines by their ids, never by
    content.

    Args:
        core: decider of the worker.
        config: configuration of the worker.
        rejected: numbers of rejected messages.
        left_out: elements that the attempts of tasks skipped, as
            ``TaskQuarantine.shown`` returns them.
        activity: what the attempts of tasks were seen at, as ``Activity.shown`` returns
            it.
    """
    return {
        "worker": core.profile.address,
        "config": asdict(config),
        "registered": core.registered,
        "draining": core.draining.begun,
        **core.memory.use.shown(),
        "tasks": [
            _task(task) | NOTHING_YET | left_out.get(task.key, {}) | activity.get(task.key, {})
            for task in core.tasks.values()
        ],
        "finished_tasks": [
            task.definition.task for task in core.tasks.values() if task.total is not None
        ],
        "deleted_tasks": list(core.dropped),
        "clients": list(map(shown_name, core.links.by_client)),
        "rejected": dict(rejected),
    }


def snapshots_of(core: WorkerCore) -> list[SnapshotTaskProgress]:
    """Return the streams of distributed saves that a worker writes or has written.
    Thread-safe.
    """
    writing = [
        task.dealing for task in list(core.tasks.values()) if isinstance(task.dealing, Written)
    ]
    found = dict(core.writing.saved) | {(one.path, one.stream): one.completed for one in writing}
    return [
        SnapshotTaskProgress(path, stream, done) for (path, stream), done in sorted(found.items())
    ]


def _task(task: HostedTask) -> dict[str, Any]:
    definition = task.definition
    return {
        "task": definition.task,
        "attempt": definition.attempt,
        "dataset_id": definition.dataset_id,
        "processing_mode": definition.processing_mode,
        "compression": definition.compression,
        "compressed": task.compressed,
        "started": task.started,
        "produced": task.produced,
        "total": task.total,
        "clients": list(map(shown_name, task.dealing.streams)),
    }
