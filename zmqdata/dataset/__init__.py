"""``Dataset``: the fluent, immutable interface to operations, and the checks of its
arguments.

Operations are defined and run by ``operations``, each family of which is loaded when a
method first needs it. This package does not depend on the service.
"""

from __future__ import annotations

from zmqdata.dataset.readers import (
    CsvDataset,
    FixedLengthRecordDataset,
    SqlDataset,
    TFRecordDataset,
)
from zmqdata.dataset.resuming import DatasetIterator
from zmqdata.dataset.seeds import set_random_seed
from zmqdata.dataset.surface import Dataset, TextLineDataset
from zmqdata.nodes.base import SHARD_HINT
from zmqdata.nodes.options import AutoShardPolicy, ExternalStatePolicy, Options
