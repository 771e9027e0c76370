"""Tests of ``zmqdata.storage.listing``, on fsspec's memory and a store of the tests'
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.kit.objectstore import object_store
from zmqdata.errors import InvalidArgumentError, PermissionDeniedError, UnimplementedError
from zmqdata.storage import listing
from zmqdata.storage.listing import check_pattern, matching_names

NAMES = ("a-1.txt", "a-2.txt", "b-1.txt", "sub/a-1.txt", "sub/deep/c #%ü.txt", "x.csv")


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return a file system in memory that holds some names below ``/data``."""
    filesystem = fsspec.filesystem("memory")
    for name in NAMES:
        filesystem.pipe(f"/data/{name}", b"content")
    yield filesystem
    filesystem.store.clear()


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.txt", NAMES[:3]),
        ("a-?.txt", NAMES[:2]),
        ("[^b]-[1-3].txt", NAMES[:2]),
        ("**/*.txt", NAMES[:5]),
        ("**", NAMES),
        ("*/a-1.txt", NAMES[3:4]),
        ("sub/**/c*", NAMES[4:5]),
        ("a-{1..3}.txt", NAMES[:2]),
        ("a-{01..03}.txt", ()),
        ("{1..2}*", ()),
        ("x.csv", NAMES[5:]),
        ("none/*", ()),
        ("sub", ()),
    ],
)
def test_patterns_match(pattern: str, found: tuple[str, ...], memory: Any) -> None:
    """Patterns of URLs match as those of local files do, and ranges of numbers."""
    names = matching_names([f"memory://data/{pattern}"])
    assert names == sorted(f"memory://data/{name}" for name in found)


def test_new_files_are_found(memory: Any, tmp_path: Path) -> None:
    """A file is found that was written a moment ago; patterns of this machine and of
    stores go together.
    """
    (tmp_path / "a").touch()
    patterns = [f"{tmp_path}/*", "memory://data/*.csv"]
    assert matching_names(patterns) == [f"{tmp_path}/a", "memory://data/x.csv"]
    memory.pipe("/data/new.csv", b"")
    assert matching_names(patterns)[1:] == ["memory://data/new.csv", "memory://data/x.csv"]
    assert "memory://data/x.csv" in matching_names(["memory://**"])


def test_a_stem_is_listed_by_its_prefix(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that lists by prefix gets the fixed beginning of the name."""
    asked = []

    class Store:
        def find(
            self, path: str, maxdepth: int | None = None, detail: bool = False, prefix: str = ""
        ) -> Any:
            asked.append((path, maxdepth, prefix))
            names = ["b/data/part-001.txt", "b/data/part-001/other.txt", "b/data/part-0.txt/"]
            return {name: {"size": 1} for name in names}

    monkeypatch.setattr(listing, "new_client", lambda url, options: (Store(), url[5:]))
    assert matching_names(["s3://b/data/part-0*.txt"]) == ["s3://b/data/part-001.txt"]
    matching_names(["s3://b/data/*.txt"])
    assert asked == [("b/data", None, "part-0"), ("b/data", 1, "")]


def test_web_servers_have_names_only() -> None:
    """Names at web servers are asked for one by one; patterns are refused."""
    with object_store() as store:
        store.objects = {f"/p-{number:02}": b"x" for number in (8, 9, 10, 12)}
        found = matching_names([store.url("/p-{08..11}")])
        assert found == [store.url(f"/p-{number}") for number in ("08", "09", "10")]
        store.faults.append(403)
        with pytest.raises(PermissionDeniedError):
            matching_names([store.url("/p-08")])
    with pytest.raises(UnimplementedError, match="have no listings"):
        check_pattern("https://host/*.txt")


@pytest.mark.parametrize(
    "pattern", ["https://host/a?signature=planted", "sftp://me:planted@host/*"]
)
def test_secrets_are_not_listed(pattern: str) -> None:
    """A pattern that may hold a secret is refused, and the error does not show it."""
    with pytest.raises(InvalidArgumentError, match="may be secret") as caught:
        check_pattern(pattern)
    assert "planted" not in str(caught.value)
