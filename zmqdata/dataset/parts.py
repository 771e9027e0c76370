"""The common base of the mixins of ``Dataset``: a node, and the conversion of a node to
a dataset. The methods belong to the mixins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from zmqdata.config.checks import function
from zmqdata.dataset.arguments import call_site
from zmqdata.dataset.refusals import check_element_call, check_return
from zmqdata.dataset.resuming import DatasetIterator
from zmqdata.dataset.seeds import number_order
from zmqdata.nodes.base import Node, known_spec
from zmqdata.recipes import name_arguments_in

D = TypeVar("D")
_PACKAGE = "zmqdata."


class DatasetMethods(Generic[D]):
    """Base of the mixins that provide the methods of the dataset ``D``."""

    _node: Node

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(_PACKAGE):
            name_arguments_in(cls)

    @classmethod
    def _wrap(cls, node: Node) -> D:
        """Return the dataset with this node as its last operation."""
        raise NotImplementedError(
            f"{cls.__name__} is a mixin of a dataset, and only the dataset itself "
            f"wraps {node.label}"
        )

    def __iter__(self) -> DatasetIterator:
        raise NotImplementedError(
            f"{type(self).__name__} is a mixin of a dataset, and only the dataset "
            "itself can be iterated over"
        )

    def _called(self, name: str, value: Any, more: int = 0) -> Callable[..., Any]:
        """Return a function of the user after checking that it takes the elements and
        returns what its argument stands for, as far as that is known.

        Args:
            name: the argument that it was given as.
            value: the function.
            more: number of arguments after the element.
        """
        called = function(name, value)
        check_element_call(name, called, known_spec(self._node), more)
        check_return(name, called)
        return called

    def _then(self, kind: type[Node], **parameters: Any) -> D:
        """Return the dataset with another operation appended, and record the user's
        line that requested it.
        """
        made = kind(inputs=(self._node,), site=call_site(), **parameters)
        number_order(made)
        return self._wrap(made)
