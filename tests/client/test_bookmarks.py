"""Test the bookmarks in an iterator's states, and which positions may still be
requested.
"""

from __future__ import annotations

import base64

import pytest

from zmqdata.client.bookmarks import Bookmarks, ServiceBookmark, answer_of, check_has_places
from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.states import plain_state
from zmqdata.messages import JobParameters
from zmqdata.transport.loop import Loop


def bookmark(place: int) -> ServiceBookmark:
    return ServiceBookmark(place, lambda number: b"%d" % number)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_a_bookmark_is_worked_out_when_it_is_saved() -> None:
    """A bookmark is computed when its state is saved, wherever it is in the state."""
    assert plain_state([1, {"input": bookmark(7)}, (bookmark(8),)]) == [
        1,
        {"input": encoded(b"7")},
        [encoded(b"8")],
    ]


def test_what_could_not_be_loaded_is_not_saved() -> None:
    """Saving a state that is too large for a dispatcher raises an error with the
    remedy.
    """
    largest = bytes(MOST_CHECKPOINT_BYTES)
    assert ServiceBookmark(7, lambda place: largest).plain() == encoded(largest)
    with pytest.raises(FailedPreconditionError, match=r"has 12\.6 MB.*Use a smaller `buffer_size`"):
        ServiceBookmark(7, lambda place: bytes(MOST_CHECKPOINT_BYTES + 1)).plain()


def test_the_oldest_place_is_that_of_a_cut_which_somebody_has() -> None:
    """A dropped bookmark is forgotten once it is the oldest."""
    bookmarks = Bookmarks()
    assert bookmarks.oldest() is None
    first, second, third = (bookmarks.note(bookmark(place)) for place in (3, 5, 9))
    assert bookmarks.oldest() == 3
    del second
    assert bookmarks.oldest() == 3
    del first
    assert bookmarks.oldest() == third.place == 9
    del third
    assert bookmarks.oldest() is None


def test_readers_of_a_shared_cache_have_no_places() -> None:
    """A reader of a shared cache has no bookmarks, as its missed elements are not made
    again, and the error says so.
    """
    check_has_places(JobParameters("job", "d", "DYNAMIC"))
    with pytest.raises(FailedPreconditionError, match="cross_trainer_cache"):
        check_has_places(JobParameters("job", "d", "DYNAMIC", cache=True))


@pytest.mark.parametrize("is_running", [True, False])
def test_a_thread_is_asked_while_there_is_one(is_running: bool) -> None:
    """The running thread computes the answer or the error for the caller, and the
    caller computes it once the thread has ended.
    """
    loop = Loop("zmqdata-test", lambda: None)
    loop.start()
    if not is_running:
        loop.stop()
        loop.join(10.0)

    def fail() -> bytes:
        raise FailedPreconditionError("not here")

    assert answer_of(loop, lambda: b"here") == b"here"
    with pytest.raises(FailedPreconditionError, match="not here"):
        answer_of(loop, fail)
    loop.stop()
    assert loop.join(10.0)
