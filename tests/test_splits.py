"""Tests of the order of splits."""

from __future__ import annotations

from msgspec.structs import replace

from zmqdata.splits import FileSplits, turn_of

NAMES = [f"{n:02}" for n in range(20)]


def test_files_come_by_name() -> None:
    """Files come in the order of their names unless shuffled, whatever the seed."""
    assert FileSplits(("*",), shuffle=False, seed=None).ordered(NAMES[::-1], 1, 0) == tuple(NAMES)


def test_the_order_of_files_depends_on_seed_and_turn_only() -> None:
    """The order of shuffled files depends on seed and turn, not on discovery."""
    shuffled = FileSplits(("*",), shuffle=True, seed=None)
    one = shuffled.ordered(NAMES, 1, 0)
    assert sorted(one) == NAMES
    assert one == shuffled.ordered(NAMES[::-1], 1, 0) != shuffled.ordered(NAMES, 1, 1)
    assert one != shuffled.ordered(NAMES, 2, 0)


def test_the_users_seed_counts_alone() -> None:
    """The order of files under the user's seed depends on that seed and the turn."""
    seeded = FileSplits(("*",), shuffle=True, seed=5)
    assert seeded.ordered(NAMES, 1, 0) == seeded.ordered(NAMES, 2, 0) != seeded.ordered(NAMES, 1, 1)


def test_turns_differ() -> None:
    """No two pairs of iteration and repetition have the same turn."""
    pairs = [(iteration, repetition) for iteration in range(9) for repetition in (0, 1, 2**32 - 1)]
    assert len({turn_of(*pair) for pair in pairs}) == len(pairs)


def test_names_are_drawn_as_a_shuffle_draws() -> None:
    """A buffer that holds all names permutes them, and a smaller one moves none further
    to the front than its size. Each repetition has its own order if the shuffle says
    so.
    """
    names = [f"{number:03}" for number in range(100)]
    all_of_them = FileSplits(("*",), shuffle=False, seed=None, drawn_from=100)
    drawn = all_of_them.ordered(names, 1, 0)
    assert list(drawn) != sorted(drawn) == names
    assert drawn == all_of_them.ordered(names[::-1], 1, 0)
    assert drawn != all_of_them.ordered(names, 1, 1)
    assert drawn != all_of_them.ordered(names, 2, 0)
    few = FileSplits(("*",), shuffle=False, seed=None, drawn_from=5, draw_seed=7, redraws=False)
    drawn = few.ordered(names, 1, 0)
    assert all(int(name) < place + 5 for place, name in enumerate(drawn))
    assert drawn == few.ordered(names, 2, 1)


def test_a_part_is_of_the_order() -> None:
    """A part has the names at its places, and nothing behind the last name."""
    whole = FileSplits(("*",), shuffle=True, seed=5, drawn_from=4)
    names = whole.ordered(NAMES, 1, 0)
    for first, stop in ((0, 7), (7, 30), (40, 50), (3, 3)):
        assert replace(whole, first=first, stop=stop).ordered(NAMES, 1, 0) == names[first:stop]
