"""The page as one file that needs no server and no network, for a bug report.

The file contains what the page showed, its style and its scripts. A policy by hashes
allows these scripts and no others. Ids of clients and workers are replaced.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from zmqdata.dashboard.view import without_ids
from zmqdata.dashboard.watching import StatusWatch, asker, encoded
from zmqdata.errors import UnavailableError

KINDS = {
    "index.html": "text/html; charset=utf-8",
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
    "uPlot.min.css": "text/css; charset=utf-8",
    "uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "uPlot.LICENSE.txt": "text/plain; charset=utf-8",
}
"""Files of the page, with their media types."""
STYLE = re.compile(r'<link rel="stylesheet" href="static/([\w.]+)">')
SCRIPT = re.compile(r'<script( type="module"| defer)? src="static/([\w.]+)"></script>')


@cache
def page_file(name: str) -> bytes:
    """Return a file of the page.

    Example:
        >>> page_file("index.html")[:15]
        b'<!doctype html>'
    """
    if name not in KINDS:
        raise KeyError(name)
    return files("zmqdata.dashboard").joinpath("pages", name).read_bytes()


def report_of(whole: dict[str, Any]) -> str:
    """Return the page with a view and its history as one HTML document.

    Args:
        whole: the result of ``StatusWatch.whole``.

    Example:
        >>> report = report_of({"view": {"jobs": []}, "history": {}})
        >>> "Content-Security-Policy" in report, 'src="static' in report
        (True, False)
    """
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def inlined(kind: str, name: str, attributes: str = "") -> str:
        text = page_file(name).decode("utf-8")
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
        return f"<{kind}{attributes}>{text}</{kind}>"

    page = page_file("index.html").decode("utf-8")
    page = STYLE.sub(lambda found: inlined("style", found[1]), page)
    page = SCRIPT.sub(
        lambda found: inlined("script", found[2], ' type="module"' if "module" in found[0] else ""),
        page,
    )
    policy = (
        f"default-src 'none'; style-src {' '.join(hashes['style'])}; "
        f"script-src {' '.join(hashes['script'])}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    content = encoded(without_ids(whole))
    return page.replace(
        '<meta charset="utf-8">',
        f'<meta charset="utf-8">\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        1,
    ).replace(
        "<body>",
        f'<body>\n<script type="application/json" id="report">{content}</script>',
        1,
    )


def write_report(
    service: str, path: str, seconds: float, wait: Callable[[float], object] = time.sleep
) -> str:
    """Ask a dispatcher each second for some seconds, and write the report.

    If the dispatcher stops answering, the report has what was known until then.

    Args:
        service: address of the dispatcher.
        path: file to write.
        seconds: seconds to watch, for the plots.
        wait: waits a number of seconds.

    Returns:
        Why the dispatcher stopped answering; empty if it answered until the end.

    Raises:
        UnavailableError: the dispatcher does not answer the first request.
        OSError: the file cannot be written.
    """
    stopped = threading.Event()
    watch = StatusWatch(asker(service, stopped), stopped)
    ends = time.monotonic() + seconds
    watch.poll()
    trouble: str = watch.whole()["view"]["trouble"]
    if trouble:
        raise UnavailableError(trouble)
    with open(path, "a", encoding="utf-8"):
        pass  # raises before the wait if the file cannot be written
    while not trouble and (left := ends - time.monotonic()) > 0:
        wait(min(1.0, left))
        watch.poll()
        trouble = watch.whole()["view"]["trouble"]
    Path(path).write_text(report_of(watch.whole()), encoding="utf-8")
    return trouble
