"""Trainings of two ranks that are killed and started again train with the samples of
those that are left alone, on each rank: ``make test-torch``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from tests.frameworks import deaths

pytestmark = deaths.marks("torch")
WORLD = 2
TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", f"--nproc-per-node={WORLD}"),
)
ACCELERATE = (
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"),
    *(f"--num_processes={WORLD}", "--num_machines=1", "--mixed_precision=no"),
    *("--dynamo_backend=no", "--main_process_port=0"),
)
LAUNCHERS = {
    "loop": TORCHRUN,
    "lightning": deaths.ALONE,
    "accelerate": ACCELERATE,
    "transformers": TORCHRUN,
    "fsdp": TORCHRUN,
}
NOT_OF_TORCH = ("lightning", "accelerate", "transformers")
CASES = [
    *((library, kind, 4) for library in LAUNCHERS for kind in ("map", "promised")),
    *(("loop", kind, save_at) for kind in ("map", "promised") for save_at in (10, 13)),
    *(("fsdp", "map", 10), ("loop", "stream", 4), ("lightning", "unknown", 4)),
]


@pytest.mark.parametrize(("library", "kind", "save_at"), CASES)
def test_two_ranks_resume_exactly(
    lasting: str, tmp_path: Path, library: str, kind: str, save_at: int
) -> None:
    """Each rank of a killed training has the batches that it has in one that was left
    alone, over two passes, and the ranks together have each sample once in a pass.
    """
    if library in NOT_OF_TORCH and importlib.util.find_spec(library) is None:
        pytest.skip(f"not installed: {library}")
    found, whole = deaths.dies_and_resumes(
        lasting, library, kind, tmp_path, save_at, LAUNCHERS[library], WORLD
    )
    assert found == whole
    ranks = [[rows for rank, rows in whole if rank == mine] for mine in range(WORLD)]
    first = [number for rows in ranks for batch in rows[:10] for number in batch]
    assert sorted(first) == list(range(80))
