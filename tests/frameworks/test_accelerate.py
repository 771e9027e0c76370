"""accelerate leaves a loader alone, and saves its state: ``make test-torch``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import deaths

pytestmark = deaths.marks("torch", "accelerate")


@pytest.mark.parametrize("save_at", [4, 13])
@pytest.mark.parametrize("kind", ["map", "promised"])
def test_it_resumes_exactly(lasting: str, tmp_path: Path, kind: str, save_at: int) -> None:
    """A killed loop whose loader was prepared, which changes nothing, and registered
    for checkpoints has the batches of one that was left alone, on the device of
    accelerate.
    """
    found, whole = deaths.dies_and_resumes(lasting, "accelerate", kind, tmp_path, save_at)
    assert found == whole
