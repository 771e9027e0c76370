"""Test which checkpoints the dispatcher accepts, and how it merges them."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.counts import how_many
from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.passes.checkpoints import joined, read_checkpoint, useful
from zmqdata.core.dispatcher.passes.resuming import Beginning, incarnation_of
from zmqdata.core.dispatcher.state.outbox import derived
from zmqdata.core.dispatcher.state.state import DispatcherState
from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.core.ranges import RangeSet
from zmqdata.errors import (
    DataLossError,
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
)
from zmqdata.splits import FileSplits, IndexSplits, Split

SOURCES = (IndexSplits(100),)
DATASET = m.DatasetDescription("d" * 64, "print:code", SOURCES, "", None, 100, None, "3.11", "0")
JOB = m.JobParameters("job", "dataset", "DYNAMIC")
TASK = m.TaskPart(0, 5, None, (0,), ((Split(0, 0, 10), Split(0, 20, 25)),), (), ((0, 7),), None)


def checkpoint(*tasks: m.TaskPart, **changes: Any) -> m.Checkpoint:
    plain = m.Checkpoint(
        m.CHECKPOINT_VERSION,
        JOB,
        "print:other",
        0,
        11,
        0,
        m.Reader(),
        "k",
        ("k",),
        (),
        tasks or (TASK,),
    )
    return replace(plain, **changes)


def asked(content: bytes, job: m.JobParameters = JOB, **changes: Any) -> m.OpenIteration:
    return replace(m.OpenIteration("new", job, 0, resume=content), **changes)


def test_a_checkpoint_that_fits_is_read() -> None:
    """The dispatcher accepts a checkpoint with other code of functions or another job
    name.
    """
    one = checkpoint()
    assert (
        read_checkpoint(asked(m.encode_checkpoint(one), replace(JOB, name="other")), DATASET) == one
    )


def test_a_checkpoint_with_a_fingerprint_of_another_version_is_read() -> None:
    """The dispatcher accepts a checkpoint whose fingerprint was computed in another
    way, as it tells nothing about the pipeline.
    """
    one = checkpoint(fingerprint="v2-another:code")
    assert read_checkpoint(asked(m.encode_checkpoint(one)), DATASET) == one


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        (
            {"fingerprint": "another:code"},
            FailedPreconditionError,
            "fingerprint another, this one has print",
        ),
        ({"version": 3}, InvalidArgumentError, "has version 3; this zmqdata reads version 2"),
        ({"version": 1}, InvalidArgumentError, "has version 1; this zmqdata reads version 2"),
        (
            {"job": replace(JOB, processing_mode="OFF")},
            InvalidArgumentError,
            "processing_mode was OFF",
        ),
        ({"job": replace(JOB, num_consumers=2)}, InvalidArgumentError, "num_consumers was 2"),
        ({"job": replace(JOB, num_tasks=2)}, InvalidArgumentError, "num_tasks was 2"),
        ({"reader": m.Reader(1)}, InvalidArgumentError, "consumer_index was 1"),
        ({"job": replace(JOB, cache=True)}, InvalidArgumentError, "cache"),
    ],
)
def test_what_does_not_fit_is_refused(
    changes: dict[str, Any], error: type[Exception], text: str
) -> None:
    """The dispatcher refuses a checkpoint of another job and names the difference."""
    with pytest.raises(error, match=text):
        read_checkpoint(asked(m.encode_checkpoint(checkpoint(**changes))), DATASET)


def with_checksum(content: bytes) -> bytes:
    return content + zlib.crc32(content).to_bytes(4, "big")


def test_what_is_no_checkpoint_is_refused() -> None:
    """The dispatcher refuses invalid or oversized bytes, and recognizes another format
    by its version alone.
    """
    for content in (b"rubbish", b"", msgspec.msgpack.encode({"version": 2})):
        with pytest.raises(DataLossError, match="damaged"):
            read_checkpoint(asked(content), DATASET)
        with pytest.raises(InvalidArgumentError, match="not made by zmqdata"):
            read_checkpoint(asked(with_checksum(content)), DATASET)
    with pytest.raises(InvalidArgumentError, match="MB"):
        read_checkpoint(asked(b"x" * (MOST_CHECKPOINT_BYTES + 1)), DATASET)
    with pytest.raises(InvalidArgumentError, match="version 9"):
        read_checkpoint(
            asked(with_checksum(msgspec.msgpack.encode({"version": 9, "new": True}))), DATASET
        )


@given(data=st.data(), seed=st.integers(0, (1 << 64) - 1))
def test_a_flipped_bit_is_found(data: st.DataObject, seed: int) -> None:
    """The dispatcher refuses a checkpoint with any flipped bit or missing end as
    damaged.
    """
    content = bytearray(m.encode_checkpoint(checkpoint(replace(TASK, seed=seed))))
    at = data.draw(st.integers(0, len(content) - 1))
    with pytest.raises(DataLossError, match="damaged"):
        m.decode_checkpoint(bytes(content[:at]))
    content[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DataLossError, match="damaged"):
        m.decode_checkpoint(bytes(content))


@pytest.mark.parametrize(
    "changes",
    [
        {"index": -1},
        {"seed": -1},
        {"shard": 0},
        {"bases": (0, 0)},
        {"bases": (-1,)},
        {"ledger": ((Split(0, 0, 101),),)},
        {"ledger": ((Split(0, 5, 3),),)},
        {"ledger": ((Split(1, 0, 3), Split(0, 5, 6)),)},
        {"ledger": ((Split(0, 0, 3, step=2),),)},
        {"ledger": ((Split(0, 0, 1, ("name",)),),)},
        {"ledger": ((Split(0, 0, 5), Split(0, 4, 6)),)},
        {"delivered": ((5, 3),)},
        {"delivered": ((0, 3), (2, 5))},
        {"total": 3},
        {"states": (m.TaskState(4, b"", (0,)), m.TaskState(2, b"", (0,)))},
        {"states": (m.TaskState(4, b"", (9,)),)},
        {"states": (m.TaskState(4, b"", ()),)},
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    """The dispatcher checks every field, as a client may send any checkpoint."""
    with pytest.raises(InvalidArgumentError, match="damaged"):
        joined((checkpoint(replace(TASK, **changes)),), SOURCES)


def test_two_tasks_have_no_split_together() -> None:
    """The dispatcher refuses a split in two tasks, as its elements would come twice."""
    with pytest.raises(InvalidArgumentError, match="two tasks"):
        joined((checkpoint(TASK, replace(TASK, index=1)),), SOURCES)


def test_names_of_files_are_as_many_as_files() -> None:
    """The dispatcher refuses a ledger of files with another number of names than
    files.
    """
    bad = replace(TASK, ledger=((Split(0, 0, 2, ("a",)),),))
    with pytest.raises(InvalidArgumentError, match="damaged"):
        joined((checkpoint(bad),), (FileSplits(("*",), False, None),))


def test_readers_of_different_iterations_do_not_go_on_together() -> None:
    """The dispatcher refuses readers of different iterations, which it recognizes by
    their seeds.
    """
    with pytest.raises(FailedPreconditionError, match="same iteration"):
        joined((checkpoint(), checkpoint(seed=12)), SOURCES)


def test_what_two_readers_know_is_put_together() -> None:
    """The dispatcher merges the longer ledger, all states and all deliveries of two
    readers.
    """
    early = replace(
        TASK, ledger=((Split(0, 0, 10), Split(0, 20, 22)),), states=(m.TaskState(3, b"3", (0,)),)
    )
    late = replace(
        TASK, bases=(1,), ledger=((Split(0, 20, 25), Split(0, 30, 31)),), states=(m.TaskState(9, b"9", (1,)),),
        delivered=((7, 9),), total=40,
    )  # fmt: skip
    for pair in ((early, late), (late, early)):
        past = joined([checkpoint(task, part=str(at)) for at, task in enumerate(pair)], SOURCES)
        both = past.tasks[0]
        assert both.bases == (0,)
        assert both.ledger == ((Split(0, 0, 10), Split(0, 20, 25), Split(0, 30, 31)),)
        assert [state.number for state in both.states] == [3, 9]
        assert (both.delivered, both.total) == (((0, 9),), 40)


def test_what_one_reader_has_forgotten_is_used_up() -> None:
    """Splits that a reader has forgotten count as used, as that reader knows that no
    client needs them.
    """
    late = replace(TASK, bases=(5,), ledger=((Split(0, 40, 41),),))
    past = joined((checkpoint(), checkpoint(late)), SOURCES)
    assert past.tasks[0].bases == (5,)
    assert past.spent[0, 0].ranges == ((0, 10), (20, 25))


def test_a_task_needs_a_state_where_its_ledger_begins() -> None:
    """The dispatcher refuses a task without a state at the beginning of its ledger, as
    its next elements cannot be made again.
    """
    task = replace(TASK, bases=(2,), states=(m.TaskState(9, b"", (2,)),))
    with pytest.raises(DataLossError, match="task 0"):
        useful(task, RangeSet([(0, 7)]), "job")
    assert useful(task, RangeSet([(0, 9)]), "job") == list(task.states)


def begun(*checkpoints: m.Checkpoint, dataset: m.DatasetDescription = DATASET) -> DispatcherState:
    state = DispatcherState()
    state.apply(u.RegisterDatasetUpdate("dataset", dataset))
    new = Beginning(checkpoints[0].job, dataset, 1, state.next_iteration, state.next_task, derived)
    for update in incarnation_of(checkpoints, new):
        state.apply(update)
    return state


def test_holes_are_handed_out_again() -> None:
    """Splits of the present repetition that are neither in a ledger nor used up are
    handed out next.
    """
    state = begun(checkpoint(sources=(m.SourcePart(0, ((12, 15),)),)))
    cursor = state.iterations[2000].cursors[0]
    assert (cursor.repetition, cursor.next) == (0, 25)
    assert cursor.returned == [Split(0, 10, 12), Split(0, 15, 20)]


def test_holes_of_a_repetition_before_are_handed_out_too() -> None:
    """The dispatcher hands out holes of an earlier repetition too, as an unknown task
    may have begun them when other tasks had ended it.
    """
    ahead = replace(
        TASK, index=1, ledger=((Split(0, 30, 100), Split(0, 100, 100), Split(1, 0, 4)),)
    )
    for behind in (TASK, replace(TASK, total=7)):
        state = begun(checkpoint(behind, ahead))
        assert state.iterations[2000].cursors[0].returned == [Split(0, 10, 20), Split(0, 25, 30)]


@pytest.mark.parametrize(
    ("ledger", "total", "count"),
    [
        ((Split(0, 0, 10),), None, 1),
        ((Split(0, 0, 10),), 12, 2),
        ((Split(0, 0, 10), Split(0, 10, 10)), None, 2),
        ((Split(0, 0, 10), Split(0, 100, 100), Split(1, 0, 4)), None, 2),
        ((Split(0, 0, 100),), 12, 1),
    ],
)
def test_somebody_can_take_what_is_left(
    ledger: tuple[Split, ...], total: int | None, count: int
) -> None:
    """The dispatcher adds a task when splits of a repetition are left that all known
    tasks have ended.
    """
    state = begun(checkpoint(replace(TASK, ledger=(ledger,), total=total)))
    assert [task.index for task in state.iterations[2000].tasks.values()] == [*range(count)]


def test_tasks_that_nobody_knows_begin() -> None:
    """The dispatcher creates all tasks of a fixed number, each with its own next
    split.
    """
    job = replace(JOB, num_tasks=3, num_consumers=1, finite="drop")
    task = m.TaskPart(1, 5, 1, (0,), ((Split(0, 1, 8, step=3),),), (), (), None)
    view = m.View(0, ((0, 0), (1, 0), (2, 0)))
    state = begun(
        checkpoint(task, job=job, num_shards=3, reader=m.Reader(0), parts=(), step=2, views=(view,))
    )
    tasks = list(state.iterations[2000].tasks.values())
    assert [(one.index, one.seed, one.cursors[0].next) for one in tasks] == [
        (0, derived(11, 0), 0),
        (1, 5, 10),
        (2, derived(11, 2), 2),
    ]
    rounds = state.iterations[2000].rounds
    assert rounds is not None
    assert (rounds.steps, rounds.horizon, rounds.known) == ([2], 2, {one.task for one in tasks})
    assert tasks[0].total == 0


def test_consumers_that_do_not_say_what_they_read_are_refused() -> None:
    """The dispatcher refuses consumers behind step 0 without a view."""
    job = replace(JOB, num_consumers=1, finite="drop")
    with pytest.raises(InvalidArgumentError, match="take turns"):
        begun(checkpoint(job=job, reader=m.Reader(0), parts=(), step=2))


PLACES = st.integers(-2, 130)
SPLITS = st.builds(Split, PLACES, PLACES, PLACES, st.just(()), st.sampled_from([1, 1, 3, 0]))
STATES = st.builds(
    m.TaskState, PLACES, st.binary(max_size=3), st.lists(PLACES, max_size=2).map(tuple)
)
PAIRS = st.lists(st.tuples(PLACES, PLACES), max_size=3).map(tuple)
TASKS = st.builds(
    m.TaskPart, PLACES, PLACES, st.none() | PLACES, st.lists(PLACES, min_size=1, max_size=2).map(tuple),
    st.lists(st.lists(SPLITS, max_size=3).map(tuple), min_size=1, max_size=2).map(tuple),
    st.lists(STATES, max_size=3).map(tuple), PAIRS, st.none() | PLACES,
)  # fmt: skip
VIEWS = st.lists(st.builds(m.View, PLACES, PAIRS), max_size=2).map(tuple)


@settings(max_examples=how_many(100, 400))
@given(data=st.data())
def test_whatever_is_brought_is_refused_or_taken(data: Any) -> None:
    """Any decodable checkpoint either fails with a documented error or makes a sound
    state.
    """
    coordinated, static = (
        replace(JOB, num_consumers=1, finite="drop"),
        replace(JOB, processing_mode="DATA"),
    )
    job = data.draw(st.sampled_from([JOB, coordinated, static]))
    one = checkpoint(
        tasks=tuple(data.draw(st.lists(TASKS, max_size=3))), num_shards=data.draw(PLACES), views=data.draw(VIEWS),
        job=job,
        sources=tuple(data.draw(st.lists(st.builds(m.SourcePart, PLACES, PAIRS, PLACES), max_size=2))),
        step=data.draw(PLACES), reader=m.Reader(0 if job.num_consumers else None),
        fingerprint=data.draw(st.sampled_from(["print:other", "print:other", ""])),
    )  # fmt: skip
    try:
        state = begun(m.decode_checkpoint(m.encode_checkpoint(one)))
    except DataServiceError:
        return
    assert state.iterations
