"""``Dataset`` and ``TextLineDataset``: running and describing pipelines. Their other
methods are in ``sources``, ``batches`` and ``transforms``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from zmqdata import nodes
from zmqdata.dataset.arguments import (
    call_site,
    compression,
    file_names,
    function,
    number,
    optional_size,
    parallel_calls,
)
from zmqdata.dataset.batches import Batches
from zmqdata.dataset.choices import Choices
from zmqdata.dataset.depth import within_stack
from zmqdata.dataset.describing import Description, describe, draw
from zmqdata.dataset.grouping import Groupings
from zmqdata.dataset.profiling import Profile, profile
from zmqdata.dataset.resuming import DatasetIterator
from zmqdata.dataset.seeds import fixed_seed, next_seed
from zmqdata.dataset.selections import Selections
from zmqdata.dataset.sequences import Sequences
from zmqdata.dataset.sources import Sources
from zmqdata.dataset.storage import Storage
from zmqdata.dataset.transforms import DEFAULT_CYCLE_LENGTH, Transformations
from zmqdata.elements.specs import AUTOTUNE, INFINITE_CARDINALITY, map_structure
from zmqdata.iterators import Context, infer_spec
from zmqdata.pipelines import Fingerprint, fingerprint

# Not in the dataset: what it holds beside its node would be part of the fingerprint of
# a function that uses it.
_fingerprints: WeakKeyDictionary[Dataset, Fingerprint] = WeakKeyDictionary()


class Dataset(
    Sources["Dataset"],
    Batches["Dataset"],
    Choices["Dataset"],
    Transformations["Dataset"],
    Selections["Dataset"],
    Groupings["Dataset"],
    Sequences["Dataset"],
    Storage["Dataset"],
):
    """A description of a pipeline: where elements come from and what happens to them.
    Immutable and cheap.

    Each method returns a new dataset; nothing runs before it is iterated over. Elements
    are numpy arrays and scalars, ragged tensors or any Python object, nested in dicts,
    tuples and namedtuples; a list in an element becomes an array.

    Args:
        node: the last operation; use the static methods instead.

    >>> list(Dataset.range(6).map(lambda x: x * x).batch(4))
    [array([0, 1, 4, 9]), array([16, 25])]

    As ``tf.data.Dataset``, on numpy.
    """

    def __init__(self, node: nodes.Node) -> None:
        if not isinstance(node, nodes.Node):
            raise TypeError(
                f"Dataset() takes a node, got a {type(node).__name__}; use "
                "Dataset.from_tensor_slices(...)"
            )
        self._node = node
        self._spec: tuple[Any] | None = None
        self._iterations = 0

    @classmethod
    def _wrap(cls, node: nodes.Node) -> Dataset:
        return Dataset(node)

    @property
    def node(self) -> nodes.Node:
        """The last operation of the pipeline."""
        return self._node

    def __iter__(self) -> DatasetIterator:
        """An iterator over the elements, run in this process."""
        options = nodes.options_of(self._node)
        context = Context(
            seed=next_seed(), fixed_seed=fixed_seed(), iteration=self._iterations, options=options
        )
        self._iterations += 1
        return DatasetIterator(self._node, context, self.fingerprint)

    def fingerprint(self) -> Fingerprint:
        """Two hashes of the pipeline, equal in every run of the same script: of its
        structure, and of its code.

        Found once, as the content of all arrays has a part in it.

        >>> Dataset.range(3).fingerprint() == Dataset.range(3).fingerprint()
        True

        As ``tf.data.Dataset.fingerprint``, which is one hash of the graph.
        """
        if self not in _fingerprints:
            _fingerprints[self] = fingerprint(self._node)
        return _fingerprints[self]

    def __bool__(self) -> bool:
        return True

    def cardinality(self) -> int:
        """The number of elements, ``INFINITE_CARDINALITY`` (-1) or
        ``UNKNOWN_CARDINALITY`` (-2).

        >>> Dataset.range(7).batch(2).cardinality()
        4

        As ``tf.data.Dataset.cardinality``.
        """
        with within_stack(self._node):
            return self._node.cardinality

    def __len__(self) -> int:
        count = self.cardinality()
        if count >= 0:
            return count
        if count == INFINITE_CARDINALITY:
            raise TypeError("The dataset is infinite and has no len(): limit it with take(n)")
        raise TypeError(
            "The dataset length is unknown before it has run: count with reduce(0, lambda n, _: n "
            "+ 1)"
        )

    @property
    def element_spec(self) -> Any:
        """Shape and dtype of each leaf, in the nesting of the elements. Found once, by
        running an element if it must.

        >>> Dataset.range(3).enumerate().element_spec
        (TensorSpec(shape=(), dtype=int64), TensorSpec(shape=(), dtype=int64))

        As ``tf.data.Dataset.element_spec``.
        """
        if self._spec is None:
            with within_stack(self._node):
                self._spec = (infer_spec(self._node),)
        return self._spec[0]

    def __repr__(self) -> str:
        """The pipeline as a tree, the last operation on top, each with what its
        elements look like.

        >>> Dataset.range(6).take(3)  # doctest: +ELLIPSIS
        take(3) at ...: int64
        └─ range(6) at ...: int64
        """
        with within_stack(self._node):
            return draw(self._node)

    def describe(self) -> Description:
        """As ``repr``, with how many elements come, how sources are split, what
        restoring costs, and the state's size.

        >>> print(Dataset.range(6).shuffle(3).describe().splitlines()[-1])
        state: about 36 bytes

        Ours.
        """
        with within_stack(self._node):
            return describe(self._node)

    def profile(self, seconds: float = 5.0) -> Profile:
        """Run the pipeline for some seconds, or to its end, print what each operation
        took, and what to do about it.

        Args:
            seconds: how long at most.

        Returns:
            The same as an object: ``operations``, ``bottleneck``, ``advice``.

        >>> found = Dataset.range(1000).map(lambda x: sum(range(1000))).profile(1)  # doctest: +ELLIPSIS
        1000 elements in ...
        >>> found.bottleneck.label[:4]
        'map('

        Ours; tf.data has a profiler of its own in TensorBoard.
        """
        options = nodes.options_of(self._node)
        context = Context(seed=next_seed(), fixed_seed=fixed_seed(), options=options)
        found = profile(self._node, number("seconds", seconds), context)
        print(found)
        return found

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """What a function makes of this dataset, for example
        ``zmqdata.distribute(...)``.

        Raises:
            TypeError: it returned no dataset.

        >>> Dataset.range(3).apply(lambda dataset: dataset.repeat(2)).cardinality()
        6

        As ``tf.data.Dataset.apply``.
        """
        result = function("transformation_func", transformation_func)(self)
        if not isinstance(result, Dataset):
            raise TypeError(
                f"`transformation_func` must return a Dataset; got {result!r} of type "
                f"{type(result).__name__}. Did the function forget to return?"
            )
        return result

    def reduce(self, initial_state: Any, reduce_func: Callable[[Any, Any], Any]) -> Any:
        """Run the whole dataset and fold it: ``state = reduce_func(state, element)``
        for each element.

        Args:
            initial_state: the first state, returned as it is when there is no element.
            reduce_func: gets the state and the element, each as one argument.

        >>> int(Dataset.range(5).reduce(0, lambda total, x: total + x))
        10

        As ``tf.data.Dataset.reduce``.
        """
        state, fold = initial_state, function("reduce_func", reduce_func)
        iterator = iter(self)
        try:
            for element in iterator:
                state = fold(state, element)
        finally:
            iterator.close()
        return state

    def as_numpy_iterator(self) -> Iterator[Any]:
        """The elements with Python numbers made numpy ones. Text, bytes and other
        objects stay as they are.

        >>> list(Dataset.range(2).map(int).as_numpy_iterator())
        [np.int64(0), np.int64(1)]

        As ``tf.data.Dataset.as_numpy_iterator``.
        """
        return (map_structure(_as_numpy, element) for element in self)


def _as_numpy(leaf: Any) -> Any:
    return np.asarray(leaf)[()] if isinstance(leaf, (bool, int, float, complex)) else leaf


def opened_files(
    filenames: Any, num_parallel_reads: int | None, opened: Callable[[Any], Dataset]
) -> nodes.Node | None:
    """A node that opens each file by a function; None where names that are known are
    read one after the other.
    """
    if num_parallel_reads is None:
        if not isinstance(filenames, Dataset):
            return None
        return nodes.FlatMap(inputs=(filenames.node,), function=opened, site=call_site())
    calls = parallel_calls(num_parallel_reads, None, "num_parallel_reads")
    cycle = DEFAULT_CYCLE_LENGTH if num_parallel_reads == AUTOTUNE else calls["num_parallel_calls"]
    site = call_site()
    if isinstance(filenames, Dataset):
        names = filenames.node
    else:
        names = nodes.TensorSlices(tensors=np.array(file_names(filenames), np.str_), site=site)
    return nodes.ParallelInterleave(
        inputs=(names,), function=opened, cycle_length=cycle, block_length=1, site=site, **calls
    )


class TextLineDataset(Dataset):
    """The lines of text files, without line ends, as str decoded from UTF-8.

    A split is a file: with DYNAMIC sharding each file is read by one worker.

    Args:
        filenames: a name, several, or a dataset of names, read in this order.
        compression_type: ``""`` or None, ``"GZIP"`` or ``"ZLIB"``.
        buffer_size: bytes read at a time; None or 0: chosen by zmqdata.
        num_parallel_reads: how many files are read at a time, on threads, a line of
            each in turn; AUTOTUNE: 16, on as many threads as there are cores. None: one
            after the other.

    >>> import zmqdata.dataset
    >>> "class TextLineDataset(Dataset):" in list(TextLineDataset(zmqdata.dataset.surface.__file__))
    True

    As ``tf.data.TextLineDataset``, which yields bytes.
    """

    def __init__(
        self,
        filenames: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Dataset,
        compression_type: str | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
    ) -> None:
        packed, size = compression(compression_type), optional_size("buffer_size", buffer_size)
        opened = partial(TextLineDataset, compression_type=packed, buffer_size=size)
        super().__init__(
            opened_files(filenames, num_parallel_reads, opened)
            or nodes.TextLines(
                filenames=file_names(filenames),
                compression_type=packed,
                buffer_size=size,
                site=call_site(),
            )
        )
