"""Tests of ``benchmarks.mixing``."""

from __future__ import annotations

from itertools import islice

from benchmarks.mixing import WEIGHTS, choices, microseconds, mixed, sampled


def test_all_sides_take_elements() -> None:
    """Choices, mixture and draws are measured, and the choices follow the weights."""
    assert sorted(islice(choices(0), sum(WEIGHTS))).count(0) == WEIGHTS[0]
    assert all(microseconds(make(0), 50) > 0 for make in (choices, mixed, sampled))
