"""This process and its machine: file descriptors, threads, the run of a program, and
the versions of installed packages.
"""

from __future__ import annotations

from functools import cache

UNKNOWN_VERSION = "unknown"
"""Version of a package that was never installed, as zmqdata in a source folder."""


@cache
def installed_version(package: str = "zmqdata", otherwise: str = UNKNOWN_VERSION) -> str:
    """Return the version of an installed package, or ``otherwise`` if it was never
    installed. Its metadata are parsed once.

    Example:
        >>> installed_version("no-such-package"), installed_version("numpy") > "1"
        ('unknown', True)
    """
    # Imported late: a command that starts servers loads nothing slow.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return otherwise
