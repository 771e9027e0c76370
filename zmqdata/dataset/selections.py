"""The methods of ``Dataset`` that pass elements on or not, and those about all of it. A
part of ``surface``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zmqdata import nodes
from zmqdata.dataset.arguments import (
    at_least,
    call_site,
    flag,
    function,
    integer,
    numbers,
    optional_seed,
    refuse,
)
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.elements.specs import INFINITE_CARDINALITY, TensorSpec, map_structure
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators import as_element, element_at, infer_spec
from zmqdata.nodes import SHARD_HINT, Options


class Selections(DatasetMethods[D]):
    """Makes datasets (``D``) out of some of the elements of this one."""

    def shard(self, num_shards: int, index: int) -> D:
        """Every ``num_shards``-th element, beginning with number ``index``.

        Args:
            num_shards: into how many parts the dataset is divided.
            index: which part, from 0. With ``SHARD_HINT`` as ``num_shards`` the service
                fills in both, under ``ShardingPolicy.HINT``, whatever is given here.

        Raises:
            InvalidArgumentError: there is no shard of this index.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(10).shard(3, index=1)]
        [1, 4, 7]

        As ``tf.data.Dataset.shard``. In the service it counts per worker.
        """
        place = integer("index", index)
        if integer("num_shards", num_shards) == SHARD_HINT:
            return self._then(nodes.Shard, num_shards=SHARD_HINT, index=SHARD_HINT)
        count = at_least("num_shards", num_shards, 1)
        if not 0 <= place < count:
            hint = ". SHARD_HINT is meant for num_shards" if place == SHARD_HINT else ""
            raise InvalidArgumentError(
                f"Index must be between 0 and {count - 1} (currently index = {place}){hint}."
            )
        return self._then(nodes.Shard, num_shards=count, index=place)

    def take_while(self, predicate: Callable[..., Any]) -> D:
        """The elements before the first one for which a function returns false.

        Args:
            predicate: gets a plain tuple as its arguments, anything else as one;
                returns one bool.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(10).take_while(lambda x: x < 3)]
        [0, 1, 2]

        As ``tf.data.Dataset.take_while``. In the service each worker ends by itself.
        """
        return self._then(nodes.TakeWhile, predicate=function("predicate", predicate))

    def unique(self) -> D:
        """Each element once, at its first place. Elements are one array or scalar of
        integers or text.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()]
        [1, 37, 2]

        As ``tf.data.Dataset.unique``. In the service it looks at the elements of a
        worker only.
        """
        return self._then(nodes.Unique)

    def scan(self, initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> D:
        """Map with a running state: ``state, output = scan_func(state, element)``.

        Args:
            initial_state: the first state, any nesting. Of arrays, numbers and texts it
                makes small iterator states.
            scan_func: gets the state and the element, each as one argument; returns the
                next state, nested like the first, and an element.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).scan(0, lambda total, x: (total + x, total + x))]
        [0, 1, 3, 6, 10]

        As ``tf.data.Dataset.scan``. In the service each worker has a state of its own.
        """
        fold = function("scan_func", scan_func)
        return self._then(nodes.Scan, initial_state=as_element(initial_state), function=fold)

    def ignore_errors(self, log_warning: bool = False) -> D:
        """Leave out the elements that a function failed on, or that a file is too
        damaged to give.

        Args:
            log_warning: write each of them to the log ``zmqdata``.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(3).map(lambda x: 6 // int(x)).ignore_errors())
        [6, 3]

        As ``tf.data.Dataset.ignore_errors``, which swallows all other errors, too. On
        the service, what failed once fails again when another worker goes on, so that
        no element comes twice; what did not fail is called for again, and ends the job
        if it fails for good.
        """
        return self._then(nodes.IgnoreErrors, log_warning=flag("log_warning", log_warning))

    def assert_cardinality(self, expected_cardinality: int) -> D:
        """The same elements, which must be this many: iterating fails with the first
        too much or when they end early.

        Args:
            expected_cardinality: a number, or ``INFINITE_CARDINALITY``. From now on the
                cardinality of the dataset.

        Raises:
            FailedPreconditionError: while iterating, when the number is another.

        >>> from zmqdata.dataset import Dataset
        >>> len(Dataset.range(6).filter(lambda x: x < 2).assert_cardinality(2))
        2

        As ``tf.data.experimental.assert_cardinality``. It sees what a worker sees: do
        not split such a dataset.
        """
        expected = at_least("expected_cardinality", expected_cardinality, INFINITE_CARDINALITY)
        return self._then(nodes.AssertCardinality, expected=expected)

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> D:
        """Append elements of zeros up to a number, and mark which elements are true
        ones.

        Args:
            cardinality: how many elements there shall be, at least as many as there
                are.
            mask_key: under which key each element, a dict, gets a bool: whether it is a
                true one.

        >>> from zmqdata.dataset import Dataset
        >>> [x["valid"] for x in Dataset.from_tensor_slices({"a": [1, 2]}).pad_to_cardinality(3)]
        [True, True, False]

        As ``tf.data.experimental.pad_to_cardinality``. Functions are run once to find
        the element_spec.
        """
        wanted, count = at_least("cardinality", cardinality, 0), self._node.cardinality
        if not isinstance(mask_key, str):
            refuse("mask_key", mask_key, "a str")
        if count < 0:
            raise ValueError(
                f"pad_to_cardinality() needs a dataset of known cardinality, this one has {count} "
                "(-1 infinite, -2 "
                "unknown): limit it with take(n), or state the number with assert_cardinality(n)"
            )
        if count > wanted:
            raise ValueError(
                f"pad_to_cardinality() got a dataset of {count} elements, expected at most {wanted}"
            )
        spec = infer_spec(self._node)
        if not isinstance(spec, dict):
            raise ValueError(
                f"pad_to_cardinality() needs elements that are dicts, these are {spec}; see map()"
            )
        site, output_spec = call_site(), {**spec, mask_key: TensorSpec((), np.bool_)}
        mark = MarkValid(mask_key)
        marked = nodes.Map(inputs=(self._node,), function=mark, output_spec=output_spec, site=site)
        filler = nodes.Tensors(tensors={**map_structure(_zeros, spec), mask_key: False}, site=site)
        padding = nodes.Repeat(inputs=(filler,), count=wanted - count, site=site)
        return self._wrap(nodes.Concatenate(inputs=(marked, padding), site=site))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> D:
        """Leave out elements at random, so that the classes come with given
        probabilities. Yields (class, element).

        Args:
            class_func: from an element to its class, an integer from 0 to the number of
                classes.
            target_dist: the wanted probability of each class.
            initial_dist: the probability of each class as it is; None: estimated while
                running.
            seed: fixes the draws.

        >>> from zmqdata.dataset import Dataset
        >>> ds = Dataset.range(10).rejection_resample(lambda x: int(x % 2), [1.0, 0.0], [0.5, 0.5])
        >>> [int(x) for _, x in ds]
        [0, 2, 4, 6, 8]

        As ``tf.data.Dataset.rejection_resample``, in one pass: an element comes once at
        most.
        """
        target = _distribution("target_dist", target_dist)
        initial = None if initial_dist is None else _distribution("initial_dist", initial_dist)
        if initial is not None and len(initial) != len(target):
            raise ValueError(
                f"initial_dist has {len(initial)} classes, expected {len(target)}, as many as "
                "target_dist"
            )
        made = function("class_func", class_func)
        drawn = optional_seed(seed)
        return self._then(
            nodes.RejectionResample, function=made, target=target, initial=initial, seed=drawn
        )

    def with_options(self, options: Options) -> D:
        """The same elements, with options set for the whole pipeline. Those that are
        set later win, with a warning.

        Args:
            options: see ``Options`` for which there are and what they do.

        >>> from zmqdata.dataset import Dataset
        >>> options = Options()
        >>> options.deterministic = False
        >>> Dataset.range(3).with_options(options).map(abs).options()
        Options(deterministic=False)

        As ``tf.data.Dataset.with_options``.
        """
        if not isinstance(options, Options):
            refuse("options", options, "an Options")
        self.options().merge(options)  # warns
        return self._then(nodes.WithOptions, settings=options.settings)

    def options(self) -> Options:
        """The options of the pipeline: those of all its parts. Changing what comes back
        changes no dataset.

        >>> from zmqdata.dataset import Dataset
        >>> Dataset.range(3).options()
        Options()

        As ``tf.data.Dataset.options``.
        """
        return nodes.options_of(self._node)

    def get_single_element(self) -> Any:
        """The element of a dataset that has exactly one.

        Raises:
            InvalidArgumentError: it has none, or more.

        >>> from zmqdata.dataset import Dataset
        >>> Dataset.range(3).batch(10).get_single_element()
        array([0, 1, 2])

        As ``tf.data.Dataset.get_single_element``.
        """
        iterator = iter(self)
        try:
            for element in iterator:
                for _ in iterator:
                    raise InvalidArgumentError(
                        f"Dataset had more than one element: {self._node.label}. Take one with "
                        "take(1)"
                    )
                return element
        finally:
            iterator.close()
        raise InvalidArgumentError(
            f"Dataset was empty: {self._node.label} yielded nothing, expected one element"
        )

    def at(self, index: int) -> Any:
        """One element by its number, without running all before it.

        Args:
            index: from 0 to below the cardinality.

        Raises:
            IndexError: there is no such element.
            UnimplementedError: an operation of the pipeline knows its elements in order
                only; the text names it.

        >>> from zmqdata.dataset import Dataset
        >>> Dataset.range(1000).map(lambda x: x * x).batch(3).at(4)
        array([144, 169, 196])

        As ``tf.data.experimental.at``.
        """
        number, count = integer("index", index), self._node.cardinality
        if number < 0 or 0 <= count <= number:
            limit = (
                f"0 to {count - 1}"
                if count > 0
                else "none, the dataset is empty"
                if count == 0
                else "0 upwards"
            )
            raise IndexError(
                f"at() got {number} for {self._node.label}, whose elements have the numbers {limit}"
            )
        return element_at(self._node, number)


@dataclass(frozen=True)
class MarkValid:
    """Adds to a dict that it is no padding."""

    key: str

    def __call__(self, element: Any) -> Any:
        """The dict with one key more."""
        return {**element, self.key: True}


def _zeros(spec: TensorSpec) -> Any:
    if spec.shape is None or None in spec.shape:
        raise ValueError(
            f"pad_to_cardinality() makes elements of zeros, and needs a shape for them; {spec} has "
            "none: give all "
            "elements one shape with map(), and say so with map(..., output_spec=)"
        )
    return np.zeros(tuple(length or 0 for length in spec.shape), spec.dtype)[()]


def _distribution(name: str, values: Any) -> tuple[float, ...]:
    array = numbers(name, values, "one probability for each class")
    if array.ndim != 1 or not len(array) or not (array >= 0).all() or abs(array.sum() - 1) > 1e-3:
        raise ValueError(f"{name} must be one probability for each class, 1 in sum; got {values!r}")
    return tuple(array.tolist())
