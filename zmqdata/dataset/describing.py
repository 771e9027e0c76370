"""Descriptions of pipelines for users: a line for each operation with its spec and
everything known without running it.
"""

from __future__ import annotations

from typing import Any

from zmqdata.dataset.drawing import tree_lines
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import INFINITE_CARDINALITY, NoneTensorSpec, TensorSpec
from zmqdata.errors import UnimplementedError
from zmqdata.files.paths import is_url, shown_url
from zmqdata.nodes.base import Node, every_node
from zmqdata.nodes.options import is_ordered, options_of
from zmqdata.pipelines.fingerprints import nodes_in_order
from zmqdata.pipelines.weighing import carried
from zmqdata.splits import ChunkSplits, FileSplits, SplitSource

_NOT_KNOWN = "known when it runs"


class Description(str):
    """Text that an interactive interpreter prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _UnknownSpec(Exception):
    """A user's function determines the spec."""


def known_specs(node: Node) -> dict[int, Any]:
    """Return the specs of all operations by the ``id`` of their nodes, as far as they
    are known without running them.
    """
    known: dict[int, Any] = {}

    def infer(inner: Node) -> Any:
        if known[id(inner)] is None:
            raise _UnknownSpec
        return known[id(inner)]

    for inner in nodes_in_order(node):
        try:
            known[id(inner)] = inner.spec(infer)
        except Exception:  # also a mismatch of specs, which is an error of the run
            known[id(inner)] = None
    return known


class _Brief:
    def __init__(self, spec: Any) -> None:
        self._spec = spec

    def __repr__(self) -> str:
        spec = self._spec
        if isinstance(spec, NoneTensorSpec):
            return "None"
        if not isinstance(spec, TensorSpec):
            return repr(spec)
        name = repr(spec).rpartition("dtype=")[2][:-1]
        if spec.shape is None:
            return f"{name}[...]"
        axes = ", ".join("?" if axis is None else str(axis) for axis in spec.shape)
        return f"{name}[{axes}]" if axes else name


def brief_spec(spec: Any) -> str:
    """Return a spec as short text.

    >>> brief_spec({"x": TensorSpec((None, 28), "uint8"), "y": TensorSpec((), "int64")})
    "{'x': uint8[?, 28], 'y': int64}"
    """
    return _NOT_KNOWN if spec is None else str(map_structure(_Brief, spec))


def draw(node: Node) -> str:
    """Return the pipeline as a tree with the last operation on top, each operation with
    its spec.
    """
    known = known_specs(node)
    return "\n".join(
        tree_lines(node, lambda inner: f"{inner.label}: {brief_spec(known[id(inner)])}")
    )


def describe(node: Node) -> Description:
    """Return the drawing of a pipeline with cardinality, order, splits and restoring of
    each operation, and the size of a state.
    """
    known = known_specs(node)
    every = every_node(node)
    options = options_of(node)
    loose = {id(inner): inner.label for inner in every if not is_ordered(inner, options)}
    lines = tree_lines(
        node,
        lambda inner: (
            f"{inner.label}: {_facts(inner, brief_spec(known[id(inner)]), id(inner) in loose)}"
        ),
    )
    grows = [f", and {inner.state_growth} ({inner.label})" for inner in every if inner.state_growth]
    lines += [
        "",
        f"elements: {_cardinality(node)}",
        f"splits: {_splits(node)}",
        "order: "
        + (
            f"differs from run to run, by {', '.join(loose.values())}"
            if loose
            else "follows from the seed"
        ),
        f"state: about {sum(inner.state_bytes for inner in every)} bytes{''.join(grows)}",
    ]
    if carries := carried(node):
        lines.append(f"carries: {carries}")
    return Description("\n".join(lines))


def _facts(node: Node, spec: str, is_loose: bool) -> str:
    own_state = sum(inner.state_bytes for inner in (node, *_beside(node)))
    return " | ".join(
        [
            spec,
            _cardinality(node),
            _splitting(node),
            "in any order" if is_loose else "in order",
            f"state {own_state} bytes" + (f" and {node.state_growth}" if node.state_growth else ""),
            f"restoring {node.restoring or 'is not described'}",
        ]
    )


def _beside(node: Node) -> list[Node]:
    return [inner for beside in node.apart for inner in every_node(beside)]


def _splitting(node: Node) -> str:
    if _is_source(node):
        return _splits(node)
    whole = [inner.label for inner in node.apart]
    follows = "split as its input" + ("s" if len(node.inputs) > 1 else "")
    return follows + (f", all of {' and '.join(whole)} for each worker" if whole else "")


def _is_source(node: Node) -> bool:
    return node.is_source or not node.inputs


def _cardinality(node: Node) -> str:
    count = node.cardinality
    if count >= 0:
        return f"{count} elements"
    return "endless" if count == INFINITE_CARDINALITY else "number not known"


def _splits(node: Node) -> str:
    """Return how the sources of a node are split, from left to right, without
    duplicates.
    """
    told, seen, waiting = [], set(), [node]
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if not _is_source(current):
            waiting.extend(reversed(current.inputs))
            continue
        try:
            splits = current.split_source
        except UnimplementedError:
            return f"cannot be split, because of {current.label}"
        told.append(_split_kind(current, splits))
    return ", ".join(told)


def _split_kind(node: Node, splits: SplitSource) -> str:
    names: tuple[str, ...] = getattr(node, "filenames", ()) or getattr(node, "patterns", ())
    stores = " and ".join(dict.fromkeys(map(_store, names)))
    of_stores = f" of {stores}" if stores else ""
    if isinstance(splits, FileSplits):
        return f"by files{of_stores}"
    if isinstance(splits, ChunkSplits):
        return "by the chunks of a save"
    count = splits.count
    if count is None:
        return "by indices without end"
    unit = node.split_unit if names else "indices"
    kind = "a single one" if count == 1 else f"by {count} {unit}"
    if names and (unit != "files" or count == 1):
        kind += f" in {len(names)} file{'s' if len(names) > 1 else ''}"
    return kind + of_stores


def _store(name: str) -> str:
    """Return the store of a file, for people.

    >>> _store("s3://bucket/a/b.txt"), _store("/data/b.txt")
    ('s3://bucket', 'this machine')
    """
    return "/".join(shown_url(name).split("/")[:3]) if is_url(name) else "this machine"
