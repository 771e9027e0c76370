"""Names of shipped modules: their names within a worker, and the names that users know.

Importing and looking up modules belongs to ``pipelines.importing``.
"""

from __future__ import annotations

import re

PREFIX = "zmqdata_shipped_"
"""Beginning of the name of the package that holds the modules of a shipment in a
worker. The first 16 digits of the shipment's digest follow.
"""

_SHIPPED = re.compile(rf"(?:[^\s\"']*/)?\b{PREFIX}[0-9a-f]{{16}}[./]")


def plain_name(text: str) -> str:
    """Replace the names of shipped modules by the names that the client uses, and
    remove the folder from their files.

    Example:
        >>> plain_name("zmqdata_shipped_0123456789abcdef.images.crop: in images.crop")
        'images.crop: in images.crop'
        >>> folder = "/tmp/zmqdata-0/1f/zmqdata_shipped_0123456789abcdef"
        >>> plain_name(f'File "{folder}/images/crop.py", line 3')
        'File "images/crop.py", line 3'
    """
    return _SHIPPED.sub("", text) if PREFIX in text else text
