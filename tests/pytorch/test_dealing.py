"""States of passes whose batches are dealt to ranks leave equal work for all ranks."""

from __future__ import annotations

from collections import Counter
from itertools import chain, product

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from zmqdata.torch.dataloaders import FINITE, BatchDealing
from zmqdata.torch.ranks import Consumer

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
            base = dealings(before, finite)[0].had(0, step)
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
                base = one.had(0, len(mine[:step]))
                assert list(one.numbers(base, size))[: len(mine) - step] == mine[step:]
                assert len(one.numbers(base, size)) == len(mine[step:])
