"""Facts about pipelines that are too deep for Python's stack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from zmqdata import Dataset
from zmqdata.dataset.depth import within_stack
from zmqdata.errors import InvalidArgumentError

QUESTIONS: dict[str, Callable[[Dataset], Any]] = {
    "cardinality": lambda dataset: dataset.cardinality(),
    "len": len,
    "describe": lambda dataset: dataset.describe(),
    "iter": iter,
}


@pytest.fixture(scope="module")
def deep() -> Dataset:
    """Make a pipeline so deep that any question about it exceeds the stack, as each
    step asks all steps below.
    """
    dataset = Dataset.range(3)
    for _ in range(700):
        dataset = dataset.batch(2).unbatch()
    return dataset


@pytest.mark.parametrize("question", QUESTIONS)
def test_whatever_is_asked_the_error_names_the_remedy(question: str, deep: Dataset) -> None:
    """A pipeline that was made in a loop never raises a RecursionError."""
    with pytest.raises(
        InvalidArgumentError, match=r"pipeline of 1401 operations is too deep .* flat_map"
    ):
        QUESTIONS[question](deep)


def test_a_spec_behind_many_functions_is_asked_for_in_vain() -> None:
    """A spec that requires a trial run raises the same error."""
    dataset = Dataset.range(3)
    for _ in range(700):
        dataset = dataset.map(lambda x: x)
    with pytest.raises(InvalidArgumentError, match="too deep"):
        _ = dataset.element_spec


def test_other_errors_pass() -> None:
    """Only the end of the stack gets an error of its own."""
    with pytest.raises(KeyError), within_stack(Dataset.range(3).node):
        raise KeyError("x")
