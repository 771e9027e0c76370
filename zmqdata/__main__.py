"""``python -m zmqdata``: the same as the console script ``zmqdata``."""

from __future__ import annotations

import sys

from zmqdata.cli.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], "python -m zmqdata"))
