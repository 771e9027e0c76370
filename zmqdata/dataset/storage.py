"""The methods of ``Dataset`` that store elements: cache, snapshot, save and load. A
mixin of the class in ``surface``.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from zmqdata import operations
from zmqdata.blocks import validate_compression
from zmqdata.config.checks import Compression, optional_function, refuse
from zmqdata.dataset.arguments import call_site, writable_path
from zmqdata.dataset.bars import check_progress, show_save
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.dataset.refusals import check_return
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from zmqdata.files.paths import FileName, whole_path
from zmqdata.nodes.base import Node, known_spec
from zmqdata.pipelines import fingerprint
from zmqdata.storage.manifests import (
    already_saved,
    is_done,
    read_manifest,
    read_save,
    read_save_error,
)

Reader = Callable[[Any], Any]
"""Returns the dataset to read, from a dataset of datasets."""


class Storage(DatasetMethods[D]):
    """Methods that create datasets (``D``) with stored elements, and files of
    elements.
    """

    def cache(self, filename: FileName = "") -> D:
        """Run the dataset once, and replay its elements from then on.

        Args:
            filename: "" keeps the elements in memory, for all iterators over this
                dataset object. Otherwise a folder with this name is created, and later
                runs of the program read it instead. If you change the pipeline, change
                the name. It may be the URL of a folder in a store.

        Iterating raises AlreadyExistsError while another iterator writes the same
        folder, and DataLossError if its files are damaged. In a store, several
        iterators may write at a time, and the first that ends counts. Arrays are
        yielded as copies.

        >>> from zmqdata.dataset import Dataset
        >>> seen = []
        >>> numbers = Dataset.range(2).map(lambda x: seen.append(x) or int(x)).cache()
        >>> list(numbers), list(numbers), len(seen)
        ([0, 1], [0, 1], 2)

        Equivalent of ``tf.data.Dataset.cache``, except that the elements of an
        interrupted run stay in memory, too. With the service, each task caches and
        repeats its own elements, and each worker needs its own file name.
        """
        folder = "" if filename in ("", b"") else writable_path("cache()", filename)
        return self._then(operations.cache.Cache, filename=folder)

    def snapshot(
        self,
        path: FileName,
        compression: Compression | None = "AUTO",
        reader_func: Reader | None = None,
        shard_func: Callable[..., Any] | None = None,
    ) -> D:
        """Run the dataset once, and read its elements from files from then on, also in
        other programs.

        Args:
            path: a folder, or the URL of a folder in a store. The pipeline before the
                snapshot determines the subfolder that is read and written: a changed
                pipeline uses another subfolder.
            compression: as for ``distribute``: "AUTO", None or the name of a codec.
            reader_func: as for ``load``, for the runs that read the files.
            shard_func: as for ``save``.

        While another iterator writes the same snapshot, elements are produced but not
        written; in a store, the first iterator that ends counts. Iterating raises
        DataLossError if files are damaged. A snapshot cannot be split.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> seen, folder = [], tempfile.mkdtemp()
        >>> numbers = Dataset.range(2).map(lambda x: seen.append(x) or int(x))
        >>> numbers = numbers.snapshot(folder)
        >>> list(numbers), list(numbers), len(seen)
        ([0, 1], [0, 1], 2)

        Equivalent of ``tf.data.Dataset.snapshot``. Without ``shard_func``, there is a
        single shard, and elements keep their order.
        """
        codec = validate_compression(compression)
        shards_by = optional_function("shard_func", shard_func)
        reads_by = optional_function("reader_func", reader_func)
        check_return("shard_func", shards_by)
        folder = writable_path("snapshot()", path)
        if reads_by is not None:
            saved = operations.loading.Load(
                path=folder, save_id="", elements_spec=known_spec(self._node)
            )
            self._read_by(reads_by, saved)
        content = self._node if shards_by is None else (self._node, shards_by)
        return self._then(
            operations.stored.Snapshot,
            path=folder,
            pipeline=str(fingerprint(content)).replace(":", "-"),
            compression=codec,
            shard_function=shards_by,
            reader_function=_in_turn if reads_by is None and shards_by is not None else reads_by,
            wrap=self._wrap,
        )

    def save(
        self,
        path: FileName,
        compression: Compression | None = None,
        shard_func: Callable[..., Any] | None = None,
    ) -> None:
        """Run the whole dataset and write its elements into a folder, replacing an
        earlier save.

        Args:
            path: the folder, created if it does not exist, or a URL that fsspec
                supports. An earlier save is replaced atomically at the end. Only a
                folder is locked, so let one process at a time save to a URL.
            compression: as for ``distribute``: None, "AUTO" or the name of a codec.
            shard_func: returns the number of an element's shard. It gets a plain tuple
                as several arguments. Each shard has files of its own. None: a single
                shard.

        Raises:
            InvalidArgumentError: the dataset is infinite.
            AlreadyExistsError: another process saves into the folder, or the folder
                belongs to a ``distributed_save``.
            TypeError: an element has a leaf that cannot be stored.
            UnimplementedError: the path is a URL, and a package for it is not
                installed.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> folder = tempfile.mkdtemp()
        >>> Dataset.range(3).save(folder)
        >>> [int(x) for x in Dataset.load(folder)]
        [0, 1, 2]

        Equivalent of ``tf.data.Dataset.save``, without ``checkpoint_args``, and with
        another file format.
        """
        shards_by = optional_function("shard_func", shard_func)
        check_return("shard_func", shards_by)
        codec, folder = validate_compression(compression), writable_path("save()", path)
        if self._node.cardinality == INFINITE_CARDINALITY:
            raise InvalidArgumentError(
                "Saving an infinite dataset is not allowed: limit it with take(n)"
            )
        if read_save(folder) is not None:
            raise AlreadyExistsError(already_saved(folder))
        elements, spec = iter(self), known_spec(self._node)
        try:
            operations.stored.save_elements(
                elements, folder, secrets.token_hex(8), codec, spec, shards_by
            )
        finally:
            elements.close()

    @classmethod
    def load(
        cls,
        path: FileName,
        element_spec: Any = None,
        compression: Compression | None = None,
        reader_func: Reader | None = None,
        wait: bool = False,
        *,
        progress: bool | None = None,
    ) -> D:
        """Return a dataset of the elements written by ``save`` or ``distributed_save``.

        Elements from ``save`` keep their order, or come from the shards of a
        ``shard_func`` in turn. They cannot be split. Elements from
        ``distributed_save`` are read chunk by chunk: the first chunk of each stream,
        then the second of each, and so on. Under DYNAMIC each chunk is read by a single
        worker. With ``wait``, the dispatcher hands out chunks as they are committed, so
        it must see the folder, too.

        Args:
            path: the folder, or a URL that fsspec supports.
            element_spec: the expected spec of the elements; None: the saved spec.
            compression: the expected compression of the save; None: any.
            reader_func: returns the dataset to read, such as
                ``datasets.shuffle(100).interleave(lambda one: one)``. Its argument is a
                dataset of datasets: one for each shard, in the order of their numbers,
                or one for each chunk of a ``distributed_save``. These chunks are then
                the splits: under DYNAMIC, the dataset holds the chunks of one task, so
                the function may shuffle and interleave them, but not select among them
                by position (``take``, ``skip``, ``shard``, ``enumerate``).
            wait: True to wait for a save to begin, and to read chunks while other
                chunks are still being written, in the order in which they are seen.
            progress: for a save in progress, True to show a bar (tqdm) of the saved
                elements until the save has ended or this process ends; False not to.
                None: if this process writes to a terminal or a notebook, and is the
                first of its ranks. ``TQDM_DISABLE=1`` hides it, too.

        Raises:
            NotFoundError: the folder holds no complete save, and ``wait`` is False.
            DataLossError: the manifest is damaged. For a damaged chunk, iterating
                raises the error and continues with the next chunk.
            ValueError: spec or compression differ from the save, or the save failed.
                With ``wait``, iterating raises the error that made the save fail.
            UnimplementedError: the path is a URL, and a package for reading it is not
                installed.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> folder = tempfile.mkdtemp()
        >>> Dataset.range(3).batch(2).save(folder)
        >>> list(Dataset.load(folder)), len(Dataset.load(folder))
        ([array([0, 1]), array([2])], 2)

        Equivalent of ``tf.data.Dataset.load``, which lacks ``progress``.
        """
        reads_by = optional_function("reader_func", reader_func)
        if not isinstance(wait, bool):
            raise TypeError(f"`wait` must be True or False, got {wait!r}")
        check_progress(progress)
        folder = whole_path(path)
        wanted = None if compression is None else (compression, validate_compression(compression))
        node = _saved(folder, wait)
        if node.grows and node.chunks is None:
            show_save(folder, progress)
        spec, stored = node.elements_spec, _compression_of(folder, node)
        # A spec that only the elements know cannot be compared before an element is
        # read.
        if element_spec is not None and spec is not None and element_spec != spec:
            raise ValueError(
                f"User specified element_spec {element_spec}, but the actual element_spec is "
                f"{spec}."
            )
        if wanted is not None and wanted[1] != stored:
            raise ValueError(
                f"User specified compression {wanted[0]}, but the actual compression is {stored}."
            )
        whole = replace(
            node, elements_spec=spec if spec is not None else element_spec, site=call_site()
        )
        if reads_by is None:
            return cls._wrap(
                operations.loading.LoadInTurn(**vars(whole)) if _has_shards(node) else whole
            )
        return cls._read_by(reads_by, whole)

    @classmethod
    def _read_by(cls, reads_by: Reader, whole: operations.loading.Load) -> D:
        """Return what a ``reader_func`` makes of the datasets of a save."""
        check_return("reader_func", reads_by)
        datasets = cls._wrap(
            operations.loading.SavedDatasets(whole=whole, wrap=cls._wrap, site=call_site())
        )
        made: D = reads_by(datasets)
        if not isinstance(getattr(made, "node", None), Node):
            refuse("what reader_func returns", made, "a Dataset")
        return made


def _in_turn(datasets: Any) -> Any:
    """Return a dataset of the elements of all shards in turn."""
    return datasets.interleave(_itself)


def _itself(dataset: Any) -> Any:
    return dataset


def _has_shards(node: operations.loading.Load) -> bool:
    """Return True if a ``shard_func`` has given the elements several numbers."""
    return not node.grows and len({chunk.shard for chunk in read_manifest(node.path).chunks}) > 1


def _saved(folder: str, wait: bool) -> operations.loading.Load:
    """Return a node for the save in a folder; with ``wait``, wait until a save
    begins.
    """
    waiting = operations.loading.SaveWait(folder)
    while True:
        try:
            return _present(folder, wait)
        except NotFoundError:
            if not wait:
                raise
        waiting.pause("a save to begin")


def _present(folder: str, wait: bool) -> operations.loading.Load:
    description, done = read_save(folder), is_done(folder)
    error = None if done else read_save_error(folder)
    if error is not None and not wait:
        raise ValueError(
            f"Failed to load the dataset at {folder}. The save job failed to write "
            f"it. {error.error}: {error.text}. Remove the folder and the cause, and save "
            "again. If an element fails, map(on_error='skip') can skip it"
        )
    if (
        error is not None and description is None
    ):  # its folder was removed during the save, so no save can be awaited
        raise operations.loading.raised(error)
    if description is not None and not done and not wait:
        raise NotFoundError(
            f"The dataset at {folder} is not saved to its end yet. load(path, "
            "wait=True) reads it while it is written"
        )
    if description is not None and wait:
        # The same characteristics whenever load() is called, so that all that read the
        # save read the same dataset.
        return operations.loading.Load(
            path=folder,
            save_id=description.save_id,
            elements_spec=description.element_spec,
            chunks=len(read_manifest(folder).chunks) if done else None,
            grows=True,
        )
    manifest = read_manifest(folder)
    known = None if description is None else description.element_spec
    return operations.loading.Load(
        path=folder,
        save_id=manifest.save_id,
        count=manifest.elements,
        elements_spec=manifest.element_spec if known is None else known,
        chunks=len(manifest.chunks) if manifest.splittable else None,
    )


def _compression_of(folder: str, node: operations.loading.Load) -> str | None:
    if not node.grows:
        return read_manifest(folder).compression
    description = read_save(folder)
    return None if description is None else description.compression
