"""Unbatching in the loop, for peers that transport small elements faster in batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the elements of batches: rows of an array, or of the arrays of a dict."""
    for batch in batches:
        if isinstance(batch, dict):
            names = tuple(batch)
            for leaves in zip(*batch.values(), strict=True):
                yield dict(zip(names, leaves, strict=True))
        else:
            yield from batch
