"""Batches for PyTorch: ``Loader`` over any dataset, and ``distribute_dataloader`` for
an existing ``DataLoader``.

    from zmqdata.torch import distribute_dataloader

    loader = distribute_dataloader(loader, "tcp://dispatcher:5050")

It needs torch: ``pip install 'zmqdata[torch]'``.
"""

from __future__ import annotations

try:
    import torch  # noqa: F401 - so that its absence is an error with a remedy
except ImportError as error:
    raise ImportError(
        "`zmqdata.torch` needs torch, which is not installed here: `pip install 'zmqdata[torch]'`"
    ) from error

from zmqdata.torch.dataloaders import distribute_dataloader
from zmqdata.torch.loader import Loader

__all__ = ["Loader", "distribute_dataloader"]
