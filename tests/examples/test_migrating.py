"""Tests that run our side of the migration page for users of tf.data unchanged."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zmqdata

PAGE = Path(__file__).resolve().parents[2] / "docs" / "migrating-from-tfdata.md"
SERVICE = "tcp://dispatcher:5050"
RECORDS = 3 * 40

Steps = list[Any]


def sections() -> dict[str, list[str]]:
    """Return the Python programs of each section."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {
        title: re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: programs for title, programs in found.items() if programs}


PROGRAMS = sections()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[str]:
    """Return the address of a service with two workers."""
    config = zmqdata.DispatcherConfig(work_dir=str(tmp_path / "work"))
    with (
        zmqdata.DispatchServer(config) as dispatcher,
        zmqdata.WorkerServer(zmqdata.WorkerConfig(dispatcher.target)),
        zmqdata.WorkerServer(zmqdata.WorkerConfig(dispatcher.target)),
    ):
        yield dispatcher.target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which programs run, with three image files to train with."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train").mkdir()
    for number in range(3):
        with zmqdata.TFRecordWriter(f"train/{number}.tfrecord") as writer:
            for _ in range(RECORDS // 3):
                writer.write(bytes([number]) * 784)
    return tmp_path


def run(program: str, target: str) -> Steps:
    """Run a program and return the elements passed to its training step."""
    steps: Steps = []
    # Programs run as __main__, whose functions are pickled by value. Workers could not
    # import a script as a module.
    names = {"__name__": "__main__", "train_step": steps.append}
    exec(compile(program.replace(SERVICE, target), str(PAGE), "exec"), names)
    return steps


def check_images(steps: Steps) -> None:
    assert {step.shape for step in steps} == {(32, 28, 28), (RECORDS % 32, 28, 28)}
    assert steps[0].dtype == np.float32


def check_squares(steps: Steps) -> None:
    assert sorted(int(x) for step in steps for x in np.atleast_1d(step)) == [
        x * x for x in range(1_000)
    ]


def check_count(count: int) -> Callable[[Steps], None]:
    def check(steps: Steps) -> None:
        assert len(steps) == count

    return check


def check_batches(steps: Steps) -> None:
    assert len({int(x) for batch in steps for x in batch}) == sum(map(len, steps)) == 1_000


CHECKS: dict[str, Callable[[Steps], None]] = {
    "A local pipeline": check_images,
    "Servers": check_count(0),
    "distribute: OFF and DYNAMIC": check_squares,
    "register_dataset and from_dataset_id": check_count(2 * 100),
    "Cross-trainer cache": check_count(100),
    "Static sharding": check_count(RECORDS),
    "Saving and loading": check_squares,
    "Checkpointing an iterator": check_batches,
}
COORDINATED = "Coordinated reads"


def test_every_use_is_shown_before_and_after() -> None:
    """Each section has a TensorFlow program, then a zmqdata program, and a test here.
    All of them compile.
    """
    assert PROGRAMS.keys() == {*CHECKS, COORDINATED}
    for before, after in PROGRAMS.values():
        assert before.startswith("import tensorflow as tf\n")
        assert "import zmqdata\n" in after
        assert "tf." not in re.sub(r"\w+\.tfrecord", "", after)
        compile(before, str(PAGE), "exec")


@pytest.mark.parametrize("title", CHECKS)
def test_what_comes_after_runs(title: str, target: str, folder: Path) -> None:
    """The zmqdata program ends, and its training step gets the promised elements."""
    program = PROGRAMS[title][1]
    CHECKS[title](run(program, target))


def test_consumers_read_batches_of_one_bucket_in_each_step(target: str) -> None:
    """Two ranks read different batches of the same bucket in each step."""
    program = PROGRAMS[COORDINATED][1]
    steps: dict[int, Steps] = {}
    threads = [
        threading.Thread(
            target=lambda rank=rank: steps.update(
                {rank: run(program.replace("rank=0", f"rank={rank}"), target)}
            ),
            daemon=True,
        )
        for rank in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40.0)
    assert [len(steps[rank]) for rank in range(2)] == [100, 100]
    for first, second in zip(*steps.values(), strict=True):
        assert first.shape[1] // 16 == second.shape[1] // 16
        assert not np.array_equal(first, second)
