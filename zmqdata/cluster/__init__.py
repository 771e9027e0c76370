"""A dispatcher and workers on this machine, started and ended by a single object. It
does not scale out over machines.

``local`` holds the cluster; ``processes`` and ``threads`` are the two ways to run its
servers.
"""

from __future__ import annotations

from zmqdata.cluster.local import LocalCluster

__all__ = ["LocalCluster"]
