"""Operations of a pipeline as frozen descriptions: a class per operation, each holding
its inputs.

A node states its operation, its cardinality, how its source is split, and the spec of
its elements if that follows from its inputs. Running belongs to ``iterators``; the
user's interface and the checks of arguments belong to ``dataset``.

A new source from outside of this package is a subclass of ``Node`` and an executor
registered with ``make_iterator``.
"""

from __future__ import annotations

from zmqdata.nodes.activity import Activity, TaskActivity
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
    GuardedMap,
    GuardedRandomMap,
    MarkingMap,
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
    PartOfOrder,
    is_lasting,
    is_one_to_one,
    is_single,
    is_whole,
    miscounted,
    part_of,
    selects,
    split_sources,
)
from zmqdata.nodes.records import Csv, CsvColumn, Files, FixedLengthRecords, Sql, TFRecords
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
from zmqdata.nodes.sources import FromGenerator, ListFiles, Range, Tensors, TensorSlices, TextLines
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

__all__ = [
    "Activity",
    "TaskActivity",
    "AssertCardinality",
    "AutoShardPolicy",
    "Batch",
    "BucketBySequenceLength",
    "Choose",
    "Concatenate",
    "Counter",
    "Elements",
    "Enumerate",
    "ExternalStatePolicy",
    "Cache",
    "Csv",
    "CsvColumn",
    "Files",
    "Filter",
    "FixedLengthRecords",
    "FlatMap",
    "FromGenerator",
    "GroupByReducer",
    "GroupByWindow",
    "IgnoreErrors",
    "FromIterable",
    "FromList",
    "FromSource",
    "GuardedMap",
    "GuardedRandomMap",
    "Infer",
    "Interleave",
    "ListFiles",
    "Load",
    "LoadInTurn",
    "Map",
    "MapBatches",
    "Node",
    "Options",
    "Ordinal",
    "PaddedBatch",
    "Padding",
    "Prefetch",
    "RaggedBatch",
    "RandomChoices",
    "MarkingMap",
    "ParallelInterleave",
    "ParallelMap",
    "RandomMap",
    "ParallelRandomMap",
    "Range",
    "Rebatch",
    "Reducer",
    "RejectionResample",
    "Random",
    "Reiterated",
    "Repeat",
    "SHARD_HINT",
    "SavedDatasets",
    "Scan",
    "Shard",
    "Shuffle",
    "Skip",
    "Snapshot",
    "Sql",
    "StaticShard",
    "TFRecords",
    "Take",
    "TakeWhile",
    "TensorSlices",
    "Tensors",
    "TextLines",
    "Unary",
    "Unbatch",
    "Unique",
    "WeightedChoices",
    "Window",
    "WithOptions",
    "Zip",
    "all_nodes",
    "every_node",
    "is_lasting",
    "is_one_to_one",
    "is_single",
    "is_whole",
    "miscounted",
    "part_of",
    "selects",
    "PartOfOrder",
    "kept_orders",
    "known_spec",
    "lineage",
    "options_of",
    "padding_plan",
    "ragged_axes",
    "source_nodes",
    "split_sources",
]
