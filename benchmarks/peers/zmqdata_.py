"""zmqdata with all defaults: a ``LocalCluster``, journal on, splits handed out as
needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import zmqdata
from benchmarks.reading import Peer, Turn
from benchmarks.workloads import ENDLESS, Make

SETTINGS = {
    "default": "no argument but the service",
    "tcp": (
        'data_transfer_protocol="tcp", insecure=True: as if the workers were on another '
        "machine, and not encrypted"
    ),
    "tcp, encrypted": 'data_transfer_protocol="tcp": the same, encrypted, as it is by default',
    "local": "without distribute: the pipeline runs in the training loop",
    "placement auto": 'placement="auto": in the training loop if shipping costs more than making',
}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "tcp": {"data_transfer_protocol": "tcp"},
    "tcp, encrypted": {"data_transfer_protocol": "tcp"},
    "placement auto": {"placement": "auto"},
}
INSECURE = frozenset({"tcp"})
"""Settings without encryption, like the peers, so that only the transport is
compared.
"""


class Measured(Peer):
    """zmqdata. Clusters stay between turns; every turn opens a new job."""

    packages = ("zmqdata", "numpy", "pyzmq", "blosc")

    def __init__(self, service: str = "") -> None:
        super().__init__(service)
        self._clusters: dict[tuple[int, bool], zmqdata.LocalCluster] = {}

    def prepare(self, turn: Turn) -> None:
        wanted = turn.workers, turn.setting in INSECURE
        if not self.service and turn.setting != "local" and wanted not in self._clusters:
            if any(workers != turn.workers for workers, _ in self._clusters):
                self.forget()
            self._clusters[wanted] = zmqdata.LocalCluster(turn.workers, insecure=wanted[1])

    @contextlib.contextmanager
    def read(self, turn: Turn) -> Iterator[Iterator[Any]]:
        dataset = zmqdata.Dataset.range(ENDLESS)
        if turn.element != "scalars":
            dataset = dataset.map(Make(turn.element, turn.spins))
        if turn.setting != "local":
            is_insecure = turn.setting in INSECURE
            zmqdata.use_key_file(insecure=is_insecure)
            service = self.service or self._clusters[turn.workers, is_insecure].target
            options = OPTIONS[turn.setting]
            dataset = dataset.apply(zmqdata.distribute("distributed_epoch", service, **options))
        elements = iter(dataset)
        try:
            yield elements
        finally:
            elements.close()

    def forget(self) -> None:
        while self._clusters:
            self._clusters.popitem()[1].close()
