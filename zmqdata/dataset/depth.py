"""The error for pipelines with more operations than Python's stack can hold. Walking
pipelines does not belong here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zmqdata.errors import InvalidArgumentError
from zmqdata.nodes.base import Node, every_node


def too_deep(node: Node) -> InvalidArgumentError:
    """Return the error for a pipeline that ends with this node and is too deep to run
    or inspect.
    """
    return InvalidArgumentError(
        f"this pipeline of {len(every_node(node))} operations is too deep for "
        f"Python's stack: {node.label}. Join many datasets by flat_map() over their "
        "names or by choose_from_datasets(), not by concatenate() in a loop; or "
        "raise sys.setrecursionlimit()"
    )


@contextmanager
def within_stack(node: Node) -> Iterator[None]:
    """Convert a stack overflow while inspecting a pipeline into the error that names
    the remedy.

    Raises:
        InvalidArgumentError: the pipeline is too deep.
    """
    try:
        yield
    except RecursionError:
        raise too_deep(node) from None
