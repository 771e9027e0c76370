"""Rules that follow from a job's parameters alone: which workers may host its tasks,
which clients read from them, and whether tasks survive their host.

Decision 0005; protocol 3.1, 3.8 and 8.1.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import get_args

from zmqdata.config.checks import OnExisting, OnPoison
from zmqdata.messages import JobParameters
from zmqdata.messages.identity import Fingerprint

COLOCATED = "COLOCATED"
ON_POISON = get_args(OnPoison)
"""The allowed values of ``on_poison``, which says what happens to an element that has
killed its worker repeatedly.
"""
ON_EXISTING = get_args(OnExisting)
"""The allowed values of ``on_existing``, which says what happens if a new run finds the
name of its job in use.
"""
UNSPLIT = frozenset({"OFF", "DYNAMIC"})
"""Processing modes in which no static shard of the input belongs to a worker."""


def is_static(job: JobParameters) -> bool:
    """Return True if each task of a job reads the static shard that belongs to its
    worker.
    """
    return job.processing_mode not in UNSPLIT and job.num_tasks is None


def is_seeded(job: JobParameters) -> bool:
    """Return True if all seeds of a job follow from the client's."""
    return job.num_tasks is not None or job.seed != 0


def outlives_host(job: JobParameters) -> bool:
    """Return True if the tasks of a job continue on another worker when their host is
    lost.

    Otherwise each task is a copy of the whole input and produces the same elements as
    every other task. Losing a copy loses no element.

    Example:
        >>> modes = ("OFF", "DYNAMIC", "FILE")
        >>> [outlives_host(JobParameters("job", "dataset", mode)) for mode in modes]
        [False, True, True]
    """
    return job.processing_mode != "OFF" or job.num_consumers is not None


def is_copied(job: JobParameters) -> bool:
    """Return True if each task of a job is a copy of the input, and each element of a
    copy reaches one client.
    """
    return not outlives_host(job) and not job.cache


def effective_target(job: JobParameters, colocated: bool) -> str:
    """Return the target workers of a job, given whether clients and workers are
    deployed in pairs.

    In a paired deployment, a worker's static shard is for the client beside it
    (tf.data's rule). The consumers of a coordinated job read the same workers in each
    step, so AUTO leaves out no worker.
    """
    if job.target_workers != "AUTO":
        return job.target_workers
    if job.num_consumers is not None and (job.num_consumers > 1 or job.num_tasks is None):
        return "ANY"
    return "LOCAL" if colocated and is_static(job) else "AUTO"


def may_read(target: str, address: str, tags: Collection[str], local: Collection[str]) -> bool:
    """Return True if a client with these ``local`` workers reads from the worker at
    ``address``.

    Example:
        >>> may_read("AUTO", "tcp://b:1", ("colocated",), local=())
        False
        >>> may_read("AUTO", "tcp://b:1", ("GPU",), local=())
        True
    """
    return address in local or is_for_all(target, tags)


def is_for_all(target: str, tags: Collection[str]) -> bool:
    """Return True if every client may read from a worker with these tags, wherever the
    client runs.

    Example:
        >>> is_for_all("ANY", ("COLOCATED",)), is_for_all("AUTO", ())
        (True, True)
        >>> is_for_all("LOCAL", ())
        False
    """
    if target == "AUTO":
        return not tags or all(tag.upper() != COLOCATED for tag in tags)
    return target == "ANY"


def changed_content(dataset_id: str, known: str, found: str) -> str:
    """Describe how the content registered under a dataset id differs from what the
    client knows, and the likely cause.

    >>> changed_content("mnist", "a:b:c", "a:b:d")[69:102]
    'Known functions: <c>; found: <d>.'
    """
    one, two = Fingerprint.parse(known), Fingerprint.parse(found)
    parts = [
        ("structure", one.structure, two.structure),
        ("functions", one.functions, two.functions),
        ("values that functions hold", one.code, two.code),
    ]
    pairs = [f"Known {name}: <{a[:24]}>; found: <{b[:24]}>." for name, a, b in parts if a != b]
    return (
        f"The content of dataset id {dataset_id} differs from what this client knows. {pairs[0]} "
        "Probably the "
        "dispatcher was restarted without a work_dir, and other content was registered under this "
        "id before this "
        "client came back. Call from_dataset_id() again to read the new content, or register "
        "your dataset under an "
        "id of its own. With a work_dir, a dispatcher keeps its ids over restarts."
    )
