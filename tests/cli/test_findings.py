"""Tests of what ``zmqdata doctor`` thinks of the facts that it finds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.statuses import answer, job, status
from zmqdata.cli import findings as judge
from zmqdata.cli.findings import FAILURE, OK, UNCHECKED, WARNING, Finding

OURS = {"zmqdata": "1.2.0", "python": "3.11.7", "numpy": "2.1.0", "blosc": "1.11"}
SERVER = "worker tcp://w:1"


def states(found: list[Finding]) -> list[str]:
    return [one.state for one in found]


@pytest.mark.parametrize(
    ("changes", "of_worker", "of_dispatcher"),
    [
        ({}, [OK], [OK]),
        ({"python": "3.11.2", "numpy": "2.4.0"}, [OK], [OK]),
        ({"python": "3.12.1"}, [FAILURE], [OK]),
        ({"zmqdata": "1.1.0"}, [WARNING], [WARNING]),
        ({"zmqdata": "2.0.0"}, [FAILURE], [WARNING]),
        ({"numpy": "1.26.4"}, [WARNING], [OK]),
        ({"blosc": ""}, [WARNING], [OK]),
        ({"python": "3.10.1", "numpy": "1.26.4"}, [FAILURE, WARNING], [OK]),
    ],
)
def test_versions_are_compared(
    changes: dict[str, str], of_worker: list[str], of_dispatcher: list[str]
) -> None:
    """A worker must have the release, Python and numpy of this process, a dispatcher
    the release. Each difference has its own remedy.
    """
    for role, expected in (("worker", of_worker), ("dispatcher", of_dispatcher)):
        found = judge.version_findings(SERVER, role, OURS | changes, OURS)
        assert states(found) == expected
        remedies = [one.remedy for one in found if one.state != OK]
        assert all(remedies)
        assert len(set(remedies)) == len(remedies)


def test_a_job_that_failed_is_named_until_it_begins_anew() -> None:
    """Each failed job is a warning with its error, unless a newer incarnation runs."""
    broken = job("broken", 1, failure="ValueError in map(decode)")
    mended = [job("mended", 2, failure="OSError"), job("mended", 3, incarnation=2)]
    (found,) = judge.form_findings(SERVER, answer(status(jobs=[broken, *mended])))
    assert (found.subject, found.state) == ("job broken", WARNING)
    assert (found.found, found.remedy) == ("FAILED", "ValueError in map(decode)")


def test_a_server_that_tells_no_versions_is_of_another_release() -> None:
    """A status without versions is a warning."""
    assert states(judge.version_findings(SERVER, "worker", {}, OURS)) == [WARNING]


@pytest.mark.parametrize(
    ("left", "most", "workers", "state"),
    [
        (1000, 1024, 10, OK),
        (100, 1024, 10, WARNING),
        (40, 1024, 10, FAILURE),
        (40, 5000, 10, OK),
        (11, 1024, 0, FAILURE),
        (30, 1024, 0, OK),
    ],
)
def test_descriptors_must_do_for_all_workers(
    left: int, most: int, workers: int, state: str
) -> None:
    """An iterator takes five descriptors for each worker, and may raise its limit."""
    limit = 1024
    [found] = judge.descriptor_findings({"limit": limit, "most": most, "left": left}, workers)
    assert found.state == state
    assert bool(found.remedy) == (state != OK)


def test_a_server_must_have_descriptors_left() -> None:
    """A server with few descriptors left is a warning; one that tells none is not
    judged.
    """
    for left, state in ((99, WARNING), (100, OK)):
        process: dict[str, Any] = {"descriptors": {"limit": 500, "most": 500, "left": left}}
        assert states(judge.server_findings(SERVER, process)) == [state]
    assert judge.server_findings(SERVER, {}) == []


def test_memory_is_judged() -> None:
    """A missing memfd and a small folder are warnings; an absent folder is not."""
    large, small = {"size": 1 << 30, "free": 1 << 30}, {"size": 64 << 20, "free": 63 << 20}
    assert states(judge.memory_findings("", large)) == [OK, OK]
    assert states(judge.memory_findings("", None)) == [OK, OK]
    assert states(judge.memory_findings("not permitted", small)) == [WARNING, WARNING]


@pytest.mark.parametrize(
    ("ahead", "round_trip", "state"),
    [(0.9, 0.0, OK), (-1.1, 0.0, WARNING), (1.4, 1.0, OK), (1.6, 1.0, WARNING)],
)
def test_clocks_are_compared_as_exactly_as_they_were_measured(
    ahead: float, round_trip: float, state: str
) -> None:
    """Half a round trip does not count as a difference."""
    assert judge.clock_finding(SERVER, ahead, round_trip).state == state


def test_a_long_round_trip_is_a_warning() -> None:
    """Fifty milliseconds are felt."""
    assert judge.round_trip_finding(SERVER, 0.002).state == OK
    assert judge.round_trip_finding(SERVER, 0.08).state == WARNING


def test_slow_links_are_found() -> None:
    """A link is slow by itself, or against the median of at least three workers."""

    def told(*rates: float | None) -> list[str]:
        named = {f"worker {at}": rate for at, rate in enumerate(rates)}
        return states(judge.throughput_findings(named))

    assert told(20e6, 900e6) == [OK, OK]
    assert told(20e6, 900e6, 1000e6) == [WARNING, OK, OK]
    assert told(11e6) == [WARNING]
    assert told(None, 900e6) == [WARNING, OK]
    assert told() == []


def test_only_warnings_and_failures_are_not_well() -> None:
    """A check that was not made does not count; the fields of all findings are told."""
    fine = [Finding(SERVER, "clock", OK, "0 s"), Finding(SERVER, "key", UNCHECKED, "", "Do.")]
    told = judge.fields_of(fine)
    assert told["well"]
    assert told["findings"][1] == {
        "subject": SERVER,
        "check": "key",
        "state": UNCHECKED,
        "found": "",
        "remedy": "Do.",
    }
    for state in (WARNING, FAILURE):
        assert not judge.fields_of([*fine, Finding(SERVER, "clock", state, "9 s")])["well"]
