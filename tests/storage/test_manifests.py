"""Tests of ``zmqdata.storage.manifests``: valid manifests and rejected ones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import (
    AlreadyExistsError,
    DataLossError,
    DataServiceError,
    InvalidArgumentError,
    NotFoundError,
)
from zmqdata.storage import manifests
from zmqdata.storage.files import LOCAL
from zmqdata.storage.manifests import (
    MANIFEST,
    Chunk,
    ChunkName,
    Manifest,
    SaveDescription,
    SaveError,
    begin_save,
    chunk_path,
    committed_chunks,
    create_manifest,
    error_of,
    fail_save,
    finish_save,
    is_done,
    parse_stream,
    read_manifest,
    read_save,
    read_save_error,
    spec_text,
    uncommitted_path,
    write_manifest,
)

INT = TensorSpec((), np.int64)
SAVE = SaveDescription("run", "lz4", spec_text(INT), 10)
MADE = Manifest("run", None, spec_text(INT), (Chunk("0.chunk", 5, 1), Chunk("1.chunk", 3, 1)))


def filled(folder: Path) -> None:
    for name in ("0.chunk", "1.chunk"):
        (folder / name).touch()
    write_manifest(str(folder), MADE)


def publish(folder: Path, *names: str) -> None:
    for name in names:
        path = Path(chunk_path(str(folder), name))
        path.parent.mkdir(exist_ok=True)
        path.touch()


def test_a_manifest_says_what_there_is(tmp_path: Path) -> None:
    """A manifest is read back as written, with its number of elements and its spec."""
    filled(tmp_path)
    found = read_manifest(str(tmp_path))
    assert found == MADE
    assert (found.elements, found.element_spec) == (8, INT)


def test_a_manifest_replaces_what_was_there(tmp_path: Path) -> None:
    """A new manifest removes the old manifest and chunks it does not name; other files
    stay.
    """
    filled(tmp_path)
    (tmp_path / "other").touch()
    write_manifest(str(tmp_path), Manifest("next", None, None, (Chunk("1.chunk", 3, 1),)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.chunk", MANIFEST, "other"]
    assert read_manifest(str(tmp_path)).element_spec is None


def test_the_first_manifest_of_a_folder_counts(tmp_path: Path) -> None:
    """A second manifest is not created, and the chunks beside it stay."""
    (tmp_path / "a.chunk").touch()
    for name in ("one", "two"):
        manifest = Manifest(name, None, None, ())
        assert create_manifest(str(tmp_path), manifest) == (name == "one")
        assert read_manifest(str(tmp_path)).save_id == "one"
    assert (tmp_path / "a.chunk").exists()


def test_a_folder_without_manifest_holds_nothing(tmp_path: Path) -> None:
    """A missing folder or manifest raises an error that says so."""
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(NotFoundError, match=r"holds no saved dataset: it has no manifest.json"):
            read_manifest(str(folder))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"checksum": 1}', "\udcff"])
def test_a_manifest_that_is_none_is_data_loss(tmp_path: Path, text: str) -> None:
    """A damaged manifest raises DataLossError, whatever its content."""
    (tmp_path / MANIFEST).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(DataLossError, match=r"manifest.json is damaged"):
        read_manifest(str(tmp_path))


def test_a_changed_manifest_is_data_loss(tmp_path: Path) -> None:
    """A manifest with a changed number fails its checksum."""
    filled(tmp_path)
    path = tmp_path / MANIFEST
    content = json.loads(path.read_text())
    content["chunks"][0]["elements"] += 1
    path.write_text(json.dumps(content))
    with pytest.raises(DataLossError, match="checksum does not match"):
        read_manifest(str(tmp_path))


@pytest.mark.parametrize(
    "name",
    [
        "/etc/a.chunk",
        "../a.chunk",
        "x/a.chunk",
        "..",
        "",
        "chunks/../chunk_0_0_1",
        "chunks/a.chunk",
        "chunk_0_0_1",
    ],
)
def test_a_manifest_names_chunks_as_writers_do(tmp_path: Path, name: str) -> None:
    """No chunk name escapes the folder, even in a manifest with a valid checksum."""
    write_manifest(str(tmp_path), Manifest("run", None, None, (Chunk(name, 1, 1),)))
    with pytest.raises(
        DataLossError, match=rf"manifest.json is damaged: it names the chunk {name!r}. Expected"
    ):
        read_manifest(str(tmp_path))


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        (
            Chunk("a.chunk", 2**63 - 1, 100),
            "claims 9223372036854775807 elements in the 100 bytes of a.chunk",
        ),
        (Chunk("a.chunk", -1, 100), "claims -1 elements in the 100 bytes"),
        (Chunk("a.chunk", 0, -1), "claims 0 elements in the -1 bytes"),
        (
            Chunk("a.chunk", 10**18, 10**18),
            "claims 1000000000000000000 elements, at most 999999999999999999",
        ),
    ],
)
def test_a_manifest_claims_no_counts_that_cannot_be(
    tmp_path: Path, chunk: Chunk, text: str
) -> None:
    """A chunk's element count is neither negative nor larger than its bytes allow."""
    write_manifest(str(tmp_path), Manifest("run", None, None, (chunk,)))
    with pytest.raises(DataLossError, match=text):
        read_manifest(str(tmp_path))


@pytest.mark.parametrize(("name", "reading"), [(MANIFEST, read_manifest), ("save.json", read_save)])
def test_a_huge_file_is_not_read_whole(
    tmp_path: Path, name: str, reading: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An oversized file is damaged, and the reader stops at the largest valid size."""
    monkeypatch.setattr(manifests, "MOST_BYTES", 1000)
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 1 << 40)
    with pytest.raises(DataLossError, match=f"{name} is damaged: it has more than 1000 bytes"):
        reading(str(tmp_path))


def test_the_spec_of_a_save_admits_every_chunk() -> None:
    """The spec of a save admits all its chunks, or is None if they are incompatible."""

    def specs(*given: TensorSpec) -> Manifest:
        return Manifest(
            "run", None, None, (), tuple(text for one in given if (text := spec_text(one)))
        )

    assert specs(TensorSpec((2, 3), "int8"), TensorSpec((4, 3), "int8")).element_spec == TensorSpec(
        (None, 3), "int8"
    )
    assert specs(INT, TensorSpec((), "int8")).element_spec is None
    assert specs().element_spec is None


def test_a_save_takes_its_folder_once(tmp_path: Path) -> None:
    """Restarting a save has no effect; a different save in its folder is rejected."""
    folder = str(tmp_path / "deep" / "save")
    assert read_save(folder) is None
    begin_save(folder, SAVE)
    begin_save(folder, SAVE)
    assert read_save(folder) == SAVE
    assert SAVE.element_spec == INT
    assert SaveDescription("r", None, None, 1).element_spec is None
    with pytest.raises(AlreadyExistsError, match="is already started or completed"):
        begin_save(folder, SaveDescription("other", None, None, 10))
    filled(tmp_path)
    with pytest.raises(AlreadyExistsError, match="is already started or completed"):
        begin_save(str(tmp_path), SAVE)


def test_two_saves_that_begin_at_once_are_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two saves that start at once in an empty folder is rejected."""
    folder = str(tmp_path / "save")
    begin_save(folder, SAVE)
    monkeypatch.setattr("zmqdata.storage.manifests.read_save", lambda path: None)
    with pytest.raises(AlreadyExistsError, match="is already started or completed"):
        begin_save(folder, SaveDescription("other", None, None, 10))


def test_a_save_ends_with_a_marker(tmp_path: Path) -> None:
    """A finished save leaves chunks, manifest and DONE, but no uncommitted files."""
    folder = str(tmp_path)
    begin_save(folder, SAVE)
    leftover = Path(uncommitted_path(folder, 0, 1, 5))
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    publish(tmp_path, "chunk_0_0_8")
    assert not is_done(folder)
    finish_save(folder, MADE)
    finish_save(folder, MADE)
    assert is_done(folder)
    assert read_manifest(folder) == MADE
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "DONE",
        "chunks",
        MANIFEST,
        "save.json",
    ]


def test_a_save_that_fails_says_why(tmp_path: Path) -> None:
    """The marker ERROR holds the class and the text of the error."""
    folder = str(tmp_path)
    assert read_save_error(folder) is None
    fail_save(folder, SaveError("InvalidArgumentError", "not so", "00"))
    found = read_save_error(folder)
    assert found == SaveError("InvalidArgumentError", "not so", "00")
    assert type(error_of(found)) is InvalidArgumentError
    assert type(error_of(SaveError("OSError", "x"))) is DataServiceError
    assert not is_done(folder)


def test_chunks_are_read_round_by_round(tmp_path: Path) -> None:
    """Chunks are ordered by number within the stream, then by stream, numerically."""
    publish(
        tmp_path,
        "chunk_0_0_5",
        "chunk_10_0_5",
        "chunk_2_0_1",
        "chunk_0_1_5",
        "chunk_0_10_5",
        "chunk_0_2_5",
    )
    found = [(name.stream, name.chunk) for name in committed_chunks(LOCAL, str(tmp_path))]
    assert found == [(0, 0), (2, 0), (10, 0), (0, 1), (0, 2), (0, 10)]


BAD_CHUNKS = [
    "chunk_",
    "chunk_x_0_1",
    "chunk_0_-1_1",
    "chunk_0_0_-1",
    "chunk_0_0",
    "chunk_0_0_1_2",
    "chunk_00_0_1",
]


@pytest.mark.parametrize("name", BAD_CHUNKS)
def test_a_chunk_with_a_bad_name_is_data_loss(tmp_path: Path, name: str) -> None:
    """A file in the chunk folder without a valid chunk name is data loss."""
    publish(tmp_path, name)
    with pytest.raises(
        DataLossError, match=r"Can't parse .* Expected chunk_<stream>_<chunk>_<num_elements>"
    ):
        committed_chunks(LOCAL, str(tmp_path))


def test_a_chunk_twice_is_data_loss(tmp_path: Path) -> None:
    """Two chunk files for the same position in a stream are data loss."""
    publish(tmp_path, "chunk_0_0_5", "chunk_0_0_6")
    with pytest.raises(
        DataLossError, match=r"Found duplicate chunk: .* has chunk_0_0_5 and chunk_0_0_6"
    ):
        committed_chunks(LOCAL, str(tmp_path))


@pytest.mark.parametrize("name", ["stream_", "stream_x", "stream_-1"])
def test_a_stream_with_a_bad_name_is_data_loss(name: str) -> None:
    """A folder without a valid stream name is data loss."""
    with pytest.raises(DataLossError, match="Can't parse"):
        parse_stream(name)


@pytest.mark.parametrize("read", [read_save, read_save_error])
@pytest.mark.parametrize("text", ["{", "{}", "[]"])
def test_damaged_descriptions_are_data_loss(
    tmp_path: Path, read: Callable[[str], object], text: str
) -> None:
    """A damaged file of a save raises DataLossError, whatever its content."""
    for name in ("save.json", "ERROR"):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataLossError, match="is damaged"):
        read(str(tmp_path))


def test_names_of_chunks_are_read_as_written() -> None:
    """A chunk's name parses back to the values it was built from."""
    assert ChunkName.parse(str(ChunkName(3, 4, 5))) == (3, 4, 5)
