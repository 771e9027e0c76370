"""The state of a worker as plain data, for ``zmqdata status --worker`` and for
tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from msgspec import structs

from zmqdata.config.checks import MODE_WORDS
from zmqdata.config.worker import WorkerConfig
from zmqdata.core.worker.decider import WorkerCore
from zmqdata.core.worker.saving import Written
from zmqdata.core.worker.tasks import HostedTask
from zmqdata.measures.status import ENDED, RUNNING, STARTING, WAITING, task_operations, time_fields
from zmqdata.messages import shown_name
from zmqdata.transport.process import described_process


@dataclass(frozen=True)
class SnapshotTaskProgress:
    """A worker's progress with a stream of a distributed save."""

    path: str
    """Path of the save."""
    stream_index: int
    """Index of the stream."""
    completed: bool
    """True if all of the stream is on disk."""


NOTHING_YET: dict[str, Any] = {"left_out": 0, "quarantine": []}
"""The status of a task that has skipped no elements."""


def status_of(
    core: WorkerCore,
    config: WorkerConfig,
    rejected: Counter[str],
    left_out: Mapping[tuple[int, int], dict[str, Any]],
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
    """
    return {
        "worker": core.profile.address,
        "config": asdict(config),
        "registered": core.registered,
        "draining": core.draining.begun,
        **core.memory.use.shown(),
        "tasks": [
            _task(task) | NOTHING_YET | left_out.get(task.key, {}) for task in core.tasks.values()
        ],
        "finished_tasks": [
            task.definition.task for task in core.tasks.values() if task.total is not None
        ],
        "deleted_tasks": list(core.dropped),
        "clients": list(map(shown_name, core.links.by_client)),
        "rejected": dict(rejected),
        "process": described_process(),
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


def state_of_hosted(task: HostedTask) -> str:
    """Return the state of a task as its worker knows it, one of ``HOSTED_STATES``."""
    if task.total is not None:
        return ENDED
    if task.waits_for_readers:
        return WAITING
    return RUNNING if task.started else STARTING


def _task(task: HostedTask) -> dict[str, Any]:
    definition, measures = task.definition, task.measures
    mode = definition.job.processing_mode
    running = [] if measures is None or task.total is not None else [measures]
    return {
        "task": definition.task,
        "attempt": definition.attempt,
        "dataset_id": definition.job.dataset_id,
        "processing_mode": MODE_WORDS.get(mode, mode),
        "compression": definition.job.compression,
        "compressed": task.compressed,
        "state": state_of_hosted(task),
        "started": task.started,
        "produced": task.produced,
        "total": task.total,
        "clients": list(map(shown_name, task.dealing.streams)),
        "buffered_bytes": 0 if measures is None else round(measures.ahead),
        "nodes": [structs.asdict(one) for one in task_operations(measures)],
        **time_fields(running),
    }
