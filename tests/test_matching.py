"""Tests of the files that match patterns."""

from __future__ import annotations

from pathlib import Path

from zmqdata.matching import matching_files


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
