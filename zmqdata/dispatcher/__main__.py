"""Entry point of ``python -m zmqdata.dispatcher``, which equals
``zmqdata dispatcher``.
"""

from __future__ import annotations

import sys

from zmqdata.cli.commands import dispatcher_main

if __name__ == "__main__":
    sys.exit(dispatcher_main(sys.argv[1:], "python -m zmqdata.dispatcher"))
