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


WAYS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "epochs": ({}, {}),
    "no validation": ({"validation": []}, {}),
    "limited": ({}, {"limit_train_batches": 2}),
    "limited by a share": ({}, {"limit_train_batches": 0.5}),
    "limited validation": ({}, {"limit_val_batches": 1}),
    "checked twice": ({}, {"val_check_interval": 0.5}),
    "checked by steps": ({}, {"val_check_interval": 3, "check_val_every_n_epoch": None}),
    "checked seldom": ({}, {"check_val_every_n_epoch": 2}),
    "two loaders": ({"train": {"a": 8, "b": 4}}, {}),
    "two loaders, limited": ({"train": [8, 6]}, {"limit_train_batches": 3}),
    "shortest": ({"train": {"a": 8, "b": 4}, "mode": "min_size"}, {}),
    "longest": ({"train": [8, 4], "mode": "max_size"}, {}),
    "two validations": ({"validation": [4, 6]}, {}),
    "hooks": ({"hooks": True}, {}),
    "reloaded": ({"hooks": True}, {"reload_dataloaders_every_n_epochs": 1}),
    "estimated": ({"hooks": True, "estimates": True}, {}),
    "no sanity check": ({}, {"num_sanity_val_steps": 0}),
    "by steps": ({}, {"max_epochs": -1, "max_steps": 6}),
    "fast": ({}, {"fast_dev_run": True}),
    "overfit": ({"shuffle": False}, {"overfit_batches": 2}),
    "accumulated": ({}, {"accumulate_grad_batches": 3}),
    "own generator": ({"own": True}, {"limit_train_batches": 3}),
    "own generator, whole": ({"own": True}, {}),
    "processes": ({"num_workers": 1}, {"val_check_interval": 0.5}),
    "processes and two loaders": ({"num_workers": 1, "train": [8, 4]}, {}),
    "lasting processes": ({"num_workers": 1, "persistent_workers": True}, {}),
    "fitted twice": ({"fits": 2}, {"limit_train_batches": 3}),
}
"""Ways of training with Lightning: the loaders, and arguments of the ``Trainer``."""


def events(wrap: Any, of: dict[str, Any], options: dict[str, Any]) -> list[Any]:
    """Return what Lightning hands to the model, in its order.

    Args:
        wrap: makes a loader of a DataLoader.
        of: the loaders of a way.
        options: its arguments of the ``Trainer``.
    """
    import lightning
    import torch
    from lightning.pytorch.utilities import CombinedLoader
    from torch.utils.data import DataLoader

    found: list[Any] = []
    more = {name: of[name] for name in ("num_workers", "persistent_workers") if name in of}

    def loader(count: Any) -> Any:
        if not isinstance(count, int):
            items = count.items() if isinstance(count, dict) else enumerate(count)
            made = {name: loader(one) for name, one in items}
            return made if isinstance(count, dict) else [*made.values()]
        generator = torch.Generator().manual_seed(4) if of.get("own") else None
        shuffle = of.get("shuffle", True)
        numbers: Any = range(count)
        return wrap(DataLoader(numbers, 2, shuffle, generator=generator, **more))

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def note(self, batch: Any, *place: int) -> None:
            torch.rand(1)
            found.append((*place, str(batch)))

        def training_step(self, batch: Any, index: int) -> Any:
            self.note(batch)
            return self.layer(torch.ones(1, 1)).sum()

        def validation_step(self, batch: Any, index: int, dataloader_idx: int = 0) -> None:
            self.note(batch, dataloader_idx)

        def configure_optimizers(self) -> Any:
            if of.get("estimates"):
                found.append(self.trainer.estimated_stepping_batches)
            return torch.optim.SGD(self.parameters(), 0.0)

        def train_dataloader(self) -> Any:
            made = loader(of.get("train", 8))
            return CombinedLoader(made, of["mode"]) if "mode" in of else made

        def val_dataloader(self) -> Any:
            return loader(of.get("validation", 4))

    torch.manual_seed(3)
    model = Module()
    loaders = () if of.get("hooks") else (model.train_dataloader(), model.val_dataloader())
    for _ in range(of.get("fits", 1)):
        lightning.Trainer(
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            **{"logger": False, "enable_checkpointing": False, "max_epochs": 3, **options},
        ).fit(model, *loaders)
    return [*found, torch.rand(1).item()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", WAYS)
def test_it_has_the_batches_of_a_dataloader(lasting: str, way: str) -> None:
    """Each usual way of training has the batches of plain DataLoaders, in their order,
    under one seed, for training and validation, and draws no number more.
    """
    from zmqdata.torch import distribute_dataloader

    wanted = events(lambda plain: plain, *WAYS[way])
    assert len(wanted) > 2
    assert events(lambda plain: distribute_dataloader(plain, lasting), *WAYS[way]) == wanted


def test_its_look_at_a_loader_is_no_pass(lasting: str) -> None:
    """Lightning asks each loader that is no DataLoader for an iterator, and drops it.
    That takes no pass that ``start`` has begun, and draws nothing.
    """
    import torch
    from torch.utils.data import DataLoader

    from zmqdata.torch import distribute_dataloader

    numbers: Any = range(20)
    found = []
    for starts in (False, True):
        generator = torch.Generator().manual_seed(3)
        plain = DataLoader(numbers, 2, shuffle=True, generator=generator)
        loader, seen = distribute_dataloader(plain, lasting), Seen()
        if starts:
            loader.start()
        seen.fit(loader, max_epochs=2)
        found.append(seen.rows)
    assert len(found[0]) == 20
    assert found[0] == found[1]


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
        loader.trainer_state(prefetched=1)


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
