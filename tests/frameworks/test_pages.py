"""Tests that run the programs of the pages on frameworks: ``make test-torch``."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import zmqdata
from zmqdata import Dataset, distribute

pytestmark = [pytest.mark.realprocess, pytest.mark.timeout(300)]
DOCS = Path(__file__).resolve().parents[2] / "docs"
SERVICE = "tcp://dispatcher:5050"
TEN = list(range(10))
Names = dict[str, Any]


def programs(page: str) -> dict[str, list[str]]:
    """Return the Python programs of a page by the title above them."""
    parts = re.split(r"^#+ (.+)$", (DOCS / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {
        title: re.findall(r"^ *```python\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: those for title, those in found.items() if those}


TORCH, OTHERS = programs("pytorch.md"), programs("jax-keras-tensorflow.md")


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def run(program: str, names: Names) -> Names:
    """Run a program, and return the names that it knows then."""
    # A script's functions are sent by value, and workers could not import the page.
    names["__name__"] = "__main__"
    exec(compile(dedent(program), "page", "exec"), names)
    return names


def digits(batch: Any) -> list[int]:
    return [int(number) for number in np.asarray(batch).ravel()]


def plain() -> Any:
    """Return a DataLoader of five batches of two numbers."""
    from torch.utils.data import DataLoader

    return DataLoader(TEN, batch_size=2)


def distributed(service: str, **options: Any) -> Any:
    from zmqdata.torch import distribute_dataloader

    return distribute_dataloader(plain(), service, **options)


# --- PyTorch


def wraps_a_dataloader(program: str, service: str, folder: Path) -> None:
    names = run(program.replace(SERVICE, service), {"loader": plain()})
    assert [digits(batch) for batch in names["loader"]] == [digits(batch) for batch in plain()]


def reads_a_dataset(program: str, service: str, folder: Path) -> None:
    program = program.replace(SERVICE, service).replace('"cuda"', '"cpu"')
    names = run(program, {"dataset": Dataset.range(10).batch(2), "zmqdata": zmqdata})
    assert sorted(number for batch in names["loader"] for number in digits(batch)) == TEN


def resumes_a_loop(program: str, service: str, folder: Path) -> None:
    import torch

    loader = distributed(service)
    batches = iter(loader)
    before = [digits(next(batches)) for _ in range(2)]
    names = {"torch": torch, "model": torch.nn.Linear(1, 1), "loader": loader}
    after: list[int] = []
    program = program.replace("    ...", "    note(batch)")
    run(program, {**names, "path": folder / "x", "note": lambda batch: after.extend(digits(batch))})
    assert [*before[0], *before[1], *after] == TEN


def fits_with_lightning(program: str, service: str, folder: Path) -> None:
    import lightning
    import torch

    from zmqdata.torch import distribute_dataloader

    seen: list[int] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, index: int) -> Any:
            seen.extend(digits(batch))
            return self.layer(batch.float().reshape(-1, 1)).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.0)

    fitting = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False
    )
    names = {"trainer": fitting, "model": Module(), "path": None, "loader": plain()}
    run(program, {**names, "distribute_dataloader": distribute_dataloader})
    assert seen == TEN


def prepares_with_accelerate(program: str, service: str, folder: Path) -> None:
    import accelerate
    import torch

    from zmqdata.torch import distribute_dataloader

    model = torch.nn.Linear(1, 1)
    names: Names = {"accelerator": accelerate.Accelerator(cpu=True), "loader": plain()}
    names |= {"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)}
    names = run(program, {**names, "distribute_dataloader": distribute_dataloader})
    assert [number for batch in names["loader"] for number in digits(batch)] == TEN
    names["accelerator"].save_state(str(folder))
    names["accelerator"].load_state(str(folder))
    assert names["loader"].state_dict()["epoch"] == 1


def trains_with_transformers(program: str, service: str, folder: Path) -> None:
    import torch
    import transformers
    from torch.utils.data import DataLoader

    from zmqdata.torch import distribute_dataloader

    seen: list[int] = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, x: Any) -> dict[str, Any]:
            seen.extend(digits(x))
            return {"loss": self.layer(x.float().reshape(-1, 1)).sum()}

    loader = DataLoader([{"x": number} for number in TEN], batch_size=2)
    names = {"transformers": transformers, "zmqdata": zmqdata, "model": Model(), "plain": loader}
    names |= {"folder": str(folder), "path": None, "distribute_dataloader": distribute_dataloader}
    names["TrainingArguments"] = lambda path, **options: transformers.TrainingArguments(
        path, num_train_epochs=1, save_strategy="no", report_to=[], use_cpu=True, **options
    )
    run(program, names)
    assert seen == TEN


def reads_with_torchdata(program: str, service: str, folder: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = distributed(service)
    names = run(program, {"loader": loader, "StatefulDataLoader": StatefulDataLoader})
    assert [number for batch in names["around"] for number in digits(batch)] == TEN


def saves_a_checkpoint(program: str, service: str, folder: Path) -> None:
    import torch
    from torch.distributed import checkpoint
    from torch.distributed.checkpoint.state_dict import get_model_state_dict

    loader = distributed(service)
    assert digits(next(iter(loader))) == [0, 1]
    names = {"checkpoint": checkpoint, "get_model_state_dict": get_model_state_dict}
    run(program, {**names, "model": torch.nn.Linear(1, 1), "loader": loader, "path": folder})
    assert [number for batch in loader for number in digits(batch)] == TEN[2:]


# --- JAX, Keras and TensorFlow


def reads_with_jax(first: str, service: str, folder: Path) -> None:
    seen: list[int] = []
    names = {"ds": Dataset.range(10).map(np.int32).batch(2), "sharding": None, "state": None}
    run(first, {**names, "train_step": lambda state, batch: seen.extend(digits(batch))})
    assert seen == TEN
    import jax

    second = OTHERS["JAX"][1]
    names = {"ds": Dataset.range(1280), "service": service, "distribute": distribute, "jax": jax}
    rows = [number for batch in run(second, names)["ds"] for number in digits(batch)]
    assert len({*rows}) == len(rows) > 1280 - 2 * 64  # each of two tasks leaves out a batch


def fits_with_keras(first: str, service: str, folder: Path) -> None:
    import keras

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = np.zeros((8, 1), np.float32)
    ds = Dataset.from_tensor_slices((rows, rows)).batch(2)
    quick = [program.replace("1000", "4") for program in OTHERS["Keras"]]
    names = run(quick[0], {"ds": ds, "model": model})

    saved: list[Any] = []
    dataset = names["PyDataset"](ds, batches=4)
    names |= {"keras": keras, "dataset": dataset, "save": lambda *args: saved.append(args[0])}
    names = run(quick[1].replace("100 == 99", "3 == 2"), names)
    model.fit(dataset, epochs=1, callbacks=[names["Save"]()])
    assert len(saved) == 1

    again = names["PyDataset"](ds, batches=4)
    trained: list[int] = []
    counting = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: trained.append(batch)
    )
    fit = SimpleNamespace(fit=lambda data, **o: model.fit(data, callbacks=[counting], **o))
    run(quick[2], {"dataset": again, "state": saved[0], "model": fit, "epoch": 0, "epochs": 2})
    assert trained == [0, 0, 1, 2, 3]


def reads_with_tensorflow(first: str, service: str, folder: Path) -> None:
    seen: list[int] = []
    note = first.replace("    ...", "    note(batch)")
    names = {"ds": Dataset.range(10).batch(2), "note": lambda batch: seen.extend(digits(batch))}
    run(note, names)
    assert seen == TEN


Check = Callable[[str, str, Path], None]
CHECKS: dict[str, tuple[Check, tuple[str, ...]]] = {
    "How do I use zmqdata with PyTorch?": (wraps_a_dataloader, ("torch",)),
    "How do I read a zmqdata Dataset as tensors?": (reads_a_dataset, ("torch",)),
    "How do I resume in the middle of an epoch?": (resumes_a_loop, ("torch",)),
    "Lightning": (fits_with_lightning, ("torch", "lightning")),
    "accelerate": (prepares_with_accelerate, ("torch", "accelerate")),
    "transformers": (trains_with_transformers, ("torch", "transformers", "accelerate")),
    "StatefulDataLoader of torchdata": (reads_with_torchdata, ("torch", "torchdata")),
    "torch.distributed.checkpoint, with FSDP": (saves_a_checkpoint, ("torch",)),
    "JAX": (reads_with_jax, ("jax",)),
    "Keras": (fits_with_keras, ("keras",)),
    "TensorFlow": (reads_with_tensorflow, ("tensorflow",)),
}


def test_every_program_has_a_check() -> None:
    """Each title with a program on the pages has a check here."""
    assert {*TORCH, *OTHERS} == CHECKS.keys()


@pytest.mark.parametrize(
    "title", [pytest.param(title, marks=needs(*them[1])) for title, them in CHECKS.items()]
)
def test_it_runs(title: str, lasting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs as it is printed, and trains with each number once."""
    monkeypatch.setenv("ZMQDATA_DISPATCHER", lasting)
    CHECKS[title][0]({**TORCH, **OTHERS}[title][0], lasting, tmp_path)
