"""Definitions of tasks for tests, which name the fields of a task and of its job
alike.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs

from zmqdata.messages import JobParameters, SaveParameters, TaskDefinition
from zmqdata.messages.parts import Ranges
from zmqdata.splits import Split

OF_JOB = {*JobParameters.__struct_fields__} - {"seed"}


def define(
    task: int,
    attempt: int,
    iteration: int,
    dataset_id: str,
    digest: str,
    processing_mode: str,
    seed: int,
    compression: str | None,
    ledger: tuple[tuple[Split, ...], ...],
    skip: Ranges,
    **others: Any,
) -> TaskDefinition:
    """Return a definition of a task with a job of its own."""
    job = JobParameters("job", dataset_id, processing_mode, compression=compression)
    made = TaskDefinition(task, attempt, iteration, job, digest, seed, ledger, skip)
    return changed(made, **others)


def changed(definition: TaskDefinition, **changes: Any) -> TaskDefinition:
    """Return a definition with other values, of its own fields or of its job's.

    Args:
        definition: the definition.
        changes: values by field. ``save_path`` stands for the parameters of a save.
    """
    if "save_path" in changes:
        path = changes.pop("save_path")
        changes["save"] = SaveParameters(path, "save") if path else None
    of_job = {name: value for name, value in changes.items() if name in OF_JOB}
    own = {name: value for name, value in changes.items() if name not in OF_JOB}
    return structs.replace(definition, job=structs.replace(definition.job, **of_job), **own)
