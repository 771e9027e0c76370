"""Settings of the log that dispatchers and workers write to standard error."""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata.config.settings import Settings, setting

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


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
