"""Repetitions that this process has read to their end.

A second dataset object joins the repetition that its job is at, as in tf.data. If this
process has read that repetition to its end before the object was made, the object would
yield nothing, and most likely its user expects a new epoch.

Decision 0033.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict

from zmqdata import messages as m
from zmqdata.client.runs import this_process

REMEMBERED = 10_000
"""Maximum number of repetitions that are remembered."""

moments = itertools.count()
"""Counts dataset objects and ends of repetitions, in the order in which they happen."""

_Key = tuple[str, str, str, str, int]
_finished: OrderedDict[_Key, int] = OrderedDict()


def note_finished(service: str, job: str, affiliation: m.Affiliation, number: int) -> None:
    """Record that this process has read a repetition to its end.

    Args:
        service: address of the dispatcher.
        job: name of the job.
        affiliation: the run.
        number: number of the iterator among those of its dataset object.
    """
    if affiliation.reading_pass is None:
        _finished[_key(service, job, affiliation, number)] = next(moments)
        while len(_finished) > REMEMBERED:
            _finished.popitem(last=False)


def has_finished(
    service: str, job: str, affiliation: m.Affiliation, number: int, made: int
) -> bool:
    """Return True if this process has read a repetition to its end before a dataset
    object was made.

    Args:
        service: address of the dispatcher.
        job: name of the job.
        affiliation: the run.
        number: number of the iterator among those of the dataset object.
        made: when the object was made.
    """
    at = _finished.get(_key(service, job, affiliation, number))
    return affiliation.reading_pass is None and at is not None and at < made


def forget_finished(service: str, job: str) -> None:
    """Forget what was read of a job, which begins anew from a state."""
    for key in [key for key in _finished if key[:2] == (service, job)]:
        del _finished[key]


def _key(service: str, job: str, affiliation: m.Affiliation, number: int) -> _Key:
    return service, job, affiliation.run, this_process(), number
