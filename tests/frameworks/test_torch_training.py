"""A training loop without a library that is killed and started again trains with the
samples of one that is left alone: ``make test-torch``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import deaths

pytestmark = deaths.marks("torch")


@pytest.mark.parametrize("save_at", [4, 10, 13])
@pytest.mark.parametrize("kind", ["map", "promised", "stream", "unknown"])
def test_it_resumes_exactly(lasting: str, tmp_path: Path, kind: str, save_at: int) -> None:
    """A killed loop has the batches of one that was left alone, in the same order, over
    two passes, if it saved in the middle of a pass or behind its last batch.
    """
    found, whole = deaths.dies_and_resumes(lasting, "loop", kind, tmp_path, save_at)
    assert found == whole
