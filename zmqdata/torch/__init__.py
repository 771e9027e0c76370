"""Batches for PyTorch: ``Loader`` over any dataset, and ``distribute_dataloader`` for
an existing ``DataLoader``.

    from zmqdata.torch import distribute_dataloader

    loader = distribute_dataloader(loader, "tcp://dispatcher:5050")

It needs torch: ``pip install 'zmqdata[torch]'``. Names are imported on first use, so
the callbacks need their libraries only where they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    import torch  # noqa: F401 - so that its absence is an error with a remedy
except ImportError as error:
    raise ImportError(
        "`zmqdata.torch` needs torch, which is not installed here: `pip install 'zmqdata[torch]'`"
    ) from error

if TYPE_CHECKING:
    from zmqdata.torch.dataloaders import distribute_dataloader as distribute_dataloader
    from zmqdata.torch.lightning import LoaderStates as LightningStateCallback
    from zmqdata.torch.lightning import LoaderStats as LightningStatsCallback
    from zmqdata.torch.loader import Loader as Loader
    from zmqdata.torch.trainers import TrainerStateCallback as TrainerStateCallback

_HOMES = {
    "LightningStateCallback": "zmqdata.torch.lightning",
    "LightningStatsCallback": "zmqdata.torch.lightning",
    "Loader": "zmqdata.torch.loader",
    "TrainerStateCallback": "zmqdata.torch.trainers",
    "distribute_dataloader": "zmqdata.torch.dataloaders",
}

__all__ = [
    "Loader",
    "distribute_dataloader",
    "LightningStateCallback",
    "LightningStatsCallback",
    "TrainerStateCallback",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
