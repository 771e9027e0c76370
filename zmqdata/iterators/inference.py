"""Inference of a pipeline's spec: by the rules of its nodes, and by running an element
where a function decides.

The rules belong to the nodes. What was found for a node is kept as long as the node
lives, so that no function runs a second time for a spec.
"""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.elements.specs import spec_of
from zmqdata.errors import InvalidArgumentError, PipelineError, WrongTypeError
from zmqdata.iterators.base import Context, as_element, call, failure, make_iterator
from zmqdata.iterators.carried import RunningState
from zmqdata.iterators.results import as_index, nested_node
from zmqdata.nodes import known_spec

__all__ = ["first_element", "infer_spec", "known_spec"]

_found: dict[int, Any] = {}
"""Specs of living nodes, by identity: equality of nodes may compare arrays."""


def infer_spec(node: nodes.Node) -> Any:
    """Return the spec of a node's elements.

    Raises:
        InvalidArgumentError: a function decides, and the node has no element to run it
            on.
        WrongTypeError: a function returned what its operation cannot take.
        PipelineError: a function failed.

    >>> infer_spec(nodes.Batch(inputs=(nodes.Range(start=0, stop=3),), batch_size=2))
    TensorSpec(shape=(None,), dtype=int64)
    """
    if id(node) not in _found:
        spec = node.spec(infer_spec)
        _found[id(node)] = _spec_by_running(node) if spec is None else spec
        weakref.finalize(node, _found.pop, id(node), None).atexit = False
    return _found[id(node)]


def _spec_by_running(node: nodes.Node) -> Any:
    try:
        if not isinstance(node, (nodes.FlatMap, nodes.GroupByWindow, nodes.GroupByReducer)):
            return spec_of(first_element(node))
        elements = _first_elements(node)
        try:
            made = _made_of(node, *elements)
        except Exception as error:
            raise failure(node, error) from error
    except PipelineError as error:
        if isinstance(error.__cause__, WrongTypeError):
            raise WrongTypeError(f"{error.node}: {error.__cause__}") from None
        raise
    return infer_spec(made) if isinstance(made, nodes.Node) else spec_of(made)


def _first_elements(
    node: nodes.FlatMap | nodes.GroupByWindow | nodes.GroupByReducer,
) -> tuple[Any, ...]:
    """Return the first element of a node's input in a tuple; an empty tuple if an input
    of groups yields none, and its spec is known.
    """
    try:
        return (first_element(node.inputs[0]),)
    except InvalidArgumentError:
        if not isinstance(node, nodes.GroupByWindow) or known_spec(node.input) is None:
            raise
        return ()


def _made_of(
    node: nodes.FlatMap | nodes.GroupByWindow | nodes.GroupByReducer, *elements: Any
) -> Any:
    """Return what the functions of a node make of a single element, or of none: the
    node of a dataset, or an element.
    """
    if isinstance(node, nodes.FlatMap):
        return nested_node(call(node.function, *elements), node)
    key = np.int64(as_index(call(node.key_function, *elements), "key_func") if elements else 0)
    if isinstance(node, nodes.GroupByWindow):
        if node.window_size_function is not None:
            as_index(node.window_size_function(key), "window_size_func")
        group = nodes.Elements(elements=elements, empty_spec=known_spec(node.input), site=node.site)
        return nested_node(node.function(key, node.wrap(group)), node)
    initial = node.reducer.init_func(key)
    state = as_element(node.reducer.reduce_func(initial, *elements))
    RunningState(initial, "reduce_func", "init_func").check(state)
    return as_element(call(node.reducer.finalize_func, state))


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
