"""Numbering of the repetitions that the iterators of a distributed dataset read, and
resuming from a state.
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
    """Counter of the iterators of a dataset object, each of which reads the next
    repetition.

    Attributes:
        seed: seed of a promised order if a state was loaded, or None for this program's
            seed.

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
        """Return the profile of a reader that resumes from a state. Later readers read
        the repetitions that follow.

        Raises:
            DataLossError: the state is damaged.
            InvalidArgumentError: it is not a state, or it is too large to be sent.
        """
        checkpoint = _decoded(state)
        self._numbers = itertools.count(checkpoint.repetition + 1)
        self.seed = checkpoint.job.seed
        job = msgspec.structs.replace(profile.job, seed=checkpoint.job.seed)
        # A state taken before the iteration was known contains nothing to resume from.
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
            "The state of a distributed dataset must be bytes, got "
            f"{type(state).__name__}. Load it into a pipeline that has `distribute` "
            "at the same place."
        )
    if len(state) > MOST_CHECKPOINT_BYTES:
        raise InvalidArgumentError(
            f"The state of the distributed dataset has {len(state) / 1e6:.1f} MB, and "
            f"a dispatcher accepts at most {MOST_CHECKPOINT_BYTES / 1e6:.1f} MB."
        )
    return m.decode_checkpoint(state)
