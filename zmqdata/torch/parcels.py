"""Sending of the parts of a ``DataLoader`` that workers open: when they have changed,
for all ranks by rank 0, and with ``persistent_workers=True`` once.
"""

from __future__ import annotations

import logging
import secrets
import time
import weakref
from collections.abc import Callable
from typing import Any

import msgspec
from torch.utils.data import DataLoader

from zmqdata.client.registration import Registration, describe_dataset, keep_registered
from zmqdata.errors import NotFoundError
from zmqdata.pipelines import PackedPipeline, pack_sources
from zmqdata.pipelines.packing import poll_at
from zmqdata.pipelines.parcels import Parcel
from zmqdata.pipelines.weighing import say_slow
from zmqdata.torch.fetching import LoaderParts
from zmqdata.torch.ranks import Consumer, is_first, rank_and_world, value_of_first

log = logging.getLogger(__name__)


class ParcelTerms(msgspec.Struct, frozen=True):
    """The message of rank 0 to the other ranks about what workers open."""

    packed: bytes
    """The facts that a worker needs to open it, encoded."""
    sizes: dict[str, int]
    """Numbers of bytes of what it consists of, by digest."""
    anchor_id: str
    """Id of the dataset for which workers keep it opened; "" if they do not."""


class LoaderParcel:
    """The parts of a ``DataLoader``, pass by pass.

    Args:
        loader: the loader.
        site: line of the user's code that made it.
        ship: source code that is shipped with it.
        register: returns the registration of a pipeline without batches.

    Attributes:
        parcel: holds the parts.
    """

    def __init__(
        self, loader: DataLoader[Any], site: str, ship: Any, register: Callable[[], Registration]
    ) -> None:
        self._loader, self._ship, self._register = loader, ship, register
        self.parcel = Parcel(None, f"the DataLoader at {site}", _advice(loader))
        self._anchor_id = ""
        self._own: PackedPipeline | None = None
        self._anchor: Registration | None = None
        self._passes = 0
        self._is_sent = self._is_other = self._is_warned = False

    @property
    def persists(self) -> bool:
        """True if the parts of the first pass serve all later ones."""
        return bool(self._loader.persistent_workers)

    def pack(self, keeps: bool = False) -> bool:
        """Note what the loader holds now. Return True if it has changed.

        Args:
            keeps: True to keep the bytes until they are sent.
        """
        loader, parcel, began = self._loader, self.parcel, time.monotonic()
        parcel.value = LoaderParts(
            loader.worker_init_fn,
            loader.collate_fn,
            loader.dataset,
            loader._auto_collation,
            loader.num_workers,
            loader.batch_size,
            loader.drop_last,
        )
        parcel.sources = dict(pack_sources(self._ship))
        if parcel.is_of_other:
            parcel.packed, parcel.is_of_other = self._own, False
        is_changed = poll_at(parcel, keeps)
        say_slow(parcel, "packing", time.monotonic() - began)
        return is_changed

    def begin(self, consumer: Consumer, name: str, patience: float, is_new: bool) -> None:
        """Note what workers open in the next pass, for all ranks what rank 0 holds.

        Args:
            consumer: the consumer that reads.
            name: name that the loaders of all ranks have in common.
            patience: seconds to wait for rank 0.
            is_new: True if each task opens a copy. It does so of an iterable-style
                dataset, and if a state is continued, as its tasks serve other virtual
                workers.
        """
        parcel = self.parcel
        self._passes += consumer.agrees
        name = f"{name}/parcel-{self._passes}"
        if is_first(consumer):
            if not (self.persists and self._is_kept()):
                self._send(consumer)
            terms = ParcelTerms(parcel.packed.encoded, parcel.sizes, self._anchor_id)
            value_of_first(consumer, name, msgspec.msgpack.encode(terms), patience)
        else:
            self._follow(consumer, name, patience)
        place = f"{consumer.index}/{rank_and_world()[0]}"
        parcel.key = f"{self._anchor_id}/{place}" if self._anchor_id and not is_new else ""

    def _send(self, consumer: Consumer) -> None:
        """Look at the parts. Send them before other ranks name them, and if they serve
        later passes, too.
        """
        is_changed = self.pack(keeps=not self._is_sent)
        self._is_sent = True
        if self.persists:
            self.parcel.key = secrets.token_hex(8)  # loaders over equal data share no copies
            self._anchor = self._register()
            self._anchor_id = self._anchor.resolve()
            weakref.finalize(self, keep_registered(self._anchor.service, self._anchor_id))
        elif consumer.agrees and (is_changed or self._passes == 1):
            self._register().resolve()

    def _is_kept(self) -> bool:
        """Return True if the dispatcher has the parts of the first pass. Say so if it
        has lost them.
        """
        if self._anchor is None:
            return False
        try:
            describe_dataset(self._anchor.service, self._anchor_id, self._anchor.timeout)
            return True
        except NotFoundError:
            log.warning(
                "the dispatcher has lost what %s sent (was it started again without its work "
                "folder?). It is packed and sent anew, as it is now, and the copies that workers "
                "kept are gone",
                self.parcel.name,
            )
            return False

    def _follow(self, consumer: Consumer, name: str, patience: float) -> None:
        """Name what rank 0 has sent."""
        parcel = self.parcel
        if not self._anchor_id:
            self.pack()
        published = value_of_first(consumer, name, b"", patience)
        terms = msgspec.msgpack.decode(published, type=ParcelTerms)
        if self._anchor_id not in ("", terms.anchor_id):
            self.pack()
        if not parcel.is_of_other:
            self._own = parcel.packed
        self._anchor_id, parcel.sizes = terms.anchor_id, terms.sizes
        parcel.packed, parcel.is_of_other = PackedPipeline.decode(terms.packed), True
        assert self._own is not None
        if parcel.packed.fingerprint != self._own.fingerprint and not self._is_other:
            self._is_other = True
            log.warning(
                "%s holds other data for consumer %d than for rank 0: workers make the batches of "
                "all ranks by the dataset and collate_fn of rank 0. Give all ranks equal ones, or "
                "pass `num_consumers=1` if each rank reads data of its own",
                parcel.name,
                consumer.index,
            )

    def set_epoch(self, number: int) -> None:
        """Tell the dataset the number of the next pass, and warn once if that changes
        no batch.
        """
        dataset: Any = self._loader.dataset
        if self._anchor_id and not self._is_warned:
            self._is_warned = True
            log.warning(
                "set_epoch(%d) of the dataset of %s has no effect: with persistent_workers=True, "
                "workers keep the dataset of the first pass. Leave persistent_workers out, or let "
                "the sampler depend on the epoch",
                number,
                self.parcel.name,
            )
        dataset.set_epoch(number)


def _advice(loader: DataLoader[Any]) -> str:
    copies = f"Each of the {loader.num_workers} virtual workers" if loader.num_workers else "A task"
    looks = "" if loader.persistent_workers else "Each pass looks for changes and opens copies. "
    persist = "" if loader.persistent_workers else ", or pass persistent_workers=True"
    return (
        f"{looks}{copies} opens a copy, which takes at least this much memory. Hold the values in "
        "a numpy or Arrow array, which takes less, or in a memory map, which takes next to nothing"
        f"{persist}"
    )
