"""Elements of what the function of a node returns: as its declared spec says, or with
the dtype for empty lists that other elements have (decision 0041).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqdata import nodes
from zmqdata.elements.conversion import FINISHED, all_finished, as_element
from zmqdata.elements.declared import conformer
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import typed_as, with_leading_axis
from zmqdata.iterators.base import Context
from zmqdata.iterators.inference import infer_spec
from zmqdata.iterators.results import GeneratedElements


class ElementMaker:
    """Makes elements of what the function of a node returns.

    Elements of a node with a declared spec match it. For another node, an array made of
    an empty list has the dtype that the list has in the first elements. Their spec is
    found when the first empty list arrives. Threads may share a maker; at worst each of
    them finds the spec.

    Args:
        node: the node.
        context: its context.
        is_batch: True if the function returns the rows of several elements, stacked.

    Attributes:
        element: returns the element of a result; raises TypeError or ValueError if a
            value would change.
        finished: types of results that are elements as they are.
    """

    def __init__(self, node: nodes.Node, context: Context, is_batch: bool = False) -> None:
        made = getattr(node, "generator", None)
        # A nested dataset has the spec of the operation that it belongs to.
        self._node = made.node if isinstance(made, GeneratedElements) else node
        self._is_batch = is_batch
        self._spec: Any = None
        self._is_known = context.inferring
        declared = self._node.declared_spec
        self.finished = FINISHED
        self.element: Callable[[Any], Any] = self._converted
        if declared is not None:
            spec = with_leading_axis(declared, None) if is_batch else declared
            self.element, self.finished = conformer(spec, _mismatch(self._node, spec)), frozenset()

    def _converted(self, value: Any) -> Any:
        kind = type(value)
        if (
            kind in FINISHED
            or (kind is dict and all_finished(value.values()))
            or (kind is tuple and all_finished(value))
        ):
            return value
        empties: list[Any] = []
        element = as_element(value, empties)
        return self.typed(element) if empties else element

    def typed(self, element: Any) -> Any:
        """Return an element in which untyped arrays have the dtypes of the spec."""
        if not self._is_known:
            self._spec, self._is_known = self._found(), True
        if self._spec is None:
            return element

        try:
            return map_structure(typed_as, element, self._spec)
        except (TypeError, ValueError):  # this element is nested differently
            return element

    def _found(self) -> Any:
        """Return the spec; None if it is unknown, or only a job that others read could
        tell it.
        """
        if any(node.refills for node in nodes.every_node(self._node)):
            return None
        try:
            spec = infer_spec(self._node, past_failures=True)
            return with_leading_axis(spec, None) if self._is_batch else spec
        except Exception:  # the user's functions run, and there may be no element
            return None


def _mismatch(node: nodes.Node, spec: Any) -> str:
    """Return the beginning of the error for a result that does not match its spec."""
    if isinstance(node, nodes.FromGenerator):
        return (
            "`generator` yielded an element that did not match the expected structure, type or "
            f"shape: output_signature is {spec}. Change the signature (None for a length that "
            "varies), or convert the value in the generator. It yielded an element that differs"
        )
    return (
        f"the function returned an element that does not match its output_spec, which is {spec}. "
        "Change the spec (None for a length that varies), or convert the value in the function. "
        "The element differs"
    )
