"""Facts about the audit of jobs, in Python and from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import zmqdata
from zmqdata import Dataset, LocalCluster, audit, distribute
from zmqdata.cli.commands import main
from zmqdata.errors import NotFoundError


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(2, in_process=True, heartbeat_interval_ms=50) as made:
        yield made


def distributed(cluster: LocalCluster, count: int, job: str | None) -> Dataset:
    return Dataset.range(count).apply(distribute("distributed_epoch", cluster.target, job))


def test_a_job_is_audited_repetition_by_repetition(cluster: LocalCluster) -> None:
    """The audit accounts for each repetition: finished splits, delivered elements, and
    readers.
    """
    ds = distributed(cluster, 100, "audited")
    for _ in range(2):
        assert len(list(ds)) == 100
    found = audit(cluster.target, "audited")
    assert [one["repetition"] for one in found] == [0, 1]
    for one in found:
        assert one["finished"]
        assert one["splits"] == {"handed_out": 100, "finished": 100, "rehosted": 0}
        assert one["elements"]["made"] == one["elements"]["delivered"] == 100
        assert [client["delivered"] for client in one["clients"]] == [100]


def test_an_iterator_tells_of_its_own_repetition(cluster: LocalCluster) -> None:
    """An iterator returns the audit of its repetition even if its job has no name and
    has ended.
    """
    it = iter(distributed(cluster, 50, None))
    assert sum(1 for _ in it) == 50
    assert it.audit()["elements"]["delivered"] == 50  # type: ignore[attr-defined]  # only those of a service have it


def test_elements_that_are_left_out_are_counted(cluster: LocalCluster) -> None:
    """The audit counts the elements that a map skips."""

    def fails_at_times(x: int) -> int:
        return 10 // (int(x) % 5)

    ds = Dataset.range(50).map(fails_at_times, on_error="skip")
    ds = ds.apply(distribute("distributed_epoch", cluster.target, "left out"))
    assert len(list(ds)) == 40
    [found] = audit(cluster.target, "left out")
    assert found["elements"]["left_out"] == 10
    assert found["elements"]["delivered"] == 40


@pytest.mark.parametrize(("count", "tasks"), [(0, 16), (300, 16), (301, 5)])
def test_the_only_reader_of_a_promised_order_is_told_what_it_had(
    cluster: LocalCluster, count: int, tasks: int
) -> None:
    """The audit counts every element once, even if many turns fell to tasks that had
    ended.
    """
    job = f"ordered-{count}"
    ordered = distribute(
        "distributed_epoch", cluster.target, job, deterministic=True, num_tasks=tasks
    )
    assert len(list(Dataset.range(count).apply(ordered))) == count
    [found] = audit(cluster.target, job)
    assert found["finished"]
    assert found["consumers"] == [count]
    assert found["elements"]["made"] == found["elements"]["delivered"] == count


def test_an_unknown_job_has_no_audit(cluster: LocalCluster) -> None:
    """The error names the jobs that exist."""
    with pytest.raises(NotFoundError, match="Job 'nonsense' is unknown"):
        zmqdata.audit(cluster.target, "nonsense")


def test_the_command_prints_a_table_or_json(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints a table for a reader, or JSON for a program."""
    list(distributed(cluster, 30, "printed"))
    assert main(["audit", "printed", "--dispatcher", cluster.target]) == 0
    told = capsys.readouterr().out
    assert "job printed, repetition 0: finished" in told
    assert "duplicates dropped" in told
    assert main(["audit", "printed", "--dispatcher", cluster.target, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["elements"]["delivered"] == 30
    assert main(["audit", "nonsense", "--dispatcher", cluster.target]) == 2
