"""Samples that tests of metrics read from a server."""

from __future__ import annotations

import re
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

Labels = tuple[tuple[str, str], ...]


def get(address: str, accept: str = "", host: str | None = None) -> tuple[int, str]:
    """Return status and text of an address; the status of an error, too.

    Args:
        address: the address.
        accept: the formats that are accepted.
        host: the Host header, if it is not that of the address.
    """
    parts = urlsplit(address)
    with closing(HTTPConnection(str(parts.hostname), parts.port, timeout=20)) as connection:
        path = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = {"Accept": accept} if accept else {}
        if host is not None:
            headers["Host"] = host
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def samples(address: str) -> dict[tuple[str, Labels], float]:
    """Return the samples at the address of metrics, by name and labels."""
    status, text = get(address)
    assert status == 200, text
    return {
        (name, tuple(sorted(LABEL.findall(labels or "")))): float(value)
        for name, labels, value in SAMPLE.findall(text)
    }


def total(address: str, name: str, **labels: str) -> float:
    """Return the sum of the samples of a metric that have these labels."""
    return sum(
        value
        for (found, has), value in samples(address).items()
        if found == name and set(labels.items()) <= set(has)
    )


def beside(address: str, path: str) -> str:
    """Return the address of a probe beside the metrics."""
    return address.removesuffix("/metrics") + path
