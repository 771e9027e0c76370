"""Test the measures of sharing, without their clusters."""

from __future__ import annotations

import pytest

from benchmarks.sharing import COUNT, Readers, source_of


def test_the_ideal_is_that_no_reader_waits() -> None:
    """Readers together end as if each element were read at once, and the first reads
    alone until the others come.
    """
    assert Readers(100, (0.01, 0.01)).ideal == pytest.approx(0.5)
    assert Readers(110, (0.1, 1.0)).ideal == pytest.approx(10.0)
    late = Readers(100, (0.01, 0.01), late=0.4)
    assert late.ideal == pytest.approx(0.4 + 0.3)
    assert late.bound == pytest.approx(1.1 * 0.7 + 0.01 + 0.2)
    assert Readers(10, (0.01, 0.01), late=9.0).ideal == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["range", "slices", "source"])
def test_each_source_has_the_same_number_of_elements(kind: str) -> None:
    """The pipelines whose workers are compared have equally many elements."""
    assert source_of(kind, "").cardinality() == COUNT
