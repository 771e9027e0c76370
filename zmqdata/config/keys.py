"""The settings by which processes say which key they have; apart, as commands have them
that start no server.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata.config.settings import check_settings, described, setting

WITHOUT_KEY = "insecure: there is no key, so whoever reaches this server may use it, and have workers run code"


def key_file_setting() -> str | None:
    """Declares which key file to use."""
    return setting(
        None,
        "file with the key of the cluster, as `zmqdata keygen` makes it; without it that of this "
        "user, which is made "
        "when it is needed first",
        metavar="FILE",
        rival="insecure",
    )


def insecure_setting() -> bool:
    """Declares whether to do without a key."""
    return setting(
        False,
        "do without a key: nothing is encrypted, and whoever reaches a server may use it, and have "
        "it run code",
    )


@described
@dataclass(frozen=True)
class KeySettings:
    """By which key a process proves that it is of the cluster.

    Args:
        {settings}

    Example:
        >>> KeySettings(insecure=True).key_file is None
        True
    """

    key_file: str | None = key_file_setting()
    insecure: bool = insecure_setting()

    def __post_init__(self) -> None:
        check_settings(self)
