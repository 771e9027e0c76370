"""Facts about how much one dispatcher holds: what is over a limit is refused, and changes nothing."""

from __future__ import annotations

import pytest

from tests.core.test_dispatcher import Cluster
from tests.core.test_jobs import DESCRIPTION, JOB, Desk
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core import admission, datasets, dispatcher
from zmqdata.core.limits import MOST_CHARACTERS

LONG = "x" * (MOST_CHARACTERS + 1)


@pytest.mark.parametrize(
    ("client", "job", "cache_id", "error"),
    [
        (LONG, "job", "", "The name of a client has at most 1000 characters, got 1001"),
        ("k", LONG, "", "The name of a job has"),
        ("k", "job", LONG, "The name of a trainer has"),
    ],
)
def test_long_names_are_refused(client: str, job: str, cache_id: str, error: str) -> None:
    """Of clients, jobs and trainers."""
    desk = Desk()
    ask = m.OpenIteration(client, m.JobParameters(job, "dataset", "DYNAMIC"), 0, m.Reader(trainer_id=cache_id))
    desk.jobs.open("peer", ask, 0.0)
    refusal = desk.only(m.RequestRefused)
    assert (refusal.error, refusal.text[: len(error)]) == ("InvalidArgumentError", error)
    assert desk.out.state.jobs == {}


def test_there_are_only_so_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; who joins one that is there is not."""
    monkeypatch.setattr(admission, "MOST_JOBS", 1)
    desk = Desk()
    desk.open("k")
    desk.open("l", m.JobParameters("other", "dataset", "DYNAMIC"))
    refusal = desk.only(m.RequestRefused)
    assert (refusal.request, refusal.error) == ("l", "ResourceExhaustedError")
    desk.open("l")
    assert desk.only(m.IterationOpened).client == "l"


def test_there_are_only_so_many_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused until another one is gone; who is there is answered again."""
    monkeypatch.setattr(admission, "MOST_CLIENTS", 1)
    desk = Desk()
    desk.open("k")
    desk.open("l")
    assert desk.only(m.RequestRefused).text.startswith("There are 1 clients already, which is the most.")
    desk.open("k")
    assert desk.only(m.IterationOpened).client == "k"
    desk.close("k")
    desk.done()
    desk.open("l")
    assert desk.only(m.IterationOpened).client == "l"


def test_there_are_only_so_many_datasets(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused; one that is there is found."""
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
    """One more is refused; those that are there may register again."""
    monkeypatch.setattr(dispatcher, "MOST_WORKERS", 1)
    cluster = Cluster(busy=False)
    cluster.join("v")
    cluster.join("w")
    assert cluster.sent(m.RequestRefused).text.startswith("There are 1 workers already")
    cluster.join("v")
    assert cluster.all_of(m.WorkerRegistered)


def test_others_know_a_client_by_another_name() -> None:
    """Whoever knows its name can speak for it: lists of readers and audits have something that follows from it."""
    desk = Desk()
    desk.out.commit(u.RegisterDatasetUpdate("dataset", DESCRIPTION))
    desk.open("secret", JOB)
    opened = desk.only(m.IterationOpened)
    assert opened.task_list.readers == (m.shown_name("secret"),)
    assert "secret" not in str(opened.task_list)
