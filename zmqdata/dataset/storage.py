"""The methods of ``Dataset`` that keep elements: cache, snapshot, save and load. A part
of the class in ``surface``.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from typing import Any

from zmqdata import nodes
from zmqdata.blocks import validate_compression
from zmqdata.dataset.arguments import absolute_path, call_site
from zmqdata.dataset.parts import D, DatasetMethods
from zmqdata.elements.specs import INFINITE_CARDINALITY
from zmqdata.errors import AlreadyExistsError, InvalidArgumentError, NotFoundError
from zmqdata.iterators import known_spec
from zmqdata.iterators.loading import SaveWait, raised
from zmqdata.iterators.stored import save_elements
from zmqdata.pipelines import fingerprint
from zmqdata.storage.files import is_url, whole_path
from zmqdata.storage.manifests import (
    already_saved,
    is_done,
    read_manifest,
    read_save,
    read_save_error,
)


class Storage(DatasetMethods[D]):
    """Makes datasets (``D``) that keep what they have seen, and files of elements."""

    def cache(self, filename: str | os.PathLike[str] = "") -> D:
        """Run the dataset once, and play its elements from then on.

        Args:
            filename: "" keeps them in memory, for all iterators over this dataset
                object; else a folder of this name is made, which later runs of the
                program read instead. Change the pipeline: change the name.

        Iterating raises AlreadyExistsError while somebody else writes the same folder,
        and DataLossError where its files are damaged. Arrays are handed out as copies.

        >>> from zmqdata.dataset import Dataset
        >>> seen = []
        >>> numbers = Dataset.range(2).map(lambda x: seen.append(x) or int(x)).cache()
        >>> list(numbers), list(numbers), len(seen)
        ([0, 1], [0, 1], 2)

        As ``tf.data.Dataset.cache``, except that what was seen of a run that was broken
        off is kept in memory, too. In the service each task keeps and repeats what it
        saw, and each worker needs a file name of its own.
        """
        folder = "" if filename == "" else absolute_path(filename)
        return self._wrap(nodes.Cache(inputs=(self._node,), filename=folder, site=call_site()))

    def snapshot(self, path: str | os.PathLike[str], compression: str | None = "AUTO") -> D:
        """Run the dataset once, and read its elements from files from then on, also in
        other programs.

        Args:
            path: a folder. What is before the snapshot in the pipeline decides which
                part of it is read and written: a changed pipeline gets a part of its
                own.
            compression: "AUTO", None, or the name of a blosc codec.

        While somebody else writes the same snapshot, the elements are made and not
        written. Iterating raises DataLossError where files are damaged. It cannot be
        split.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> seen = []
        >>> numbers = Dataset.range(2).map(lambda x: seen.append(x) or int(x)).snapshot(tempfile.mkdtemp())
        >>> list(numbers), list(numbers), len(seen)
        ([0, 1], [0, 1], 2)

        As ``tf.data.Dataset.snapshot``, without ``reader_func`` and ``shard_func``.
        """
        codec = validate_compression(compression)
        made = nodes.Snapshot(
            inputs=(self._node,),
            path=absolute_path(path),
            pipeline=str(fingerprint(self._node)).replace(":", "-"),
            compression=codec,
            site=call_site(),
        )
        return self._wrap(made)

    def save(self, path: str | os.PathLike[str], compression: str | None = None) -> None:
        """Run the whole dataset and write its elements into a folder, in place of what
        was saved there before.

        Args:
            path: the folder; it is made if it is not there. What was there is replaced
                at the end, at once.
            compression: None, "AUTO", or the name of a blosc codec.

        Raises:
            InvalidArgumentError: the dataset is infinite.
            AlreadyExistsError: somebody else is saving there, or it is the folder of a
                ``distributed_save``.
            TypeError: an element holds something that cannot be stored.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> folder = tempfile.mkdtemp()
        >>> Dataset.range(3).save(folder)
        >>> [int(x) for x in Dataset.load(folder)]
        [0, 1, 2]

        As ``tf.data.Dataset.save``, without ``shard_func`` and ``checkpoint_args``; the
        files are ours.
        """
        codec, folder = validate_compression(compression), absolute_path(path)
        if self._node.cardinality == INFINITE_CARDINALITY:
            raise InvalidArgumentError(
                "Saving an infinite dataset is not allowed: limit it with take(n)"
            )
        if read_save(folder) is not None:
            raise AlreadyExistsError(already_saved(folder))
        elements = iter(self)
        try:
            save_elements(elements, folder, secrets.token_hex(8), codec, known_spec(self._node))
        finally:
            elements.close()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        element_spec: Any = None,
        compression: str | None = None,
        wait: bool = False,
    ) -> D:
        """A dataset of what ``save`` or ``distributed_save`` wrote.

        What ``save`` wrote comes in the same order and cannot be split. What
        ``distributed_save`` wrote comes chunk by chunk: the first chunk of each stream,
        then the second of each, and so on. Under DYNAMIC each chunk goes to one worker.

        Args:
            path: the folder, or a URL that fsspec knows.
            element_spec: what the elements must look like; None: what they were saved
                as.
            compression: what they must have been saved with; None: whatever it was.
            wait: whether to wait until somebody begins to save there, and to read
                chunks while others are still being written, in the order in which they
                are seen.

        Raises:
            NotFoundError: nothing was saved there, or not to its end, and ``wait`` is
                False.
            DataLossError: the manifest is damaged. Iterating raises it where a chunk
                is; the next chunk follows.
            ValueError: spec or compression differ from what was saved, or the save
                failed. With ``wait``, iterating raises the error because of which it
                failed.
            UnimplementedError: the path is a URL, and what it takes to read it is not
                installed.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> folder = tempfile.mkdtemp()
        >>> Dataset.range(3).batch(2).save(folder)
        >>> list(Dataset.load(folder)), len(Dataset.load(folder))
        ([array([0, 1]), array([2])], 2)

        As ``tf.data.Dataset.load``, without ``reader_func``.
        """
        if not isinstance(wait, bool):
            raise TypeError(f"`wait` must be True or False, got {wait!r}")
        folder = whole_path(path) if isinstance(path, str) and is_url(path) else absolute_path(path)
        wanted = None if compression is None else (compression, validate_compression(compression))
        node = _saved(folder, wait)
        spec, stored = node.elements_spec, _compression_of(folder, node)
        # What is only known to the elements themselves cannot be compared before one is
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
        return cls._wrap(
            replace(
                node, elements_spec=spec if spec is not None else element_spec, site=call_site()
            )
        )


def _saved(folder: str, wait: bool) -> nodes.Load | nodes.LoadGrowing:
    """What is in a folder; with ``wait``, as soon as there is something."""
    waiting = SaveWait(folder)
    while True:
        try:
            return _present(folder, wait)
        except NotFoundError:
            if not wait:
                raise
        waiting.pause("a save to begin")


def _present(folder: str, wait: bool) -> nodes.Load | nodes.LoadGrowing:
    description, done = read_save(folder), is_done(folder)
    error = None if done else read_save_error(folder)
    if error is not None and not wait:
        raise ValueError(
            f"Failed to load the dataset at {folder}. The save job failed to write it. "
            f"{error.error}: "
            f"{error.text}. Remove the folder, repair the pipeline (or let map(on_error='skip') "
            "leave such "
            "elements out), and save again"
        )
    if (
        error is not None and description is None
    ):  # its folder was removed while it ran: there is nothing to wait for
        raise raised(error)
    if description is not None and not done:
        if not wait:
            raise NotFoundError(
                f"The dataset at {folder} is not saved to its end yet. load(path, wait=True) reads "
                "it as it is written"
            )
        return nodes.LoadGrowing(
            path=folder, run=description.run, elements_spec=description.element_spec
        )
    manifest = read_manifest(folder)
    known = None if description is None else description.element_spec
    return nodes.Load(
        path=folder,
        run=manifest.run,
        count=manifest.elements,
        elements_spec=manifest.element_spec if known is None else known,
        chunks=len(manifest.chunks) if manifest.splittable else None,
    )


def _compression_of(folder: str, node: nodes.Load | nodes.LoadGrowing) -> str | None:
    if isinstance(node, nodes.Load):
        return read_manifest(folder).compression
    description = read_save(folder)
    return None if description is None else description.compression
