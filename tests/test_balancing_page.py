"""The page ``docs/balancing.md`` is true, and its programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from zmqdata import Dataset, LocalCluster
from zmqdata.measures.status import RATIOS
from zmqdata.measures.verdict import UNBALANCED

TEXT = (Path(__file__).resolve().parents[1] / "docs/balancing.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def program(word: str) -> dict[str, Any]:
    """Return the names that the program of the page with this word defines."""
    [text] = [one for one in PROGRAMS if word in one]
    names: dict[str, Any] = {}
    exec(compile(text, "docs/balancing.md", "exec"), names)
    return names


def test_ranks_get_equal_work() -> None:
    """Eight ranks that read as the page shows get the batches of each step."""
    names = program("batches_for")
    lengths = np.random.default_rng(0).lognormal(4, 1, 300).astype(np.int64)
    rows = Dataset.from_list([{"tokens": np.full(int(n), at)} for at, n in enumerate(lengths)])
    with LocalCluster(1, in_process=True) as cluster:
        ranks = [iter(names["batches_for"](rank, rows, cluster.target)) for rank in range(8)]
        steps = list(zip(*ranks, strict=True))
    found = [int(row[0]) for step in steps for batch in step for row in batch["tokens"]]
    assert len(found) == len(set(found)) > 300 - 8
    costs = [[float((batch["tokens"].row_lengths() ** 2).sum()) for batch in one] for one in steps]
    # Of four steps of 64 elements, at most one has an element dearer than a mean batch.
    assert sum(max(one) < 1.05 * np.mean(one) for one in costs[:4]) >= 3


def test_the_cost_of_a_packed_row() -> None:
    """Padding costs nothing, and each segment the square of its length."""
    row = {"tokens_segment_ids": np.array([1, 1, 1, 2, 2, 0, 0], np.int32)}
    assert program("def attention")["attention"](row) == 13.0


def test_a_weighted_loss_is_that_of_all_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean of the ranks' losses is the weighted mean of all elements."""
    torch = pytest.importorskip("torch")
    names = program("weighted_loss")
    losses = [torch.tensor([1.0, 2.0, 3.0]), torch.tensor([10.0])]
    weights = [torch.tensor([1.0, 1.0, 2.0]), torch.tensor([4.0])]
    dist = names["dist"]
    monkeypatch.setattr(dist, "all_reduce", lambda total: total.fill_(8.0))
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    found = [
        names["weighted_loss"](loss, weight) for loss, weight in zip(losses, weights, strict=True)
    ]
    assert float(sum(found) / 2) == (1 + 2 + 6 + 40) / 8


def test_the_numbers_are_described() -> None:
    """The page has each ratio that is declared for balance, and its limit."""
    table = TEXT.partition("## What do the numbers mean?")[2]
    found = re.findall(r"^\| `data/([^`]+)` \|", table, re.MULTILINE)
    assert [name for name in RATIOS if name.startswith("balance")] == found[:4]
    assert f"above {UNBALANCED}" in table
