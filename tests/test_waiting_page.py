"""The page ``docs/why-does-my-accelerator-wait.md`` is true, and its programs run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.dataset.resuming import DatasetIterator
from zmqdata.measures import verdict
from zmqdata.measures.situation import Situation
from zmqdata.measures.status import CONDITIONS, stats_of
from zmqdata.messages import LoopSums

TEXT = (Path(__file__).resolve().parents[1] / "docs/why-does-my-accelerator-wait.md").read_text(
    encoding="utf-8"
)
PROGRAMS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def first_cells(heading: str) -> list[str]:
    """Return the first cells, in backticks, of the table that follows a heading."""
    table = TEXT.partition(heading)[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)


def test_all_keys_are_described() -> None:
    """The page has each key of ``stats()`` once."""
    found = first_cells("## What are the numbers?")
    assert sorted(found) == sorted(stats_of(Situation(LoopSums())))


def test_all_verdicts_are_described() -> None:
    """The page has each verdict once, and each word that stands in its place."""
    words = [verdict.INPUT_BOUND, verdict.LINK_BOUND, verdict.STRAGGLER, verdict.COMPUTE_BOUND]
    assert first_cells("## What does the verdict mean") == [*words, verdict.UNKNOWN]
    for condition in CONDITIONS:
        assert f"`{condition}`" in TEXT


def test_limits_are_told_as_they_are() -> None:
    """The numbers on the page are those of the code."""
    assert (verdict.WAITS, verdict.LINK_BUSY, verdict.LEAST_SECONDS) == (0.05, 0.7, 0.5)
    assert (verdict.LEAST_ELEMENTS, verdict.UNEQUAL) == (2, 1.5)


@pytest.fixture
def batches() -> Iterator[DatasetIterator]:
    """Two hundred batches from a worker."""
    with LocalCluster(num_workers=1, in_process=True) as cluster:
        read = distribute("distributed_epoch", cluster.target)
        yield iter(Dataset.range(200).batch(1).apply(read))


def program(word: str) -> str:
    """Return the only program of the page with a word."""
    (found,) = [one for one in PROGRAMS if word in one]
    return found


def is_flat(numbers: dict[str, Any]) -> bool:
    return all(isinstance(value, float) for value in numbers.values()) and len(numbers) > 5


def test_the_shortest_answer(batches: DatasetIterator, capsys: pytest.CaptureFixture[str]) -> None:
    """The first program prints the advice."""
    exec(program("data/advice"), {"dataset": batches, "train": lambda batch: None})
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("tracker", ["wandb", "mlflow", "SummaryWriter"])
def test_trackers(batches: DatasetIterator, tracker: str) -> None:
    """A tracker gets numbers under flat names, with the number of the step."""
    told: list[tuple[dict[str, Any], int]] = []
    names: dict[str, Any] = {"batches": batches, "train": lambda batch: None}

    def log(numbers: dict[str, Any], step: int) -> None:
        told.append((numbers, step))

    if tracker == "SummaryWriter":
        scalars: dict[int, dict[str, Any]] = {}

        def add_scalar(name: str, value: float, step: int) -> None:
            scalars.setdefault(step, {})[name] = value

        names[tracker] = lambda: SimpleNamespace(add_scalar=add_scalar)
    else:
        module: Any = ModuleType(tracker)
        module.init = lambda project: SimpleNamespace(log=log)
        module.log_metrics = log
        names[tracker] = module
    exec(program(f"{tracker}(" if tracker == "SummaryWriter" else f"{tracker}."), names)
    if tracker == "SummaryWriter":
        told = [(numbers, step) for step, numbers in scalars.items()]
    assert [step for _, step in told] == [100, 200]
    assert all(is_flat(numbers) for numbers, _ in told)


def test_the_headspace(capsys: pytest.CaptureFixture[str]) -> None:
    """The program with ``profile`` prints how fast the loop could be."""
    names = {"dataset": Dataset.range(10), "train": lambda batch: None}
    exec(program("headspace"), names)
    assert "headspace: with elements from memory" in capsys.readouterr().out


def test_transformers(batches: DatasetIterator) -> None:
    """The program adds the numbers to what the ``Trainer`` logs of a step, and not to
    what it logs of an evaluation.
    """
    logged: list[dict[str, Any]] = []

    class Stub:
        """The part of the ``Trainer`` that the program overrides."""

        def log(self, logs: dict[str, Any], *args: Any, **options: Any) -> None:
            logged.append(logs)

    names: dict[str, Any] = {
        "transformers": SimpleNamespace(Trainer=Stub),
        "distribute_dataloader": lambda loader: loader,
        "plain": batches,
    }
    exec(program("transformers."), names)
    training = names["MyTrainer"]()
    next(training.get_train_dataloader())
    training.log({"loss": 1.0}, 0.5)
    training.log({"eval_loss": 1.0})
    assert is_flat(logged[0])
    assert logged[1] == {"eval_loss": 1.0}
