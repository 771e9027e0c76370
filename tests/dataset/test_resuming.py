"""Tests of ``zmqdata.dataset.resuming``."""

from __future__ import annotations

import gc
import json
import warnings
import weakref
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import msgspec
import numpy as np
import pytest

from zmqdata import LeftOut
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
)


def pipeline(size: int = 4) -> Dataset:
    return Dataset.range(40).shuffle(8).map(lambda x: x * 2).batch(size).prefetch(2)


def rest(iterator: DatasetIterator) -> list[Any]:
    return [np.asarray(element).tolist() for element in iterator]


def test_a_state_continues_in_another_iterator() -> None:
    """A state of any step yields the same elements, including seeds, and may pass
    through json or msgpack.
    """
    first = iter(pipeline())
    states = [first.state_dict()]
    read = []
    for element in first:
        read.append(element.tolist())
        states.append(first.state_dict())
    for step, state in enumerate(states):
        again = iter(pipeline())
        again.load_state_dict(msgspec.msgpack.decode(msgspec.msgpack.encode(state)))
        assert rest(again) == read[step:]
    other = iter(Dataset.range(9).map(int))
    next(other)
    assert json.loads(json.dumps(other.state_dict())) == other.state_dict()


def test_loading_forgets_what_was_before() -> None:
    """A running iterator, even within a loop, moves to the place of the state, and its
    previous threads end.
    """
    dataset = Dataset.range(6).prefetch(2)
    iterator = iter(dataset)
    start = iterator.state_dict()
    read = []
    for element in iterator:
        read.append(int(element))
        if read == [0, 1, 2]:
            iterator.load_state_dict(start)
    assert read == [0, 1, 2, 0, 1, 2, 3, 4, 5]


def test_iterators_after_a_loaded_state_count_on_from_it() -> None:
    """A dataset that reshuffles each iteration goes on with the orders that follow that
    of the state.
    """

    def made() -> Dataset:
        return Dataset.range(20).shuffle(20, seed=1)

    whole = made()
    list(whole)
    second = iter(whole)
    next(second)
    state = second.state_dict()
    later = [list(whole) for _ in range(2)]
    resumed = made()
    iter(resumed).load_state_dict(state)
    assert [list(resumed) for _ in range(2)] == later


@pytest.mark.parametrize(
    "dataset",
    [
        pipeline(),
        Dataset.from_generator(range, args=(9,)),
        Dataset.range(9).map(abs, num_parallel_calls=2),
        Dataset.range(9).interleave(lambda x: Dataset.range(2), 2, num_parallel_calls=2),
    ],
)
def test_a_closed_iterator_has_ended_and_keeps_its_state(dataset: Dataset) -> None:
    """close() releases all resources but keeps the state: a state taken afterwards
    equals the state before.
    """
    iterator = iter(dataset)
    next(iterator)
    before = iterator.state_dict()
    iterator.close()
    iterator.close()
    assert rest(iterator) == []
    states, following = [before, iterator.state_dict()], []
    for state in states:
        again = iter(dataset)
        again.load_state_dict(state)
        following.append(rest(again))
    assert following[0] == following[1] != []
    iterator.load_state_dict(before)
    assert rest(iterator) == following[0]


def test_a_file_keeps_the_state(tmp_path: Path) -> None:
    """save replaces the file atomically and leaves nothing else behind, and restore
    continues from it.
    """
    path = tmp_path / "state"
    first = iter(pipeline())
    for _ in range(3):
        next(first)
        first.save(path)
    again = iter(pipeline())
    again.restore(str(path))
    assert rest(again) == rest(first)
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed write keeps the previous state and leaves no partial file."""
    path = tmp_path / "state"
    iterator = iter(Dataset.range(3))
    iterator.save(path)
    before = path.read_bytes()
    next(iterator)

    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        iterator.save(path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda content: content[:-1], DataLossError),
        (lambda content: content[:10], DataLossError),
        (lambda content: content[:16], DataLossError),
        (lambda content: b"x" + content[1:], DataLossError),
        (lambda content: content[:30] + bytes([content[30] ^ 1]) + content[31:], DataLossError),
        (lambda content: content[:14] + b"\xff" + content[15:], InvalidArgumentError),
        (lambda content: content[:14] + b"\0" + content[15:], InvalidArgumentError),
        (lambda content: b"", DataLossError),
        (
            lambda content: content[:15] + zlib.crc32(b"state").to_bytes(4, "big") + b"state",
            DataLossError,
        ),
    ],
)
def test_damaged_files_are_refused(
    tmp_path: Path, damage: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    """A file that is short, altered, of another kind or another version is an error,
    and the iterator continues unchanged.
    """
    path = tmp_path / "state"
    iterator = iter(Dataset.range(3))
    next(iterator)
    iterator.save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(error, match="state"):
        iterator.restore(path)
    assert rest(iterator) == [1, 2]


def test_a_state_of_another_form_is_refused() -> None:
    """The iterator continues unchanged, whatever fault the operations find in the
    state.
    """
    iterator = iter(Dataset.range(9).bucket_by_sequence_length(int, [2], [2, 2]))
    for position in (None, 7, [7, 7], [[0, 0, 0], 7, [7], 7], {"a": 1}):
        with pytest.raises(
            InvalidArgumentError, match="the state does not fit the operations of this pipeline"
        ):
            iterator.load_state_dict(iterator.state_dict() | {"position": position})
    assert len(rest(iterator)) == 5


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """Restoring from a missing file is an error that names the path."""
    with pytest.raises(NotFoundError, match="nowhere"):
        iter(Dataset.range(1)).restore(tmp_path / "nowhere")


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return an empty file system in memory."""
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.store.clear()


def test_a_store_keeps_the_state(memory: Any, tmp_path: Path) -> None:
    """save puts an object, which replaces the one before it, and restore reads it; an
    absent or damaged object is an error that names it.
    """
    first = iter(pipeline())
    for _ in range(3):
        next(first)
        first.save("memory://runs/7/state")
    assert memory.find("/runs") == ["/runs/7/state"]
    first.save(tmp_path / "state")
    assert memory.cat("/runs/7/state") == (tmp_path / "state").read_bytes()
    again = iter(pipeline())
    again.restore("memory://runs/7/state")
    assert rest(again) == rest(first)
    memory.pipe("/runs/7/state", memory.cat("/runs/7/state")[:-1])
    with pytest.raises(DataLossError, match="memory://runs/7/state is damaged"):
        first.restore("memory://runs/7/state")
    for absent in ("memory://runs/8", "memory://runs/7"):
        with pytest.raises(NotFoundError, match=f"the file {absent} does not exist"):
            first.restore(absent)


def test_another_pipeline_is_refused_with_the_difference() -> None:
    """The error shows which operations differ. With strict=False the state is loaded
    nevertheless.
    """
    iterator = iter(pipeline())
    next(iterator)
    state = iterator.state_dict()
    other = iter(pipeline(5))
    with pytest.raises(
        FailedPreconditionError,
        match=r"(?s)- .*batch\(batch_size=4.*\+ .*batch\(batch_size=5.*"
        "Make sure the dataset definition has not changed",
    ):
        other.load_state_dict(state)
    other.load_state_dict(state, strict=False)
    assert len(next(other)) == 5


def test_other_arrays_are_another_pipeline() -> None:
    """If the operations look alike but the content differs, the error says so."""
    state = iter(Dataset.from_tensor_slices(np.arange(3))).state_dict()
    with pytest.raises(FailedPreconditionError, match="content of arrays"):
        iter(Dataset.from_tensor_slices(np.arange(1, 4))).load_state_dict(state)


def test_changed_code_is_warned_about() -> None:
    """A function with changed code gives a warning at the caller's line, and the state
    is loaded.
    """
    state = iter(Dataset.range(3).map(lambda x: x + 1)).state_dict()
    iterator = iter(Dataset.range(3).map(lambda x: x + 2))
    with pytest.warns(UserWarning, match="code of a function") as caught:
        iterator.load_state_dict(state)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        iterator.load_state_dict(state, strict=False)
    assert rest(iterator) == [2, 3, 4]


@pytest.mark.parametrize("state", [None, {}, {"version": 1}, 3])
def test_what_is_no_state_is_refused(state: Any) -> None:
    """A value that state_dict did not make is an error that shows it."""
    with pytest.raises(InvalidArgumentError, match=f"got a {type(state).__name__}"):
        iter(Dataset.range(1)).load_state_dict(state)
    for version in (-1, 0, 2, 99):
        other = {**iter(Dataset.range(1)).state_dict(), "version": version}
        text = f"the state has version {version}, and this zmqdata reads version 1"
        with pytest.raises(InvalidArgumentError, match=text):
            iter(Dataset.range(1)).load_state_dict(other)


def test_a_position_that_does_not_fit_leaves_the_iterator_as_it_was() -> None:
    """A state of another form is an error despite ``strict=False``, and the iterator
    continues unchanged.
    """
    state = iter(Dataset.range(3)).state_dict()
    iterator = iter(Dataset.range(5).batch(2).repeat(2))
    next(iterator)
    with pytest.raises(InvalidArgumentError, match="does not fit"):
        iterator.load_state_dict(state, strict=False)
    assert next(iterator).tolist() == [2, 3]


def test_states_are_small() -> None:
    """A state holds positions, not elements or arrays."""
    dataset = Dataset.from_tensor_slices(np.zeros((1000, 100))).shuffle(100).batch(10)
    iterator = iter(dataset)
    next(iterator)
    assert len(msgspec.msgpack.encode(iterator.state_dict())) < 1500


def test_an_iterator_offers_what_its_executor_does() -> None:
    """An iterator offers get_next, close and the further methods of its executor, but
    not its state.
    """
    iterator = iter(Dataset.range(3).prefetch(1))
    assert iterator.get_next() == 0
    assert iterator._pump is not None
    assert not hasattr(iterator, "state")
    assert iter(iterator) is iterator
    iterator.close()
    iterator.close()
    assert rest(iterator) == []


def test_a_dropped_iterator_is_collected() -> None:
    """No reference keeps a dropped iterator alive, not even the fingerprint's cache."""
    iterator = iter(Dataset.range(3).prefetch(1))
    next(iterator)
    iterator.state_dict()
    gone = weakref.ref(iterator)
    del iterator
    gc.collect()
    assert gone() is None


def test_reading_a_dataset_does_not_change_the_pipelines_that_use_it() -> None:
    """The fingerprint of a function does not depend on how often a dataset in it was
    read.
    """
    inner = Dataset.range(2)
    outer = Dataset.range(2).flat_map(lambda n: inner)
    state = iter(outer).state_dict()
    rest(iter(inner))
    again = Dataset.range(2).flat_map(lambda n: inner)
    assert str(again.fingerprint()).split(":")[0] == state["fingerprint"].split(":")[0]


def test_a_state_of_an_earlier_version_loads_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A state whose fingerprint was computed in another way is loaded, and one warning
    names both versions.
    """
    first = iter(pipeline())
    next(first)
    state = first.state_dict() | {"fingerprint": ":".join(["0" * 32] * 3)}
    again = iter(pipeline())
    again.load_state_dict(state)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "have version v1, and those of this build have version v3" in caplog.text
    assert rest(again) == rest(first)


OF_VERSION_2 = {
    "version": 1,
    "fingerprint": "v2-dbc06aca2d7518e10ea01eca4db22fc6:7549e90df972ecb871849fbff62c685d:",
    "pipeline": [
        "batch(batch_size=2, drop_remainder=False)",
        "└─ shuffle(buffer_size=4, seed=7, reshuffle_each_iteration=True, ordinal=<Ordinal>)",
        "└─ range(start=0, stop=10, step=1, dtype='int64')",
    ],
    "seed": 315561062470053109,
    "fixed_seed": 6890433145543148851,
    "iteration": 0,
    "position": [[0, 0, 5], b"\0\0\0\0\1\0\0\0\4\0\0\0", 2, False],
    "orders": [],
    "quarantine": [],
}
"""State that a build with fingerprints of version 2 wrote after the first element."""


def test_a_state_of_a_build_before_is_not_said_to_be_of_another_pipeline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A recorded state of version 2 continues, and a warning names both versions."""
    again = iter(Dataset.range(10).shuffle(4, seed=7).batch(2))
    again.load_state_dict(OF_VERSION_2)
    assert "have version v2, and those of this build have version v3" in caplog.text
    assert rest(again) == [[1, 6], [7, 0], [5, 9], [8, 4]]


def test_a_folder_is_no_state(tmp_path: Path) -> None:
    """Restoring from a folder is an error that points to Dataset.load. An invalid name
    is refused.
    """
    with pytest.raises(InvalidArgumentError, match=r"is a folder, .* Dataset\.load"):
        iter(Dataset.range(3)).restore(tmp_path)
    for call in (iter(Dataset.range(3)).restore, iter(Dataset.range(3)).save):
        with pytest.raises(TypeError, match="a file name must be a str or path, got 7"):
            call(7)


def test_a_pipeline_that_is_too_deep_is_told_what_to_do() -> None:
    """If the operations exceed Python's stack, the error names the last operation and a
    way without them.
    """
    dataset = Dataset.range(1)
    for _ in range(1000):
        dataset = Dataset.range(1).concatenate(dataset)
    with pytest.raises(
        InvalidArgumentError, match=r"2001 operations is too deep .*: concatenate\(\) at .*flat_map"
    ):
        dataset.cardinality()


def test_what_was_left_out_is_in_the_state() -> None:
    """An iterator that continues elsewhere knows the skipped elements, as ``LeftOut``.
    An old state has no record of them.
    """
    dataset = Dataset.range(6).map(lambda x: 6 // int(x % 3), on_error="skip")
    iterator = iter(dataset)
    assert [next(iterator), next(iterator)] == [6, 3]
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(iterator.state_dict()))
    again = iter(dataset)
    again.load_state_dict(state)
    assert again.quarantine == iterator.quarantine
    assert {*map(type, again.quarantine)} == {LeftOut}
    assert list(again) == [6, 3]
    assert [left_out.number for left_out in again.quarantine] == [0, 3]
    del state["quarantine"]
    again.load_state_dict(state)
    assert again.quarantine == []


def test_a_state_has_the_newest_that_were_left_out() -> None:
    """A state holds only the newest of many skipped elements, so that it stays
    small.
    """
    iterator = iter(Dataset.range(300).map(lambda x: 1 // 0 if x < 299 else 7, on_error="skip"))
    assert next(iterator) == 7
    state = iterator.state_dict()
    assert [one["number"] for one in state["quarantine"]] == list(range(199, 299))


@pytest.mark.parametrize(
    "dataset",
    [
        Dataset.range(40).shuffle(10).batch(3),
        Dataset.range(40).map(lambda x: x * 2, num_parallel_calls=2).prefetch(4),
        Dataset.range(10).repeat(4).filter(lambda x: x % 2 == 0),
        Dataset.range(6).map(lambda x: 6 // int(x % 3), on_error="skip"),
    ],
    ids=["shuffle", "threads", "repeat", "skip"],
)
def test_a_bookmark_is_a_state_of_then(dataset: Dataset) -> None:
    """A position that was noted has the state that it had, also after further elements
    and after the end.
    """
    iterator = iter(dataset)
    noted = [(iterator.bookmark(), iterator.state_dict())]
    elements = []
    for element in iterator:
        elements.append(np.asarray(element).tolist())
        noted.append((iterator.bookmark(), iterator.state_dict()))
    iterator.close()
    for at, (bookmark, state) in enumerate(noted):
        assert bookmark() == bookmark() == state
        again = iter(dataset)
        again.load_state_dict(bookmark())
        assert [np.asarray(element).tolist() for element in again] == elements[at:]


def test_a_bookmark_outlives_the_loading_of_a_state() -> None:
    """A position that was noted before another state was loaded can be loaded again."""
    iterator = iter(Dataset.range(10).shuffle(10))
    next(iterator)
    bookmark = iterator.bookmark()
    expected = [int(element) for element in iterator]
    iterator.load_state_dict(iter(Dataset.range(10).shuffle(10)).state_dict())
    iterator.load_state_dict(bookmark())
    assert [int(element) for element in iterator] == expected
