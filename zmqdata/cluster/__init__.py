"""Dispatcher and workers on this machine, started and ended by one object. Scaling out
over machines is not done here.

``local`` is the cluster, ``processes`` and ``threads`` are the two ways in which it
runs its servers.
"""

from __future__ import annotations

from zmqdata.cluster.local import LocalCluster

__all__ = ["LocalCluster"]
