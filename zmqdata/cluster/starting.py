"""How long the start of a server may take, and what is raised when it fails. Both ways
to run servers share it.
"""

from __future__ import annotations

from zmqdata.errors import UnavailableError

START_SECONDS = 60.0
"""Enough for a cold machine that compiles every import; a healthy start takes less than
one.
"""

NOT_HERE = "Leave it to its process, or make a new LocalCluster here."
"""What a forked child is told to do instead of using a cluster, or a server of one, of
its parent's.
"""


class ServerStartError(UnavailableError):
    """A server ended, or stayed silent, before it was ready. The text has the end of
    its log.
    """
