"""A StatefulDataLoader of torchdata around a loader resumes exactly:
``make test-torch``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks import deaths
from zmqdata import Dataset, LocalCluster
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError

pytestmark = deaths.marks("torch", "torchdata")


@pytest.mark.parametrize("save_at", [4, 13])
@pytest.mark.parametrize("kind", ["map", "promised", "stream"])
@pytest.mark.parametrize("workers", ["alone", "forked", "spawned"])
def test_it_resumes_exactly(
    lasting: str, tmp_path: Path, workers: str, kind: str, save_at: int
) -> None:
    """A killed loop has the batches of one that was left alone, over two passes, if the
    StatefulDataLoader has no process, or one that was forked or spawned.
    """
    library = f"stateful_{workers}"
    found, whole = deaths.dies_and_resumes(lasting, library, kind, tmp_path, save_at)
    assert found == whole


def around(**options: Any) -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    from zmqdata.torch import Loader

    loader = Loader(Dataset.range(20).shuffle(20, seed=5).batch(4))
    return StatefulDataLoader(loader.as_iterable_dataset(), batch_size=None, **options)


@pytest.mark.parametrize("read", [0, 5], ids=["beginning", "end"])
def test_a_state_between_passes_begins_a_pass(read: int) -> None:
    """A state from before the first batch, or from behind the last, begins the whole
    pass that comes next.
    """
    undisturbed, stopped, resumed = around(), around(), around()
    passes = [[batch.tolist() for batch in undisturbed] for _ in range(2)]
    if read:
        assert [batch.tolist() for batch in stopped] == passes[0]
    resumed.load_state_dict(stopped.state_dict())
    assert [batch.tolist() for batch in resumed] == passes[bool(read)]


def test_a_loader_of_torchdata_is_distributed_if_it_draws_as_torch() -> None:
    """Without processes, its batches are those of the service. With processes, or with
    a state, it is refused, and the error says what to pass.
    """
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    from zmqdata.torch import distribute_dataloader

    def made(**options: Any) -> Any:
        generator = torch.Generator().manual_seed(3)
        return StatefulDataLoader([*range(8)], 2, shuffle=True, generator=generator, **options)

    with LocalCluster(num_workers=1, in_process=True) as cluster:
        read = [batch.tolist() for batch in distribute_dataloader(made(), cluster)]
        assert read == [batch.tolist() for batch in made()]
        with pytest.raises(
            InvalidArgumentError, match=r"with processes.*Pass a torch\.utils\.data"
        ):
            distribute_dataloader(made(num_workers=2), cluster)
        resumed, before = made(), made()
        next(iter(before))
        resumed.load_state_dict(before.state_dict())
        with pytest.raises(InvalidArgumentError, match="a state was loaded into the Stateful"):
            distribute_dataloader(resumed, cluster)


def test_several_processes_have_no_state() -> None:
    """A StatefulDataLoader with two processes is refused before the first batch."""
    with pytest.raises(FailedPreconditionError, match="num_workers=1"):
        next(iter(around(num_workers=2)))
