"""How an iteration is divided among workers, in tf.data's words."""

from __future__ import annotations

from enum import Enum


class ShardingPolicy(Enum):
    """How the workers of a job share its input (tf.data's ``ShardingPolicy``).

    * ``OFF``: each worker reads everything, in its own order; the job gives as many copies as there are workers.
    * ``DYNAMIC``: the dispatcher hands each split of the sources to one worker; the job gives every element once.

    The others are static: worker i of the n in the dispatcher's ``worker_addresses`` takes part i, and only that.

    * ``FILE``: each worker reads its part of the files. There must be a reader of files, and as many files as workers.
    * ``DATA``: each worker runs all of the pipeline and keeps every n-th of its elements.
    * ``FILE_OR_DATA``: as ``FILE`` where the pipeline reads files, else as ``DATA``.
    * ``HINT``: ``shard(SHARD_HINT, SHARD_HINT)`` in the pipeline says where it is divided.
    """

    OFF = 0
    DYNAMIC = 1
    FILE = 2
    DATA = 3
    FILE_OR_DATA = 4
    HINT = 5


STRINGS = {"parallel_epochs": ShardingPolicy.OFF, "distributed_epoch": ShardingPolicy.DYNAMIC}


def parse_processing_mode(processing_mode: object) -> ShardingPolicy:
    """The policy that a user names by enum or by tf.data's strings.

    Raises:
        ValueError: it is neither.

    Example:
        >>> parse_processing_mode("distributed_epoch")
        <ShardingPolicy.DYNAMIC: 1>
    """
    policy = STRINGS.get(processing_mode) if isinstance(processing_mode, str) else processing_mode
    if not isinstance(policy, ShardingPolicy):
        raise ValueError(
            f"`processing_mode` must be a ShardingPolicy ({', '.join(ShardingPolicy.__members__)}), "
            f"{' or '.join(map(repr, STRINGS))}. Got {processing_mode!r}."
        )
    return policy
