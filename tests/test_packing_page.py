"""The page ``docs/packing.md`` is true, and its programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from zmqdata import Dataset
from zmqdata.measures.status import RATIOS

TEXT = (Path(__file__).resolve().parents[1] / "docs/packing.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_the_programs_run() -> None:
    """The programs of the page run, one after the other. Each query of the mask sees
    its own document, up to itself, and no target is one of another document.
    """
    names: dict[str, Any] = {}
    for program in PROGRAMS:
        exec(compile(program, "page", "exec"), names)
    mask, row = names["mask"], names["row"]
    first = row["tokens_segment_ids"] == 1
    assert mask[first].sum() == first.sum() * (first.sum() + 1) // 2
    sizes = np.bincount(row["tokens_segment_ids"])
    used = sizes[1:].sum()
    assert (names["targets"][names["weights"]] == row["tokens"][1:][names["weights"]]).all()
    assert names["weights"].sum() == used - (len(sizes) - 1)
    assert np.diff(names["cu_seqlens"]).tolist() == [*sizes[1:], sizes[0]]
    assert names["cost"](row) == sum(
        int(n) ** 2 for n in np.bincount(row["tokens_segment_ids"])[1:]
    )


def test_the_programs_take_batches_and_several_leaves() -> None:
    """Batches of rows with ``meta`` have tokens of shape ``[batch, length]``, on which
    the program of the mask gives the mask of each row. ``cu_seqlens`` of a leaf has an
    empty segment for a document that has no tokens there.
    """
    names: dict[str, Any] = {}
    for program in PROGRAMS[:2]:
        exec(compile(program, "page", "exec"), names)
    [masking] = [program for program in PROGRAMS if "mask = " in program]
    [cutting] = [program for program in PROGRAMS if "cu_seqlens = " in program]
    batch = next(iter(names["batches"]))
    assert batch["tokens"].shape == (8, 256)
    masks = []
    for segments in (batch["tokens_segment_ids"], *batch["tokens_segment_ids"]):
        names["row"] = {"tokens_segment_ids": segments}
        exec(compile(masking, "page", "exec"), names)
        masks.append(names["mask"])
    assert (masks[0] == np.stack(masks[1:])).all()
    pairs = [{"a": np.arange(3), "b": np.arange(0)}, {"a": np.arange(2), "b": np.arange(4)}]
    [row] = Dataset.from_list(pairs).pack({"a": 6, "b": 6})
    names["segments"] = row["b_segment_ids"]
    assert names["segments"].tolist() == [2, 2, 2, 2, 0, 0]
    exec(compile(cutting, "page", "exec"), names)
    assert np.diff(names["cu_seqlens"]).tolist() == [0, 4, 2]


def test_all_counts_are_described() -> None:
    """The page has each sum and ratio of ``pack`` once."""
    iterator = iter(
        Dataset.range(6)
        .map(lambda n: np.arange(n))
        .concatenate(Dataset.range(9, 10).map(lambda n: np.arange(n)))
        .pack(4, overflow="truncate", rest="drop")
    )
    list(iterator)
    told = re.findall(r"`data/(pack/\w+)`", TEXT)
    assert len(told) == len(set(told))
    assert {f"data/{name}" for name in told} == set(iterator.stats())
    assert {name for name in RATIOS if name.startswith("pack/")} < set(told)
