"""Sampling: the node of a pipeline that a thread works in, told from its stack.

A look costs some microseconds, and an element nothing. Timing each call of each node
would cost more than many nodes do.

Decision 0046.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.ownthreads import OwnThreads, Place
from zmqdata.nodes import Node

ENTRIES = frozenset({"__next__", "next_stacked", "next_rows", "steps"})
"""Functions by which an operation asks its input for elements."""
PACKING, COMPRESSION = ("+packing", "packing elements"), ("+compression", "compressing blocks")
"""Place and label of what the worker does with elements."""
_HOME = Path(__file__).parent.parent.parent
_WAITING = frozenset(
    str(_HOME / "iterators" / name)
    for name in ("crew.py", "prefetch.py", "parallel.py", "parallel_interleave.py")
)
"""Files whose functions, if they are innermost, wait for a lock or for a thread."""
_STDLIB_WAITS = ("threading.py", "queue.py")
_OUTPUT = str(_HOME / "worker" / "tasks" / "output.py")
_BLOCKS = str(_HOME / "blocks") + os.sep
_COMPRESSION = str(_HOME / "blocks" / "compression.py")
_MORE_FILES = {"Map": ("transforms.py",), "Filter": ("transforms.py",)}
"""Further files with iterators of a node."""


_KNOWN: dict[str, frozenset[str]] = {}


def _files_of(node: Node) -> frozenset[str]:
    """Return the files with the iterators of nodes of this class."""
    kind = type(node)
    if kind.__name__ not in _KNOWN:
        maker = make_iterator.dispatch(kind)
        names = [f"{maker.__module__.rpartition('.')[2]}.py", *_MORE_FILES.get(kind.__name__, ())]
        _KNOWN[kind.__name__] = frozenset(str(_HOME / "iterators" / name) for name in names)
    return _KNOWN[kind.__name__]


class NodeSampler:
    """Tells the nodes that the threads of a pipeline work in.

    Args:
        root: the last node of the pipeline.
        threads: the threads that work for it, besides that of the task.
    """

    def __init__(self, root: Node, threads: OwnThreads) -> None:
        self._root, self._threads = root, threads

    def look(self, frames: Mapping[int, FrameType], task_thread: int) -> Counter[tuple[str, str]]:
        """Return how many threads work in each node, by place and label. Threads that
        wait do not count.

        Args:
            frames: stacks of all threads, by their numbers.
            task_thread: number of the thread that asks the last node for elements.
        """
        seen: Counter[tuple[str, str]] = Counter()
        for thread, place in [(task_thread, None), *self._threads.places()]:
            frame = frames.get(thread)
            if frame is not None and (name := self._name(frame, place)) is not None:
                seen[name] += 1
        return seen

    def queues(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Return the fill of the queue behind each node that runs ahead, by place and
        label.
        """
        found = {}
        for place, fill in self._threads.fills().items():
            at, node = self._node_at(place)
            found[".".join(map(str, at)), node.label] = fill
        return found

    def _name(self, frame: FrameType, place: Place | None) -> tuple[str, str] | None:
        """Return place and label of the node that a thread works in, or None if the
        thread waits or works for something else.
        """
        stack = list(_files(frame))
        if _waits(stack):
            return None
        at, node = ((), None) if place is None else self._node_at(place)
        own = None
        for file, function in reversed(stack):
            if function in ENTRIES:
                found = _below(at, node, self._root, file)
                if found is not None:
                    at, node = found
                    own = None
            if file == _OUTPUT:
                own = PACKING
            elif file == _COMPRESSION:
                own = COMPRESSION
        if own is not None:
            return own
        return None if node is None else (".".join(map(str, at)), node.label)

    def _node_at(self, place: Place) -> tuple[Place, Node]:
        """Return the node at a place. Of a place in a dataset that a function made, it
        is the node with the function.
        """
        at: Place = ()
        node = self._root
        for index in place:
            if index >= len(node.inputs):
                break
            at, node = (*at, index), node.inputs[index]
        return at, node


def _files(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    """Yield file and function of each frame, the innermost first."""
    while frame is not None:
        code = frame.f_code
        yield code.co_filename, code.co_name
        frame = frame.f_back


def _waits(stack: list[tuple[str, str]]) -> bool:
    """Return True if a thread waits for another one of the pipeline, and not in a
    user's function.
    """
    for file, _ in stack:
        if file.endswith(_STDLIB_WAITS):
            continue
        return file in _WAITING
    return True


def _below(at: Place, node: Node | None, root: Node, file: str) -> tuple[Place, Node] | None:
    """Return the nearest node below a node whose iterator is in a file, with its place;
    None if there is none. Below None is the root.
    """
    rank = [((), root)] if node is None else _inputs(at, node)
    while rank:
        for found in rank:
            if file in _files_of(found[1]):
                return found
        rank = [inner for at, outer in rank for inner in _inputs(at, outer)]
    return None


def _inputs(at: Place, node: Node) -> list[tuple[Place, Node]]:
    return [((*at, index), inner) for index, inner in enumerate(node.inputs)]
