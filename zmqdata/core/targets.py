"""Which workers may host tasks of a job, and which of those a client reads from: ``target_workers``."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from zmqdata.messages import JobParameters

COLOCATED = "COLOCATED"
UNSPLIT = frozenset({"OFF", "DYNAMIC"})
"""Processing modes in which no static part of the input belongs to a worker."""


def is_static(job: JobParameters) -> bool:
    """Whether each task of a job reads the fixed part of the input that belongs to its worker."""
    return job.processing_mode not in UNSPLIT and job.num_tasks is None


def effective_target(job: JobParameters, colocated: bool) -> str:
    """The target workers of a job, given whether clients and workers are deployed in pairs.

    There, a worker's static part is for the client beside it (tf.data's rule).
    """
    if colocated and job.target_workers == "AUTO" and is_static(job):
        return "LOCAL"
    return job.target_workers


def may_read(target: str, address: str, tags: Iterable[str], local: Collection[str]) -> bool:
    """Whether a client with these ``local`` workers reads from the worker at ``address``.

    Example:
        >>> may_read("AUTO", "tcp://b:1", ("colocated",), local=()), may_read("AUTO", "tcp://b:1", ("GPU",), local=())
        (False, True)
    """
    if target == "ANY" or address in local:
        return True
    return target == "AUTO" and all(tag.upper() != COLOCATED for tag in tags)
