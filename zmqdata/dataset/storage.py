"""The methods of ``Dataset`` that keep elements: cache, snapshot, save and load. A part of the class in ``surface``."""

from __future__ import annotations

import os
import secrets
from typing import Any

from zmqdata import nodes
from zmqdata.blocks import validate_compression
from zmqdata.chunks import read_manifest
from zmqdata.dataset.arguments import absolute_path, call_site
from zmqdata.dataset.parts import D, Part
from zmqdata.errors import InvalidArgumentError
from zmqdata.iterators import known_spec
from zmqdata.iterators.stored import save_elements
from zmqdata.pipelines import fingerprint
from zmqdata.specs import INFINITE_CARDINALITY


class Storage(Part[D]):
    """Makes datasets (``D``) that keep what they have seen, and files of elements."""

    def cache(self, filename: str | os.PathLike[str] = "") -> D:
        """Run the dataset once, and play its elements from then on.

        Args:
            filename: "" keeps them in memory, for all iterators over this dataset object; else a folder of this name
                is made, which later runs of the program read instead. Change the pipeline: change the name.

        Iterating raises AlreadyExistsError while somebody else writes the same folder, and DataLossError where its
        files are damaged. Arrays are handed out as copies.

        >>> from zmqdata.dataset import Dataset
        >>> seen = []
        >>> numbers = Dataset.range(2).map(lambda x: seen.append(x) or int(x)).cache()
        >>> list(numbers), list(numbers), len(seen)
        ([0, 1], [0, 1], 2)

        As ``tf.data.Dataset.cache``, except that what was seen of a run that was broken off is kept in memory, too. In
        the service each task keeps and repeats what it saw, and each worker needs a file name of its own.
        """
        folder = "" if filename == "" else absolute_path(filename)
        return self._wrap(nodes.Cache(inputs=(self._node,), filename=folder, site=call_site()))

    def snapshot(self, path: str | os.PathLike[str], compression: str | None = "AUTO") -> D:
        """Run the dataset once, and read its elements from files from then on, also in other programs.

        Args:
            path: a folder. What is before the snapshot in the pipeline decides which part of it is read and written: a
                changed pipeline gets a part of its own.
            compression: "AUTO", None, or the name of a blosc codec.

        While somebody else writes the same snapshot, the elements are made and not written. Iterating raises
        DataLossError where files are damaged. It cannot be split.

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
        """Run the whole dataset and write its elements into a folder, in place of what was saved there before.

        Args:
            path: the folder; it is made if it is not there. What was there is replaced at the end, at once.
            compression: None, "AUTO", or the name of a blosc codec.

        Raises:
            InvalidArgumentError: the dataset is infinite.
            AlreadyExistsError: somebody else is saving there.
            TypeError: an element holds something that cannot be stored.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> folder = tempfile.mkdtemp()
        >>> Dataset.range(3).save(folder)
        >>> [int(x) for x in Dataset.load(folder)]
        [0, 1, 2]

        As ``tf.data.Dataset.save``, without ``shard_func`` and ``checkpoint_args``; the files are ours.
        """
        codec, folder = validate_compression(compression), absolute_path(path)
        if self._node.cardinality == INFINITE_CARDINALITY:
            raise InvalidArgumentError("Saving an infinite dataset is not allowed: limit it with take(n)")
        elements = iter(self)
        try:
            save_elements(elements, folder, secrets.token_hex(8), codec, known_spec(self._node))
        finally:
            elements.close()

    @classmethod
    def load(cls, path: str | os.PathLike[str], element_spec: Any = None, compression: str | None = None) -> D:
        """A dataset of what ``save`` wrote, in the same order. It cannot be split.

        Args:
            path: the folder.
            element_spec: what the elements must look like; None: what they were saved as.
            compression: what they must have been saved with; None: whatever it was.

        Raises:
            NotFoundError: nothing was saved there.
            DataLossError: the manifest is damaged. Iterating raises it where a chunk is; the next chunk follows.
            ValueError: spec or compression differ from what was saved.

        >>> import tempfile
        >>> from zmqdata.dataset import Dataset
        >>> folder = tempfile.mkdtemp()
        >>> Dataset.range(3).batch(2).save(folder)
        >>> list(Dataset.load(folder)), len(Dataset.load(folder))
        ([array([0, 1]), array([2])], 2)

        As ``tf.data.Dataset.load``, without ``reader_func`` and ``wait``.
        """
        folder = absolute_path(path)
        manifest = read_manifest(folder)
        spec = manifest.element_spec
        if element_spec is not None and element_spec != spec:
            raise ValueError(f"User specified element_spec {element_spec}, but the actual element_spec is {spec}.")
        if compression is not None and validate_compression(compression) != manifest.compression:
            raise ValueError(
                f"User specified compression {compression}, but the actual compression is {manifest.compression}."
            )
        return cls._wrap(
            nodes.Load(path=folder, run=manifest.run, count=manifest.elements, elements_spec=spec, site=call_site())
        )
