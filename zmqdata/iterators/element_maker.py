"""Elements of what the function of a node returns: as its declared spec says, or with
the dtype for empty lists that other elements have (decision 0041).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zmqdata.elements.conversion import are_leaves, as_element
from zmqdata.elements.declared import conformer
from zmqdata.elements.nesting import LEAF_TYPES, leaves_of, map_structure, nesting_of, places_of
from zmqdata.elements.shapes import dtype_name
from zmqdata.elements.specs import (
    ANY_OBJECT,
    NoneTensorSpec,
    TensorSpec,
    retyped_by_spec,
    with_leading_axis,
)
from zmqdata.elements.untyped import is_untyped_spec
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import MOST_ELEMENTS, has_untyped, infer_spec
from zmqdata.iterators.results import GeneratedElements
from zmqdata.nodes.base import Node, every_node


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
        finished: types of results that are elements as they are.
        is_open: True if a list was empty in all elements that were looked at.
    """

    def __init__(self, node: Node, context: Context, is_batch: bool = False) -> None:
        made = getattr(node, "generator", None)
        # A nested dataset has the spec of the operation that it belongs to.
        self._node = made.node if isinstance(made, GeneratedElements) else node
        self._is_batch = is_batch
        self._spec: Any = None
        self._is_known = context.inferring
        self.is_open = False
        declared = self._node.declared_spec
        self.finished = LEAF_TYPES
        self._conform: Callable[[Any], Any] | None = None
        if declared is not None:
            spec = with_leading_axis(declared, None) if is_batch else declared
            self._conform, self.finished = conformer(spec, _mismatch(self._node, spec)), frozenset()

    @property
    def element(self) -> Callable[[Any], Any]:
        """A function that returns the element of a result, and raises TypeError or
        ValueError if a value would change.
        """
        # No attribute, which would refer back to this object: the collector is too slow
        # for the dataset that the node holds.
        return self._conform or self._converted

    def _converted(self, value: Any) -> Any:
        kind = type(value)
        if (
            kind in LEAF_TYPES
            or (kind is dict and are_leaves(value.values()))
            or (kind is tuple and are_leaves(value))
        ):
            return value
        empties: list[Any] = []
        element = as_element(value, empties)
        return self.retyped(element) if empties or self.is_open else element

    def retyped(self, element: Any) -> Any:
        """Return an element in which untyped arrays have the dtypes of the spec.

        Raises:
            TypeError: a list that was empty in all elements that were looked at has a
                dtype now; the text names it.
        """
        spec = self.spec()
        if spec is None:
            return element
        if self.is_open:
            _refuse_late_dtype(element, spec)
        try:
            return map_structure(retyped_by_spec, element, spec)
        except (TypeError, ValueError):  # this element is nested differently
            return element

    def check_none(self, batch: Any) -> None:
        """Raise an error if a leaf of a batch is None where elements have values, or
        has values where they have None.

        Raises:
            InvalidArgumentError: it is; the text names the place.
        """
        spec = self.spec()
        if spec is None or nesting_of(spec) != nesting_of(batch):
            return
        for place, leaf, expected in zip(
            places_of(spec, "element"), leaves_of(batch), leaves_of(spec), strict=True
        ):
            if (leaf is None) != isinstance(expected, NoneTensorSpec) and expected != ANY_OBJECT:
                came, wanted = ("None", expected) if leaf is None else ("other than None", "None")
                raise InvalidArgumentError(
                    f"All values at {place} of a batch are {came}, while the spec, which the first "
                    f"element gave, says {wanted}. {MISSING}"
                )

    def spec(self) -> Any:
        """Return the spec of the elements, which is found at the first call; None if it
        is unknown.
        """
        if not self._is_known:
            self._spec, self._is_known = self._found(), True
            self.is_open = self._spec is not None and has_untyped(self._spec)
        return self._spec

    def _found(self) -> Any:
        """Return the spec; None if it is unknown, or only a job that others read could
        tell it.
        """
        if any(node.refills for node in every_node(self._node)):
            return None
        try:
            spec = infer_spec(self._node, past_failures=True)
            return with_leading_axis(spec, None) if self._is_batch else spec
        except Exception:  # the user's functions run, and there may be no element
            return None


MISSING = (
    "Remove elements with missing values with filter(), or replace None by a value of the same "
    "dtype in a map(). A leaf that is always None stays None"
)


def _refuse_late_dtype(element: Any, spec: Any) -> None:
    """Raise an error if a leaf of which only empty lists were seen has another dtype
    than float64, which earlier elements have.
    """
    if nesting_of(element) != nesting_of(spec):
        return
    for place, leaf, expected in zip(
        places_of(spec, "element"), leaves_of(element), leaves_of(spec), strict=True
    ):
        if (
            isinstance(leaf, np.ndarray)
            and isinstance(expected, TensorSpec)
            and is_untyped_spec(expected.dtype, expected.shape)
            and leaf.dtype != expected.dtype
        ):
            raise TypeError(
                f"the list at {place} was empty in the first {MOST_ELEMENTS} elements, which have "
                f"float64 there, and this one has {dtype_name(leaf.dtype)}. State the dtype: pass "
                "map(..., output_spec=) or from_generator(..., output_signature=), or return "
                "np.asarray(values, dtype)"
            )


def _mismatch(node: Node, spec: Any) -> str:
    """Return the beginning of the error for a result that does not match its spec."""
    if node.spec_option == "output_signature":
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
