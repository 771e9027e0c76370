"""Tests of ``zmqdata.operations.stored``."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import numpy as np
import pytest

from tests.iterators.checks import check_restore, outcomes, plain, run
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import TensorSpec
from zmqdata.errors import (
    AlreadyExistsError,
    DataLossError,
    FailedPreconditionError,
    PipelineError,
    UnavailableError,
    UnimplementedError,
)
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.nodes.base import Node, source_nodes
from zmqdata.nodes.parts import split_sources
from zmqdata.operations import stored
from zmqdata.operations.cache import Cache, kept_element
from zmqdata.operations.combinations import Zip
from zmqdata.operations.loading import Load
from zmqdata.operations.mapping import Map
from zmqdata.operations.repeat import Repeat
from zmqdata.operations.sequences import FromList
from zmqdata.operations.shuffle import Shuffle
from zmqdata.operations.sources import FromGenerator, Range
from zmqdata.operations.stored import Snapshot, save_elements
from zmqdata.splits import ChunkSplits, IndexSplits
from zmqdata.storage import chunks, retrying, shards
from zmqdata.storage.files import lock_folder
from zmqdata.storage.manifests import read_manifest

NINE = [plain(np.int64(number)) for number in range(9)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "BLOCK_ELEMENTS", 3)


def nine() -> Node:
    return Range(start=0, stop=9)


def cached(folder: Path, source: Node | None = None) -> Cache:
    return Cache(inputs=(source or nine(),), filename=str(folder / "cache"))


def snapshot(folder: Path, source: Node | None = None) -> Snapshot:
    return Snapshot(
        inputs=(source or nine(),), path=str(folder), pipeline="cache", compression=None
    )


def failing(x: Any) -> Any:
    if x % 4 == 1:
        raise ValueError("no")
    return x


def saved(folder: Path, source: Node | None = None, run_name: str = "one") -> Load:
    save_elements(make_iterator(source or nine(), Context()), str(folder), run_name, None, None)
    manifest = read_manifest(str(folder))
    return Load(
        path=str(folder),
        save_id=run_name,
        count=manifest.elements,
        elements_spec=manifest.element_spec,
    )


def test_load_reads_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements come back in order from several chunks, each can be restored, and the
    spec was widened.
    """
    monkeypatch.setattr("zmqdata.operations.stored.CHUNK_BYTES", 100)
    rows = [(np.arange(number), "text") for number in range(1, 8)]
    node = saved(tmp_path, FromList(sequence=tuple(rows), elements_spec=None))
    assert check_restore(node) == list(map(plain, rows))
    assert len(read_manifest(str(tmp_path)).chunks) > 1
    assert str(node.elements_spec[0]) == "TensorSpec(shape=(None,), dtype=int64)"


def test_saving_again_replaces_what_was_saved(tmp_path: Path) -> None:
    """Old chunks are removed, and a dataset loaded before reports that it must be
    loaded again.
    """
    old, new = saved(tmp_path), saved(tmp_path, Range(start=5, stop=7), "two")
    assert [outcome[3] for outcome in run(new)] == [5, 6]
    assert [outcome[1] for outcome in run(old, limit=1)] == ["FailedPreconditionError"]
    assert run(saved(tmp_path, Range(start=0, stop=0), "three")) == []


def test_a_save_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """A pipeline that fails while it is saved leaves no new chunks, and the old chunks
    stay.
    """
    node = saved(tmp_path)
    bad = Map(inputs=(nine(),), function=failing)
    with pytest.raises(PipelineError, match="no"):
        saved(tmp_path, bad, "two")
    with pytest.raises(PipelineError, match="no"):
        saved(tmp_path / "new", bad, "two")
    with pytest.raises(TypeError):
        saved(tmp_path / "new", FromList(sequence=(object(),), elements_spec=None), "two")
    with pytest.raises(TypeError, match="do not fit together"):
        saved(tmp_path / "new", FromList(sequence=(1, "a"), elements_spec=None), "two")
    assert not list((tmp_path / "new").glob("*.json"))
    assert run(node) == NINE
    assert len(list(tmp_path.glob("*.chunk"))) == 1


def test_only_one_saves_at_a_time(tmp_path: Path) -> None:
    """Saving is refused while another process holds the folder."""
    lock = lock_folder(str(tmp_path))
    assert lock is not None
    with lock, pytest.raises(AlreadyExistsError, match="Another writer is saving"):
        saved(tmp_path)
    assert run(saved(tmp_path)) == NINE


@pytest.mark.parametrize("make", [cached, snapshot])
def test_files_are_read_once_they_are_complete(tmp_path: Path, make: Callable[..., Node]) -> None:
    """The input runs once. Later iterators and repetitions read the files, also those
    of another program.
    """
    seen: list[int] = []

    def see(x: Any) -> Any:
        seen.append(int(x))
        return x

    node = make(tmp_path, Map(inputs=(nine(),), function=see))
    assert run(Repeat(inputs=(node,), count=2)) == NINE + NINE
    assert check_restore(replace(node)) == NINE
    assert len(seen) == 9


@pytest.mark.parametrize("make", [cached, snapshot])
@pytest.mark.parametrize("lost", ["nothing", "files", "complete"])
def test_restoring_at_every_step(tmp_path: Path, make: Callable[..., Node], lost: str) -> None:
    """The same elements follow with the file of a crash, without the file, and with the
    complete file.
    """
    mapped = Map(inputs=(Shuffle(inputs=(nine(),), buffer_size=4),), function=failing)
    node = Repeat(inputs=(make(tmp_path, mapped),), count=2)
    iterator = make_iterator(node, Context(seed=7))
    following, seen, states = outcomes(iterator), [], []
    while True:
        copy = tmp_path / f"state {len(states)}"
        if (tmp_path / "cache").exists():
            shutil.copytree(tmp_path / "cache", copy)
        states.append((msgspec.msgpack.encode(iterator.state()), copy))
        outcome = next(following, None)
        if outcome is None:
            break
        seen.append(outcome)
    assert len(seen) == 9 + 7
    for step, (state, copy) in enumerate(states):
        if lost != "complete":
            shutil.rmtree(tmp_path / "cache")
        if lost == "nothing" and copy.exists():
            shutil.copytree(copy, tmp_path / "cache")
        restored = make_iterator(node, Context(seed=7))
        restored.restore(msgspec.msgpack.decode(state))
        assert msgspec.msgpack.encode(restored.state())
        expected = [one for one in seen[step:] if one[0] != "raised"]
        assert [one for one in outcomes(restored) if one[0] != "raised"] == expected
        restored.close()
        assert [one for one in run(node) if one[0] != "raised"][:7] == [
            one for one in seen if one[0] != "raised"
        ][:7]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    """While an iterator writes a cache, a second writer is refused. After the first is
    closed, another may write.
    """
    node = cached(tmp_path)
    first, second = make_iterator(node, Context()), make_iterator(node, Context(seed=1))
    next(first)
    with pytest.raises(
        AlreadyExistsError, match="There appears to be a concurrent caching iterator running"
    ):
        next(second)
    first.close()
    assert [int(x) for x in second] == list(range(9))
    assert next(second, "ended") == "ended"


@pytest.mark.parametrize("left", ["closed", "dropped", "read on"])
def test_a_cache_that_was_left_half_written_is_read_by_the_next(tmp_path: Path, left: str) -> None:
    """Once the iterator that began a cache is gone, the next one has all elements. One
    that lives goes on beside the error of the other, as in tf.data.
    """
    dataset = Dataset.range(9).cache(tmp_path / "cache")
    first = iter(dataset)
    assert [int(next(first)), int(next(first))] == [0, 1]
    if left == "read on":
        with pytest.raises(AlreadyExistsError):
            list(dataset)
        assert [int(x) for x in first] == list(range(2, 9))
    elif left == "closed":
        first.close()
    else:
        del first
    assert [int(x) for x in dataset] == list(range(9))


def overtaken(monkeypatch: pytest.MonkeyPatch, other: Callable[[], None]) -> None:
    """Let another iterator run before the next lock on a folder is taken."""

    def lock_later(folder: str) -> Any:
        monkeypatch.setattr(stored, "lock_folder", lock_folder)
        other()
        return lock_folder(folder)

    monkeypatch.setattr(stored, "lock_folder", lock_later)


def test_files_that_another_reader_has_just_written_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that finds no files, and is overtaken by a writer before it locks the
    folder, reads what was written. Its own run would remove the files.
    """
    node = cached(tmp_path, Shuffle(inputs=(nine(),), buffer_size=9))
    written: list[int] = []

    def write() -> None:
        written.extend(int(x) for x in make_iterator(node, Context(seed=1)))

    overtaken(monkeypatch, write)
    assert [int(x) for x in make_iterator(node, Context(seed=2))] == written


@pytest.mark.parametrize("ends", [True, False])
def test_files_that_go_before_a_writer_continues_them_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """A writer whose files another writer has removed by the time that it locks the
    folder pulls its elements again.
    """
    node = cached(tmp_path)
    writer = make_iterator(node, Context())
    assert [int(next(writer)) for _ in range(5)] == list(range(5))
    state = writer.state()
    writer.close()

    def write() -> None:
        other = make_iterator(node, Context(seed=1))
        assert int(next(other)) == 0
        assert not ends or len(list(other)) == 8
        other.close()

    overtaken(monkeypatch, write)
    restored = make_iterator(node, Context())
    restored.restore(state)
    assert [int(x) for x in restored] == list(range(5, 9))


def test_a_second_snapshot_writer_passes_elements_on(tmp_path: Path) -> None:
    """While an iterator writes a snapshot, others pass on the elements of their input,
    and can be restored.
    """
    node = snapshot(tmp_path)
    writer = make_iterator(node, Context())
    next(writer)
    second = make_iterator(node, Context())
    assert [int(next(second)) for _ in range(4)] == [0, 1, 2, 3]
    restored = make_iterator(node, Context())
    restored.restore(second.state())
    assert [int(x) for x in restored] == [int(x) for x in second] == list(range(4, 9))
    assert len(list(writer)) == 8
    late = make_iterator(node, Context())
    late.restore(["pass", [5, 0, 0, 0], 2, False, 2])
    assert [int(x) for x in late] == list(range(2, 9))


def test_files_of_another_run_are_left_alone(tmp_path: Path) -> None:
    """A state whose files another run has replaced continues its own run without
    writing.
    """
    shuffled = Shuffle(inputs=(nine(),), buffer_size=9)
    node = cached(tmp_path, shuffled)
    states, iterator = [], make_iterator(node, Context(seed=1))
    expected = []
    for _ in range(5):
        expected.append(int(next(iterator)))
    states.append(iterator.state())
    rest = [int(x) for x in iterator]
    again = make_iterator(node, Context())
    next(again)
    reading = again.state()
    shutil.rmtree(node.filename)
    other = [int(x) for x in make_iterator(node, Context(seed=2))]
    assert other != expected + rest
    for state, follows in ((states[0], rest), (reading, (expected + rest)[1:])):
        restored = make_iterator(node, Context(seed=3))
        restored.restore(state)
        assert [int(x) for x in restored] == follows
    assert [int(x) for x in make_iterator(node, Context())] == other


def test_what_cannot_be_stored_is_a_failure(tmp_path: Path) -> None:
    """An object that cannot be written is the failure of its element in each run, and
    the rest is not kept.
    """
    node = cached(tmp_path, FromList(sequence=(1, object(), 2), elements_spec=None))
    for _ in range(2):
        assert [outcome[0] for outcome in run(node)] == ["int", "raised", "int"]
    assert len(check_restore(node)) == 3


@pytest.mark.parametrize("make", [cached, snapshot])
@pytest.mark.parametrize("fails", ["write_block", "finish"])
def test_a_full_disk_ends_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Node], fails: str
) -> None:
    """A block or a file that cannot be written is an error, and files that may lack its
    elements never count as complete, even if the iterator goes on.
    """

    def full(*_: object) -> Any:
        monkeypatch.undo()
        raise OSError(28, "no space")

    iterator = make_iterator(make(tmp_path), Context())
    next(iterator)
    monkeypatch.setattr(
        *((chunks, "write_block") if fails == "write_block" else (chunks.ChunkWriter, "finish")),
        full,
    )
    found = [one[0] for one in outcomes(iterator)]
    assert (found.count("raised"), len(found)) == (1, 8 if fails == "write_block" else 9)
    assert not list(tmp_path.rglob("manifest.json"))
    assert run(make(tmp_path)) == run(make(tmp_path)) == NINE


def test_damaged_files_are_data_loss(tmp_path: Path) -> None:
    """A truncated chunk is an error that advises to remove the folder."""
    node = cached(tmp_path)
    run(node)
    (chunk,) = Path(node.filename).glob("*.chunk")
    chunk.write_bytes(chunk.read_bytes()[:-1])
    with pytest.raises(DataLossError, match="Remove the folder"):
        next(make_iterator(node, Context()))


def test_restoring_on_a_shorter_input_is_refused(tmp_path: Path) -> None:
    """An input with fewer elements than were written cannot be continued."""
    counts = iter([5, 2])
    node = cached(tmp_path, FromGenerator(generator=lambda: range(next(counts))))
    iterator = make_iterator(node, Context())
    assert [next(iterator) for _ in range(4)] == [0, 1, 2, 3]
    state = iterator.state()
    iterator.close()
    shutil.rmtree(node.filename)
    with pytest.raises(FailedPreconditionError, match="fewer elements"):
        make_iterator(node, Context()).restore(state)


def test_what_a_folder_holds_is_found_by_its_number(tmp_path: Path) -> None:
    """A complete cache reads an element at its place. An incomplete cache, and a place
    after the end, have no element.
    """
    node = cached(tmp_path, Range(start=5, stop=9))
    assert kept_element(node, 0) is None
    run(node)
    assert [kept_element(node, index) for index in (3, 0, 4)] == [(8,), (5,), None]
    assert kept_element(Cache(inputs=(Range(start=0, stop=3),)), 0) is None


# --- what nodes say of themselves

INT = TensorSpec((), "int64")
THREE = Range(start=0, stop=3)


# --- in stores


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a file system in memory, where each block is an object."""
    monkeypatch.setattr(shards, "UPLOAD_BYTES", 1)
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()
    filesystem.pseudo_dirs[:] = [""]


def stored_cache(source: Node | None = None) -> Cache:
    return Cache(inputs=(source or nine(),), filename="memory://b/x")


def stored_snapshot(source: Node | None = None) -> Snapshot:
    return Snapshot(inputs=(source or nine(),), path="memory://b", pipeline="x", compression=None)


def objects(memory: Any, ending: str = "") -> list[str]:
    return [name for name in memory.find("/b/x") if name.endswith(ending)]


def ints(iterator: Any) -> list[int]:
    return [int(x) for x in iterator]


@pytest.mark.parametrize("make", [stored_cache, stored_snapshot])
def test_a_store_is_read_once_it_is_complete(memory: Any, make: Callable[..., Node]) -> None:
    """The input runs once, and its elements lie in several objects. Later iterators
    read them, two at a time, and each can be restored.
    """
    seen: list[int] = []

    def see(x: Any) -> Any:
        seen.append(int(x))
        return x

    node = make(Map(inputs=(nine(),), function=see))
    assert run(Repeat(inputs=(node,), count=2)) == NINE + NINE
    assert len(objects(memory, ".chunk")) > 1
    one, other = make_iterator(replace(node), Context()), make_iterator(node, Context(seed=1))
    assert [int(next(each)) for _ in range(9) for each in (one, other)] == sorted([*range(9)] * 2)
    assert check_restore(replace(node)) == NINE
    assert len(seen) == 9


@pytest.mark.parametrize("make", [stored_cache, stored_snapshot])
@pytest.mark.parametrize("lost", [True, False])
def test_restoring_at_every_step_of_a_store(
    memory: Any, make: Callable[..., Node], lost: bool
) -> None:
    """The same elements follow, whether the objects are there or gone."""
    mapped = Map(inputs=(Shuffle(inputs=(nine(),), buffer_size=4),), function=failing)
    node = Repeat(inputs=(make(mapped),), count=2)
    iterator = make_iterator(node, Context(seed=7))
    following, seen, states = outcomes(iterator), [], [iterator.state()]
    for outcome in following:
        seen.append(outcome)
        states.append(iterator.state())
    assert len(seen) == 9 + 7
    for step, state in enumerate(states):
        if lost:
            memory.store.clear()
        restored = make_iterator(node, Context(seed=7))
        restored.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(state)))
        expected = [one for one in seen[step:] if one[0] != "raised"]
        assert [one for one in outcomes(restored) if one[0] != "raised"] == expected


@pytest.mark.parametrize("left", ["closed", "dropped"])
def test_an_abandoned_pass_leaves_nothing_in_a_store(memory: Any, left: str) -> None:
    """An iterator that ends early removes its objects. An iterator restored from its
    state pulls all elements again, and stores them.
    """
    seen: list[int] = []
    node = stored_cache(
        Map(inputs=(nine(),), function=lambda x: (seen.append(int(x)), x)[1])  # type: ignore[func-returns-value]
    )
    first = make_iterator(node, Context())
    assert ints(next(first) for _ in range(8)) == list(range(8))
    assert objects(memory, ".chunk")
    state = first.state()
    if left == "closed":
        first.close()
    else:
        del first
        gc.collect()
    assert objects(memory) == []
    later = make_iterator(node, Context())
    later.restore(state)
    assert ints(later) == [8]
    assert seen == [*range(8), *range(9)]
    assert ints(make_iterator(node, Context())) == list(range(9))
    assert len(seen) == 17


def test_what_a_killed_writer_leaves_in_a_store_does_not_count(memory: Any) -> None:
    """Objects without a manifest are no cache; the next iterator writes its own beside
    them.
    """
    first = make_iterator(stored_cache(Range(start=50, stop=59)), Context())
    for _ in range(8):
        next(first)
    left = {name: memory.cat(name) for name in objects(memory)}
    first.close()
    memory.pipe(left)
    assert kept_element(stored_cache(), 0) is None
    for _ in range(2):
        assert ints(make_iterator(stored_cache(), Context())) == list(range(9))
    assert left
    assert left.keys() < set(objects(memory))


def test_a_forked_process_removes_nothing(memory: Any) -> None:
    """The copy of a writer in another process leaves the objects alone."""
    memory.pipe("/b/x/1-0-0.chunk", b"")
    parts = [chunks.Chunk("1-0-0.chunk", 0, 0)]
    stored._remove_parts("memory://b/x", parts, os.getpid() + 1)
    assert len(objects(memory)) == 1
    stored._remove_parts("memory://b/x", parts, os.getpid())
    assert objects(memory) == []


@pytest.mark.parametrize("make", [stored_cache, stored_snapshot])
def test_the_first_writer_of_a_store_counts(memory: Any, make: Callable[..., Node]) -> None:
    """Two iterators write at a time, and each yields its own elements. Others read what
    the first to end has written; the objects of the second go.
    """
    node = make(Shuffle(inputs=(nine(),), buffer_size=9))
    one, other = (make_iterator(node, Context(seed=seed)) for seed in (1, 2))
    began = [(int(next(one)), int(next(other))) for _ in range(8)]
    written = len(objects(memory))
    second = [mine for _, mine in began] + ints(other)
    first = [mine for mine, _ in began] + ints(one)
    assert sorted(first) == sorted(second) == list(range(9))
    assert first != second
    assert ints(make_iterator(node, Context(seed=3))) == second
    assert len(objects(memory)) < written + 2
    assert {chunk.name for chunk in read_manifest("memory://b/x").chunks} == {
        name.rpartition("/")[2] for name in objects(memory, ".chunk")
    }


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped"])
def test_damage_in_a_store_is_data_loss(memory: Any, damage: str) -> None:
    """An object that is absent, cut or changed is an error that names it, and the other
    objects are read.
    """
    run(stored_cache())
    name = objects(memory, ".chunk")[0]
    content = memory.cat(name)
    memory.rm(name)
    if damage != "gone":
        memory.pipe(name, content[:-1] if damage == "cut" else content[:-1] + b"?")
    iterator = make_iterator(stored_cache(), Context())
    with pytest.raises(DataLossError, match=rf"memory:/{name} is damaged"):
        ints(iterator)
    assert ints(iterator)[-1] == 8


class Refusing:
    """Replaces the ``pipe_file`` of a file system: breaks the connection for the
    requests with a number in ``broken``, for names that end with ``ending``.
    """

    def __init__(self, memory: Any, ending: str, broken: range, stores: bool) -> None:
        self._put, self._ending, self._broken, self._stores = (
            type(memory).pipe_file,
            ending,
            broken,
            stores,
        )
        self.requests = 0

    def __call__(self, path: str, value: bytes, **options: Any) -> None:
        is_broken = False
        if path.endswith(self._ending):
            is_broken = self.requests in self._broken
            self.requests += 1
        if self._stores or not is_broken:
            self._put(fsspec.filesystem("memory"), path, value, **options)
        if is_broken:
            raise ConnectionResetError("the connection broke")


@pytest.mark.parametrize("stores", [True, False])
def test_a_write_is_repeated(memory: Any, monkeypatch: pytest.MonkeyPatch, stores: bool) -> None:
    """A broken connection while an object or the manifest is written costs a second
    request, whether or not the store has the object.
    """
    for ending in (".chunk", "manifest.json"):
        memory.store.clear()
        refusing = Refusing(memory, ending, range(1), stores)
        monkeypatch.setattr(type(memory), "pipe_file", lambda _, *given, to=refusing: to(*given))
        for _ in range(2):
            assert ints(make_iterator(stored_cache(), Context())) == list(range(9))
        assert refusing.requests >= 2
        assert objects(memory, "manifest.json")


@pytest.mark.parametrize("stores", [True, False])
@pytest.mark.parametrize("ending", [".chunk", "manifest.json"])
def test_a_store_that_fails_ends_the_pass_with_an_error(
    memory: Any, monkeypatch: pytest.MonkeyPatch, ending: str, stores: bool
) -> None:
    """When all tries are spent the iterator raises, and goes on without storing. What
    then lies in the store is either complete or not a cache.
    """
    monkeypatch.setattr(retrying, "MOST_TRIES", 2)
    refusing = Refusing(memory, ending, range(2), stores)
    monkeypatch.setattr(type(memory), "pipe_file", lambda _, *given: refusing(*given))
    iterator = make_iterator(stored_cache(), Context())
    found = list(outcomes(iterator))
    raised = [one for one in found if one[0] == "raised"]
    assert len(raised) == 1
    assert len(found) == (10 if ending == "manifest.json" else 9)
    assert bool(objects(memory, "manifest.json")) == (ending == "manifest.json" and stores)
    for _ in range(2):
        assert ints(make_iterator(stored_cache(), Context())) == list(range(9))


def test_a_failed_write_names_object_and_tries(
    memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of an element whose object cannot be written has the store's words."""
    monkeypatch.setattr(retrying, "MOST_TRIES", 2)
    refusing = Refusing(memory, "", range(99), stores=False)
    monkeypatch.setattr(type(memory), "pipe_file", lambda _, *given: refusing(*given))
    iterator = make_iterator(stored_cache(), Context())
    with pytest.raises(UnavailableError, match=r"chunk could .* after 2 tries: the connection"):
        ints(iterator)


def test_an_unavailable_store_loses_no_place(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that fails for good is repeated by the next call, from the same block."""
    run(stored_cache())
    monkeypatch.setattr(retrying, "MOST_TRIES", 1)
    cat, fails = type(memory).cat_file, iter([False, True, False, True, True])

    def cat_file(*given: Any, **options: Any) -> Any:
        if next(fails, False):
            raise ConnectionResetError("the connection broke")
        return cat(*given, **options)

    iterator = make_iterator(stored_cache(), Context())
    assert int(next(iterator)) == 0
    monkeypatch.setattr(type(memory), "cat_file", cat_file)
    found, failures = [], 0
    for _ in range(20):
        try:
            found.append(int(next(iterator)))
        except UnavailableError:
            failures += 1
        except StopIteration:
            break
    assert (found, failures) == (list(range(1, 9)), 3)


def infer(node: Node) -> object:
    return node.spec(infer)


def test_a_cache_is_as_its_input() -> None:
    """The spec, the cardinality and the splits of a cache are those of its input."""
    memory, files = Cache(inputs=(THREE,)), Cache(inputs=(THREE,), filename="/a")
    assert (memory.label, files.label, files.folder) == ("cache()", "cache('/a')", "/a")
    assert (memory.cardinality, infer(memory), split_sources(memory)) == (3, INT, [IndexSplits(3)])


def test_a_snapshot_hides_its_sources_from_splitting() -> None:
    """A snapshot counts as a single source, which cannot be split. Its folder depends
    on its pipeline.
    """
    node = Snapshot(inputs=(Zip(inputs=(THREE, THREE), template=(0, 1)),), path="/a", pipeline="b")
    assert (node.label, node.folder) == ("snapshot('/a')", "/a/b")
    assert source_nodes(Zip(inputs=(THREE, node), template=(0, 1))) == [THREE, node]
    with pytest.raises(
        UnimplementedError, match="Splitting is not implemented for snapshot datasets"
    ):
        split_sources(node)


def test_what_was_saved_describes_itself() -> None:
    """Count and spec of a saved dataset are known without reading it, and it cannot be
    split.
    """
    node = Load(path="/a", save_id="r", count=5, elements_spec=INT)
    assert (node.label, node.cardinality, infer(node)) == ("load('/a')", 5, INT)
    with pytest.raises(
        UnimplementedError, match="Cannot create split providers for dataset of type LoadDataset"
    ):
        _ = node.split_source


def test_what_was_saved_in_chunks_is_split_by_chunk() -> None:
    """Tasks share the chunks of a finished save by number, and the chunks of a save in
    progress by name.
    """
    node = Load(path="/a", save_id="r", count=5, elements_spec=INT, chunks=3)
    assert node.split_source == IndexSplits(3)
    growing = Load(path="/a", save_id="r", elements_spec=INT, grows=True)
    assert (growing.label, growing.cardinality, infer(growing)) == (
        "load('/a', wait=True)",
        -2,
        INT,
    )
    assert growing.split_source == ChunkSplits("/a", "r")
