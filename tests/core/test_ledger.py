"""Test leases of splits of a source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.core.ledger import (
    MOST_REPETITIONS,
    Ledger,
    SpentSplits,
    SplitCursor,
    cursor_of,
    cut_ledger,
    lease_seconds,
    lease_size,
    own_lease_size,
)
from zmqdata.splits import FIRST_CHUNK, ChunkSplits, FileSplits, IndexSplits, Split

FILES = FileSplits(("*.txt",), shuffle=False, seed=None)


@given(st.integers(0, 60), st.lists(st.integers(1, 9), min_size=1))
def test_every_split_is_handed_out_once(count: int, sizes: list[int]) -> None:
    """Leases of any size cover a repetition in order without overlap, followed by its
    end mark.
    """
    cursor, handed = SplitCursor(IndexSplits(count)), []
    for at in range(count + 1):
        split = cursor.peek(0, sizes[at % len(sizes)])
        if split.is_end:
            break
        cursor.advance(split)
        handed += range(split.start, split.stop)
    assert handed == list(range(count))
    assert cursor.peek(0, 1) == Split(0, count, count)
    assert cursor.exhausted


def test_a_new_repetition_begins_at_zero() -> None:
    """The first split of the next repetition moves the cursor, and the repetition
    before has no split left.
    """
    cursor = SplitCursor(IndexSplits(3))
    cursor.advance(Split(0, 0, 3))
    cursor.advance(cursor.peek(1, 2))
    assert (cursor.repetition, cursor.next, cursor.remaining(1)) == (1, 2, 1)
    assert cursor.peek(0, 1).is_end
    cursor.advance(Split(0, 0, 1))
    assert (cursor.repetition, cursor.next) == (1, 2)


def test_an_endless_source_is_never_exhausted() -> None:
    """A source without a count hands out each requested split."""
    cursor = SplitCursor(IndexSplits(None))
    assert cursor.peek(0, 1000) == Split(0, 0, 1000)
    assert not cursor.exhausted
    assert cursor.remaining(0) is None


def test_files_are_listed_before_each_repetition() -> None:
    """Files have no count until they are listed, and splits carry their names."""
    cursor = SplitCursor(FILES)
    assert cursor.needs_listing(0)
    assert cursor.count(0) is None
    cursor.list(0, ("a", "b", "c"))
    assert not cursor.needs_listing(0)
    assert cursor.peek(0, 2) == Split(0, 0, 2, ("a", "b"))
    assert cursor.needs_listing(1)
    assert not SplitCursor(IndexSplits(1)).needs_listing(0)


@pytest.mark.parametrize(
    ("previous", "seconds", "size"),
    [(0, 0.0, 1), (1, 0.1, 8), (8, 1.0, 16), (8, 7.0, 8), (8, 60.0, 4), (1, 60.0, 1)],
)
def test_leases_grow_while_they_are_used_up_fast(previous: int, seconds: float, size: int) -> None:
    """The first lease has a single split; later leases grow when used up quickly and
    shrink when they last too long.
    """
    assert lease_size(previous, seconds, None, 1) == size


def test_leases_shrink_towards_the_end() -> None:
    """A task gets at most half of its share of the remaining splits, and at least a
    single split.
    """
    assert lease_size(100, 0.1, 40, 4) == 5
    assert lease_size(100, 0.1, 0, 0) == 1


def test_splits_that_are_for_one_task_come_many_at_a_time() -> None:
    """The first lease of an unshared source is large, and later leases grow like
    others.
    """
    assert own_lease_size(0, 0.0) == 64
    assert own_lease_size(64, 0.1) == lease_size(64, 0.1, None, 1) == 512


def test_the_pace_says_how_long_a_lease_lasts() -> None:
    """The pace decides how long a lease lasts, as requests come ahead of time; without
    a pace the time of requests decides.
    """
    assert lease_seconds(8, 0.5, 0.1) == 4.0
    assert lease_seconds(8, 0.0, 0.1) == 0.1


def test_what_is_taken_back_is_handed_out_again_once() -> None:
    """Returned splits are handed out before new splits, in their ranges with their
    names, also in a later repetition.
    """
    cursor = SplitCursor(FILES)
    cursor.list(0, ("a", "b", "c"))
    cursor.advance(cursor.peek(0, 3))
    assert cursor.exhausted
    cursor.take_back([Split(0, 1, 3, ("b", "c")), Split(0, 3, 3)])
    assert (cursor.exhausted, cursor.remaining(0)) == (False, 2)
    assert cursor.peek(0, 1) == Split(0, 1, 2, ("b",))
    cursor.advance(cursor.peek(0, 1))
    cursor.list(1, ("a",))
    cursor.advance(cursor.peek(1, 1))
    assert (cursor.remaining(0), cursor.remaining(1)) == (1, 0)
    assert cursor.peek(0, 9) == Split(0, 2, 3, ("c",))
    cursor.advance(cursor.peek(0, 9))
    assert cursor.peek(0, 1).is_end
    assert cursor.exhausted


LEDGER = [Split(0, 0, 4), Split(0, 4, 6), Split(0, 6, 6)]


@pytest.mark.parametrize(
    ("count", "stop", "kept", "back"),
    [
        (0, 0, [], LEDGER),
        (1, 4, LEDGER[:1], LEDGER[1:]),
        (1, 3, [Split(0, 0, 3)], [Split(0, 3, 4), *LEDGER[1:]]),
        (3, 6, LEDGER, []),
    ],
)
def test_a_ledger_is_cut_where_its_holder_says(
    count: int, stop: int, kept: list[Split], back: list[Split]
) -> None:
    """A ledger is cut between entries or within an entry, and an end mark stays
    whole.
    """
    assert cut_ledger(LEDGER, count, stop) == (kept, back)


@pytest.mark.parametrize(("count", "stop"), [(-1, 0), (4, 6), (1, 0), (1, 5), (2, 4), (3, 7)])
def test_a_ledger_is_cut_nowhere_else(count: int, stop: int) -> None:
    """A cut is refused if no entry ends there or if it leaves an end mark without
    splits.
    """
    assert cut_ledger(LEDGER, count, stop) is None


@given(
    count=st.integers(0, 50),
    step=st.integers(1, 7),
    sizes=st.lists(st.integers(1, 9), min_size=60, max_size=60),
)
def test_tasks_with_a_step_share_all_splits(count: int, step: int, sizes: list[int]) -> None:
    """Split k goes to cursor k modulo their number, whatever each request asks for,
    followed by an end mark.
    """
    for first in range(step):
        cursor, found = SplitCursor(IndexSplits(count), first=first, step=step), list[int]()
        for size in sizes:
            split = cursor.peek(0, size)
            cursor.advance(split)
            found += range(split.start, split.stop, split.step)
            assert split.size == len(range(split.start, split.stop, split.step))
        assert found == list(range(first, count, step))
        assert cursor.peek(0, 1).is_end
        assert cursor.peek(1, 1).start == first or count <= first


def test_files_of_a_repetition_are_known_until_all_cursors_are_past_it() -> None:
    """The tasks of an iteration share the file names of each repetition, until all
    tasks have passed it.
    """
    whole = SplitCursor(FileSplits(("*",), shuffle=False, seed=None))
    slow, fast = (
        SplitCursor(whole.source, names=whole.names, first=first, step=2) for first in (0, 1)
    )
    whole.list(0, ("a", "b", "c"))
    whole.list(1, ("d", "e"))
    fast.advance(fast.peek(1, 5))
    assert slow.peek(0, 5).names == ("a", "c")
    assert (slow.needs_listing(0), fast.needs_listing(1), fast.needs_listing(2)) == (
        False,
        False,
        True,
    )
    whole.forget_names(1)
    assert whole.names == {1: ("d", "e")}


def test_what_is_spent_is_few_ranges() -> None:
    """Used splits merge into ranges by repetition, and end marks do not count."""
    spent = SpentSplits()
    for split in (Split(0, 5, 9), Split(0, 9, 9), Split(0, 0, 5), Split(1, 2, 3)):
        spent.add(split)
    assert {repetition: ranges.ranges for repetition, ranges in spent.repetitions.items()} == {
        0: ((0, 9),),
        1: ((2, 3),),
    }


def test_of_a_task_with_its_own_splits_the_last_one_is_kept() -> None:
    """If each task has every third split, its last split records all of them, in any
    order of completion.
    """
    spent = SpentSplits()
    for split in (
        Split(0, 0, 9, step=3),
        Split(0, 1, 2, step=3),
        Split(0, 9, 12, step=3),
        Split(0, 0, 3, step=3),
    ):
        spent.add(split)
    assert spent.repetitions[0].ranges == ((1, 2), (9, 10))


def test_old_repetitions_are_forgotten() -> None:
    """The record of used splits keeps the newest repetitions."""
    spent = SpentSplits()
    for repetition in range(MOST_REPETITIONS + 5):
        spent.add(Split(repetition, 0, 1))
    assert min(spent.repetitions) == 5


def test_a_ledger_says_what_leaves_it() -> None:
    """Entries that a ledger forgets count as used."""
    ledger = Ledger([Split(0, 0, 2), Split(0, 4, 6), Split(0, 6, 6)])
    ledger.trim(2)
    assert ledger.spent.repetitions[0].ranges == ((0, 2), (4, 6))


def test_files_handed_out_again_get_their_names_with_the_listing() -> None:
    """Returned ranges of files get their names from the listing, and stop at its last
    file.
    """
    cursor = SplitCursor(FileSplits(("*",), False, None))
    cursor.restore(1, 2, [Split(0, 1, 1 << 40), Split(1, 0, 1)])
    assert cursor.needs_listing(0)
    cursor.list(0, ("a", "b", "c"))
    cursor.list(1, ("a", "b", "c"))
    assert cursor.returned == [Split(0, 1, 3, ("b", "c")), Split(1, 0, 1, ("a",))]
    assert not cursor.needs_listing(0)
    assert cursor.peek(0, 9) == Split(0, 1, 3, ("b", "c"))


def test_a_ledger_counts_what_it_does_not_keep() -> None:
    """Entries keep their numbers when a ledger forgets the first entries."""
    ledger = Ledger([Split(0, 0, 3), Split(0, 3, 4), Split(0, 4, 9)])
    ledger.trim(2)
    ledger.trim(1)
    assert (ledger.base, ledger.length, ledger.entries) == (2, 3, [Split(0, 4, 9)])
    assert ledger.since(2) == ledger.since(0) == (Split(0, 4, 9),)
    assert ledger.since(3) == ()
    assert ledger.parted(3, 6) == ([Split(0, 4, 6)], [Split(0, 6, 9)])


def test_chunks_are_handed_out_as_they_are_found() -> None:
    """Each chunk of a save is handed out once, by name, and a repetition ends when the
    save has ended and no chunk is left.
    """
    cursor = cursor_of(ChunkSplits("/a", "run"))
    one, other = (
        Split(0, FIRST_CHUNK + at, FIRST_CHUNK + at + 1, (f"chunk_{at}_0_9",)) for at in (0, 1)
    )
    assert cursor.needs_listing(0)
    cursor.list(0, ("chunk_0_0_9",), more=True)
    assert (cursor.needs_listing(0), cursor.remaining(0), cursor.peek(0, 5)) == (False, None, one)
    cursor.advance(one)
    assert (cursor.needs_listing(0), cursor.exhausted) == (True, False)
    cursor.list(0, ("chunk_1_0_9",), more=False)
    cursor.advance(other)
    assert (cursor.needs_listing(0), cursor.remaining(0), cursor.exhausted) == (False, 0, True)
    cursor.take_back([one])
    assert (cursor.peek(0, 1), cursor.exhausted) == (one, False)
    cursor.advance(one)
    assert cursor.peek(0, 1).is_end


def test_a_later_repetition_of_a_save_is_listed_anew() -> None:
    """A repetition begins with the whole save, and one that is long over stays over."""
    cursor = cursor_of(ChunkSplits("/a", "run"))
    cursor.list(0, (), more=False)
    cursor.list(1, ("chunk_0_0_9",), more=False)
    cursor.advance(cursor.peek(1, 1))
    cursor.forget_names(1)
    assert (cursor.repetition, cursor.exhausted, cursor.needs_listing(0)) == (1, True, True)
    cursor.advance(Split(MOST_REPETITIONS, 0, 0))
    assert (cursor.needs_listing(0), cursor.peek(0, 1).is_end) == (False, True)
