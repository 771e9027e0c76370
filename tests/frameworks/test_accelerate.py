"""accelerate leaves a loader alone, and saves its state: ``make test-torch``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def steps_of(make: Any, *, validates: bool) -> list[tuple[int, int]]:
    """Return the pass and the batch of each step of an optimizer that steps after four
    batches and at the end of a pass.

    Args:
        make: makes a loader.
        validates: True to read the first batch of another loader in the middle.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model, optimizer, loader, other = accelerator.prepare(model, optimizer, make(), make())
    found = []
    for number in range(2):
        for batch_number, batch in enumerate(loader):
            if validates and batch_number == 5:
                next(iter(other))
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).sum())
                if accelerator.sync_gradients:
                    found.append((number, batch_number))
                optimizer.step()
                optimizer.zero_grad()
    return found


def test_the_end_of_a_pass_is_a_step(lasting: str) -> None:
    """An optimizer that accumulates gradients steps after the last batch of a pass, as
    with a DataLoader, also if a validation was left early in the middle of it.
    """
    import torch
    from torch.utils.data import DataLoader

    from zmqdata.torch import distribute_dataloader

    def plain() -> Any:
        rows: Any = torch.ones(10, 1)
        return DataLoader(rows, batch_size=1)

    wanted = steps_of(plain, validates=False)
    assert wanted == [(number, batch) for number in range(2) for batch in (3, 7, 9)]
    for validates in (False, True):
        found = steps_of(lambda: distribute_dataloader(plain(), lasting), validates=validates)
        assert found == wanted
