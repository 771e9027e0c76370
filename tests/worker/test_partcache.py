"""Tests of the parts in a worker's disk cache."""

from __future__ import annotations

import hashlib
import os
import queue
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from zmqdata.core.worker import events as e
from zmqdata.errors import PermissionDeniedError
from zmqdata.worker import partcache
from zmqdata.worker.partcache import PartCache

CONTENT = bytes(range(256)) * 10
DIGEST = hashlib.sha256(CONTENT).hexdigest()
SIZE = len(CONTENT)


class Cache:
    """A cache and its reports."""

    def __init__(self, folder: str | None, limit: int) -> None:
        self.reports: queue.Queue[Any] = queue.Queue()
        self.cache = PartCache(folder, limit, self.reports.put)

    def claim(self, digest: str = DIGEST, size: int = SIZE) -> Any:
        self.cache.claim(e.ClaimPart(digest, size))
        return self.reports.get(timeout=10)

    def keep(self, offset: int, content: bytes, digest: str = DIGEST, size: int = SIZE) -> Any:
        self.cache.keep(e.KeepPiece(digest, size, offset, content))
        return self.reports.get(timeout=10)

    def fill(self, content: bytes = CONTENT) -> None:
        digest = hashlib.sha256(content).hexdigest()
        assert self.claim(digest, len(content)) == e.PartClaimed(digest, 0, True)
        assert self.keep(0, content, digest, len(content)) == e.PieceKept(digest, len(content))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Cache]]:
    """Make several caches of a single folder, as several processes have them."""
    made: list[Cache] = []

    def new(folder: Path | None = tmp_path / "cache", limit: int = 1 << 20) -> Cache:
        made.append(Cache(None if folder is None else str(folder), limit))
        return made[-1]

    yield new
    for one in made:
        one.cache.close()


def test_a_part_is_fetched_once_for_all(make: Callable[..., Cache]) -> None:
    """While a process fetches a part the others wait, and then find it complete."""
    one, other = make(), make()
    assert one.claim() == e.PartClaimed(DIGEST, 0, True)
    assert one.keep(0, CONTENT[:100]) == e.PieceKept(DIGEST, 100)
    assert other.claim() == e.PartClaimed(DIGEST, 0, False)
    assert one.keep(100, CONTENT[100:]) == e.PieceKept(DIGEST, SIZE)
    assert other.claim() == e.PartClaimed(DIGEST, SIZE, False)
    for cache in (one, other):
        found = cache.cache.find(DIGEST)
        assert found is not None
        assert bytes(found) == CONTENT


def test_who_dies_leaves_what_it_has_to_the_next(make: Callable[..., Cache]) -> None:
    """A process continues the fetch of a dead predecessor at the same place."""
    one, other = make(), make()
    one.claim()
    one.keep(0, CONTENT[:100])
    one.cache.close()
    assert other.claim() == e.PartClaimed(DIGEST, 100, True)
    assert other.keep(100, CONTENT[100:]) == e.PieceKept(DIGEST, SIZE)


def test_a_part_outlives_its_workers(make: Callable[..., Cache]) -> None:
    """The next worker finds the part, and verifies it once."""
    make().fill()
    assert make().claim() == e.PartClaimed(DIGEST, SIZE, False)


def test_a_corrupted_file_is_fetched_anew(make: Callable[..., Cache], tmp_path: Path) -> None:
    """The digest reveals a corrupted file, whether or not its length is right."""
    make().fill()
    for wrong in (CONTENT[::-1], CONTENT[:-1]):
        (tmp_path / "cache" / DIGEST).write_bytes(wrong)
        make().fill()


def test_a_part_that_another_process_completes_is_awaited(
    make: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that finds a part claimed reports it as soon as the other process has
    completed it.
    """
    monkeypatch.setattr(partcache, "AWAIT_OTHER", 10.0)
    one, other = make(), make()
    assert one.claim() == e.PartClaimed(DIGEST, 0, True)
    other.cache.claim(e.ClaimPart(DIGEST, SIZE))
    with pytest.raises(queue.Empty):
        other.reports.get(timeout=0.02)
    assert one.keep(0, CONTENT) == e.PieceKept(DIGEST, SIZE)
    assert other.reports.get(timeout=10) == e.PartClaimed(DIGEST, SIZE, False)


def test_a_damaged_file_found_by_several_is_fetched_by_one(
    make: Callable[..., Cache], tmp_path: Path
) -> None:
    """A process that finds the damage while another process fetches the part anew does
    not disturb the fetch.
    """
    one, other = make(), make()
    assert one.claim() == e.PartClaimed(DIGEST, 0, True)
    assert one.keep(0, CONTENT[:100]) == e.PieceKept(DIGEST, 100)
    (tmp_path / "cache" / DIGEST).write_bytes(bytes(SIZE))
    assert other.claim() == e.PartClaimed(DIGEST, 0, False)
    assert one.keep(100, CONTENT[100:]) == e.PieceKept(DIGEST, SIZE)
    assert other.claim() == e.PartClaimed(DIGEST, SIZE, False)


def test_a_part_whose_file_was_taken_away_is_claimed_anew(
    make: Callable[..., Cache], tmp_path: Path
) -> None:
    """A piece that does not follow the previous piece is broken once; the next claim
    succeeds.
    """
    one = make()
    one.claim()
    one.keep(0, CONTENT[:100])
    (tmp_path / "cache" / f"{DIGEST}.partial").unlink()
    assert one.keep(100, CONTENT[100:]) == e.PieceKept(DIGEST, 0, True)
    one.fill()


def test_a_file_of_full_length_without_its_name_is_fetched_anew(
    make: Callable[..., Cache], tmp_path: Path
) -> None:
    """The writer of such a file died before the file was verified."""
    make().fill()
    (tmp_path / "cache" / DIGEST).rename(tmp_path / "cache" / f"{DIGEST}.partial")
    make().fill()


def test_other_bytes_are_broken(make: Callable[..., Cache]) -> None:
    """Pieces with other bytes are removed, and the part can be claimed again."""
    cache = make()
    cache.claim()
    assert cache.keep(0, CONTENT[::-1]) == e.PieceKept(DIGEST, 0, broken=True)
    cache.fill()


def test_old_parts_make_way(make: Callable[..., Cache], tmp_path: Path) -> None:
    """A process never evicts a part that it uses. Another process can still read an
    evicted part that it uses.
    """
    cache, other = make(limit=SIZE + 5), make(limit=SIZE + 5)
    cache.fill()
    refused = cache.claim("1" * 64, 6)
    assert "--pipeline-cache-bytes" in refused.error
    cache.cache.release(e.ReleaseParts(frozenset()))
    other.claim()
    cache.fill(b"123456")
    assert not (tmp_path / "cache" / DIGEST).exists()
    found = other.cache.find(DIGEST)
    assert found is not None
    assert bytes(found) == CONTENT


def test_released_parts_are_not_found(make: Callable[..., Cache]) -> None:
    """A release also ends the claim, so that another process may claim the part."""
    cache, other = make(), make()
    cache.fill()
    cache.claim("1" * 64, 6)
    cache.cache.release(e.ReleaseParts(frozenset()))
    assert cache.claim("2" * 64, 6).ours  # after the release
    assert other.claim("1" * 64, 6).ours
    assert cache.cache.find(DIGEST) is None
    cache.cache.keep(e.KeepPiece("1" * 64, 6, 0, b"late"))
    assert cache.claim() == e.PartClaimed(DIGEST, SIZE, False)


def test_a_folder_that_cannot_be_used_is_told_with_a_remedy(
    make: Callable[..., Cache], tmp_path: Path
) -> None:
    """The cache reports a folder that it cannot create or that is gone, and the worker
    continues.
    """
    (tmp_path / "file").write_text("in the way")
    text = make(tmp_path / "file" / "cache").claim().error
    assert str(tmp_path / "file" / "cache") in text
    assert "--pipeline-cache-dir" in text
    cache = make()
    cache.claim()
    (tmp_path / "cache" / f"{DIGEST}.partial").unlink()
    (tmp_path / "cache").rmdir()
    assert "No such file" in cache.keep(0, CONTENT).error


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_folder_of_another_user_is_refused_at_once(
    make: Callable[..., Cache], tmp_path: Path
) -> None:
    """A worker does not start with a cache that another user can change."""
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 54321, 54321)
    with pytest.raises(PermissionDeniedError, match="cache belongs to user 54321"):
        make()


def test_by_default_parts_lie_in_the_temporary_folder(
    make: Callable[..., Cache], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts lie in a private folder of the user by default, which all workers of
    the user share.
    """
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make(None).fill()
    assert [path.parent.name for path in tmp_path.rglob(DIGEST)] == ["parts"]
