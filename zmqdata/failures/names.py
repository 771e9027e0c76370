"""Names of modules that a pipeline brought along: what they are called in a worker, and
what users know them by.

Nothing is imported or looked up here; ``pipelines.importing`` does that.
"""

from __future__ import annotations

import re

PREFIX = "zmqdata_shipped_"
"""Begins the package below which a worker keeps the modules of one shipment; 16 digits
of its content follow.
"""

_SHIPPED = re.compile(rf"(?:[^\s\"']*/)?\b{PREFIX}[0-9a-f]{{16}}[./]")


def plain_name(text: str) -> str:
    """A text with the names of shipped modules as the client knows them, and their
    files without the folder.

    Example:
        >>> plain_name("zmqdata_shipped_0123456789abcdef.images.crop: in images.crop")
        'images.crop: in images.crop'
        >>> plain_name('File "/tmp/zmqdata-0/1f/zmqdata_shipped_0123456789abcdef/images/crop.py", line 3')
        'File "images/crop.py", line 3'
    """
    return _SHIPPED.sub("", text) if PREFIX in text else text
