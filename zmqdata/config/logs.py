"""The log that dispatchers and workers write to standard error: its settings, and the
form of its records, for the programs that write them and those that read them.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import NamedTuple

from zmqdata.config.settings import Settings, setting

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
FOLLOWS = "    | "
"""Beginning of each further line of a record, as of a traceback. The head of the record
says how many such lines follow, because a function may print lines that begin so, too.
"""
_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+"
_RECORD = re.compile(rf"{_TIME} ([A-Z]+) (?:\[\d+(?:\+(\d+))?\] )?(\S+): ")
_BEHIND_TEXT = re.compile(rf"(?<=.){_TIME} [A-Z]+ \[\d+(?:\+\d+)?\] \S+: ")


@dataclass(frozen=True)
class LogSettings(Settings):
    """Settings of the log on standard error.

    Raises:
        TypeError: a field has another type.
        ValueError: a field is none of the words for it.

    Example:
        >>> LogSettings(log_format="JSON")
        LogSettings(log_level='info', log_format='json')
    """

    log_level: str = setting(
        "info",
        "lowest level that is logged on stderr",
        choices=LOG_LEVELS,
        metavar="|".join(LOG_LEVELS),
    )
    """Lowest level that is logged."""
    log_format: str = setting(
        "text",
        "form of the log on stderr: text, or json for an object on each line",
        choices=LOG_FORMATS,
        metavar="|".join(LOG_FORMATS),
    )
    """Form of each record."""


class RecordFormatter(logging.Formatter):
    """Formats the log records of a server: time, level, process, number of further
    lines if there are any, logger and message.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s [%(process)d] %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        head, *more = super().format(record).rstrip("\n").split("\n")
        if more:
            head = head.replace(f"[{record.process}]", f"[{record.process}+{len(more)}]", 1)
        return f"\n{FOLLOWS}".join([head, *more])


class JsonFormatter(logging.Formatter):
    """Formats each log record of a server as a JSON object on one line.

    The object has ``time`` (ISO 8601, with the offset of this machine's time zone),
    ``level``, ``logger``, ``process`` and ``message``, and ``error`` with the traceback
    if there is one.

    Example:
        >>> record = logging.LogRecord("decode", 20, "a.py", 1, "no file", (), None)
        >>> shown = json.loads(JsonFormatter().format(record))
        >>> shown["level"], shown["logger"], shown["message"]
        ('info', 'decode', 'no file')
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the object of a record."""
        second, zone = self.formatTime(record, "%Y-%m-%dT%H:%M:%S|%z").split("|")
        shown: dict[str, object] = {
            "time": f"{second}.{int(record.msecs):03d}{zone[:3]}:{zone[3:]}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            shown["error"] = self.formatException(record.exc_info)
        return json.dumps(shown, separators=(",", ":"))


def log_to_stderr(level: str, form: str = "text") -> None:
    """Let this process write its log records to standard error, unless it has a handler
    already.

    Args:
        level: lowest level of the records, in lower case.
        form: ``"text"``, or ``"json"`` for an object on each line.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else RecordFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class RecordHead(NamedTuple):
    """Content of the first line of a record before its message."""

    level: int | str
    """Number of the level; a text if the level is unknown here."""
    logger: str
    """Name of the logger."""
    more: int
    """Number of further lines."""


def record_head(line: str) -> RecordHead | None:
    """Return the head of the record that begins with a line; None if no record begins
    there.

    Example:
        >>> record_head("2026-01-02 10:00:00,000 ERROR [7] decode: no such file")
        RecordHead(level=40, logger='decode', more=0)
        >>> record_head("a line that was printed")
    """
    found = _RECORD.match(line)
    if found is None:
        return None
    return RecordHead(logging.getLevelName(found[1]), found[3], int(found[2] or 0))


def record_behind(line: str) -> int:
    """Return the position in a line at which a record begins behind other text, which
    was printed without the end of its line; the length of the line if none does.

    Example:
        >>> record_behind("loading ... 2026-01-02 10:00:00,000 ERROR [7] decode: no")
        12
        >>> record_behind("2026-01-02 10:00:00,000 ERROR [7] decode: no file")
        49
    """
    found = _BEHIND_TEXT.search(line)
    return len(line) if found is None else found.start()
