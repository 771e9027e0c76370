"""Time limit and error for the start of a server, shared by both ways to run
servers.
"""

from __future__ import annotations

from zmqdata.errors import UnavailableError

START_SECONDS = 60.0
"""Enough for a cold machine that compiles every import; a healthy start takes less than
a second.
"""

NOT_HERE = "Leave it to its process, or make a new LocalCluster here."
"""Advice to a forked child that uses its parent's cluster or server."""


class ServerStartError(UnavailableError):
    """Raised if a server ended, or sent nothing, before it was ready. The text has the
    end of its log.
    """
