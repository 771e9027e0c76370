"""Shipping pipelines: packed by clients, carried unopened by the dispatcher, opened by
workers.

The public names of the package; what runs is in ``packing`` (bytes and back),
``pickler`` (the only module that imports dill), ``unsendable`` (what may not travel)
and ``fingerprints`` (what makes two pipelines the same). Importing this package does
not import dill.
"""

from __future__ import annotations

from zmqdata.pipelines.fingerprints import fingerprint
from zmqdata.pipelines.identity import Fingerprint
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
