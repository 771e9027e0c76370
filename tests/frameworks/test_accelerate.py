"""accelerate leaves a loader alone, and saves its state: ``make test-torch``."""

from __future__ import annotations

import os
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


def skipping(loader: Any, count: int) -> Any:
    """Return what is left behind the first batches, twice, and whole passes between."""
    import torch
    from accelerate import skip_first_batches

    torch.manual_seed(3)
    rest = skip_first_batches(loader, count)
    passes = [[batch.tolist() for batch in one] for one in (rest, loader, rest, loader)]
    return passes, torch.rand(1).item()


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("own", [True, False], ids=["own", "global"])
@pytest.mark.parametrize("count", [0, 2, 5, 9])
def test_the_first_batches_are_skipped(lasting: str, count: int, own: bool, workers: int) -> None:
    """``skip_first_batches`` leaves out the batches that it leaves out of a DataLoader,
    in the same shuffled passes, and the workers of the service make the others.
    """
    import torch
    from torch.utils.data import DataLoader

    from zmqdata.torch import distribute_dataloader

    def plain() -> Any:
        generator = torch.Generator().manual_seed(5) if own else None
        numbers: Any = range(9)
        return DataLoader(numbers, 2, shuffle=True, num_workers=workers, generator=generator)

    assert skipping(distribute_dataloader(plain(), lasting), count) == skipping(plain(), count)


def test_skipped_batches_come_from_the_service(lasting: str) -> None:
    """Workers make what is left after skipping, also if the DataLoader has processes.
    It leaves states. A loader of unknown length is skipped, too. One that is prepared
    alone stays what it is.
    """
    from accelerate import Accelerator, skip_first_batches
    from torch.utils.data import DataLoader

    from zmqdata import Dataset
    from zmqdata.torch import Loader, distribute_dataloader

    plain: Any = DataLoader(Processes(), 1, num_workers=2)
    loader = distribute_dataloader(plain, lasting)
    assert Accelerator(cpu=True).prepare_data_loader(loader) is loader
    rest = skip_first_batches(loader, 2)
    assert len(rest) == 4
    found, state = [], None
    for batch in rest:
        found.append(batch.tolist()[0])
        state = state or loader.state_dict()
    assert [number for number, _ in found] == [2, 3, 4, 5]
    assert os.getpid() not in {parent for _, parent in found}
    loader.load_state_dict(state)
    assert [batch.tolist()[0][0] for batch in loader] == [3, 4, 5]
    unknown = Loader(Dataset.range(6).filter(lambda number: True))
    assert [int(number) for number in skip_first_batches(unknown, 4)] == [4, 5]


class Processes:
    """Rows with the parent of the process that has made them, which is this process for
    those of a local DataLoader.
    """

    def __len__(self) -> int:
        return 6

    def __getitem__(self, number: int) -> Any:
        import torch

        return torch.tensor([number, os.getppid()])
