"""Tests of ``zmqdata.core.dispatcher.readers.admission``."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from tests.core.dispatcher.tasks.test_placement import Listed, placed
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.readers.admission import Admission, lacking, outline_difference
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.dispatcher.tasks.placement import Placement
from zmqdata.core.limits import MOST_CONSUMERS, MOST_TASKS
from zmqdata.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnimplementedError,
)
from zmqdata.splits import IndexSplits

DESCRIPTION = m.DatasetDescription(
    "digest", "print:code:f", (IndexSplits(10),), "", None, 10, None, "3.11", "0"
)
JOB = m.JobParameters("job", "dataset", "DYNAMIC")


def objection(
    placement: Placement | None = None,
    local: tuple[str, ...] = (),
    repetition: int = 0,
    consumer: int | None = None,
    existing: str = "dataset",
    **changes: Any,
) -> Any:
    """Return the objection to a job beside the existing ``job``."""
    state = DispatcherState()
    state.apply(u.RegisterDatasetUpdate("dataset", DESCRIPTION))
    state.apply(
        u.RegisterDatasetUpdate("other", structs.replace(DESCRIPTION, fingerprint="another"))
    )
    for name, python in (("edited", "3.11"), ("elsewhere", "3.12")):
        state.apply(
            u.RegisterDatasetUpdate(
                name, structs.replace(DESCRIPTION, fingerprint="print:code:g", python=python)
            )
        )
    state.apply(
        u.RegisterDatasetUpdate(
            "valued", structs.replace(DESCRIPTION, fingerprint="print:values:f")
        )
    )
    state.apply(u.RegisterDatasetUpdate("bare", structs.replace(DESCRIPTION, fingerprint="print")))
    state.apply(
        u.RegisterDatasetUpdate(
            "whole", structs.replace(DESCRIPTION, sources=None, unsplittable="no splits")
        )
    )
    for name, process, *drawn in (
        ("drawn", "p", 1, (0,)),
        ("same", "q", 1, (0,)),
        ("redrawn", "q", 2, (0,)),
        ("next", "q", 1, (1,)),
        ("own", "p", 1, (1,)),
    ):
        described = dict(zip(("fixed_seed", "orders"), drawn, strict=True), process=process)
        state.apply(u.RegisterDatasetUpdate(name, structs.replace(DESCRIPTION, **described)))
    state.apply(u.BeginIncarnationUpdate(1, structs.replace(JOB, dataset_id=existing)))
    state.apply(u.CreateIterationUpdate(2000, 1, 0, 7))
    state.apply(u.RunUpdate("job", "", 1))
    state.apply(u.RegisterDatasetUpdate("endless", structs.replace(DESCRIPTION, cardinality=-1)))
    ask = m.OpenIteration(
        "k", structs.replace(JOB, **changes), repetition, m.Reader(consumer), local
    )
    return Admission(state, placement or placed("tcp://a")).objection(ask)


def test_equal_parameters_are_admitted() -> None:
    """The dispatcher admits a second client with the same job parameters, whatever it
    does not compare.
    """
    assert objection() is None
    assert objection(max_outstanding_requests=5, consumer_timeout=1.0, task_timeout=1.0) is None


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"processing_mode": "OFF"}, "Existing processing mode: <DYNAMIC>; got <OFF>."),
        ({"num_consumers": 2}, "Existing number of consumers: <None>; got <2>."),
        ({"finite": "drop"}, "Existing rule for finite input: <None>; got <drop>."),
        ({"on_poison": "skip"}, "Existing rule for poison: <fail>; got <skip>."),
        ({"cache": True}, "Existing cross-trainer cache: <disabled>; got <enabled>."),
        ({"target_workers": "ANY"}, "Existing target workers: <AUTO>; got <ANY>."),
        ({"compression": None}, "Existing compression: <AUTO>; got <None>."),
        ({"dataset_id": "other"}, "Existing dataset: <print>; got <another>."),
        ({"dataset_id": "edited"}, "Existing dataset: <functions f>; got <functions g>."),
    ],
)
def test_every_parameter_must_agree(changes: dict[str, Any], text: str) -> None:
    """The dispatcher refuses a client whose job exists with another parameter, and
    names both values.
    """
    error, said = objection(**changes)
    assert error is InvalidArgumentError
    assert (
        "Tried to create job with name job, but found an existing job with different parameters"
        in said
    )
    assert text in said


FIFTY, MAP = "range(50) at a.py:1", "map(parse) at a.py:2"


@pytest.mark.parametrize(
    ("outline", "existing", "asked"),
    [
        (("range(60) at b.py:7", MAP), FIFTY, "range(60) at b.py:7"),
        ((FIFTY, MAP, "batch(2) at b.py:3"), "no such operation", "batch(2) at b.py:3"),
        ((FIFTY,), MAP, "no such operation"),
        (("range(50) at b.py:9", "map(other)"), MAP, "map(other)"),
        ((FIFTY, MAP), f"{FIFTY}, {MAP}", "the same with other functions or arguments"),
        ((FIFTY, "map(\x1b[2J)"), MAP, "map(?[2J)"),
    ],
)
def test_datasets_differ_by_their_operations(
    outline: tuple[str, ...], existing: str, asked: str
) -> None:
    """The text shows the operations in which the datasets of two scripts differ,
    wherever their lines are.
    """
    assert outline_difference((FIFTY, MAP), outline) == (existing, asked)


def test_the_readers_of_an_existing_job_are_named() -> None:
    """The text names script, process and host of the readers of the existing job, three
    at most. Without readers it says so.
    """
    assert "The existing job has no readers now." in objection(processing_mode="OFF")[1]
    state = DispatcherState()
    for name in ("dataset", "other"):
        described = structs.replace(DESCRIPTION, fingerprint=name, outline=(f"range of {name}",))
        state.apply(u.RegisterDatasetUpdate(name, described))
    state.apply(u.BeginIncarnationUpdate(1, JOB))
    state.apply(u.CreateIterationUpdate(2000, 1, 0, 7))
    state.apply(u.RunUpdate("job", "", 1))
    for number in range(5):
        client = u.OpenClientUpdate(
            f"c{number}", 2000, process=f"node{number}:{number + 10}:abcd", script="/a/train.py"
        )
        state.apply(client)
    ask = m.OpenIteration("k", structs.replace(JOB, dataset_id="other"), 0)
    _, text = Admission(state, placed("tcp://a")).objection(ask) or (None, "")
    assert "Existing dataset: <range of dataset>; got <range of other>." in text
    assert (
        "The existing job is read by /a/train.py (process 10 on node0), /a/train.py (process 11 on "
        "node1), /a/train.py (process 12 on node2) and 2 more."
    ) in text


@pytest.mark.parametrize("other", ["redrawn", "next"])
def test_programs_with_other_orders_share_no_job(other: str) -> None:
    """A program is refused at a job whose shuffle has no seed, and drew another order
    in the program that began the job. The error says how to agree on one.
    """
    assert objection(existing="drawn", dataset_id="same") is None
    error, said = objection(existing="drawn", dataset_id=other)
    assert error is InvalidArgumentError
    assert "order of a shuffle that has no `seed=`" in said


def test_a_process_may_build_the_dataset_of_its_job_twice() -> None:
    """A client joins a job of its own process with another order, which it does not
    read.
    """
    assert objection(existing="drawn", dataset_id="own") is None


@pytest.mark.parametrize("dataset", ["valued", "elsewhere", "bare"])
def test_what_functions_hold_is_each_reader_s_own(dataset: str) -> None:
    """Other values in the same functions, and functions that cannot be compared, do not
    make another dataset.
    """
    assert objection(dataset_id=dataset) is None


@pytest.mark.parametrize(
    ("known", "told"),
    [
        ("print:code:h", "Known functions: <h>; found: <f>."),
        ("print:other:f", "Known values that functions hold: <other>; found: <code>."),
        ("old:code:f", "Known structure: <old>; found: <print>."),
        ("print", "Known functions: <>; found: <f>."),
    ],
)
@pytest.mark.parametrize("job", ["job", "new"])
def test_an_id_must_mean_what_the_client_knows(known: str, told: str, job: str) -> None:
    """The dispatcher refuses a client that knows other content under an id, in an
    existing job and in a new job.
    """
    error, said = objection(name=job, fingerprint=known)
    assert error is FailedPreconditionError
    assert said.startswith(
        f"The content of dataset id dataset differs from what this client knows. {told} "
    )
    assert "from_dataset_id() again" in said
    assert objection(name=job, fingerprint=DESCRIPTION.fingerprint) is None


def test_an_unknown_rule_for_poison_is_refused() -> None:
    """The dispatcher refuses any rule for poison except "fail" and "skip", as another
    implementation may send it.
    """
    assert objection(name="new", on_poison="ignore") == (
        InvalidArgumentError,
        "on_poison must be 'fail' or 'skip', got 'ignore'.",
    )


def test_an_unknown_dataset_is_refused() -> None:
    """The dispatcher refuses a dataset that is not registered."""
    assert objection(dataset_id="none") == (NotFoundError, "Dataset id none not found.")


def test_what_cannot_be_split_is_not_sharded_dynamically() -> None:
    """DYNAMIC refuses a source without splits by its name, and OFF reads it in full."""
    assert objection(name="new", dataset_id="whole") == (UnimplementedError, "no splits")
    assert objection(name="new", dataset_id="whole", processing_mode="OFF") is None


@pytest.mark.parametrize("mode", ["FILE", "DATA", "FILE_OR_DATA", "HINT"])
def test_static_sharding_needs_a_list_of_workers(mode: str) -> None:
    """Static sharding needs configured workers, as they decide which worker has which
    part.
    """
    error, said = objection(name="new", processing_mode=mode)
    assert error is NotFoundError
    assert "Worker tcp://a is not in the workers list." in said
    assert objection(placed("a", places=Listed("a")), name="new", processing_mode=mode) is None


def test_local_reads_need_a_local_worker() -> None:
    """The dispatcher refuses LOCAL without a worker in the same process, and does not
    count a worker of another cluster.
    """
    error, said = objection(name="new", target_workers="LOCAL", local=("tcp://elsewhere",))
    assert error is InvalidArgumentError
    assert "Local reads require local tf.data workers, but no local worker is found" in said
    assert objection(name="new", target_workers="LOCAL", local=("tcp://a",)) is None


def test_static_parts_of_pairs_need_a_local_worker() -> None:
    """A COLOCATED deployment refuses static AUTO jobs without a local worker."""
    pairs = placed("a", places=Listed("a"), colocated=True)
    error, said = objection(pairs, name="new", processing_mode="FILE_OR_DATA")
    assert error is InvalidArgumentError
    assert "Static sharding policy <FILE_OR_DATA> requires local tf.data workers" in said
    assert objection(pairs, local=("a",), name="new", processing_mode="FILE_OR_DATA") is None


def test_a_save_has_no_clients() -> None:
    """The dispatcher refuses clients of a job that writes files."""
    error, said = objection(name="new", save=m.SaveParameters("/save", "run"))
    assert (error, "A save has no clients" in said) == (InvalidArgumentError, True)


def test_a_cache_needs_an_endless_dataset_and_one_repetition() -> None:
    """A shared cache needs an infinite dataset, which trainers read in a single
    repetition.
    """
    assert objection(name="new", dataset_id="endless", cache=True) is None
    error, said = objection(name="new", cache=True)
    assert (error, "requires the input dataset to be infinite. The" in said) == (
        InvalidArgumentError,
        True,
    )
    error, said = objection(name="new", dataset_id="endless", cache=True, repetition=2)
    assert (error, "Got repetition 2 of job new" in said) == (InvalidArgumentError, True)


ROUNDS: dict[str, Any] = {"name": "new", "num_consumers": 2, "finite": "drop", "consumer": 1}


def test_numbered_consumers_are_admitted() -> None:
    """The dispatcher admits each numbered consumer, with or without an agreed end."""
    assert objection(**ROUNDS) is None
    assert objection(**ROUNDS | {"consumer": 0, "finite": None, "dataset_id": "endless"}) is None


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"num_consumers": None}, InvalidArgumentError, "Pass num_consumers too"),
        ({"num_consumers": None, "consumer": None}, InvalidArgumentError, "Pass num_consumers too"),
        ({"num_consumers": 0}, InvalidArgumentError, "num_consumers=0"),
        ({"consumer": None}, InvalidArgumentError, "consumers 0 to 1, got consumer_index=None"),
        ({"consumer": 2}, InvalidArgumentError, "consumers 0 to 1, got consumer_index=2"),
        ({"consumer": -1}, InvalidArgumentError, "got consumer_index=-1"),
        (
            {"finite": "stop"},
            InvalidArgumentError,
            "finite must be None, 'drop' or 'pad', got 'stop'",
        ),
        (
            {"target_workers": "LOCAL"},
            InvalidArgumentError,
            "Coordinated reads require non-local workers",
        ),
        (
            {"cache": True},
            InvalidArgumentError,
            "Cross-trainer caching does not support coordinated reads. ",
        ),
        (
            {"finite": None},
            FailedPreconditionError,
            "has cardinality 10. Consider adding a .repeat()",
        ),
    ],
)
def test_numbered_consumers_have_rules(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The dispatcher refuses invalid numbers, options that exclude coordinated reads,
    and an end without a rule.
    """
    found, said = objection(**ROUNDS | changes)
    assert (found, text in said) == (error, True)


@pytest.mark.parametrize(
    "changes", [{"num_consumers": MOST_CONSUMERS + 1}, {"num_consumers": 1, "num_tasks": 1 << 40}]
)
def test_a_job_is_not_of_any_size(changes: dict[str, Any]) -> None:
    """The dispatcher limits numbers that decide how much memory a job takes, and the
    error names the limit.
    """
    error, text = objection(name="new", consumer=0, finite="drop", **changes)
    assert (error, "at most" in text) == (ResourceExhaustedError, True)
    assert (
        objection(
            name="new",
            consumer=0,
            finite="drop",
            num_consumers=MOST_CONSUMERS,
            num_tasks=MOST_TASKS,
        )
        is None
    )


def test_each_loss_of_a_journal_has_a_remedy() -> None:
    """The error about an older journal names the job or the save, and what to do."""
    assert "3 records of job job, " in lacking(3, JOB)
    assert lacking(3, JOB).endswith("continue from a saved state of its iterator.")
    save = structs.replace(JOB, save=m.SaveParameters("/data/rows", "id"))
    assert "3 records of the save to /data/rows, " in lacking(3, save)
    assert lacking(3, save).endswith("a backup meanwhile. Save again to another path.")
    assert "this reader's job, which it does not know" in lacking(3)
