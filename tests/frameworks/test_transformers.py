"""The Trainer of transformers resumes with the state of its loader:
``make test-torch``.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.frameworks import deaths
from zmqdata import Dataset
from zmqdata.errors import FailedPreconditionError

pytestmark = deaths.marks("torch", "transformers", "accelerate")


@pytest.mark.parametrize("save_at", [4, 10, 13])
@pytest.mark.parametrize("kind", ["map", "promised", "unknown"])
def test_it_resumes_exactly(lasting: str, tmp_path: Path, kind: str, save_at: int) -> None:
    """A killed Trainer has the batches of one that was left alone, in the same order,
    over two passes, also from a checkpoint behind the last batch of a pass.
    """
    found, whole = deaths.dies_and_resumes(lasting, "transformers", kind, tmp_path, save_at)
    assert found == whole


def begin(loader: Any, *, skips: bool, step: int = 0, **kept: Any) -> None:
    """Begin a training with this loader."""
    from zmqdata.torch import TrainerStateCallback

    state = SimpleNamespace(global_step=step, stateful_callbacks=kept)
    arguments = SimpleNamespace(ignore_data_skip=skips)
    TrainerStateCallback().on_train_begin(arguments, state, None, train_dataloader=loader)


def test_it_refuses_to_begin_if_batches_would_be_skipped_twice() -> None:
    """Without ``ignore_data_skip``, the training does not begin, and the error says why
    and what to pass.
    """
    from zmqdata.torch import Loader

    loader = Loader(Dataset.range(4))
    with pytest.raises(FailedPreconditionError, match=r"ignore_data_skip=True.*skips the batches"):
        begin(loader, skips=False)
    begin(loader, skips=True)


def test_another_loader_is_refused() -> None:
    """A Trainer with a DataLoader, whose state could not be saved, does not begin."""
    with pytest.raises(TypeError, match=r"trains with a list.*get_train_dataloader"):
        begin([], skips=True)


def test_a_checkpoint_without_a_state_is_refused() -> None:
    """A training does not resume from a checkpoint that was saved without the
    callback.
    """
    from zmqdata.torch import Loader

    with pytest.raises(FailedPreconditionError, match="step 7 has no state of a loader"):
        begin(Loader(Dataset.range(4)), skips=True, step=7)
