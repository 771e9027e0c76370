"""Refusals and warnings at the call of ``distribute_dataloader``: loaders whose
batches do not follow from their attributes, and options that follow from the loader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import Module
from torch.utils.data import DataLoader, IterableDataset

from zmqdata.config.settings import warn_user
from zmqdata.errors import InvalidArgumentError
from zmqdata.torch.orders import samplers, takes_epoch

_OURS = frozenset(
    {
        "processing_mode",
        "deterministic",
        "consumer_index",
        "num_consumers",
        "finite",
        "job_name",
        "on_existing",
        "cross_trainer_cache",
        "placement",
        "allow_objects",
    }
)
"""Options of ``distribute`` that follow from the loader."""


def check_options(names: Iterable[str]) -> None:
    """Raise an error for options of ``distribute`` that follow from the loader."""
    wrong = sorted(_OURS & {*names})
    if "job_name" in wrong or "on_existing" in wrong:
        raise InvalidArgumentError(
            f"`{wrong[-1]}` cannot be passed to distribute_dataloader: each pass is a job of its "
            "own, which ranks that read equal loaders share by themselves. Leave it out. To go on "
            "after a restart, save `loader.state_dict()`, and load it into the new loader"
        )
    if wrong:
        raise InvalidArgumentError(
            f"`{wrong[0]}` cannot be passed to distribute_dataloader: it follows from the "
            "loader, whose batches come in its own order, each once. Leave it out"
        )


def check_kind(loader: DataLoader[Any]) -> None:
    """Raise an error for a loader whose batches do not follow from its attributes."""
    if isinstance(loader.dataset, getattr(torch.utils.data, "IterDataPipe", ())):
        raise InvalidArgumentError(
            "the dataset is an IterDataPipe, which torch's DataLoader seeds and shards by rules "
            "of its own, so the batches would not be equal. Wrap its source in an "
            "IterableDataset, or read it with a zmqdata Dataset"
        )
    kind = type(loader)
    if kind.__module__.startswith("torchdata."):
        _check_stateful(loader)
    elif kind.__iter__ is not DataLoader.__iter__:
        raise InvalidArgumentError(
            f"the loader is a {kind.__name__}, which overrides `__iter__`. Its batches follow from "
            "that method, and not from its dataset, sampler and collate_fn alone, so workers "
            "cannot make them. Pass a torch.utils.data.DataLoader with these"
        )


def _check_stateful(loader: DataLoader[Any]) -> None:
    """Raise an error for a ``StatefulDataLoader`` of torchdata whose batches are not
    those of a ``DataLoader``.
    """
    if loader.num_workers:
        raise InvalidArgumentError(
            "the loader is a StatefulDataLoader with processes, which draws another order than "
            "torch's DataLoader. Pass a torch.utils.data.DataLoader with these arguments: the "
            "Loader has states of its own"
        )
    if getattr(loader, "next_iter_state", None) is not None:
        raise InvalidArgumentError(
            "a state was loaded into the StatefulDataLoader, which the Loader cannot read. Pass a "
            "torch.utils.data.DataLoader, and load a state of the Loader"
        )


def warn_of_state(loader: DataLoader[Any]) -> None:
    """Warn of an iterable-style dataset that torch keeps from pass to pass, and of
    which the service opens a copy for each pass.
    """
    dataset: Any = loader.dataset
    is_kept = loader.persistent_workers or not (loader.num_workers or takes_epoch(dataset))
    if not isinstance(dataset, IterableDataset) or not is_kept:
        return
    cause, remedy = "num_workers=0", "pass `num_workers=1`"
    if loader.persistent_workers:
        cause, remedy = "persistent_workers=True", "leave `persistent_workers` out"
    warn_user(
        f"each pass reads a new copy of the iterable-style dataset {type(dataset).__name__}. With "
        f"{cause}, a DataLoader keeps one from pass to pass. If the dataset counts its passes, it "
        "stays in the first one here. Let it depend on a method `set_epoch(epoch)` of its own, "
        f"and call `loader.set_epoch(epoch)` before each pass. If it counts none, {remedy}: a "
        "DataLoader then reads a new copy in each pass, too, and this warning is gone"
    )


def check_samplers(loader: DataLoader[Any]) -> None:
    """Raise an error for a sampler that looks at what the model makes of the batches,
    because the order of a pass is drawn before the first batch.
    """
    for sampler in samplers(loader):
        for name, value in getattr(sampler, "__dict__", {}).items():
            if isinstance(value, Module):
                raise InvalidArgumentError(
                    f"the sampler {type(sampler).__name__} holds a model in `{name}`, so its order "
                    "may depend on results of the training. The order of a pass is drawn when "
                    "the pass begins. Let the sampler draw from numbers that are computed before"
                )
