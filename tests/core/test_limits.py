"""Test that the dispatcher refuses requests beyond its limits without changing
anything.
"""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.core.dispatcher.passes.test_incarnations import Desk as Waiting
from tests.core.dispatcher.readers.test_jobs import DESCRIPTION, JOB, Desk
from tests.core.dispatcher.test_datasets import DESCRIPTION as SHELVED
from tests.core.dispatcher.test_datasets import Shelf, digest
from tests.core.dispatcher.test_decider import Cluster
from tests.core.dispatcher.test_saving import ASK, Office, only
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.config.checks import MOST_CHARACTERS
from zmqdata.core.dispatcher import datasets, decider, saving
from zmqdata.core.dispatcher.events import SavePrepared
from zmqdata.core.dispatcher.passes import incarnations
from zmqdata.core.dispatcher.readers import admission, jobs
from zmqdata.splits import FileSplits

LONG = "x" * (MOST_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("client", "job", "cache_id", "mode", "error"),
    [
        (LONG, "job", "", "DYNAMIC", "The name of a client has at most 1000 characters, got 1001"),
        ("k", LONG, "", "DYNAMIC", "The name of a job has"),
        ("k", "job", LONG, "DYNAMIC", "The name of a trainer has"),
        ("k", "job", "", LONG, "The name of a processing_mode has"),
    ],
)
def test_long_names_are_refused(
    client: str, job: str, cache_id: str, mode: str, error: str
) -> None:
    """The dispatcher refuses long names of clients, jobs and trainers, also in a job's
    parameters.
    """
    desk = Desk()
    ask = m.OpenIteration(
        client, m.JobParameters(job, "dataset", mode), 0, m.Reader(trainer_id=cache_id)
    )
    desk.jobs.open("peer", ask, 0.0)
    refusal = desk.only(m.RequestRefused)
    assert (refusal.error, refusal.text[: len(error)]) == ("InvalidArgumentError", error)
    assert desk.out.state.living == []


def test_there_are_only_so_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a job beyond the limit, but lets clients join an existing
    job.
    """
    monkeypatch.setattr(admission, "MOST_JOBS", 1)
    desk = Desk()
    desk.open("k")
    desk.open("l", m.JobParameters("other", "dataset", "DYNAMIC"))
    refusal = desk.only(m.RequestRefused)
    assert (refusal.request, refusal.error) == ("l", "ResourceExhaustedError")
    desk.open("l")
    assert desk.only(m.IterationOpened).client == "l"


def test_there_are_only_so_many_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a job whose initial tasks exceed the limit. It admits
    clients of an existing job, and jobs whose tasks come later.
    """
    desk = Desk()
    ordered = m.JobParameters(
        "ordered", "dataset", "DYNAMIC", num_consumers=2, num_tasks=30, finite="drop"
    )

    def ask(client: str, job: m.JobParameters, index: int) -> None:
        desk.jobs.open(client, m.OpenIteration(client, job, 0, m.Reader(index)), 0.0)

    ask("k", ordered, 0)
    desk.done()
    monkeypatch.setattr(admission, "MOST_TASKS_TOGETHER", 30)
    ask("l", structs.replace(ordered, name="other"), 0)
    refusal = desk.only(m.RequestRefused)
    assert (refusal.request, refusal.error) == ("l", "ResourceExhaustedError")
    assert "The dispatcher already has 30 tasks" in refusal.text
    ask("l", ordered, 1)
    assert desk.only(m.IterationOpened).client == "l"
    desk.open("n", m.JobParameters("shared", "dataset", "DYNAMIC"))
    assert desk.only(m.IterationOpened).client == "n"


def test_a_save_counts_as_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save counts as a job from the request of its folder on, with its path as a
    name, and a repeated request is answered.
    """
    monkeypatch.setattr(saving, "MOST_JOBS", 1)
    office = Office()
    other = m.StartSave("request", "dataset", "/b", "other")
    office.hear(ASK)
    assert only(m.RequestRefused, office.hear(other)).error == "ResourceExhaustedError"
    office.feed(SavePrepared(ASK.path, ASK.save_id))
    assert only(m.RequestRefused, office.hear(other)).error == "ResourceExhaustedError"
    assert only(m.SaveStarted, office.hear(ASK))
    assert len(office.core.state.living) == 1
    monkeypatch.undo()
    long = m.StartSave("request", "dataset", f"/{LONG}", "long")
    assert only(m.RequestRefused, office.hear(long)).error == "InvalidArgumentError"


def test_there_are_only_so_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a client beyond the limit until another is gone, and
    answers a known client again.
    """
    monkeypatch.setattr(admission, "MOST_CLIENTS", 1)
    desk = Desk()
    desk.open("k")
    desk.open("l")
    assert desk.only(m.RequestRefused).text.startswith(
        "The dispatcher already has 1 clients, its maximum."
    )
    desk.open("k")
    assert desk.only(m.IterationOpened).client == "k"
    desk.close("k")
    desk.done()
    desk.open("l")
    assert desk.only(m.IterationOpened).client == "l"


def test_there_are_only_so_many_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a dataset beyond the limit, and finds a known dataset."""
    monkeypatch.setattr(datasets, "MOST_DATASETS", 1)
    cluster = Cluster(busy=False)
    there = len(cluster.core.state.datasets)
    assert there >= 1
    digest = "0" * 64
    description = m.DatasetDescription(digest, "print", None, "", None, 1, None, "3.11", "0")
    ask = m.RegisterDataset("r", "another", description, b"")
    cluster.hear("k", ask)
    assert cluster.sent(m.RequestRefused).error == "ResourceExhaustedError"
    assert len(cluster.core.state.datasets) == there


def test_there_are_only_so_many_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a worker beyond the limit, and lets a known worker
    register again.
    """
    monkeypatch.setattr(decider, "MOST_WORKERS", 1)
    cluster = Cluster(busy=False)
    cluster.join("v")
    cluster.join("w")
    assert cluster.sent(m.RequestRefused).text.startswith("The dispatcher already has 1 workers")
    cluster.join("v")
    assert cluster.all_of(m.WorkerRegistered)


def test_others_know_a_client_by_another_name() -> None:
    """Lists of readers and audits carry a derived name of a client, as any peer that
    knows its name can act for it.
    """
    desk = Desk()
    desk.out.commit(u.RegisterDatasetUpdate("dataset", DESCRIPTION))
    desk.open("secret", JOB)
    opened = desk.only(m.IterationOpened)
    assert opened.task_list.readers == (m.shown_name("secret"),)
    assert "secret" not in str(opened.task_list)


def test_descriptions_of_datasets_have_so_many_bytes_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Descriptions of datasets and pipelines sent with them count towards the limit,
    and a removed dataset makes room again.
    """
    monkeypatch.setattr(datasets, "MOST_REGISTERED_BYTES", 1_400)
    shelf = Shelf(gc_timeout=60.0)
    large = FileSplits(("file" * 100,) * 4, False, 0)
    for pipeline, sources in ((b"x" * 1_400, ()), (b"", (large,))):
        description = structs.replace(SHELVED, digest="2" * 64, sources=sources)
        shelf.datasets.register(
            "peer", m.RegisterDataset("request", None, description, pipeline), 0.0
        )
        refusal = shelf.only(m.RequestRefused)
        assert (refusal.error, "maximum of their sum is 1400 bytes" in refusal.text) == (
            "ResourceExhaustedError",
            True,
        )
    refused = None
    for number in range(1, 10):
        shelf.register(None, digest=digest(number))
        refused = [one for one in shelf.done() if isinstance(one, m.RequestRefused)]
        if refused:
            break
    assert refused
    assert len(shelf.names) > 2
    for now in (1_000.0, 2_000.0):
        shelf.datasets.collect_unused(now)
    shelf.done()
    assert shelf.own(9)


def test_a_connection_has_only_so_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a client beyond the limit of its connection, and admits it
    through another connection.
    """
    monkeypatch.setattr(jobs, "MOST_CLIENTS_OF_PEER", 2)
    desk = Desk()
    for client, peer in (("k", "one"), ("l", "one"), ("m", "two")):
        desk.jobs.open(peer, m.OpenIteration(client, JOB, 0), 0.0)
        assert desk.only(m.IterationOpened).client == client
    desk.jobs.open("one", m.OpenIteration("n", JOB, 0), 0.0)
    assert desk.only(m.RequestRefused).text.startswith(
        "The dispatcher already has 2 clients of this connection"
    )
    desk.close("k")
    desk.done()
    desk.jobs.open("one", m.OpenIteration("n", JOB, 0), 0.0)
    assert desk.only(m.IterationOpened).client == "n"


def test_states_that_wait_have_so_many_bytes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dispatcher refuses a waiting state beyond the limit until others are gone,
    and counts a repeated state once.
    """
    waiting = Waiting()
    size = len(waiting.bring("one", 0))
    monkeypatch.setattr(incarnations, "MOST_WAITING_BYTES", size + 10)
    for _ in range(3):
        waiting.bring("one", 0)
    waiting.bring("two", 0, "other")
    refusal = waiting.refusal("two")
    assert refusal is not None
    assert refusal.error == "ResourceExhaustedError"
    assert f"waiting states already have {size} bytes, and their sum" in refusal.text
    assert waiting.refusal("one") is None
    waiting.wait(20.5)
    waiting.bring("three", 0, "other")
    assert waiting.refusal("three") is None
