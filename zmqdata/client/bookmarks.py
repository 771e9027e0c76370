"""Places in what an iterator hands out: light, taken as often as wanted, worked out
when somebody saves one.

What there is to know of a place is the consumer core's; here is who may still ask.
"""

from __future__ import annotations

import contextlib
import queue
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.errors import FailedPreconditionError, UnavailableError
from zmqdata.iterators import Bookmark
from zmqdata.transport.loop import Loop

ANSWER = 30.0
"""Seconds for which the thread may be busy with something else."""


class ServiceBookmark(Bookmark):
    """The place at which so many elements had been handed out.

    Args:
        place: how many.
        encoded: works out the encoded ``Checkpoint`` of a place.
    """

    def __init__(self, place: int, encoded: Callable[[int], bytes]) -> None:
        self.place = place
        self._encoded = encoded

    def plain(self) -> bytes:
        """The encoded ``Checkpoint``.

        Raises:
            FailedPreconditionError: the job has no places to go back to, or no
                dispatcher would take the checkpoint.
        """
        encoded = self._encoded(self.place)
        if len(encoded) > MOST_CHECKPOINT_BYTES:
            # Now, and not when it is loaded: then the training that it was saved with
            # could not go on.
            raise FailedPreconditionError(
                f"the state of the distributed dataset has {len(encoded) / 1e6:.1f} MB, and could "
                "not be loaded again: "
                f"a dispatcher takes {MOST_CHECKPOINT_BYTES / 1e6:.1f} MB. It holds that of each "
                "task, with 4 bytes "
                "for each element in the buffer of a shuffle. Use a smaller buffer_size, or fewer "
                "tasks: "
                "fewer workers, or num_tasks with deterministic=True"
            )
        return encoded


class Bookmarks:
    """The bookmarks of one iterator that somebody still has. They are noted in one
    thread and asked for in another.
    """

    def __init__(self) -> None:
        self._noted: deque[weakref.ref[ServiceBookmark]] = deque()

    def note(self, bookmark: ServiceBookmark) -> ServiceBookmark:
        """Remembers a bookmark for as long as anybody has it. Bookmarks are noted in
        the order of their places.
        """
        self._noted.append(weakref.ref(bookmark))
        return bookmark

    def forget(self) -> None:
        """Nobody can go back to any of them."""
        self._noted.clear()

    def oldest(self) -> int | None:
        """The oldest place that somebody may ask for; None when nobody may."""
        while self._noted:
            bookmark = self._noted[0]()
            if bookmark is not None:
                return bookmark.place
            self._noted.popleft()
        return None


def check_has_places(job: Any) -> None:
    """Whether the readers of a job can go back.

    Raises:
        FailedPreconditionError: they cannot.
    """
    if job.cache:
        raise FailedPreconditionError(
            f"an iterator that reads job {job.name!r} through a cross_trainer_cache has no state: "
            "its workers go on "
            "for the fastest one and make nothing again. Distribute the dataset without the cache, "
            "or save the number "
            "of steps alone"
        )


def answer_of(loop: Loop, work: Callable[[], bytes]) -> bytes:
    """What comes of some work in a loop's thread, or in ours when that has ended.

    Raises:
        UnavailableError: the thread is busy for too long.
    """
    answers: queue.SimpleQueue[tuple[bytes, Exception | None]] = queue.SimpleQueue()

    def do() -> None:
        try:
            answers.put((work(), None))
        except Exception as error:  # raised where it was asked for
            answers.put((b"", error))

    loop.post(do)
    deadline = time.monotonic() + ANSWER
    while loop.thread.is_alive():
        with contextlib.suppress(queue.Empty):
            return _told(answers.get(timeout=0.1))
        if time.monotonic() >= deadline:
            raise UnavailableError(
                f"the iterator's thread has not said where it is for {ANSWER:g} s"
            )
    do()
    return _told(answers.get())


def _told(told: tuple[bytes, Exception | None]) -> bytes:
    answer, error = told
    if error is not None:
        raise error
    return answer
