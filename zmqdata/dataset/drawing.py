"""Pipelines as text: a tree with a line for each node. The cost of a run belongs to
``profiling``.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optree

from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import TensorSpec
from zmqdata.files.paths import shown_url
from zmqdata.nodes.base import Node
from zmqdata.peeking import peek
from zmqdata.pipelines.fingerprints import nodes_in_order

_PLAIN = (bool, int, float, str, bytes, type(None), TensorSpec)
_LONGEST = 60
_LEFT_OUT = ("inputs", "site", "storage_options")
"""Fields that may differ between two programs with the same pipeline."""


def tree_lines(node: Node, describe: Callable[[Node], str]) -> list[str]:
    """Return a line for each node, with its inputs indented below it. A node that feeds
    several nodes is described once.

    The walk does not recurse, because a pipeline may have thousands of operations.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.limits import Take
    >>> take = Take(inputs=(Range(start=0, stop=9),), count=2)
    >>> tree_lines(take, lambda node: node.label)
    ['take(2)', '└─ range(9)']
    """
    lines: list[str] = []
    seen: dict[int, int] = {}
    waiting = [
        (node, "", "", "")
    ]  # node, prefix of its line, prefix of the next node in its chain, prefix of its branches
    while waiting:
        current, mark, chain, branches = waiting.pop()
        if current.inputs and id(current) in seen:
            lines.append(f"{mark}{current.label} (as in line {seen[id(current)]})")
            continue
        lines.append(mark + describe(current))
        seen[id(current)] = len(lines)
        if (
            len(current.inputs) == 1
        ):  # chains stay in their column, or long chains would run out of the screen
            waiting.append((current.inputs[0], f"{chain}└─ ", chain, f"{chain}   "))
            continue
        for index, source in reversed(list(enumerate(current.inputs))):
            first, rest = ("└─ ", "   ") if index == len(current.inputs) - 1 else ("├─ ", "│  ")
            waiting.append((source, branches + first, branches + rest, branches + rest))
    return lines


def parameter_line(node: Node) -> str:
    """Return a node with all its parameters, without the place in the user's code.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.limits import Take
    >>> parameter_line(Take(inputs=(Range(start=0, stop=9),), count=2))
    'take(count=2)'
    """
    fields = [field.name for field in dataclasses.fields(node) if field.name not in _LEFT_OUT]
    parameters = node.characteristics or {name: getattr(node, name) for name in fields}
    given = ", ".join(f"{name}={_shown(value)}" for name, value in parameters.items())
    return f"{node.operation or type(node).__name__}({given})"


def _shown(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _text(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(shown_url(value) if isinstance(value, str) else value)
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    if callable(value):
        return str(peek(value, "__qualname__", type(value).__name__))
    if isinstance(value, (tuple, dict)) and not optree.is_namedtuple(value):
        return str(map_structure(_Shown, value))
    return f"<{type(value).__name__}>"


class _Shown:
    """A leaf of a structure, printed as a parameter is."""

    def __init__(self, leaf: Any) -> None:
        self._text = f"<list of {len(leaf)}>" if isinstance(leaf, list) else _text(leaf)

    def __repr__(self) -> str:
        return self._text


def shipped_in(node: Node) -> list[tuple[str, Node]]:
    """Return the pipelines within a pipeline that other processes run, each with a
    description of its role.
    """
    return [
        (f"{name} of {inner.operation}", value)
        for inner in nodes_in_order(node)
        for name, value in (inner.characteristics or {}).items()
        if isinstance(value, Node)
    ]


def parameter_lines(node: Node) -> list[str]:
    """Return the lines by which two pipelines are compared: the tree with all
    parameters, then the pipelines that other processes run for it.
    """
    lines = tree_lines(node, parameter_line)
    for what, inner in shipped_in(node):
        lines += [f"{what}:", *(f"   {line}" for line in parameter_lines(inner))]
    return lines


def difference(saved: Iterable[str], present: Iterable[str]) -> str:
    """Return removed lines (``-``), added lines (``+``) and common lines of two
    pipelines.

    >>> print(difference(["take(count=2)", "range"], ["take(count=3)", "range"]))
    - take(count=2)
    + take(count=3)
      range
    """
    compared = difflib.ndiff(list(saved), list(present))
    return "\n".join(line.rstrip() for line in compared if not line.startswith("?"))
