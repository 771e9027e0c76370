"""Registered datasets: which dataset is stored under which id, and which of them are no
longer needed.

Decision 0005; protocol 2.1 to 2.6 and 2.10.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from zmqdata import messages as m
from zmqdata import updates as u
from zmqdata.core.dispatcher.events import DropPipeline, Peer, SendPipeline, StorePipeline
from zmqdata.core.dispatcher.peers.liveness import Roster
from zmqdata.core.dispatcher.pipelines import UNUSED_FOR, Parts
from zmqdata.core.dispatcher.state.outbox import Outbox
from zmqdata.core.limits import (
    MOST_CHECKS,
    MOST_DATASETS,
    MOST_REGISTERED_BYTES,
    too_long,
    too_many,
)
from zmqdata.elements.specs import decode_spec
from zmqdata.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    MissingDtypeError,
    NotFoundError,
    ProtocolError,
    ResourceExhaustedError,
)

UNASKED_FOR = 120.0
"""Seconds without a request after which the opened parcels of a dataset are dropped."""
UNUSED_AT_LEAST = 30.0
"""Minimum number of seconds for which an unused dataset is kept."""
CHECK_FOR = 10.0
"""Seconds for which a registration waits for workers that look at its files."""
CHECKED_FOR = 600.0
"""Seconds for which the answers of workers hold. A client may send parts meanwhile."""


@dataclass
class FileCheck:
    """A registration of a pipeline that maps files, at which workers look."""

    peer: Peer
    """The client."""
    ask: m.RegisterDataset
    """The registration."""
    since: float
    """When the workers were asked."""
    waiting: set[str]
    """Workers that have not answered."""


class Datasets:
    """Registers and describes datasets, and removes datasets that were registered for a
    single reader once it is gone.

    Args:
        out: state and commands.
        workers: the living workers.
        gc_timeout: seconds without use after which a dataset that is not kept is
            removed; below zero: never.
    """

    def __init__(self, out: Outbox, workers: Roster, gc_timeout: float) -> None:
        self.out = out
        self.workers = workers
        self.gc_timeout = gc_timeout
        self.used_at: dict[str, float] = {}
        self.parts = Parts(out)
        self.checks: dict[str, FileCheck] = {}
        self._sizes: dict[str, int] = {}

    def register(self, peer: Peer, ask: m.RegisterDataset, now: float) -> None:
        """Register a dataset, or send the id of an equal dataset whose id was not
        chosen either. First ask the workers for the files that it maps, and then the
        client for parts that are missing.
        """
        known, digest = self.out.state.datasets, ask.description.digest
        if mistake := _mistake(ask.description) or too_long(
            {"name of a dataset": ask.dataset_id or ""}
        ):
            self.out.refuse(peer, ask.request, InvalidArgumentError, mistake)
            return
        found = ask.dataset_id
        if found is None:
            # The jobs of an id that a user has chosen belong to that user.
            own = (name for name in known if _is_number(name))
            found = next((name for name in own if _stands_for(known[name], ask.description)), None)
        elif found in known and (
            difference := _structure_difference(known[found], ask.description)
        ):
            text = (
                "Datasets with the same ID should have the same structure, "
                f"got diff for {found}: {difference}"
            )
            self.out.refuse(peer, ask.request, InvalidArgumentError, text)
            return
        elif found in known and _content(known[found]) != _content(ask.description):
            text = (
                f"dataset {found} is registered again with other content, which is "
                "ignored: the first one stays"
            )
            self.out.note("warning", text)
        many = (
            (too_many("datasets", len(known), MOST_DATASETS) or self._too_large(ask))
            if found not in known
            else ""
        )
        if many:
            self.out.refuse(peer, ask.request, ResourceExhaustedError, many)
            return
        if ask.maps and not self._are_files_checked(peer, ask, now):
            return
        # Under an existing id, the dataset that was registered first stays.
        wanted = found not in known or known[found].digest == digest
        missing = self.parts.missing(ask.description.parts) if wanted else None
        if missing is not None:
            self.parts.ask_for(peer, ask.request, missing, now)
            return
        kept = ask.dataset_id is not None or ask.keep
        if found is None or found not in known:
            found = found or self._free_id()
            if ask.pipeline:
                self.out.commands.append(StorePipeline(digest, ask.pipeline))
            self._sizes[found] = _size(ask.description) + len(ask.pipeline)
            self.out.commit(u.RegisterDatasetUpdate(found, ask.description, kept))
        elif kept and found not in self.out.state.kept:
            self.out.commit(u.RegisterDatasetUpdate(found, known[found], kept))
        self.checks.pop(ask.request, None)
        self.used_at[found] = now
        self.out.send(peer, m.DatasetRegistered(ask.request, found))

    def _are_files_checked(self, peer: Peer, ask: m.RegisterDataset, now: float) -> bool:
        """Return True once all workers have looked at the files that a pipeline maps.
        They are asked once for each request.
        """
        check = self.checks.get(ask.request)
        if check is None:
            if many := too_many("registrations that map files", len(self.checks), MOST_CHECKS):
                self.out.refuse(peer, ask.request, ResourceExhaustedError, many)
                return False
            asked = [one for one in self.workers.members.values() if one.peer is not None]
            check = FileCheck(peer, ask, now, {one.name for one in asked})
            self.checks[ask.request] = check
            for one in asked:
                self.out.send(one.peer, m.CheckMaps(ask.request, ask.maps))
        return not check.waiting

    def maps_checked(self, peer: Peer, answer: m.MapsChecked, now: float) -> None:
        """Take what a worker sees of the files that a pipeline maps. Refuse the
        registration if it lacks one.
        """
        check = self.checks.get(answer.request)
        if check is None or answer.worker not in check.waiting:
            return
        if answer.fault:
            del self.checks[answer.request]
            worker = self.out.state.workers.get(answer.worker)
            where = answer.worker if worker is None else worker.address
            text = f"The worker at {where} cannot run the pipeline. {answer.fault}"
            self.out.refuse(check.peer, answer.request, FailedPreconditionError, text)
            return
        check.waiting.discard(answer.worker)
        if not check.waiting:
            self.register(check.peer, check.ask, now)

    def tick(self, now: float) -> None:
        """Wait no longer for workers that are gone or do not answer."""
        for request, check in list(self.checks.items()):
            if check.waiting:
                check.waiting &= self.workers.members.keys()
                if now - check.since >= CHECK_FOR:
                    check.waiting.clear()
                if not check.waiting:
                    self.register(check.peer, check.ask, now)
            elif now - check.since >= CHECKED_FOR:
                del self.checks[request]

    def send_pipeline(self, peer: Peer, ask: m.RequestPipeline, now: float) -> None:
        """Send a worker the pipeline of a dataset."""
        found = self.out.state.datasets.get(ask.dataset_id)
        if found is None:
            text = f"Dataset id {ask.dataset_id} not found."
            self.out.send(peer, m.PipelineSent(ask.dataset_id, "", b"", text))
        else:
            sent = SendPipeline(peer, ask.dataset_id, found.digest, found.parts)
            self.out.commands.append(sent)

    def _too_large(self, ask: m.RegisterDataset) -> str:
        known = self.out.state.datasets
        self._sizes = {name: self._sizes.get(name) or _size(one) for name, one in known.items()}
        there, size = sum(self._sizes.values()), _size(ask.description) + len(ask.pipeline)
        if there + size <= MOST_REGISTERED_BYTES:
            return ""
        return (
            f"The description of this dataset has {size} bytes, and those of the "
            f"datasets that are already registered have {there} bytes. The maximum of "
            f"their sum is {MOST_REGISTERED_BYTES} bytes. Does the dataset list very "
            "many files, or are many unused datasets registered?"
        )

    def _free_id(self) -> str:
        number = self.out.state.next_dataset
        while str(number) in self.out.state.datasets:
            number += 1
        return str(number)

    def describe(self, peer: Peer, ask: m.DescribeDataset, now: float) -> None:
        """Send the description of a dataset. The request counts as a use, because the
        client is about to read it.
        """
        description = self.out.state.datasets.get(ask.dataset_id)
        if description is None:
            self.out.refuse(
                peer, ask.request, NotFoundError, f"Dataset id {ask.dataset_id} not found."
            )
        else:
            self.used_at[ask.dataset_id] = now
            self.out.send(peer, m.DatasetDescribed(ask.request, ask.dataset_id, description))

    def unused(self, names: Iterable[str], now: float) -> tuple[str, ...]:
        """Return those of some datasets that no client uses any more: it would ask for
        their descriptions now and then.
        """
        return tuple(
            name
            for name in names
            if name not in self.out.state.datasets
            or now - self.used_at.setdefault(name, now) >= UNASKED_FOR
        )

    def collect_unused(self, now: float) -> None:
        """Remove datasets that are not marked as kept and that no job has used for
        long.
        """
        if self.gc_timeout < 0:
            return
        self.parts.collect_unused(now, max(self.gc_timeout, UNUSED_FOR))
        state = self.out.state
        read = {one.job.dataset_id for one in state.living}
        # A client may be slow between registering a dataset and opening its job,
        # however short the time-out is.
        patience = max(self.gc_timeout, UNUSED_AT_LEAST)
        for name in [name for name in state.datasets if name not in state.kept]:
            if name in read:
                self.used_at[name] = now
            elif now - self.used_at.setdefault(name, now) >= patience:
                self._remove(name)

    def _remove(self, name: str) -> None:
        digest = self.out.state.datasets[name].digest
        del self.used_at[name]
        self.out.note("info", f"dataset {name} is removed: no job has read it for a long time")
        self.out.commit(u.RemoveDatasetUpdate(name))
        if digest in self.parts.stored:
            return
        if all(one.digest != digest for one in self.out.state.datasets.values()):
            self.out.commands.append(DropPipeline(digest))


def _is_number(name: str) -> bool:
    """Return True for the form of the ids that the dispatcher chooses."""
    return name.isdecimal()


def _stands_for(one: m.DatasetDescription, asked: m.DatasetDescription) -> bool:
    """Return True if a registered dataset can stand for the requested one without any
    loss of information.
    """
    knows_enough = one.element_spec is not None or asked.element_spec is None
    same = (one.digest, one.fixed_seed) == (asked.digest, asked.fixed_seed)
    return same and knows_enough and not _structure_difference(one, asked)


def _structure_difference(one: m.DatasetDescription, other: m.DatasetDescription) -> str:
    pairs = [
        ("element_spec", _spec(one), _spec(other)),
        ("compression", one.compression, other.compression),
        ("cardinality", one.cardinality, other.cardinality),
    ]
    if None in (one.element_spec, other.element_spec):
        del pairs[0]  # a spec that is unknown on one side cannot differ
    return " ".join(f"existing {name}: <{a}>; got <{b}>." for name, a, b in pairs if a != b)


def _content(one: m.DatasetDescription) -> tuple[str, str]:
    return one.fingerprint, one.units.weights


def _size(description: m.DatasetDescription) -> int:
    return len(msgspec.msgpack.encode(description))


def _spec(description: m.DatasetDescription) -> Any:
    """Return the spec of a dataset; None if it is unknown, or unreadable here for want
    of a package that only workers and clients need.
    """
    try:
        return None if description.element_spec is None else decode_spec(description.element_spec)
    except MissingDtypeError:
        return None


def _mistake(description: m.DatasetDescription) -> str:
    """Return what is wrong with a description regardless of other datasets; ``""`` if
    it is valid.
    """
    for digest in (description.digest, *(part.digest for part in description.parts)):
        if not m.is_digest(digest):
            return (
                f"The digest of a pipeline must have 64 hexadecimal characters, got {digest[:80]!r}"
            )
    try:
        _spec(description)
    except ProtocolError as error:
        return f"Failed to parse element_spec: {error}"
    return ""
