"""Descriptions of saved elements in a folder: its manifest, its markers and the names
of its chunks.

``save`` writes a manifest with chunks beside it. ``distributed_save`` writes more:

* ``save.json`` (a description of the save), at the beginning;
* ``chunks/chunk_<stream>_<chunk>_<elements>`` for each committed chunk;
* ``streams/stream_<stream>/`` for chunks that are not yet committed;
* at the end the manifest with the marker ``DONE``, or the marker ``ERROR``.

Blocks and elements belong to ``chunks``.
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode, b64encode
from itertools import pairwise
from struct import Struct as Layout
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec

from zmqdata.elements.specs import decode_spec, encode_spec, merge_specs
from zmqdata.errors import (
    AlreadyExistsError,
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    named_error,
)
from zmqdata.files.paths import shown_url
from zmqdata.storage.files import FileSystem, read
from zmqdata.storage.remote import files_of

MANIFEST = "manifest.json"
SAVE = "save.json"
DONE = "DONE"
ERROR = "ERROR"
CHUNKS = "chunks"
STREAMS = "streams"
MOST_BYTES = 256 << 20
"""Maximum size of a manifest, which needs about a hundred bytes for each chunk. Without
this limit, a crafted folder could make the reader read without end.
"""
MOST_ELEMENTS = 10**18 - 1
"""Maximum number of elements in all chunks: the largest number that fits into a chunk's
name.
"""
MOST_PER_BYTE = 1 << 20
"""Upper bound on the elements for each byte of a chunk: the maximum number of elements
in a block, which has many bytes.
"""
_FORMAT = "zmqdata elements 1"
_SAVE_FORMAT = "zmqdata distributed save 1"
_NUMBER = "(0|[1-9][0-9]{0,17})"
_CHUNK = re.compile(f"chunk_{_NUMBER}_{_NUMBER}_{_NUMBER}")
_STREAM = re.compile(f"stream_{_NUMBER}")
_CHUNK_FILE = re.compile(rf"[^/\0]+\.chunk|{CHUNKS}/{_CHUNK.pattern}")

HEAD = Layout("<4sIQI")
"""Beginning of a block in a chunk: mark, bytes of the header, bytes of the frames,
checksum of both.
"""
MARK = b"zqb1"

T = TypeVar("T", bound=msgspec.Struct)


class Chunk(msgspec.Struct, frozen=True):
    """A chunk of a folder."""

    name: str
    """Name of its file, relative to the folder."""
    elements: int
    """Number of its elements."""
    nbytes: int
    """Size of its file in bytes."""
    shard: int = 0
    """Number of its shard, as ``shard_func`` returned it."""


class Manifest(msgspec.Struct, frozen=True):
    """Description of the content of a folder."""

    save_id: str
    """Id of the save that wrote the folder."""
    compression: str | None
    """Compression of the blocks, as for ``distribute``."""
    spec: str | None
    """Encoded spec of the elements, or None if it is unknown."""
    chunks: tuple[Chunk, ...]
    """The chunks, in the order in which they are read."""
    specs: tuple[str, ...] = ()
    """Further encoded specs; the spec of all elements admits each of them."""
    splittable: bool = False
    """True if each chunk may be read by another task."""
    format: str = _FORMAT
    """Name and version of the file format."""

    @property
    def elements(self) -> int:
        """The number of elements in all chunks."""
        return sum(chunk.elements for chunk in self.chunks)

    @property
    def element_spec(self) -> Any:
        """The spec of all elements; None if it is unknown."""
        if self.spec is not None:
            return decode_spec(b64decode(self.spec))
        merged = None
        for text in self.specs:
            spec = decode_spec(b64decode(text))
            try:
                merged = spec if merged is None else merge_specs(merged, spec)
            except TypeError:
                return None
        return merged


class SaveDescription(msgspec.Struct, frozen=True):
    """Description of a distributed save, from its beginning on."""

    save_id: str
    """Id of this save."""
    compression: str | None
    """Compression of the blocks, as for ``distribute``."""
    spec: str | None
    """Encoded spec of the elements, as far as it was known before the first element."""
    cardinality: int
    """Number of elements, if it is known."""
    format: str = _SAVE_FORMAT
    """Name and version of the file format."""
    work_dir: str = ""
    """Folder of the dispatcher that keeps the journal, without which the save cannot
    continue; empty if it is not known.
    """
    files: str = ""
    """Token of the files that the dispatcher sees (``paths.files_token``); empty if it
    is not known.
    """

    @property
    def element_spec(self) -> Any:
        return None if self.spec is None else decode_spec(b64decode(self.spec))


class SaveError(msgspec.Struct, frozen=True):
    """The reason why a save failed."""

    error: str
    """Name of the class of the error."""
    text: str
    """Text of the error."""
    failure: str = ""
    """The encoded failure if a pipeline failed, else empty."""


class ChunkName(NamedTuple):
    """The parsed name of a chunk.

    >>> str(ChunkName(3, 0, 25)), ChunkName.parse("chunk_3_0_25")
    ('chunk_3_0_25', ChunkName(stream=3, chunk=0, elements=25))
    """

    stream: int
    """Number of the chunk's stream."""
    chunk: int
    """Number of the chunk in its stream."""
    elements: int
    """Number of the chunk's elements."""

    def __str__(self) -> str:
        return f"chunk_{self.stream}_{self.chunk}_{self.elements}"

    @staticmethod
    def parse(name: str) -> ChunkName:
        """Parse a name. Raise DataLossError if it is not the name of a chunk."""
        found = _CHUNK.fullmatch(name)
        if found is None:
            raise DataLossError(
                f"Can't parse the name {name!r}. Expected chunk_<stream>_<chunk>_<num_elements>"
            )
        return ChunkName(*map(int, found.groups()))

    @property
    def turn(self) -> tuple[int, int]:
        """The sort key of the order in which chunks are read: the first chunk of each
        stream, the second of each, and so on.
        """
        return self.chunk, self.stream


class _CountedBlock(msgspec.Struct, frozen=True, array_like=True):
    """The beginning of a block's description, ``blocks.BlockMeta``. The module of
    blocks opens pickles, which a dispatcher must not.
    """

    count: int
    """Number of elements."""


def count_elements(file: BinaryIO, size: int) -> int:
    """Return the number of elements in the whole blocks from the position of a file on,
    and move the position behind them. The elements themselves are not read.

    Args:
        file: a chunk that may still be written.
        size: number of bytes in the file.
    """
    count, at = 0, file.tell()
    while len(head := file.read(HEAD.size)) == HEAD.size:
        mark, header_size, frames_size, _ = HEAD.unpack(head)
        stop = at + HEAD.size + header_size + frames_size
        if mark != MARK or stop > size:
            break
        meta, _ = msgspec.msgpack.decode(file.read(header_size))
        count += msgspec.msgpack.decode(meta, type=_CountedBlock).count
        at = file.seek(stop)
    file.seek(at)
    return count


def stream_name(stream: int) -> str:
    """Return the name of a stream's folder within ``streams``."""
    return f"stream_{stream}"


def parse_stream(name: str) -> int:
    """Return the number of a stream from the name of its folder.

    Raises:
        DataLossError: the name is not that of a stream.

    >>> parse_stream("stream_4")
    4
    """
    found = _STREAM.fullmatch(name)
    if found is None:
        raise DataLossError(f"Can't parse the name {name!r}. Expected stream_<stream>")
    return int(found[1])


def chunk_path(path: str, name: str | ChunkName) -> str:
    """Return the path of a committed chunk of a distributed save."""
    return f"{path}/{CHUNKS}/{name}"


def uncommitted_path(path: str, stream: int, attempt: int, first: int) -> str:
    """Return the path of an uncommitted chunk, written under this attempt of the task
    from element ``first`` on.
    """
    return f"{path}/{STREAMS}/{stream_name(stream)}/uncommitted_chunks/chunk_{attempt}_{first}"


def spec_text(spec: Any) -> str | None:
    """Return a spec as text for a manifest."""
    return None if spec is None else b64encode(encode_spec(spec)).decode()


# --- with a checksum


def one_spec(one: Any, other: Any) -> Any:
    """Return the narrowest spec that admits the elements of both; all elements of a
    save need a common spec.

    Raises:
        InvalidArgumentError: the specs differ in nesting or dtype; the text shows both.

    >>> from zmqdata.elements.specs import TensorSpec
    >>> one_spec(TensorSpec((2,), "int8"), TensorSpec((3,), "int8"))
    TensorSpec(shape=(None,), dtype=int8)
    """
    if one == other:
        return one
    try:
        return merge_specs(one, other)
    except TypeError:
        raise InvalidArgumentError(
            "The elements of a saved dataset must have one structure, but they have "
            f"the specs {one} and {other}. Make nesting and dtypes equal with map(), "
            "or save them to two paths"
        ) from None


def _checksum(content: Any) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def _seal(struct: msgspec.Struct) -> bytes:
    content = msgspec.to_builtins(struct)
    return json.dumps({**content, "checksum": _checksum(content)}, indent=1).encode()


def _read(path: str, kind: type[T]) -> T:
    content = read(files_of(path), path, MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise DataLossError(
            f"{shown_url(path)} is damaged: it has more than {MOST_BYTES} bytes, more than "
            "zmqdata ever writes. Remove the folder and save the dataset again"
        )
    return _unseal(content, shown_url(path), kind)


def _unseal(content: bytes, path: str, kind: type[T]) -> T:
    try:
        decoded = json.loads(content)
        checksum = decoded.pop("checksum")
        found = msgspec.convert(decoded, kind)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise DataLossError(f"{path} is damaged: {error}") from None
    wanted = {field.name: field.default for field in msgspec.structs.fields(kind)}.get("format")
    if checksum != _checksum(decoded) or getattr(found, "format", wanted) != wanted:
        raise DataLossError(
            f"{path} is damaged, or was written by another version: its checksum does not match"
        )
    return found


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Make the chunks named by a manifest the content of a folder, and remove all other
    chunks.
    """
    files_of(folder).replace(f"{folder}/{MANIFEST}", _seal(manifest))
    remove_chunks(folder, {chunk.name for chunk in manifest.chunks})


def create_manifest(folder: str, manifest: Manifest) -> bool:
    """Make the chunks named by a manifest the content of a folder that has none. Return
    False if the folder has a content by now. Other chunks stay.
    """
    try:
        files_of(folder).create(f"{folder}/{MANIFEST}", _seal(manifest))
    except AlreadyExistsError:
        return False
    return True


def remove_chunks(folder: str, keep: set[str]) -> None:
    """Remove all chunks of a folder except the named chunks."""
    files = files_of(folder)
    for name in files.names(folder):
        if name.endswith(".chunk") and name not in keep:
            files.remove(f"{folder}/{name}")


def read_manifest(folder: str) -> Manifest:
    """Return the manifest of a folder.

    Raises:
        NotFoundError: the folder has no manifest.
        DataLossError: the manifest cannot be read.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        manifest = _read(path, Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"{shown_url(folder)!r} holds no saved dataset: it has no {MANIFEST}. Check the "
            "path; an interrupted save leaves no manifest"
        ) from None
    _check_chunks(shown_url(path), manifest)
    return manifest


def _check_chunks(path: str, manifest: Manifest) -> None:
    """Raise for values that no writer produces. A valid checksum does not prevent a
    crafted manifest from naming files outside its folder.
    """
    for chunk in manifest.chunks:
        if not _CHUNK_FILE.fullmatch(chunk.name):
            raise DataLossError(
                f"{path} is damaged: it names the chunk {chunk.name!r:.200}. Expected "
                f"<name>.chunk or {CHUNKS}/chunk_<stream>_<chunk>_<num_elements>. "
                "Remove the folder and save the dataset again"
            )
        if not 0 <= chunk.elements <= chunk.nbytes * MOST_PER_BYTE:
            raise DataLossError(
                f"{path} is damaged: it claims {chunk.elements} elements in the "
                f"{chunk.nbytes} bytes of {chunk.name}, which hold at least 0 and at "
                f"most {MOST_PER_BYTE} each. Remove the folder and save the dataset "
                "again"
            )
    if manifest.elements > MOST_ELEMENTS:
        raise DataLossError(
            f"{path} is damaged: it claims {manifest.elements} elements, at most "
            f"{MOST_ELEMENTS} are possible. Remove the folder and save the dataset "
            "again"
        )


# --- a distributed save from its beginning to its end


def begin_save(path: str, description: SaveDescription) -> None:
    """Reserve a folder for this save. Idempotent.

    Raises:
        AlreadyExistsError: the folder belongs to another save.
    """
    files = files_of(path)
    there = read_save(path)
    if there is not None and there.save_id == description.save_id:
        return
    # If the folder was removed during a save, the marker of its failure is all that
    # remains.
    if there is None and all(files.size(f"{path}/{name}") is None for name in (MANIFEST, ERROR)):
        try:
            files.create(f"{path}/{SAVE}", _seal(description))
        except AlreadyExistsError:
            pass
        else:
            return
    raise AlreadyExistsError(already_saved(path))


def already_saved(path: str) -> str:
    """Return the error text for a save into a folder that belongs to another save."""
    return (
        f"A save to {path} is already started or completed. Choose another path, or "
        "remove that folder when no process writes to it any longer"
    )


def read_save(path: str) -> SaveDescription | None:
    """Return the description of the ``distributed_save`` into a folder; None if the
    folder has none.

    Raises:
        DataLossError: the description cannot be read.
    """
    name = f"{path}/{SAVE}"
    try:
        return _read(name, SaveDescription)
    except (FileNotFoundError, NotADirectoryError):
        return None


def finish_save(path: str, manifest: Manifest) -> None:
    """Write the manifest and the marker of completion, and remove uncommitted
    chunks.
    """
    files = files_of(path)
    files.replace(f"{path}/{MANIFEST}", _seal(manifest))
    files.replace(f"{path}/{DONE}", b"")
    files.remove_folder(f"{path}/{STREAMS}")


def fail_save(path: str, error: SaveError) -> None:
    """Remove uncommitted chunks, which may fill the disk, and write the marker of
    failure, with the reason.
    """
    files = files_of(path)
    files.remove_folder(f"{path}/{STREAMS}")
    files.replace(f"{path}/{ERROR}", _seal(error))


def read_save_error(path: str) -> SaveError | None:
    """Return the reason why the save into a folder failed; None if it did not fail."""
    name = f"{path}/{ERROR}"
    try:
        return _read(name, SaveError)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_done(path: str) -> bool:
    """Return True if the save into a folder is complete."""
    return files_of(path).size(f"{path}/{DONE}") is not None


def committed_chunks(files: FileSystem, path: str) -> list[ChunkName]:
    """Return the committed chunks of a folder, in the order in which they are read.

    Raises:
        DataLossError: the folder contains another file, or a chunk twice.
    """
    chunks = sorted(
        (ChunkName.parse(name) for name in files.names(f"{path}/{CHUNKS}")),
        key=lambda one: one.turn,
    )
    for one, other in pairwise(chunks):
        if one.turn == other.turn:
            raise DataLossError(f"Found duplicate chunk: {path} has {one} and {other}")
    return chunks


class PartialSave(NamedTuple):
    """The state of a distributed save that is read while it is written."""

    chunks: tuple[ChunkName, ...]
    """The committed chunks, in the order in which they are read."""
    more: bool
    """True if the save may commit further chunks."""
    error: SaveError | None
    """The reason why the save failed; None if it did not fail."""


def partial_save(path: str, save_id: str) -> PartialSave:
    """Return the state of a distributed save.

    Raises:
        FailedPreconditionError: the folder has no save, or another save.
        DataLossError: the folder is damaged.
    """
    # Read the marker before the chunks: the chunks listed after it are all that the
    # save will have.
    done = is_done(path)
    error = read_save_error(path)
    if error is not None:
        return PartialSave((), False, error)
    description = read_save(path)
    if description is None:
        raise FailedPreconditionError(
            f"{path} has no save: it has no {SAVE}. The save was removed since load() was called, "
            "or this machine does not see the folder"
        )
    if description.save_id != save_id:
        raise FailedPreconditionError(
            f"{path}: something else was saved there since load() was called. Call it again"
        )
    chunks = tuple(committed_chunks(files_of(path), path))
    if done:
        missing = {chunk.name for chunk in read_manifest(path).chunks} - {
            f"{CHUNKS}/{name}" for name in chunks
        }
        if missing:
            raise DataLossError(f"{path} is damaged: Found missing chunk {min(missing)}")
    return PartialSave(chunks, not done, None)


def error_of(error: SaveError) -> DataServiceError:
    """Return the error, without the details of a pipeline failure."""
    return named_error(error.error, error.text)
