"""Progress of a distributed save as a moving bar, for ``zmqdata save-status``. No
dispatcher is queried.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from zmqdata.storage.progress import DONE, RUNNING, SaveProgress, progress_of

POLL = 0.5
"""Seconds between two looks at the folder."""


def follow(
    path: str, console: Console, pause: Callable[[float], None] = time.sleep
) -> SaveProgress:
    """Show a bar until the save has ended; return the final progress."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elements"),
    )
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        found = progress_of(path)
        task = bar.add_task(found.path, total=found.total, completed=found.elements)
        while found.state == RUNNING:
            pause(POLL)
            found = progress_of(path)
            bar.update(task, completed=found.elements)
        if found.state == DONE:
            bar.update(task, total=found.elements)
    return found
