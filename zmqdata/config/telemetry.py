"""The setting for spans of OpenTelemetry, which workers and clients share."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from zmqdata.config.settings import check_settings, setting

MEANING = (
    "make spans of OpenTelemetry: one for each read of a client and one for each attempt of a "
    "task; needs zmqdata[otel], and an SDK that the process configures"
)


def otel_setting() -> bool:
    """Declare the setting for spans of OpenTelemetry."""
    return setting(False, MEANING)


def check_otel() -> None:
    """Raise an error if the API of OpenTelemetry is not installed.

    Raises:
        ValueError: it is not.
    """
    if find_spec("opentelemetry") is None:
        raise ValueError(
            "`otel` (--otel, ZMQDATA_OTEL) needs the package opentelemetry-api, which is not "
            "installed. Run `pip install 'zmqdata[otel]'`, or leave it out"
        )


@dataclass(frozen=True)
class TelemetrySettings:
    """The setting that makes a client begin spans. It is read from the environment.

    Raises:
        ValueError: the API of OpenTelemetry is not installed.
    """

    otel: bool = otel_setting()
    """True to begin spans."""

    def __post_init__(self) -> None:
        check_settings(self)
        if self.otel:
            check_otel()
