"""Hosts: each keeps workers running by the means of an engine, as many as are wanted.

``Local`` is this machine, ``Slurm`` a cluster with that queue, ``Ray`` and ``Dask`` are
clusters of these.
"""

from __future__ import annotations

from zmqdata.cluster.host import Host, HostError
from zmqdata.hosts.dask import Dask
from zmqdata.hosts.local import Local
from zmqdata.hosts.ray import Ray
from zmqdata.hosts.slurm import Slurm

__all__ = ["Host", "HostError", "Dask", "Local", "Ray", "Slurm"]
