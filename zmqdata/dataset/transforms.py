"""The transformations of ``Dataset``. A part of the class in ``surface``; how they run
is in ``iterators``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zmqdata import nodes
from zmqdata.dataset.arguments import (
    MOST,
    at_least,
    call_site,
    check_alike,
    error_policy,
    flag,
    function,
    input_node,
    integer,
    optional_seed,
    optional_spec,
    parallel_calls,
)
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.elements.specs import AUTOTUNE, UNKNOWN_CARDINALITY
from zmqdata.iterators import known_spec

MOST_CYCLE_LENGTH = 1 << 20
DEFAULT_CYCLE_LENGTH = 16
"""Of interleave. A constant, where tf.data takes the number of cores: the order must
not depend on the machine.
"""


class Transformations(DatasetMethods[D]):
    """Makes datasets (``D``) out of this one."""

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        on_error: str = "raise",
        retries: int | None = None,
        max_errors: int | None = None,
        output_spec: Any = None,
    ) -> D:
        """Apply a function to each element.

        Threads help where the function waits or releases the interpreter's lock, as
        reading files, decoding and numpy on large arrays do.

        Args:
            map_func: gets a plain tuple as its arguments, anything else as one. A list
                that it returns becomes an array. An array that it returns is kept as it
                is: it must not be filled anew for the next element.
            num_parallel_calls: on how many threads; None: on the caller's. AUTOTUNE: as
                many as bring something, up to the number of cores, within 512 MiB of
                elements ahead.
            deterministic: keep the order of the elements, failures included; False: as
                the calls return. None: as ``Options.deterministic`` says, which is True
                if not set.
            on_error: ``"raise"`` a failure at its place; ``"skip"`` the element, and
                note it in ``iterator.quarantine``; ``"retry"``: raise only what fails
                ``retries`` more times.
            retries: how often to call again for an element; None: 3 for ``"retry"``, 0
                for ``"skip"``.
            max_errors: how many elements may be skipped before failures are raised;
                None: any number.
            output_spec: what its elements look like, which is believed; None: found by
                running one, when asked.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(3).enumerate().map(lambda number, x: int(number + x)))
        [0, 2, 4]
        >>> list(Dataset.range(4).map(lambda x: 6 // int(x), num_parallel_calls=2, on_error="skip"))
        [6, 3, 2]

        As ``tf.data.Dataset.map``; ``on_error``, ``retries``, ``max_errors`` and
        ``output_spec`` are ours.
        """
        given = {
            "function": function("map_func", map_func),
            "output_spec": optional_spec("output_spec", output_spec),
        }
        guarded = error_policy(on_error, retries, max_errors)
        calls = parallel_calls(num_parallel_calls, deterministic)
        if calls:
            return self._then(nodes.ParallelMap, **given, **guarded, **calls)
        return self._then(
            nodes.GuardedMap if on_error != "raise" else nodes.Map, **given, **guarded
        )

    def random_map(
        self,
        map_func: Callable[..., Any],
        seed: int | None = None,
        rerandomize_each_iteration: bool | None = True,
        *,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        on_error: str = "raise",
        retries: int | None = None,
        max_errors: int | None = None,
        output_spec: Any = None,
    ) -> D:
        """Apply a function that draws: it also gets a ``numpy.random.Generator``, as
        its last argument.

        What it draws follows from the seed, the repetition and the number of the
        element alone, so that runs can be repeated, and resumed anywhere. The generator
        is valid during the call only.

        Args:
            map_func: called as ``map_func(element, rng)``; a plain tuple becomes
                several arguments, as for ``map``.
            seed: fixes the draws; None: drawn for each iterator, or by
                ``set_random_seed``, or by the service's job.
            rerandomize_each_iteration: whether each iteration and repetition has draws
                of its own; None is True.
            num_parallel_calls, deterministic: as for ``map``; the draws are the same on
                any number of threads.
            on_error, retries, max_errors, output_spec: as for ``map``; an element draws
                the same when it is called for again.

        >>> from zmqdata.dataset import Dataset
        >>> noisy = Dataset.range(3).random_map(lambda x, rng: float(x + rng.normal()), seed=1)
        >>> list(noisy.take(2)) == list(noisy.take(2)), list(noisy)[1] == list(noisy.skip(1))[0]
        (True, True)

        Ours; in tf.data one maps over ``Dataset.random()`` and stateless operations. In
        the service the numbers count per worker.
        """
        drawn = function("map_func", map_func)
        fresh = rerandomize_each_iteration is None or flag(
            "rerandomize_each_iteration", rerandomize_each_iteration
        )
        spec = optional_spec("output_spec", output_spec)
        given = {
            "seed": optional_seed(seed),
            "rerandomize_each_iteration": fresh,
            "output_spec": spec,
        }
        guarded = error_policy(on_error, retries, max_errors)
        calls = parallel_calls(num_parallel_calls, deterministic)
        if calls:
            return self._then(nodes.ParallelRandomMap, function=drawn, **given, **guarded, **calls)
        return self._then(
            nodes.GuardedRandomMap if guarded else nodes.RandomMap,
            function=drawn,
            **given,
            **guarded,
        )

    def batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> D:
        """Stack consecutive elements of equal structure, dtypes and shapes.

        Args:
            batch_size: how many elements; the last batch may have fewer.
            drop_remainder: leave out a last batch that is not full.
            num_parallel_calls: without effect, as stacking takes less than changing
                threads for it: a ``prefetch`` behind it does it on a thread.
            deterministic: without effect; the order is that of the elements.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.range(5).batch(2, drop_remainder=True))
        [array([0, 1]), array([2, 3])]

        As ``tf.data.Dataset.batch``. In the service each worker has a remainder of its
        own.
        """
        size = at_least("batch_size", batch_size, 1)
        parallel_calls(num_parallel_calls, deterministic)  # checks them
        return self._then(
            nodes.Batch, batch_size=size, drop_remainder=flag("drop_remainder", drop_remainder)
        )

    def repeat(self, count: int | None = None) -> D:
        """Repeat the dataset ``count`` times; None or -1: for ever.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(2).repeat(2)]
        [0, 1, 0, 1]

        As ``tf.data.Dataset.repeat``.
        """
        return self._then(nodes.Repeat, count=-1 if count is None else at_least("count", count, -1))

    def take(self, count: int) -> D:
        """At most the first ``count`` elements; -1: all.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(9).take(2)]
        [0, 1]

        As ``tf.data.Dataset.take``. In the service it counts per worker.
        """
        return self._then(nodes.Take, count=at_least("count", count, -1))

    def skip(self, count: int) -> D:
        """All but the first ``count`` elements; -1: nothing.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).skip(3)]
        [3, 4]

        As ``tf.data.Dataset.skip``. In the service it counts per worker.
        """
        return self._then(nodes.Skip, count=at_least("count", count, -1))

    def filter(self, predicate: Callable[..., Any]) -> D:
        """The elements for which a function returns true.

        Args:
            predicate: gets a plain tuple as its arguments, anything else as one;
                returns one bool.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(5).filter(lambda x: x % 2 == 1)]
        [1, 3]

        As ``tf.data.Dataset.filter``.
        """
        return self._then(nodes.Filter, predicate=function("predicate", predicate))

    def enumerate(self, start: int = 0) -> D:
        """Pairs of a running number (np.int64) and the element.

        >>> from zmqdata.dataset import Dataset
        >>> [(int(number), int(x)) for number, x in Dataset.range(5, 7).enumerate(start=1)]
        [(1, 5), (2, 6)]

        As ``tf.data.Dataset.enumerate``. In the service it counts per worker.
        """
        return self._then(nodes.Enumerate, start=at_least("start", start, -MOST - 1, MOST))

    def flat_map(self, map_func: Callable[..., Any]) -> D:
        """Make a dataset of each element, and join their elements, one dataset after
        the other.

        Args:
            map_func: returns a ``Dataset``; gets a plain tuple as its arguments,
                anything else as one.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(4).flat_map(lambda n: Dataset.range(n))]
        [0, 0, 1, 0, 1, 2]

        As ``tf.data.Dataset.flat_map``. In the service its input is split, the datasets
        that it makes are not.
        """
        return self._then(nodes.FlatMap, function=function("map_func", map_func))

    def interleave(
        self,
        map_func: Callable[..., Any],
        cycle_length: int | None = None,
        block_length: int | None = None,
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
    ) -> D:
        """Make a dataset of each element, and join their elements, several datasets in
        turn.

        Args:
            map_func: as for ``flat_map``.
            cycle_length: how many datasets are open at a time; None or AUTOTUNE: 16.
            block_length: how many elements are taken from one before the next has its
                turn; None: 1.
            num_parallel_calls: how many datasets are opened, and how many read, at the
                same time, ahead and on threads; None: none. AUTOTUNE: as many as there
                are cores, for opening as for ``map``.
            deterministic: keep the order; False: take from whichever dataset has an
                element. None: as the options say.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(0, 30, 10).interleave(lambda n: Dataset.range(n, n + 2), 2)]
        [0, 10, 1, 11, 20, 21]

        As ``tf.data.Dataset.interleave``, where AUTOTUNE is the number of cores.
        """
        cycle = DEFAULT_CYCLE_LENGTH
        if cycle_length not in (None, AUTOTUNE):
            cycle = at_least("cycle_length", cycle_length, 1, MOST_CYCLE_LENGTH)
        block = 1 if block_length is None else at_least("block_length", block_length, 1)
        made = function("map_func", map_func)
        calls = parallel_calls(num_parallel_calls, deterministic)
        kind = nodes.ParallelInterleave if calls else nodes.Interleave
        return self._then(kind, function=made, cycle_length=cycle, block_length=block, **calls)

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = True,
    ) -> D:
        """Draw elements at random from a buffer that is kept full.

        An element that four times the size of the buffer went past is handed out, which
        keeps iterator states small.

        Args:
            buffer_size: how many elements it holds; UNKNOWN_CARDINALITY: all of them.
            seed: fixes the orders; None: drawn for each iterator, or by
                ``set_random_seed``, or by the service's job.
            reshuffle_each_iteration: whether each iteration and repetition has an order
                of its own; None is True.

        >>> from zmqdata.dataset import Dataset
        >>> sorted(int(x) for x in Dataset.range(5).shuffle(3, seed=1))
        [0, 1, 2, 3, 4]

        As ``tf.data.Dataset.shuffle``; the orders themselves are ours.
        """
        size = integer("buffer_size", buffer_size)
        if size < 1 and size != UNKNOWN_CARDINALITY:
            raise ValueError(
                "buffer_size must be greater than zero, or UNKNOWN_CARDINALITY to hold all; got "
                f"{size}"
            )
        reshuffle = (
            True
            if reshuffle_each_iteration is None
            else flag("reshuffle_each_iteration", reshuffle_each_iteration)
        )
        held = None if size == UNKNOWN_CARDINALITY else size
        drawn = optional_seed(seed)
        return self._then(
            nodes.Shuffle, buffer_size=held, seed=drawn, reshuffle_each_iteration=reshuffle
        )

    def prefetch(self, buffer_size: int) -> D:
        """Prepare elements ahead, in a thread.

        Args:
            buffer_size: how many elements; AUTOTUNE: as many as it takes to bridge what
                was measured, within ``autotune.ram_budget`` of the options or 512 MiB;
                0: none.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(3).prefetch(2)]
        [0, 1, 2]

        As ``tf.data.Dataset.prefetch``.
        """
        return self._then(
            nodes.Prefetch, buffer_size=at_least("buffer_size", buffer_size, AUTOTUNE)
        )

    def concatenate(self, dataset: Any) -> D:
        """All elements of this dataset, then all of another.

        Raises:
            TypeError: their elements are known to differ in nesting or dtype.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(2).concatenate(Dataset.range(7, 9))]
        [0, 1, 7, 8]

        As ``tf.data.Dataset.concatenate``.
        """
        other = input_node("concatenate()", dataset)
        check_alike("concatenate()", known_spec(self._node), known_spec(other))
        return self._wrap(nodes.Concatenate(inputs=(self._node, other), site=call_site()))
