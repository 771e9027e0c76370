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

from zmqdata.storage.progress import DONE, GOES_ON, STOPPED, SaveProgress, progress_of

POLL = 0.5
"""Seconds between two looks at the folder."""
MOST_STOPPED = 40
"""Maximum number of consecutive looks that find no dispatcher. A dispatcher that is
restarted is back before that.
"""


def follow(
    path: str, console: Console, pause: Callable[[float], None] = time.sleep
) -> SaveProgress:
    """Show a bar until the save has ended, or no dispatcher writes it any more; return
    the final progress.
    """
    counts, stopped = dict[str, tuple[int, int]](), 0
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("elements"),
    )
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as bar:
        found = progress_of(path, counts)
        task = bar.add_task(found.path, total=found.total, completed=found.elements)
        while found.state in GOES_ON and stopped < MOST_STOPPED:
            pause(POLL)
            found = progress_of(path, counts)
            stopped = stopped + 1 if found.state == STOPPED else 0
            bar.update(task, completed=found.elements)
        if found.state == DONE:
            bar.update(task, total=found.elements)
    return found
