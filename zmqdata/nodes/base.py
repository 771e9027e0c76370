"""What all nodes have: inputs, the user's line of code, a label, cardinality, splits
and spec.

The operations themselves are in ``sources``, ``transforms`` and ``combinations``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from zmqdata.elements.specs import UNKNOWN_CARDINALITY
from zmqdata.errors import UnimplementedError
from zmqdata.splits import SplitSource


class ByIdentity:
    """Put before ``Node`` where arrays and the like have no single answer to whether
    they are equal.

    Each such node is equal to itself only.
    """

    __eq__ = object.__eq__
    __hash__ = object.__hash__


AT_ITS_PLACE = "goes on at its place"
NOTHING_AGAIN = "does nothing again"
"""What restoring costs where it costs nothing: of a source, and of what has an input.
"""

FILE_AGAIN = "opens its file again; a compressed one is unpacked up to the place"
"""What restoring costs where a file is read."""

Infer = Callable[["Node"], Any]
"""Gives the spec of a node, by running a part of the pipeline if it must."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One operation of a pipeline.

    Attributes:
        inputs: the nodes whose elements it takes, left to right; none for a source.
        site: ``"train.py:12"``, the place in the user's code that made it, or "". Not
            part of what it is.
    """

    inputs: tuple[Node, ...] = ()
    site: str = field(default="", compare=False, repr=False)

    operation: ClassVar[str] = ""
    """What the method of ``Dataset`` is called."""
    restoring: ClassVar[str] = ""
    """What an iterator does when it is restored, for ``describe``: a verb and what it
    costs. "" is not stated.
    """
    own_state: ClassVar[int] = 8
    """About how many bytes it adds to the state of an iterator, where ``state_bytes``
    does not say more.
    """
    state_growth: ClassVar[str] = ""
    """What its state grows with beyond ``state_bytes``, such as "16 bytes for each
    distinct element".
    """

    characteristics: ClassVar[Any] = None
    """By name, what tells it from a node for which a state does not fit; None: all of
    its parameters.
    """

    is_source: ClassVar[bool] = False
    """Whether it counts as one source for splitting, although it has inputs."""

    refills: ClassVar[bool] = False
    """Whether a pass that gave nothing says nothing about the next one, because others
    take from it too.
    """

    @property
    def label(self) -> str:
        """What errors call it: ``"map(parse) at train.py:12"``."""
        text = f"{self.operation or type(self).__name__}({self.argument})"
        return f"{text} at {self.site}" if self.site else text

    @property
    def argument(self) -> str:
        """The argument that tells it from its neighbours, for the label."""
        return ""

    @property
    def is_deterministic(self) -> bool:
        """Whether the order of its elements follows from seeds and inputs."""
        return True

    @property
    def state_bytes(self) -> int:
        """About how many bytes it adds to the state of an iterator."""
        return self.own_state

    @property
    def apart(self) -> tuple[Node, ...]:
        """Nodes that it runs beside its inputs. They are not split: each worker runs
        all of them.
        """
        return ()

    @property
    def cardinality(self) -> int:
        """The number of elements, INFINITE_CARDINALITY or UNKNOWN_CARDINALITY."""
        return UNKNOWN_CARDINALITY

    @property
    def split_source(self) -> SplitSource:
        """How the splits of this source are described to the dispatcher.

        Raises:
            UnimplementedError: the source cannot be split.
        """
        raise UnimplementedError(
            f"Cannot create split providers for dataset of type {type(self).__name__}: "
            f"{self.label} must be read as a "
            "whole. Distribute it with ShardingPolicy.OFF, where each worker reads all of it"
        )

    def spec(self, infer: Infer) -> Any:
        """The spec of its elements, or None where only running one element can tell."""
        return None


def split_sources(node: Node) -> list[SplitSource]:
    """The sources that need a split provider, left to right.

    Nested datasets (made by the functions of flat_map and interleave) and the indices
    of enumerate need none.

    Raises:
        UnimplementedError: one of the sources cannot be split.

    >>> from zmqdata.nodes import Range, Zip
    >>> split_sources(Zip(inputs=(Range(start=0, stop=3), Range(start=0, stop=5)), template=(0, 1)))
    [IndexSplits(count=3), IndexSplits(count=5)]
    """
    return [source.split_source for source in source_nodes(node)]


def every_node(node: Node) -> list[Node]:
    """This node and those that it runs, its inputs and what stands apart, each once.

    >>> from zmqdata.nodes import Range, Take
    >>> [inner.label for inner in every_node(Take(inputs=(Range(start=0, stop=3),), count=2))]
    ['take(2)', 'range(3)']
    """
    found: dict[int, Node] = {}
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if id(current) not in found:
            found[id(current)] = current
            waiting.extend(reversed((*current.inputs, *current.apart)))
    return list(found.values())


def source_nodes(node: Node) -> list[Node]:
    """The sources that feed this node, left to right, as often as they are read."""
    found, pending = [], [node]
    while pending:
        current = pending.pop()
        if current.is_source or not current.inputs:
            found.append(current)
        else:
            pending.extend(reversed(current.inputs))
    return found


class _Unknown(Exception):
    """A function decides."""


class _Missing(Exception):
    """The spec of another node is needed first."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def known_spec(node: Node) -> Any:
    """The spec of a node's elements if it follows without running anything, else None.

    >>> from zmqdata.nodes import Map, Range
    >>> known_spec(Map(inputs=(Range(start=0, stop=3),), function=str)) is None
    True
    """
    known: dict[int, Any] = {}  # a node may be reached on very many paths

    def infer(inner: Node) -> Any:
        if id(inner) not in known:
            raise _Missing(inner)
        if known[id(inner)] is None:
            raise _Unknown
        return known[id(inner)]

    waiting = [node]  # without recursion, as a pipeline may be thousands of operations long
    while waiting:
        try:
            known[id(waiting[-1])] = waiting[-1].spec(infer)
        except _Missing as missing:
            waiting.append(missing.node)
            continue
        except _Unknown:
            known[id(waiting[-1])] = None
        waiting.pop()
    return known[id(node)]


def function_name(function: Any) -> str:
    """What a label calls a function of the user."""
    return str(getattr(function, "__name__", None) or type(function).__name__)
