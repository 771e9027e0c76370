"""Executors of pipelines: an iterator class per node, each of which can save its state
and resume from it.

Importing the package registers every class with ``make_iterator``. Descriptions belong
to ``nodes``, the user's interface to ``dataset``, tasks and streams to the worker.
"""

from __future__ import annotations

from zmqdata.iterators import (
    batch,
    cache,
    callsites,
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
)
from zmqdata.iterators.base import (
    CLOSED,
    NO_STATE,
    UNFIT,
    Bookmark,
    Context,
    ElementIterator,
    Restoring,
    Stackable,
    failure,
    holds_bookmark,
    holds_no_state,
    make_iterator,
    mixed_seed,
    plain_state,
)
from zmqdata.iterators.carried import RunningState
from zmqdata.iterators.inference import infer_spec, known_spec
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.random_access import (
    element_at,
    out_of_range,
    program_element,
    uncounted,
    with_filled_caches,
)
