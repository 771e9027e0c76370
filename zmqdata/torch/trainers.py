"""A callback for the ``Trainer`` of transformers, which saves the state of its loader
with each checkpoint.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

if find_spec("transformers") is None:
    raise ImportError(
        "zmqdata.torch.TrainerStateCallback needs transformers, which is not installed here: "
        "pip install transformers"
    )

from transformers.trainer_callback import ExportableState, TrainerCallback

from zmqdata.errors import FailedPreconditionError

NAME = "TrainerStateCallback"
"""Name under which ``trainer_state.json`` has the state."""


class TrainerStateCallback(TrainerCallback, ExportableState):
    """Saves the state of a ``Loader`` with each checkpoint of the ``Trainer`` of
    transformers, and loads it when the training resumes.

    The state is in the file ``trainer_state.json`` of the checkpoint, which rank 0
    writes and all ranks read. Override ``get_train_dataloader`` so that it returns the
    ``Loader``, and pass ``ignore_data_skip=True`` to ``TrainingArguments``: otherwise
    the ``Trainer`` skips batches by taking the loader apart, which only a
    ``DataLoader`` allows.

    Has no counterpart in transformers, which reads all batches again to skip them.

    Raises (when the training begins):
        TypeError: the loader of the ``Trainer`` is not a ``Loader``.
        FailedPreconditionError: ``ignore_data_skip`` is false, or the training resumes
            from a checkpoint that has no state of a loader.

    Example::

        class MyTrainer(transformers.Trainer):
            def get_train_dataloader(self):
                return distribute_dataloader(plain, service)  # your own DataLoader

        args = TrainingArguments(output_dir, ignore_data_skip=True)
        MyTrainer(model, args, callbacks=[zmqdata.torch.TrainerStateCallback()])
    """

    def __init__(self) -> None:
        self._loader: Any = None

    def on_train_begin(
        self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **others: Any
    ) -> None:
        """Check the arguments, and load the state of the checkpoint."""
        if not hasattr(train_dataloader, "trainer_state"):
            raise TypeError(
                "TrainerStateCallback saves the state of a zmqdata.torch.Loader, and this Trainer "
                f"trains with a {type(train_dataloader).__name__}. Override "
                "`get_train_dataloader` so that it returns the Loader"
            )
        if not args.ignore_data_skip:
            raise FailedPreconditionError(
                "TrainerStateCallback needs `ignore_data_skip=True` in the TrainingArguments. "
                "Without it, a training that resumes skips the batches that it has had, after "
                "the loader has skipped them, and it takes a DataLoader apart for that"
            )
        self._loader = train_dataloader
        if state.global_step:
            train_dataloader.load_trainer_state(_saved(state))

    def state(self) -> dict[str, Any]:
        """Return the state of the loader, as the ``Trainer`` saves it."""
        saved = None if self._loader is None else self._loader.trainer_state()
        return {"args": {}, "attributes": {"saved": saved}}


def _saved(state: Any) -> Any:
    """Return the state of the loader that is in the state of the ``Trainer``.

    Raises:
        FailedPreconditionError: there is none.
    """
    kept = state.stateful_callbacks.get(NAME, {})
    kept = kept[0] if isinstance(kept, list) else kept
    saved = kept.get("attributes", {}).get("saved")
    if saved is None:
        raise FailedPreconditionError(
            f"the checkpoint of step {state.global_step} has no state of a loader: it was saved "
            "without TrainerStateCallback. Resume from another checkpoint, or without the "
            "callback, in which case the epoch begins with its first batch again"
        )
    return saved
