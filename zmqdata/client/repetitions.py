"""Which repetition of a job the iterators of a distributed dataset read, and how they
go on from a state.
"""

from __future__ import annotations

import itertools
import secrets
from dataclasses import replace
from typing import Any

import msgspec

from zmqdata import messages as m
from zmqdata.core.client.decider import ClientProfile
from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.errors import InvalidArgumentError


class Repetitions:
    """Numbers the iterators of one dataset object: each reads the next repetition.

    Attributes:
        seed: that of a promised order, if it comes from a state that was loaded; None:
            this program's.

    >>> repetitions = Repetitions()
    >>> next(repetitions), next(repetitions)
    (0, 1)
    """

    def __init__(self) -> None:
        self.seed: int | None = None
        self._numbers = itertools.count()

    def __next__(self) -> int:
        return next(self._numbers)

    def resumed(self, profile: ClientProfile, state: Any) -> ClientProfile:
        """The profile of a reader that goes on from a state; those after it read the
        repetitions that follow.

        Raises:
            DataLossError: it is damaged.
            InvalidArgumentError: it is no state, or one that cannot be sent.
        """
        checkpoint = _decoded(state)
        self._numbers = itertools.count(checkpoint.repetition + 1)
        self.seed = checkpoint.job.seed
        job = msgspec.structs.replace(profile.job, seed=checkpoint.job.seed)
        # Before anything was known of the iteration there was nothing of it to go on
        # from.
        resume = state if checkpoint.fingerprint else b""
        return replace(
            profile,
            client=secrets.token_hex(16),
            job=job,
            repetition=checkpoint.repetition,
            resume=resume,
        )


def _decoded(state: Any) -> m.Checkpoint:
    if not isinstance(state, bytes):
        raise InvalidArgumentError(
            f"the state of a distributed dataset is bytes, got {type(state).__name__}: was it "
            "taken from a pipeline "
            "that has distribute() at the same place?"
        )
    if len(state) > MOST_CHECKPOINT_BYTES:
        raise InvalidArgumentError(
            f"the state of the distributed dataset has {len(state) / 1e6:.1f} MB, more than the "
            f"{MOST_CHECKPOINT_BYTES / 1e6:.1f} MB that a dispatcher takes"
        )
    return m.decode_checkpoint(state)
