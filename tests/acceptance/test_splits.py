"""Section 2.10: DYNAMIC jobs. The dispatcher assigns each split of the sources to one
worker, and each element comes once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import zmqdata
from tests.acceptance.reading import DYNAMIC, OFF, numbers, read, rows
from zmqdata.errors import DataServiceError, UnimplementedError

RANGE = zmqdata.Dataset.range(100)


def texts(folder: Path, files: int = 5, lines: int = 8) -> list[str]:
    """Write files of lines and return their names."""
    paths = [folder / f"{number}.txt" for number in range(files)]
    for number, path in enumerate(paths):
        path.write_text("".join(f"{number}:{line}\n" for line in range(lines)))
    return [str(path) for path in paths]


SOURCES: dict[str, tuple[Callable[[], zmqdata.Dataset], list[int]]] = {
    "range": (lambda: zmqdata.Dataset.range(3, 50, 4), list(range(3, 50, 4))),
    "slices": (lambda: zmqdata.Dataset.from_tensor_slices(np.arange(33)), list(range(33))),
    "one": (lambda: zmqdata.Dataset.from_tensors(5), [5]),
    "list": (lambda: zmqdata.Dataset.from_list([1, 2, 3]), [1, 2, 3]),
    "concatenation": (lambda: RANGE.concatenate(zmqdata.Dataset.range(100, 120)), list(range(120))),
    "flat map": (
        lambda: zmqdata.Dataset.range(4).flat_map(lambda x: zmqdata.Dataset.range(5)),
        [*range(5)] * 4,
    ),
    "interleave": (
        lambda: zmqdata.Dataset.range(4).interleave(
            lambda x: zmqdata.Dataset.range(5), cycle_length=3
        ),
        [*range(5)] * 4,
    ),
    "batch": (lambda: RANGE.batch(7).unbatch(), list(range(100))),
    "shuffle": (lambda: RANGE.shuffle(1000), list(range(100))),
    "cache": (lambda: RANGE.cache(), list(range(100))),
    "prefetch": (lambda: RANGE.prefetch(4), list(range(100))),
    "filter": (lambda: RANGE.filter(lambda x: x % 3 == 0), list(range(0, 100, 3))),
    "parallel map": (lambda: RANGE.map(lambda x: x, num_parallel_calls=3), list(range(100))),
    "window": (lambda: RANGE.window(7).flat_map(lambda ds: ds), list(range(100))),
    "choose": (
        lambda: zmqdata.Dataset.choose_from_datasets(
            [zmqdata.Dataset.range(10), zmqdata.Dataset.range(10, 20)],
            zmqdata.Dataset.range(2).repeat(),
            stop_on_empty_dataset=False,
        ),
        list(range(20)),
    ),
    "sample": (
        lambda: zmqdata.Dataset.sample_from_datasets(
            [zmqdata.Dataset.range(10), zmqdata.Dataset.range(10, 20)]
        ),
        list(range(20)),
    ),
    "repeat": (lambda: RANGE.repeat(3), list(range(100)) * 3),
    "cache and repeat": (lambda: RANGE.cache().repeat(2), list(range(100)) * 2),
    "shuffle and repeat": (lambda: RANGE.shuffle(50).repeat(2), list(range(100)) * 2),
    "repeat in a function": (
        lambda: zmqdata.Dataset.range(3).flat_map(lambda x: zmqdata.Dataset.range(2).repeat(2)),
        [0, 1] * 6,
    ),
}


@pytest.mark.claim("2.10a", "2.10g")
@pytest.mark.parametrize("name", SOURCES)
def test_every_element_comes_once(cluster: zmqdata.LocalCluster, name: str) -> None:
    """The workers together yield the elements that the pipeline yields locally."""
    make, expected = SOURCES[name]
    assert Counter(numbers(read(make(), cluster))) == Counter(expected)


@pytest.mark.claim("2.10a")
@pytest.mark.core
def test_files_are_split_among_workers(cluster: zmqdata.LocalCluster, tmp_path: Path) -> None:
    """Each listed or named file is read once, with any operation after it."""
    paths = texts(tmp_path)
    expected = sorted(f"{number}:{line}" for number in range(5) for line in range(8))
    listed = zmqdata.Dataset.list_files(f"{tmp_path}/*.txt").interleave(
        zmqdata.TextLineDataset, cycle_length=2
    )
    for ds in (listed, zmqdata.TextLineDataset(paths), listed.shuffle(10).batch(3).unbatch()):
        assert sorted(map(str, read(ds, cluster))) == expected


@pytest.mark.claim("2.10b")
def test_zip_pairs_and_ends(cluster: zmqdata.LocalCluster) -> None:
    """A zip of two sources yields pairs without a repeated element, and ends."""
    ds = zmqdata.Dataset.zip(RANGE, zmqdata.Dataset.range(100, 150))
    left, right = zip(*((int(a), int(b)) for a, b in read(ds, cluster)), strict=True)
    assert len(left) <= 50
    assert len(set(left)) == len(left)
    assert len(set(right)) == len(right)
    assert set(left) <= set(range(100))
    assert set(right) <= set(range(100, 150))


@pytest.mark.claim("2.10b", "2.10f")
def test_zip_and_repeat_end(cluster: zmqdata.LocalCluster) -> None:
    """A repeated zip of unequal inputs ends, and yields no element more often than it
    repeats.
    """
    ds = zmqdata.Dataset.zip(zmqdata.Dataset.range(30), zmqdata.Dataset.range(10)).repeat(2)
    seen = Counter(int(b) for _, b in read(ds, cluster))
    assert max(seen.values()) <= 2


@pytest.mark.claim("2.10c")
def test_functions_run_in_full_for_each_split(cluster: zmqdata.LocalCluster) -> None:
    """A dataset that a function of ``flat_map`` opens is not split."""
    ds = zmqdata.Dataset.range(6).flat_map(
        lambda x: zmqdata.Dataset.range(4).map(lambda y: y + 10 * x)
    )
    assert sorted(numbers(read(ds, cluster))) == [10 * x + y for x in range(6) for y in range(4)]


@pytest.mark.claim("2.10d")
def test_take_and_batch_act_on_each_worker(cluster: zmqdata.LocalCluster) -> None:
    """``take``, ``batch`` and ``enumerate`` act on the elements of each worker."""
    assert 5 <= len(numbers(read(RANGE.take(5), cluster))) <= 10
    assert len(numbers(read(RANGE.take(5), cluster, OFF))) == 10
    assert sorted(rows(read(RANGE.batch(8), cluster))) == list(range(100))
    enumerated = [(int(i), int(x)) for i, x in read(RANGE.enumerate(), cluster)]
    assert sorted(x for _, x in enumerated) == list(range(100))


@pytest.mark.claim("2.10e", "7.52")
@pytest.mark.core
def test_a_distributed_dataset_cannot_be_split(cluster: zmqdata.LocalCluster) -> None:
    """DYNAMIC over a distributed dataset is refused in tf.data's words, and OFF reads
    it.
    """
    inner = read(RANGE, cluster)
    text = "Cannot create split providers for dataset of type DataServiceDataset"
    with pytest.raises(UnimplementedError, match=text):
        next(iter(read(inner, cluster, DYNAMIC)))
    assert len(numbers(read(inner, cluster, OFF))) == 200


@pytest.mark.claim("2.10e", "7.51")
@pytest.mark.parametrize("written", [True, False])
def test_a_snapshot_cannot_be_split(
    cluster: zmqdata.LocalCluster, tmp_path: Path, written: bool
) -> None:
    """DYNAMIC over a snapshot is refused, whether it was written or not."""
    ds = RANGE.snapshot(str(tmp_path / "snapshot"))
    if written:
        assert len(list(ds)) == 100
    with pytest.raises(UnimplementedError, match=r"[Ss]plitting is not implemented for snapshot"):
        next(iter(read(ds, cluster)))


@pytest.mark.claim("2.10e")
def test_saved_data_cannot_be_split(cluster: zmqdata.LocalCluster, tmp_path: Path) -> None:
    """DYNAMIC over data of ``save`` is refused, and OFF reads it on every worker."""
    RANGE.save(str(tmp_path / "saved"))
    loaded = zmqdata.Dataset.load(str(tmp_path / "saved"))
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type"
    ):
        next(iter(read(loaded, cluster)))
    assert len(numbers(read(loaded, cluster, OFF))) == 200


@pytest.mark.claim("2.10e")
def test_a_generator_is_one_split(cluster: zmqdata.LocalCluster) -> None:
    """A generator goes to one worker as a whole."""
    ds = zmqdata.Dataset.from_generator(
        lambda: iter(range(40)), output_signature=zmqdata.TensorSpec((), np.int64)
    )
    assert sorted(numbers(read(ds, cluster))) == list(range(40))


@pytest.mark.claim("2.10h")
def test_random_numbers_are_never_shared(cluster: zmqdata.LocalCluster) -> None:
    """Each worker draws its own random numbers."""
    found = numbers(read(zmqdata.Dataset.random().take(50), cluster))
    assert len(set(found)) == len(found) >= 50


@pytest.mark.claim("2.10i")
@pytest.mark.core
def test_endless_input_is_handed_out_as_it_is_wanted(cluster: zmqdata.LocalCluster) -> None:
    """An endless DYNAMIC job delivers every element of its repeated input."""
    it = iter(read(zmqdata.Dataset.range(500).repeat(), cluster))
    found = Counter(int(next(it)) for _ in range(5000))
    it.close()
    assert set(found) == set(range(500))


@pytest.mark.claim("2.10j")
def test_no_file_is_an_error_of_the_reader(cluster: zmqdata.LocalCluster, tmp_path: Path) -> None:
    """A pattern without a matching file is an error of the reader."""
    with pytest.raises((DataServiceError, LookupError), match="nothing-here"):
        list(read(zmqdata.Dataset.list_files(f"{tmp_path}/nothing-here-*"), cluster))


@pytest.mark.claim("2.10j")
@pytest.mark.parametrize("mode", [OFF, DYNAMIC])
def test_a_file_that_is_missing_is_an_error_of_the_reader(
    cluster: zmqdata.LocalCluster, tmp_path: Path, mode: zmqdata.ShardingPolicy
) -> None:
    """A missing file is an error of the reader."""
    with pytest.raises((DataServiceError, LookupError, OSError), match=r"missing\.txt"):
        list(read(zmqdata.TextLineDataset([str(tmp_path / "missing.txt")]), cluster, mode))
