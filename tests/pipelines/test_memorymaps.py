"""Tests of memory-mapped arrays, which travel as the paths of their files."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata.errors import FailedPreconditionError
from zmqdata.files.filenames import portable
from zmqdata.pipelines import fingerprint, memorymaps, open_pipeline, pack_pipeline
from zmqdata.pipelines.memorymaps import LARGE, checked_map, digest_of_file
from zmqdata.pipelines.packing import PackedPipeline

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let maps of a megabyte travel by path."""
    monkeypatch.setattr(memorymaps, "MUCH", LARGE)


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of a file with 4 MiB of numbers."""
    np.arange(LARGE, dtype=np.uint32).tofile(tmp_path / "tokens.bin")
    return str(tmp_path / "tokens.bin")


VIEWS: dict[str, Callable[[Array], Array]] = {
    "whole": lambda whole: whole,
    "plain": lambda whole: np.asarray(whole),
    "slice": lambda whole: whole[1000:],
    "strided": lambda whole: whole.reshape(-1, 1024)[1::2, 5:],
    "reversed": lambda whole: whole[::-1],
    "transposed": lambda whole: whole.reshape(1023, -1).T,
    "fields": lambda whole: whole.view([("a", "u2"), ("b", "u2")])["b"],
    "time": lambda whole: whole.view(">i8").view("M8[s]"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_of_a_map_travels_by_path(name: str, path: str) -> None:
    """A map and each view of it arrives equal, mapped again, and nothing of the file is
    sent.
    """
    array = VIEWS[name](np.memmap(path, np.uint32, "r", offset=4096))
    packed = pack_pipeline(array)
    assert (packed.files, packed.contents) == ((checked_map(array),), {})
    opened = open_pipeline(packed)
    np.testing.assert_array_equal(opened, array)
    assert (type(opened), opened.dtype, opened.strides) == (type(array), array.dtype, array.strides)
    assert not opened.flags.writeable
    assert checked_map(opened) == checked_map(array)


def test_numpy_s_own_files_are_maps(tmp_path: Path) -> None:
    """An array of ``np.load`` with a mode travels by path, in either order of axes."""
    for order in "CF":
        np.save(tmp_path / "a.npy", np.asarray(np.arange(LARGE).reshape(1024, -1), order=order))
        array = np.load(tmp_path / "a.npy", mmap_mode="r")
        packed = pack_pipeline(lambda array=array: array)
        assert [one.path for one in packed.files] == [str(tmp_path / "a.npy")]
        np.testing.assert_array_equal(open_pipeline(packed)(), array)


def test_a_writable_map_shows_the_file_and_keeps_what_is_written(path: str) -> None:
    """A map that writes to its file arrives with what was written, and is writable
    without changing the file.
    """
    array = np.memmap(path, np.uint32, "r+")
    array[3] = 77
    opened = open_pipeline(pack_pipeline(array))
    assert opened[3] == 77
    opened[3] = 5
    assert (array[3], np.fromfile(path, np.uint32, 4)[3]) == (77, 77)


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    """A map of a file whose name is not UTF-8 travels by its path."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.bin")
    np.arange(LARGE).tofile(path)
    packed = PackedPipeline.decode(pack_pipeline(np.memmap(path, np.int64, "r")).encoded)
    assert [one.path for one in packed.files] == [portable(path)]
    np.testing.assert_array_equal(open_pipeline(packed)[:3], [0, 1, 2])
    os.remove(path)
    with pytest.raises(
        FailedPreconditionError, match=r"caf\?e9\.bin, which does not exist at the w"
    ):
        open_pipeline(packed, opener="the worker")


def replaced(path: str) -> None:
    os.rename(path, f"{path}.old")
    np.zeros(LARGE, np.uint32).tofile(path)


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (os.remove, r"4 MB of the file {}, which does not exist now.*array: np\.array\("),
        (replaced, r"4 MB of the file {}, which has other content now.*array: np\.array\("),
        (lambda path: os.truncate(path, 4 * LARGE - 1), "file {} is shorter than .*would kill"),
    ],
)
def test_a_map_that_has_lost_its_file_is_an_error(
    change: Callable[[str], None], how: str, path: str
) -> None:
    """The call names the file, what became of it, the object that holds the map, and
    the ways out.
    """
    array = np.memmap(path, np.uint32, "r")
    change(path)
    with pytest.raises(TypeError, match=how.format(re.escape(path))) as raised:
        pack_pipeline({"tokens": array})
    assert isinstance(raised.value.__cause__, FailedPreconditionError)
    assert "['tokens'] (a numpy.memmap) cannot be sent. The " in str(raised.value)
    assert "inside the function" not in str(raised.value)
    assert "Map the file again" in str(raised.value)


@pytest.mark.parametrize("change", [os.remove, replaced])
def test_the_content_of_a_map_that_has_lost_its_file_can_be_sent(
    change: Callable[[str], None], path: str
) -> None:
    """The array that the error advises arrives, and the fingerprint of the map stays,
    because a state of a local iterator has it.
    """
    array = np.memmap(path, np.uint32, "r")
    before = fingerprint(array)
    change(path)
    assert fingerprint(array) == before
    np.testing.assert_array_equal(open_pipeline(pack_pipeline(np.array(array))), array)


def test_a_copy_on_write_map_is_sent(path: str) -> None:
    """A map that may differ from its file travels whole."""
    array = np.memmap(path, np.uint32, "c")
    array[LARGE // 2 + 9] = 0
    packed = pack_pipeline(array)
    assert (packed.files, sum(map(len, packed.contents.values()))) == ((), array.nbytes)
    np.testing.assert_array_equal(open_pipeline(packed), array)


def test_a_small_map_is_sent(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A map is an ordinary array below 100 MiB, which workers need not see."""
    monkeypatch.setattr(memorymaps, "MUCH", 4 * LARGE + 1)
    array = np.memmap(path, np.uint32, "r")
    packed = pack_pipeline(array)
    assert (packed.files, sum(map(len, packed.contents.values()))) == ((), array.nbytes)
    os.remove(path)
    np.testing.assert_array_equal(open_pipeline(packed), array)


def test_a_fingerprint_tells_files_apart_without_reading_them(path: str) -> None:
    """Two ranges of a file, and a file with another content, have other
    fingerprints.
    """
    array = np.memmap(path, np.uint32, "r")
    assert fingerprint(array) == fingerprint(np.memmap(path, np.uint32, "r"))
    assert fingerprint(array[:-1]) != fingerprint(array[1:])
    replaced(path)
    assert fingerprint(np.memmap(path, np.uint32, "r")) != fingerprint(array)


def test_a_worker_without_the_file_says_so(path: str) -> None:
    """A worker that has no such file, a shorter or another one names itself, path,
    machine and remedy.
    """
    packed = pack_pipeline(np.memmap(path, np.uint32, "r"))
    np.zeros(LARGE, np.uint32).tofile(path)
    with pytest.raises(FailedPreconditionError, match="other content at the worker at tcp://a"):
        open_pipeline(packed, opener="the worker at tcp://a:5")
    os.truncate(path, 100)
    with pytest.raises(FailedPreconditionError, match=r"is shorter.*np\.array\(the memory map\)"):
        open_pipeline(packed)
    assert digest_of_file(path, 0, 100) is not None
    assert digest_of_file(f"{path}\0", 0, 100) is None


def test_a_large_array_is_announced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The user is told once the size of a large array, who holds it, and what to do."""
    monkeypatch.setattr(memorymaps, "MUCH", 2 << 20)
    table = np.zeros(3 << 20, np.uint8)

    def parse(i: int) -> int:
        return int(table[i])

    with caplog.at_level(logging.WARNING, "zmqdata"):
        for _ in range(2):
            pack_pipeline(parse)
        pack_pipeline(np.zeros(1 << 20, np.uint8))
    (record,) = caplog.records
    assert "parse holds an array of 3 MB (parse.__closure__['table'])" in record.getMessage()


def test_a_subclass_keeps_more_than_its_values(path: str) -> None:
    """An array with a mask over a map travels whole, and arrives with its mask."""
    masked = np.ma.masked_array(np.memmap(path, np.uint32, "r"), mask=False)
    masked[1] = np.ma.masked
    opened = open_pipeline(pack_pipeline(masked))
    assert (type(opened), int(opened[:3].sum())) == (np.ma.MaskedArray, 2)
