"""Bars that show the progress of distributed saves, on the terminal or in the notebook
of the program that saves or waits.

A thread of its own moves the bar, because a save runs on while the program does
something else.
"""

from __future__ import annotations

import atexit
import multiprocessing
import sys
import threading
from typing import Any

from zmqdata.errors import DataLossError, NotFoundError
from zmqdata.machine.runkeys import is_first_rank
from zmqdata.machine.threads import Background
from zmqdata.printable import printable
from zmqdata.storage.progress import DONE, GOES_ON, progress_of

FIRST_POLL = 0.25
LONGEST_POLL = 2.0
"""Seconds between two looks at the folder, which may be a paid request to a store of
objects.
"""
LEAVE_WITHIN = 1.0
"""Seconds for which the end of the program waits for the thread of a bar."""
_bars: dict[str, SaveBar] = {}
"""Bars of this process, by the path of the save."""


def check_progress(progress: Any) -> None:
    """Refuse a value of the argument ``progress``.

    Raises:
        TypeError: it is neither True, False nor None.

    >>> check_progress(None)
    """
    if progress is not None and not isinstance(progress, bool):
        raise TypeError(f"`progress` must be True, False or None, got {progress!r}")


def is_watched() -> bool:
    """Return True if a user watches the output of this process: it writes to a terminal
    or a notebook, and is the first of its ranks.
    """
    if multiprocessing.parent_process() is not None or not is_first_rank():
        return False
    return _is_terminal() or _is_notebook()


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def show_save(path: str, progress: bool | None = None) -> SaveBar | None:
    """Show a bar of a save until it has ended, unless this process shows it already.
    Return the bar; None if there is none.

    Args:
        path: path of the save.
        progress: True to show it; False not to; None if a user watches.
    """
    if not (is_watched() if progress is None else progress):
        return None
    shown = _bars.get(path)
    if shown is None or not shown.is_alive():
        shown = _bars[path] = SaveBar(path)
    return shown


class SaveBar:
    """A bar of a save.

    Args:
        path: path of the save.
    """

    def __init__(self, path: str) -> None:
        # In a notebook this is a widget. The import takes long.
        from tqdm.auto import tqdm

        self._path = path
        self._counts: dict[str, tuple[int, int]] = {}
        self._ending = threading.Event()
        self._bar: Any = tqdm(desc=f"saving {printable(path)}", unit=" elements")
        self._thread = Background(target=self._follow, name="zmqdata-save-bar", daemon=True)
        if not self._bar.disable:  # as by TQDM_DISABLE=1
            atexit.register(self.close)
            self._thread.start()

    def is_alive(self) -> bool:
        """Return True while the save runs."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Leave the bar as it is, although the save may run on."""
        self._ending.set()
        self._thread.join(LEAVE_WITHIN)

    def _follow(self) -> None:
        pause = FIRST_POLL
        try:
            while self._look() and not self._ending.is_set():
                self._ending.wait(pause)  # the program may have waited for the save, and end
                pause = min(LONGEST_POLL, 1.5 * pause)
        finally:
            self._bar.close()
            atexit.unregister(self.close)

    def _look(self) -> bool:
        """Read the progress. Return True if the save runs on."""
        try:
            found = progress_of(self._path, self._counts)
        except NotFoundError:  # the dispatcher has not begun it yet
            return True
        except (DataLossError, OSError):  # a reader of the save says what is wrong
            return False
        self._bar.total = found.elements if found.state == DONE else found.total
        self._bar.n = found.elements
        if found.error:
            self._bar.set_postfix_str(printable(f"{found.state}: {found.error}"), refresh=False)
        self._bar.refresh()
        return found.state in GOES_ON
