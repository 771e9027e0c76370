"""Measures that workers and clients report: where time goes, and what was moved.

Each reporter counts from its own beginning, and sends sums. So a report that is lost,
late or repeated neither loses nor doubles anything: the newest one counts.

Decision 0046; protocol 11.1.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from zmqdata.messages.discreet import Discreet

MOST_AMOUNT = 1e15
Number = Annotated[int, Meta(ge=0, le=1 << 53)]
"""A count."""
Amount = Annotated[float, Meta(ge=0, le=MOST_AMOUNT)]
"""A number of seconds, elements or bytes."""


Counts = dict[str, Annotated[float, Meta(ge=0)]]
"""Sums that operations counted, by name, as in ``"mix/web"``."""


class TaskSums(Discreet, frozen=True, array_like=True):
    """Sums of an attempt of a task: its time, and what it made."""

    seconds: Amount = 0.0
    """Seconds that were observed."""
    making: Amount = 0.0
    """Seconds in which its pipeline ran: nothing kept it from making elements."""
    for_readers: Amount = 0.0
    """Seconds in which it had made all that it may before its readers take some."""
    for_splits: Amount = 0.0
    """Seconds in which a source waited for splits."""
    elements: Amount = 0.0
    """Number of elements that it has made."""
    nbytes: Amount = 0.0
    """Bytes of the blocks that it has handed over, as they travel."""


class NodeTime(Discreet, frozen=True, array_like=True):
    """Time that the threads of a pipeline spent in a node, and not in its inputs."""

    place: str
    """Position in the tree: numbers of inputs from the last node on, as in ``"0.0"``;
    empty for the last node. ``"+packing"`` and the like stand for the work of the
    worker itself.
    """
    label: str
    """The node as the user knows it, with the line of code that made it."""
    total: Amount
    """Seconds since the attempt began."""
    recent: Amount
    """The same, in which the last seconds count most."""
    threads: Annotated[int, Meta(ge=1)] = 1
    """Most threads that worked in it at a time."""
    queue: tuple[Number, Number] = (0, 0)
    """Elements that wait behind it, and the most that may; 0 for a node that does not
    run ahead.
    """
    waited_recent: Amount = 0.0
    """Seconds of ``recent`` in which no processor worked."""
    held_up_recent: Amount = 0.0
    """Seconds in which its finished results waited for one call that had not returned,
    and its other threads were idle. The last seconds count most.
    """


class TaskMeasures(Discreet, frozen=True):
    """Measures of an attempt of a task, by its worker."""

    task: int
    """Id of the task."""
    attempt: int
    """Attempt of the task."""
    total: TaskSums
    """Sums since the attempt began on this worker."""
    recent: TaskSums
    """The same sums, in which the last seconds count most."""
    nodes: tuple[NodeTime, ...] = ()
    """The nodes, in the order of the drawing of the pipeline."""
    ahead: Amount = 0.0
    """Bytes of blocks that wait for readers."""
    linked: tuple[Amount, Amount] = (0.0, 0.0)
    """For the busiest link to its readers: the share of the last seconds in which bytes
    were in flight, and the bytes per second that it moved; 0 if unknown.
    """
    cores: Number = 0
    """Processors that its worker may use; 0 if unknown."""
    counts: Counts = field(default_factory=dict)
    """Sums that its operations counted since the attempt began."""


class LoopSums(Discreet, frozen=True, array_like=True):
    """Sums of a training loop: its time, and the elements that it took."""

    seconds: Amount = 0.0
    """Seconds that were observed, without the wait for the first element."""
    waiting: Amount = 0.0
    """Seconds in which it waited for an element."""
    elements: Amount = 0.0
    """Number of elements that it has taken."""
    late: Amount = 0.0
    """Seconds in which threads of this process had something to do for the loop and did
    not come to run.
    """


class LoopMeasures(Discreet, frozen=True):
    """Measures of a training loop, by its client."""

    total: LoopSums = LoopSums()
    """Sums since the iterator began."""
    recent: LoopSums = LoopSums()
    """The same sums, in which the last seconds count most."""
    first: Amount | None = None
    """Seconds from the beginning to the first element; None before that."""
    waiting: int = 0
    """Number of elements that have arrived and were not taken."""
    outer: LoopSums | None = None
    """Recent sums of the loop itself, if operations of its process lie between it and
    this reader of the service; otherwise None.
    """
    outer_total: LoopSums | None = None
    """Sums of the loop itself since this reader began, in the same case."""
    moved: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Bytes as they travelled, and elements, by transport and codec, as in
    ``"tcp zstd"``.
    """
    pace: Amount = 0.0
    """Median of the seconds that the loop took itself for an element, in pieces of the
    last seconds; 0 if unknown.
    """
    idle: Amount = 0.0
    """Seconds since the loop last took an element or waited for one."""


class ConsumerPace(Discreet, frozen=True, array_like=True):
    """Pace of a numbered consumer, as its worker hears."""

    consumer: int
    """Number of the consumer."""
    step: Amount
    """Seconds that its training loop takes for an element; 0 if unknown."""
    waits: bool
    """True if the loop has nothing left."""
