"""Tests of ``zmqdata.dataset.storage``."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from zmqdata.dataset import Dataset
from zmqdata.elements.specs import UNKNOWN_CARDINALITY, DatasetSpec, TensorSpec
from zmqdata.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PipelineError,
    UnimplementedError,
)
from zmqdata.nodes.base import every_node
from zmqdata.nodes.parts import split_sources
from zmqdata.pipelines import fingerprints
from zmqdata.pipelines.fingerprints import fingerprint
from zmqdata.splits import ChunkSplits, IndexSplits
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    SaveDescription,
    SaveError,
    begin_save,
    fail_save,
    finish_save,
    spec_text,
)

RUNNING = SaveDescription("run", "lz4", spec_text(TensorSpec((), np.int64)), 3)


def test_caches_keep_spec_cardinality_and_splits(tmp_path: Path) -> None:
    """A cache has the properties of its input, and reading its spec writes nothing."""
    for name in ("", tmp_path / "cache"):
        dataset = Dataset.range(3).map(lambda x: x * 0.5).cache(name)
        assert dataset.element_spec == TensorSpec((), np.float64)
        assert len(dataset) == 3
        assert split_sources(dataset.node) == [IndexSplits(3)]
    assert not (tmp_path / "cache").exists()
    assert "cache()" in Dataset.range(3).cache().node.label
    assert f"cache('{tmp_path}" in dataset.node.label


def test_a_snapshot_is_that_of_its_pipeline(tmp_path: Path) -> None:
    """Different pipelines have separate snapshots below the same path, and equal
    pipelines share a snapshot.
    """
    three, four = (
        Dataset.range(3).snapshot(tmp_path),
        Dataset.range(4).snapshot(tmp_path, compression=None),
    )
    for _ in range(2):
        assert [int(x) for x in three] == [0, 1, 2]
        assert [int(x) for x in four] == [0, 1, 2, 3]
    assert [int(x) for x in Dataset.range(3).snapshot(tmp_path)] == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 2
    assert "snapshot('/" in three.node.label


def test_a_snapshot_of_an_older_version_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot whose fingerprint was computed by an older version is not read."""
    with monkeypatch.context() as older:
        older.setattr(fingerprints, "VERSION", "")
        assert [int(x) for x in Dataset.range(3).snapshot(tmp_path)] == [0, 1, 2]
    assert [int(x) for x in Dataset.range(3).snapshot(tmp_path)] == [0, 1, 2]
    assert len(list(tmp_path.iterdir())) == 2


def test_snapshots_and_saved_datasets_cannot_be_split(tmp_path: Path) -> None:
    """Snapshots and saved datasets must be read as a whole, and the error uses the name
    in tf.data.
    """
    Dataset.range(3).save(tmp_path)
    with pytest.raises(
        UnimplementedError, match="Splitting is not implemented for snapshot datasets"
    ):
        split_sources(Dataset.range(3).snapshot(tmp_path).batch(2).node)
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type LoadDataset"
    ):
        split_sources(Dataset.load(tmp_path).node)


@pytest.mark.parametrize("compression", [None, "AUTO", "zstd"])
def test_what_was_saved_is_loaded(tmp_path: Path, compression: str | None) -> None:
    """A loaded dataset has the elements, spec and cardinality of the saved dataset."""
    dataset = Dataset.range(10).map(lambda x: {"x": [x] * 3, "name": str(x)}).batch(4)
    dataset.save(tmp_path / "deep" / "folder", compression)
    loaded = Dataset.load(tmp_path / "deep" / "folder")
    assert (
        loaded.element_spec
        == Dataset.load(tmp_path / "deep" / "folder", loaded.element_spec, compression).element_spec
    )
    assert loaded.element_spec["x"] == TensorSpec((None, 3), np.int64)
    assert len(loaded) == 3
    for was, now in zip(dataset, loaded, strict=True):
        assert (was["x"] == now["x"]).all()
        assert (was["name"] == now["name"]).all()
    assert "load('/" in loaded.node.label


def test_texts_of_any_form_are_saved(tmp_path: Path) -> None:
    """Texts that end with NUL, and arrays of Python's texts, as pandas gives them, are
    saved; the error of any other object says what files hold.
    """
    path, cached = str(tmp_path / "save"), str(tmp_path / "cache")
    dataset = Dataset.range(2).map(lambda _: {"x": ["a\0", "b"], "y": np.array(["c", None])})
    dataset.save(path)
    for _ in range(2):
        for saved in (Dataset.load(path), dataset.cache(cached)):
            assert saved.element_spec == dataset.element_spec
            texts = [(element["x"].tolist(), element["y"].tolist()) for element in saved]
            assert texts == [(["a\0", "b"], ["c", None])] * 2
    with pytest.raises(TypeError, match=r"cannot be stored: files hold no Python objects"):
        Dataset.range(1).map(lambda _: object()).save(str(tmp_path / "refused"))


def test_loading_what_is_not_there_or_differs(tmp_path: Path) -> None:
    """A missing folder, another spec and another compression are errors that name both
    values.
    """
    with pytest.raises(NotFoundError, match="holds no saved dataset"):
        Dataset.load(tmp_path)
    Dataset.range(3).save(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"User specified element_spec .*int8.* but the actual element_spec is .*int64",
    ):
        Dataset.load(tmp_path, TensorSpec((), np.int8))
    with pytest.raises(
        ValueError, match="User specified compression lz4, but the actual compression is None"
    ):
        Dataset.load(tmp_path, compression="lz4")


def test_bad_arguments_are_refused_at_the_call(tmp_path: Path) -> None:
    """Endless datasets, unknown codecs and invalid paths are refused."""
    with pytest.raises(InvalidArgumentError, match="Saving an infinite dataset is not allowed"):
        Dataset.range(3).repeat().save(tmp_path)
    for call in (Dataset.range(3).save, Dataset.range(3).snapshot):
        with pytest.raises(ValueError, match="Invalid `compression` argument"):
            call(tmp_path, compression="zip")
        with pytest.raises(TypeError, match="a str or path"):
            call(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Dataset.range(3).cache(7)  # type: ignore[arg-type]


def test_a_distributed_save_is_in_the_way(tmp_path: Path) -> None:
    """A folder to which workers save, or have saved, accepts no other save."""
    begin_save(str(tmp_path), RUNNING)
    with pytest.raises(AlreadyExistsError, match=str(tmp_path)):
        Dataset.range(3).save(tmp_path)


def test_what_is_being_saved_is_loaded_by_who_waits(tmp_path: Path) -> None:
    """Loading an unfinished save is an error without wait=True. With it, spec and
    compression are known from the start of the save.
    """
    begin_save(str(tmp_path), RUNNING)
    with pytest.raises(NotFoundError, match=r"not saved to its end yet. load\(path, wait=True\)"):
        Dataset.load(tmp_path)
    growing = Dataset.load(tmp_path, TensorSpec((), np.int64), compression="lz4", wait=True)
    assert growing.element_spec == TensorSpec((), np.int64)
    assert growing.node.grows
    with pytest.raises(
        ValueError, match="User specified compression zstd, but the actual compression is lz4"
    ):
        Dataset.load(tmp_path, compression="zstd", wait=True)


def test_a_save_that_failed_says_why(tmp_path: Path) -> None:
    """A load at once raises the error of the pipeline with the remedy. A load that
    waits raises it during iteration.
    """
    begin_save(str(tmp_path), RUNNING)
    fail_save(str(tmp_path), SaveError("ValueError", "a bad row"))
    with pytest.raises(
        ValueError,
        match=r"The save job failed to write it. ValueError: a bad row. Remove the folder",
    ):
        Dataset.load(tmp_path)
    assert Dataset.load(tmp_path, wait=True).node.grows


def test_who_waits_finds_what_another_thread_begins(tmp_path: Path) -> None:
    """``wait=True`` returns as soon as a save has begun in the folder."""
    found: list[Dataset] = []
    waiting = threading.Thread(
        target=lambda: found.append(Dataset.load(tmp_path / "later", wait=True)), daemon=True
    )
    waiting.start()
    begin_save(str(tmp_path / "later"), RUNNING)
    waiting.join(30)
    assert found[0].node.grows
    with pytest.raises(TypeError, match="`wait` must be True or False, got 1"):
        Dataset.load(tmp_path, wait=1)  # type: ignore[arg-type]


def test_a_distributed_save_that_has_ended_is_loaded(tmp_path: Path) -> None:
    """The manifest holds the number of elements, and the description holds the spec."""
    begin_save(str(tmp_path), RUNNING)
    finish_save(str(tmp_path), Manifest("run", "lz4", None, ()))
    loaded = Dataset.load(tmp_path)
    assert (len(loaded), loaded.element_spec) == (0, TensorSpec((), np.int64))


@pytest.fixture
def bucket() -> Iterator[str]:
    """Return the URL of an empty folder in fsspec's memory."""
    yield "memory://bucket/x"
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def test_a_save_goes_to_a_url(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset saved to a URL is loaded from there, replaced by the next save, and
    nothing is written to this machine.
    """
    monkeypatch.chdir(tmp_path)
    Dataset.range(3).save(bucket, compression="GZIP")
    loaded = Dataset.load(bucket, TensorSpec((), np.int64), compression="GZIP")
    assert (list(map(int, loaded)), len(loaded)) == ([0, 1, 2], 3)
    iterator = iter(loaded)
    next(iterator)
    again = iter(Dataset.load(bucket))
    again.load_state_dict(iterator.state_dict())
    assert list(map(int, again)) == [1, 2]
    Dataset.range(2).save(f"{bucket}/")
    assert list(map(int, Dataset.load(bucket))) == [0, 1]
    with pytest.raises(PipelineError):
        Dataset.range(3).map(lambda x: 1 // (int(x) - 1)).save(bucket)
    assert list(map(int, Dataset.load(bucket))) == [0, 1]
    with pytest.raises(NotFoundError):
        Dataset.load("memory://bucket/y")
    assert list(tmp_path.iterdir()) == []


def test_a_save_to_an_unknown_url_is_refused_at_once() -> None:
    """An unknown protocol is an error before the pipeline runs."""
    never = Dataset.range(3).map(lambda x: pytest.fail("the pipeline ran"))
    for call in (never.save, Dataset.load):
        with pytest.raises(InvalidArgumentError, match="Protocol not known: nonsense"):
            call("nonsense://bucket/x")
    with pytest.raises(InvalidArgumentError, match="names several"):
        never.save("zip://a::memory://bucket/x.zip")


# --- shards


def ints(dataset: Dataset) -> list[int]:
    return [int(x) for x in dataset]


def test_a_save_has_a_shard_for_each_number(tmp_path: Path) -> None:
    """Elements of several shards are read in turn, or as the reader function says, in
    the order of the shards' numbers.
    """
    Dataset.range(42).save(tmp_path, shard_func=lambda x: x // 21)
    loaded = Dataset.load(tmp_path)
    assert ints(loaded) == [x + y for x in range(21) for y in (0, 21)]
    assert (len(loaded), loaded.element_spec) == (42, TensorSpec((), np.int64))
    Dataset.range(42).save(tmp_path, shard_func=lambda x: 5 - x // 7)
    assert len(list(tmp_path.glob("*.chunk"))) == 6
    flat = Dataset.load(tmp_path, reader_func=lambda shards: shards.flat_map(lambda one: one))
    assert ints(flat) == [x for first in range(35, -1, -7) for x in range(first, first + 7)]
    spec = Dataset.load(tmp_path, reader_func=lambda shards: shards).element_spec
    assert spec == DatasetSpec(TensorSpec((), np.int64))
    one = Dataset.load(tmp_path, reader_func=lambda shards: shards.take(1).flat_map(len_of))
    assert ints(one) == [7]


@pytest.mark.parametrize("shards", [2, 7, 40])
def test_shards_that_are_read_in_turn_have_random_access(shards: int, tmp_path: Path) -> None:
    """at() returns what iteration yields at each place, an iterator may be restored at
    each, and the description shows a single operation.
    """
    Dataset.range(90).save(tmp_path, shard_func=lambda x: (x * x + x // 3) % shards)
    loaded = Dataset.load(tmp_path)
    read = ints(loaded)
    assert sorted(read) == list(range(90))
    assert [int(loaded.at(place)) for place in range(90)] == read
    for place in (0, 1, 50, 89, 90):
        iterator = iter(loaded)
        list(islice(iterator, place))
        resumed = iter(loaded)
        resumed.load_state_dict(iterator.state_dict())
        assert list(map(int, resumed)) == read[place:]
    assert "interleave" not in str(loaded.describe())
    assert len(list(every_node(loaded.node))) == 1


def test_the_next_shard_takes_the_place_of_one_that_ended(tmp_path: Path) -> None:
    """Sixteen shards are read in turn, and the seventeenth follows the first that
    ends.
    """
    Dataset.range(32).save(tmp_path, shard_func=lambda x: x if x < 17 else x - 16)
    assert ints(Dataset.load(tmp_path)) == list(range(32))


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit, ValueError])
def test_a_shard_function_that_fails_fails_the_save(tmp_path: Path, kind: Any) -> None:
    """A shard function that raises anything fails the save, or the element of a
    snapshot.
    """

    def fail(x: Any) -> int:
        raise kind("no")

    with pytest.raises(PipelineError, match=rf"save\(fail\) failed: {kind.__name__}: no"):
        Dataset.range(3).save(tmp_path / "save", shard_func=fail)
    with pytest.raises(PipelineError, match=kind.__name__):
        list(Dataset.range(3).snapshot(tmp_path / "snapshot", shard_func=fail))


def len_of(dataset: Dataset) -> Dataset:
    return Dataset.from_tensors(np.int64(len(dataset)))


def test_a_tuple_is_passed_to_the_shard_function_as_arguments(tmp_path: Path) -> None:
    """A shard function takes elements as a function of map does."""
    pairs = Dataset.zip((Dataset.range(4), Dataset.range(4)))
    pairs.save(tmp_path, shard_func=lambda x, y: (x + y) // 4)
    assert [int(x) for x, _ in Dataset.load(tmp_path)] == [0, 2, 1, 3]


def test_very_many_shards_need_few_descriptors(tmp_path: Path) -> None:
    """The files of shards do not stay open between blocks, and none is lost."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 40, limits[1]))
    try:
        Dataset.range(300).save(tmp_path, shard_func=lambda x: x % 150)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert sorted(ints(Dataset.load(tmp_path))) == list(range(300))


@pytest.mark.parametrize("result", [0.5, None, "a", True, 1 << 63])
def test_a_shard_is_an_integer(tmp_path: Path, result: object) -> None:
    """A shard function that returns anything else ends the save, and leaves what was
    saved before.
    """
    Dataset.range(2).save(tmp_path)
    with pytest.raises(InvalidArgumentError, match="`shard_func` must return a scalar int64"):
        Dataset.range(3).save(tmp_path, shard_func=lambda x: result)
    assert ints(Dataset.load(tmp_path)) == [0, 1]
    assert len(list(tmp_path.glob("*.chunk"))) == 1


def test_what_is_no_function_is_refused_at_the_call(tmp_path: Path) -> None:
    """Functions, and the result of a reader function, are checked at the call."""
    Dataset.range(2).save(tmp_path)
    for call in (
        lambda: Dataset.range(2).save(tmp_path, shard_func=0),  # type: ignore[arg-type]
        lambda: Dataset.range(2).snapshot(tmp_path, shard_func=0),  # type: ignore[arg-type]
        lambda: Dataset.range(2).snapshot(tmp_path, reader_func="x"),  # type: ignore[arg-type]
        lambda: Dataset.load(tmp_path, reader_func=7),  # type: ignore[arg-type]
        lambda: Dataset.load(tmp_path, reader_func=lambda shards: 7),
    ):
        with pytest.raises(TypeError, match=r"must be (callable|a Dataset), got"):
            call()


def test_a_snapshot_has_shards(tmp_path: Path) -> None:
    """The first run yields the elements as they come, and the next runs read the shards
    in turn, or as the reader function says. Other shards are another snapshot.
    """
    ten = Dataset.range(10)
    in_turn = ten.snapshot(tmp_path, shard_func=by_half)
    assert [ints(in_turn) for _ in range(2)] == [
        list(range(10)),
        [0, 5, 1, 6, 2, 7, 3, 8, 4, 9],
    ]
    second = ten.snapshot(
        tmp_path, shard_func=by_half, reader_func=lambda shards: shards.skip(1).flat_map(itself)
    )
    assert ints(second) == [5, 6, 7, 8, 9]
    assert [ints(ten.snapshot(tmp_path, shard_func=lambda x: 0)) for _ in range(2)] == [
        list(range(10))
    ] * 2
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(PipelineError, match="`shard_func` must return a scalar int64"):
        ints(Dataset.range(3).snapshot(tmp_path, shard_func=lambda x: str(x)))


def by_half(x: Any) -> Any:
    return x // 5


def itself(x: Any) -> Any:
    return x


@pytest.mark.parametrize("shards", [1, 3])
def test_a_snapshot_with_shards_can_be_restored_at_every_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    """Each state continues the run that wrote, and the run that read."""
    monkeypatch.setattr("zmqdata.storage.chunks.BLOCK_ELEMENTS", 2)
    monkeypatch.setattr("zmqdata.storage.shards.MOST_OPEN", 1)
    dataset = Dataset.range(13).snapshot(
        tmp_path, shard_func=lambda x: x % shards, reader_func=lambda all: all.interleave(itself)
    )
    for _ in range(2):
        iterator = iter(dataset.repeat(2))
        seen, states = [], [iterator.state_dict()]
        for x in iterator:
            seen.append(int(x))
            states.append(iterator.state_dict())
        for step in (0, 1, 4, 5, 9, 13, 14, 20, 26):
            again = iter(dataset.repeat(2))
            again.load_state_dict(states[step])
            assert list(map(int, again)) == seen[step:]
        interrupted = iter(dataset.repeat(2))
        interrupted.load_state_dict(states[3])
        interrupted.close()
    assert ints(dataset) == seen[13:]


def test_a_function_that_loads_knows_the_number_of_chunks_after_the_end(tmp_path: Path) -> None:
    """``reader_func`` can shuffle all chunks of a complete save also if ``load`` waits,
    and the pipeline is the one that was loaded during the save.
    """
    begin_save(str(tmp_path), RUNNING)
    during = Dataset.load(tmp_path, reader_func=itself, wait=True)
    finish_save(str(tmp_path), Manifest("run", "lz4", None, (Chunk("chunks/chunk_0_0_3", 3, 9),)))
    after = Dataset.load(tmp_path, reader_func=itself, wait=True)
    assert (during.cardinality(), after.cardinality()) == (UNKNOWN_CARDINALITY, 1)
    assert after.repeat(3).cardinality() == 3
    assert fingerprint(during.node) == fingerprint(after.node)


def test_a_load_by_a_function_is_split_as_one_without(tmp_path: Path) -> None:
    """The chunks of a distributed save are splits, and a plain save has none."""
    begin_save(str(tmp_path), RUNNING)
    waiting = Dataset.load(tmp_path, reader_func=itself, wait=True)
    assert split_sources(waiting.node) == [ChunkSplits(str(tmp_path), "run")]
    finish_save(str(tmp_path), Manifest("run", "lz4", None, (), splittable=True))
    assert split_sources(Dataset.load(tmp_path, reader_func=itself).node) == [IndexSplits(0)]
    Dataset.range(3).save(tmp_path / "plain")
    plain = Dataset.load(tmp_path / "plain", reader_func=itself)
    with pytest.raises(UnimplementedError, match="dataset of type LoadDataset"):
        split_sources(plain.node)


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_the_place_of_a_folder_is_named(name: str, tmp_path: Path) -> None:
    """Saves, caches and snapshots say which file prevents their folder."""
    (tmp_path / "file").touch()
    for write in (
        lambda path: Dataset.range(2).save(path),
        lambda path: list(Dataset.range(2).cache(path)),
        lambda path: list(Dataset.range(2).snapshot(path)),
    ):
        with pytest.raises(AlreadyExistsError, match=r"because '.*/file' is a file.*another name"):
            write(tmp_path / name)


def test_a_cache_is_not_read_from_a_save(tmp_path: Path) -> None:
    """A cache whose name is that of a save fails, rather than yield its elements."""
    Dataset.range(3).save(tmp_path)
    cached = Dataset.range(9).cache(tmp_path)
    for read in (lambda: list(cached), lambda: cached.at(0)):
        with pytest.raises(FailedPreconditionError, match=r"holds the elements of save\(\)"):
            read()
