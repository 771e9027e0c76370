"""Tests of folders of parts."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from pathlib import Path

import pytest

from zmqdata.transport import parts
from zmqdata.transport.parts import ABANDONED_AFTER, PartFolder, digest_of, private_map

CONTENT = b"0123456789"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> PartFolder:
    return PartFolder(tmp_path / "parts")


def digest(number: int) -> str:
    return f"{number:064x}"


def names(folder: PartFolder) -> set[str]:
    return {path.name for path in folder.folder.iterdir()}


def test_a_part_grows_piece_by_piece(folder: PartFolder) -> None:
    """A piece out of order is ignored, and a complete part gets its name."""
    assert folder.append(DIGEST, 0, CONTENT[:4]) == 4
    assert folder.append(DIGEST, 0, CONTENT[:4]) == 4
    assert folder.append(DIGEST, 6, CONTENT[6:]) == 4
    assert (folder.whole(), folder.partial(), folder.read(DIGEST, 0, 9)) == ([], {DIGEST: 4}, None)
    assert folder.size_of_partial(DIGEST) == 4
    assert folder.append(DIGEST, 4, CONTENT[4:]) == 10
    assert folder.complete(DIGEST)
    assert (folder.whole(), folder.partial(), folder.size_of(DIGEST)) == ([DIGEST], {}, 10)
    assert folder.size_of_partial(DIGEST) == 0
    assert folder.read(DIGEST, 8, 100) == b"89"


def test_parts_are_their_users_alone(tmp_path: Path) -> None:
    """Only the user can access the folder, its parents and its files, whatever the
    umask.
    """
    before = os.umask(0)
    try:
        folder = PartFolder(tmp_path / "work" / "parts")
        folder.put(DIGEST, CONTENT)
        folder.append(digest(1), 0, CONTENT)
        os.close(folder.claim(digest(2)) or 0)
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "work").rglob("*")
    }
    partial = {f"{digest(number)}.partial": 0o600 for number in (1, 2)}
    assert modes == {"parts": 0o700, DIGEST: 0o600} | partial
    assert stat.S_IMODE((tmp_path / "work").stat().st_mode) == 0o700


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """An existing folder keeps the mode that its creator chose."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts").chmod(0o750)
    PartFolder(tmp_path / "parts")
    assert stat.S_IMODE((tmp_path / "parts").stat().st_mode) == 0o750


def test_a_part_with_other_bytes_is_removed(folder: PartFolder) -> None:
    """A part whose bytes do not match its digest is removed and never gets its name."""
    folder.append(DIGEST, 0, b"9876543210")
    assert not folder.complete(DIGEST)
    assert names(folder) == set()
    assert not folder.complete(DIGEST)


def test_a_piece_that_does_not_fit_on_the_disk_leaves_nothing_half_written(
    folder: PartFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece that does not fit on the disk is undone, so the next piece goes to its
    place.
    """
    folder.append(DIGEST, 0, CONTENT[:4])
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full, which fails each write")
    monkeypatch.setattr(parts, "open_own", lambda path, flags: os.open("/dev/full", flags))
    with pytest.raises(OSError, match="No space left"):
        folder.append(digest(1), 0, CONTENT)


def test_a_removed_part_is_gone(folder: PartFolder) -> None:
    """Removing a part works for complete and incomplete parts, and is idempotent."""
    folder.put(DIGEST, CONTENT)
    folder.append(digest(1), 0, CONTENT)
    for one in (DIGEST, digest(1), DIGEST):
        folder.remove(one)
    assert names(folder) == set()
    assert folder.size_of(DIGEST) is None


def test_only_the_file_that_was_looked_at_is_removed(folder: PartFolder) -> None:
    """Only the file that was examined is removed; a file that replaced it stays."""
    folder.put(DIGEST, b"damaged")
    with folder.path(DIGEST).open("rb") as damaged:
        folder.remove(DIGEST)
        folder.put(DIGEST, CONTENT)
        folder.remove_whole(DIGEST, damaged.fileno())
        assert folder.read(DIGEST, 0, len(CONTENT)) == CONTENT
    with folder.path(DIGEST).open("rb") as sound:
        folder.remove_whole(DIGEST, sound.fileno())
        folder.remove_whole(DIGEST, sound.fileno())
    assert folder.whole() == []


def test_one_process_at_a_time_has_a_claim(folder: PartFolder) -> None:
    """A single process holds a claim, which ends with its descriptor or its owner's
    death. The written bytes stay.
    """
    first = folder.claim(DIGEST)
    assert first is not None
    assert folder.claim(DIGEST) is None
    folder.append(DIGEST, 0, CONTENT[:4])
    os.close(first)
    second = folder.claim(DIGEST)
    assert second is not None
    assert os.fstat(second).st_size == 4
    os.close(second)


def test_a_claim_holds_a_file_that_is_still_there(folder: PartFolder) -> None:
    """A claim always holds a file that still exists. A process that waits for it while
    the part is completed gets a file of its own.
    """
    first = folder.claim(DIGEST)
    assert first is not None
    folder.append(DIGEST, 0, CONTENT)
    folder.complete(DIGEST)
    second = folder.claim(DIGEST)
    assert second is not None
    assert os.fstat(second).st_ino == (folder.folder / f"{DIGEST}.partial").stat().st_ino
    for descriptor in (first, second):
        os.close(descriptor)


def test_space_is_made_by_removing_what_was_used_longest_ago(folder: PartFolder) -> None:
    """Making room removes abandoned parts first, then the least recently used. Claimed
    and incoming parts stay.
    """
    for number in range(4):
        folder.put(digest(number), CONTENT)
        os.utime(folder.path(digest(number)), (number, number))
    folder.append(digest(8), 0, CONTENT)
    folder.append(digest(9), 0, CONTENT)
    old = time.time() - ABANDONED_AFTER - 1
    os.utime(folder.folder / f"{digest(9)}.partial", (old, old))
    assert folder.make_space(10, 40, frozenset({digest(0)}))
    assert names(folder) == {digest(0), digest(3), f"{digest(8)}.partial"}
    assert not folder.make_space(31, 40, frozenset({digest(0)}))


def test_a_mapped_part_is_its_reader_s_own(folder: PartFolder) -> None:
    """Writing to a map or removing its file changes no other map."""
    folder.put(DIGEST, CONTENT)
    descriptor = os.open(folder.path(DIGEST), os.O_RDWR)
    one, other = private_map(descriptor), private_map(descriptor)
    os.close(descriptor)
    one[0] = 0
    assert bytes(other) == CONTENT == folder.read(DIGEST, 0, 10)
    folder.remove(DIGEST)
    assert bytes(one[1:]) == CONTENT[1:]


def test_an_empty_part_can_be_mapped_too(tmp_path: Path) -> None:
    """An empty part can be mapped, although the system maps no empty file."""
    (tmp_path / "empty").touch()
    with (tmp_path / "empty").open("rb") as file:
        assert bytes(private_map(file.fileno())) == b""


def test_no_path_reaches_the_file_system(folder: PartFolder) -> None:
    """Only the letters and digits of a digest become part of a file name."""
    assert folder.path("../../etc/passwd").parent == folder.folder
    assert digest_of(folder.folder / "missing") == ""


def test_no_part_is_read_through_a_link(folder: PartFolder, tmp_path: Path) -> None:
    """A link with the name of a part gives none of the bytes that it leads to."""
    (tmp_path / "secret").write_bytes(CONTENT)
    folder.path(DIGEST).symlink_to(tmp_path / "secret")
    assert folder.read(DIGEST, 0, 4) is None
    assert digest_of(folder.path(DIGEST)) == ""
