"""Batches for PyTorch: ``Loader`` over any dataset, and ``distribute_dataloader`` for
an existing ``DataLoader``.

    from zmqdata.torch import distribute_dataloader

    loader = distribute_dataloader(loader, "tcp://dispatcher:5050")

It needs torch: ``pip install 'zmqdata[torch]'``.
"""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError(
        "zmqdata.torch needs torch, which is not installed here: pip install 'zmqdata[torch]'"
    )

from zmqdata.torch.dataloaders import distribute_dataloader
from zmqdata.torch.loader import Loader

__all__ = ["Loader", "distribute_dataloader"]
