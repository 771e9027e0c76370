"""Everything that the pipeline of a task runs in: its own shard, its generators and its
context. The same for a worker, and for a person who runs the task again elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from zmqdata.iterators.context import Context
from zmqdata.iterators.deciding import Deciding
from zmqdata.iterators.states import Courses
from zmqdata.messages import TaskDefinition
from zmqdata.nodes.base import Node
from zmqdata.nodes.options import options_of
from zmqdata.operations.sharding import shard_statically
from zmqdata.splits import SplitProvider
from zmqdata.worker.tasks.generators import TaskGenerators
from zmqdata.worker.tasks.ledger import LedgerProvider
from zmqdata.worker.tasks.pipeline import context_of
from zmqdata.worker.tasks.quarantine import TaskQuarantine
from zmqdata.worker.tasks.watch import TaskWatch, WatchedProvider


class PreparedTask(NamedTuple):
    """A task whose iterator can be made."""

    node: Node
    """The pipeline of its shard."""
    context: Context
    """The context of the pipeline."""
    generators: TaskGenerators
    """The random generators of its functions."""


def prepared(
    whole: Node,
    task: TaskDefinition,
    ledgers: Sequence[LedgerProvider],
    quarantine: TaskQuarantine,
    watch: TaskWatch,
    deciding: Deciding,
    is_replaying: Callable[[], bool] = bool,
) -> PreparedTask:
    """Return a task whose iterator can be made.

    Args:
        whole: the opened pipeline.
        task: lineage of the task.
        ledgers: per source, the splits that were handed out.
        quarantine: takes the elements that are skipped.
        watch: records what the pipeline is working on.
        deciding: the decisions to skip elements.
        is_replaying: returns True while elements of earlier attempts are made again.
    """
    node = shard_statically(
        whole, task.job.processing_mode, task.num_shards, task.shard, task.iteration_seed
    )
    providers: tuple[SplitProvider, ...] | None = None
    if task.job.processing_mode == "DYNAMIC":
        providers = tuple(WatchedProvider(ledger, watch) for ledger in ledgers)
    generators = TaskGenerators(node, task.seed)
    options = options_of(whole)
    context = context_of(task, providers, options, quarantine, watch, deciding, generators.captured)
    courses = Courses(is_replaying=is_replaying)
    return PreparedTask(node, replace(context, courses=courses), generators)
