"""The way of what workers left out into the quarantine of the iterator, and into the
log of this process.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from zmqdata.iterators.context import Context
from zmqdata.iterators.quarantine import LeftOut
from zmqdata.messages import LeftOutElement

log = logging.getLogger(__name__)

ListLeftOut = Callable[[LeftOutElement], None]
"""Takes an element that a worker has left out."""
MOST_KINDS = 20
"""Number of kinds of errors that are logged, each for itself."""


class QuarantineLog:
    """Logs what workers left out.

    A pipeline may leave out every other element, in each epoch. So the first of each
    kind of error is logged with its traceback, and then the tenth, the hundredth and so
    on. Errors of the same class in the same operation are of a kind.
    """

    def __init__(self) -> None:
        self._kinds: Counter[tuple[str, str]] = Counter()

    def tell(self, element: LeftOutElement) -> None:
        """Count an element, and log it if it is its turn."""
        error = element.error.partition(":")[0]
        kind = (element.label, error)
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            return
        self._kinds[kind] += 1
        count = self._kinds[kind]
        split = "" if element.split is None else f", split {element.split[0]} to {element.split[1]}"
        which = f"element {element.number} (task {element.index}{split})"
        if count == 1:
            log.warning(
                "%s leaves out %s: %s\n%s\nFurther elements with %s are counted; "
                "`iterator.quarantine` lists them.",
                element.label,
                which,
                element.error,
                element.traceback.rstrip(),
                error,
            )
        elif str(count).strip("0") == "1":
            log.warning(
                "%s has left out %s elements with %s; the newest is %s: %s",
                element.label,
                f"{count:,}",
                error,
                which,
                element.error,
            )


_log = QuarantineLog()


def listing(context: Context) -> ListLeftOut:
    """Return a function that lists what workers left out in the quarantine of a
    context, each element once, also if a state is loaded. It logs errors of functions.
    """
    quarantine, here = context.quarantine, context.place

    def list_left_out(element: LeftOutElement) -> None:
        place = f"{here} task {element.index} {element.place}"
        quarantine.append(
            LeftOut(
                element.number,
                element.label,
                element.error,
                element.traceback,
                element.split,
                place,
            )
        )
        if element.traceback:
            _log.tell(element)

    return list_left_out


def list_nowhere(element: LeftOutElement) -> None:
    """Forget an element, for an iterator without a quarantine."""
