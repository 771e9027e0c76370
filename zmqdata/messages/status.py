"""The status of a dispatcher: what it says of itself, its workers, jobs and tasks.

Whatever a person or a machine asks is a picture of these structures. All states, shares
and verdicts are in them already; ``zmqdata.measures.status`` makes them.

Protocol 3.10; decision 0052.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from zmqdata.errors import VersionMismatchError

STATUS_VERSION = 1
"""Version of the structures below. It rises whenever a field changes its meaning."""


class OperationStatus(Struct, frozen=True, kw_only=True):
    """Time that tasks spent in an operation, and not in its inputs."""

    place: str = ""
    """Position in the tree, as ``NodeTime.place``."""
    depth: int = 0
    """Number of known operations above it in the tree; 0 for the worker's own work."""
    node: str = ""
    """The operation as the user knows it."""
    share: float = 0.0
    """Seconds in this operation divided by the seconds in all operations, lately."""
    share_so_far: float = 0.0
    """The same since the tasks began."""
    seconds: float = 0.0
    """Seconds in this operation since the tasks began, over all threads."""
    processor_share: float = 1.0
    """Share of its seconds in which a processor worked, lately; the rest it waited."""
    lacks_cores: bool = False
    """True if the tasks of a job use so many cores of their machines that it waits for
    one. Unknown, and false, for a single task.
    """
    held_up_share: float = 0.0
    """Share of the time in which pipelines ran, lately, in which its finished results
    waited for one call that had not returned. ``deterministic=False`` lets them pass.
    """
    threads: int = 1
    """Most threads that worked in it at a time in one task."""
    queue: tuple[int, int] | None = None
    """Elements that wait behind it, and the most that may; None if it does not run
    ahead.
    """


class TaskStatus(Struct, frozen=True, kw_only=True):
    """A task."""

    task: int = 0
    """Its number."""
    iteration: int = 0
    """Number of its iteration."""
    attempt: int = 1
    """Number of its attempt."""
    worker: str = ""
    """Name of its worker; empty between two hosts."""
    address: str = ""
    """Address of that worker."""
    state: str = "running"
    """One of ``zmqdata.measures.status.TASK_STATES``."""
    doing: str = ""
    """State in words, with the seconds and the element that it concerns."""
    produced: int = 0
    """Number of its elements that were made, as far as known. Reports lag behind: it is
    at least ``delivered``, and ``total`` once it has ended.
    """
    total: int | None = None
    """Number of all its elements, once it has ended."""
    delivered: int = 0
    """Number of its elements that reached a training loop."""
    rest: int = 0
    """Number of its elements in the incomplete last round."""
    removed: bool = False
    """True if it was given up."""
    skipped: dict[str, int] = {}
    """Per trainer of a shared cache, the elements that it was too slow for."""
    seconds_without_progress: float = 0.0
    """Seconds since it last made progress, if nothing but itself keeps it from that."""
    busy_seconds: float = 0.0
    """Seconds for which it has been at one element."""
    busy_with: str = ""
    """That element, as the beginning of a sentence; empty if unknown."""
    deaths: int = 0
    """Number of its attempts that ended with their worker process."""
    compressed: str = ""
    """Codec of its blocks."""
    making_share: float = 0.0
    """Share of the time in which its pipeline runs, lately."""
    waiting_for_readers_share: float = 0.0
    """Share of the time in which it has made all that it may, lately."""
    waiting_for_splits_share: float = 0.0
    """Share of the time in which it waits for splits, lately."""
    elements_per_second: float = 0.0
    """Rate at which it makes elements, lately."""
    bytes_per_second: float = 0.0
    """Rate at which it sends bytes, lately."""
    buffered_bytes: int = 0
    """Bytes that it holds for its readers."""
    link_busy_share: float = 0.0
    """Share of the time in which its busiest link has bytes in flight, lately."""
    link_bytes_per_second: float = 0.0
    """Bytes per second that this link moves."""
    nodes: list[OperationStatus] = []
    """Its operations."""


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """A worker."""

    worker: str = ""
    """Its name."""
    address: str = ""
    """Address at which clients reach it."""
    process: str = ""
    """Its host and process id, as ``"host:pid"``; empty if unknown."""
    name: str = ""
    """Name that its user has given it; empty if it has none."""
    state: str = "connected"
    """One of ``zmqdata.measures.status.WORKER_STATES``."""
    tags: list[str] = []
    """Its tags."""
    python: str = ""
    """Version of its Python."""
    tasks: int = 0
    """Number of the tasks that it hosts."""
    silent_seconds: float = 0.0
    """Seconds since the dispatcher last heard from it."""
    elements_per_second: float = 0.0
    """Rate at which its tasks make elements, lately."""
    bytes_per_second: float = 0.0
    """Rate at which its tasks send bytes, lately."""
    making_share: float = 0.0
    """Share of the time of its tasks in which their pipelines run, lately."""
    waiting_for_readers_share: float = 0.0
    """Share of the time in which its tasks have made all that they may, lately."""
    waiting_for_splits_share: float = 0.0
    """Share of the time in which its tasks wait for splits, lately."""
    link_busy_share: float = 0.0
    """Share of the time in which its busiest link has bytes in flight, lately."""
    rss_bytes: int | None = None
    """Resident memory of all its processes."""
    memory_bytes: int | None = None
    """Memory that its limit counts; None without a limit."""
    memory_limit_bytes: int | None = None
    """Its memory limit; None if it has none."""
    recycles: int = 0
    """Number of its processes that were replaced because of that limit."""


class ReaderStatus(Struct, frozen=True, kw_only=True):
    """A training loop that reads an iteration, or has read it."""

    client: str = ""
    """Derived name of its client."""
    name: str = ""
    """Name for people, without an id: its consumer, its rank, or its place among the
    loops, with host and process.
    """
    run: str = ""
    """Its run."""
    member: str = ""
    """Its rank in that run; empty without ranks."""
    process: str = ""
    """Its process."""
    how: str = ""
    """Reason for which it reads the iteration."""
    given_back: int = 0
    """Number of elements that it gave back."""
    consumer: int | None = None
    """Number of its consumer; None without one."""
    wait_share: float = 0.0
    """Share of its time that it waits for elements, lately."""
    wait_ms: float = 0.0
    """Milliseconds that it waits for an element, lately."""
    step_ms: float = 0.0
    """Milliseconds that it takes for an element itself, lately."""
    elements_per_second: float = 0.0
    """Rate at which it takes elements, lately."""
    first_element_seconds: float | None = None
    """Seconds until its first element; None before that."""
    elements: int = 0
    """Number of elements that it has taken."""
    waited_seconds: float = 0.0
    """Seconds that it has waited so far, without the first element."""
    buffered: int = 0
    """Number of elements that are ready for it."""
    slower: float = 0.0
    """Factor by which its step takes longer than the median of the others; 0 if that is
    not noteworthy.
    """


class SplitsStatus(Struct, frozen=True, kw_only=True):
    """Progress of the splits of a source."""

    handed_out: int = 0
    """Number of splits that were handed out."""
    count: int | None = None
    """Number of all splits; None if unknown."""
    unit: str = "splits"
    """Name of what they count, such as files or rows."""
    repetition: int = 0
    """Repetition of the source."""


class NodeSeconds(Struct, frozen=True, kw_only=True):
    """Seconds in an operation, of all attempts of all tasks."""

    place: str = ""
    """Position in the tree."""
    node: str = ""
    """The operation."""
    seconds: float = 0.0
    """Seconds over all threads."""


class MovedStatus(Struct, frozen=True, kw_only=True):
    """Elements that arrived by one transport with one codec."""

    transport: str = ""
    """The transport."""
    codec: str = "none"
    """The codec."""
    bytes: int = 0
    """Bytes that arrived."""
    elements: int = 0
    """Elements that arrived."""


class TotalsStatus(Struct, frozen=True, kw_only=True):
    """Sums so far, of all attempts of all tasks."""

    job: str = ""
    """Name of the job, in the list of all jobs; empty inside a job."""
    delivered: int = 0
    """Number of elements that reached a training loop."""
    redone: int = 0
    """Number of elements that were made again after a worker was lost."""
    left_out: int = 0
    """Number of elements that operations skipped."""
    counts: dict[str, float] = {}
    """Sums that operations counted, and their ratios, by name."""
    making_seconds: float = 0.0
    """Seconds in which pipelines ran."""
    waiting_for_readers_seconds: float = 0.0
    """Seconds in which tasks had made all that they may."""
    waiting_for_splits_seconds: float = 0.0
    """Seconds in which tasks waited for splits."""
    block_bytes: int = 0
    """Bytes of all blocks."""
    loop_waiting_seconds: float = 0.0
    """Seconds that training loops waited."""
    loop_seconds: float = 0.0
    """Seconds of all training loops."""
    nodes: list[NodeSeconds] = []
    """Seconds by operation."""
    moved: list[MovedStatus] = []
    """Bytes and elements that arrived, by transport and codec."""


class JobStatus(Struct, frozen=True, kw_only=True):
    """A job in one of its repetitions."""

    job: str = ""
    """Its name."""
    name: str = ""
    """Its name for people: with what it reads if the name was invented, with the number
    of newer incarnations, and with its repetition from the second on.
    """
    origin: str = ""
    """Line of code and dataset that it reads."""
    dataset_id: str = ""
    """Id of its dataset."""
    processing_mode: str = ""
    """Policy by which its tasks share the input, in the words of users."""
    iteration: int = 0
    """Number of its iteration."""
    incarnation: int = 1
    """Number of its incarnation, counted over all jobs: the newest has the largest."""
    repetition: int = 0
    """Number of the repetition."""
    condition: str = "UNKNOWN"
    """One of ``zmqdata.measures.status.CONDITIONS``."""
    sentence: str = ""
    """The condition in one or two sentences: evidence and advice."""
    trouble: str = ""
    """Whatever else is wrong, in words; empty if nothing is."""
    clients: int = 0
    """Number of training loops that read it now."""
    readers: list[ReaderStatus] = []
    """Training loops that read it or have read it."""
    save: str | None = None
    """Path that it is saved to; None if it is read."""
    workers: int = 0
    """Number of workers that host a task of it that has not ended."""
    tasks: int = 0
    """Number of its tasks."""
    delivered: int = 0
    """Number of elements that reached a training loop."""
    given_back: int = 0
    """Number of elements that training loops gave back."""
    splits: list[SplitsStatus] = []
    """Progress of each source."""
    finished: bool = False
    """True if all of its elements were delivered."""
    steps: list[int] = []
    """Number of steps of each numbered consumer."""
    poisoned: list[str] = []
    """Elements that were skipped because they kill workers."""
    failure: str = ""
    """The error that ended it; empty if none did."""
    missing_consumers: list[int] = []
    """Numbered consumers that do not read yet."""
    verdict: str = ""
    """The verdict on its training loop, as in ``stats()``; empty without measures."""
    advice: str = ""
    """Evidence and advice of the verdict, as in ``stats()``."""
    workers_needed: int = 0
    """Number of workers that would feed it; 0 if unknown."""
    node: str = ""
    """Operation that keeps its threads busiest; empty if unknown."""
    node_share: float = 0.0
    """Share of that operation, lately."""
    wait_share: float = 0.0
    """Share of its time that the judged training loop waits, lately."""
    making_share: float = 0.0
    """Share of the time of its tasks in which their pipelines run, lately."""
    waiting_for_splits_share: float = 0.0
    """Share of the time of its tasks in which they wait for splits, lately."""
    link_busy_share: float = 0.0
    """Share of the time in which its busiest link has bytes in flight, lately."""
    bytes_per_second: float = 0.0
    """Rate at which its tasks send bytes, lately."""
    made_per_second: float = 0.0
    """Rate at which its tasks make elements, lately: the sum of its workers' rates."""
    unit: str = "elements"
    """Name of its elements: batches or elements."""
    batch_rows: int | None = None
    """Rows of a batch; None if unknown."""
    elements_per_second: float = 0.0
    """Rate at which its training loops take elements, lately."""
    rows_per_second: float | None = None
    """The same in rows; None if unknown."""
    operations: list[OperationStatus] = []
    """Its operations, over all of its tasks."""
    measures: TotalsStatus = TotalsStatus()
    """Sums so far."""


class IterationStatus(Struct, frozen=True, kw_only=True):
    """An iteration, also one whose data the dispatcher has dropped."""

    iteration: int = 0
    """Its number."""
    repetition: int = 0
    """Number of the repetition."""
    job: str = ""
    """Name of its job."""
    dataset_id: str = ""
    """Id of its dataset."""
    processing_mode: str = ""
    """Policy by which its tasks share the input, in the words of users."""
    num_consumers: int | None = None
    """Number of its numbered consumers; None without them."""
    num_clients: int = 0
    """Number of training loops that read it now."""
    finished: bool = False
    """True if all of its elements were delivered."""
    collected: bool = False
    """True if the dispatcher has dropped it."""


class EventStatus(Struct, frozen=True, kw_only=True):
    """A line of the dispatcher's log."""

    time: float = 0.0
    """Seconds since 1970."""
    level: str = "info"
    """Its level."""
    text: str = ""
    """The line. It begins with ``earlier incarnation`` if its job has begun anew."""
    job: str = ""
    """Name of the job that it concerns; empty if it concerns none."""
    incarnation: int = 0
    """Number of the incarnation of that job."""


class ServiceStatus(Struct, frozen=True, kw_only=True):
    """The status of a dispatcher."""

    version: int = STATUS_VERSION
    """``STATUS_VERSION`` of the dispatcher."""
    dispatcher: str = ""
    """Its address."""
    config: dict[str, Any] = {}
    """Its configuration."""
    workers: list[WorkerStatus] = []
    """The workers: those that need attention first, then the busiest."""
    iterations: list[IterationStatus] = []
    """The iterations."""
    jobs: list[JobStatus] = []
    """The jobs, the most urgent first."""
    tasks: list[TaskStatus] = []
    """The tasks of all jobs."""
    totals: list[TotalsStatus] = []
    """Sums so far of each job, all its repetitions together."""
    events: list[EventStatus] = []
    """The newest events, oldest first."""
    rejected: dict[str, int] = {}
    """Number of refused messages by reason."""
    process: dict[str, Any] = {}
    """The process and its versions."""
    desired_workers: int = 0
    """Number of worker processes that would feed all jobs."""
    desired_because: str = ""
    """The reason for this number, in a sentence."""


class _Versioned(Struct):
    """Any status, of which only the version is known."""

    version: int = 0
    """Its version; 0 if it has none."""


class _JudgedJob(Struct):
    """A job with a condition, without which no face can show it."""

    condition: str


class _Judged(Struct):
    """A status whose jobs were all judged."""

    jobs: list[_JudgedJob] = []


def known_status(found: Mapping[str, Any]) -> ServiceStatus:
    """Return the status of a dispatcher as a structure.

    Args:
        found: the status as plain data, as ``zmqdata.client.calls.status`` returns it.

    Raises:
        VersionMismatchError: it has another version or another form, as that of another
            release of zmqdata.

    Example:
        >>> known_status({"version": 1, "dispatcher": "tcp://a:1"}).dispatcher
        'tcp://a:1'
    """
    try:
        number = msgspec.convert(found, _Versioned).version
        if number == STATUS_VERSION:
            msgspec.convert(found, _Judged)
            return msgspec.convert(found, ServiceStatus)
        told = f"has version {number}" if number else "is older than this release: no version"
    except msgspec.ValidationError as error:
        told = f"has another form ({error})"
    raise VersionMismatchError(
        f"The status of the dispatcher {told}, and this zmqdata reads version {STATUS_VERSION}. "
        "The zmqdata of the dispatcher is probably another release: install the same release on "
        "both sides"
    )
