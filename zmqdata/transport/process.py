"""Facts about this process and its machine that a person compares when a cluster
misbehaves: versions, file descriptors and memory that has no name.
"""

from __future__ import annotations

import os
import platform
import resource
from functools import cache
from typing import Any

import zmq

from zmqdata.machine import installed_version
from zmqdata.machine.descriptors import left
from zmqdata.messages import PROTOCOL_VERSION

PACKAGES = ("zmqdata", "numpy", "msgspec", "pyzmq", "dill", "blosc")
"""Packages that both sides of a connection should have in fitting versions."""
SHARED_FOLDER = "/dev/shm"  # noqa: S108 - it is only measured


@cache
def versions() -> dict[str, str]:
    """Return the versions that this process runs, by name; "" for a package that is not
    installed.

    Example:
        >>> versions()["protocol"] == str(PROTOCOL_VERSION)
        True
    """
    found = {"python": platform.python_version(), "protocol": str(PROTOCOL_VERSION)}
    found["libzmq"] = zmq.zmq_version()
    return {**found, **{name: installed_version(name, "") for name in PACKAGES}}


def descriptors() -> dict[str, int]:
    """Return the limit of file descriptors, the limit to which this process may raise
    it, and how many are left.

    Example:
        >>> found = descriptors()
        >>> found["left"] < found["limit"] <= found["most"]
        True
    """
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {"limit": limit, "most": most, "left": left()}


def shared_memory() -> dict[str, int] | None:
    """Return size and free space of ``/dev/shm`` in bytes; None if there is none.

    zmqdata shares memory without a name and does not use this folder. Processes of
    other libraries do, such as the workers of PyTorch's data loader.
    """
    try:
        found = os.statvfs(SHARED_FOLDER)
    except OSError:
        return None
    return {"size": found.f_blocks * found.f_frsize, "free": found.f_bavail * found.f_frsize}


def described_process() -> dict[str, Any]:
    """Return what a status says about this process, as plain values."""
    return {
        "versions": versions(),
        "host": platform.node(),
        "descriptors": descriptors(),
        "shared_memory": shared_memory(),
    }
