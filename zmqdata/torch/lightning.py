"""The callback that Lightning needs beside a ``Loader``, and finds by itself, and one
that logs why the training waits.

Lightning takes a batch ahead of its loop if it does not know how many come, ends passes
without asking for their end, and loads no state of a loader from the end of an epoch.
The callback makes the states exact. Lightning is imported only if it is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import weakref
from functools import cache
from typing import Any

from zmqdata.config.settings import warn_user

PACKAGES = ("lightning.pytorch", "pytorch_lightning")
"""The names under which Lightning is installed, the newer one first."""
_READERS = frozenset(f"{package}.utilities.combined_loader" for package in PACKAGES)
"""Modules that iterate over loaders."""
_PROBES = frozenset(f"{package}.trainer.connectors.data_connector" for package in PACKAGES)
"""Modules that look if loaders can be iterated over."""
_callbacks: weakref.WeakSet[LoaderStates] = weakref.WeakSet()
_fitting: weakref.WeakSet[Any] = weakref.WeakSet()
"""The trainers that fit a model."""


class LoaderStates:
    """Hooks of a callback of Lightning that make the states of each ``Loader`` exact,
    in the middle of an epoch and at its end, and also if the number of batches is not
    known.

    ``zmqdata.torch.LightningStateCallback`` is the callback. Lightning adds it to each
    trainer, because an entry point of zmqdata names it. Pass it to the ``Trainer`` only
    if zmqdata is not installed as a package.

    Has no counterpart in torch.
    """

    def __init__(self) -> None:
        super().__init__()
        _callbacks.add(self)

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Expect a training."""
        if stage == "fit":
            _fitting.add(trainer)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Expect no more of the training."""
        _fitting.discard(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Expect no more of a training that has failed."""
        _fitting.discard(trainer)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Load the states of a checkpoint from the end of an epoch, which Lightning
        leaves out.
        """
        loop = trainer.fit_loop
        left_out = loop._combined_loader_states_to_load
        if left_out:
            for loader, state in zip(_stateful(loop), left_out, strict=False):
                if _is_ours(loader):
                    loader.close()
                    loader.load_state_dict(state)
            loop._combined_loader_states_to_load = []
            iter(loop._data_fetcher)
        for loader in filter(_is_ours, _stateful(loop)):
            loader.settle()  # the loaders for validation have drawn, too
            loader.trainer_state(_prefetched(loop))  # raises now what saving would raise

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Set the states to the step that the training is at."""
        loop = trainer.fit_loop
        saved = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {})
        states = saved.get("combined_loader", [])
        is_over = loop._data_fetcher is not None and loop._data_fetcher.done
        for number, loader in enumerate(_stateful(loop) if states else []):
            if _is_ours(loader):
                states[number] = loader.trainer_state(_prefetched(loop), is_over)


class LoaderStats:
    """Hooks of a callback of Lightning that log why the training waits for its input:
    the numbers of ``Loader.stats``, such as ``data/wait_share`` and ``data/wait_ms``.

    ``zmqdata.torch.LightningStatsCallback`` is the callback. It logs to each logger of
    the trainer, each ``log_every_n_steps`` steps.

    Has no counterpart in torch. Lightning has ``DeviceStatsMonitor``.

    Raises (while the model is trained):
        FailedPreconditionError: the batches do not come from the service.

    Example::

        stats = zmqdata.torch.LightningStatsCallback()
        lightning.Trainer(callbacks=[stats]).fit(model, loader)
    """

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Log the numbers of each ``Loader`` if it is time for that."""
        if trainer.global_step % max(1, trainer.log_every_n_steps):
            return
        for number, loader in enumerate(filter(_is_ours, _stateful(trainer.fit_loop))):
            found = loader.stats(scalars=True)
            if number:
                found = {f"{name}/{number}": value for name, value in found.items()}
            for logger in trainer.loggers:
                logger.log_metrics(found, step=trainer.global_step)


def _stateful(loop: Any) -> list[Any]:
    """Return the loaders whose states Lightning saves, in its order."""
    loaders = [] if loop._combined_loader is None else loop._combined_loader.flattened
    return [
        one for one in loaders if hasattr(one, "state_dict") and hasattr(one, "load_state_dict")
    ]


def _is_ours(loader: Any) -> bool:
    return hasattr(loader, "trainer_state")


def _prefetched(loop: Any) -> int:
    """Return the number of batches that Lightning has prefetched for later steps."""
    return len(getattr(loop._data_fetcher, "batches", ()))


def probes(caller: str) -> bool:
    """Return True if the caller of ``iter`` drops the iterator. Lightning does so with
    each loader that is no ``DataLoader``.

    Args:
        caller: name of its module.
    """
    return caller in _PROBES


def prefetches(caller: str) -> bool:
    """Return True if the caller of ``iter`` may prefetch a batch for the next step.

    Args:
        caller: name of its module.
    """
    if caller not in _READERS:
        return False
    if not _callbacks:
        warn_user(
            "Lightning takes a batch ahead of its loop, because the number of batches is not "
            "known, and saves states that leave this batch out. Pass `batches=` to the Loader, "
            "or `callbacks=[zmqdata.torch.LightningStateCallback()]` to the Trainer. Lightning "
            "adds this callback by itself where zmqdata is installed as a package"
        )
    return any(trainer.training for trainer in _fitting)


_HOOKS = {"LightningStateCallback": LoaderStates, "LightningStatsCallback": LoaderStats}


@cache
def callback_class(package: str, name: str) -> type:
    """Return a callback for Lightning.

    Args:
        package: name under which Lightning is installed.
        name: name of the callback.
    """
    base, hooks = importlib.import_module(package).Callback, _HOOKS[name]
    return type(name, (hooks, base), {"__doc__": hooks.__doc__})


def callbacks() -> list[Any]:
    """Return the callbacks of each trainer of ``lightning``."""
    return [callback_class("lightning.pytorch", "LightningStateCallback")()]


def callbacks_of_old_name() -> list[Any]:
    """Return the callbacks of each trainer of ``pytorch_lightning``."""
    return [callback_class("pytorch_lightning", "LightningStateCallback")()]


def __getattr__(name: str) -> Any:
    """Return a callback, for the package that the program uses."""
    if name not in _HOOKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for package in sorted(PACKAGES, key=lambda one: one not in sys.modules):
        if importlib.util.find_spec(package.partition(".")[0]) is not None:
            return callback_class(package, name)
    raise ImportError(
        f"zmqdata.torch.{name} needs Lightning, which is not installed here: pip install lightning"
    )
