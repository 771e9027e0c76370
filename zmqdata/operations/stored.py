"""Elements in files: what ``save`` writes, snapshots, and the base of caches in a
folder. The files are ``storage.chunks``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TextIO
from weakref import finalize

from zmqdata.blocks import copied
from zmqdata.elements.specs import merge_specs, spec_of
from zmqdata.errors import (
    AlreadyExistsError,
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
    UnimplementedError,
)
from zmqdata.failures.exceptions import FAILURES, text_of
from zmqdata.files.paths import is_url, shown_url
from zmqdata.iterators.base import ElementIterator, make_iterator
from zmqdata.iterators.calling import call, failure
from zmqdata.iterators.context import Context
from zmqdata.iterators.inputs import dataset_iterator, input_iterator
from zmqdata.iterators.results import as_index
from zmqdata.nodes.base import ByIdentity, Unary, Wrap, function_name, in_label
from zmqdata.operations.loading import Load, SavedDatasets
from zmqdata.operations.sources import nested_node
from zmqdata.splits import SplitSource
from zmqdata.storage.chunks import CHUNK_BYTES, ChunkReader
from zmqdata.storage.files import LOCK, lock_folder
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    create_manifest,
    read_manifest,
    remove_chunks,
    spec_text,
    write_manifest,
)
from zmqdata.storage.remote import files_of, new_name
from zmqdata.storage.shards import ShardedWriter, ShardPlace, chunk_name


@dataclass(frozen=True, kw_only=True, eq=False)
class Keeping(ByIdentity, Unary):
    """Operation that keeps the elements of its input in a folder."""

    own_state: ClassVar[int] = 64
    holds_only: ClassVar[bool] = True

    @property
    def folder(self) -> str:
        """Folder of the elements."""
        raise NotImplementedError

    @property
    def shard_function(self) -> Callable[..., Any] | None:
        """Returns the number of an element's shard; None: there is a single shard."""
        return None

    @property
    def keeps_order(self) -> bool:
        """True if the elements are read in the order in which they were written."""
        return True


@dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot(Keeping):
    """Cache in files, with a folder for each pipeline fingerprint. It is read as a
    whole.
    """

    path: str = field(metadata=in_label(lambda path: repr(shown_url(path))))
    """Folder of all snapshots."""
    pipeline: str
    """Fingerprint of the pipeline; name of its folder."""
    compression: str | None = "AUTO"
    """Compression of the files; None: uncompressed."""
    shard_function: Callable[..., Any] | None = None
    """Returns the number of an element's shard; None: there is a single shard."""
    reader_function: Callable[[Any], Any] | None = None
    """Returns the dataset to read, from a dataset of the shards; None: the elements are
    read in the order in which they were written.
    """
    wrap: Wrap | None = field(default=None, repr=False)
    """Makes a dataset from a node, for ``reader_function``."""
    operation: ClassVar[str] = "snapshot"
    restoring: ClassVar[str] = "continues in its files; pulls elements again that are not in them"
    is_source: ClassVar[bool] = True

    @property
    def draws_once(self) -> bool:
        return self.reader_function is not None

    @property
    def keeps_order(self) -> bool:
        return self.reader_function is None

    @property
    def folder(self) -> str:
        return os.path.join(self.path, self.pipeline)

    @property
    def split_source(self) -> SplitSource:
        raise UnimplementedError(
            f"Splitting is not implemented for snapshot datasets: {self.label} must be read as a "
            "whole. Distribute it with ShardingPolicy.OFF, or remove the snapshot"
        )


MOST_SHARD = 1 << 63


def _remove_parts(folder: str, chunks: Sequence[Chunk], process: int) -> None:
    """Remove chunks that a writer of this process has put into a store, as far as
    possible.
    """
    if os.getpid() != process:
        return
    with contextlib.suppress(Exception):
        for chunk in chunks:
            files_of(folder).remove(f"{folder}/{chunk.name}")


class _Recorder:
    """Writes the elements of an input into a folder, and commits them as the folder's
    content at the end.

    Writers in a store do not exclude each other. Their chunks have names of their own,
    and the first manifest counts: a writer that finds one at its end removes its own
    chunks. So does a writer that is abandoned. Those of a killed writer stay.

    Args:
        folder: folder to write into.
        lock: lock on the folder.
        run: identifies this run; prefix of the names of the chunks.
        compression: compression of the chunks, or None.
        shard_function: returns the number of an element's shard, or None.
        places: positions at which to continue in chunks of this run.
    """

    def __init__(
        self,
        folder: str,
        lock: TextIO,
        run: str,
        compression: str | None,
        shard_function: Callable[..., Any] | None,
        places: Sequence[ShardPlace],
    ) -> None:
        self._folder, self._lock, self._run, self._compression = folder, lock, run, compression
        self._shard_of = shard_function
        self._undo: finalize[..., _Recorder] | None = None
        if is_url(folder):
            self._writer = ShardedWriter(folder, f"{run}-{new_name()}", compression)
            self._undo = finalize(self, _remove_parts, folder, self._writer.chunks, os.getpid())
            return
        remove_chunks(self._folder, {chunk_name(run, shard) for shard, _, _ in places})
        self._writer = ShardedWriter(self._folder, run, compression, places=places)

    def add(self, element: Any) -> list[ShardPlace] | None:
        """Add an element. Return the positions in the chunks if all elements have been
        written, and can be continued there.
        """
        shard = 0 if self._shard_of is None else shard_of(self._shard_of, element)
        is_written = self._writer.add(copied(element), shard) and self._undo is None
        return self._writer.flush() if is_written else None

    def finish(self) -> None:
        """Commit the written elements as the content of the folder."""
        chunks = self._writer.finish()
        manifest = Manifest(self._run, self._compression, None, chunks)
        if self._undo is None:
            write_manifest(self._folder, manifest)
        else:
            # A request without an answer may have stored the manifest, so that the
            # chunks stay if it fails.
            self._undo.detach()
            if not create_manifest(self._folder, manifest):
                _remove_parts(self._folder, chunks, os.getpid())
        self._lock.close()

    def close(self) -> None:
        self._writer.close()
        if self._undo is not None:
            self._undo()
        self._lock.close()

    def __del__(self) -> None:
        self._lock.close()


def shard_of(function: Callable[..., Any], element: Any) -> int:
    """Return the number of an element's shard.

    Raises:
        InvalidArgumentError: the function does not return an integer of 64 bits.
    """
    found = call(function, element)
    try:
        shard = as_index(found, "shard_func")
    except TypeError:
        shard = MOST_SHARD
    if not -MOST_SHARD <= shard < MOST_SHARD:
        raise InvalidArgumentError(
            f"`shard_func` must return a scalar int64, it returned {found!r} of type "
            f"{type(found).__name__}. Return one integer, such as int(x) % 10"
        )
    return shard


def _shard_of_saved(function: Callable[..., Any], element: Any) -> int:
    try:
        return shard_of(function, element)
    except InvalidArgumentError:
        raise
    except FAILURES as error:
        # A loop over a generator that saves would end at a StopIteration.
        text = f"{type(error).__name__}: {text_of(error)}"
        raise PipelineError(f"save({function_name(function)}) failed: {text}") from error


def kept(folder: str, node: Keeping) -> Manifest | None:
    """Return the manifest of a folder of a cache or snapshot; None if it is not
    complete.

    Raises:
        FailedPreconditionError: the folder holds a save.
    """
    try:
        manifest = read_manifest(folder)
    except NotFoundError:
        return None
    if "-" not in manifest.save_id:
        raise FailedPreconditionError(
            f"{node.label}: the folder holds the elements of save(), not those of "
            f"{node.operation}(). Choose another name, or read it with Dataset.load()"
        )
    return manifest


def identity(context: Context) -> list[int]:
    """Return the parts of a context that determine its elements, in the form that a
    state holds.
    """
    turn = context.repetition, context.iteration
    return [context.seed, context.fixed_seed, *turn, *context.path]


def identified(context: Context, ids: list[int]) -> Context:
    """Return a context that produces the elements of the run that an identity was taken
    from.
    """
    seed, fixed_seed, repetition, iteration, *path = ids
    return context.changed(
        seed=seed,
        fixed_seed=fixed_seed,
        repetition=repetition,
        iteration=iteration,
        path=tuple(path),
    )


class FileCacheIterator(ElementIterator):
    """Writes its input's elements into a folder while it returns them, or reads them if
    the folder is complete.

    While it writes, its state holds a state of the input from before the block being
    collected. A restored iterator continues the file from that block, on the same
    machine also after a crash. If the file is gone, or another iterator writes it, the
    restored iterator runs its input again. It leaves the complete file of another run
    unchanged. The state holds no elements.

    A store has no files that grow, so an iterator that was writing there runs its input
    again when it is restored. Several iterators may write at a time, and the first that
    ends counts.

    An element that cannot be stored fails, and ends the writing; later elements are
    returned without being stored.
    """

    compression: str | None = None
    shares = False  # True to go on without writing while another iterator writes

    def __init__(self, node: Keeping, context: Context) -> None:
        self._node, self._context = node, context
        self._publish_in(context)
        self._folder = node.folder
        self._ids = identity(context)
        self._position = 0
        self._reader: ChunkReader | ElementIterator | None = None
        self._input: ElementIterator | None = None
        self._recorder: _Recorder | None = None
        self._mark: list[Any] = []  # positions in the files, and the input's state then
        self._since = 0  # elements and failures from the input since then
        self._started = self._ended = False

    @property
    def _run(self) -> str:
        return "-".join(f"{part:x}" for part in self._ids)

    def __next__(self) -> Any:
        self._strand.place = self._own_place
        if self._ended:
            raise StopIteration
        if not self._started:
            self._start()
        try:
            element = self._record() if self._reader is None else next(self._reader)
        except StopIteration:
            self._ended = True
            raise
        self._position += 1
        return element

    def _start(self) -> None:
        manifest, lock = self._claimed()
        if manifest is None:
            self.close()  # closes the input of a start that failed
            self._begin(None, (), lock)
        else:
            self._reader = self._reading(manifest)
        self._started = True

    def _reading(self, manifest: Manifest) -> ChunkReader | ElementIterator:
        """Return a reader of the complete folder."""
        return ChunkReader(self._folder, manifest.chunks)

    def _complete(self) -> Manifest | None:
        """Return the manifest of the folder if it is complete, else None."""
        manifest = kept(self._folder, self._node)
        if manifest is not None:
            self._ids = [int(part, 16) for part in manifest.save_id.split("-")]
        return manifest

    def _begin_input(self, state: Any) -> None:
        self._input = input_iterator(self._node, identified(self._context, self._ids))
        if state is not None:
            self._input.restore(state)

    def _begin(self, state: Any, places: Sequence[ShardPlace], lock: TextIO | None) -> None:
        """Begin the input, and to record its elements if the lock is held."""
        try:
            self._begin_input(state)
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        assert self._input is not None
        if lock is not None:
            self._recorder = _Recorder(
                self._folder, lock, self._run, self.compression, self._node.shard_function, places
            )
            self._mark, self._since = [list(places), self._input.state()], 0

    def _claimed(self) -> tuple[Manifest | None, TextIO | None]:
        """Return the manifest of the folder if it is complete, or else the lock on it;
        neither if another reader writes it.

        The manifest is looked for again under the lock, because the last writer may
        have written it until then. A second writer would remove its chunks.

        Raises:
            AlreadyExistsError: another reader writes a folder that is not shared.
        """
        manifest = self._complete()
        if manifest is not None:
            return manifest, None
        lock = lock_folder(self._folder)
        manifest = self._complete()
        if lock is not None and manifest is not None:
            lock.close()
            lock = None
        if lock is None and manifest is None and not self.shares:
            path = os.path.join(self._folder, LOCK)
            raise AlreadyExistsError(
                f"{self._node.label}: There appears to be a concurrent caching iterator running: "
                f"{path!r} is held by {_content(path)}. Let it end, or close() it, or give each "
                "reader its own file name; in the service, run one worker on each machine, or "
                "let cache() keep the elements in memory"
            )
        return manifest, lock

    def _record(self) -> Any:
        assert self._input is not None
        try:
            element = next(self._input)
        except StopIteration:
            self._finish()
            raise
        except Exception:
            self._since += 1
            raise
        self._since += 1
        self._strand.place = self._own_place
        recorder = self._recorder
        if recorder is not None:
            try:
                places = recorder.add(element)
            except FAILURES as error:
                # A cache that lacks an element must never count as complete.
                self._recorder = None
                with contextlib.suppress(OSError):
                    recorder.close()
                if isinstance(error, OSError):
                    raise
                raise failure(self._node, error) from error
            if places is not None:
                self._mark, self._since = [places, self._input.state()], 0
        return element

    def _finish(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            # A second attempt would lack the chunk that failed.
            recorder.finish()
        self.close()

    def state(self) -> Any:
        if not self._started:
            return None
        if self._reader is not None:
            return ["read", self._ids, self._position, self._ended, self._reader.state()]
        if self._ended or self._input is None:
            return ["read", self._ids, self._position, True, None]
        if self._recorder is None:
            return ["pass", self._ids, self._position, False, self._input.state()]
        return ["write", self._ids, self._position, False, [*self._mark, self._since]]

    def restore(self, state: Any) -> None:
        if state is None:
            return
        kind, ids, self._position, self._ended, place = state
        self._started = True
        manifest = self._complete()
        self._ids = ids
        if self._ended:
            return
        lock = None
        if manifest is None and kind != "pass":
            manifest, lock = self._claimed()
            self._ids = ids
        complete = manifest is not None and manifest.save_id == self._run
        if manifest is not None and complete and kind == "read":
            self._reader = self._reading(manifest)
            self._reader.restore(place)
        elif manifest is not None and complete and self._node.keeps_order:
            reader = self._reader = ChunkReader(self._folder, manifest.chunks)
            reader.skip(self._position)
        elif kind == "pass":
            self._begin_input(place)
        elif kind == "write":
            self._go_on(place, manifest is None, lock)
        else:
            self._run_again(lock)

    def _go_on(self, place: Any, may_go_on: bool, lock: TextIO | None) -> None:
        """Pull again from the mark on, and continue the file from its position at the
        mark. Under the lock, no other writer removes the file.
        """
        places, inner, since = place
        if not may_go_on or not all(map(self._is_there, places)):
            self._run_again(lock)
            return
        self._begin(inner, places, lock)
        for _ in range(since):
            self._repeat()

    def _is_there(self, place: ShardPlace) -> bool:
        shard, _, size = place
        try:
            return os.path.getsize(os.path.join(self._folder, chunk_name(self._run, shard))) >= size
        except FileNotFoundError:
            return not size

    def _run_again(self, lock: TextIO | None) -> None:
        """Pull everything again from the beginning."""
        self._begin(None, (), lock)
        wanted, self._position = self._position, 0
        while self._position < wanted:
            self._position += self._repeat()

    def _repeat(self) -> int:
        """Pull an entry that was returned before; return 1 for an element, 0 for a
        failure.
        """
        try:
            self._record()
        except StopIteration:
            raise FailedPreconditionError(
                f"The input of {self._node.label} has fewer elements than when the state was "
                "taken: restore on the same input only"
            ) from None
        except DataServiceError as error:
            if error.final:
                raise
            return 0
        return 1

    def close(self) -> None:
        for held in (self._input, self._recorder, self._reader):
            if held is not None:
                held.close()


def _content(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read() or "another iterator"


@make_iterator.register(Snapshot)
class SnapshotIterator(FileCacheIterator):
    """File cache that returns its input's elements unstored while another iterator
    writes the snapshot. It may store elements by shard, and read the shards as a user's
    function says.
    """

    shares = True

    def __init__(self, node: Snapshot, context: Context) -> None:
        super().__init__(node, context)
        self.compression = node.compression
        self._reads_by, self._wrap = node.reader_function, node.wrap

    def _reading(self, manifest: Manifest) -> ChunkReader | ElementIterator:
        if self._reads_by is None or self._wrap is None:
            return super()._reading(manifest)
        whole = Load(path=self._folder, save_id=manifest.save_id, elements_spec=None)
        shards = SavedDatasets(whole=whole, wrap=self._wrap)
        try:
            inner = nested_node(call(self._reads_by, self._wrap(shards)), self._node)
        except FAILURES as error:
            raise failure(self._node, error) from error
        return dataset_iterator(inner, self._context.nested(0, maker=self._node))


def save_elements(
    elements: Iterator[Any],
    folder: str,
    run: str,
    compression: str | None,
    spec: Any,
    shard_function: Callable[..., Any] | None = None,
) -> None:
    """Write all elements into a folder, replacing an earlier save. A folder at a URL is
    not locked.

    Raises:
        AlreadyExistsError: another writer holds the folder.
        TypeError: an element contains a value that cannot be stored, or elements differ
            in nesting or dtype.
        InvalidArgumentError: ``shard_function`` does not return an integer.
        PipelineError: ``shard_function`` failed.
    """
    lock = lock_folder(folder)
    if lock is None:
        raise AlreadyExistsError(
            f"Another writer is saving into {folder!r}: wait until it ends, or choose another path"
        )
    with lock:
        writer = ShardedWriter(folder, run, compression, CHUNK_BYTES)
        add = writer.add
        try:
            for element in elements:
                found = spec_of(element)
                if spec is None:
                    spec = found
                elif spec != found:
                    spec = merge_specs(spec, found)
                if shard_function is None:
                    add(copied(element))
                else:
                    add(copied(element), _shard_of_saved(shard_function, element))
            chunks = writer.finish()
        except BaseException:
            writer.close()
            with contextlib.suppress(NotFoundError):
                remove_chunks(folder, {chunk.name for chunk in read_manifest(folder).chunks})
            raise
        write_manifest(folder, Manifest(run, compression, spec_text(spec), chunks))
