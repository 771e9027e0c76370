"""Tests of the files that match patterns."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zmqdata.files.matching import matching_files


def test_files_are_found_once_and_sorted(tmp_path: Path) -> None:
    """Overlapping patterns yield sorted files once, without folders. The name of an
    existing file is not read as a pattern.
    """
    for name in ("b.txt", "a.txt", "x[1].txt", "sub/c.txt", "folder.txt/d"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    found = matching_files([f"{tmp_path}/*.txt", f"{tmp_path}/**/*.txt", f"{tmp_path}/x[1].txt"])
    assert found == [str(tmp_path / name) for name in ("a.txt", "b.txt", "sub/c.txt", "x[1].txt")]
    assert matching_files([f"{tmp_path}/sub", f"{tmp_path}/absent.txt"]) == []


def test_many_double_stars_cost_no_more_than_one(tmp_path: Path) -> None:
    """Twenty of ``**`` in a row match what one matches. Each would otherwise multiply
    the walks through the folders, and this test would not end.
    """
    deep = tmp_path.joinpath(*"abcdefghij")
    deep.mkdir(parents=True)
    for folder in (tmp_path, deep):
        (folder / "c.txt").touch()
    stars = "/".join(["**"] * 20)
    names = [f"{tmp_path}/c.txt", f"{deep}/c.txt"]
    assert matching_files([f"{tmp_path}/{stars}/*.txt"]) == sorted(names)
    assert matching_files([f"{tmp_path}/{stars}"]) == sorted(names)


NAMES = (".h.txt", "a!.txt", "a-.txt", "a1.txt", "a2.txt", "a].txt", "ab.txt", "b*.txt", "é.txt")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", NAMES),
        (".*", [".h.txt"]),
        ("?.txt", ["é.txt"]),
        ("a[12].txt", ["a1.txt", "a2.txt"]),
        ("a[1-3b].txt", ["a1.txt", "a2.txt", "ab.txt"]),
        ("a[3-1].txt", []),
        ("a[^1-3].txt", ["a!.txt", "a-.txt", "a].txt", "ab.txt"]),
        ("a[!1-3].txt", ["a!.txt", "a-.txt", "a].txt", "ab.txt"]),
        ("a[]-].txt", ["a-.txt", "a].txt"]),
        ("a[\\]].txt", ["a].txt"]),
        ("a[1\\-].txt", ["a-.txt", "a1.txt"]),
        ("a[.txt", []),
        ("a[!].txt", []),
        ("b\\*.txt", ["b*.txt"]),
        ("[*a]*[*b].txt", ["ab.txt"]),
        ("{a1,a2}.txt", []),
        ("A*", []),
    ],
)
def test_patterns_mean_what_they_mean_in_tensorflow(
    pattern: str, expected: list[str], tmp_path: Path
) -> None:
    """Patterns match hidden files, ``[^a]`` is a negation, a backslash escapes, and
    braces are characters, as in TensorFlow.
    """
    for name in NAMES:
        (tmp_path / name).touch()
    found = matching_files([f"{tmp_path}/{pattern}"])
    assert found == [str(tmp_path / name) for name in expected]


def test_names_that_are_no_text_match(tmp_path: Path) -> None:
    """A byte that is not UTF-8 is a character of a name."""
    (tmp_path / os.fsdecode(b"a\xff")).touch()
    assert matching_files([f"{tmp_path}/a?"]) == [f"{tmp_path}/a\udcff"]


def test_stars_match_hidden_folders_and_links(tmp_path: Path) -> None:
    """Stars lead into hidden folders and through links, and not around a circle."""
    (tmp_path / ".h").mkdir()
    (tmp_path / ".h" / "a").touch()
    (tmp_path / "link").symlink_to(".h")
    (tmp_path / ".h" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to("self")
    names = [f"{tmp_path}/.h/a", f"{tmp_path}/link/a"]
    assert matching_files([f"{tmp_path}/*/a"]) == names
    assert matching_files([f"{tmp_path}/**/a"]) == names


def test_existing_names_with_brackets_are_no_patterns(tmp_path: Path) -> None:
    """A folder or file with brackets in its name stands for itself. A file named as a
    pattern with a star hides no other.
    """
    for name in ("a[1]/b.txt", "a1/b.txt", "a[1]/*.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = matching_files([f"{tmp_path}/a[1]/*.txt"])
    assert found == [f"{tmp_path}/a[1]/*.txt", f"{tmp_path}/a[1]/b.txt"]


def test_a_pattern_of_many_stars_ends(tmp_path: Path) -> None:
    """The time for a name grows little with the number of stars of a pattern. A search
    of all places would not end.
    """
    (tmp_path / ("a" * 200)).touch()
    assert matching_files([f"{tmp_path}/{'a*' * 40}b"]) == []


def test_a_folder_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that the file system fails to list is an error. A dataset without its
    files would be smaller, unnoticed.
    """

    def failing(folder: str) -> None:
        raise OSError(5, "Input/output error", folder)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(OSError, match="Input/output error: '/data'"):
        matching_files(["/data/*"])
