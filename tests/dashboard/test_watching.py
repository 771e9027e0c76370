"""Tests of ``zmqdata.dashboard.watching``."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from tests.statuses import HOSTILE, answer, job, status
from zmqdata.dashboard import watching
from zmqdata.dashboard.view import view_of
from zmqdata.dashboard.watching import History, StatusWatch, ThinnedSeries, encoded
from zmqdata.errors import UnavailableError
from zmqdata.testing.cluster import await_condition

DAY = 24 * 3600


def test_a_day_costs_bounded_memory() -> None:
    """A day of points each second is kept as the newest of them and as averages of all
    of them.
    """
    history = History()
    view = view_of(status(), 0.0)
    for second in range(DAY):
        view["time"] = float(second)
        history.add(view)
    shown = history.shown([1])["1"]
    assert len(shown["recent"]) == watching.RECENT
    assert watching.MOST_POINTS / 2 <= len(shown["whole"]) <= watching.MOST_POINTS + 1
    assert shown["whole"][0][0] < DAY / 100
    assert shown["whole"][-1][0] > 0.99 * DAY
    assert len(encoded(shown)) < 100_000


def test_averages_keep_the_mean() -> None:
    """Thinning loses no point: the mean of all points is that of the averages."""
    series = ThinnedSeries(8)
    for second in range(64):
        series.add((float(second), float(second % 7)))
    points = series.points()
    assert len(points) == 8
    assert abs(sum(one[1] for one in points) / 8 - sum(s % 7 for s in range(64)) / 64) < 1e-9
    assert [one[0] for one in points] == [3.5 + 8 * place for place in range(8)]


def test_times_of_averages_rise() -> None:
    """After any number of points the times rise, so that they can be plotted."""
    series = ThinnedSeries(6)
    for second in range(200):
        series.add((float(second), 1.0))
        times = [one[0] for one in series.points()]
        assert times == sorted(set(times))
        assert len(times) <= 7


def test_jobs_that_come_and_go_cost_bounded_memory() -> None:
    """The history of jobs that are gone for long is forgotten."""
    history = History()
    for number in range(1_000):
        history.add(view_of(status(0, [job("x", number)]), float(number)))
    kept = history.shown(range(1_000))
    assert len(kept) == watching.MOST_SERIES
    assert str(999) in kept


def test_a_finished_job_gets_no_further_points() -> None:
    """The plots of a job end with it."""
    history = History()
    assert history.add(view_of(status(0, [job(finished=True)]), 1.0)) == {}


class Dispatcher:
    """Answers as told, and counts the requests."""

    def __init__(self) -> None:
        self.asked = 0
        self.silent = False
        self.free = threading.Event()
        self.free.set()

    def ask(self) -> dict[str, Any]:
        self.asked += 1
        self.free.wait(30)
        if self.silent:
            raise UnavailableError("No dispatcher has answered at tcp://127.0.0.1:1 for 5 s.")
        return answer(status())


def test_the_last_answer_is_kept_while_the_dispatcher_is_silent() -> None:
    """A poll without an answer leaves the view, and says why."""
    dispatcher = Dispatcher()
    watch = StatusWatch(dispatcher.ask, threading.Event(), clock=lambda: 7.0)
    watch.poll()
    dispatcher.silent = True
    watch.poll()
    shown = json.loads(watch.newest)
    assert "No dispatcher has answered" in shown["view"]["trouble"]
    assert [one["job"] for one in shown["view"]["jobs"]] == ["train"]
    assert shown["points"] == {}
    dispatcher.silent = False
    watch.poll()
    assert json.loads(watch.newest)["view"]["trouble"] == ""


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"workers": [{}]}, "install the same release on both sides"),
        ({"version": 2}, "is probably another release: install the same release on both sides"),
        ({"version": 1, "workers": 7}, "install the same release on both sides"),
        ([], "install the same release on both sides"),
    ],
)
def test_a_status_of_another_version_is_told(found: Any, text: str) -> None:
    """A status of another form does not end the polls; viewers are told, with the
    remedy.
    """
    watch = StatusWatch(lambda: found, threading.Event())
    watch.poll()
    assert text in json.loads(watch.newest)["view"]["trouble"]


def test_a_slow_dispatcher_gets_one_request_at_a_time() -> None:
    """While a request is not answered no other is sent, however many viewers wait."""
    dispatcher = Dispatcher()
    dispatcher.free.clear()
    watch = StatusWatch(dispatcher.ask, threading.Event(), every=0.001)
    woken: list[int] = []
    ends = [watch.listen(lambda: woken.append(1)) for _ in range(3)]
    watch.start()
    try:
        await_condition(lambda: dispatcher.asked == 1)
        assert threading.Event().wait(0.05) is False
        assert (dispatcher.asked, woken) == (1, [])
        dispatcher.free.set()
        await_condition(lambda: len(woken) >= 3)
        for end in ends:
            end()
        assert watch.viewers == 0
    finally:
        watch.stop()


def test_json_has_no_character_of_html() -> None:
    """A job name cannot end the script element that contains the JSON."""
    text = encoded({"job": HOSTILE})
    assert not set(text) & set("<>&")
    assert json.loads(text) == {"job": HOSTILE}
