"""Tests of the elements that peers deliver."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from benchmarks.cases import CASES
from benchmarks.workloads import Make, spin, touching, variants, weight

KINDS = sorted(
    {case.element for case in CASES} - {"photographs", "float photographs", "decoded photographs"}
)


@pytest.mark.parametrize("name", KINDS)
def test_elements_can_be_made_and_looked_at(name: str) -> None:
    """A sent function makes an element of each kind, and a consumer can read it."""
    make = pickle.loads(pickle.dumps(Make(name, spins=3)))
    for x in range(5):
        touching(name)(make(np.int64(x)))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("scalars", 8),
        ("kilobytes", 1024),
        ("digits", 792),
        ("images", 150_528),
        ("batches", 4_816_896),
    ],
)
def test_weights(name: str, size: int) -> None:
    """The weight of an element is the sum of its leaves."""
    assert weight(name) == size


def test_elements_of_training_programs() -> None:
    """A text becomes its tokens and zeros, and a window has the mean 0."""
    tokens = Make("tokenized texts")(1)
    assert tokens[:400].all()
    assert not tokens[400:].any()
    assert abs(Make("windows")(3).mean()) < 1e-5


def test_neighbours_differ() -> None:
    """Successive elements have different contents."""
    first, second = Make("kilobytes")(0), Make("kilobytes")(1)
    assert not np.array_equal(first, second)


def test_elements_of_any_size() -> None:
    """``bytes:N`` is an array of N bytes."""
    assert Make("bytes:65536")(3).nbytes == weight("bytes:65536") == 65_536


def test_a_kind_that_does_not_exist_is_an_error() -> None:
    """The error for an unknown kind names it."""
    with pytest.raises(ValueError, match="pebbles"):
        variants("pebbles")


def test_work_hands_its_element_on() -> None:
    """The work returns its element unchanged."""
    assert spin(10, 7) == 7
