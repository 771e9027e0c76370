"""Construction of a task's pipeline from the pack that the dispatcher sent, and of the
context that it runs in.
"""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from zmqdata.errors import FailedPreconditionError
from zmqdata.iterators.captured import Captured
from zmqdata.iterators.context import Context
from zmqdata.iterators.deciding import Deciding
from zmqdata.messages import TaskDefinition
from zmqdata.nodes.base import Node
from zmqdata.nodes.options import Options
from zmqdata.pipelines import FindPart, PackedPipeline, open_pipeline
from zmqdata.splits import SplitProvider
from zmqdata.transport.folders import own_folder
from zmqdata.worker.tasks.quarantine import TaskQuarantine
from zmqdata.worker.tasks.watch import TaskWatch


def context_of(
    definition: TaskDefinition,
    providers: tuple[SplitProvider, ...] | None,
    options: Options,
    quarantine: TaskQuarantine,
    watch: TaskWatch,
    deciding: Deciding,
    captured: Captured,
) -> Context:
    """Return the context of a task's pipeline. It is the same for every attempt.

    Copies of the input (mode OFF) share no seed. Where the user gave one, or draws are
    made once, they draw on their own.
    """
    return Context(
        seed=definition.seed,
        fixed_seed=definition.fixed_seed,
        shared_seed=None if providers is None else definition.iteration_seed,
        iteration=definition.repetition,
        task=definition.stream,
        copy=definition.stream if definition.job.processing_mode == "OFF" else 0,
        providers=providers,
        owns_splits=providers is not None and definition.num_shards > 0,
        owns_all_splits=providers is not None and definition.num_shards == 1,
        options=options,
        quarantine=quarantine,
        watch=watch,
        deciding=deciding,
        captured=captured.seeder,
    )


def seed_globals() -> None:
    """Seed the generators behind the functions of ``random``, ``numpy.random`` and
    ``torch`` from the operating system, because a module may have given them the same
    seed in each process.
    """
    random.seed()
    np.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        torch.default_generator.seed()


_seeding = threading.RLock()
_is_due = False
_is_own_process = False


@contextmanager
def seeding() -> Iterator[None]:
    """Let what this thread draws from the generators of modules follow from a seed that
    it gives them.

    Another thread of the process may open a pipeline in the meantime. It never waits,
    because this thread may wait for an element of that pipeline. The generators are
    seeded for it here, at the end.
    """
    with _seeding:
        try:
            yield
        finally:
            if _is_due:
                _seed_soon()


def _seed_soon() -> None:
    """Seed the generators of modules now, or as soon as another thread has drawn what
    must follow from its own seed.
    """
    global _is_due
    _is_due = True
    if _seeding.acquire(blocking=False):
        try:
            _is_due = False
            seed_globals()
        finally:
            _seeding.release()


def may_seed_modules() -> bool:
    """Return True if the generators of modules are the worker's."""
    return _is_own_process


def own_process() -> None:
    """Note that this process belongs to a worker, which may seed the generators of
    modules. A worker in a user's process must leave these alone.
    """
    global _is_own_process
    _is_own_process = True


def opened(
    encoded: bytes | memoryview, definition: TaskDefinition, find_part: FindPart, opener: str
) -> Node:
    """Return the pipeline of a task, for a process with a name.

    Raises:
        FailedPreconditionError: the pipeline does not match the registered digest.
    """
    if hashlib.sha256(encoded).hexdigest() != definition.digest:
        raise FailedPreconditionError(
            "The dispatcher sent a pipeline whose digest differs from that of the registered "
            "pipeline. Check whether the dispatcher's work folder was changed."
        )
    node: Node = open_pipeline(
        PackedPipeline.decode(encoded), find_part, own_folder(), definition.stream, opener
    )
    if _is_own_process:
        _seed_soon()
    return node
