"""Sampling: the nodes of a pipeline that its threads work in, as they publish them.

A look costs some microseconds, and an element the store of a reference. Timing each
call of each node would cost more than many nodes do. The stacks of other threads are
not looked at: CPython frees their frames while they run.

Decision 0046.
"""

from __future__ import annotations

from collections import Counter

from zmqdata.iterators.context import Context
from zmqdata.iterators.ownthreads import Place, QueueFill
from zmqdata.nodes.base import Node

PACKING: Place = (-1,)
"""Place published while the worker packs elements into blocks."""
COMPRESSION: Place = (-2,)
"""Place published while the worker compresses a block."""
NAMES = {
    PACKING: ("+packing", "packing elements"),
    COMPRESSION: ("+compression", "compressing blocks"),
}
"""Place and label, in measures, of what the worker does with elements."""


class NodeSampler:
    """Tells the nodes that the threads of a pipeline work in.

    Args:
        root: the last node of the pipeline.
        context: its context.
    """

    def __init__(self, root: Node, context: Context) -> None:
        self._root, self._strand, self._threads = root, context.strand, context.threads

    def look(self) -> Counter[tuple[str, str]]:
        """Return how many threads work in each node, by place and label. Threads that
        wait do not count.
        """
        places = [strand.place for strand in (self._strand, *self._threads.strands())]
        return Counter(self._name(place) for place in places if place is not None)

    def queues(self) -> dict[tuple[str, str], QueueFill]:
        """Return the fill of the queue behind each node that runs ahead, by place and
        label.
        """
        return {self._name(place): fill for place, fill in self._threads.fills().items()}

    def _name(self, place: Place) -> tuple[str, str]:
        """Return the place of a node as text, and its label. Of a place in a dataset
        that a function made, it is the node with the function.
        """
        if place in NAMES:
            return NAMES[place]
        at: Place = ()
        node = self._root
        for index in place:
            if index >= len(node.inputs):
                break
            at, node = (*at, index), node.inputs[index]
        return ".".join(map(str, at)), node.label
