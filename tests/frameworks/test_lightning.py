"""Lightning resumes with the state of its loader, also where it takes a batch ahead:
``make test-torch``.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks import deaths
from zmqdata import Dataset, LocalCluster, distribute
from zmqdata.errors import FailedPreconditionError

pytestmark = deaths.marks("torch", "lightning")


@pytest.mark.parametrize("save_at", [4, 10, 13])
@pytest.mark.parametrize("kind", ["map", "promised", "stream", "unknown"])
def test_it_resumes_exactly(lasting: str, tmp_path: Path, kind: str, save_at: int) -> None:
    """A killed training with a sanity check and validations in the middle of a pass has
    the batches of one that was left alone, over two passes, whether the number of
    batches is known or not, and also from a checkpoint behind the last batch.
    """
    found, whole = deaths.dies_and_resumes(lasting, "lightning", kind, tmp_path, save_at)
    assert found == whole


class Seen:
    """The numbers that a training has had."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def fit(self, loader: Any, checkpoint: Path | None = None, **options: Any) -> Any:
        """Train with Lightning, and return its trainer."""
        import lightning
        import torch

        rows = self.rows

        class Module(lightning.LightningModule):
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(1, 1)

            def training_step(self, batch: Any, index: int) -> Any:
                rows.append(batch.tolist())
                return self.layer(batch.float().reshape(-1, 1)).sum()

            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), 0.0)

        fitting = lightning.Trainer(
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"logger": False, "enable_checkpointing": False, "max_epochs": 3, **options},
        )
        fitting.fit(Module(), loader, ckpt_path=checkpoint)
        return fitting


def shuffled(*, is_known: bool) -> Any:
    from zmqdata.torch import Loader

    numbers = Dataset.range(20).shuffle(20, seed=5).batch(2)
    return Loader(numbers if is_known else numbers.filter(lambda batch: True))


def saving(folder: Path, **when: Any) -> Any:
    from lightning.pytorch.callbacks import ModelCheckpoint

    return ModelCheckpoint(folder, "{step}", save_top_k=-1, **when)


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize(
    ("when", "options"),
    [
        ({}, {}),
        ({"every_n_train_steps": 4}, {}),
        ({"every_n_train_steps": 10}, {}),
        ({"every_n_train_steps": 3}, {"limit_train_batches": 5}),
        ({"every_n_train_steps": 3}, {"max_epochs": -1, "max_steps": 24}),
    ],
    ids=["ends", "steps", "last", "limited", "counted"],
)
def test_each_checkpoint_resumes_exactly(
    tmp_path: Path, is_known: bool, when: Any, options: Any
) -> None:
    """A training resumes exactly from each checkpoint: from the end of an epoch, its
    last step, any other step, and with an epoch that ends before the loader does.
    """
    whole = Seen()
    whole.fit(
        shuffled(is_known=is_known),
        enable_checkpointing=True,
        callbacks=[saving(tmp_path, **when)],
        **options,
    )
    checkpoints = sorted(tmp_path.glob("*.ckpt"))
    assert len(checkpoints) >= 2
    for checkpoint in checkpoints:
        rest = Seen()
        rest.fit(shuffled(is_known=is_known), checkpoint, **options)
        assert rest.rows == whole.rows[int(checkpoint.stem.partition("=")[2]) :]


def test_a_training_that_is_stopped_leaves_the_loader_usable() -> None:
    """After a training that ended early in a pass, the loader reads whole passes."""
    loader, seen = shuffled(is_known=False), Seen()
    seen.fit(loader, max_epochs=-1, max_steps=4)
    assert len(seen.rows) == 4
    assert sorted(number for batch in loader for number in batch.tolist()) == [*range(20)]


def test_the_callback_comes_by_itself() -> None:
    """Lightning under both of its names adds the callback to each trainer."""
    from zmqdata.torch import LightningStateCallback
    from zmqdata.torch.lightning import LoaderStates

    names = ["lightning.pytorch.callbacks_factory", "pytorch_lightning.callbacks_factory"]
    for name in names:
        (found,) = [one for one in entry_points(group=name) if one.name == "zmqdata"]
        (callback,) = found.load()()
        assert isinstance(callback, LoaderStates)
    fitting = Seen().fit(shuffled(is_known=True), max_steps=1)
    assert any(isinstance(one, LightningStateCallback) for one in fitting.callbacks)


def test_a_loader_of_unknown_length_warns_without_the_callback() -> None:
    """A loader of unknown length says what to pass if Lightning does not find the
    callback, and one of known length is exact without it.
    """
    program = """if True:
        import sys, warnings
        import lightning.pytorch.trainer.connectors.callback_connector as connector
        connector._load_external_callbacks = lambda group: []
        from tests.frameworks.test_lightning import Seen, shuffled
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", "Lightning takes a batch ahead")
        Seen().fit(shuffled(is_known=sys.argv[1] == "known"), max_steps=1)
    """
    for length, is_warned in (("known", False), ("unknown", True)):
        done = subprocess.run(
            [sys.executable, "-c", program, length],
            capture_output=True,
            text=True,
            timeout=240,
            env=deaths.environment(),
        )
        assert ("Pass `batches=` to the Loader" in done.stderr) == is_warned, done.stderr
        assert (done.returncode != 0) == is_warned, done.stderr


def test_a_place_that_is_not_known_is_refused() -> None:
    """A loader from which a batch was taken ahead without its knowledge refuses the
    state, and says what to pass.
    """
    loader = shuffled(is_known=False)
    next(iter(loader))
    with pytest.raises(FailedPreconditionError, match="Pass `batches=` to the Loader"):
        loader.trainer_state(ahead=1)


def test_a_callback_logs_why_the_training_waits() -> None:
    """``LightningStatsCallback`` logs the numbers of the loader to each logger, in the
    steps in which Lightning logs.
    """
    from lightning.pytorch.loggers import Logger

    from zmqdata.torch import LightningStatsCallback, Loader

    class Kept(Logger):
        """A logger that keeps what it is told."""

        def __init__(self) -> None:
            super().__init__()
            self.told: dict[int, dict[str, float]] = {}

        @property
        def name(self) -> str:
            return "kept"

        @property
        def version(self) -> str:
            return "0"

        def log_hyperparams(self, *found: Any, **others: Any) -> None:
            """Keep nothing of these."""

        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            if "data/wait_share" in metrics:
                self.told[step or 0] = dict(metrics)

    kept = Kept()
    with LocalCluster(num_workers=1, in_process=True) as cluster:
        read = distribute("distributed_epoch", cluster.target)
        loader = Loader(Dataset.range(20).batch(2).apply(read))
        Seen().fit(
            loader,
            logger=kept,
            log_every_n_steps=5,
            callbacks=[LightningStatsCallback()],
            max_epochs=2,
        )
    assert [*kept.told] == [5, 10, 15, 20]
    assert kept.told[10]["data/elements"] >= 10.0


def test_the_callback_refuses_a_local_loader() -> None:
    """A loader that reads in the training process has nothing to log."""
    from zmqdata.torch import LightningStatsCallback

    with pytest.raises(FailedPreconditionError, match="is not distributed"):
        Seen().fit(
            shuffled(is_known=True), log_every_n_steps=1, callbacks=[LightningStatsCallback()]
        )
