"""Facts about the order of splits."""

from __future__ import annotations

from zmqdata.splits import FileSplits, turn_of

NAMES = [f"{n:02}" for n in range(20)]


def test_files_come_by_name() -> None:
    """Unless they are to be shuffled, files come by name, whatever the seed."""
    assert FileSplits(("*",), shuffle=False, seed=None).ordered(NAMES[::-1], 1, 0) == tuple(NAMES)


def test_the_order_of_files_depends_on_seed_and_turn_only() -> None:
    """Shuffled files come in a permutation that is the same for the same seed and turn,
    however they were found.
    """
    shuffled = FileSplits(("*",), shuffle=True, seed=None)
    one = shuffled.ordered(NAMES, 1, 0)
    assert sorted(one) == NAMES
    assert one == shuffled.ordered(NAMES[::-1], 1, 0) != shuffled.ordered(NAMES, 1, 1)
    assert one != shuffled.ordered(NAMES, 2, 0)


def test_the_users_seed_counts_alone() -> None:
    """With the user's seed the order of files is a function of that seed and the
    turn.
    """
    seeded = FileSplits(("*",), shuffle=True, seed=5)
    assert seeded.ordered(NAMES, 1, 0) == seeded.ordered(NAMES, 2, 0) != seeded.ordered(NAMES, 1, 1)


def test_turns_differ() -> None:
    """No two pairs of iteration and repetition have the same turn."""
    pairs = [(iteration, repetition) for iteration in range(9) for repetition in (0, 1, 2**32 - 1)]
    assert len({turn_of(*pair) for pair in pairs}) == len(pairs)
