"""Pipelines as text: a line for each node, as a tree. What costs a run is in
``profiling``.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optree

from zmqdata.elements.specs import TensorSpec, is_list, map_structure
from zmqdata.nodes import Node
from zmqdata.pipelines.fingerprints import nodes_in_order

_PLAIN = (bool, int, float, str, bytes, type(None), TensorSpec)
_LONGEST = 60


def tree_lines(node: Node, describe: Callable[[Node], str]) -> list[str]:
    """A line for each node, its inputs indented below it; what feeds several nodes is
    described once.

    Without recursion, as a pipeline may be thousands of operations long.

    >>> from zmqdata.nodes import Range, Take
    >>> tree_lines(Take(inputs=(Range(start=0, stop=9),), count=2), lambda node: node.label)
    ['take(2)', '└─ range(9)']
    """
    lines: list[str] = []
    seen: dict[int, int] = {}
    waiting = [
        (node, "", "", "")
    ]  # a node, what stands before it, before the next of its chain, before its branches
    while waiting:
        current, mark, chain, branches = waiting.pop()
        if current.inputs and id(current) in seen:
            lines.append(f"{mark}{current.label} (as in line {seen[id(current)]})")
            continue
        lines.append(mark + describe(current))
        seen[id(current)] = len(lines)
        if (
            len(current.inputs) == 1
        ):  # chains stay in their column: else their lines would run out of the screen
            waiting.append((current.inputs[0], f"{chain}└─ ", chain, f"{chain}   "))
            continue
        for index, source in reversed(list(enumerate(current.inputs))):
            first, rest = ("└─ ", "   ") if index == len(current.inputs) - 1 else ("├─ ", "│  ")
            waiting.append((source, branches + first, branches + rest, branches + rest))
    return lines


def parameter_line(node: Node) -> str:
    """A node with all of its parameters, without the place in the user's code.

    >>> from zmqdata.nodes import Range, Take
    >>> parameter_line(Take(inputs=(Range(start=0, stop=9),), count=2))
    'take(count=2)'
    """
    fields = [
        field.name for field in dataclasses.fields(node) if field.name not in ("inputs", "site")
    ]
    parameters = node.characteristics or {name: getattr(node, name) for name in fields}
    given = ", ".join(f"{name}={_shown(value)}" for name, value in parameters.items())
    return f"{node.operation or type(node).__name__}({given})"


def _shown(value: Any) -> str:
    text = _text(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def _text(value: Any) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"<{value.dtype}{list(value.shape)}>"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    if isinstance(value, (tuple, dict)) and not optree.is_namedtuple(value):
        return str(map_structure(_Shown, value))
    return f"<{type(value).__name__}>"


class _Shown:
    """A leaf of a structure, printed as a parameter is."""

    def __init__(self, leaf: Any) -> None:
        self._text = f"<list of {len(leaf)}>" if is_list(leaf) else _text(leaf)

    def __repr__(self) -> str:
        return self._text


def shipped_in(node: Node) -> list[tuple[str, Node]]:
    """The pipelines within a pipeline that other processes run, each with what it is of
    what.
    """
    return [
        (f"{name} of {inner.operation}", value)
        for inner in nodes_in_order(node)
        for name, value in (inner.characteristics or {}).items()
        if isinstance(value, Node)
    ]


def parameter_lines(node: Node) -> list[str]:
    """What two pipelines are compared by: the tree with all parameters, then what is
    run elsewhere for it.
    """
    lines = tree_lines(node, parameter_line)
    for what, inner in shipped_in(node):
        lines += [f"{what}:", *(f"   {line}" for line in parameter_lines(inner))]
    return lines


def difference(saved: Iterable[str], present: Iterable[str]) -> str:
    """What was there and is no more (``-``), and what came instead (``+``).

    >>> print(difference(["take(count=2)", "range"], ["take(count=3)", "range"]))
    - take(count=2)
    + take(count=3)
      range
    """
    compared = difflib.ndiff(list(saved), list(present))
    return "\n".join(line.rstrip() for line in compared if not line.startswith("?"))
