"""``Dataset``: the fluent, immutable interface to nodes and iterators, and the checks
of its arguments.

Operations are defined in ``nodes`` and run by ``iterators``. This package does not
depend on the service.
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
from zmqdata.nodes.grouping import Reducer
from zmqdata.nodes.options import AutoShardPolicy, ExternalStatePolicy, Options
from zmqdata.nodes.selections import SHARD_HINT
