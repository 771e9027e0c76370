"""Training programs that the tests start and kill:
``python interrupted.py LIBRARY KIND SERVICE FOLDER SAVE_AT STOP_AT WORLD``.

A program may have several ranks: a launcher starts them, or its library. Each rank
prints the number of its process, and the numbers of the samples of each batch that it
trains with. After ``SAVE_AT`` batches it saves a checkpoint in its folder. After
``STOP_AT`` batches it waits for its death. A program whose folder has a checkpoint
resumes from it, and fixes no seed: all that decides on the order comes from the
checkpoint. Only the state of rank 0 is saved, unless the library decides otherwise.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.utils.data import DataLoader, Dataset, IterableDataset

import zmqdata
from zmqdata.torch import Loader, distribute_dataloader

COUNT = 40
SIZE = 4
PASSES = 2
STEPS = COUNT // SIZE


class Numbers(Dataset[Any]):
    """Samples that are numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"number": torch.tensor(index)}


class Stream(IterableDataset[Any]):
    """Samples that two workers deal among themselves."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[dict[str, int]]:
        worker = torch.utils.data.get_worker_info()
        return ({"number": one} for one in range(worker.id, self.count, worker.num_workers))


def of_map(service: str, count: int, **options: Any) -> Loader:
    """Return a loader in place of a shuffled ``DataLoader`` without a generator."""
    plain: Any = DataLoader(Numbers(count), SIZE, shuffle=True)
    return distribute_dataloader(plain, service, **options)


def of_stream(service: str, count: int, **options: Any) -> Loader:
    """Return a loader in place of a ``DataLoader`` of unknown length."""
    plain: Any = DataLoader(Stream(count), SIZE, num_workers=2)
    return distribute_dataloader(plain, service, **options)


def by_name(number: Any) -> dict[str, Any]:
    return {"number": number}


def is_number(number: Any) -> bool:
    return bool(number >= 0)


def promised(service: str, source: zmqdata.Dataset, count: int, **options: Any) -> Loader:
    read = zmqdata.distribute("distributed_epoch", service, deterministic=True, num_tasks=2)
    named = source.map(by_name)
    return Loader(named.shuffle(count).batch(SIZE).apply(read), **options)


def of_promised(service: str, count: int, **options: Any) -> Loader:
    """Return a loader over a dataset with a promised order."""
    return promised(service, zmqdata.Dataset.range(count), count, **options)


def of_unknown(service: str, count: int, **options: Any) -> Loader:
    """Return a loader over a dataset with a promised order, and of unknown length."""
    all_of_them = zmqdata.Dataset.range(count).filter(is_number)
    return promised(service, all_of_them, count, **options)


KINDS: dict[str, Callable[..., Loader]] = {
    "map": of_map,
    "stream": of_stream,
    "promised": of_promised,
    "unknown": of_unknown,
}


class Model(torch.nn.Module):
    """A model that draws from torch's generator in each step, as dropout does."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, number: torch.Tensor) -> dict[str, torch.Tensor]:
        drawn = torch.nn.functional.dropout(number.float().reshape(-1, 1))
        return {"loss": self.layer(drawn).sum()}


def tell(*words: object) -> None:
    """Print a line at once: all ranks write to the same pipe, without buffers."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Training:
    """The part of a training that all programs share.

    Args:
        service: address of the dispatcher.
        folder: folder of the checkpoints.
        save_at: number of batches after which a checkpoint is saved; 0: never.
        stop_at: number of batches after which the program waits for its death.
        world: number of ranks.
    """

    def __init__(self, service: str, folder: Path, save_at: int, stop_at: int, world: int) -> None:
        self.service = service
        self.folder = folder
        self.save_at = save_at
        self.stop_at = stop_at
        self.world = world
        self.steps = 0

    @property
    def rank(self) -> int:
        return distributed.get_rank() if distributed.is_initialized() else 0

    def count(self, batch: dict[str, torch.Tensor]) -> None:
        """Print the samples of a batch that the program trains with."""
        tell("ROWS", self.rank, json.dumps(batch["number"].tolist()))
        self.steps += 1

    @property
    def saves(self) -> bool:
        """True if a checkpoint is due."""
        return 0 < self.steps == self.save_at

    def told(self) -> None:
        """Print that a checkpoint is on disk."""
        tell("SAVED", self.rank)

    def stop(self) -> None:
        """Wait for death, if it is time."""
        if 0 < self.steps == self.stop_at:
            tell("STOPPED", self.rank)
            sys.stdin.read()


def shared(model: Any) -> Any:
    """Return a model whose gradients the ranks share."""
    if not distributed.is_initialized():
        return model
    return torch.nn.parallel.DistributedDataParallel(model)


def loop(loader: Loader, training: Training) -> None:
    """Train in a loop without a library."""
    place, first = training.folder / "state.pt", 0
    model = shared(Model())
    if place.exists():
        saved = torch.load(place, weights_only=True)
        first = saved["epoch"]
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        loader.start()
    for number in range(first, PASSES):
        loader.set_epoch(number)
        for batch in loader:
            training.count(batch)
            model(**batch)["loss"].backward()
            if training.saves:
                if training.rank == 0:
                    states = {"model": model.state_dict(), "loader": loader.state_dict()}
                    torch.save(states | {"epoch": number}, place)
                training.told()
            training.stop()


def stateful(loader: Loader, training: Training, **options: Any) -> None:
    """Train with a ``StatefulDataLoader`` of torchdata around the loader."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    around = StatefulDataLoader(loader.as_iterable_dataset(), batch_size=None, **options)
    place, first = training.folder / "state.pt", 0
    model, saved = Model(), None
    if place.exists():
        saved = torch.load(place, weights_only=True)
        first = saved["epoch"]
        around.load_state_dict(saved["loader"])
    for number in range(first, PASSES):
        batches = iter(around)  # draws the seed of a process
        if saved is not None and number == first:
            torch.set_rng_state(saved["generator"])
        for batch in batches:
            training.count(batch)
            model(**batch)
            if training.saves:
                states = {"loader": around.state_dict(), "generator": torch.get_rng_state()}
                torch.save(states | {"epoch": number}, place)
                training.told()
            training.stop()


def stateful_alone(loader: Loader, training: Training) -> None:
    stateful(loader, training, num_workers=0)


def stateful_forked(loader: Loader, training: Training) -> None:
    stateful(loader, training, num_workers=1, multiprocessing_context="fork")


def stateful_spawned(loader: Loader, training: Training) -> None:
    stateful(
        loader,
        training,
        num_workers=1,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )


def lightning(loader: Loader, training: Training) -> None:
    """Train with Lightning, which validates in the middle of each epoch, too."""
    import lightning as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("error", UserWarning)
    warnings.filterwarnings("ignore", module="lightning|torch")

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = Model()
            self.validated = 0

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            training.count(batch)
            return self.model(**batch)["loss"]

        def validation_step(self, batch: Any, index: int) -> None:
            self.validated += 1

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.0)

    class Told(pl.Callback):
        def on_train_batch_start(self, *of: Any) -> None:
            if training.saves:
                assert place.exists()
                training.told()

        def on_train_batch_end(self, *of: Any) -> None:
            training.stop()

    place = training.folder / "state.ckpt"
    saving = ModelCheckpoint(
        training.folder, "state", every_n_train_steps=training.save_at or 1_000_000
    )
    validating = distribute_dataloader(DataLoader(Numbers(8), SIZE), training.service)
    fitting = pl.Trainer(
        max_epochs=PASSES,
        callbacks=[saving, Told()],
        accelerator="cpu",
        devices=training.world,
        strategy="ddp" if training.world > 1 else "auto",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        val_check_interval=3,
        num_sanity_val_steps=2,
    )
    module = Module()
    fitting.fit(module, loader, validating, ckpt_path=place if place.exists() else None)
    assert module.validated


def accelerated(loader: Loader, training: Training) -> None:
    """Train with accelerate, to which the loader is registered for checkpoints."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    model, optimizer, prepared = accelerator.prepare(model, optimizer, loader)
    assert prepared is loader
    accelerator.register_for_checkpointing(loader)
    place = training.folder / "state"
    if place.exists():
        accelerator.load_state(str(place))
    for number in range(loader.state_dict()["epoch"], PASSES):
        loader.set_epoch(number)
        for batch in loader:
            assert batch["number"].device.type == accelerator.device.type, accelerator.device
            training.count(batch)
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            if training.saves:
                accelerator.save_state(str(place))
                training.told()
            training.stop()


def transformed(loader: Loader, training: Training) -> None:
    """Train with the ``Trainer`` of transformers."""
    import transformers

    from zmqdata.torch import TrainerStateCallback

    class Counted(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return loader

        def training_step(self, model: Any, inputs: Any, *others: Any) -> Any:
            training.count(inputs)
            return super().training_step(model, inputs, *others)

    class Told(transformers.TrainerCallback):
        def on_save(self, *of: Any, **named: Any) -> None:
            training.told()

        def on_step_begin(self, *of: Any, **named: Any) -> None:
            training.stop()

    folder = training.folder / "checkpoints"
    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=PASSES,
        max_steps=PASSES * STEPS,
        per_device_train_batch_size=SIZE,
        save_strategy="steps" if training.save_at else "no",
        save_steps=training.save_at or 1,
        ignore_data_skip=True,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    fitting = Counted(Model(), arguments, callbacks=[TrainerStateCallback(), Told()])
    fitting.train(resume_from_checkpoint=any(folder.glob("checkpoint-*")) or None)


def dcp(
    loader: Loader,
    training: Training,
    save: Callable[..., Any],
    states_of: Callable[[Loader], dict[str, Any]],
) -> None:
    """Train with checkpoints of ``torch.distributed.checkpoint``."""
    from torch.distributed import checkpoint

    place = training.folder / "state"
    if place.exists():
        states = states_of(loader)
        checkpoint.load(states, checkpoint_id=place)
        if states["loader"] is not loader:
            loader.load_state_dict(states["loader"])
    for _ in range(loader.state_dict()["epoch"], PASSES):
        for batch in loader:
            training.count(batch)
            if training.saves:
                save(states_of(loader), checkpoint_id=place)
                training.told()
            training.stop()


def dcp_saved(loader: Loader, training: Training) -> None:
    from torch.distributed import checkpoint

    dcp(loader, training, checkpoint.save, lambda one: {"loader": one.state_dict()})


def dcp_stateful(loader: Loader, training: Training) -> None:
    from torch.distributed import checkpoint

    dcp(loader, training, checkpoint.save, lambda one: {"loader": one})


def dcp_async(loader: Loader, training: Training) -> None:
    from torch.distributed import HashStore, checkpoint, init_process_group

    init_process_group("gloo", store=HashStore(), rank=0, world_size=1)

    def save(*of: Any, **named: Any) -> None:
        checkpoint.async_save(*of, **named).result()

    dcp(loader, training, save, lambda one: {"loader": one.state_dict()})


def fsdp(loader: Loader, training: Training) -> None:
    """Train with a model that is sharded, and with checkpoints of all ranks."""
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = Model()
    fully_shard(model, mesh=init_device_mesh("cpu", (training.world,)))
    place = training.folder / "state"
    if place.exists():
        states = {"model": get_model_state_dict(model), "loader": loader}
        checkpoint.load(states, checkpoint_id=place)
    for _ in range(loader.state_dict()["epoch"], PASSES):
        for batch in loader:
            training.count(batch)
            model(**batch)["loss"].backward()
            if training.saves:
                states = {"model": get_model_state_dict(model), "loader": loader}
                checkpoint.save(states, checkpoint_id=place)
                training.told()
            training.stop()


LIBRARIES: dict[str, Callable[[Loader, Training], None]] = {
    "loop": loop,
    "stateful_alone": stateful_alone,
    "stateful_forked": stateful_forked,
    "stateful_spawned": stateful_spawned,
    "lightning": lightning,
    "accelerate": accelerated,
    "transformers": transformed,
    "dcp": dcp_saved,
    "dcp_stateful": dcp_stateful,
    "dcp_async": dcp_async,
    "fsdp": fsdp,
}


def main(library: str, kind: str, service: str, folder: str, *numbers: str) -> None:
    """Train until the end, or until death."""
    tell("BORN", os.getpid())
    training = Training(service, Path(folder), *map(int, numbers))
    if not [*training.folder.iterdir()]:
        torch.manual_seed(3)
        zmqdata.set_random_seed(3)
    elif library == "stateful_forked":
        zmqdata.set_random_seed(3)  # all that a process of a later pass knows
    if library in ("loop", "fsdp") and training.world > 1:
        distributed.init_process_group("gloo")
    options = {"device": "cpu"} if library == "accelerate" else {}
    with KINDS[kind](service, COUNT * training.world, **options) as loader:
        LIBRARIES[library](loader, training)
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
