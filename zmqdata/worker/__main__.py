"""Run ``python -m zmqdata.worker``, which is the same as ``zmqdata worker``."""

from __future__ import annotations

import sys

from zmqdata.cli.commands import worker_main

if __name__ == "__main__":
    sys.exit(worker_main(sys.argv[1:], "python -m zmqdata.worker"))
