"""Shipping pipelines: clients pack them, the dispatcher forwards them unopened, and
workers open them.

This module holds the public names of the package. ``packing`` converts pipelines to
bytes and back. Only ``pickler`` and ``unpickler`` import dill. ``unsendable`` knows
which objects cannot be shipped. ``fingerprints`` decides whether two pipelines are
equal, by the ``forms`` of their values. Importing this package does not import dill.
"""

from __future__ import annotations

from zmqdata.messages.identity import Fingerprint
from zmqdata.pipelines.fingerprints import fingerprint
from zmqdata.pipelines.packing import FindPart, PackedPipeline, open_pipeline, pack_pipeline
from zmqdata.pipelines.shipping import ShippedSource, pack_sources

__all__ = [
    "FindPart",
    "Fingerprint",
    "PackedPipeline",
    "ShippedSource",
    "fingerprint",
    "open_pipeline",
    "pack_pipeline",
    "pack_sources",
]
