"""What a folder of saved elements holds, beside the elements: its manifest, its markers
and the names of its chunks.

``save`` leaves a manifest and chunks beside it. ``distributed_save`` has more:
``save.json`` (what is being saved) from the beginning,
``chunks/chunk_<stream>_<chunk>_<elements>`` for each chunk that counts,
``streams/stream_<stream>/`` for those that do not yet, and at the end the manifest with
the marker ``DONE``, or the marker ``ERROR``. Blocks and elements belong to ``chunks``.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from base64 import b64decode, b64encode
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import msgspec

from zmqdata.elements.specs import decode_spec, encode_spec, merge_specs
from zmqdata.errors import (
    AlreadyExistsError,
    DataLossError,
    DataServiceError,
    InvalidArgumentError,
    NotFoundError,
    named_error,
)
from zmqdata.storage.files import LOCAL, FileSystem, files_of, read

MANIFEST = "manifest.json"
SAVE = "save.json"
DONE = "DONE"
ERROR = "ERROR"
CHUNKS = "chunks"
STREAMS = "streams"
MOST_BYTES = 256 << 20
"""Of a manifest, which has about a hundred for each chunk: whoever made the folder
could have us read without end.
"""
MOST_ELEMENTS = 10**18 - 1
"""Of all chunks, as many as the name of one can tell."""
MOST_PER_BYTE = 1 << 20
"""Elements in each byte of a chunk, more than there ever are: as many as a block may
hold, which takes many bytes.
"""
_FORMAT = "zmqdata elements 1"
_SAVE_FORMAT = "zmqdata distributed save 1"
_NUMBER = "(0|[1-9][0-9]{0,17})"
_CHUNK = re.compile(f"chunk_{_NUMBER}_{_NUMBER}_{_NUMBER}")
_STREAM = re.compile(f"stream_{_NUMBER}")
_CHUNK_FILE = re.compile(rf"[^/\0]+\.chunk|{CHUNKS}/{_CHUNK.pattern}")

T = TypeVar("T", bound=msgspec.Struct)


class Chunk(msgspec.Struct, frozen=True):
    """One file of a folder: how many elements it holds, in how many bytes."""

    name: str
    elements: int
    nbytes: int


class Manifest(msgspec.Struct, frozen=True):
    """What a folder holds.

    Attributes:
        run: tells what was written at one time from what was written at another.
        spec: of the elements, encoded, or None where there are none to tell.
        specs: more such specs; that of all elements admits each of them.
        splittable: whether its chunks may be read by several tasks, each by one.
    """

    run: str
    compression: str | None
    spec: str | None
    chunks: tuple[Chunk, ...]
    specs: tuple[str, ...] = ()
    splittable: bool = False
    format: str = _FORMAT

    @property
    def elements(self) -> int:
        """How many there are in all chunks."""
        return sum(chunk.elements for chunk in self.chunks)

    @property
    def element_spec(self) -> Any:
        """The spec of all elements; None where it is not known."""
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
    """What is being saved in a folder, from the moment at which it began.

    Attributes:
        run: tells this save from every other.
        spec: of the elements, encoded, as far as it was known before the first of them.
        cardinality: the number of elements, where it is known.
    """

    run: str
    compression: str | None
    spec: str | None
    cardinality: int
    format: str = _SAVE_FORMAT

    @property
    def element_spec(self) -> Any:
        return None if self.spec is None else decode_spec(b64decode(self.spec))


class SaveError(msgspec.Struct, frozen=True):
    """Why a save failed: an error by name, its text and, where a pipeline failed, the
    encoded failure.
    """

    error: str
    text: str
    failure: str = ""


class ChunkName(NamedTuple):
    """What the name of a chunk says: its stream, its number there, and how many
    elements it holds.

    >>> str(ChunkName(3, 0, 25)), ChunkName.parse("chunk_3_0_25")
    ('chunk_3_0_25', ChunkName(stream=3, chunk=0, elements=25))
    """

    stream: int
    chunk: int
    elements: int

    def __str__(self) -> str:
        return f"chunk_{self.stream}_{self.chunk}_{self.elements}"

    @staticmethod
    def parse(name: str) -> ChunkName:
        """Raises DataLossError where it is none."""
        found = _CHUNK.fullmatch(name)
        if found is None:
            raise DataLossError(
                f"Can't parse the name {name!r}. Expected chunk_<stream>_<chunk>_<num_elements>"
            )
        return ChunkName(*map(int, found.groups()))

    @property
    def turn(self) -> tuple[int, int]:
        """Its place in the order in which chunks are read: the first of each stream,
        the second of each, ...
        """
        return self.chunk, self.stream


def stream_name(stream: int) -> str:
    """The folder of a stream, within ``streams``."""
    return f"stream_{stream}"


def parse_stream(name: str) -> int:
    """The number of a stream by the name of its folder.

    Raises:
        DataLossError: it is none.

    >>> parse_stream("stream_4")
    4
    """
    found = _STREAM.fullmatch(name)
    if found is None:
        raise DataLossError(f"Can't parse the name {name!r}. Expected stream_<stream>")
    return int(found[1])


def chunk_path(path: str, name: str | ChunkName) -> str:
    """Where a chunk of a distributed save lies that counts."""
    return f"{path}/{CHUNKS}/{name}"


def uncommitted_path(path: str, stream: int, attempt: int, first: int) -> str:
    """Where a chunk lies while it does not count: written under this attempt of the
    task, from element ``first`` on.
    """
    return f"{path}/{STREAMS}/{stream_name(stream)}/uncommitted_chunks/chunk_{attempt}_{first}"


def spec_text(spec: Any) -> str | None:
    """A spec as a manifest holds it."""
    return None if spec is None else b64encode(encode_spec(spec)).decode()


# --- with a checksum


def one_spec(one: Any, other: Any) -> Any:
    """The narrowest spec that admits the elements of both, as those of one save must
    have it.

    Raises:
        InvalidArgumentError: they differ in nesting or dtype; the text shows both.

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
            "The elements of a saved dataset must have one structure, but there are elements of "
            f"{one} and of {other}. "
            "Make nesting and dtypes equal with map(), or save them to two paths"
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
            f"{path} is damaged: it has more than {MOST_BYTES} bytes, which is more than is ever "
            "written. Remove the "
            "folder and make it again"
        )
    return _unseal(content, path, kind)


def _unseal(content: bytes, path: str, kind: type[T]) -> T:
    try:
        decoded = json.loads(content)
        checksum = decoded.pop("checksum")
        found = msgspec.convert(decoded, kind)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise DataLossError(f"{path} is damaged: {error}") from None
    wanted = {field.name: field.default for field in msgspec.structs.fields(kind)}.get("format")
    if checksum != _checksum(decoded) or getattr(found, "format", wanted) != wanted:
        raise DataLossError(f"{path} is damaged, or of another version: its checksum does not fit")
    return found


def write_manifest(folder: str, manifest: Manifest) -> None:
    """Make the chunks that it names the content of a folder of this machine, and remove
    all others.
    """
    LOCAL.replace(os.path.join(folder, MANIFEST), _seal(manifest))
    remove_chunks(folder, {chunk.name for chunk in manifest.chunks})


def remove_chunks(folder: str, keep: set[str]) -> None:
    """Remove the chunks of a folder but those named."""
    for name in os.listdir(folder):
        if name.endswith(".chunk") and name not in keep:
            os.remove(os.path.join(folder, name))


def read_manifest(folder: str) -> Manifest:
    """What a folder holds.

    Raises:
        NotFoundError: there is no manifest.
        DataLossError: it cannot be read.
    """
    path = f"{folder}/{MANIFEST}"
    try:
        manifest = _read(path, Manifest)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"{folder!r} holds no saved dataset: there is no {MANIFEST} in it. Check the path; a "
            "save that was broken "
            "off leaves none"
        ) from None
    _check_chunks(path, manifest)
    return manifest


def _check_chunks(path: str, manifest: Manifest) -> None:
    """Refuses what no writer says: a checksum keeps nobody from writing a manifest that
    leads out of its folder.
    """
    for chunk in manifest.chunks:
        if not _CHUNK_FILE.fullmatch(chunk.name):
            raise DataLossError(
                f"{path} is damaged: it names the chunk {chunk.name!r:.200}. Expected <name>.chunk "
                "or "
                f"{CHUNKS}/chunk_<stream>_<chunk>_<num_elements>. Remove the folder and make it "
                "again"
            )
        if not 0 <= chunk.elements <= chunk.nbytes * MOST_PER_BYTE:
            raise DataLossError(
                f"{path} is damaged: it claims {chunk.elements} elements in the {chunk.nbytes} "
                f"bytes of {chunk.name}, "
                f"which hold at least 0 and at most {MOST_PER_BYTE} each. Remove the folder and "
                "make it again"
            )
    if manifest.elements > MOST_ELEMENTS:
        raise DataLossError(
            f"{path} is damaged: it claims {manifest.elements} elements, at most {MOST_ELEMENTS} "
            "are possible. Remove "
            "the folder and make it again"
        )


# --- a distributed save from its beginning to its end


def begin_save(path: str, description: SaveDescription) -> None:
    """Makes a folder that of this save; doing it again changes nothing.

    Raises:
        AlreadyExistsError: something else is or was saved there.
    """
    files = files_of(path)
    there = read_save(path)
    if there is not None and there.run == description.run:
        return
    # One whose folder was removed while it ran has left nothing but why it failed.
    if there is None and all(files.size(f"{path}/{name}") is None for name in (MANIFEST, ERROR)):
        try:
            files.create(f"{path}/{SAVE}", _seal(description))
        except AlreadyExistsError:
            pass
        else:
            return
    raise AlreadyExistsError(already_saved(path))


def already_saved(path: str) -> str:
    """What to tell somebody who saves where something is or was saved."""
    return (
        f"A save to {path} is already started or completed. Choose another path, or remove that "
        "folder once nobody "
        "writes to it"
    )


def read_save(path: str) -> SaveDescription | None:
    """What is or was saved in a folder by ``distributed_save``; None where nothing was.

    Raises:
        DataLossError: the description cannot be read.
    """
    name = f"{path}/{SAVE}"
    try:
        return _read(name, SaveDescription)
    except (FileNotFoundError, NotADirectoryError):
        return None


def finish_save(path: str, manifest: Manifest) -> None:
    """Writes the manifest and the marker that all is there, and removes what does not
    count.
    """
    files = files_of(path)
    files.replace(f"{path}/{MANIFEST}", _seal(manifest))
    files.replace(f"{path}/{DONE}", b"")
    files.remove_folder(f"{path}/{STREAMS}")


def fail_save(path: str, error: SaveError) -> None:
    """Writes the marker that the save failed, with the reason."""
    files = files_of(path)
    files.replace(f"{path}/{ERROR}", _seal(error))
    files.remove_folder(f"{path}/{STREAMS}")


def read_save_error(path: str) -> SaveError | None:
    """Why the save into a folder failed; None where it did not."""
    name = f"{path}/{ERROR}"
    try:
        return _read(name, SaveError)
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_done(path: str) -> bool:
    """Whether the save into a folder has come to its end."""
    return files_of(path).size(f"{path}/{DONE}") is not None


def committed_chunks(files: FileSystem, path: str) -> list[ChunkName]:
    """The chunks of a folder that count, in the order in which they are read.

    Raises:
        DataLossError: there is something else in the folder, or one chunk twice.
    """
    chunks = sorted(
        (ChunkName.parse(name) for name in files.names(f"{path}/{CHUNKS}")),
        key=lambda one: one.turn,
    )
    for one, other in pairwise(chunks):
        if one.turn == other.turn:
            raise DataLossError(f"Found duplicate chunk: {path} has {one} and {other}")
    return chunks


def error_of(error: SaveError) -> DataServiceError:
    """The error without what a failed pipeline has to tell."""
    return named_error(error.error, error.text)
