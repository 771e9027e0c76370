"""What the parts of ``Dataset`` stand on: a node, and how a node becomes a dataset. The
methods are in the parts.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from zmqdata import nodes
from zmqdata.dataset.arguments import call_site
from zmqdata.dataset.resuming import DatasetIterator

D = TypeVar("D")


class DatasetMethods(Generic[D]):
    """Base of the classes that share out the methods of the dataset ``D`` among
    them.
    """

    _node: nodes.Node

    @classmethod
    def _wrap(cls, node: nodes.Node) -> D:
        """The dataset whose last operation a node is."""
        raise NotImplementedError(
            f"{cls.__name__} is a part of a dataset: the whole wraps {node.label}"
        )

    def __iter__(self) -> DatasetIterator:
        raise NotImplementedError(
            f"{type(self).__name__} is a part of a dataset: the whole can be iterated over"
        )

    def _then(self, kind: type[nodes.Node], **parameters: Any) -> D:
        """The dataset in which one operation more follows, with the user's line that
        asked for it.
        """
        return self._wrap(kind(inputs=(self._node,), site=call_site(), **parameters))
