"""Numbering of the repetitions that the iterators of a distributed dataset read, and
resuming from a state.
"""

from __future__ import annotations

import base64
import os
import secrets
import threading
from dataclasses import replace
from typing import Any

import msgspec

from zmqdata import messages as m
from zmqdata.core.client.decider import ClientProfile
from zmqdata.core.limits import MOST_CHECKPOINT_BYTES
from zmqdata.errors import DataLossError, InvalidArgumentError
from zmqdata.printable import shown_size


class Repetitions:
    """Counter of the iterators of a dataset object, each of which reads the next
    repetition.

    Args:
        begun: number of iterators that were made of the object, or of the one that it
            is a copy of, so far.

    Attributes:
        seed: seed of a promised order if a state was loaded, or None for this program's
            seed.

    >>> repetitions = Repetitions()
    >>> next(repetitions), next(repetitions)
    (0, 1)
    """

    def __init__(self, begun: int = 0) -> None:
        self.seed: int | None = None
        self.begun = begun
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._turns = 0

    def __next__(self) -> int:
        return self.begin()[0]

    def begin(self) -> tuple[int, int]:
        """Count another iterator.

        Returns:
            Number of the iterator, and its number among those of this process alone.
        """
        if self._process != os.getpid():  # a fork may have copied the lock while it was held
            self._lock, self._process, self._turns = threading.Lock(), os.getpid(), 0
        with self._lock:
            self.begun += 1
            self._turns += 1
            return self.begun - 1, self._turns - 1

    def resumed(self, profile: ClientProfile, state: Any) -> ClientProfile:
        """Return the profile of a reader that resumes from a state. Later readers read
        the repetitions that follow.

        Raises:
            DataLossError: the state is damaged.
            InvalidArgumentError: it is not a state, or it is too large to be sent.
        """
        content, checkpoint = _decoded(state)
        if None not in (checkpoint.reader.consumer_index, profile.reader.consumer_index):
            # Consumers read in step, so the state of one is that of all. Some training
            # libraries save that of the first rank alone.
            checkpoint = msgspec.structs.replace(checkpoint, reader=profile.reader)
            content = m.encode_checkpoint(checkpoint)
        with self._lock:
            self.begun = checkpoint.repetition + 1
        self.seed = checkpoint.job.seed
        job = msgspec.structs.replace(profile.job, seed=checkpoint.job.seed)
        return replace(
            profile,
            client=secrets.token_hex(16),
            job=job,
            repetition=checkpoint.repetition,
            resume=content,
        )


def _decoded(state: Any) -> tuple[bytes, m.Checkpoint]:
    if not isinstance(state, str):
        raise InvalidArgumentError(
            "The state of a distributed dataset must be a base64 text, got "
            f"{type(state).__name__}. Load it into a pipeline that has `distribute` "
            "at the same place."
        )
    try:
        content = base64.b64decode(state, validate=True)
    except ValueError:
        raise DataLossError(
            "The state of the distributed dataset is damaged: it is not base64. Load an older "
            "state."
        ) from None
    if len(content) > MOST_CHECKPOINT_BYTES:
        raise InvalidArgumentError(
            f"The state of the distributed dataset has {shown_size(len(content))}, and "
            f"a dispatcher accepts at most {shown_size(MOST_CHECKPOINT_BYTES)}."
        )
    return content, m.decode_checkpoint(content)
