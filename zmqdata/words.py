"""Types of the arguments that take one of a few words, so that a type checker finds a
mistyped word.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

ProcessingMode: TypeAlias = Literal["parallel_epochs", "distributed_epoch"]
"""tf.data's words for ``ShardingPolicy.OFF`` and ``ShardingPolicy.DYNAMIC``."""
MODE_WORDS = {"OFF": "parallel_epochs", "DYNAMIC": "distributed_epoch"}
"""These words by the names of the policies."""
TargetWorkers: TypeAlias = Literal["AUTO", "ANY", "LOCAL"]
"""The workers that clients read from."""
Transport: TypeAlias = Literal["tcp", "ipc", "shm", "local"]
"""The transport of elements that a client chooses."""
WorkerTransport: TypeAlias = Literal["shm", "ipc", "tcp"]
"""The transport of elements that a worker offers, the best first."""
DeploymentMode: TypeAlias = Literal["COLOCATED", "REMOTE", "HYBRID"]
"""The place of the workers: on the hosts of the clients, elsewhere, or both."""
Compression: TypeAlias = Literal[
    "AUTO", "blosclz", "lz4", "lz4hc", "zlib", "zstd", "GZIP", "ZLIB", "SNAPPY"
]
"""``"AUTO"``, a codec of blosc, or tf.data's word for one."""
FileCompression: TypeAlias = Literal["", "GZIP", "ZLIB"]
"""The compression of files to read; ``""`` for none."""
Finite: TypeAlias = Literal["drop", "pad"]
"""The fate of elements that fill no round of a coordinated read."""
OnError: TypeAlias = Literal["raise", "skip", "retry"]
"""The fate of an element whose function raises."""
OnPoison: TypeAlias = Literal["fail", "skip"]
"""The fate of an element that has killed its worker repeatedly."""
OnExisting: TypeAlias = Literal["share", "new", "continue", "error"]
"""The reaction of a new run that finds the name of its job in use."""
Placement: TypeAlias = Literal["service", "auto"]
"""The place where a pipeline runs."""
