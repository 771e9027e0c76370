"""What follows from a job's parameters alone: which workers may host its tasks, who
reads them, whether tasks move.
"""

from __future__ import annotations

from collections.abc import Collection

from zmqdata.messages import JobParameters, TaskDefinition

COLOCATED = "COLOCATED"
ON_POISON = ("fail", "skip")
"""What may become of an element that has killed its worker again and again."""
UNSPLIT = frozenset({"OFF", "DYNAMIC"})
"""Processing modes in which no static part of the input belongs to a worker."""


def is_static(job: JobParameters) -> bool:
    """Whether each task of a job reads the fixed part of the input that belongs to its
    worker.
    """
    return job.processing_mode not in UNSPLIT and job.num_tasks is None


def outlives_host(one: JobParameters | TaskDefinition) -> bool:
    """Whether the tasks of a job go on elsewhere when their worker is gone.

    Otherwise each of them is a copy of the whole input: what comes to one comes to all,
    and losing one is no loss.

    Example:
        >>> [outlives_host(JobParameters("job", "dataset", mode)) for mode in ("OFF", "DYNAMIC", "FILE")]
        [False, True, True]
    """
    return one.processing_mode != "OFF" or one.num_consumers is not None


def effective_target(job: JobParameters, colocated: bool) -> str:
    """The target workers of a job, given whether clients and workers are deployed in
    pairs.

    There, a worker's static part is for the client beside it (tf.data's rule).
    """
    if colocated and job.target_workers == "AUTO" and is_static(job):
        return "LOCAL"
    return job.target_workers


def may_read(target: str, address: str, tags: Collection[str], local: Collection[str]) -> bool:
    """Whether a client with these ``local`` workers reads from the worker at
    ``address``.

    Example:
        >>> may_read("AUTO", "tcp://b:1", ("colocated",), local=()), may_read("AUTO", "tcp://b:1", ("GPU",), local=())
        (False, True)
    """
    return address in local or is_for_all(target, tags)


def is_for_all(target: str, tags: Collection[str]) -> bool:
    """Whether clients read from a worker with these tags wherever they are themselves.

    Example:
        >>> is_for_all("ANY", ("COLOCATED",)), is_for_all("AUTO", ()), is_for_all("LOCAL", ())
        (True, True, False)
    """
    if target == "AUTO":
        return not tags or all(tag.upper() != COLOCATED for tag in tags)
    return target == "ANY"


def changed_content(dataset_id: str, known: str, found: str) -> str:
    """Says how the content differs that a client knows under an id from what the
    dispatcher has there, and why.

    >>> changed_content("one", "a:b:c", "a:b:d")[:96]
    'The dataset with id one has another content than this client knows. Known functions: <c>; found:'
    """
    names = ("structure", "functions", "values that functions hold")
    pairs = [
        f"Known {name}: <{one[:24]}>; found: <{other[:24]}>."
        for name, one, other in zip(names, _told_parts(known), _told_parts(found), strict=True)
        if one != other
    ]
    return (
        f"The dataset with id {dataset_id} has another content than this client knows. {pairs[0]} "
        "Probably the "
        "dispatcher was restarted without a work_dir, and something else was registered under this "
        "id before this "
        "client came back. Call from_dataset_id() again to read what is there now, or register "
        "what you want under an "
        "id of its own; with a work_dir a dispatcher keeps what its ids mean."
    )


def _told_parts(fingerprint: str) -> tuple[str, str, str]:
    structure, _, rest = fingerprint.partition(":")
    code, _, functions = rest.partition(":")
    return structure, functions, code
