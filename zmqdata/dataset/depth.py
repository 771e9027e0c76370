"""Pipelines of more operations than Python's stack has room for: the error that says
so. Nothing is walked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zmqdata.errors import InvalidArgumentError
from zmqdata.nodes import Node, every_node


def too_deep(node: Node) -> InvalidArgumentError:
    """The error of a pipeline that ends with this node, for one that cannot be run or
    asked.
    """
    return InvalidArgumentError(
        f"this pipeline of {len(every_node(node))} operations is too deep for Python's stack: "
        f"{node.label}. Join many "
        "datasets by flat_map() over their names or by choose_from_datasets(), not by "
        "concatenate() in a loop; "
        "or raise sys.setrecursionlimit()"
    )


@contextmanager
def within_stack(node: Node) -> Iterator[None]:
    """Turns the end of the stack, wherever a pipeline is asked something, into the
    error that names the remedy.

    Raises:
        InvalidArgumentError: the pipeline is too deep.
    """
    try:
        yield
    except RecursionError:
        raise too_deep(node) from None
