"""The constructors of ``Dataset`` from ranges, arrays, generators and file names, and
``zip``. A mixin of the class in ``surface``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zmqdata import operations
from zmqdata.config.checks import integer, optional_seed
from zmqdata.dataset import arguments
from zmqdata.dataset.arguments import (
    FileNames,
    call_site,
    file_names,
    flag,
    generator_spec,
    input_node,
    several,
    sliceable,
    store_options,
)
from zmqdata.dataset.frames import is_table
from zmqdata.dataset.parts import D
from zmqdata.dataset.tables import Tables, table_node
from zmqdata.elements.conversion import as_element, located
from zmqdata.elements.nesting import leaves_of, map_structure, nesting_of
from zmqdata.errors import InvalidArgumentError, NoFilesMatchedError
from zmqdata.files.paths import is_url
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.nodes.base import Node
from zmqdata.storage.listing import check_pattern, matching_names


class Sources(Tables[D]):
    """Constructors of datasets (``D``) from arguments alone."""

    @classmethod
    def range(cls, *args: int, output_type: Any = None, dtype: Any = None) -> D:
        """Yield the integers from start to stop, exclusive.

        Args:
            args: ``stop``, or ``start, stop``, or ``start, stop, step``, as for
                Python's ``range``.
            output_type: the numpy dtype of the elements; None: int64.
            dtype: the same, under the name that ``counter`` and numpy have for it.

        >>> from zmqdata.dataset import Dataset
        >>> [int(x) for x in Dataset.range(2, 10, 3)]
        [2, 5, 8]
        >>> [str(number.dtype) for number in Dataset.range(2, dtype="uint8")]
        ['uint8', 'uint8']

        Equivalent of ``tf.data.Dataset.range``, which ignores ``dtype``.
        """
        if not 1 <= len(args) <= 3:
            raise ValueError(
                f"range() takes stop, or start and stop, or start, stop and step; got {len(args)} "
                "numbers"
            )
        numbers = [integer("range()'s argument", number) for number in args]
        start, stop, step = [0, *numbers, 1] if len(args) == 1 else [*numbers, 1][:3]
        if step == 0:
            raise InvalidArgumentError(
                "range() got step 0, expected a positive or negative step, because the range "
                "would never end: step must be a non-zero integer"
            )
        if not all(-(2**63) <= number < 2**63 for number in (start, stop, step)):
            raise ValueError(
                f"range() got {args}, expected numbers from -2**63 to 2**63 - 1, because "
                "elements have 64 bits"
            )
        if output_type is not None and dtype is not None:
            raise TypeError("range() takes output_type or dtype, which mean the same; pass one")
        kind = "int64"
        if output_type is not None or dtype is not None:
            name = "dtype" if output_type is None else "output_type"
            given = dtype if output_type is None else output_type
            kind = arguments.dtype(f"{name} of range()", given, "iufc", "a numeric dtype").name
        return cls._wrap(
            operations.sources.Range(
                start=start, stop=stop, step=step, dtype=kind, site=call_site()
            )
        )

    @classmethod
    def from_tensors(cls, tensors: Any) -> D:
        """Return a dataset of a single element.

        Args:
            tensors: the element, any nesting of arrays, numbers and texts. Arrays are
                not copied here, so do not modify them; pass a copy of a buffer that is
                filled again.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.from_tensors({"x": [1, 2]}))
        [{'x': array([1, 2])}]

        Equivalent of ``tf.data.Dataset.from_tensors``.
        """
        return cls._wrap(operations.sources.Tensors(tensors=as_element(tensors), site=call_site()))

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> D:
        """Return a dataset of the rows of arrays.

        Args:
            tensors: an array, list or ragged tensor, or a nesting of them, with the
                same length (n > 0 or 0) in the first axis. Arrays are not copied here,
                so do not modify them; pass a copy of a buffer that is filled again. Or
                a data frame or table, whose rows become dicts, as by ``from_arrow``.

        Raises:
            ValueError: the lengths differ, or a leaf has no axis.

        >>> from zmqdata.dataset import Dataset
        >>> list(Dataset.from_tensor_slices({"x": [1, 2], "y": ["a", "b"]}))[1]
        {'x': np.int64(2), 'y': np.str_('b')}

        Equivalent of ``tf.data.Dataset.from_tensor_slices``.
        """
        if is_table(tensors):
            return cls._wrap(table_node("from_tensor_slices()", tensors))
        try:
            arrays = map_structure(sliceable, tensors)
        except (TypeError, ValueError) as error:
            raise located(tensors, sliceable, error) from None
        lengths = sorted({len(leaf) for leaf in leaves_of(arrays) if leaf is not None})
        if len(lengths) != 1:
            came = (
                f"arrays of the lengths {lengths}"
                if lengths
                else f"{tensors!r}, which contains no array"
            )
            raise ValueError(
                f"from_tensor_slices() got {came}, expected the same length in the "
                "first axis of all"
            )
        return cls._wrap(operations.sources.TensorSlices(tensors=arrays, site=call_site()))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Iterable[Any] | None = None,
        output_signature: Any = None,
    ) -> D:
        """Return a dataset of the elements that a generator yields. It is a single
        split: a single worker runs all of it.

        Args:
            generator: called with ``args`` for each iteration; returns an iterable.
                Pass a generator function, not a running generator.
            output_types: the dtype of each leaf, tf.data's argument before
                ``output_signature``.
            output_shapes: the shape of each leaf, together with ``output_types``; None
                means any.
            args: arguments for the generator, passed unchanged.
            output_signature: spec of the elements. Each element is converted and
                checked: floats may be rounded, no other value may change. None: found
                by running the generator for an element.

        >>> from zmqdata.dataset import Dataset
        >>> def count(stop):
        ...     yield from range(stop)
        >>> list(Dataset.from_generator(count, args=(3,)))
        [0, 1, 2]

        Equivalent of ``tf.data.Dataset.from_generator``. Restoring an iterator runs the
        generator again up to the iterator's position.
        """
        if not callable(generator):
            raise TypeError(
                "`generator` must be a Python callable that returns an iterable, got "
                f"a {type(generator).__name__}. Pass the function that makes it, "
                "without calling it, because its result can be run only once"
            )
        given = tuple(
            several(
                "args", () if args is None else args, "a tuple with the arguments of the generator"
            )
        )
        signature = generator_spec(output_types, output_shapes, output_signature)
        return cls._wrap(
            operations.sources.FromGenerator(
                generator=generator, args=given, output_signature=signature, site=call_site()
            )
        )

    @classmethod
    def list_files(
        cls,
        file_pattern: FileNames,
        shuffle: bool | None = None,
        seed: int | None = None,
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> D:
        """Return a dataset of the names of matching files, as absolute paths or URLs of
        type str.

        Args:
            file_pattern: a name or glob pattern, or several. ``[^a]`` is any character
                but ``a``, ``**`` any depth of folders, and a backslash escapes. Hidden
                files match, too. Relative patterns are resolved now, from the current
                folder. In a URL ``{000..099}`` is each of these numbers.
            shuffle: True if each repetition has a different order; None means True.
                Without shuffling, names are sorted.
            seed: fixes the orders.
            storage_options: arguments of the client of the store, for URLs, as JSON can
                hold them.

        Raises:
            NoFilesMatchedError: no file matches; folders do not count. It is a
                NotFoundError and an InvalidArgumentError. The files are listed again
                for each repetition.

        >>> import zmqdata.dataset
        >>> from zmqdata.dataset import Dataset
        >>> name = zmqdata.dataset.__file__
        >>> list(Dataset.list_files(name)) == [name]
        True

        Equivalent of ``tf.data.Dataset.list_files``, which lists the files only once,
        when the dataset is created.
        """
        patterns = file_names(file_pattern, "file_pattern", "a file name, a pattern, or several")
        options = store_options(storage_options)
        for pattern in filter(is_url, patterns):
            check_pattern(pattern)
        with shortage_explained("list_files"):
            found = matching_names(patterns, options)
        if not found:
            raise NoFilesMatchedError(
                "No files matched pattern: "
                f"{', '.join(map(repr, patterns)) or 'none was given'}, searched from "
                f"the folder {os.getcwd()!r}. {_pattern_hint(patterns)}"
            )
        shuffled = flag("shuffle", shuffle, True)
        return cls._wrap(
            operations.files.ListFiles(
                patterns=patterns,
                shuffle=shuffled,
                seed=optional_seed(seed),
                storage_options=options,
                site=call_site(),
            )
        )

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None) -> D:
        """Combine the elements of several datasets with the same number; end with the
        shortest dataset. The others are then asked once more, which completes caches of
        equal length.

        Args:
            args: datasets, or a single nesting of datasets in tuples, dicts and attrs
                classes, which the elements then have.
            datasets: the same as a single nesting, as in older code.

        >>> from zmqdata.dataset import Dataset
        >>> pairs = Dataset.zip(Dataset.range(3), Dataset.range(5, 7))
        >>> [(int(a), int(b)) for a, b in pairs]
        [(0, 5), (1, 6)]

        Equivalent of ``tf.data.Dataset.zip``. With the service, the pairing depends on
        which worker read which splits.
        """
        if bool(args) == (datasets is not None):
            wrong = (
                "Both `*args` and `datasets` cannot be set."
                if args
                else "Must pass at least one dataset to `zip`."
            )
            raise TypeError(
                "zip() takes datasets as its arguments, or a nesting of them as "
                f"datasets=; pass exactly one of the two. {wrong}"
            )
        nesting: Any = datasets if datasets is not None else args[0] if len(args) == 1 else args
        inputs = tuple(map(_zipped, leaves_of(nesting)))
        if not inputs:
            raise ValueError(f"zip() got {nesting!r}, expected at least one dataset")
        template = nesting_of(nesting).unflatten(range(len(inputs)))
        return cls._wrap(
            operations.combinations.Zip(inputs=inputs, template=template, site=call_site())
        )


def _zipped(leaf: Any) -> Node:
    if isinstance(leaf, list):
        raise TypeError(
            "Invalid input to `zip`. Python `list` is not supported and you should use `tuple` "
            "instead: a list in an element is an array. Write zip(*datasets) or "
            f"zip(tuple(datasets)); got a list of {len(leaf)}"
        )
    return input_node("zip()", leaf)


def _pattern_hint(patterns: tuple[str, ...]) -> str:
    """Return advice on patterns that no file matches."""
    folders = [pattern for pattern in patterns if os.path.isdir(pattern)]
    if folders:
        example = os.path.join(folders[0], "*")
        return f"{folders[0]!r} is a folder; {example!r} matches the files in it"
    return "Check the spelling; relative patterns start from that folder"
