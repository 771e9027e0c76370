"""The transformations of ``Dataset``. A mixin of the class in ``surface``;
``iterators`` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqdata import operations
from zmqdata.config.checks import OnError, at_least, function, integer, optional_seed, positive
from zmqdata.dataset.arguments import (
    MOST,
    call_site,
    element_count,
    error_policy,
    flag,
    input_node,
    optional_spec,
    parallel_calls,
)
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.dataset.refusals import DATASET, check_alike, check_collate_call, check_return
from zmqdata.elements.specs import AUTOTUNE, UNKNOWN_CARDINALITY
from zmqdata.errors import InvalidArgumentError
from zmqdata.nodes.base import Node

MOST_CYCLE_LENGTH = 1 << 20
DEFAULT_CYCLE_LENGTH = 16
"""The default cycle length of interleave, where tf.data has the number of cores; a
constant keeps the order independent of the machine.
"""


class Transformations(DatasetMethods[D]):
    """Methods that transform this dataset into another dataset (``D``)."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        on_error: OnError = "raise",
        retries: int | None = None,
        max_errors: int | None = None,
        output_spec: Any = None,
    ) -> D:
        """Apply a function to each element.

        Threads help if the function waits or releases the global interpreter lock, as
        reading files, decoding and numpy on large arrays do.

        Args:
            map_func: gets a plain tuple as several arguments, anything else as a single
                argument. A list or tensor that it returns becomes an array of the same
                values, or is an error. An empty list has the dtype that ``output_spec``
                or other elements give. An array that it returns is kept without a copy,
                so the function must not reuse it for the next element.
            num_parallel_calls: number of threads; None: the caller's thread. AUTOTUNE:
                as many as increase the throughput, up to the number of cores, with at
                most 512 MiB of elements ahead.
            deterministic: True keeps the order of the elements, including failures;
                False yields results as the calls return. None: as
                ``Options.deterministic`` says, by default True.
            on_error: ``"raise"`` raises a failure at its place. ``"skip"`` skips the
                element and records it in ``iterator.quarantine``. ``"retry"`` raises
                only failures that persist after ``retries`` retries.
            retries: number of retries for an element; None: 3 for ``"retry"``, 0 for
                ``"skip"``.
            max_errors: number of elements that may be skipped before failures are
                raised; None: any number.
            output_spec: spec of the resulting elements. Each is cast to it: floats may
                be rounded, any other change is an error. None: found on request by
                running an element, or up to 100 if lists in it are empty.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(3).enumerate().map(lambda number, x: int(number + x)))
        [0, 2, 4]
        >>> numbers = Dataset.range(4)
        >>> list(numbers.map(lambda x: 6 // int(x), 2, on_error="skip"))
        [6, 3, 2]

        Equivalent of ``tf.data.Dataset.map``, which lacks ``on_error``, ``retries``,
        ``max_errors`` and ``output_spec``.
        """
        given = {
            "function": self._called("map_func", map_func),
            "output_spec": optional_spec("output_spec", output_spec),
        }
        guarded = error_policy(on_error, retries, max_errors)
        calls = parallel_calls(num_parallel_calls, deterministic)
        if calls:
            return self._then(operations.parallel.ParallelMap, **given, **guarded, **calls)
        return self._then(
            operations.mapping.GuardedMap if on_error != "raise" else operations.mapping.Map,
            **given,
            **guarded,
        )

    def random_map(
        self,
        map_func: Callable[..., Any],
        seed: int | None = None,
        rerandomize_each_iteration: bool | None = True,
        *,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        on_error: OnError = "raise",
        retries: int | None = None,
        max_errors: int | None = None,
        output_spec: Any = None,
    ) -> D:
        """Apply a random function: it also gets a ``numpy.random.Generator``, as its
        last argument.

        Its draws follow from the seed, the repetition and the element's place in its
        source alone, so runs can be repeated, and resumed anywhere, and the service
        gives each element the draws of a local reading. The generator is valid only
        during the call.

        Args:
            map_func: called as ``map_func(element, rng)``; a plain tuple becomes
                several arguments, as for ``map``.
            seed: fixes the draws; None: drawn for each iterator, by
                ``set_random_seed``, or for the service's job. Of several operations in
                a chain with the same seed, each draws on its own. Beside each other, as
                inputs of a ``zip``, they draw the same for the same place, so that an
                image and its mask can be cropped alike; so does a dataset that occurs
                twice.
            rerandomize_each_iteration: True if each iteration and repetition has
                different draws; None means True.
            num_parallel_calls, deterministic: as for ``map``; the draws are the same on
                any number of threads.
            on_error, retries, max_errors, output_spec: as for ``map``; a retry of an
                element draws the same numbers.

        >>> from zmqdata.dataset import Dataset
        >>> numbers = Dataset.range(3)
        >>> noisy = numbers.random_map(lambda x, rng: float(x + rng.normal()), seed=1)
        >>> list(noisy.take(2)) == list(noisy.take(2))
        True
        >>> list(noisy)[1] == list(noisy.skip(1))[0]
        True

        Has no counterpart in tf.data, where pipelines map over ``Dataset.random()`` and
        stateless operations. With the service, elements that have no place in a source
        (windows, groups, cached elements) draw by their number in their task.
        """
        fresh = flag("rerandomize_each_iteration", rerandomize_each_iteration, True)
        given = {
            "function": self._called("map_func", map_func, more=1),
            "seed": optional_seed(seed),
            "rerandomize_each_iteration": fresh,
            "output_spec": optional_spec("output_spec", output_spec),
        }
        guarded = error_policy(on_error, retries, max_errors)
        calls = parallel_calls(num_parallel_calls, deterministic)
        if calls:
            return self._then(operations.random_map.ParallelRandomMap, **given, **guarded, **calls)
        return self._then(
            operations.random_map.GuardedRandomMap if guarded else operations.random_map.RandomMap,
            **given,
            **guarded,
        )

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        output_spec: Any = None,
    ) -> D:
        """Stack consecutive elements of equal structure, dtypes and shapes, or combine
        consecutive elements of any kind by a function.

        Texts and bytes become an array of numpy's, in which each is as wide as the
        longest. They become an array of objects if it would take more than 16 MB and
        more than eight times their UTF-8, or if one of them ends with NUL, which numpy
        strips. ``element_spec`` says ``str`` or ``bytes`` for both.

        Args:
            batch_size: number of elements in a batch; the last batch may have fewer.
            drop_remainder: drop a last batch that is not full.
            num_parallel_calls: number of threads that call ``collate_fn``, as for
                ``map``. Without ``collate_fn`` it has no effect, because stacking costs
                less than switching threads. A following ``prefetch`` moves it to a
                thread.
            deterministic: as for ``map`` with ``collate_fn``, otherwise without effect:
                the order is that of the elements.
            collate_fn: makes a batch of the list of its elements. Elements are passed
                as they are: tuples stay tuples, and texts and None are allowed. The
                result is treated like that of a function of ``map``: tensors become
                arrays, and a list becomes a single array. Return several arrays as a
                tuple or dict; torch's ``default_collate`` returns a list for elements
                that are tuples. None: stack the elements.
            output_spec: spec of the batches that ``collate_fn`` returns, as for
                ``map``; an axis of None allows a last batch with fewer elements. None:
                found on request by running a batch.

        Raises:
            TypeError: ``collate_fn`` cannot be called with one argument, or
                ``output_spec`` is given without it.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(5).batch(2, drop_remainder=True))
        [array([0, 1]), array([2, 3])]
        >>> words = Dataset.from_list(["a", "bcd", "ef"])
        >>> list(words.batch(2, collate_fn=lambda some: (len(some), "+".join(some))))
        [(2, 'a+bcd'), (1, 'ef')]

        Equivalent of ``tf.data.Dataset.batch``, which lacks ``collate_fn`` and
        ``output_spec``; ``collate_fn`` is that of PyTorch's ``DataLoader``. With the
        service, each worker has its own remainder, and errors of ``collate_fn`` number
        the batches of a task.
        """
        size = positive("Batch size", "batch_size", batch_size)
        drop = flag("drop_remainder", drop_remainder)
        calls = parallel_calls(num_parallel_calls, deterministic)
        spec = optional_spec("output_spec", output_spec)
        if collate_fn is None:
            if spec is not None:
                raise TypeError(
                    "batch() got `output_spec`, the spec of what `collate_fn` returns, and no "
                    "`collate_fn`. The spec of stacked elements follows from that of the elements. "
                    "Pass collate_fn=, or leave output_spec= out"
                )
            return self._then(operations.batch.Batch, batch_size=size, drop_remainder=drop)
        check_collate_call(function("collate_fn", collate_fn))
        lists = operations.batch.ListBatch(
            inputs=(self._node,), site=call_site(), batch_size=size, drop_remainder=drop
        )
        return self._wrap(
            (operations.parallel.ParallelCollate if calls else operations.mapping.Collate)(
                inputs=(lists,), site=lists.site, function=collate_fn, output_spec=spec, **calls
            )
        )

    def repeat(self, count: int | None = None) -> D:
        """Repeat the dataset ``count`` times; None or a negative number: endlessly.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(2).repeat(2)]
        [0, 1, 0, 1]

        Equivalent of ``tf.data.Dataset.repeat``.
        """
        return self._then(
            operations.repeat.Repeat, count=-1 if count is None else element_count(count)
        )

    def take(self, count: int) -> D:
        """Yield at most the first ``count`` elements; a negative number: all.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(9).take(2)]
        [0, 1]

        Equivalent of ``tf.data.Dataset.take``. With the service, it counts per worker.
        """
        return self._then(operations.limits.Take, count=element_count(count))

    def skip(self, count: int) -> D:
        """Skip the first ``count`` elements; a negative number: all.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).skip(3)]
        [3, 4]

        Equivalent of ``tf.data.Dataset.skip``. With the service, it counts per worker.
        """
        return self._then(operations.limits.Skip, count=element_count(count))

    def filter(self, predicate: Callable[..., Any]) -> D:
        """Yield the elements for which a function returns true.

        Args:
            predicate: gets a plain tuple as several arguments, anything else as a
                single argument; returns a bool.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).filter(lambda x: x % 2 == 1)]
        [1, 3]

        Equivalent of ``tf.data.Dataset.filter``.
        """
        return self._then(operations.mapping.Filter, predicate=self._called("predicate", predicate))

    def enumerate(self, start: int = 0) -> D:
        """Yield pairs of a running number (np.int64) and the element.

        >>> from zmqdata.dataset import Dataset
        >>> ds = Dataset.range(5, 7).enumerate(start=1)
        >>> [(int(number), int(x)) for number, x in ds]
        [(1, 5), (2, 6)]

        Equivalent of ``tf.data.Dataset.enumerate``. With the service, it counts per
        worker.
        """
        return self._then(
            operations.limits.Enumerate, start=at_least("start", start, -MOST - 1, MOST)
        )

    def flat_map(self, map_func: Callable[..., Any]) -> D:
        """Make a dataset of each element, and concatenate these datasets.

        Args:
            map_func: returns a ``Dataset``, or is a generator function, which yields
                the elements; gets a plain tuple as several arguments, anything else as
                a single argument.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(4).flat_map(lambda n: Dataset.range(n))]
        [0, 0, 1, 0, 1, 2]

        Equivalent of ``tf.data.Dataset.flat_map``. With the service, its input is
        split, but the datasets that it makes are not.
        """
        made = self._called("map_func", map_func)
        check_return("map_func", made, DATASET)
        return self._then(operations.nested.FlatMap, function=made)

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> D:
        """Make a dataset of each element, and yield elements of several datasets in
        turn.

        Args:
            map_func: as for ``flat_map``.
            cycle_length: number of datasets open at a time; None or AUTOTUNE:
                ``num_parallel_calls`` if it is a number below 16, otherwise 16.
            block_length: number of consecutive elements from a dataset before the next
                dataset has its turn; None: 1.
            num_parallel_calls: number of datasets opened, and number read, concurrently
                ahead on threads; None: none. AUTOTUNE: the number of cores for reading,
                and as for ``map`` for opening.
            deterministic: True keeps the order; False takes elements from any dataset
                that has one ready. None: as the options say.

        >>> from zmqdata.dataset import Dataset
        >>> starts = Dataset.range(0, 30, 10)
        >>> [int(x) for x in starts.interleave(lambda n: Dataset.range(n, n + 2), 2)]
        [0, 10, 1, 11, 20, 21]

        Equivalent of ``tf.data.Dataset.interleave``, where AUTOTUNE is the number of
        cores.
        """
        block = (
            1 if block_length is None else positive("Block length", "block_length", block_length)
        )
        made = self._called("map_func", map_func)
        check_return("map_func", made, DATASET)
        calls = parallel_calls(num_parallel_calls, deterministic)
        length = AUTOTUNE if cycle_length is None else integer("cycle_length", cycle_length)
        if length == AUTOTUNE:
            readers = calls.get("num_parallel_calls", AUTOTUNE)
            cycle = min(DEFAULT_CYCLE_LENGTH, DEFAULT_CYCLE_LENGTH if readers < 1 else readers)
        else:
            cycle = positive("Cycle length", "cycle_length", length, MOST_CYCLE_LENGTH)
        kind = operations.parallel.ParallelInterleave if calls else operations.nested.Interleave
        return self._then(kind, function=made, cycle_length=cycle, block_length=block, **calls)

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
    ) -> D:
        """Draw elements at random from a buffer that is kept full.

        An element is yielded at the latest when four times the buffer size of elements
        have passed it, which keeps iterator states small. If the buffer holds all of a
        source whose rows workers share, these share one permutation of it instead.

        Args:
            buffer_size: number of elements in the buffer; UNKNOWN_CARDINALITY: all
                elements.
            seed: fixes the orders; None: drawn for each iterator, by
                ``set_random_seed``, or for the service's job.
            reshuffle_each_iteration: True if each iteration and repetition has a
                different order; None means True. False without a seed: this object's
                order is drawn once for the run, so ``take`` and ``skip`` of it are
                disjoint in all pipelines and jobs. Another run draws another order,
                unless it loads a state of this one; give a seed to keep data apart for
                longer.

        >>> from zmqdata.dataset import Dataset
        >>> sorted(int(x) for x in Dataset.range(5).shuffle(3, seed=1))
        [0, 1, 2, 3, 4]

        Equivalent of ``tf.data.Dataset.shuffle``, with different orders.
        """
        size = integer("buffer_size", buffer_size)
        if size < 1 and size != UNKNOWN_CARDINALITY:
            raise InvalidArgumentError(
                "buffer_size must be greater than zero, or UNKNOWN_CARDINALITY to "
                f"hold all elements; got {size}"
            )
        reshuffle = flag("reshuffle_each_iteration", reshuffle_each_iteration, True)
        held = None if size == UNKNOWN_CARDINALITY else size
        drawn = optional_seed(seed)
        return self._then(
            operations.shuffle.Shuffle,
            buffer_size=held,
            seed=drawn,
            reshuffle_each_iteration=reshuffle,
        )

    def prefetch(self, buffer_size: int | None) -> D:
        """Prepare elements ahead, in a thread.

        Args:
            buffer_size: number of elements; AUTOTUNE or None: as many as bridge the
                measured delays, within ``autotune.ram_budget`` of the options or 512
                MiB; 0: none.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(3).prefetch(2)]
        [0, 1, 2]

        Equivalent of ``tf.data.Dataset.prefetch``.
        """
        size = AUTOTUNE if buffer_size is None else integer("buffer_size", buffer_size)
        if size < 0 and size != AUTOTUNE:
            raise InvalidArgumentError(
                f"buffer_size must be at least -1, got {size}. It must be >= 0, or -1 (AUTOTUNE) "
                "for auto-tuning"
            )
        return self._then(operations.prefetch.Prefetch, buffer_size=size)

    def concatenate(self, dataset: Any) -> D:
        """Yield all elements of this dataset, then all elements of another dataset.

        Raises:
            TypeError: their elements are known to differ in nesting or dtype.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(2).concatenate(Dataset.range(7, 9))]
        [0, 1, 7, 8]

        Equivalent of ``tf.data.Dataset.concatenate``.
        """
        other = input_node("concatenate()", dataset)
        check_alike("concatenate()", (self._node, other))
        before: tuple[Node, ...] = (self._node,)
        if isinstance(self._node, operations.combinations.Concatenate) and other is not self._node:
            # A loop that appends datasets makes one node: nested nodes would exceed
            # Python's stack.
            before = self._node.inputs
        return self._wrap(
            operations.combinations.Concatenate(inputs=(*before, other), site=call_site())
        )
