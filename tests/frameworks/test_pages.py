"""Tests that run the programs of the pages on frameworks as they are printed, and the
recipes that name one: ``make test-torch``.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import zmqdata
from zmqdata import Dataset
from zmqdata.recipes import RECIPES

pytestmark = [pytest.mark.realprocess, pytest.mark.timeout(300)]
DOCS = Path(__file__).resolve().parents[2] / "docs"
SERVICE = "tcp://dispatcher:5050"
TEN = list(range(10))
Names = dict[str, Any]


def programs(page: str) -> dict[str, list[str]]:
    """Return the Python programs of a page by the title above them."""
    parts = re.split(r"^#+ (.+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {
        title: re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: those for title, those in found.items() if those}


TORCH, OTHERS = programs("pytorch.md"), programs("jax-keras-tensorflow.md")


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def run(program: str) -> Names:
    """Run a program as a script of its own, and return the names that it knows then."""
    # A script's functions are sent by value, and workers could not import the page.
    names: Names = {"__name__": "__main__"}
    exec(compile(dedent(program), "page", "exec"), names)
    return names


def digits(batch: Any) -> list[int]:
    return [int(number) for number in np.asarray(batch).ravel()]


def wraps_a_dataloader(title: str, service: str) -> None:
    assert len(digits(run(TORCH[title][0])["batch"])) == 2


def reads_a_dataset(title: str, service: str) -> None:
    program = TORCH[title][0]
    run(program)  # as it is printed: no dispatcher is asked before a loop reads
    loader = run(program.replace(SERVICE, service))["loader"]
    assert sorted(round(float(number) * 10) for batch in loader for number in batch) == TEN


def resumes_a_loop(title: str, service: str) -> None:
    assert digits(run(TORCH[title][0])["batch"]) == [8, 9]


def trains_with_lightning(title: str, service: str) -> None:
    assert run(TORCH[title][0])["trainer"].global_step == 8


def trains_with_accelerate(title: str, service: str) -> None:
    assert run(TORCH[title][0])["loader"].state_dict()["epoch"] == 1


def trains_with_transformers(title: str, service: str) -> None:
    assert run(TORCH[title][0])["trainer"].state.global_step == 5


def reads_with_torchdata(title: str, service: str) -> None:
    names = run(TORCH[title][0])
    assert digits(names["batch"]) == [8, 9]
    assert names["state"]


def reads_with_jax(title: str, service: str) -> None:
    assert float(run(OTHERS[title][0])["batch"].sum()) == 17
    program = OTHERS[title][1]
    run(program)
    rows = [number for batch in run(program.replace(SERVICE, service))["ds"] for number in batch]
    assert len({*digits(rows)}) == len(rows) > 1280 - 2 * 64  # each task leaves out a batch


def fits_with_keras(title: str, service: str) -> None:
    run(OTHERS[title][0])
    program = OTHERS[title][1]
    assert run(program)["epoch"] == -1
    assert run(program)["epoch"] == 1  # the last state is of the last epoch


def reads_with_tensorflow(title: str, service: str) -> None:
    assert digits(run(OTHERS[title][0])["batch"]) == [8, 9]


Check = Callable[[str, str], None]
CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "How do I use zmqdata with PyTorch?": (wraps_a_dataloader, ("torch",)),
    "How do I read a zmqdata Dataset as tensors?": (reads_a_dataset, ("torch",)),
    "How do I resume in the middle of an epoch?": (resumes_a_loop, ("torch",)),
    "Lightning": (trains_with_lightning, ("torch", "lightning")),
    "accelerate": (trains_with_accelerate, ("torch", "accelerate")),
    "transformers": (trains_with_transformers, ("torch", "transformers", "accelerate")),
    "StatefulDataLoader of torchdata": (reads_with_torchdata, ("torch", "torchdata")),
    "torch.distributed.checkpoint, with FSDP": (resumes_a_loop, ("torch",)),
    "JAX": (reads_with_jax, ("jax",)),
    "Keras": (fits_with_keras, ("keras",)),
    "TensorFlow": (reads_with_tensorflow, ("tensorflow",)),
}


def test_every_program_has_a_check() -> None:
    """Each title with a program on the pages has a check here."""
    assert {*TORCH, *OTHERS} == CHECKS.keys()


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=needs(*them[1])) for title, them in CHECKS.items()]
)
def test_it_runs(title: str, lasting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs as it is printed, imports included, and does what it says."""
    monkeypatch.chdir(tmp_path)
    CHECKS[title][0](title, lasting)


FRAMEWORKS = ("torch", "jax", "keras", "tensorflow")
ADAPTED = [
    pytest.param(recipe, marks=needs(name), id=recipe)
    for recipe in RECIPES.values()
    for name in FRAMEWORKS
    if recipe.startswith(f"zmqdata.{name}.")
]


@pytest.mark.parametrize("recipe", ADAPTED)
def test_a_recipe_for_a_framework_runs(recipe: str) -> None:
    """The recipe that a missing name is answered by yields batches."""
    names: Names = {"zmqdata": zmqdata, "ds": Dataset.range(96).map(np.float32)}
    exec(f"adapted = {recipe}", names)
    assert len([*zip(range(3), names["adapted"], strict=False)]) == 3
