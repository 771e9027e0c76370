"""``python -m zmqdata.dispatcher``: the same as ``zmqdata dispatcher``."""

from __future__ import annotations

import sys

from zmqdata.cli.commands import dispatcher_main

if __name__ == "__main__":
    sys.exit(dispatcher_main(sys.argv[1:], "python -m zmqdata.dispatcher"))
