"""The methods of ``Dataset`` that select elements, and the methods that concern the
dataset as a whole. A mixin of the class in ``surface``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from zmqdata import operations
from zmqdata.config.checks import at_least, function, integer, optional_seed, refuse
from zmqdata.dataset.arguments import call_site, flag, numbers
from zmqdata.dataset.depth import within_stack
from zmqdata.dataset.indexing import element_of
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.dataset.refusals import check_call, check_comparable, check_return
from zmqdata.elements.conversion import as_element
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import INFINITE_CARDINALITY, NoneTensorSpec, TensorSpec
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.iterators.inference import infer_spec
from zmqdata.machine.runkeys import loader_worker
from zmqdata.nodes.base import SHARD_HINT, every_node, known_spec
from zmqdata.nodes.options import Options, options_of


class Selections(DatasetMethods[D]):
    """Methods that create datasets (``D``) of some elements of this dataset."""

    def shard(self, num_shards: int, index: int) -> D:
        """Select every ``num_shards``-th element, beginning with number ``index``.

        Args:
            num_shards: number of shards.
            index: index of the shard, from 0. With ``SHARD_HINT`` as ``num_shards`` the
                service sets both arguments under ``ShardingPolicy.HINT``, and this
                value is ignored.

        Raises:
            InvalidArgumentError: the index is not between 0 and ``num_shards - 1``.
            FailedPreconditionError: these are the number and the index of a process of
                a DataLoader, and the service shares the elements among its processes
                already.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(10).shard(3, index=1)]
        [1, 4, 7]

        Equivalent of ``tf.data.Dataset.shard``. With the service, it counts per worker.
        """
        place = integer("index", index)
        if integer("num_shards", num_shards) == SHARD_HINT:
            return self._then(operations.selections.Shard, num_shards=SHARD_HINT, index=SHARD_HINT)
        count = integer("num_shards", num_shards)
        if count < 1:
            raise InvalidArgumentError(
                f"num_shards must be at least 1, got {count}. Number of shards must be greater "
                f"than zero (currently num_shards = {count})"
            )
        if not 0 <= place < count:
            hint = ". SHARD_HINT is meant for num_shards" if place == SHARD_HINT else ""
            raise InvalidArgumentError(
                f"Index must be between 0 and {count - 1} (currently index = {place}){hint}."
            )
        loader = loader_worker()
        if (
            loader is not None
            and (loader.number, loader.count) == (place, count)
            and any(node.is_shared for node in every_node(self._node))
        ):
            raise FailedPreconditionError(
                f"The {count} processes of this DataLoader share the elements of the service "
                f"already: each element goes to one of them. shard({count}, {place}) would lose "
                "the others. Leave it out"
            )
        return self._then(operations.selections.Shard, num_shards=count, index=place)

    def take_while(self, predicate: Callable[..., Any]) -> D:
        """Yield the elements before the first for which a function returns false.

        Args:
            predicate: gets a plain tuple as several arguments, anything else as a
                single argument; returns a bool.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(10).take_while(lambda x: x < 3)]
        [0, 1, 2]

        Equivalent of ``tf.data.Dataset.take_while``. With the service, each worker ends
        on its own.
        """
        return self._then(
            operations.limits.TakeWhile, predicate=self._called("predicate", predicate)
        )

    def unique(self) -> D:
        """Drop repeated elements. An element is a single array or scalar of integers or
        text.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.from_tensor_slices([1, 37, 2, 37, 2, 1]).unique()]
        [1, 37, 2]

        Equivalent of ``tf.data.Dataset.unique``. With the service, it sees only the
        elements of a worker.
        """
        check_comparable(known_spec(self._node))
        return self._then(operations.selections.Unique)

    def scan(self, initial_state: Any, scan_func: Callable[[Any, Any], Any]) -> D:
        """Map with a running state: ``state, output = scan_func(state, element)``.

        Args:
            initial_state: the first state, any nesting. States of arrays, numbers and
                texts keep iterator states small.
            scan_func: gets the state and the element as two arguments; returns the next
                state, of the nesting and dtypes of the first, and an element. A Python
                number takes the dtype of the numbers added to it.

        >>> from zmqdata.dataset import Dataset
        >>> sums = Dataset.range(5).scan(0, lambda total, x: (total + x, total + x))
        >>> [int(x) for x in sums]
        [0, 1, 3, 6, 10]

        Equivalent of ``tf.data.Dataset.scan``. With the service, each worker has its
        own state.
        """
        fold = function("scan_func", scan_func)
        check_call("scan_func", fold, 2)
        check_return("scan_func", fold)
        return self._then(
            operations.folds.Scan, initial_state=as_element(initial_state), function=fold
        )

    def ignore_errors(self, log_warning: bool = False) -> D:
        """Skip the elements for which a function failed, or which a damaged file cannot
        provide.

        Args:
            log_warning: log each of them to the logger ``zmqdata``.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(3).map(lambda x: 6 // int(x)).ignore_errors())
        [6, 3]

        Equivalent of ``tf.data.Dataset.ignore_errors``, which also swallows all other
        errors. With the service, an element that failed once is also skipped when
        another worker continues the task, so that no element is repeated. An element
        that did not fail is called again, and ends the job if it fails finally.
        """
        return self._then(
            operations.selections.IgnoreErrors, log_warning=flag("log_warning", log_warning)
        )

    def assert_cardinality(self, expected_cardinality: int) -> D:
        """Yield the same elements, and fail with the first excess element or at an
        early end.

        Args:
            expected_cardinality: a number, or ``INFINITE_CARDINALITY``. It becomes the
                cardinality of the dataset.

        Raises:
            FailedPreconditionError: while iterating, if the number of elements differs.

        >>> from zmqdata.dataset import Dataset
        >>> len(Dataset.range(6).filter(lambda x: x < 2).assert_cardinality(2))
        2

        Equivalent of ``tf.data.experimental.assert_cardinality``. It counts the
        elements of a worker: do not split such a dataset.
        """
        expected = at_least("expected_cardinality", expected_cardinality, INFINITE_CARDINALITY)
        return self._then(operations.limits.AssertCardinality, expected=expected)

    def pad_to_cardinality(self, cardinality: int, mask_key: str = "valid") -> D:
        """Append elements of zeros up to a number, and mark which elements are valid.

        Args:
            cardinality: the resulting number of elements, at least the present number.
            mask_key: the key under which each element, a dict, gets a bool: True for a
                valid element.

        >>> from zmqdata.dataset import Dataset
        >>> ds = Dataset.from_tensor_slices({"a": [1, 2]}).pad_to_cardinality(3)
        >>> [x["valid"] for x in ds]
        [True, True, False]

        Equivalent of ``tf.data.experimental.pad_to_cardinality``. Functions are run
        once to find the element_spec.
        """
        wanted, count = at_least("cardinality", cardinality, 0), self._node.cardinality
        if not isinstance(mask_key, str):
            refuse("mask_key", mask_key, "a str")
        if count < 0:
            raise ValueError(
                "The dataset passed into `pad_to_cardinality` must have a known cardinality, but "
                f"has cardinality {count} (-1 infinite, -2 unknown). Limit it with take(n), or "
                "state the number with assert_cardinality(n)"
            )
        if count > wanted:
            raise ValueError(
                f"pad_to_cardinality() got a dataset of {count} elements, expected at most "
                f"{wanted}: it must have a cardinality less than the target cardinality ({wanted})"
            )
        spec = infer_spec(self._node)
        if not isinstance(spec, dict):
            raise ValueError(
                f"pad_to_cardinality() needs elements that are dicts, these are {spec}; see map(). "
                "`pad_to_cardinality` requires its input dataset to be a dictionary."
            )
        site, output_spec = call_site(), {**spec, mask_key: TensorSpec((), np.bool_)}
        mark = MarkValid(mask_key)
        marked = operations.mapping.MarkingMap(
            inputs=(self._node,), function=mark, output_spec=output_spec, site=site
        )
        if count == wanted:
            return self._wrap(marked)  # no zeros are needed, so shapes may be unknown
        filler = operations.sources.Tensors(
            tensors={**map_structure(_zeros, spec), mask_key: False}, site=site
        )
        padding = operations.repeat.Repeat(inputs=(filler,), count=wanted - count, site=site)
        return self._wrap(operations.combinations.Concatenate(inputs=(marked, padding), site=site))

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Sequence[float],
        initial_dist: Sequence[float] | None = None,
        seed: int | None = None,
    ) -> D:
        """Drop elements at random, so that classes occur with given probabilities.
        Yields (class, element).

        Args:
            class_func: returns the class of an element, an integer from 0 to the number
                of classes, exclusive.
            target_dist: the wanted probability of each class.
            initial_dist: the present probability of each class; None: estimated while
                running.
            seed: fixes the draws of each repetition and iteration, which differ.

        >>> from zmqdata.dataset import Dataset
        >>> numbers, target = Dataset.range(10), [1.0, 0.0]
        >>> ds = numbers.rejection_resample(lambda x: int(x % 2), target, [0.5, 0.5])
        >>> [int(x) for _, x in ds]
        [0, 2, 4, 6, 8]

        Equivalent of ``tf.data.Dataset.rejection_resample``, in a single pass: an
        element occurs at most once. With the service, each task estimates the
        probabilities from its own elements, unless they are given.
        """
        target = _distribution("target_dist", target_dist)
        initial = None if initial_dist is None else _distribution("initial_dist", initial_dist)
        if initial is not None and len(initial) != len(target):
            raise InvalidArgumentError(
                f"initial_dist has {len(initial)} classes, expected {len(target)}, as many as "
                "target_dist"
            )
        made = self._called("class_func", class_func)
        drawn = optional_seed(seed)
        return self._then(
            operations.choices.RejectionResample,
            function=made,
            target=target,
            initial=initial,
            seed=drawn,
        )

    def with_options(self, options: Options) -> D:
        """Return the same dataset with options for the whole pipeline. A later setting
        overrides an earlier setting, with a warning.

        Args:
            options: see ``Options``.

        >>> from zmqdata.dataset import Dataset
        >>> options = Options()
        >>> options.deterministic = False
        >>> Dataset.range(3).with_options(options).map(abs).options()
        Options(deterministic=False)

        Equivalent of ``tf.data.Dataset.with_options``.
        """
        if not isinstance(options, Options):
            refuse("options", options, "an Options")
        self.options().merge(options)  # warns
        return self._then(operations.selections.WithOptions, settings=options.settings)

    def options(self) -> Options:
        """Return the options of the pipeline, merged from all its parts. They cannot be
        set; use ``with_options``.

        >>> from zmqdata.dataset import Dataset
        >>> Dataset.range(3).options()
        Options()

        Equivalent of ``tf.data.Dataset.options``.
        """
        return options_of(self._node).of_dataset()

    def get_single_element(self) -> Any:
        """Return the element of a dataset that has exactly one element.

        Raises:
            InvalidArgumentError: the dataset has no element, or several.

        >>> from zmqdata.dataset import Dataset
        >>> Dataset.range(3).batch(10).get_single_element()
        array([0, 1, 2])

        Equivalent of ``tf.data.Dataset.get_single_element``.
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
        """Return an element by its number, without running the elements before it.

        A shuffle has a fixed order, that of iteration, with
        ``reshuffle_each_iteration=False``. A cache in memory caches the elements up to
        this one if its input can only run in order. A cache that is full needs no
        input, and operations after it have random access.

        Args:
            index: from 0 to the cardinality, exclusive.

        Raises:
            IndexError: the dataset has no such element.
            FailedPreconditionError: the dataset is infinite, or an operation needs a
                number of elements that is unknown.
            UnimplementedError: an operation of the pipeline can yield its elements only
                in order; the text names it.

        >>> from zmqdata.dataset import Dataset
        >>> Dataset.range(1000).map(lambda x: x * x).batch(3).at(4)
        array([144, 169, 196])

        Equivalent of ``tf.data.experimental.at``.
        """
        number = integer("index", index)
        with within_stack(self._node):
            return element_of(self, self._node, number)


@dataclass(frozen=True)
class MarkValid:
    """Function that marks a dict as valid, not as padding."""

    key: str
    """The key of the mark."""

    def __call__(self, element: Any) -> Any:
        """Return the dict with the mark added."""
        return {**element, self.key: True}


def _zeros(spec: Any) -> Any:
    if isinstance(spec, NoneTensorSpec):
        return None
    if spec.shape is None or None in spec.shape:
        raise ValueError(
            f"pad_to_cardinality() appends elements of zeros, and the shape of {spec} "
            "is unknown. Give all elements the same shape with map(), and declare it "
            "with map(..., output_spec=)"
        )
    return np.zeros(tuple(length or 0 for length in spec.shape), spec.dtype)[()]


def _distribution(name: str, values: Any) -> tuple[float, ...]:
    array = numbers(name, values, "one probability for each class")
    if array.ndim != 1 or not len(array) or not (array >= 0).all() or abs(array.sum() - 1) > 1e-3:
        raise InvalidArgumentError(
            f"{name} must hold a probability for each class, with a sum of 1; got {values!r}"
        )
    return tuple(array.tolist())
