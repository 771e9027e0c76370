"""Choice of a cache's iterator, and the file cache of a split pipeline: a folder that
is removed with its task.

Writing and reading are inherited from ``stored``, whose files are shared by all readers
of the dataset.
"""

from __future__ import annotations

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO
from weakref import WeakKeyDictionary, finalize

from zmqdata.iterators.base import Context, ElementIterator, make_iterator
from zmqdata.iterators.cache import MemoryCacheIterator, origins_of
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.stored import FileCacheIterator
from zmqdata.nodes.storage import Cache
from zmqdata.storage.manifests import Manifest

PREFIX = "task-"
_HELD = "held"


class TaskFolder:
    """Folder below that of the cache, which exists for as long as its owner lives.

    Args:
        parent: folder of the cache.
        owner: object that lives as long as the task; the folder is removed when the
            object is collected.

    Attributes:
        path: path of the folder; before ``claim``, a path that never exists.
    """

    def __init__(self, parent: str, owner: object) -> None:
        self.path = os.path.join(parent, PREFIX)
        self._parent = parent
        self._held: list[tuple[str, TextIO]] = []
        finalize(owner, _remove, self._held)

    def claim(self) -> None:
        """Create the folder, and remove the folders of tasks that were killed."""
        if self._held:
            return
        os.makedirs(self._parent, exist_ok=True)
        with open(os.path.join(self._parent, "tasks"), "a", encoding="utf-8") as turnstile:
            fcntl.flock(turnstile, fcntl.LOCK_EX)
            for other in glob.glob(os.path.join(glob.escape(self._parent), PREFIX + "*")):
                self._remove_unheld(other)
            # A task that ends removes its folder without the turnstile. Another folder
            # of the same name would be removed with it.
            self.path = tempfile.mkdtemp(prefix=PREFIX, dir=self._parent)
            held = _open_lock(self.path)
            fcntl.flock(held, fcntl.LOCK_EX)
            self._held.append((self.path, held))

    def _remove_unheld(self, folder: str) -> None:
        with (
            suppress(OSError),
            _open_lock(folder) as lock,
        ):
            # Suppressed: the folder is locked, or its own task is removing it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _open_lock(folder: str) -> TextIO:
    return open(os.path.join(folder, _HELD), "a", encoding="utf-8")


def _remove(held: list[tuple[str, TextIO]]) -> None:
    for folder, lock in held:
        shutil.rmtree(folder, ignore_errors=True)
        lock.close()


_folders: MutableMapping[object, dict[tuple[int, ...], TaskFolder]] = WeakKeyDictionary()


class SplitCacheIterator(FileCacheIterator):
    """Plays the elements that its own task saw, as a memory cache does: the files of
    other tasks hold other elements.

    Its folder is removed after the task, and is absent on another worker that continues
    the task. That worker pulls the same elements again, from the same splits.
    """

    def __init__(self, node: Cache, context: Context) -> None:
        super().__init__(node, context)
        assert context.providers
        owner, path = context.providers[0], context.path
        found = _folders.setdefault(owner, {})
        if path not in found:
            found[path] = TaskFolder(node.folder, owner)
        self._place = found[path]
        self._folder = self._place.path
        origins = origins_of(context)
        assert origins is not None
        if path not in origins:
            source = input_iterator(node, context)
            origins[path] = self._ids, source.state()
            source.close()
        self._ids, self._origin = origins[path]

    def _begin_input(self, state: Any) -> None:
        super()._begin_input(self._origin if state is None else state)

    def _claimed(self) -> tuple[Manifest | None, TextIO | None]:
        self._place.claim()
        self._folder = self._place.path
        return super()._claimed()


@make_iterator.register(Cache)
def make_cache_iterator(node: Cache, context: Context) -> ElementIterator:
    """Return an iterator over a cache in memory or in files; over the input if a task
    never reads its cache again.
    """
    if context.providers and origins_of(context) is None:
        return input_iterator(node, context)
    if not node.filename:
        return MemoryCacheIterator(node, context)
    return (
        SplitCacheIterator(node, context) if context.providers else FileCacheIterator(node, context)
    )
