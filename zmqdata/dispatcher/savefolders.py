"""The dispatcher's file operations for saves: it creates and checks folders, gives
chunks their final names, and writes markers.

``core.dispatcher.saving`` decides which chunks are committed. ``storage.manifests``
defines the file names.

Decision 0014; protocol 10.3 to 10.8.
"""

from __future__ import annotations

import json
import logging
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from zmqdata.core.dispatcher import events as e
from zmqdata.elements.specs import decode_spec
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    InvalidArgumentError,
    MissingDtypeError,
    NotFoundError,
)
from zmqdata.files.paths import files_token
from zmqdata.storage.files import FileSystem, error_name_of
from zmqdata.storage.manifests import (
    CHUNKS,
    STREAMS,
    Chunk,
    ChunkName,
    Manifest,
    SaveDescription,
    SaveError,
    begin_save,
    chunk_path,
    committed_chunks,
    fail_save,
    finish_save,
    one_spec,
    parse_stream,
    partial_save,
    read_save,
    uncommitted_path,
)
from zmqdata.storage.remote import files_of
from zmqdata.transport.closed import SAVES
from zmqdata.transport.folders import open_own

log = logging.getLogger(__name__)

THREADS = 4


Kind = TypeVar("Kind")


class SaveFolders:
    """Carries out commands of ``core.dispatcher.saving`` in its own threads.

    Args:
        report: takes the answering events, from any thread.
        work_dir: folder with the dispatcher's journal.
    """

    def __init__(self, report: Callable[[e.DispatcherEvent], None], work_dir: str = "") -> None:
        self._report = report
        self._work_dir = work_dir
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="zmqdata-saves")

    def prepare(self, command: e.PrepareSave) -> None:
        """Create the folder of a save."""
        self._submit(partial(prepare_save, work_dir=self._work_dir), command)

    def publish(self, command: e.PublishChunk) -> None:
        """Give a chunk its final name."""
        self._submit(publish_chunk, command)

    def check(self, command: e.CheckSave) -> None:
        """Compare the folder of a save with the journal."""
        self._submit(check_save, command)

    def finish(self, command: e.FinishSave) -> None:
        """Write the marker that ends a save."""
        self._submit(write_marker, command)

    def find(self, command: e.FindChunks) -> None:
        """List the committed chunks of a save."""
        self._submit(find_chunks, command)

    def _submit(self, act: Callable[[Kind], e.DispatcherEvent], command: Kind) -> None:
        self._threads.submit(lambda: self._report(act(command)))

    def close(self) -> None:
        """End the threads. Operations that have not begun are left for the next
        life.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)


def prepare_save(command: e.PrepareSave, work_dir: str = "") -> e.SavePrepared:
    """Create the folder of a save, unless a save exists there. Its description names
    the folder of the dispatcher's journal.
    """
    objection = _objection(command.path)
    if objection:
        return e.SavePrepared(
            command.path, command.save_id, InvalidArgumentError.__name__, objection
        )
    spec = None if command.spec is None else b64encode(command.spec).decode()
    try:
        begin_save(
            command.path,
            SaveDescription(
                command.save_id,
                command.compression,
                spec,
                command.cardinality,
                work_dir=work_dir,
                files=files_token(),
            ),
        )
        if work_dir:
            with open(Path(work_dir, SAVES), "a", encoding="utf-8", opener=open_own) as saves:
                saves.write(f"{json.dumps(command.path)}\n")
    except DataServiceError as error:
        return e.SavePrepared(command.path, command.save_id, type(error).__name__, str(error))
    except Exception as error:  # file systems raise errors of any class, and the user must see them
        text = f"The dispatcher cannot create the folder {command.path}: {error}"
        name = error_name_of(error, NotFoundError)
        return e.SavePrepared(command.path, command.save_id, name, text)
    return e.SavePrepared(command.path, command.save_id)


def _objection(path: str) -> str:
    """Return the reason why no save can be at a path, whatever the folder contains; ""
    if a save is possible.
    """
    if "::" in path:
        # Chained file systems of fsspec open names given by a client as a template or
        # an archive.
        return (
            f"A save goes to a single file system, but {path} names several. Give the "
            "folder without '::'"
        )
    if path.startswith("memory://"):
        return (
            "A save needs storage that dispatcher and workers share, but only the "
            f"process that writes to {path} can read it. Give a folder, or a URL that "
            "all of them can reach"
        )
    return ""


def publish_chunk(command: e.PublishChunk) -> e.ChunkPublished:
    """Give a chunk its final name, unless it already has that."""
    try:
        _publish(files_of(command.path), command.path, command.chunk)
    except Exception as error:
        # An error of a file system, of whatever class, must fail this save but not the
        # dispatcher.
        text = str(error) or type(error).__name__
        name = error_name_of(error, DataLossError)
        return e.ChunkPublished(command.iteration, command.chunk, text, name)
    return e.ChunkPublished(command.iteration, command.chunk)


def name_of(chunk: e.SaveChunk) -> ChunkName:
    """Return the final name of a chunk."""
    return ChunkName(chunk.stream, chunk.number, chunk.stop - chunk.first)


def _publish(files: FileSystem, path: str, chunk: e.SaveChunk) -> None:
    target = chunk_path(path, name_of(chunk))
    if files.size(target) != chunk.size:
        source = uncommitted_path(path, chunk.stream, chunk.attempt, chunk.first)
        size = files.size(source)
        if size != chunk.size:
            there = (
                "does not exist" if size is None else f"has {size} bytes instead of {chunk.size}"
            )
            raise DataLossError(f"Found missing chunk {target}: {source} {there}")
        files.move(source, target)


def write_marker(command: e.FinishSave) -> e.SaveFinished:
    """End a save with a manifest and ``DONE``, or with ``ERROR``. A folder that belongs
    to another save by now is left alone.
    """
    try:
        failed = _failure_of(command)
        if _is_anothers(command.path, command.save_id):
            log.error(
                "%s gets no marker of the save that ended: another save has taken the folder",
                command.path,
            )
        elif failed is not None:
            fail_save(command.path, failed)
        else:
            finish_save(command.path, _manifest(command))
    except Exception as error:  # for example a full disk: the dispatcher tries again
        return e.SaveFinished(command.iteration, str(error) or type(error).__name__)
    return e.SaveFinished(command.iteration)


def _is_anothers(path: str, save_id: str) -> bool:
    try:
        there = read_save(path)
    except DataServiceError:  # damaged: another save cannot read it either
        return False
    return there is not None and there.save_id != save_id


def _failure_of(command: e.FinishSave) -> SaveError | None:
    """Return why a save has failed; None if it has not. All committed chunks must still
    exist, because other programs may have removed them.
    """
    if command.error:
        return SaveError(command.error, command.text, command.failure.hex())
    try:
        if command.specs:
            reduce(one_spec, map(decode_spec, command.specs))
    except InvalidArgumentError as error:  # each chunk has its own structure, and they differ
        log.error("the save to %s failed: %s", command.path, error)
        return SaveError(InvalidArgumentError.__name__, str(error))
    except MissingDtypeError as error:
        log.warning("the specs of the save to %s are not compared: %s", command.path, error)
    there = set(files_of(command.path).names(f"{command.path}/{CHUNKS}"))
    missing = [name for name in map(str, map(name_of, command.chunks)) if name not in there]
    if not missing:
        return None
    text = (
        f"Found missing chunk {chunk_path(command.path, missing[0])}, and "
        f"{len(missing) - 1} more: chunks of the save were removed while it ran. Save "
        "again to another path, and leave its folder alone until it is done"
    )
    log.error("the save to %s failed: %s", command.path, text)
    return SaveError(DataLossError.__name__, text)


def _manifest(command: e.FinishSave) -> Manifest:
    chunks = [
        Chunk(f"{CHUNKS}/{name_of(one)}", one.stop - one.first, one.size) for one in command.chunks
    ]
    specs = tuple(b64encode(spec).decode() for spec in command.specs)
    return Manifest(
        command.save_id, command.compression, None, tuple(chunks), specs, splittable=True
    )


def check_save(command: e.CheckSave) -> e.SaveChecked:
    """Compare the folder of a running save with what the dispatcher knows, and publish
    unpublished chunks.
    """
    try:
        return e.SaveChecked(command.iteration, _check(command))
    except DataServiceError as error:
        return e.SaveChecked(command.iteration, conflict=str(error))
    except Exception as error:  # for example an unreachable file system: the dispatcher tries again
        return e.SaveChecked(command.iteration, error=str(error) or type(error).__name__)


def _check(command: e.CheckSave) -> int:
    """Return the number of streams that the folder has.

    Raises:
        DataLossError: a committed chunk is missing, or the folder has an unknown chunk.
    """
    files = files_of(command.path)
    description = read_save(command.path)
    if description is None or description.save_id != command.save_id:
        there = "nothing" if description is None else "another save"
        raise DataLossError(
            f"Found conflict: there is {there} in {command.path}, where a save is running"
        )
    streams = [parse_stream(name) for name in files.names(f"{command.path}/{STREAMS}")]
    known = {name_of(chunk) for chunk in command.chunks}
    for chunk_name in committed_chunks(files, command.path):
        if chunk_name not in known:
            raise DataLossError(
                f"Found conflict: {command.path} has {chunk_name}, which was never committed"
            )
    for chunk in command.chunks:
        _publish(files, command.path, chunk)
    return max(streams, default=-1) + 1


def find_chunks(command: e.FindChunks) -> e.ChunksFound:
    """List the committed chunks of a save, for tasks that read them."""
    found = e.ChunksFound(command.iteration, command.source, command.repetition)
    objection = _objection(command.chunks.path)
    if objection:
        return replace(found, error=InvalidArgumentError.__name__, text=objection)
    try:
        there = partial_save(command.chunks.path, command.chunks.save_id)
    except DataServiceError as error:
        text = f"The dispatcher cannot read the save: {error}"
        return replace(found, error=type(error).__name__, text=text)
    except Exception as error:  # for example an unreachable file system: it is tried again
        return replace(found, text=str(error) or type(error).__name__)
    if there.error is not None:
        failure = bytes.fromhex(there.error.failure)
        return replace(found, error=there.error.error, text=there.error.text, failure=failure)
    return replace(found, names=tuple(map(str, there.chunks)), more=there.more)
