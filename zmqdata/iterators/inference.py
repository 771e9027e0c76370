"""Inference of a pipeline's spec: by the rules of its nodes, and by running an element
where a function decides.

The rules belong to the nodes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.elements.specs import spec_of
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators.base import Context, call, failure, make_iterator
from zmqdata.nodes import known_spec

__all__ = ["first_element", "infer_spec", "known_spec", "nested_node"]


def infer_spec(node: nodes.Node) -> Any:
    """Return the spec of a node's elements.

    Raises:
        InvalidArgumentError: a function decides, and the node has no element to run it
            on.
        PipelineError: the function failed.

    >>> infer_spec(nodes.Batch(inputs=(nodes.Range(start=0, stop=3),), batch_size=2))
    TensorSpec(shape=(None,), dtype=int64)
    """
    known: dict[int, Any] = {}

    def infer(inner: nodes.Node) -> Any:
        if id(inner) not in known:
            spec = inner.spec(infer)
            known[id(inner)] = _spec_by_running(inner) if spec is None else spec
        return known[id(inner)]

    return infer(node)


def _spec_by_running(node: nodes.Node) -> Any:
    if not isinstance(node, (nodes.FlatMap, nodes.GroupByWindow)):
        return spec_of(first_element(node))
    if isinstance(node, nodes.GroupByWindow):
        return infer_spec(_first_group(node))
    element = first_element(node.input)
    try:
        inner = nested_node(call(node.function, element), node)
    except Exception as error:
        raise failure(node, error) from error
    return infer_spec(inner)


def _first_group(node: nodes.GroupByWindow) -> nodes.Node:
    """Return the node that the function of group_by_window makes of the first element,
    or of an empty group if the input is empty.
    """
    try:
        elements: tuple[Any, ...] = (first_element(node.input),)
    except InvalidArgumentError:
        if node.input.cardinality or known_spec(node.input) is None:
            raise
        elements = ()
    group = nodes.Elements(elements=elements, empty_spec=known_spec(node.input), site=node.site)
    try:
        key = call(node.key_function, elements[0]) if elements else 0
        return nested_node(node.function(np.int64(key), node.wrap(group)), node)
    except Exception as error:
        raise failure(node, error) from error


def first_element(node: nodes.Node) -> Any:
    """Return the first element of a node, without filling buffers or caches or starting
    threads.

    Raises:
        InvalidArgumentError: the node has no element.
    """
    iterator = make_iterator(_without_buffers(node), Context())
    try:
        for element in iterator:
            return element
    finally:
        iterator.close()
    raise InvalidArgumentError(
        f"The element_spec of {node.label} is inferred by running an element, and the pipeline "
        "yields none: pass the spec as map(..., output_spec=) or from_generator(..., "
        "output_signature=)"
    )


def _without_buffers(node: nodes.Node) -> nodes.Node:
    holding = (nodes.Cache, nodes.Prefetch, nodes.Shuffle, nodes.Snapshot, nodes.WithOptions)
    # Only the service can run a hinted shard.
    while isinstance(node, holding) or (isinstance(node, nodes.Shard) and node.is_hint):
        node = node.inputs[0]
    if not node.inputs:
        return node
    return replace(node, inputs=tuple(map(_without_buffers, node.inputs)))


def nested_node(result: Any, node: nodes.Node) -> nodes.Node:
    """Return the node of the dataset that a function of flat_map or interleave
    returned.

    Raises:
        TypeError: the function returned something else.
    """
    inner = getattr(result, "node", None)
    if isinstance(inner, nodes.Node):
        return inner
    raise TypeError(
        f"The function of {node.operation} must return a Dataset, it returned a "
        f"{type(result).__name__}: wrap the result, for example with "
        "Dataset.from_tensor_slices(...), or use map()"
    )
