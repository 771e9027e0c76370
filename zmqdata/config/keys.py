"""The settings that select the key of a process. They have their own module because
commands that start no server need them, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from zmqdata.config.settings import Settings, described, setting

WITHOUT_KEY = (
    "insecure: without a key, any process that can reach this server may use it "
    "and make workers run code"
)


def key_file_setting() -> str | None:
    """Declare the setting for the key file."""
    return setting(
        None,
        "file with the key of the cluster, as made by `zmqdata keygen`; without it, the key of "
        "this user, which is created on first use",
        metavar="FILE",
        rival="insecure",
    )


def insecure_setting() -> bool:
    """Declare the setting for operation without a key."""
    return setting(
        False,
        "operate without a key: nothing is encrypted, and any process that can reach a server may "
        "use it and make it run code",
    )


@described
@dataclass(frozen=True)
class KeySettings(Settings):
    """The key with which a process proves that it belongs to the cluster.

    Args:
        {settings}

    Example:
        >>> KeySettings(insecure=True).key_file is None
        True
    """

    key_file: str | None = key_file_setting()
    insecure: bool = insecure_setting()
