"""Tests of ``zmqdata.dataset.feeding``: a thread reads a dataset's iterator ahead."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from zmqdata import Dataset, TensorSpec
from zmqdata.dataset.feeding import Feed
from zmqdata.errors import (
    CancelledError,
    FailedPreconditionError,
    PipelineError,
    UnimplementedError,
)
from zmqdata.testing.cluster import await_condition, no_leaks


class Tap:
    """Source that counts what was asked for, and holds back the elements from ``stop``
    on.
    """

    def __init__(self, stop: int = 1000) -> None:
        self.count, self.stop = 0, stop
        self.opened = threading.Event()

    def __call__(self) -> Iterator[int]:
        for number in range(20):
            if number >= self.stop:
                self.opened.wait(60)
            self.count += 1
            yield number

    def feed(self, most: int = 2) -> Feed:
        dataset = Dataset.from_generator(self, output_signature=TensorSpec((), "int64"))
        return Feed(iter(dataset), int, most)


def rest(feed: Feed) -> list[Any]:
    """Return all elements to come."""
    found = []
    with contextlib.suppress(StopIteration):
        while True:
            found.append(feed.take())
    return found


@pytest.mark.parametrize("most", [0, 1, 2, 30])
def test_elements_come_in_order_and_end(most: int) -> None:
    """Each element comes once, prepared, and the end stays the end."""
    feed = Feed(iter(Dataset.range(20)), lambda x: int(x) * 2, most)
    assert rest(feed) == list(range(0, 40, 2))
    assert rest(feed) == []
    feed.join()


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_than_the_limit_is_held(most: int) -> None:
    """The source is asked for as many elements as were taken and may be held, and for
    none before the first call.
    """
    tap = Tap()
    feed = tap.feed(most)
    assert tap.count == 0
    for taken in range(1, 4):
        feed.take()
        await_condition(lambda: tap.count == taken + most, what="the elements ahead")  # noqa: B023
    with pytest.raises(TimeoutError):
        await_condition(lambda: tap.count > 3 + most, deadline=0.2)
    feed.end()
    feed.join()


def test_an_element_is_not_held_back() -> None:
    """An element that was read can be taken while the next one does not come."""
    tap = Tap(stop=2)
    feed = tap.feed(3)
    assert [feed.take() for _ in range(2)] == [0, 1]
    tap.opened.set()
    assert rest(feed) == list(range(2, 20))


@pytest.mark.parametrize("most", [0, 3])
def test_errors_come_in_their_place(most: int) -> None:
    """An error of the pipeline, and one of the preparation, is raised after the
    elements before it, and the following elements come.
    """

    def prepare(element: Any) -> int:
        if element == 5:
            raise KeyError("five")
        return int(element)

    faulty = Dataset.range(7).map(lambda x: x if x != 2 else 1 // int(x - 2))
    feed = Feed(iter(faulty), prepare, most)
    found: list[Any] = []
    for _ in range(7):
        try:
            found.append(feed.take())
        except (PipelineError, KeyError) as error:
            found.append(type(error).__name__)
    kinds = [one if isinstance(one, int) else "error" for one in found]
    assert kinds == [0, 1, "error", 3, 4, "error", 6]
    assert rest(feed) == []


@pytest.mark.parametrize("most", [0, 1, 4])
@pytest.mark.parametrize("taken", [0, 3, 20])
def test_the_place_leaves_out_what_is_held(most: int, taken: int) -> None:
    """The state is that after the last element taken, whatever was read ahead."""
    dataset = Dataset.range(20).shuffle(5)
    feed = Feed(iter(dataset), int, most)
    for _ in range(taken):
        feed.take()
    state = feed.place()
    following = rest(feed)
    again = iter(dataset)
    again.load_state_dict(state)
    assert [int(element) for element in again] == following


def test_a_missing_state_is_told_when_it_is_asked_for() -> None:
    """Reading goes on without a state, and asking for it raises the reason."""
    source = iter(Dataset.range(3))

    class Stateless:
        close = staticmethod(source.close)

        def __next__(self) -> Any:
            return next(source)

        def bookmark(self) -> Any:
            raise UnimplementedError("no state here")

    feed = Feed(Stateless(), int, 2)  # type: ignore[arg-type]
    assert feed.take() == 0
    with pytest.raises(UnimplementedError, match="no state here"):
        feed.place()
    assert rest(feed) == [1, 2]


def test_another_feed_goes_on_from_a_state() -> None:
    """A paused feed leaves its source to another one, and ends without closing it."""
    source = iter(Dataset.range(20))
    feed = Feed(source, int, 3)
    assert [feed.take() for _ in range(4)] == [0, 1, 2, 3]
    state = feed.place()
    feed.pause()
    with pytest.raises(FailedPreconditionError):
        source.load_state_dict(iter(Dataset.range(21)).state_dict())
    feed.resume()
    assert [feed.take() for _ in range(4)] == [4, 5, 6, 7]
    feed.pause()
    source.load_state_dict(state)
    feed.end()
    feed.join()
    assert rest(Feed(source, int, 3)) == list(range(4, 20))


def test_ending_wakes_a_thread_that_waits() -> None:
    """A thread that waits for an element gets a ``CancelledError``."""
    tap = Tap(stop=0)
    feed, raised = tap.feed(), []

    def wait() -> None:
        with pytest.raises(CancelledError) as told:
            feed.take()
        raised.append(told.value)

    waiting = threading.Thread(target=wait)
    waiting.start()
    await_condition(lambda: feed._thread is not None, what="the thread")
    feed.end()
    waiting.join(30)
    tap.opened.set()
    feed.join()
    assert len(raised) == 1


def test_an_owner_that_is_dropped_ends_the_thread() -> None:
    """The finalizer of an owner is enough to end the thread and close the source."""

    class Owner:
        def __init__(self) -> None:
            self.feed = Feed(iter(Dataset.range(20).repeat().prefetch(2)), int, 2)
            weakref.finalize(self, self.feed.end)

    with no_leaks():
        owner = Owner()
        assert owner.feed.take() == 0
        del owner
        gc.collect()


def test_an_interrupt_loses_nothing() -> None:
    """Ctrl-C while the loop waits is raised there, and the loop can go on."""
    tap = Tap(stop=2)
    feed = tap.feed()
    assert [feed.take() for _ in range(2)] == [0, 1]
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        feed.take()
    tap.opened.set()
    assert rest(feed) == list(range(2, 20))


def test_the_settings_hold_in_the_thread() -> None:
    """The thread reads and prepares within the context that it was given, and a caller
    that reads by itself does not enter it.
    """
    within = threading.local()

    @contextlib.contextmanager
    def settings() -> Iterator[None]:
        within.told = True
        yield

    for most, told in ((2, True), (0, False)):
        feed = Feed(
            iter(Dataset.range(2)), lambda _: getattr(within, "told", False), most, settings
        )
        assert rest(feed) == [told, told]


def test_a_thread_that_cannot_begin_leaves_the_reading_to_the_caller(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the settings is printed, and the elements come without a thread."""
    monkeypatch.setattr(threading, "excepthook", lambda args: print(args.exc_value))

    def settings() -> Any:
        raise ValueError("no such setting")

    feed = Feed(iter(Dataset.range(3)), int, 2, settings)
    assert rest(feed) == [0, 1, 2]
    feed.join()
    assert capsys.readouterr().out == "no such setting\n"
