"""The metrics of dispatcher and worker: their names, kinds, labels and meanings.

The HTTP server, the page on metrics, the dashboard and the alert rules all use
these declarations. No code here measures anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata.measures.status import ENDED, RUNNING, STARTING, WAITING

COUNTER = "counter"
"""A number that grows until the server ends."""
GAUGE = "gauge"
"""A number that grows and shrinks."""
SUMMARY = "summary"
"""A counter of events, with ``_count`` behind its name, and a counter of their seconds,
with ``_sum``. There are no quantiles: reporters send sums.
"""
CONSTANT = "info"
"""The constant 1, with ``_info`` behind its name; the labels say something."""
OTHER = "other"
"""Label under which everything is added up for which no label is left."""
ANONYMOUS = "anonymous"
"""Label of all jobs without a name."""
EVERY = "all"
"""Label of the training loops that are no numbered consumers, all together."""

Labels = tuple[str, ...]
Samples = dict[str, dict[Labels, float]]
"""Values by the name under which Prometheus stores them, and by labels."""


@dataclass(frozen=True)
class Metric:
    """A metric, without its values."""

    name: str
    """Name in Prometheus; the name of a counter ends in ``_total``."""
    kind: str
    """Counter, gauge, summary or info."""
    meaning: str
    """The meaning of its values, for users."""
    labels: Labels = ()
    """Names of its labels."""

    @property
    def shown(self) -> tuple[str, ...]:
        """The names under which Prometheus stores it.

        Example:
            >>> Metric("zmqdata_step_seconds", SUMMARY, "").shown
            ('zmqdata_step_seconds_sum', 'zmqdata_step_seconds_count')
        """
        ends = {SUMMARY: ("_sum", "_count"), CONSTANT: ("_info",)}.get(self.kind, ("",))
        return tuple(f"{self.name}{end}" for end in ends)


JOB = ("job_name",)
LOOP = ("job_name", "consumer")

BUILD = Metric("zmqdata_build", CONSTANT, "the version and the role", ("version", "role"))

DISPATCHER = (
    BUILD,
    Metric("zmqdata_workers", GAUGE, "workers that the dispatcher knows", ("state",)),
    Metric(
        "zmqdata_workers_resident_bytes",
        GAUGE,
        "resident memory of all worker processes, as far as they tell it",
    ),
    Metric("zmqdata_worker_losses_total", COUNTER, "workers that died or were cut off"),
    Metric(
        "zmqdata_desired_workers",
        GAUGE,
        "worker processes that would feed all jobs together: up at once, down after a minute",
    ),
    Metric("zmqdata_needed_workers", GAUGE, "workers that would feed the job; 0 if unknown", JOB),
    Metric(
        "zmqdata_verdict",
        GAUGE,
        "1 for the word that says what limits the job, 0 for the others",
        ("job_name", "verdict"),
    ),
    Metric("zmqdata_readers", GAUGE, "clients that read the job", JOB),
    Metric("zmqdata_tasks", GAUGE, "tasks of all jobs that are not collected", ("state",)),
    Metric("zmqdata_elements_total", COUNTER, "elements that reached a training loop", JOB),
    Metric(
        "zmqdata_redone_elements_total",
        COUNTER,
        "elements that were made again after a worker was lost, once their task has ended",
        JOB,
    ),
    Metric(
        "zmqdata_skipped_total",
        COUNTER,
        "elements that operations left out because they failed, once their task has ended",
        JOB,
    ),
    Metric(
        "zmqdata_bytes_total",
        COUNTER,
        "bytes that arrived at training processes, as they travelled",
        ("job_name", "transport", "codec"),
    ),
    Metric("zmqdata_block_bytes_total", COUNTER, "bytes of the blocks that workers made", JOB),
    Metric(
        "zmqdata_task_seconds_total",
        COUNTER,
        "seconds of the tasks, by what they did",
        ("job_name", "doing"),
    ),
    Metric(
        "zmqdata_node_seconds_total",
        COUNTER,
        "seconds that threads of the workers spent in an operation, without its inputs",
        ("job_name", "node"),
    ),
    Metric(
        "zmqdata_operation_counts_total",
        COUNTER,
        "sums that operations count, as `mix/web` for the elements of a dataset in a mixture",
        ("job_name", "name"),
    ),
    Metric(
        "zmqdata_client_wait_seconds",
        SUMMARY,
        "seconds that training loops waited for an element, without the first",
        LOOP,
    ),
    Metric(
        "zmqdata_client_step_seconds",
        SUMMARY,
        "seconds that training loops took themselves between two elements",
        LOOP,
    ),
    Metric(
        "zmqdata_client_first_element_seconds",
        SUMMARY,
        "seconds from the beginning of an iterator to its first element",
        JOB,
    ),
    Metric(
        "zmqdata_buffer_elements",
        GAUGE,
        "elements that have arrived and that no training loop has taken",
        LOOP,
    ),
    Metric(
        "zmqdata_task_deaths_total",
        COUNTER,
        "deaths of worker processes in which an element of the job may be the cause",
        JOB,
    ),
    Metric(
        "zmqdata_poisoned_elements_total",
        COUNTER,
        "elements that are left out because they kill their worker",
        JOB,
    ),
    Metric(
        "zmqdata_failed_jobs",
        GAUGE,
        "jobs whose newest pass the service has ended with an error; an exception of a function "
        "ends none, except a save",
    ),
    Metric("zmqdata_rejected_messages_total", COUNTER, "messages that the server refused"),
)
"""Metrics of a dispatcher."""

WORKER = (
    BUILD,
    Metric(
        "zmqdata_worker_info", GAUGE, "1, with name and address of the worker", ("name", "address")
    ),
    Metric(
        "zmqdata_worker_registered", GAUGE, "1 if the dispatcher knows this worker and answers it"
    ),
    Metric("zmqdata_worker_draining", GAUGE, "1 if the worker hands its tasks over"),
    Metric("zmqdata_worker_tasks", GAUGE, "tasks on the worker", ("state",)),
    Metric("zmqdata_worker_clients", GAUGE, "clients that read from the worker"),
    Metric("zmqdata_worker_elements_total", COUNTER, "elements that the worker made"),
    Metric("zmqdata_worker_block_bytes_total", COUNTER, "bytes of the blocks that it made"),
    Metric(
        "zmqdata_worker_task_seconds_total",
        COUNTER,
        "seconds of its tasks, by what they did",
        ("doing",),
    ),
    Metric(
        "zmqdata_worker_node_seconds_total",
        COUNTER,
        "seconds that its threads spent in an operation, without its inputs",
        ("node",),
    ),
    Metric(
        "zmqdata_worker_resident_bytes",
        GAUGE,
        "resident memory of the process, with the shared memory that it uses; 0 if unknown",
    ),
    Metric(
        "zmqdata_worker_private_bytes",
        GAUGE,
        "memory of the process that counts for --memory-limit: what it may write to, in use or not "
        "yet, so it may exceed the resident bytes; 0 if unknown",
    ),
    Metric("zmqdata_worker_memory_limit_bytes", GAUGE, "--memory-limit; 0 without one"),
    Metric(
        "zmqdata_worker_recycles_total",
        COUNTER,
        "processes in this place that were recycled because of their memory",
    ),
    Metric("zmqdata_rejected_messages_total", COUNTER, "messages that the server refused"),
)
"""Metrics of a worker process."""

HOSTED_STATES = (STARTING, RUNNING, WAITING, ENDED)
"""States of a task, as its worker knows it."""
