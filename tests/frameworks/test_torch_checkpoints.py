"""Checkpoints of ``torch.distributed.checkpoint`` hold the states of loaders:
``make test-torch``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks import deaths

pytestmark = deaths.marks("torch")


@pytest.mark.parametrize("library", ["dcp", "dcp_stateful", "dcp_async"])
@pytest.mark.parametrize(("kind", "save_at"), [("map", 4), ("promised", 13)])
def test_it_resumes_exactly(
    lasting: str, tmp_path: Path, library: str, kind: str, save_at: int
) -> None:
    """A killed loop that saved the state of its loader, the loader itself or its state
    beside the training has the batches of one that was left alone.
    """
    found, whole = deaths.dies_and_resumes(lasting, library, kind, tmp_path, save_at)
    assert found == whole
