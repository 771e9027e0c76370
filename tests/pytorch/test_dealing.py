"""States of passes whose batches are dealt to ranks leave equal work for all ranks."""

from __future__ import annotations

from collections import Counter
from itertools import chain, product

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from zmqdata.torch.ranks import FINITE, BatchDealing, Consumer

SIZES, RANKS = range(1, 14), range(1, 5)


def dealings(ranks: int, finite: str) -> list[BatchDealing]:
    return [BatchDealing(Consumer(rank, ranks), finite) for rank in range(ranks)]


def dealt(ranks: int, finite: str, base: int, size: int) -> list[list[int]]:
    """Return the numbers of the batches of each rank."""
    return [list(one.numbers(base, size)) for one in dealings(ranks, finite)]


@pytest.mark.parametrize("finite", FINITE)
def test_a_state_of_any_step_leaves_equal_work(finite: str) -> None:
    """A state of any step, the last and a padded one included, leaves equally many
    steps on all ranks, on any number of ranks. Each batch that is left comes once,
    except for padding. With "drop", fewer are left out than there are ranks.
    """
    for size, before, after in product(SIZES, RANKS, RANKS):
        first = dealt(before, finite, 0, size)
        for step in range(len(first[0]) + 1):
            had = {number for mine in first for number in mine[:step]}
            base = dealings(before, finite)[0].total_received(0, step)
            left = dealt(after, finite, base, size)
            counts = [len(mine) for mine in left]
            assert max(counts) - min(counts) <= (finite == "uneven"), (size, before, step, left)
            comes = Counter(chain.from_iterable(left))
            owed = set(range(size)) - had
            padding = sum(one.padding(base, size) for one in dealings(after, finite))
            if finite == "drop":
                assert comes == Counter(sorted(owed)[: counts[0] * after])
                assert len(owed) - comes.total() < after
            else:
                assert owed <= comes.keys()
                assert comes.total() == len(owed) + padding
                assert padding < after


@pytest.mark.parametrize("finite", FINITE)
def test_the_states_of_all_ranks_agree(finite: str) -> None:
    """Ranks that load their own states read what they would have read: also if an
    uneven pass was over for some of them before its last step.
    """
    for size, ranks in product(SIZES, RANKS):
        whole = dealt(ranks, finite, 0, size)
        for step in range(len(whole[0]) + 1):
            for one, mine in zip(dealings(ranks, finite), whole, strict=True):
                base = one.total_received(0, len(mine[:step]))
                assert list(one.numbers(base, size))[: len(mine) - step] == mine[step:]
                assert len(one.numbers(base, size)) == len(mine[step:])


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("finite", ["drop", "pad"])
def test_the_last_step_has_as_many_samples_as_are_said(finite: str, world: int) -> None:
    """If all ranks fill their batches to one size, and cut what they gather in the last
    step to the remainder, they have each sample once. With "pad" they have all, from
    any step on.
    """
    for count in range(1, 14):
        order = [[*range(count)][first : first + 2] for first in range(0, count, 2)]
        for base in range(0, len(order), world):
            had: list[int] = []
            ranks = dealings(world, finite)
            steps = [*zip(*(rank.numbers(base, len(order)) for rank in ranks), strict=True)]
            for step in steps:
                batches = [order[number] for number in step]
                size = max(map(len, batches))
                gathered = [item for one in batches for item in [*one, None][:size]]
                remainder = ranks[0].remainder(base, order) if step == steps[-1] else 0
                had += gathered[:remainder] if remainder else gathered
            assert had == [*range(2 * base, count)][: len(had)]
            assert finite == "drop" or len(had) == count - 2 * base
