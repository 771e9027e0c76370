"""Operations of pipelines: a module for each family of operations, with the nodes that
describe them and the iterators that run them.

A family is loaded when it is first used, as an attribute of this package or by its own
name. Unpickling a node therefore loads its family alone, and a program loads the
operations that its pipelines have. What all families share belongs to ``nodes`` and
``iterators``, the user's interface and the checks of arguments to ``dataset``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zmqdata.operations import arrow as arrow
    from zmqdata.operations import balance_plan as balance_plan
    from zmqdata.operations import balancing as balancing
    from zmqdata.operations import batch as batch
    from zmqdata.operations import cache as cache
    from zmqdata.operations import choices as choices
    from zmqdata.operations import combinations as combinations
    from zmqdata.operations import csvfiles as csvfiles
    from zmqdata.operations import files as files
    from zmqdata.operations import folds as folds
    from zmqdata.operations import grouping as grouping
    from zmqdata.operations import huggingface as huggingface
    from zmqdata.operations import jsonl as jsonl
    from zmqdata.operations import limits as limits
    from zmqdata.operations import loading as loading
    from zmqdata.operations import mapping as mapping
    from zmqdata.operations import mixing as mixing
    from zmqdata.operations import nested as nested
    from zmqdata.operations import pack_plan as pack_plan
    from zmqdata.operations import packing as packing
    from zmqdata.operations import padding as padding
    from zmqdata.operations import parallel as parallel
    from zmqdata.operations import parquet as parquet
    from zmqdata.operations import prefetch as prefetch
    from zmqdata.operations import random_map as random_map
    from zmqdata.operations import repeat as repeat
    from zmqdata.operations import schedules as schedules
    from zmqdata.operations import selections as selections
    from zmqdata.operations import sequences as sequences
    from zmqdata.operations import sharding as sharding
    from zmqdata.operations import shuffle as shuffle
    from zmqdata.operations import sources as sources
    from zmqdata.operations import sql as sql
    from zmqdata.operations import stored as stored
    from zmqdata.operations import unbatch as unbatch
else:

    def __getattr__(name: str) -> Any:
        """Return a family, after loading it."""
        if name.startswith("_"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
