"""Inference of a pipeline's spec: by the rules of its nodes, and by running an element
where a function decides.

The rules belong to the nodes. What was found for a node is kept as long as the node
lives, so that no function runs a second time for a spec.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import replace
from functools import partial, singledispatch
from typing import Any

from zmqdata.elements.nesting import leaves_of, map_structure
from zmqdata.elements.specs import DatasetSpec, TensorSpec, merge_specs, spec_of
from zmqdata.elements.untyped import is_untyped_spec
from zmqdata.errors import InvalidArgumentError, PipelineError, WrongTypeError
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.calling import is_end
from zmqdata.iterators.context import Context
from zmqdata.iterators.results import is_generated
from zmqdata.nodes.base import ByNode, Node, Unary, every_node, known_spec

MOST_ELEMENTS = 100
"""Limit of elements that are run to find the dtype of a list that is empty in all of
them.
"""

__all__ = ["first_element", "infer_spec", "known_spec"]

_found = ByNode()


def infer_spec(node: Node, past_failures: bool = False) -> Any:
    """Return the spec of a node's elements.

    Args:
        node: the node.
        past_failures: True to run further elements if a function fails.

    Raises:
        InvalidArgumentError: a function decides, and the node has no element to run it
            on.
        WrongTypeError: a function returned what its operation cannot take.
        PipelineError: a function failed.

    >>> from zmqdata.operations.sources import Range
    >>> from zmqdata.operations.batch import Batch
    >>> infer_spec(Batch(inputs=(Range(start=0, stop=3),), batch_size=2))
    TensorSpec(shape=(None,), dtype=int64)
    """
    if node not in _found:
        infer = partial(infer_spec, past_failures=True) if past_failures else infer_spec
        spec = node.spec(infer)
        _found[node] = _checked_spec(node, past_failures) if spec is None else spec
    return _found[node]


def _checked_spec(node: Node, past_failures: bool) -> Any:
    try:
        return spec_by_running(node, past_failures)
    except PipelineError as error:
        if isinstance(error.__cause__, WrongTypeError):
            raise WrongTypeError(f"{error.node}: {error.__cause__}") from None
        raise


@singledispatch
def spec_by_running(node: Node, past_failures: bool) -> Any:
    """Return the spec of a node's elements, found by running elements.

    An operation whose elements are datasets, or that would run more than one element
    for it, registers its own function.
    """
    return spec_of_elements(node, past_failures)


def spec_of_nested(
    node: Unary, made: Callable[[Any], Node], of_none: Callable[[], Node] | None = None
) -> Any:
    """Return the spec of the first nested dataset, and of following ones as long as
    they have no elements, or only empty lists.

    Args:
        node: the operation.
        made: makes the node of the dataset of an element.
        of_none: makes the node of a dataset without elements; None if it cannot.
    """
    spec, of_empty, error = None, None, _without_element(node)
    with closing(_first_elements(node.input)) as elements:
        for element in elements:
            inner = made(element)
            try:
                found = infer_spec(inner)
            except (PipelineError, WrongTypeError):
                raise
            except InvalidArgumentError as raised:
                if not is_generated(inner):
                    error = raised
                continue
            if not inner.cardinality:  # perhaps the rows of an empty list
                of_empty = found if of_empty is None else of_empty
                continue
            spec = _merged(spec, found)
            if not has_untyped(spec):
                return spec
    if spec is not None or of_empty is not None:
        return of_empty if spec is None else spec
    if of_none is not None:
        return infer_spec(of_none())
    return _of_empty_windows(node, lambda windows: infer_spec(made(windows)), error)


def _of_empty_windows(node: Node, found: Callable[[Any], Any], error: InvalidArgumentError) -> Any:
    """Return what a function finds for windows without elements, whose spec is known.

    Raises:
        InvalidArgumentError: ``error``, if the elements are no windows, or the function
            cannot take such windows.
    """
    makers = [one for one in every_node(node) if one.makes_windows]
    if not makers:
        raise error

    def without_elements(leaf: DatasetSpec) -> Any:
        return makers[0].empty_window(leaf.element_spec)

    try:
        return found(map_structure(without_elements, infer_spec(node.inputs[0])))
    except Exception:
        raise error from None


def spec_of_elements(
    node: Node,
    past_failures: bool,
    of_window: Callable[[Any], Any] | None = None,
    least: int = 1,
) -> Any:
    """Return the spec of the first elements, and of following ones as long as all that
    is known of a leaf is that of empty lists.

    Args:
        node: the node.
        past_failures: True to run further elements if a function fails.
        of_window: returns the spec of what a window without elements becomes; None if
            that is unknown.
        least: number of elements to look at, if there are as many.
    """
    spec = None
    with closing(_first_elements(node, past_failures)) as elements:
        for count, element in enumerate(elements, 1):
            spec = _merged(spec, spec_of(element))
            if count >= least and not has_untyped(spec):
                return spec
    if spec is not None:
        return spec
    error = _without_element(node)
    if of_window is None:
        raise error
    return _of_empty_windows(node, of_window, error)


def _merged(spec: Any, found: Any) -> Any:
    """Return the spec of elements of both specs; the first one if they do not fit."""
    try:
        return found if spec is None else merge_specs(spec, found)
    except TypeError:
        return spec


def has_untyped(spec: Any) -> bool:
    """Return True if all that a spec says of a leaf is that of empty lists."""
    return any(
        isinstance(leaf, TensorSpec) and is_untyped_spec(leaf.dtype, leaf.shape)
        for leaf in leaves_of(spec)
    )


def first_element(node: Node) -> Any:
    """Return the first element of a node, without filling buffers or caches or starting
    threads.

    Raises:
        InvalidArgumentError: the node has no element.
    """
    with closing(_first_elements(node)) as elements:
        for element in elements:
            return element
    raise _without_element(node)


def _first_elements(node: Node, past_failures: bool = False) -> Generator[Any]:
    iterator = make_iterator(_without_buffers(node), Context(inferring=True))
    try:
        for _ in range(MOST_ELEMENTS):
            try:
                yield next(iterator)
            except StopIteration:
                return
            except PipelineError as error:
                if not past_failures or is_end(error):
                    raise
    finally:
        iterator.close()


def _without_element(node: Node) -> InvalidArgumentError:
    if node.spec_option:
        remedy = f"pass the spec as {node.operation}(..., {node.spec_option}=)"
    else:
        remedy = "append a map() that returns its argument, and pass it the spec as output_spec="
    return InvalidArgumentError(
        f"The element_spec of {node.label} is inferred by running an element, and the pipeline "
        f"yields none: {remedy}"
    )


def _without_buffers(node: Node) -> Node:
    while node.holds_only:
        node = node.inputs[0]
    if not node.inputs:
        return node
    return replace(node, inputs=tuple(map(_without_buffers, node.inputs)))
