"""The constructors of ``Dataset`` from tables and files of tables. A mixin of the class
in ``surface``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from zmqdata import operations
from zmqdata.config.checks import at_least, integer, optional_seed, refuse
from zmqdata.config.settings import warn_user
from zmqdata.dataset.arguments import (
    FileNames,
    call_site,
    file_names,
    flag,
    readable,
    several,
    skips_errors,
    store_options,
)
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.dataset.seeds import number_order
from zmqdata.errors import InvalidArgumentError, NoFilesMatchedError
from zmqdata.files.paths import local_path, shown_url
from zmqdata.machine.descriptors import shortage_explained
from zmqdata.nodes.base import Node
from zmqdata.storage.listing import files_in
from zmqdata.storage.packed import (
    ENDINGS,
    compression_by_name,
    compression_of,
    zstandard_module,
)
from zmqdata.storage.reading import Identity, RemoteFile, open_file

if TYPE_CHECKING:
    from zmqdata.storage.parquet import Footer

N = TypeVar("N")
T = TypeVar("T")
_AT_A_TIME = 64
_COMPRESSIONS = ("GZIP", "ZLIB", "ZSTD", "BZ2", "XZ")
_JSON_LINES = tuple(f".{kind}{end}" for end in ("", *ENDINGS) for kind in ("jsonl", "ndjson"))
_LARGE = 10**9
"""Packed size of a row group beyond which the user is warned."""


class Tables(DatasetMethods[D]):
    """Constructors of datasets (``D``) from tables and files of tables."""

    @classmethod
    def from_parquet(
        cls,
        paths: FileNames,
        *,
        columns: Sequence[str] | None = None,
        filters: Any = None,
        batch_rows: int | None = None,
        schema: Literal["first", "union"] = "first",
        nulls: Literal["mask"] | Mapping[str, Any] | None = None,
        split: Literal["row_group", "file"] = "row_group",
        shuffle: bool = False,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        open_splits: int = 4,
        on_error: Literal["raise", "skip"] = "raise",
        storage_options: Mapping[str, Any] | None = None,
    ) -> D:
        """Return a dataset of the rows of Parquet files, as dicts by column.

        A split is a row group, which the worker that reads it opens itself. Memory
        holds the packed pages of a row group and a batch.

        Args:
            paths: a name, a glob pattern, a folder, a URL of them, or several. Of a
                folder all ``*.parquet`` files at any depth are read, except those whose
                name, or folder, begins with ``_`` or a dot.
            columns: names of the columns to read, in this order; None: all.
            filters: condition that rows must meet: ``[("a", ">", 3)]``, a list of such
                lists of which one must hold, or a ``pyarrow.compute.Expression``. Row
                groups are left out by their statistics when the dataset is made.
            batch_rows: elements are dicts of columns with up to this many rows. A batch
                ends with its row group. None: elements are rows.
            schema: ``"first"``: all files have the columns of the first, in any order.
                ``"union"``: absent columns are null. Integers, floats and texts of
                different widths are read as the widest.
            nulls: for batches. ``"mask"`` adds a column ``"<name>_valid"`` for each,
                and a dict such as ``{"n": -1}`` replaces nulls; None refuses them. A
                null is None in a row.
            split: ``"file"``: a split is a file, and only the first is opened when the
                dataset is made. Its number of elements is then unknown.
            shuffle: read the splits in a random order, and draw rows from
                ``open_splits`` of them at a time, all of which are in memory.
            seed: fixes the orders; None: drawn for each iterator, or by
                ``set_random_seed``.
            reshuffle_each_iteration: True if each iteration and repetition has a
                different order.
            open_splits: number of splits whose rows are drawn together.
            on_error: ``"skip"`` leaves out row groups and files that cannot be read or
                do not fit the first file that can, and adds them to
                ``iterator.quarantine``.
            storage_options: arguments of the client of the store, for URLs.

        Raises:
            ImportError: pyarrow is missing: ``pip install 'zmqdata[parquet]'``.
            NoFilesMatchedError: nothing matches one of the paths.
            DataServiceError: a store refuses a request.
            DataLossError: a file is damaged.
            InvalidArgumentError: a file is not Parquet, or the files differ in their
                columns; the text names file, column and types.

        >>> import os, tempfile
        >>> import pyarrow, pyarrow.parquet
        >>> from zmqdata.dataset import Dataset
        >>> path = os.path.join(tempfile.mkdtemp(), "letters.parquet")
        >>> table = pyarrow.table({"n": [1, 2, 3], "letter": ["a", "b", "c"]})
        >>> pyarrow.parquet.write_table(table, path)
        >>> next(iter(Dataset.from_parquet(path)))
        {'n': np.int64(1), 'letter': 'a'}
        >>> list(Dataset.from_parquet(path, columns=["n"], batch_rows=2))
        [{'n': array([1, 2])}, {'n': array([3])}]

        Has no counterpart in tf.data. Numbers and texts are numpy values, ``str`` and
        ``bytes``; lists are arrays, in batches ragged tensors; dates and times are
        ``datetime64`` in UTC.
        """
        with extra_named("from_parquet()", "pyarrow", "parquet"):
            from zmqdata.storage import parquet

        _check_choice("schema", schema, ("first", "union"))
        _check_choice("split", split, ("row_group", "file"))
        skipping = skips_errors(on_error)
        if split == "file" and schema == "union":
            raise InvalidArgumentError(
                'from_parquet() got schema="union" with split="file", which opens only the first '
                'file before it reads. Pass split="row_group"'
            )
        size = _batch_size("from_parquet()", batch_rows, nulls)
        drawing = _drawing("from_parquet()", shuffle, seed, reshuffle_each_iteration, open_splits)
        options = store_options(storage_options)
        listed = _table_files("from_parquet()", paths, (".parquet",), options)
        files = tuple(name for name, _ in listed)
        by_file, chosen = split == "file", None if columns is None else _names(columns)
        union = schema == "union"

        def planned(some: Sequence[tuple[str, Identity | None]]) -> parquet.TablePlan:
            names = [shown_url(name) for name, _ in some]
            footers = [*_footers(some, options, skipping)]
            return parquet.TablePlan(names, footers, chosen, filters, union, skipping)

        plan = _first_made(listed, planned, skipping) if by_file else planned(listed)
        _warn_of_size(*plan.largest())
        made = operations.parquet.Parquet(
            filenames=files,
            columns=plan.columns,
            is_whole=chosen is None and not union,
            is_union=union,
            schema=plan.schema.serialize().to_pybytes(),
            condition=plan.condition,
            batch_size=size,
            nulls=None if nulls is None else plan.nulls(nulls),
            table=None if by_file else plan.table(),
            storage_options=options,
            site=call_site(),
            **drawing,
        )
        number_order(made)
        return cls._wrap(readable(made, skipping))

    @classmethod
    def from_jsonl(
        cls,
        paths: FileNames,
        *,
        columns: Sequence[str] | None = None,
        compression: Literal["infer", "GZIP", "ZLIB", "ZSTD", "BZ2", "XZ"] | None = "infer",
        batch_rows: int | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        reshuffle_each_iteration: bool = True,
        open_splits: int = 4,
        on_error: Literal["raise", "skip"] = "raise",
        storage_options: Mapping[str, Any] | None = None,
    ) -> D:
        """Return a dataset of the lines of JSON Lines files, as ``json.loads`` gives
        them.

        A split is 32 MB of a plain file, or a whole packed file. Blank lines and a byte
        order mark are passed over.

        Args:
            paths: a name, a glob pattern, a folder, a URL, or several of them. Of a
                folder all ``*.jsonl`` and ``*.ndjson`` files at any depth are read,
                packed or not, except those whose name, or folder, begins with ``_`` or
                a dot.
            columns: keys of the objects to read, in this order; None: all. An object
                that lacks one is an error.
            compression: ``"infer"``: by the end of each name, ``.gz``, ``.zst``,
                ``.bz2`` or ``.xz``, or else by the first bytes of the file. None: no
                file is packed. Otherwise, all are packed so.
            batch_rows: elements are dicts of columns with up to this many rows, which
                must have the same keys. A batch ends with its split. None: elements are
                the values of lines.
            shuffle: read the splits in a random order, and draw lines from
                ``open_splits`` of them at a time, all of which are in memory, unpacked.
            seed: fixes the orders; None: drawn for each iterator, or by
                ``set_random_seed``.
            reshuffle_each_iteration: True if each iteration and repetition has a
                different order.
            open_splits: number of splits whose lines are drawn together.
            on_error: ``"skip"`` leaves out lines that are no JSON or lack keys, and
                what cannot be read of a file, and adds them to
                ``iterator.quarantine``.
            storage_options: arguments of the client of the store, for URLs.

        Raises:
            ImportError: a file is packed with zstd, and zstandard is missing: ``pip
                install 'zmqdata[zstd]'``.
            NoFilesMatchedError: nothing matches one of the paths.

        >>> import os, tempfile
        >>> from zmqdata.dataset import Dataset
        >>> path = os.path.join(tempfile.mkdtemp(), "letters.jsonl")
        >>> lines = ['{"letter": "a", "n": [1, 2]}', '{"letter": "b", "n": [3]}']
        >>> _ = open(path, "w").write(chr(10).join(lines))
        >>> next(iter(Dataset.from_jsonl(path)))
        {'letter': 'a', 'n': array([1, 2])}
        >>> list(Dataset.from_jsonl(path, columns=["letter"], batch_rows=2))
        [{'letter': array(['a', 'b'], dtype=object)}]

        Has no counterpart in tf.data. A list of numbers, or of equally long lists of
        numbers, is an array, and a list of texts an array of objects; any other list
        stays one. Lines may differ in their types.
        """
        _check_choice("compression", compression, ("infer", None, *_COMPRESSIONS))
        skipping = skips_errors(on_error)
        size = None if batch_rows is None else at_least("batch_rows", batch_rows, 1)
        drawing = _drawing("from_jsonl()", shuffle, seed, reshuffle_each_iteration, open_splits)
        options = store_options(storage_options)
        files = [name for name, _ in _table_files("from_jsonl()", paths, _JSON_LINES, options)]

        def look(name: str) -> tuple[bytes, Identity] | Exception:
            try:
                return operations.jsonl.look_at(name, options)
            except operations.files.READ_ERRORS as error:
                return error

        looks = [one or (b"", Identity(-1)) for one in _all_read(files, look, skipping)]
        packed = [
            compression_by_name(name) or compression_of(head)
            if compression == "infer"
            else compression or ""
            for name, (head, _) in zip(files, looks, strict=True)
        ]
        if "ZSTD" in packed:
            zstandard_module()
        made = operations.jsonl.JsonLines(
            filenames=tuple(files),
            compressions=tuple(packed),
            identities=tuple(identity for _, identity in looks),
            columns=None if columns is None else tuple(_names(columns)),
            batch_size=size,
            storage_options=options,
            site=call_site(),
            **drawing,
        )
        number_order(made)
        return cls._wrap(readable(made, skipping))

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        *,
        batch_rows: int | None = None,
        nulls: Literal["mask"] | Mapping[str, Any] | None = None,
    ) -> D:
        """Return a dataset of the rows of a table or data frame, as dicts by column.

        Args:
            table: anything with ``__arrow_c_stream__``: a data frame of pandas or
                polars, a table, batch or reader of pyarrow, a relation of DuckDB. It is
                copied here. Or the path of an Arrow IPC file or stream, or a list of
                paths: files are mapped, and workers open them under the same path.
            batch_rows: elements are dicts of columns with this many rows, the last with
                fewer. None: elements are rows.
            nulls: for batches. ``"mask"`` adds a column ``"<name>_valid"`` for each,
                and a dict such as ``{"n": -1}`` replaces nulls; None refuses them. A
                null is None in a row.

        Raises:
            ImportError: pyarrow is missing: ``pip install 'zmqdata[parquet]'``.
            TypeError: the argument is no table.
            NotFoundError: there is no such file.
            DataLossError: a file is empty or cut off.
            InvalidArgumentError: a file is not Arrow, or the files differ in their
                columns.

        >>> import pyarrow
        >>> from zmqdata.dataset import Dataset
        >>> table = pyarrow.table({"n": [1, 2, 3], "letter": ["a", "b", "c"]})
        >>> next(iter(Dataset.from_arrow(table)))
        {'n': np.int64(1), 'letter': 'a'}
        >>> list(Dataset.from_arrow(table.select(["n"]), batch_rows=2))
        [{'n': array([1, 2])}, {'n': array([3])}]

        Has no counterpart in tf.data. Elements are as those of ``from_parquet``. An
        index of pandas is a column if it has a name, and NaN in a column of floats
        stays NaN.
        """
        return cls._wrap(table_node("from_arrow()", table, batch_rows=batch_rows, nulls=nulls))

    @classmethod
    def from_hf(cls, dataset: Any, *, batch_rows: int | None = None) -> D:
        """Return a dataset of the rows of a dataset of Hugging Face's ``datasets``.

        Args:
            dataset: a ``datasets.Dataset`` with its selection and format, or a
                ``datasets.IterableDataset``, a stream, which must not shuffle. What is
                on disk travels as its path, and workers open it there. A split of a
                stream is a shard.
            batch_rows: elements are batches of this many rows, the last with fewer,
                as is the last of each shard. None: elements are rows.

        Raises:
            ImportError: datasets is missing: ``pip install 'zmqdata[hf]'``.
            TypeError: the argument is something else, such as a ``DatasetDict``.
            InvalidArgumentError: more than 100 MB of it are in memory, or a stream
                shuffles or interleaves.

        Has no counterpart in tf.data. Without a format, and with one of tables,
        elements are as those of ``from_arrow``, and nulls in batches are refused. With
        another format or a transform, and of images and sounds, they are what
        ``dataset[i]`` and ``dataset[i:j]`` return. A stream without known types, as
        after a ``map`` without ``features``, yields the values of its examples.
        """
        with extra_named("from_hf()", "datasets", "hf"):
            import datasets

            hub = operations.huggingface
        size = _batch_size("from_hf()", batch_rows, None)
        if isinstance(dataset, dict):
            raise TypeError(
                f"from_hf() got a {type(dataset).__name__} with the splits {[*dataset]}. Pass one "
                f"of them, as in dataset[{next(iter(dataset), 'train')!r}]"
            )
        if isinstance(dataset, datasets.IterableDataset):
            return cls._wrap(hub.stream_of(dataset, size, call_site()))
        if not isinstance(dataset, datasets.Dataset):
            refuse("dataset", dataset, "a datasets.Dataset or a datasets.IterableDataset")
        table = hub.table_of(dataset, size)
        if isinstance(table, hub.HubColumns):
            made: Any = hub.HubTableRows(sequence=table, batch_size=size, site=call_site())
        else:
            made = hub.HubRows(sequence=table, site=call_site())
        return cls._wrap(made)


@contextmanager
def extra_named(name: str, package: str, extra: str) -> Iterator[None]:
    """Name the extra that brings a package if what is imported within lacks it."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{name} needs {package}, which cannot be imported: {error}. Run "
            f"`pip install 'zmqdata[{extra}]'` here and on the machine of each worker"
        ) from error


def table_node(
    name: str, table: Any, *, batch_rows: Any = None, nulls: Any = None, **shuffling: Any
) -> Node:
    """Return the node of the rows of a table, or of files with tables.

    Args:
        name: what was called, for errors.
        table: the table, a path, or several paths.
        batch_rows, nulls: as in ``from_arrow``.
        shuffling: fields of the node that order the rows.
    """
    with extra_named(name, "pyarrow", "parquet"):
        arrow = operations.arrow
    size = _batch_size(name, batch_rows, nulls)
    if isinstance(table, (str, bytes, os.PathLike, list, tuple)):
        given = [table] if isinstance(table, (str, bytes, os.PathLike)) else table
        remedy = "Copy the file to this machine and the workers, as it is mapped"
        found = arrow.table_of_files([local_path(name, path, remedy) for path in given])
    elif hasattr(table, "__arrow_c_stream__"):
        found = arrow.table_of(name, table)
    else:
        refuse("table", table, "an object with `__arrow_c_stream__`, or the path of an Arrow file")
    if nulls is not None:
        arrow.checked_nulls(nulls, found.stored_schema)
    made = arrow.TableRows(
        sequence=found, batch_size=size, nulls=nulls, **shuffling, site=call_site()
    )
    number_order(made)
    return made


def _batch_size(name: str, batch_rows: Any, nulls: Any) -> int | None:
    if nulls is not None and not isinstance(nulls, Mapping):
        _check_choice("nulls", nulls, ("mask",))
    if nulls is not None and batch_rows is None:
        raise InvalidArgumentError(
            f"{name} got `nulls` without `batch_rows`: in rows, a null is None. Leave it out, or "
            "pass batch_rows"
        )
    return None if batch_rows is None else at_least("batch_rows", batch_rows, 1)


def _drawing(
    operation: str, shuffle: Any, seed: Any, reshuffles: Any, open_splits: Any
) -> dict[str, Any]:
    """Return the arguments of a source whose rows may be drawn."""
    shuffled = flag("shuffle", shuffle)
    if seed is not None and not shuffled:
        raise ValueError(
            f"{operation} got seed {integer('seed', seed)} without shuffle=True. Without "
            "shuffling the seed has no effect: leave it out, or set shuffle=True"
        )
    return {
        "shuffle": shuffled,
        "seed": optional_seed(seed),
        "reshuffle_each_iteration": flag("reshuffle_each_iteration", reshuffles),
        "open_splits": at_least("open_splits", open_splits, 1),
    }


def _check_choice(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        refuse(name, value, " or ".join(f'"{choice}"' if choice else "None" for choice in choices))


def _table_files(
    operation: str, paths: FileNames, endings: tuple[str, ...], options: Any
) -> list[tuple[str, Identity | None]]:
    """Return the files that names, patterns and folders stand for, in this order."""
    found: list[tuple[str, Identity | None]] = []
    for path in file_names(paths, "paths", "a file name, a pattern, a folder, or several"):
        with shortage_explained(operation):
            names = files_in(path, endings, options)
        if not names:
            what = f"has no file `*{endings[0]}`" if os.path.isdir(path) else "matches no file"
            raise NoFilesMatchedError(
                f"{operation}: {shown_url(path)!r} {what}. Pass the name of a file, a pattern, "
                f"or a folder with files `*{endings[0]}`. The current folder is {os.getcwd()!r}"
            )
        found += names.items()
    if not found:
        raise NoFilesMatchedError(f"{operation} got no paths: pass at least one file or folder")
    return found


def _names(columns: Any) -> list[str]:
    names = several("columns", columns, "a list of names of columns")
    for name in names:
        if not isinstance(name, str):
            refuse("columns", columns, "a list of names of columns")
    if not names or len(set(names)) < len(names):
        raise InvalidArgumentError(
            f"`columns` must name at least one column, and each once, got {names}"
        )
    return names


def _footers(
    files: Sequence[tuple[str, Identity | None]],
    options: Mapping[str, Any] | None,
    skipping: bool,
) -> Iterator[Footer | None]:
    """Yield the footers of files; None for a file that cannot be read if such files are
    left out, and another can be read.
    """
    from zmqdata.storage.parquet import UNREADABLE, KeptFooters, read_footer

    kept = KeptFooters()

    def read(listed: tuple[str, Identity | None]) -> Footer | Exception:
        name, identity = listed
        known = kept.get(name, identity) if identity and identity.etag else None
        if known is not None:
            return known
        try:
            with open_file(name, options) as file:
                footer = read_footer(file, shown_url(name))
        except UNREADABLE as error:
            return error
        if isinstance(file, RemoteFile) and file.identity == identity and identity.etag:
            kept.put(name, identity, footer)
        return footer

    yield from _all_read(files, read, skipping)
    if any(identity for _, identity in files):
        kept.forget_old(time.time())


def _all_read(
    files: Sequence[N], read: Callable[[N], T | Exception], skipping: bool
) -> Iterator[T | None]:
    """Yield what a function returns of files, some at a time; None for its failures if
    they are left out, and another file can be read.
    """
    failed, some = None, False
    with ThreadPoolExecutor(min(_AT_A_TIME, len(files)), "zmqdata-files") as pool:
        for found in pool.map(read, files):
            if not isinstance(found, Exception):
                some = True
                yield found
                continue
            failed = failed or found
            if not skipping:
                break
            yield None
    if failed is not None and not (some and skipping):
        raise failed


def _first_made(listed: Sequence[N], make: Callable[[list[N]], T], skipping: bool) -> T:
    """Return what a function makes of the first file, or of the first that can be read
    if others are left out.
    """
    from zmqdata.storage.parquet import UNREADABLE

    failed: Any = None
    for one in listed:
        try:
            return make([one])
        except UNREADABLE as error:
            failed = failed or error
            if not skipping:
                break
    raise failed


def _warn_of_size(size: int, name: str, group: int) -> None:
    if size > _LARGE:
        warn_user(
            f"row group {group} of {name} has {size:,} bytes in the chosen columns, all of which "
            "its worker holds in memory. Choose fewer `columns`, or write the file with smaller "
            "row groups, as with write_table(row_group_size=...)"
        )
