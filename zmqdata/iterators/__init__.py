"""Running pipelines: one iterator class per node, each able to say where it is and to go on from there.

Importing the package registers all of them with ``make_iterator``. Descriptions belong to ``nodes``, the user's
surface to ``dataset``, tasks and streams to the worker.
"""

from __future__ import annotations

from zmqdata.iterators import (
    batch,
    cache,
    choices,
    combine,
    csvfiles,
    files,
    folds,
    grouping,
    guarding,
    loading,
    nested,
    padding,
    parallel,
    parallel_interleave,
    prefetch,
    raggeds,
    random_map,
    records,
    repeat,
    selections,
    sequences,
    shuffle,
    sources,
    splitcache,
    sql,
    stored,
    transforms,
    unbatch,
    watched,
)
from zmqdata.iterators.base import (
    NO_STATE,
    Context,
    ElementIterator,
    Stackable,
    as_element,
    failure,
    holds_no_state,
    input_iterator,
    make_iterator,
    mixed_seed,
)
from zmqdata.iterators.inference import infer_spec, known_spec
from zmqdata.iterators.random_access import element_at

__all__ = [
    "Context",
    "ElementIterator",
    "Stackable",
    "as_element",
    "element_at",
    "NO_STATE",
    "failure",
    "holds_no_state",
    "infer_spec",
    "input_iterator",
    "known_spec",
    "make_iterator",
    "mixed_seed",
]

_REGISTERED = (
    batch,
    cache,
    choices,
    combine,
    csvfiles,
    files,
    folds,
    grouping,
    guarding,
    loading,
    nested,
    padding,
    parallel,
    parallel_interleave,
    prefetch,
    raggeds,
    random_map,
    records,
    repeat,
    selections,
    sequences,
    shuffle,
    sources,
    splitcache,
    sql,
    stored,
    transforms,
    unbatch,
    watched,
)
