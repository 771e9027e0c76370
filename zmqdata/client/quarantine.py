"""The way of what workers left out into the quarantine of the iterator."""

from __future__ import annotations

from collections.abc import Callable

from zmqdata.iterators.base import Context
from zmqdata.iterators.watching import LeftOut
from zmqdata.messages import LeftOutElement

ListLeftOut = Callable[[LeftOutElement], None]
"""Takes an element that a worker has left out."""


def listing(context: Context) -> ListLeftOut:
    """Return a function that lists what workers left out in the quarantine of a
    context. It lists each element once, also if a state is loaded.
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

    return list_left_out


def list_nowhere(element: LeftOutElement) -> None:
    """Forget an element, for an iterator without a quarantine."""
