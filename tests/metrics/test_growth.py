"""Tests of counters that never shrink under a bounded number of labels."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zmqdata.metrics.growth import Growth, JobLabels


def names(first: int, stop: int) -> list[str]:
    return [f"job{number:03}" for number in range(first, stop)]


def test_jobs_beyond_the_labels_share_one() -> None:
    """The first hundred jobs that live have a label each; all others have ``other``,
    and keep it.
    """
    labels, jobs = JobLabels(), names(0, 300)
    assert labels.look(jobs, living=jobs) == []
    assert [labels[job] for job in jobs] == jobs[:100] + ["other"] * 200
    assert labels.look(jobs, living=jobs[200:]) == []
    assert {labels[job] for job in jobs[200:]} == {"other"}


def test_an_ended_job_gives_its_label_to_a_new_one() -> None:
    """A new job takes the label of a job that has ended. The ended job has no label of
    its own any more, also when it begins again.
    """
    labels = JobLabels(most=2)
    labels.look(["a", "b"], living=["a", "b"])
    assert labels.look(["a", "b", "c"], living=["b", "c"]) == ["a"]
    assert [labels[job] for job in "abc"] == ["other", "b", "c"]
    assert labels.look(["a", "b", "c"], living=["a", "b", "c"]) == []
    assert labels["a"] == "other"


def test_jobs_without_a_name_share_a_label() -> None:
    """Names that clients invent take no label of their own."""
    labels = JobLabels(most=2)
    invented = [f"anonymous_{number:016x}" for number in range(3)]
    labels.look([*invented, "a", "anonymous_visitor"], living=[])
    assert {labels[job] for job in invented} == {"anonymous"}
    assert labels["anonymous_visitor"] == "anonymous_visitor"


def test_a_job_cannot_pose_as_a_shared_label() -> None:
    """Jobs that are named ``other`` or ``anonymous`` get no series of their own."""
    labels = JobLabels()
    labels.look(["other", "anonymous"], living=["other", "anonymous"])
    assert (labels["other"], labels["anonymous"]) == ("other", "other")


def test_a_forgotten_job_frees_its_label() -> None:
    """The label of a job of which nothing is known any more disappears."""
    labels = JobLabels(most=1)
    labels.look(["a"], living=[])
    assert labels.look(["b"], living=["b"]) == ["a"]
    assert labels["b"] == "b"


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 100)), max_size=40))
def test_sums_never_shrink_and_count_nothing_twice(reports: list[tuple[int, float]]) -> None:
    """Whatever is reported in whatever order, the largest reports add up."""
    growth, largest, before = Growth(), dict.fromkeys(range(4), 0.0), 0.0
    for number, value in reports:
        growth.take("job", number, "total", ("job",), value)
        largest[number] = max(largest[number], value)
        now = growth.sums["total"]["job",]
        assert now >= before
        before = now
    assert abs(before - sum(largest.values())) < 1e-6


def test_tails_are_bounded_for_each_job() -> None:
    """A job has a bounded number of nodes with a label; the rest is added up, and long
    labels are cut.
    """
    growth = Growth()
    for job in ("a", "b"):
        found = [growth.tail("seconds", job, (f"{number}" * 300,), 2) for number in range(4)]
        assert [tail[0][:5] for tail in found] == ["00000", "11111", "other", "other"]
        assert len(found[0][0]) == 200
    growth.take("a", 1, "seconds", ("a", "x"), 1.0)
    growth.take("b", 1, "seconds", ("b", "x"), 2.0)
    growth.drop("a")
    assert growth.samples() == {"seconds": {("b", "x"): 2.0}}
    assert growth.tail("seconds", "a", ("new",), 2) == ("new",)


def test_a_collected_job_keeps_its_sums() -> None:
    """The counts of a forgotten job stay in the sum of its label, and a job of the same
    name adds to them.
    """
    growth = Growth()
    growth.take("a", 1, "total", ("other",), 5.0)
    growth.forget([])
    growth.take("a", 1, "total", ("other",), 3.0)
    assert growth.samples() == {"total": {("other",): 8.0}}
