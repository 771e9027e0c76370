"""``Dataset`` and ``TextLineDataset``: running and describing pipelines. The other
methods are in ``sources``, ``batches``, ``transforms`` and the other mixins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np

from zmqdata import operations
from zmqdata.config.checks import FileCompression, SourceOnError, function, optional_size
from zmqdata.dataset.arguments import (
    FileNames,
    call_site,
    compression,
    file_names,
    flag,
    number,
    parallel_calls,
    readable,
    skips_errors,
    store_options,
)
from zmqdata.dataset.batches import Batches
from zmqdata.dataset.choices import Choices
from zmqdata.dataset.depth import within_stack
from zmqdata.dataset.describing import Description, describe, draw
from zmqdata.dataset.grouping import Groupings
from zmqdata.dataset.refusals import check_file_names, check_no_datasets
from zmqdata.dataset.resuming import DatasetIterator, NumpyIterator
from zmqdata.dataset.seeds import fixed_seed, next_seed
from zmqdata.dataset.selections import Selections
from zmqdata.dataset.sequences import Sequences
from zmqdata.dataset.sources import Sources
from zmqdata.dataset.storage import Storage
from zmqdata.dataset.transforms import DEFAULT_CYCLE_LENGTH, Transformations
from zmqdata.elements.specs import AUTOTUNE, INFINITE_CARDINALITY
from zmqdata.iterators.carried import RunningState
from zmqdata.iterators.context import Context
from zmqdata.iterators.inference import infer_spec
from zmqdata.nodes.base import Node, known_spec
from zmqdata.nodes.options import options_of
from zmqdata.pipelines import Fingerprint, fingerprint
from zmqdata.recipes import WithRecipes, missing

if TYPE_CHECKING:
    from zmqdata.dataset.profiling import Profile

# Not in the dataset itself: any attribute beside its node would become part of the
# fingerprint of a function that uses the dataset.
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
    metaclass=WithRecipes,
):
    """A description of a pipeline: the source of its elements and the operations on
    them. Immutable and cheap.

    Each method returns a new dataset; nothing runs before iteration begins. Elements
    are numpy arrays and scalars, ragged tensors or any Python object, nested in dicts,
    tuples and namedtuples. A list in an element becomes an array.

    Args:
        node: the last operation; use the static methods instead.

    >>> list(Dataset.range(6).map(lambda x: x * x).batch(4))
    [array([0, 1, 4, 9]), array([16, 25])]

    Equivalent of ``tf.data.Dataset``, based on numpy.
    """

    def __init__(self, node: Node) -> None:
        if not isinstance(node, Node):
            raise TypeError(
                f"Dataset() takes a node, got a {type(node).__name__}; use "
                "Dataset.from_tensor_slices(...)"
            )
        self._node = node
        self._iterations = 0

    @classmethod
    def _wrap(cls, node: Node) -> Dataset:
        return Dataset(node)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property of a subclass has failed, and says why
                return self.__getattribute__(name)
            raise missing(self, f"{type(self).__name__!r} object", name)

    @property
    def node(self) -> Node:
        """The last operation of the pipeline."""
        return self._node

    def __iter__(self) -> DatasetIterator:
        """Return an iterator over the elements, run in this process."""
        return self._iterator()

    def _resumed(self, state: dict[str, Any]) -> DatasetIterator:
        """Return an iterator that begins at the place of a state.

        Nothing is read before that. A reader of the service that opens its job from the
        beginning first, only to load a state, may come in the way of other ranks.

        Args:
            state: as for ``load_state_dict(state, strict=False)``.
        """
        return self._iterator(state)

    def _iterator(self, state: dict[str, Any] | None = None) -> DatasetIterator:
        options = options_of(self._node)
        context = Context(
            seed=next_seed(), fixed_seed=fixed_seed(), iteration=self._iterations, options=options
        )
        self._iterations += 1
        return DatasetIterator(self._node, context, self.fingerprint, self._count_on, state)

    def _count_on(self, iteration: int) -> None:
        """Count the next iterator as the one after this number."""
        self._iterations = iteration + 1

    def fingerprint(self) -> Fingerprint:
        """Return hashes of the pipeline, equal in every run of the same script: of its
        structure, its code and its functions.

        The result is cached, because it covers the content of all arrays.

        >>> Dataset.range(3).fingerprint() == Dataset.range(3).fingerprint()
        True

        Equivalent of ``tf.data.Dataset.fingerprint``, which is a single hash of the
        graph.
        """
        if self not in _fingerprints:
            _fingerprints[self] = fingerprint(self._node)
        return _fingerprints[self]

    def __bool__(self) -> bool:
        return True

    def cardinality(self) -> int:
        """Return the number of elements, ``INFINITE_CARDINALITY`` (-1) or
        ``UNKNOWN_CARDINALITY`` (-2).

        >>> Dataset.range(7).batch(2).cardinality()
        4

        Equivalent of ``tf.data.Dataset.cardinality``.
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
        """Shape and dtype of each leaf, in the nesting of the elements. Found once; if
        necessary, an element is run.

        >>> Dataset.range(3).enumerate().element_spec
        (TensorSpec(shape=(), dtype=int64), TensorSpec(shape=(), dtype=int64))

        Equivalent of ``tf.data.Dataset.element_spec``.
        """
        with within_stack(self._node):
            return infer_spec(self._node)

    def __repr__(self) -> str:
        """Return the pipeline as a tree with the last operation on top, each operation
        with its spec.

        >>> Dataset.range(6).take(3)  # doctest: +ELLIPSIS
        take(3) at ...: int64
        └─ range(6) at ...: int64
        """
        with within_stack(self._node):
            return draw(self._node)

    def describe(self) -> Description:
        """Return the drawing of ``repr`` with the number of elements, the splits of
        sources, the cost of restoring, and the size of a state.

        >>> print(Dataset.range(6).shuffle(3).describe().splitlines()[-1])
        state: about 36 bytes

        Has no counterpart in tf.data.
        """
        with within_stack(self._node):
            return describe(self._node)

    def profile(
        self,
        seconds: float = 5.0,
        *,
        step: Callable[[Any], object] | None = None,
        headspace: bool = False,
    ) -> Profile:
        """Run the pipeline for some seconds, or to its end, and print the cost of each
        operation with advice. Of a distributed dataset, that includes the operations
        that workers run, and the verdict of ``iter(ds).stats()``.

        Args:
            seconds: maximum duration.
            step: the work of the training loop, called with each element. None: the
                elements are only counted.
            headspace: True to run the loop on elements from memory as well, for half as
                long: so fast could training be if it never waited.

        Returns:
            The same as an object: ``operations``, ``bottleneck``, ``advice``,
            ``verdict``, ``headspace``.

        >>> slow = Dataset.range(500).map(lambda x: sum(range(20_000)))
        >>> found = slow.profile(60)  # doctest: +ELLIPSIS
        500 elements in ...
        >>> found.bottleneck.label[:4]
        'map('

        tf.data has a different profiler, in TensorBoard.
        """
        options = options_of(self._node)
        context = Context(seed=next_seed(), fixed_seed=fixed_seed(), options=options)
        from zmqdata.dataset.profiling import profile  # which knows most operations

        found = profile(
            self._node, number("seconds", seconds), context, step, flag("headspace", headspace)
        )
        print(found)
        return found

    def apply(self, transformation_func: Callable[[Dataset], Dataset]) -> Dataset:
        """Return the dataset that a function makes of this dataset, for example
        ``zmqdata.distribute(...)``.

        Raises:
            TypeError: the function does not return a dataset.

        >>> Dataset.range(3).apply(lambda dataset: dataset.repeat(2)).cardinality()
        6

        Equivalent of ``tf.data.Dataset.apply``.
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
            initial_state: the first state, returned unchanged for an empty dataset.
            reduce_func: gets the state and the element as two arguments, and returns a
                state of the same nesting and dtypes. A Python number takes the dtype of
                the numbers added to it. None, an empty dict and other objects become
                anything.

        Raises:
            WrongTypeError: the function returned a state of another nesting or dtype.
            Exception: the function raised it. It is not wrapped, as it runs in the
                calling thread like the body of a loop.

        >>> int(Dataset.range(5).reduce(0, lambda total, x: total + x))
        10

        Equivalent of ``tf.data.Dataset.reduce``.
        """
        state, fold = initial_state, function("reduce_func", reduce_func)
        states = RunningState(initial_state, "reduce_func")
        iterator = iter(self)
        try:
            for element in iterator:
                state = fold(state, element)
                if type(state) is not states.settled:
                    states.check(state)
        finally:
            iterator.close()
        return state

    def as_numpy_iterator(self) -> NumpyIterator:
        """Return an iterator over the elements with Python numbers and images converted
        to numpy, and arrays that cannot be written to. Text, bytes and other objects
        are unchanged. Its position can be saved and restored.

        Raises:
            TypeError: the elements are known to contain datasets.

        >>> list(Dataset.range(2).map(int).as_numpy_iterator())
        [np.int64(0), np.int64(1)]

        Equivalent of ``tf.data.Dataset.as_numpy_iterator``.
        """
        check_no_datasets("as_numpy_iterator", known_spec(self._node))
        return NumpyIterator(iter(self))


def files_node(
    kind: type[operations.files.Files],
    filenames: Any,
    num_parallel_reads: int | None,
    settings: Mapping[str, Any],
    on_error: str = "raise",
) -> Node:
    """Return a node that reads files, and leaves out what it cannot read if it is told
    to.

    Args:
        kind: the node that reads known names sequentially.
        filenames: a name, several, or a dataset of names.
        num_parallel_reads: number of files read concurrently; None: one.
        settings: arguments of ``kind``, beside the names.
        on_error: ``"skip"`` to leave out failures.

    Raises:
        TypeError: a dataset is known not to yield names of files.
    """
    made = _files_node(kind, filenames, num_parallel_reads, settings)
    return readable(made, skips_errors(on_error))


def _files_node(
    kind: type[operations.files.Files],
    filenames: Any,
    num_parallel_reads: int | None,
    settings: Mapping[str, Any],
) -> Node:
    if isinstance(filenames, Dataset):
        check_file_names(known_spec(filenames.node))
    opened = partial(_open_file, kind, settings)
    if num_parallel_reads is None:
        if not isinstance(filenames, Dataset):
            return kind(filenames=file_names(filenames), site=call_site(), **settings)
        return operations.nested.FlatMap(
            inputs=(filenames.node,), function=opened, site=call_site()
        )
    calls = parallel_calls(num_parallel_reads, None, "num_parallel_reads")
    cycle = DEFAULT_CYCLE_LENGTH if num_parallel_reads == AUTOTUNE else calls["num_parallel_calls"]
    site = call_site()
    if isinstance(filenames, Dataset):
        names = filenames.node
    else:
        names = operations.sources.TensorSlices(
            tensors=np.array(file_names(filenames), np.str_), site=site
        )
    return operations.parallel.ParallelInterleave(
        inputs=(names,), function=opened, cycle_length=cycle, block_length=1, site=site, **calls
    )


def _open_file(
    kind: type[operations.files.Files], settings: Mapping[str, Any], filename: Any
) -> Dataset:
    """Return the dataset of a file whose name another dataset yields."""
    return Dataset(kind(filenames=file_names(filename), site=call_site(), **settings))


class FilesDataset(Dataset):
    """Base of the datasets of files whose records need no other arguments."""

    _kind: ClassVar[type[operations.files.Files]]

    def __init__(
        self,
        filenames: FileNames | Dataset,
        compression_type: FileCompression | None = None,
        buffer_size: int | None = None,
        num_parallel_reads: int | None = None,
        *,
        on_error: SourceOnError = "raise",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        settings = {
            "compression_type": compression(compression_type),
            "buffer_size": optional_size("buffer_size", buffer_size),
            "storage_options": store_options(storage_options),
        }
        super().__init__(files_node(self._kind, filenames, num_parallel_reads, settings, on_error))


class TextLineDataset(FilesDataset):
    """The lines of text files, without line ends, as str decoded from UTF-8.

    A split is a file: with DYNAMIC sharding each file is read by a single worker.

    Args:
        filenames: a name or URL, several, or a dataset of them, read in this order.
        compression_type: ``""`` or None, ``"GZIP"``, ``"ZLIB"`` or ``"ZSTD"``.
        buffer_size: bytes read at a time; None or 0: chosen by zmqdata.
        num_parallel_reads: number of files read concurrently on threads, with a line of
            each in turn; AUTOTUNE: 16, on as many threads as cores. None: files are
            read sequentially.
        on_error: ``"skip"`` leaves out a file or record that cannot be read, and lists
            it in ``iterator.quarantine``.
        storage_options: arguments of the client of the store, for URLs.

    >>> import zmqdata.dataset
    >>> lines = TextLineDataset(zmqdata.dataset.surface.__file__)
    >>> "class TextLineDataset(FilesDataset):" in list(lines)
    True

    Equivalent of ``tf.data.TextLineDataset``, which yields bytes.
    """

    _kind = operations.files.TextLines
