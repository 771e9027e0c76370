"""Counters that never shrink, under a bounded number of labels.

Reporters and the dispatcher forget: clients leave, iterations are collected. What they
counted must stay in the sums that Prometheus reads. Each label costs memory there, so a
bounded number of them exists, and all else is added up under another label.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable

from zmqdata.messages import TaskSums
from zmqdata.metrics.declared import ANONYMOUS, OTHER, Labels, Samples

MOST_JOBS = 100
"""Maximum number of jobs with a label of their own."""
MOST_NODES = 32
"""Maximum number of nodes of a job with a label of their own."""
MOST_CONSUMERS = 64
"""Maximum number of consumers of a job with a label of their own."""
MOST_LINKS = 16
"""Maximum number of pairs of transport and codec of a job."""
LONGEST_LABEL = 200
"""Maximum number of characters of a label."""
_INVENTED = re.compile(r"anonymous_[0-9a-f]{16}")
"""Name that a client invents for a job without one."""


def seconds_by_doing(sums: TaskSums) -> dict[str, float]:
    """Return the seconds of tasks by what they did, the label ``doing``.

    Example:
        >>> seconds_by_doing(TaskSums(making=2.0))["making"]
        2.0
    """
    return {
        "making": sums.making,
        "waiting_for_readers": sums.for_readers,
        "waiting_for_splits": sums.for_splits,
    }


class JobLabels:
    """Labels of jobs. A job keeps its label while it lives.

    A new job gets the label of a job that has ended, if all labels are in use. The
    counters of that job disappear; they do not move to another label, where they would
    look like growth.

    Args:
        most: maximum number of labels.

    Example:
        >>> labels = JobLabels(most=2)
        >>> labels.look(["a", "b", "c"], living={"a", "b", "c"})
        []
        >>> [labels[name] for name in "abc"]
        ['a', 'b', 'other']
        >>> labels.look(["a", "b", "c", "d"], living={"b", "c", "d"})
        ['a']
        >>> [labels[name] for name in "abcd"]
        ['other', 'b', 'other', 'd']
    """

    def __init__(self, most: int = MOST_JOBS) -> None:
        self._most = most
        self._labels: dict[str, str] = {}

    def __getitem__(self, job: str) -> str:
        return self._labels[job]

    def look(self, known: Collection[str], living: Collection[str]) -> list[str]:
        """Give each known job a label, and return the labels that no job has any more.

        Args:
            known: names of the jobs that have any values.
            living: names of those that have not ended.
        """
        free = [name for name in self._labels if name not in known]
        gone = [label for name in free if (label := self._labels.pop(name)) not in _SHARED]
        named = [name for name, label in self._labels.items() if label not in _SHARED]
        idle = [name for name in named if name not in living]
        count = len(named)
        for job in sorted(known):
            if job in self._labels:
                continue
            if _INVENTED.fullmatch(job):
                self._labels[job] = ANONYMOUS
                continue
            if count >= self._most and idle and job in living:
                gone.append(self._labels[idle[0]])
                self._labels[idle.pop(0)] = OTHER
                count -= 1
            own = count < self._most and job not in _SHARED
            self._labels[job] = shortened(job) if own else OTHER
            count += own
        return gone


_SHARED = (OTHER, ANONYMOUS)


def shortened(text: str) -> str:
    """Return a text as a label.

    Example:
        >>> shortened("x" * 300) == "x" * 199 + "…"
        True
    """
    text = text.encode(errors="replace").decode()
    return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 1]}…"


class Growth:
    """Sums of growing numbers, by metric and labels. No sum ever shrinks.

    A number may be reported again, or shrink for a while and grow again. Only what
    exceeds its largest value so far counts.

    Example:
        >>> growth = Growth()
        >>> for value in (3.0, 1.0, 5.0):
        ...     growth.take("job", 1, "elements_total", ("job",), value)
        >>> growth.forget(())
        >>> growth.take("job", 1, "elements_total", ("job",), 2.0)
        >>> growth.sums
        {'elements_total': {('job',): 7.0}}
    """

    def __init__(self) -> None:
        self.sums: dict[str, dict[Labels, float]] = {}
        self._seen: dict[str, dict[Hashable, float]] = {}
        self._tails: dict[tuple[str, str], dict[Labels, None]] = {}

    def take(self, job: str, number: Hashable, metric: str, labels: Labels, value: float) -> None:
        """Add what a number has grown by.

        Args:
            job: name of the job to which the number belongs.
            number: identity of the number within the metric.
            metric: name of the metric.
            labels: its labels.
            value: the present value.
        """
        seen, key = self._seen.setdefault(job, {}), (metric, number)
        before = seen.get(key, 0.0)
        sums = self.sums.setdefault(metric, {})
        sums[labels] = sums.get(labels, 0.0) + max(0.0, value - before)
        seen[key] = max(value, before)

    def tail(self, metric: str, label: str, tail: Labels, most: int) -> Labels:
        """Return the labels behind the job's, or ``other`` for each if the job has too
        many of them.

        Args:
            metric: name of the metric.
            label: label of the job.
            tail: the labels behind it.
            most: maximum number of different tails.
        """
        known = self._tails.setdefault((metric, label), {})
        tail = tuple(map(shortened, tail))
        if tail not in known and len(known) >= most:
            return (OTHER,) * len(tail)
        known[tail] = None
        return tail

    def forget(self, jobs: Collection[str]) -> None:
        """Forget the numbers of all jobs but these. Their sums stay."""
        self._seen = {job: seen for job, seen in self._seen.items() if job in jobs}

    def drop(self, label: str) -> None:
        """Remove all sums of a job's label."""
        for sums in self.sums.values():
            for labels in [labels for labels in sums if labels[:1] == (label,)]:
                del sums[labels]
        self._tails = {key: known for key, known in self._tails.items() if key[1] != label}

    def samples(self) -> Samples:
        """Return a copy of all sums."""
        return {metric: dict(sums) for metric, sums in self.sums.items()}
