"""Facts about how much one dispatcher holds: what is over a limit is refused, and changes nothing."""

from __future__ import annotations

import pytest

from tests.core.test_dispatcher import Cluster
from tests.core.test_incarnations import Desk as Reopened
from tests.core.test_jobs import DESCRIPTION, JOB, Desk
from tests.core.test_saves import ASK, Office, only
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.commands.saves import SavePrepared
from zmqdata.core import admission, datasets, dispatcher, incarnations, saves
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


def test_a_save_counts_as_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the moment at which its folder is asked for, and its path as a name; who asks again is answered."""
    monkeypatch.setattr(saves, "MOST_JOBS", 1)
    office = Office()
    other = m.StartSave("request", "dataset", "/b", "other")
    office.hear(ASK)
    assert only(m.RequestRefused, office.hear(other)).error == "ResourceExhaustedError"
    office.feed(SavePrepared(ASK.path, ASK.run))
    assert only(m.RequestRefused, office.hear(other)).error == "ResourceExhaustedError"
    assert only(m.SaveStarted, office.hear(ASK))
    assert len(office.core.state.jobs) == 1
    monkeypatch.undo()
    long = m.StartSave("request", "dataset", f"/{LONG}", "long")
    assert only(m.RequestRefused, office.hear(long)).error == "InvalidArgumentError"


def test_only_so_many_states_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more is refused, with one that waits answered as before; when that is gone there is room again."""
    monkeypatch.setattr(incarnations, "MOST_WAITING_BYTES", 2 * incarnations.LEAST_BYTES)
    desk = Reopened()
    desk.bring("one", 1)
    desk.bring("one", 1)
    assert desk.sent(m.ResumeAwaited)
    desk.bring("zero", 0)
    assert desk.sent(m.RequestRefused).error == "ResourceExhaustedError"
    desk.wait(16.0)
    desk.bring("zero", 0)
    assert desk.sent(m.ResumeAwaited).client == "zero"


def test_a_state_that_waits_for_nobody_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many jobs begin anew at the same moment."""
    monkeypatch.setattr(incarnations, "MOST_WAITING_BYTES", 2 * incarnations.LEAST_BYTES)
    desk = Reopened()
    for number in range(3):
        desk.bring(f"new-{number}")
        assert desk.sent(m.IterationOpened).client == f"new-{number}"
        desk.hear(f"new-{number}", m.CloseIteration(f"new-{number}", 0, {}))


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


@pytest.mark.parametrize("limit", ["MOST_DESCRIPTION_BYTES", "MOST_DESCRIBED_BYTES"])
def test_descriptions_take_only_so_much(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """One that is too large is refused, and so is one beyond what all may have together; those that are there stay."""
    cluster = Cluster(busy=False)
    there = dict(cluster.core.state.datasets)
    monkeypatch.setattr(datasets, limit, 1000)
    for size, error in ((2000, "ResourceExhaustedError"), (100, None)):
        description = m.DatasetDescription("0" * 64, "print", None, "x" * size, None, 1, None, "3.11", "0")
        cluster.hear("k", m.RegisterDataset("r", "another", description, b""))
        found = cluster.all_of(m.RequestRefused)
        assert [one.error for one in found] == ([error] if error else [])
    assert cluster.core.state.datasets.keys() == {*there, "another"}


def test_a_large_pipeline_comes_in_pieces() -> None:
    """As a whole it would stay in memory, with all others."""
    cluster = Cluster(busy=False)
    description = m.DatasetDescription("0" * 64, "print", None, "", None, 1, None, "3.11", "0")
    cluster.hear("k", m.RegisterDataset("r", "another", description, bytes(m.MOST_WHOLE_BYTES + 1)))
    assert "is sent as a part" in cluster.sent(m.RequestRefused).text


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
