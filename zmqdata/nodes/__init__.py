"""Operations of a pipeline as frozen descriptions: a class per operation, each holding
its inputs.

A node states its operation, its cardinality, how its source is split, and the spec of
its elements if that follows from its inputs. Running belongs to ``iterators``; the
user's interface and the checks of arguments belong to ``dataset``.

A new source from outside of this package is a subclass of ``Node`` and an executor
registered with ``make_iterator``.
"""

from __future__ import annotations

from zmqdata.nodes.base import (
    Infer,
    Node,
    Ordinal,
    all_nodes,
    every_node,
    kept_orders,
    known_spec,
    lineage,
    source_nodes,
)
from zmqdata.nodes.batches import (
    BucketBySequenceLength,
    ListBatch,
    MapBatches,
    PaddedBatch,
    Padding,
    RaggedBatch,
    Rebatch,
    Unbatch,
    padding_plan,
    ragged_axes,
)
from zmqdata.nodes.choices import Choose, Counter, RandomChoices, WeightedChoices
from zmqdata.nodes.combinations import Concatenate, Zip
from zmqdata.nodes.grouping import Elements, GroupByReducer, GroupByWindow, Reducer, Window
from zmqdata.nodes.mapping import (
    Collate,
    GuardedMap,
    GuardedRandomMap,
    MarkingMap,
    ParallelCollate,
    ParallelInterleave,
    ParallelMap,
    ParallelRandomMap,
    RandomMap,
)
from zmqdata.nodes.options import (
    AutoShardPolicy,
    ExternalStatePolicy,
    Options,
    WithOptions,
    options_of,
)
from zmqdata.nodes.parts import (
    counts_by_task,
    is_lasting,
    is_one_to_one,
    is_single,
    is_whole,
    miscounted,
    part_of,
    selects,
    split_sources,
)
from zmqdata.nodes.records import (
    Csv,
    CsvColumn,
    Files,
    FixedLengthRecords,
    Sql,
    TextLines,
    TFRecords,
)
from zmqdata.nodes.selections import (
    SHARD_HINT,
    AssertCardinality,
    IgnoreErrors,
    RejectionResample,
    Scan,
    Shard,
    StaticShard,
    TakeWhile,
    Unique,
)
from zmqdata.nodes.sequences import FromIterable, FromList, FromSource, Random, Reiterated
from zmqdata.nodes.sources import FromGenerator, ListFiles, Range, Tensors, TensorSlices
from zmqdata.nodes.storage import Cache, Load, LoadInTurn, SavedDatasets, Snapshot
from zmqdata.nodes.transforms import (
    Batch,
    Enumerate,
    Filter,
    FlatMap,
    Interleave,
    Map,
    Prefetch,
    Repeat,
    Shuffle,
    Skip,
    Take,
    Unary,
)
