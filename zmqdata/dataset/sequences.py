"""The constructors of ``Dataset`` from Python objects and random numbers. A mixin of
the class in ``surface``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from zmqdata import operations
from zmqdata.config.checks import optional_seed, refuse
from zmqdata.dataset.arguments import call_site, flag
from zmqdata.dataset.frames import is_table, refuse_frame
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.dataset.seeds import number_order
from zmqdata.dataset.tables import table_node
from zmqdata.elements.conversion import as_element
from zmqdata.elements.nesting import map_structure
from zmqdata.elements.specs import merge_specs, retyped_by_spec, spec_of, spec_of_alike


class Sequences(DatasetMethods[D]):
    """Constructors of datasets (``D``) from sequences, iterables and seeds."""

    @classmethod
    def random(cls, seed: int | None = None, rerandomize_each_iteration: bool | None = None) -> D:
        """Yield random integers from 0 to 2**32, exclusive, as np.int64, without end.

        Args:
            seed: fixes the numbers; None: drawn for each iterator, by
                ``set_random_seed``, or for the service's job.
            rerandomize_each_iteration: True if each repetition, and with a seed each
                iterator, too, has different numbers; None means False.

        >>> from zmqdata.dataset import Dataset
        >>> numbers = Dataset.random(seed=4).take(3)
        >>> list(numbers) == list(numbers), len(set(numbers))
        (True, 3)

        Equivalent of ``tf.data.Dataset.random``, with different numbers. With the
        service, each number is a split.
        """
        anew = flag("rerandomize_each_iteration", rerandomize_each_iteration, False)
        return cls._wrap(
            operations.sequences.Random(
                seed=optional_seed(seed), rerandomize_each_iteration=anew, site=call_site()
            )
        )

    @classmethod
    def from_list(cls, elements: list[Any]) -> D:
        """Return a dataset of the elements of a list, which are not joined to arrays as
        in ``from_tensor_slices``.

        Args:
            elements: at least one element, all of the same nesting and dtypes, of any
                shapes. They are not copied here, so do not modify them. The dataset
                yields copies.

        Raises:
            TypeError: the elements differ in nesting or dtype.
            ValueError: ``elements`` is not a list, as in tf.data, or is empty.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.from_list([("a", [1]), ("b", [2, 3])]))
        [('a', array([1])), ('b', array([2, 3]))]

        Equivalent of ``tf.data.experimental.from_list``.
        """
        if not isinstance(elements, list):
            raise ValueError(
                f"`elements` must be a list, got a {type(elements).__name__}: pass list(elements) "
                "if its items are the elements"
            )
        if not elements:
            raise ValueError(
                "`elements` must not be empty: the spec of the dataset follows from its elements. "
                "Invalid `elements`. `elements` should not be empty."
            )
        kept = tuple(_converted(elements))
        spec = spec_of_alike(kept)
        if spec is None:
            spec = _merged_spec(kept)
            kept = tuple([map_structure(retyped_by_spec, element, spec) for element in kept])
        return cls._wrap(
            operations.sequences.FromList(sequence=kept, elements_spec=spec, site=call_site())
        )

    @classmethod
    def from_iterable(cls, make_iterable: Callable[[], Iterable[Any]] | Iterable[Any]) -> D:
        """Return a dataset of an object that can be iterated over repeatedly. It is a
        single split: a single worker runs all of it.

        Args:
            make_iterable: an object for which each ``iter`` starts from the beginning,
                or a function that returns an iterable.

        Raises:
            TypeError: the argument is an iterator or a generator, which can be run only
                once.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.from_iterable({"a": 1, "b": 2}.items()))
        [('a', 1), ('b', 2)]

        Has no counterpart in tf.data. Restoring an iterator runs the iterable again up
        to the iterator's position.
        """
        refuse_frame("from_iterable()", make_iterable)
        if callable(make_iterable):
            made: Callable[[], Iterable[Any]] = make_iterable
        elif not isinstance(make_iterable, Iterable):
            refuse(
                "make_iterable", make_iterable, "an iterable or a function that returns an iterable"
            )
        elif iter(make_iterable) is make_iterable:
            raise TypeError(
                f"from_iterable() got a {type(make_iterable).__name__}, which can be "
                "run only once. Pass the iterable itself, or the function that makes "
                "it, without calling it"
            )
        else:
            made = operations.sequences.Reiterated(make_iterable)
        return cls._wrap(operations.sequences.FromIterable(generator=made, site=call_site()))

    @classmethod
    def from_source(
        cls,
        seq: Any,
        *,
        shuffle: bool = False,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
    ) -> D:
        """Return a dataset of ``seq[0]`` to ``seq[len(seq) - 1]`` for a map-style
        dataset, a list, an array or a memory map.

        Args:
            seq: an object with ``__len__`` and ``__getitem__``. It is not copied here,
                so do not modify it. Arrays and tensors that it returns are copied, and
                lists become arrays. A data frame or table is read by its rows, as by
                ``from_arrow``.
            shuffle: read all elements in a random order, which needs no memory.
            seed: fixes the orders; None: drawn for each iterator, or by
                ``set_random_seed``.
            reshuffle_each_iteration: True if each iteration and repetition has a
                different order.

        Raises:
            TypeError: ``seq`` lacks one of the two methods, or is a column or frame
                whose index means a label, and that Arrow cannot read.
            ValueError: a seed is given without ``shuffle``.

        >>> from zmqdata.dataset import Dataset
        >>> letters = Dataset.from_source("abcdef", shuffle=True, seed=1)
        >>> sorted(letters), list(letters) == list(letters)
        (['a', 'b', 'c', 'd', 'e', 'f'], False)

        Has no counterpart in tf.data. A split is an index: with the service, the
        workers read different parts of the same order.
        """
        shuffled = flag("shuffle", shuffle)
        anew = flag("reshuffle_each_iteration", reshuffle_each_iteration)
        if seed is not None and not shuffled:
            raise ValueError(
                f"from_source() got seed {seed} without shuffle=True. Without "
                "shuffling the seed has no effect: leave it out, or set shuffle=True"
            )
        order: dict[str, Any] = {
            "shuffle": shuffled,
            "seed": optional_seed(seed),
            "reshuffle_each_iteration": anew,
        }
        if is_table(seq):
            return cls._wrap(table_node("from_source()", seq, **order))
        refuse_frame("from_source()", seq, by_index=True)
        if not (hasattr(seq, "__len__") and hasattr(seq, "__getitem__")) or isinstance(
            seq, Mapping
        ):
            refuse(
                "seq",
                seq,
                "an object with __len__ and __getitem__(index), such as a map-style "
                "dataset or a list",
            )
        made = operations.sequences.FromSource(sequence=seq, **order, site=call_site())
        number_order(made)
        return cls._wrap(made)


def _converted(elements: list[Any]) -> Iterator[Any]:
    for place, element in enumerate(elements):
        try:
            yield as_element(element)
        except (TypeError, ValueError) as error:
            raise type(error)(f"elements[{place}] of from_list(): {error}") from None


def _merged_spec(elements: tuple[Any, ...]) -> Any:
    spec = spec_of(elements[0])
    for place, element in enumerate(elements):
        try:
            spec = merge_specs(spec, spec_of(element))
        except TypeError as error:
            raise TypeError(
                f"`elements` must be alike, and elements[{place}] differs: {error}"
            ) from None
    return spec
