"""Form of the log records that servers write to standard error, for the programs that
write them and those that read them.
"""

from __future__ import annotations

import logging
import re
from typing import NamedTuple

FOLLOWS = "    | "
"""Beginning of each further line of a record. It tells such a line, as of a traceback,
from a line that a function has printed after the record.
"""
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ([A-Z]+) (?:\[\d+\] )?(\S+): ")


class RecordFormatter(logging.Formatter):
    """Formats the log records of a server: time, level, process, logger and message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        return super().format(record).rstrip("\n").replace("\n", f"\n{FOLLOWS}")


def log_to_stderr(level: str) -> None:
    """Let this process write its log records to standard error from a level on, unless
    it has a handler already.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(RecordFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class RecordHead(NamedTuple):
    """Level and logger of a record."""

    level: int | str
    """Number of the level; a text if the level is unknown here."""
    logger: str
    """Name of the logger."""


def record_head(line: str) -> RecordHead | None:
    """Return level and logger of the record that begins with a line; None if no record
    begins there.

    Example:
        >>> record_head("2026-01-02 10:00:00,000 ERROR [7] decode: no such file")
        RecordHead(level=40, logger='decode')
        >>> record_head("a line that was printed")
    """
    found = _RECORD.match(line)
    return None if found is None else RecordHead(logging.getLevelName(found[1]), found[2])
