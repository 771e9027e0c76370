"""The lines of a server's output that concern users, out of its bytes."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from zmqdata.config.logs import FOLLOWS, record_behind, record_head

MOST_LINE = 32_768
"""Most bytes of a line that are kept until its end comes. A longer line is shown in
pieces.
"""
PARTLY_AFTER = 1.0
"""Seconds after which the beginning of a line is shown that has no end yet."""
BAR_EVERY = 10.0
"""Seconds between two looks at a progress bar, a line that is written over and over."""


class ShownLines:
    """Splits the output of a server into lines, and selects those that concern users.

    All that functions of a pipeline print is shown; of a line that is written over with
    carriage returns, the last state. Log records are shown with all their lines if a
    logger of the same name in this process is enabled for their level: a warning by
    default, as everywhere in Python.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._is_bar = False  # the rest is written over
        self._changed = 0.0  # time of the last output
        self._bar_shown = -BAR_EVERY
        self._continues = False  # the beginning of the present line was taken before
        self._is_shown = True  # the last record, or the beginning of the present line
        self._more = 0  # lines of the last record that are still to come

    def take(self, output: bytes, now: float) -> Iterator[str]:
        """Yield the lines to show of further output.

        Args:
            output: the next bytes of the output, perhaps none.
            now: present time in seconds.
        """
        *lines, rest = (self._rest + output).split(b"\n")
        for line in lines:
            yield from self._line(line)
        if output:
            self._changed = now
        self._is_bar = b"\r" in rest or (self._is_bar and not lines)
        self._rest = rest[rest.rstrip(b"\r").rfind(b"\r") + 1 :]
        if len(self._rest) > MOST_LINE:
            yield from self.end()
        elif self._is_bar:
            if now - self._bar_shown >= BAR_EVERY:
                self._bar_shown = now
                yield from self.end()
        elif now - self._changed >= PARTLY_AFTER:
            yield from self.end()

    def flush(self) -> Iterator[str]:
        """Yield the beginning of a line whose end has not come, except for a progress
        bar.
        """
        if not self._is_bar:
            yield from self.end()

    def end(self) -> Iterator[str]:
        """Yield the beginning of a line whose end has not come."""
        rest, self._rest = self._rest, b""
        if rest:
            yield from self._line(rest)
            self._continues = True

    def _line(self, line: bytes) -> Iterator[str]:
        last = line.rstrip(b"\r").rpartition(b"\r")[2]
        text = last.decode(errors="replace")
        continues, self._continues = self._continues, False
        if not text.strip() and (continues or last != line):
            return  # only the end of a line, or a cleared progress bar
        # A record may follow text that was printed without the end of its line.
        record = record_behind(text)
        for part in (text[:record], text[record:])[: 1 + (record < len(text))]:
            self._look(part, continues)
            continues = False
            if self._is_shown:
                yield part

    def _look(self, text: str, continues: bool) -> None:
        """Decide whether a line is shown, by its beginning."""
        head = record_head(text)
        if head is not None:
            level, logger, self._more = head
            self._is_shown = not isinstance(level, int) or logging.getLogger(logger).isEnabledFor(
                level
            )
        elif not continues and self._more and text.startswith(FOLLOWS):
            self._more -= 1
        elif not continues:
            self._is_shown = True
