"""Tests of ``zmqdata.blocks.choosing``: choices from costs and conditions alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zmqdata.blocks.choosing import (
    DECIDE_BYTES,
    PROBE_SHARE,
    Choice,
    Chosen,
    Conditions,
    Cost,
    MeasuredColumn,
    Packing,
    best_choice,
    total_cost,
)

LZ4, ZSTD, BITS = (
    Packing("lz4", "shuffle"),
    Packing("zstd", "shuffle"),
    Packing("lz4", "bitshuffle"),
)
GIGABIT, LAN = Conditions(speed=1.175e8), Conditions(speed=1.25e9)
TOKENS = {LZ4: Cost(1 / 5.3, 1 / 2.7e9, 1 / 6.6e9), ZSTD: Cost(1 / 7.8, 1 / 0.86e9, 1 / 1.45e9)}
PHOTOS = {BITS: Cost(1 / 1.27, 1 / 1.1e9, 1 / 1.6e9), ZSTD: Cost(1 / 1.42, 1 / 0.36e9, 1 / 0.8e9)}
MB = 1 << 20

costs = st.builds(
    Cost, size=st.floats(0.001, 1.0), pack=st.floats(1e-11, 1e-6), unpack=st.floats(1e-11, 1e-6)
)
columns = st.dictionaries(
    st.integers(0, 5),
    st.builds(
        MeasuredColumn,
        st.integers(1, 1 << 30),
        st.dictionaries(st.sampled_from([LZ4, ZSTD, BITS]), costs, min_size=1),
    ),
    min_size=1,
)
conditions = st.builds(
    Conditions,
    speed=st.floats(1e5, 1e11) | st.just(math.inf),
    making=st.just(0.0) | st.floats(1e-11, 1e-5),
    links=st.integers(1, 100),
    crowding=st.floats(1, 100),
)


def seconds(found: dict[int, MeasuredColumn], chosen: Chosen, around: Conditions) -> float:
    return around.seconds(total_cost(found, chosen))


def settled(costs: dict[Packing, Cost], around: Conditions) -> Packing | None:
    choice = Choice()
    assert choice.begin(MB, around)
    choice.probed({0: MeasuredColumn(MB, dict(costs))}, 1 << 17, around)
    return choice.standing.get(0)


@given(found=columns, around=conditions)
def test_the_best_is_never_worse_than_nothing(
    found: dict[int, MeasuredColumn], around: Conditions
) -> None:
    """The chosen packing is never slower than sending everything raw."""
    assert seconds(found, best_choice(found, around), around) <= seconds(found, {}, around) * (
        1 + 1e-9
    )


@given(
    costs=st.dictionaries(st.sampled_from([LZ4, ZSTD, BITS]), costs, min_size=1), around=conditions
)
def test_one_column_gets_the_best_there_is(costs: dict[Packing, Cost], around: Conditions) -> None:
    """No packing of a single column is faster than the chosen packing."""
    found = {0: MeasuredColumn(MB, costs)}
    least = min(seconds(found, {0: packing}, around) for packing in costs)
    assert seconds(found, best_choice(found, around), around) <= least * (1 + 1e-9)


@given(
    found=columns,
    story=st.lists(st.tuples(conditions, st.dictionaries(st.integers(0, 5), costs)), max_size=8),
)
def test_what_stands_is_never_worse_than_nothing(
    found: dict[int, MeasuredColumn], story: list[tuple[Conditions, dict[int, Cost]]]
) -> None:
    """No decision is worse than no compression as conditions and columns change."""
    choice = Choice()
    choice.probed(found, 1, GIGABIT)
    for around, blocks in story:
        for index, cost in blocks.items():
            choice.packed(index, MB, cost)
        choice.decide(around)
        assert seconds(found, choice.standing, around) <= seconds(found, {}, around) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("costs", "around", "chosen"),
    [
        (TOKENS, GIGABIT, ZSTD),
        (PHOTOS, GIGABIT, ZSTD),
        (TOKENS, LAN, LZ4),
        (PHOTOS, LAN, None),
        (TOKENS, Conditions(speed=4e9), None),
        (TOKENS, Conditions(speed=1.175e8, making=1 / 1e9), LZ4),
        (PHOTOS, Conditions(speed=1.175e8, crowding=5), BITS),
        (PHOTOS, Conditions(speed=1.175e8, links=10), BITS),
        (PHOTOS, Conditions(speed=1.175e8, links=20), None),
    ],
    ids=[
        *("slow-tokens", "slow-photos", "fast-tokens", "fast-photos", "faster"),
        "busy-core",
        "crowded",
        "10",
        "20",
    ],
)
def test_what_pays(costs: dict[Packing, Cost], around: Conditions, chosen: Packing | None) -> None:
    """A slower link selects a stronger codec; a busy core or client selects a weaker
    codec.
    """
    assert settled(costs, around) == chosen


def test_nothing_is_tried_where_nothing_can_be_gained() -> None:
    """No column is probed while the pipeline is slower than the link or stays on its
    host.
    """
    assert not Choice().begin(MB, Conditions(speed=math.inf))
    assert not Choice().begin(MB, Conditions(speed=1.25e9, making=1e-9))


def test_ties_spare_the_cores() -> None:
    """The chooser selects the cheapest of the packings that take the same time."""
    found = {0: MeasuredColumn(MB, {LZ4: Cost(0.5, 1e-9, 1e-9), ZSTD: Cost(0.4, 3e-9, 1e-9)})}
    assert best_choice(found, Conditions(speed=1e9, making=1e-9)) == {}
    found[1] = MeasuredColumn(100 * MB, {LZ4: Cost(0.5, 1e-12, 1e-12)})
    assert best_choice(found, Conditions(speed=1e9, making=5.04e-10)) == {1: LZ4}


def test_columns_are_decided_together() -> None:
    """The chooser decides all columns together, as they share the core's time."""
    busy = {LZ4: Cost(0.5, 8e-9, 0.0)}
    around = Conditions(speed=2e8)
    assert best_choice({0: MeasuredColumn(MB, busy), 1: MeasuredColumn(MB, {})}, around) == {0: LZ4}
    assert best_choice(
        {0: MeasuredColumn(MB, busy), 1: MeasuredColumn(MB, {BITS: Cost(0.2, 1e-9, 0.0)})}, around
    ) == {1: BITS}


def test_small_gains_change_nothing() -> None:
    """A choice stays until an alternative is clearly better, or raw is better."""
    choice = Choice()
    choice.probed({0: MeasuredColumn(MB, {LZ4: Cost(0.5, 4e-9, 0.0)})}, 1, Conditions(speed=1e8))
    assert choice.standing == {0: LZ4}
    near_even = Conditions(speed=2.4e8)
    choice.decide(near_even)
    assert choice.standing == {0: LZ4}
    fresh = Choice()
    fresh.probed(choice.columns, 1, near_even)
    assert fresh.standing == {}
    choice.decide(Conditions(speed=2.6e8))
    assert choice.standing == {}


def test_a_change_of_speed_is_noticed_without_a_probe() -> None:
    """The chooser notices a change of speed without a new probe, after a few blocks."""
    choice = Choice()
    choice.probed({0: MeasuredColumn(MB, dict(TOKENS))}, 1 << 20, GIGABIT)
    assert not choice.begin(DECIDE_BYTES - 1, LAN)
    assert choice.standing == {0: ZSTD}
    assert not choice.begin(1, LAN)
    assert choice.standing == {0: LZ4}
    assert not choice.begin(1, Conditions(speed=math.inf))
    assert choice.standing == {}


def test_probes_are_a_small_part_of_all() -> None:
    """Probes wait until enough bytes were sent to keep their share small."""
    choice = Choice()
    choice.probed({0: MeasuredColumn(MB, dict(TOKENS))}, 100, GIGABIT)
    assert not choice.begin(100 * PROBE_SHARE - 1, GIGABIT)
    assert choice.begin(1, GIGABIT)


def test_a_column_that_has_changed_is_probed_again() -> None:
    """Columns are probed again soon once blocks shrink clearly less than at first."""
    choice = Choice()
    choice.probed({0: MeasuredColumn(MB, dict(TOKENS))}, 16 * MB // PROBE_SHARE, GIGABIT)
    for _ in range(20):
        choice.packed(0, MB, Cost(0.20, 1e-9))
        choice.packed(0, MB, Cost(0.22, 1e-9))
    assert not choice.begin(MB // 2, GIGABIT)
    for _ in range(5):
        choice.packed(0, MB, Cost(0.5, 1e-9))
    assert not choice.begin(MB // 2 - 1, GIGABIT)
    assert choice.begin(1, GIGABIT)


@pytest.mark.parametrize("pack", [0.5e-9, 2e-9])
def test_a_column_whose_codec_takes_another_time_is_probed_again(pack: float) -> None:
    """A changed codec time triggers a probe of all columns. The machine may have been
    slow when they were probed.
    """
    choice = Choice()
    choice.probed({0: MeasuredColumn(MB, dict(TOKENS))}, 16 * MB // PROBE_SHARE, GIGABIT)
    for _ in range(20):
        choice.packed(0, MB, Cost(0.20, 1e-9))
        choice.packed(0, MB, Cost(0.20, 1.1e-9))
    assert not choice.begin(MB // 2, GIGABIT)
    for _ in range(5):
        choice.packed(0, MB, Cost(0.20, pack))
    assert not choice.begin(MB // 2 - 1, GIGABIT)
    assert choice.begin(1, GIGABIT)


def test_what_takes_no_time_has_not_changed() -> None:
    """Without a clock only sizes count as a change."""
    choice = Choice()
    choice.probed({0: MeasuredColumn(MB, {LZ4: Cost(0.2)})}, MB, GIGABIT)
    for _ in range(20):
        choice.packed(0, MB, Cost(0.2))
    assert not choice.begin(16 * MB, GIGABIT)


def test_what_was_not_tried_is_not_counted() -> None:
    """Blocks of uncompressed or unknown columns change nothing."""
    choice = Choice()
    choice.packed(0, MB, Cost(0.5, 1e-9))
    assert choice.columns == {}
    choice.probed({0: MeasuredColumn(MB, {LZ4: Cost(1.0, 1e-9, 1e-9)})}, 1, GIGABIT)
    choice.packed(0, MB, Cost(0.5, 1e-9))
    assert choice.columns[0].costs == {LZ4: Cost(1.0, 1e-9, 1e-9)}


def test_names_are_short() -> None:
    """The name of a packing is its codec, followed by its filter if it has any."""
    assert [str(LZ4), str(Packing("zstd", "noshuffle"))] == ["lz4+shuffle", "zstd"]
