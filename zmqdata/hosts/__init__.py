"""Hosts: each keeps workers running by the means of an engine, as many as are wanted.

``Local`` is this machine, ``Ray`` a Ray cluster, ``Slurm`` a cluster with that queue.
"""

from __future__ import annotations

from zmqdata.cluster.host import Host, HostError
from zmqdata.hosts.local import Local
from zmqdata.hosts.ray import Ray
from zmqdata.hosts.slurm import Slurm

__all__ = ["Host", "HostError", "Local", "Ray", "Slurm"]
