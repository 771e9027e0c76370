"""Tests of ``zmqdata.operations.loading``."""

from __future__ import annotations

import fcntl
import logging
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.iterators.checks import LedgerProvider, check_restore, plain, provided, run
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    PipelineError,
    UnavailableError,
)
from zmqdata.failures.codec import encode_failure
from zmqdata.files.paths import LOCK, files_token
from zmqdata.iterators.base import make_iterator
from zmqdata.iterators.context import Context
from zmqdata.operations import loading
from zmqdata.operations.loading import Load
from zmqdata.splits import Split
from zmqdata.storage import chunks
from zmqdata.storage.chunks import ChunkWriter
from zmqdata.storage.manifests import (
    Chunk,
    Manifest,
    SaveDescription,
    SaveError,
    begin_save,
    chunk_path,
    fail_save,
    finish_save,
)

NINE = [plain(np.int64(number)) for number in range(9)]


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "BLOCK_ELEMENTS", 2)
    monkeypatch.setattr(loading, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(loading, "MOST_PAUSE", 0.001)


def publish(folder: Path, stream: int, number: int, *values: int) -> Chunk:
    path = Path(chunk_path(str(folder), f"chunk_{stream}_{number}_{len(values)}"))
    path.parent.mkdir(exist_ok=True)
    partial = ChunkWriter(str(folder / "partial"), None)
    for value in values:
        partial.add(np.int64(value))
    made = partial.finish()
    (folder / "partial").rename(path)
    return Chunk(f"chunks/{path.name}", made.elements, made.nbytes)


def begin(folder: Path) -> Load:
    begin_save(str(folder), SaveDescription("run", None, None, -2))
    return Load(path=str(folder), save_id="run", elements_spec=None, grows=True)


def finish(folder: Path, *made: Chunk) -> Load:
    manifest = Manifest("run", None, None, made, splittable=True)
    finish_save(str(folder), manifest)
    return Load(
        path=str(folder),
        save_id="run",
        count=manifest.elements,
        elements_spec=None,
        chunks=len(made),
    )


def nine(folder: Path) -> tuple[Chunk, ...]:
    return (
        publish(folder, 0, 0, 0, 1, 2),
        publish(folder, 1, 0, 3, 4),
        publish(folder, 0, 1, 5, 6, 7, 8),
    )


def growing(node: Load) -> Any:
    return make_iterator(node, Context())


def test_a_finished_save_is_read_round_by_round(tmp_path: Path) -> None:
    """The first chunk of each stream precedes the second of any, and every place can be
    restored.
    """
    begin(tmp_path)
    assert check_restore(finish(tmp_path, *nine(tmp_path))) == NINE


def test_tasks_share_the_chunks(tmp_path: Path) -> None:
    """A load under a provider reads the given chunks, and every place can be
    restored.
    """
    begin(tmp_path)
    node = finish(tmp_path, *nine(tmp_path))
    assert check_restore(node, provided([[(2, 3), (0, 1)]])) == [*NINE[5:], *NINE[:3]]


def test_a_task_without_chunks_is_at_its_end(tmp_path: Path) -> None:
    """A task without a chunk yields no element."""
    begin(tmp_path)
    assert check_restore(finish(tmp_path, *nine(tmp_path)), provided([[]])) == []


def test_what_was_saved_since_is_refused(tmp_path: Path) -> None:
    """A loaded dataset does not silently change after another save."""
    growing_node = begin(tmp_path)
    finish(tmp_path, *nine(tmp_path))
    other = Load(path=str(tmp_path), save_id="other", count=9, elements_spec=None, chunks=3)
    for context in (Context(), provided([[(0, 1)]])()):
        with pytest.raises(FailedPreconditionError, match="something else was saved there since"):
            next(make_iterator(other, context))
    stale = replace(growing_node, save_id="other")
    with pytest.raises(FailedPreconditionError, match="something else was saved there since"):
        next(growing(stale))


def test_a_save_is_read_while_it_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each published chunk is read once, and the end follows with the marker."""
    iterator = growing(begin(tmp_path))
    made = [publish(tmp_path, 0, 0, 0, 1, 2)]
    assert [int(next(iterator)) for _ in range(3)] == [0, 1, 2]
    coming = [
        lambda: made.append(publish(tmp_path, 1, 0, 3, 4)),
        lambda: made.append(publish(tmp_path, 0, 1, 5, 6, 7, 8)),
        lambda: finish(tmp_path, *made),
    ]
    monkeypatch.setattr(loading.SaveWait, "pause", lambda self, what, remark: coming.pop(0)())
    assert [int(x) for x in iterator] == [3, 4, 5, 6, 7, 8]
    assert list(iterator) == []


def test_a_growing_save_can_be_restored_at_every_place(tmp_path: Path) -> None:
    """A state holds the order in which chunks were seen, and continues after it."""
    node = begin(tmp_path)
    first = publish(tmp_path, 1, 0, 3, 4)
    iterator = growing(node)
    seen = [int(next(iterator)) for _ in range(2)]
    made = (publish(tmp_path, 0, 0, 0, 1, 2), first, publish(tmp_path, 0, 1, 5, 6, 7, 8))
    seen.append(int(next(iterator)))
    state = iterator.state()
    finish(tmp_path, *made)
    rest = [int(x) for x in iterator]
    again = growing(node)
    again.restore(state)
    assert ([int(x) for x in again], seen + rest) == (rest, [3, 4, 0, 1, 2, 5, 6, 7, 8])
    assert check_restore(node) == NINE


@pytest.mark.parametrize("is_pipeline", [True, False])
def test_the_error_of_a_save_reaches_who_waits(tmp_path: Path, is_pipeline: bool) -> None:
    """A waiting reader gets the error that ended the save, and then the end."""
    iterator = growing(begin(tmp_path))
    failure = encode_failure(ZeroDivisionError("no"), 3, "worker").hex() if is_pipeline else ""
    fail_save(str(tmp_path), SaveError("InvalidArgumentError", "not so", failure))
    with pytest.raises(
        PipelineError if is_pipeline else InvalidArgumentError, match="no"
    ) as caught:
        next(iterator)
    assert isinstance(caught.value.__cause__, ZeroDivisionError) == is_pipeline
    assert list(iterator) == []


def test_a_chunk_that_is_missing_at_the_end_is_data_loss(tmp_path: Path) -> None:
    """The reader compares the manifest with the chunks that it has seen."""
    node = begin(tmp_path)
    finish(tmp_path, publish(tmp_path, 0, 0, 1, 2), Chunk("chunks/chunk_1_0_5", 5, 100))
    with pytest.raises(DataLossError, match="Found missing chunk chunks/chunk_1_0_5"):
        next(growing(node))


def test_a_chunk_with_fewer_elements_than_its_name_says_is_data_loss(tmp_path: Path) -> None:
    """The name of a chunk reveals that it was cut off between two blocks."""
    node = begin(tmp_path)
    made = publish(tmp_path, 0, 0, 1, 2, 3)
    Path(tmp_path / made.name).rename(chunk_path(str(tmp_path), "chunk_0_0_4"))
    finish(tmp_path, Chunk("chunks/chunk_0_0_4", 4, made.nbytes))
    found = [str(one) for one in run(node)]
    assert "it has 3 elements, but 4 were written" in found[-1]


def test_a_state_from_during_the_save_continues_after_it(tmp_path: Path) -> None:
    """A state that was taken during the save fits a load after its end, and a state of
    that load fits one that waits.
    """
    waiting = begin(tmp_path)
    first = publish(tmp_path, 1, 0, 3, 4)
    iterator = growing(waiting)
    assert [int(next(iterator)) for _ in range(2)] == [3, 4]
    state = iterator.state()
    made = (publish(tmp_path, 0, 0, 0, 1, 2), first, publish(tmp_path, 0, 1, 5, 6, 7, 8))
    complete = growing(finish(tmp_path, *made))
    complete.restore(state)
    assert [int(next(complete)) for _ in range(4)] == [0, 1, 2, 5]
    again = growing(waiting)
    again.restore(complete.state())
    assert [int(x) for x in again] == [6, 7, 8]


def test_a_task_reads_chunks_by_name(tmp_path: Path) -> None:
    """A task reads chunks of a save in progress that its provider names, and every
    place can be restored.
    """
    node = begin(tmp_path)
    made = nine(tmp_path)
    ranges = [Split(0, 7 + at, 8 + at, (Path(made[at].name).name,)) for at in (2, 0)]

    def context() -> Context:
        return Context(seed=7, providers=(LedgerProvider([ranges]),))

    assert check_restore(node, context) == [*NINE[5:], *NINE[:3]]


def test_a_save_whose_dispatcher_has_ended_is_not_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader of a save whose dispatcher has ended gets an error if the journal is
    gone. Otherwise it waits, and names the folder of the journal.
    """
    work_dir, remarks = tmp_path / "work", []
    work_dir.mkdir()
    (work_dir / LOCK).touch()
    description = SaveDescription(
        "run", None, None, -2, work_dir=str(work_dir), files=files_token()
    )
    begin_save(str(tmp_path), description)
    held = (work_dir / LOCK).open("a")
    fcntl.flock(held, fcntl.LOCK_EX)

    def pause(self: loading.SaveWait, what: str, remark: str) -> None:
        remarks.append(remark)
        if len(remarks) == 1:
            held.close()
        if len(remarks) == 2:
            shutil.rmtree(work_dir)

    monkeypatch.setattr(loading.SaveWait, "pause", pause)
    with pytest.raises(UnavailableError, match=r"not ended.* none can continue it"):
        next(growing(begin(tmp_path)))
    assert remarks == [
        "Check that its dispatcher and a worker are running.",
        "No dispatcher writes it. Start a dispatcher with "
        f"work_dir={str(work_dir)!r}, and workers, to continue it",
    ]


def test_waiting_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A reader that waits for long logs what it waits for, ever more rarely."""
    waiting = loading.SaveWait("/somewhere", lambda seconds: None)
    waiting._pause = 6.0
    with caplog.at_level(logging.WARNING):
        waiting._waited = 11.0
        waiting.pause("a chunk", "Hurry.")
        waiting.pause("a chunk", "Hurry.")
    assert caplog.text.count("waiting for a chunk in /somewhere for 11 s (wait=True). Hurry.") == 1
