"""Facts about the places in what an iterator hands out, and who may still ask for
them.
"""

from __future__ import annotations

import pytest

from zmqdata.client.bookmarks import Bookmarks, ServiceBookmark, answer_of, check_has_places
from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators import plain_state
from zmqdata.messages import JobParameters
from zmqdata.transport.loop import Loop


def bookmark(place: int) -> ServiceBookmark:
    return ServiceBookmark(place, lambda number: b"%d" % number)


def test_a_bookmark_is_worked_out_when_it_is_saved() -> None:
    """Wherever it stands in a state."""
    assert plain_state([1, {"input": bookmark(7)}, (bookmark(8),)]) == [1, {"input": b"7"}, [b"8"]]


def test_what_could_not_be_loaded_is_not_saved() -> None:
    """Who saves a state that is too large for a dispatcher hears of it then, with what
    to do.
    """
    assert (
        len(ServiceBookmark(7, lambda place: bytes(MOST_CHECKPOINT_BYTES)).plain())
        == MOST_CHECKPOINT_BYTES
    )
    with pytest.raises(FailedPreconditionError, match=r"has 12\.6 MB.*Use a smaller `buffer_size`"):
        ServiceBookmark(7, lambda place: bytes(MOST_CHECKPOINT_BYTES + 1)).plain()


def test_the_oldest_place_is_that_of_a_cut_which_somebody_has() -> None:
    """Those that were dropped are forgotten, once they are the oldest."""
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
    """What they missed is not made again; the error says so."""
    check_has_places(JobParameters("job", "d", "DYNAMIC"))
    with pytest.raises(FailedPreconditionError, match="cross_trainer_cache"):
        check_has_places(JobParameters("job", "d", "DYNAMIC", cache=True))


@pytest.mark.parametrize("is_running", [True, False])
def test_a_thread_is_asked_while_there_is_one(is_running: bool) -> None:
    """Its answer, or its error, comes to who has asked; when it has ended, that one
    looks for himself.
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
