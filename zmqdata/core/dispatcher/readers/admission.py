"""Admission of clients: every reason to refuse an ``OpenIteration``, with its text.

Decision 0005; protocol 3.1, 9.1 and 9.12.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from zmqdata import messages as m
from zmqdata.core.dispatcher.state.runs import Incarnation
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.tasks.placement import Placement
from zmqdata.core.job_rules import ON_POISON, changed_content, effective_target, is_static
from zmqdata.core.limits import (
    MOST_CLIENTS,
    MOST_CONSUMERS,
    MOST_COPIES,
    MOST_JOBS,
    MOST_LOADER_WORKERS,
    MOST_TASKS,
    MOST_TASKS_TOGETHER,
    too_long,
    too_many,
)
from zmqdata.elements.specs import INFINITE_CARDINALITY, UNKNOWN_CARDINALITY
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnavailableError,
    UnimplementedError,
)
from zmqdata.messages.identity import Fingerprint
from zmqdata.printable import printable
from zmqdata.splits import ChunkSplits

Objection = tuple[type[Exception], str]
"""An error class and the text for the user."""

MOST_NAMED, MOST_HOLDERS = 5, 3
"""Most operations, and most readers, that the text of an error names."""
_ORDER = "order of a shuffle that has no `seed=`, so that each program draws its own"


class Admission:
    """Checks requests to open an iteration.

    Args:
        state: what exists.
        placement: the living workers.
    """

    def __init__(self, state: DispatcherState, placement: Placement) -> None:
        self.state = state
        self.placement = placement

    def reason_unknown(
        self, client: str, was_ours: bool, told: tuple[m.JournalCounts, ...] = ()
    ) -> Objection:
        """Return the reason why a client is not known.

        It is NotFoundError, as in tf.data, for a former client of this dispatcher. It
        is DataLossError if the journal has lost the client, and UnavailableError if a
        former dispatcher had no journal.

        Args:
            client: the client.
            was_ours: True if it is known to have read here.
            told: counts that it has heard.
        """
        if was_ours:
            reason = "it was silent for too long, or its job was collected"
        elif told and self.state.life > 1:
            return DataLossError, lacking(max(one.records for one in told))
        else:
            reason = (
                "the dispatcher was restarted and kept nothing of its jobs, because it has no "
                "journal. Start it with --work-dir FOLDER (in Python: "
                "DispatcherConfig(work_dir=...)), so that readers go on after its next restart"
            )
        text = f"Unknown iteration client id {client}: {reason}. Start a new iterator."
        return NotFoundError if was_ours else UnavailableError, text

    def objection(self, ask: m.OpenIteration) -> Objection | None:
        """Return the error with which a request is refused; None if it may be
        granted.
        """
        job = ask.job
        dataset = self.state.datasets.get(job.dataset_id)
        if long := self._of_names(ask):
            return InvalidArgumentError, long
        if job.save is not None:
            return (
                InvalidArgumentError,
                "A save has no clients. Start it with zmqdata.distributed_save().",
            )
        if dataset is None:
            return NotFoundError, f"Dataset id {job.dataset_id} not found."
        known = None if ask.resume else self._read_by_run(ask)
        found = (
            self._of_limits()
            or self._of_content(job, dataset)
            or (None if known is None else self._of_name(known, job))
            or self._of_consumers(ask, dataset)
            or self._of_dataset(job, dataset)
        )
        return (
            of_poison(job.on_poison)
            or found
            or self._of_repetition(ask)
            or self._of_workers(ask)
            or self._of_copies(ask)
        )

    def _read_by_run(self, ask: m.OpenIteration) -> Incarnation | None:
        """Return the incarnation that the client's run reads; None if there is none, or
        nothing is left of it.
        """
        who = ask.affiliation
        run = self.state.runs.get((ask.job.name, who.run))
        if run is None:
            return None
        known = run.members.get(who.member)
        if known is not None and who.member and known.process != who.process:
            return None  # the program may have been started again, and changed
        incarnation = self.state.incarnations[run.reads.incarnation]
        return None if incarnation.is_collected else incarnation

    def objection_to(
        self, incarnation: Incarnation | None, ask: m.OpenIteration
    ) -> Objection | None:
        """Return the error with which a client is refused at an incarnation, or at a
        new one if that is None; None if it may read there.
        """
        if incarnation is not None and not incarnation.is_collected:
            return self._of_name(incarnation, ask.job)
        many = too_many("jobs", len(self.state.living), MOST_JOBS)
        if ask.job.num_tasks is not None:
            many = many or too_many("tasks", len(self.state.tasks), MOST_TASKS_TOGETHER)
        return (ResourceExhaustedError, many) if many else None

    def _of_names(self, ask: m.OpenIteration) -> str:
        """Refuse names that are too long. This comes first, because every other text
        repeats some of them.
        """
        part = ask.affiliation.reading_pass
        given = {
            "job": ask.job.name,
            "client": ask.client,
            "trainer": ask.reader.trainer_id,
            "run": ask.affiliation.run,
            "member": ask.affiliation.member,
            "process": ask.affiliation.process,
            "script": ask.affiliation.script,
            "worker": "" if part is None else part.process,
            "copy": max((one.name for one in ask.affiliation.copies), key=len, default=""),
        } | structs.asdict(ask.job)
        return too_long(
            {f"name of a {key}": text for key, text in given.items() if isinstance(text, str)}
        )

    def _of_limits(self) -> Objection | None:
        many = too_many("clients", len(self.state.client_iteration), MOST_CLIENTS)
        return (ResourceExhaustedError, many) if many else None

    def _of_content(self, job: m.JobParameters, dataset: m.DatasetDescription) -> Objection | None:
        # A dispatcher without a journal may assign an id again while clients of its
        # predecessor still use it.
        if not job.fingerprint or job.fingerprint == dataset.fingerprint:
            return None
        return FailedPreconditionError, changed_content(
            job.dataset_id, job.fingerprint, dataset.fingerprint
        )

    def _of_name(self, existing: Incarnation, job: m.JobParameters) -> Objection | None:
        difference = self._difference(existing.job, job)
        if not difference:
            return None
        return InvalidArgumentError, (
            f"Tried to create job with name {job.name}, but found an existing job "
            f"with different parameters: {difference} {self._holder(existing)} Use another "
            "job_name, or the same parameters in every client."
        )

    def _holder(self, existing: Incarnation) -> str:
        """Return who reads an existing job, in a sentence."""
        readers = {
            (opening.script or "a program without a script", opening.process)
            for iteration in existing.iterations.values()
            for opening in iteration.openings.values()
        }
        told = []
        for script, process in sorted(readers)[:MOST_HOLDERS]:
            host, _, rest = process.partition(":")
            told.append(f"{script} (process {rest.partition(':')[0]} on {host})")
        if not told:
            return "The existing job has no readers now."
        more = f" and {len(readers) - len(told)} more" if len(readers) > len(told) else ""
        return printable(f"The existing job is read by {', '.join(told)}{more}.")

    def _difference(self, existing: m.JobParameters, asked: m.JobParameters) -> str:
        # tf.data's text, which users search for: the elements of one trainer are
        # compressed, those of the other are not.
        mismatch = (
            "Data type mismatch. "
            if existing.cache and existing.compression != asked.compression
            else ""
        )
        pairs = [
            ("processing mode", existing.processing_mode, asked.processing_mode),
            ("number of consumers", existing.num_consumers, asked.num_consumers),
            ("number of tasks in a promised order", existing.num_tasks, asked.num_tasks),
            ("seed of a promised order", *map(_seed_of_order, (existing, asked))),
            ("rule for finite input", existing.finite, asked.finite),
            ("rule for poison", existing.on_poison, asked.on_poison),
            ("cross-trainer cache", _on_or_off(existing.cache), _on_or_off(asked.cache)),
            (
                "data transfer",
                *("local" if one.by_reference else "remote" for one in (existing, asked)),
            ),
            ("target workers", existing.target_workers, asked.target_workers),
            ("compression", existing.compression, asked.compression),
            ("save", *("none" if one.save is None else one.save.path for one in (existing, asked))),
            ("dataset", *self._dataset_labels(existing.dataset_id, asked.dataset_id)),
            ("weights of mix()", *self._weights(existing.dataset_id, asked.dataset_id)),
            (_ORDER, *self._kept_orders(existing.dataset_id, asked.dataset_id)),
        ]
        told = [
            f"Existing {name}: <{one}>; got <{other}>."
            for name, one, other in pairs
            if one != other
        ]
        return mismatch + " ".join(told)

    def _weights(self, existing: str, asked: str) -> tuple[str, str]:
        known, other = (self.state.datasets[dataset_id] for dataset_id in (existing, asked))
        return known.units.weights, other.units.weights

    def _kept_orders(self, existing: str, asked: str) -> tuple[str, str]:
        """Return what two programs have drawn once for the orders of their datasets.
        What a client reads elsewhere must be a part of the same order. A process that
        builds a pipeline twice draws two orders, as in tf.data, and may read the job of
        one with the other.
        """
        known, other = (self.state.datasets[dataset_id] for dataset_id in (existing, asked))
        if known.process and known.process == other.process:
            return "", ""
        texts = [f"{one.fixed_seed:016x} {list(one.orders)}" for one in (known, other)]
        return texts[0], texts[1]

    def _dataset_labels(self, existing: str, asked: str) -> tuple[str, str]:
        # Two clients that run the same script register the same pipeline as different
        # bytes, so the fingerprint decides. The values that functions hold do not
        # count: they include a trainer's own arguments.
        known, other = (self.state.datasets[dataset_id] for dataset_id in (existing, asked))
        one, two = Fingerprint.parse(known.fingerprint), Fingerprint.parse(other.fingerprint)
        # The bytecode of different Python versions always differs.
        comparable = known.python == other.python and one.functions and two.functions
        others = comparable and one.functions != two.functions
        if one.structure == two.structure and not others:
            return "", ""
        if known.outline and other.outline:
            return outline_difference(known.outline, other.outline)
        if one.structure == two.structure:
            return f"functions {one.functions[:24]}", f"functions {two.functions[:24]}"
        return one.structure[:24], two.structure[:24]

    def _of_dataset(self, job: m.JobParameters, dataset: m.DatasetDescription) -> Objection | None:
        if job.processing_mode == "DYNAMIC" and dataset.sources is None:
            return UnimplementedError, dataset.unsplittable
        if job.num_tasks is not None and any(
            isinstance(source, ChunkSplits) for source in dataset.sources or ()
        ):
            return UnimplementedError, (
                "deterministic=True is not possible for a save that may still be in progress, "
                "because the order of its chunks is that in which they are committed. Wait until "
                "the save is complete, and load it without wait=True"
            )
        if job.cache and dataset.cardinality not in (INFINITE_CARDINALITY, UNKNOWN_CARDINALITY):
            return InvalidArgumentError, (
                "Cross-trainer caching requires the input dataset to be infinite. The dataset has "
                "cardinality "
                f"{dataset.cardinality}; add repeat() before distribute()."
            )
        return None

    def _of_repetition(self, ask: m.OpenIteration) -> Objection | None:
        if ask.job.cache and ask.repetition:
            return InvalidArgumentError, (
                "Cross-trainer caching requires infinite datasets and disallows "
                "multiple repetitions of the same dataset. Got repetition "
                f"{ask.repetition} of job {ask.job.name}: continue with the first "
                "iterator, or call distribute() again."
            )
        return None

    def _of_consumers(
        self, ask: m.OpenIteration, dataset: m.DatasetDescription
    ) -> Objection | None:
        job, index = ask.job, ask.reader.consumer_index
        if job.num_consumers is None:
            if index is None and job.finite is None:
                return None
            return (
                InvalidArgumentError,
                "consumer_index and finite are for coordinated reads. Pass num_consumers too.",
            )
        if job.num_consumers < 1 or index is None or not 0 <= index < job.num_consumers:
            return InvalidArgumentError, (
                f"A coordinated job with num_consumers={job.num_consumers} has consumers 0 to "
                f"{job.num_consumers - 1}, "
                f"got consumer_index={index}."
            )
        if job.num_consumers > MOST_CONSUMERS or (job.num_tasks or 0) > MOST_TASKS:
            return ResourceExhaustedError, (
                f"A job has at most {MOST_CONSUMERS} consumers and, with a promised "
                f"order, at most {MOST_TASKS} tasks; got "
                f"num_consumers={job.num_consumers} and num_tasks={job.num_tasks}."
            )
        if job.num_tasks is not None and (job.num_tasks < 1 or job.processing_mode == "OFF"):
            return InvalidArgumentError, (
                "A promised order (deterministic=True) needs a processing mode that "
                f"splits the input, and at least one task; got {job.processing_mode} "
                f"and num_tasks={job.num_tasks}."
            )
        if job.finite not in (None, "drop", "pad"):
            return (
                InvalidArgumentError,
                f"finite must be None, 'drop' or 'pad', got {job.finite!r}.",
            )
        if job.target_workers == "LOCAL":
            return InvalidArgumentError, (
                'Coordinated reads require non-local workers, but `target_workers` is "LOCAL". '
                "Every consumer reads from every worker: use 'AUTO' or 'ANY'."
            )
        if job.cache:
            return InvalidArgumentError, (
                "Cross-trainer caching does not support coordinated reads. Omit "
                "cross_trainer_cache or num_consumers."
            )
        if job.finite is None and dataset.cardinality >= 0:
            return FailedPreconditionError, (
                "Round robin reads require that the input dataset has infinite "
                f"cardinality, but the dataset has cardinality {dataset.cardinality}. "
                "Consider adding a .repeat() transformation to the dataset, or "
                "choose with finite='drop' or finite='pad' how an incomplete last "
                "round is handled."
            )
        return None

    def _of_copies(self, ask: m.OpenIteration) -> Objection | None:
        part, copies = ask.affiliation.reading_pass, len(ask.affiliation.copies)
        if copies > MOST_COPIES:
            return (
                ResourceExhaustedError,
                f"A dataset may be copied from process to process {MOST_COPIES} times; this is "
                f"copy {copies}. Make the dataset again in the process that reads.",
            )
        if part is None or part.worker < MOST_LOADER_WORKERS:
            return None
        return (
            ResourceExhaustedError,
            f"A data loader has at most {MOST_LOADER_WORKERS} workers; got worker {part.worker}.",
        )

    def _of_workers(self, ask: m.OpenIteration) -> Objection | None:
        job, placement = ask.job, self.placement
        target = effective_target(job, placement.colocated)
        known = {facts.address for facts in placement.facts.values()}
        if target == "LOCAL" and not known.intersection(ask.local_workers):
            return InvalidArgumentError, self._no_local_worker(job)
        if is_static(job) and not placement.num_shards:
            workers = (
                ", ".join(sorted(facts.address for facts in placement.facts.values()))
                or "that may join"
            )
            return NotFoundError, (
                f"Worker {workers} is not in the workers list. Sharding policy "
                f"{job.processing_mode} assigns each worker a fixed shard by its "
                "place in that list. Start the dispatcher with one --worker-address "
                "(in Python: an entry of worker_addresses) for each worker, or use "
                "ShardingPolicy.DYNAMIC."
            )
        return None

    def _no_local_worker(self, job: m.JobParameters) -> str:
        remedy = (
            "Start a zmqdata.WorkerServer in the process that reads, or set target_workers='ANY'."
        )
        if job.target_workers == "LOCAL":
            return (
                f"Local reads require local tf.data workers, but no local worker is found. {remedy}"
            )
        return (
            f"Static sharding policy <{job.processing_mode}> requires local tf.data workers when "
            "the deployment mode "
            f"is COLOCATED, but no local worker is found. {remedy}"
        )


def outline_difference(one: Sequence[str], other: Sequence[str]) -> tuple[str, str]:
    """Return the operations in which two outlines differ. If their names and visible
    arguments are equal, functions or other arguments differ.

    >>> outline_difference(["range(5) at a.py:1", "batch(2)"], ["range(6)", "batch(2)"])
    ('range(5) at a.py:1', 'range(6)')
    """
    mine, others = [*one], [*other]
    for end in (0, -1):
        while mine and others and _without_place(mine[end]) == _without_place(others[end]):
            mine.pop(end)
            others.pop(end)
    if mine or others:
        named = [", ".join(rest[:MOST_NAMED]) or "no such operation" for rest in (mine, others)]
        return printable(named[0]), printable(named[1])
    return printable(", ".join(one[:MOST_NAMED])), "the same with other functions or arguments"


def _without_place(label: str) -> str:
    return label.rpartition(" at ")[0] or label


def of_poison(rule: str) -> Objection | None:
    """Return the error for an invalid ``on_poison`` rule; None if the rule is valid."""
    if rule in ON_POISON:
        return None
    return InvalidArgumentError, f"on_poison must be 'fail' or 'skip', got {rule!r}."


def _seed_of_order(job: m.JobParameters) -> int:
    return 0 if job.num_tasks is None else job.seed


def _on_or_off(cache: bool) -> str:
    return "enabled" if cache else "disabled"


def lacking(records: int, job: m.JobParameters | None = None) -> str:
    """Return the error of an iteration whose journal is older than the world.

    Args:
        records: number of records that are missing, at least.
        job: the job; None if the dispatcher does not know it.
    """
    which = "this reader's job, which it does not know" if job is None else f"job {job.name}"
    remedy = "Read the job anew, or continue from a saved state of its iterator"
    if job is not None and job.save is not None:
        which, remedy = f"the save to {job.save.path}", "Save again to another path"
    return (
        f"The dispatcher's journal lacks at least {records} records of {which}, which a former "
        "dispatcher had written and told its peers. Elements could be lost or come twice, so it "
        "ends. Probably the disk did not keep what was written, or the work folder was restored "
        f"from a backup meanwhile. {remedy}."
    )
