"""The cache: in memory, on a tape that all iterators of a dataset share, or in a
folder, which belongs to a task if the pipeline is split.
"""

from __future__ import annotations

import fcntl
import glob
import io
import operator
import os
import shutil
import tempfile
from collections.abc import MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TextIO
from weakref import WeakKeyDictionary, finalize

from zmqdata.blocks import copied
from zmqdata.errors import DataServiceError, FailedPreconditionError
from zmqdata.files.paths import is_url, shown_url
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.context import Context, Name
from zmqdata.iterators.inputs import input_iterator
from zmqdata.iterators.random_access import element_at, name_at
from zmqdata.nodes.base import Infer, Node, Unary, in_label
from zmqdata.operations.stored import FileCacheIterator, Keeping, identified, identity, kept
from zmqdata.storage.chunks import ChunkReader
from zmqdata.storage.manifests import Manifest
from zmqdata.storage.remote import files_of, new_name


@dataclass(frozen=True, kw_only=True, eq=False)
class Cache(Keeping):
    """Yields the elements of its input, which runs once; stores them in memory, or in a
    folder.
    """

    filename: str = field(
        default="", metadata=in_label(lambda path: repr(shown_url(path)) if path else "")
    )
    """Path of the folder; "" stores in memory."""
    operation: ClassVar[str] = "cache"
    restoring: ClassVar[str] = (
        "pulls up to a 32nd of the elements again; all of them if its file is gone"
    )

    @property
    def folder(self) -> str:
        return self.filename


_HOLE = object()
_MARK_EVERY = 64
_MOST_MARKS = 64


def origins_of(context: Context) -> dict[tuple[int, ...], Any] | None:
    """Return the record, kept in the state of a repeat above, of how the caches of a
    task began: see ``ResetCounter``.

    None if the pipeline is not split, or no repeat lies above, so that no cache is read
    twice.
    """
    return getattr(context.providers[0], "origins", None) if context.providers else None


class Tape:
    """Elements of a run of an input, as far as they were pulled, and the means to pull
    the others again.

    Args:
        ids: identity of the run's context. Every pull for the tape uses such a context,
            whatever the current repetition and the place in a pipeline where the cache
            is read. The context itself would not do: it holds the tape's owner and
            would keep both alive.
        start: state of the input at its beginning.
    """

    def __init__(self, ids: list[int], start: Any) -> None:
        self.ids = ids
        self.elements: list[Any] = []
        self.length: int | None = None
        self._marks = [(0, start)]
        self._latest = (0, start)
        self._every = _MARK_EVERY

    def put(self, number: int, element: Any) -> None:
        """Record an element."""
        self.reach(number + 1)
        self.elements[number] = element

    def reach(self, count: int) -> None:
        """Extend the tape to ``count`` elements, the new elements unknown."""
        self.elements.extend([_HOLE] * (count - len(self.elements)))

    def mark(self, number: int, source: ElementIterator) -> None:
        """Note the input's state before element ``number``, if a mark is due."""
        if number - self._marks[-1][0] < self._every:
            return
        if len(self._marks) >= _MOST_MARKS:
            del self._marks[1::2]
            self._every *= 2
        self._marks.append((number, source.state()))

    def note(self, number: int, state: Any) -> tuple[int, Any]:
        """Note a state of the input before element ``number`` that an iterator reports,
        as each does when it is closed. The next iterator continues there.
        """
        self._latest = number, state
        return self._latest

    def nearest(self, number: int) -> tuple[int, Any]:
        """Return the last noted state from before element ``number``, with its
        number.
        """
        marks = (*self._marks, self._latest)
        return max((mark for mark in marks if mark[0] <= number), key=lambda mark: mark[0])


_tapes: MutableMapping[object, dict[tuple[int, ...], Tape]] = WeakKeyDictionary()


def played(owner: object, number: int) -> tuple[Any] | None:
    """Return a copy of element ``number`` of an owner's tape, or None if the tape lacks
    it.
    """
    tape = _tapes.get(owner, {}).get(())
    if tape is None or number >= len(tape.elements) or tape.elements[number] is _HOLE:
        return None
    return (copied(tape.elements[number]),)


def tape_length(owner: object) -> int | None:
    """Return the number of elements of an owner's tape; None if the end of the tape was
    not reached.
    """
    tape = _tapes.get(owner, {}).get(())
    return None if tape is None else tape.length


class MemoryCacheIterator(ElementIterator):
    """Plays a tape, and pulls the elements that the tape lacks. All iterators of a
    dataset object share a tape.

    The state holds no elements. An iterator restored while the tape is being recorded
    resumes at its position, and pulls earlier elements when another repetition needs
    them. An iterator restored later begins at the last noted state, at most a 32nd of
    the elements away. Every pull uses the context of the first run, so that the
    elements are the same.

    With providers, of which each task has its own, the tape belongs to the task: its
    worker plays the elements that it saw.
    """

    def __init__(self, node: Cache, context: Context) -> None:
        self._node, self._context = node, context
        self._publish_in(context)
        self._owner: object = context.providers[0] if context.providers else node
        self._position = 0
        self._input: ElementIterator | None = None
        self._at = 0  # number of the input's next element
        self._place = context.path if context.providers else ()
        found = _tapes.get(self._owner, {}).get(self._place)
        self._tape = self._first_tape() if found is None else found

    def _first_tape(self) -> Tape:
        origins, path = origins_of(self._context), self._context.path
        if origins is not None and path in origins:
            # The tape was recorded by another worker and is not available here.
            return self._new_tape(*origins[path])
        ids = identity(self._context)
        self._input = self._make_input(ids)
        start = self._input.state()
        if origins is not None:
            origins[path] = ids, start
        return self._new_tape(ids, start)

    def _new_tape(self, ids: list[int], start: Any) -> Tape:
        """Return an empty tape for all iterators created from now on."""
        tape = Tape(ids, start)
        _tapes.setdefault(self._owner, {})[self._place] = tape
        return tape

    def _make_input(self, ids: list[int]) -> ElementIterator:
        return input_iterator(self._node, identified(self._context, ids))

    def __next__(self) -> Any:
        position, tape = self._position, self._tape
        element = tape.elements[position] if position < len(tape.elements) else _HOLE
        if element is _HOLE:
            if position == tape.length:
                raise StopIteration
            element = self._pull(position)
        self._position = position + 1
        self._strand.place = self._own_place
        return copied(element)

    def rewind(self, repetition: int) -> bool:
        self.close()
        self._position = 0
        return True

    def _pull(self, number: int) -> Any:
        source = (
            self._input if self._at == number and self._input is not None else self._seek(number)
        )
        tape = self._tape
        again = number < len(tape.elements)
        while True:
            if not again:
                tape.mark(number, source)
            try:
                element = next(source)
            except StopIteration:
                if again:
                    raise self._lost(number) from None
                tape.length = number
                self.close()
                raise
            except DataServiceError as error:
                if again and not error.final:
                    continue
                raise
            self._at = number + 1
            tape.put(number, element)
            return element

    def _seek(self, number: int) -> ElementIterator:
        self.close()
        self._at, mark = self._tape.nearest(number)
        source = self._input = self._make_input(self._tape.ids)
        source.restore(mark)
        self._go_to(number)
        return source

    def _go_to(self, number: int) -> None:
        """Pull until the input's next element is number ``number``."""
        assert self._input is not None
        while self._at < number:
            try:
                self._tape.put(self._at, next(self._input))
            except StopIteration:
                raise self._lost(self._at) from None
            except DataServiceError as error:
                if error.final:
                    raise
                # The error was raised when the tape was recorded.
                continue
            self._at += 1

    def _lost(self, number: int) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"The input of {self._node.label} has {number} elements now and had more when they "
            "were cached: restore on the same input only"
        )

    def state(self) -> Any:
        tape, position = self._tape, self._position
        if self._input is not None and self._at == position:
            mark = tape.note(position, self._input.state())
        else:
            mark = tape.nearest(position)
        # The start of the tape also names the decisions that are needed: a later
        # repetition pulls elements that the tape lacks.
        return [position, tape.length, tape.ids, *mark, tape.nearest(0)[1]]

    def restore(self, state: Any) -> None:
        self._position, length, ids, number, mark, *start = state
        if self._tape.ids != ids or len(self._tape.elements) < self._position:
            self.close()
            # The input must begin where it began for the first tape; its providers may
            # have advanced since.
            self._tape = self._new_tape(ids, start[0] if start else self._tape.nearest(0)[1])
        tape = self._tape
        if length is not None:
            tape.length = length
        tape.reach(self._position if length is None else length)
        if self._position == length or (
            self._position < len(tape.elements) and tape.elements[self._position] is not _HOLE
        ):
            return
        self.close()
        self._input, self._at = self._make_input(ids), number
        self._input.restore(mark)
        self._go_to(self._position)

    def close(self) -> None:
        if self._input is not None:
            self._input.close()
        self._input = None


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
        """Create the folder, and remove the folders of tasks that were killed. In a
        store, where folders are not locked, these stay.
        """
        if self._held:
            return
        if is_url(self._parent):
            self.path = f"{self._parent}/{PREFIX}{new_name()}"
            self._held.append((self.path, io.StringIO()))
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
        files_of(folder).remove_folder(folder)
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


def kept_element(node: Cache, index: int) -> tuple[Any] | None:
    """Return element ``index`` of a cache, from its tape in this process or from its
    folder; None if it is not cached.
    """
    if not node.filename:
        return played(node, index)
    manifest = kept(node.folder, node)
    if manifest is None or index >= manifest.elements:
        return None
    reader = ChunkReader(node.folder, manifest.chunks)
    try:
        reader.skip(index)
        return (next(reader),)
    finally:
        reader.close()


def kept_count(node: Cache) -> int | None:
    """Return the number of elements of a full cache; None if it is not full."""
    if not node.filename:
        return tape_length(node)
    manifest = kept(node.folder, node)
    return None if manifest is None else manifest.elements


@dataclass(frozen=True, kw_only=True, eq=False)
class _Filled(Unary):
    """Stands for a full cache, whose number of elements is known."""

    operation: ClassVar[str] = "cache"  # orders above it follow from the operations below

    cache: Cache
    """The cache."""
    count: int
    """Its number of elements."""

    @property
    def label(self) -> str:
        return self.cache.label

    @property
    def cardinality(self) -> int:
        return self.count

    def spec(self, infer: Infer) -> Any:
        return infer(self.cache)


@element_at.register
def _(node: _Filled, index: int) -> Any:
    return element_at(node.cache, index)


def with_filled_caches(node: Node) -> Node:
    """Return the node with the number of elements of each full cache.

    >>> from zmqdata.operations.sources import Range
    >>> numbers = Cache(inputs=(Range(start=0, stop=3),))
    >>> with_filled_caches(numbers) is numbers
    True
    """
    if isinstance(node, Cache):
        count = kept_count(node)
        return node if count is None else _Filled(inputs=node.inputs, cache=node, count=count)
    inputs = tuple(map(with_filled_caches, node.inputs))
    same = all(map(operator.is_, inputs, node.inputs))
    return node if same else replace(node, inputs=inputs)


@element_at.register
def _(node: Cache, index: int) -> Any:
    found = kept_element(node, index)
    return element_at(node.input, index) if found is None else found[0]


@name_at.register
def _(node: Cache, index: int) -> Name:
    return 0, index
