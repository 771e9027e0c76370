"""Bookmarks: places in what an iterator hands out, which are light and are worked out
only when they are saved.

The core knows what belongs to a place. This module keeps the bookmarks that may still
be asked for (decision 0019).
"""

from __future__ import annotations

import base64
import contextlib
import queue
import time
import weakref
from collections import deque
from collections.abc import Callable

from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.errors import FailedPreconditionError, UnavailableError
from zmqdata.iterators.states import Bookmark
from zmqdata.messages import JobParameters
from zmqdata.printable import shown_size
from zmqdata.transport.loop import Loop

ANSWER = 30.0
"""Seconds to wait for the iterator's thread, which may be busy with something else."""


class ServiceBookmark(Bookmark):
    """The place at which a number of elements had been handed out.

    Args:
        place: that number.
        encoded: returns the encoded ``Checkpoint`` of a place.
    """

    def __init__(self, place: int, encoded: Callable[[int], bytes]) -> None:
        self.place = place
        self._encoded = encoded

    def plain(self) -> str:
        """Return the encoded ``Checkpoint`` as base64 text, which JSON can hold.

        Raises:
            FailedPreconditionError: the job cannot go back to a place, or the
                checkpoint is larger than a dispatcher accepts.
        """
        encoded = self._encoded(self.place)
        if len(encoded) > MOST_CHECKPOINT_BYTES:
            # Now, not when the state is loaded: the training that saved it could then
            # not continue.
            raise FailedPreconditionError(
                f"The state of the distributed dataset has {shown_size(len(encoded))} "
                "and could not be loaded again: a dispatcher accepts "
                f"{shown_size(MOST_CHECKPOINT_BYTES)}. The state contains that of "
                "each task, with 4 bytes for each element in the buffer of a "
                "shuffle. Use a smaller `buffer_size`, or fewer tasks: fewer "
                "workers, or `num_tasks` with `deterministic=True`."
            )
        return base64.b64encode(encoded).decode()


class Bookmarks:
    """The bookmarks of an iterator that are still referenced.

    One thread records them, and another asks for the oldest.
    """

    def __init__(self) -> None:
        self._noted: deque[weakref.ref[ServiceBookmark]] = deque()

    def note(self, bookmark: ServiceBookmark) -> ServiceBookmark:
        """Remember a bookmark while it is referenced. Bookmarks are recorded in the
        order of their places.
        """
        self._noted.append(weakref.ref(bookmark))
        return bookmark

    def forget(self) -> None:
        """Forget all bookmarks, because no place can be restored any more."""
        self._noted.clear()

    def oldest(self) -> int | None:
        """Return the oldest place that may still be asked for, or None."""
        while self._noted:
            bookmark = self._noted[0]()
            if bookmark is not None:
                return bookmark.place
            self._noted.popleft()
        return None


def check_has_places(job: JobParameters) -> None:
    """Raise an error if the readers of a job cannot go back to a place.

    Raises:
        FailedPreconditionError: the job reads through a cross-trainer cache.
    """
    if job.cache:
        raise FailedPreconditionError(
            f"An iterator that reads job {job.name!r} through a cross_trainer_cache "
            "has no state: its workers follow the fastest trainer and produce "
            "nothing again. Distribute the dataset without the cache, or save the "
            "number of steps alone."
        )


def answer_of(loop: Loop, work: Callable[[], bytes]) -> bytes:
    """Run a function in the thread of a loop, or in this thread if that one has ended,
    and return its result.

    Raises:
        UnavailableError: the thread is busy for too long.
    """
    answers: queue.SimpleQueue[tuple[bytes, Exception | None]] = queue.SimpleQueue()

    def do() -> None:
        try:
            answers.put((work(), None))
        except Exception as error:  # raised in the asking thread
            answers.put((b"", error))

    loop.post(do)
    deadline = time.monotonic() + ANSWER
    while loop.thread.is_alive():
        with contextlib.suppress(queue.Empty):
            return _told(answers.get(timeout=0.1))
        if time.monotonic() >= deadline:
            raise UnavailableError(
                f"The iterator's thread has been busy for {ANSWER:g} s and has not "
                "reported its position. Take the state again later."
            )
    do()
    return _told(answers.get())


def _told(told: tuple[bytes, Exception | None]) -> bytes:
    answer, error = told
    if error is not None:
        raise error
    return answer
