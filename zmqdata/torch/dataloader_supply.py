"""The supply of a ``Loader`` that takes the place of a ``DataLoader``: it draws the
order of each pass in this process, and lets workers of the service make the batches.

The ranks agree on the order here. What users call is in ``dataloaders``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, cast

import msgspec
import numpy as np
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from zmqdata.client.calls import status
from zmqdata.client.distribute import DataServiceDataset, distribute, for_consumer
from zmqdata.client.options import CONSUMER_TIMEOUT
from zmqdata.client.registration import Registration
from zmqdata.config.checks import Finite
from zmqdata.config.endpoints import Service, parse_service
from zmqdata.dataset import Dataset, DatasetIterator
from zmqdata.dataset.arguments import call_site
from zmqdata.errors import FailedPreconditionError, InvalidArgumentError
from zmqdata.torch.fetching import BatchFetcher, StreamFetcher, batch_or_error
from zmqdata.torch.orders import (
    BatchIndices,
    Draw,
    Generators,
    PassDraw,
    asked_ahead,
    draw,
    generators,
    restore,
    restore_global,
    samplers,
    takes_epoch,
)
from zmqdata.torch.packing import unpack
from zmqdata.torch.parcels import LoaderParcel
from zmqdata.torch.ranks import (
    FINITE,
    BatchDealing,
    Consumer,
    copy_number,
    is_first,
    numbered,
    value_of_first,
)
from zmqdata.torch.refusals import check_kind, check_options, check_samplers, warn_of_state
from zmqdata.torch.supplies import LoaderState, NextPass, Pass, RankState, other_world, too_few

ASK_AGAIN = 5.0
"""Seconds for which the number of workers counts as known, so that short passes begin
sooner.
"""
PATIENCE = 30.0
"""Seconds to wait for a dispatcher that says which workers it has, if the user names no
other time.
"""


class DrawTerms(msgspec.Struct, frozen=True):
    """The message of rank 0 to the other ranks before a pass."""

    generators: Generators
    """Generators from which the order is drawn."""
    terms: str
    """Arguments of the loader on which the ranks have to agree, in words."""
    order: str = ""
    """Hash of the order that rank 0 has drawn; "" if it has drawn none."""


class DataLoaderSupply:
    """Passes over the batches of a ``DataLoader``.

    Args:
        loader: the loader.
        service: the service whose workers make the batches.
        batches: number of batches of a pass, or None for all.
        consumer: the consumer that reads.
        finite: as for ``distribute_dataloader``.
        options: further arguments of ``distribute``.
    """

    is_continued = is_divided = False

    def __init__(
        self,
        loader: DataLoader[Any],
        service: Service,
        batches: int | None,
        consumer: Consumer,
        finite: str,
        options: dict[str, Any],
    ) -> None:
        check_options(options)
        if finite not in FINITE:
            raise InvalidArgumentError(f"`finite` must be one of {FINITE}, got {finite!r}")
        self.loader = loader
        self._service, self._options = service, options
        self._batches, self._finite = batches, finite
        self._patience = float(options.get("consumer_timeout", CONSUMER_TIMEOUT))
        self._answers_within = float(options.get("dispatcher_timeout", PATIENCE))
        self._passes = self._jobs = 0
        self._is_stream = isinstance(loader.dataset, IterableDataset)
        check_kind(loader)
        check_samplers(loader)
        warn_of_state(loader)
        self._site = call_site()
        self._workers, self._asked_at = 1, -math.inf
        self._parcel = LoaderParcel(loader, self._site, options.get("ship", ()), self._registration)
        # The first refusal of what cannot be sent comes from here, and not from a pass.
        self._parcel.pack()
        # Loaders over other data have other names, so that one which a rank makes alone
        # shifts none of theirs.
        content = f"{self._registration().description.fingerprint} {_length_of(loader.dataset)}"
        self._name = f"loader-{sha256(content.encode()).hexdigest()[:16]}"
        self.become(consumer)

    def become(self, consumer: Consumer) -> None:
        if self._is_stream and self._finite == "uneven" and not consumer.is_alone:
            raise InvalidArgumentError(
                "`finite='uneven'` needs a map-style dataset: the consumers of an iterable-style "
                "dataset read in step. Pass 'drop' or 'pad'"
            )
        self.consumer = consumer
        is_sharded = any(map(_shards_by_rank, samplers(self.loader)))
        self._dealing = BatchDealing(Consumer() if is_sharded else consumer, self._finite)
        if consumer.agrees:
            self._name = numbered(self._name)
        copy = copy_number(consumer, self._name) if self._is_stream else 0
        self._stream_name = f"{self._name}-copy-{copy}" if copy else self._name
        known = self._known_length()
        if self._batches is not None and known is not None and known < self._batches:
            raise too_few(self._batches, known)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs, which cannot hold a server object."""
        return {**self.__dict__, "_service": parse_service(self._service)}

    @property
    def name(self) -> str:
        return "iterable" if self._is_stream else "map"

    @property
    def dataset(self) -> Any:
        return self.loader.dataset

    def length(self) -> int | None:
        return self._known_length() if self._batches is None else self._batches

    def _known_length(self) -> int | None:
        """Return the number of batches that the loader has for this consumer, if that
        is known.
        """
        if self._is_stream:
            return None
        try:
            count = len(self.loader)
        except (TypeError, NotImplementedError):
            return None
        return len(self._dealing.numbers(0, count))

    def check(self, state: LoaderState) -> None:
        """Raise an error for a state that this loader cannot continue.

        Raises:
            FailedPreconditionError: other consumers shared the batches, or an
                iterable-style ``DataLoader`` makes other batches.
        """
        if self._is_stream and state.source not in ("", self._stream_source()):
            raise FailedPreconditionError(
                "this state is of a loader that makes other batches of its streams: the batch "
                "size, drop_last, the number of workers or the dataset's length differ. Load it "
                "into an equal loader"
            )
        is_dealt = not self._is_stream and self._dealing.consumer == self.consumer
        # A number of batches is that of each consumer, which had others with the state.
        goes_on = is_dealt and self._batches is None
        if state.world != self.consumer.count and not goes_on:
            raise other_world(state.world, self.consumer.count)

    def next_pass(self) -> NextPass:
        return self._next_pass(None, None)

    def _next_pass(
        self, seed: int | None, present: Generators | None, at_once: bool = False
    ) -> NextPass:
        """Return the next pass.

        Args:
            seed: seed that was drawn before a state was taken; None to draw it.
            present: generators after a draw for a state that was taken behind it.
            at_once: True to draw the order now. A trainer that resumes may draw between
                an iterator and its first batch what it has drawn before the state.
        """
        if not is_first(self._dealing.consumer):  # rank 0 draws
            if present is not None:
                restore_global(present)
            return NextPass(self._begin_as_first, self.present)
        initial = generators(self.loader)
        try:
            drawing = PassDraw(self.loader, self._limit(), seed, at_once)
        except BaseException:  # The others draw, too, and so get the error of a sampler.
            self._publish(initial, None)
            raise

        def begin() -> Pass:
            initial, drawn = drawing.generators(), None
            try:
                drawn = drawing.finish()
            finally:
                self._publish(initial, drawn)
            return self._pass(drawn, msgspec.msgpack.encode(initial))

        if present is not None and drawing.is_over:
            restore(self.loader, present)
        return NextPass(begin, lambda: msgspec.msgpack.encode(drawing.generators()))

    def _publish(self, initial: Generators, drawn: Draw | None) -> None:
        """Send the other ranks what rank 0 has drawn, and from which generators."""
        if self._dealing.consumer.agrees:
            terms = DrawTerms(initial, self._terms(), "" if drawn is None else drawn.digest)
            self._exchange(msgspec.msgpack.encode(terms))

    def _exchange(self, value: bytes = b"") -> bytes:
        """Return the value of rank 0 for the next pass."""
        name = f"{self._name}/{self._passes}"
        self._passes += 1
        return value_of_first(self._dealing.consumer, name, value, self._patience)

    def _begin_as_first(self) -> Pass:
        """Begin the pass that rank 0 has drawn."""
        own, consumer, terms = generators(self.loader), self._dealing.consumer, self._terms()
        agreement = msgspec.msgpack.decode(self._exchange(), type=DrawTerms)
        if agreement.terms != terms:
            raise FailedPreconditionError(
                f"the ranks disagree about what they read: rank 0 has {agreement.terms}, and "
                f"consumer {consumer.index} has {terms}. Make the loader with the same "
                "arguments on all ranks, or pass `num_consumers=1` to one that a rank reads alone"
            )
        restore(self.loader, agreement.generators)
        drawn = draw(self.loader, self._limit(), agreement.generators.seed)
        restore_global(own)
        if drawn.is_other(agreement.order):
            raise FailedPreconditionError(
                f"the sampler yields other indices for consumer {consumer.index} than for rank 0, "
                "so dealing its batches would leave some out. If it shards by rank itself, pass "
                "`num_consumers=1`. Otherwise let it draw from a generator that is an attribute "
                "of its own"
            )
        return self._pass(drawn, msgspec.msgpack.encode(agreement.generators))

    def _terms(self) -> str:
        """Return the terms on which all ranks have to agree, in words."""
        loader = self.loader
        wanted = "all" if self._batches is None else str(self._batches)
        return (
            f"{self._dealing.consumer.count} consumers, finite={self._finite!r}, {wanted} batches "
            f"of {loader.batch_size} of {_length_of(loader.dataset)} items"
        )

    def _stream_source(self) -> str:
        """Return a hash of all that decides how streams become batches."""
        loader = self.loader
        terms = (loader.batch_size, loader.drop_last, loader.num_workers)
        content = f"{terms} {_length_of(loader.dataset)}"
        return sha256(content.encode()).hexdigest()

    def _limit(self) -> int | None:
        """Return the number of batches that all consumers together need."""
        return None if self._batches is None else self._batches * self._dealing.consumer.count

    def resume(self, state: LoaderState) -> NextPass:
        own = state.ranks.get(str(self.consumer.index))
        present = generators(self.loader) if own is None else _decoded(own.present)
        initial = (own and own.generators) or state.generators
        seed = _decoded(initial).seed
        restore(self.loader, _decoded(initial))
        if not (state.batches or state.position):  # no rank has received a batch
            if own is None:
                restore_global(present)
            # A state behind an iterator: what the iterator has drawn is drawn already.
            is_drawn = seed is not None or _decoded(initial) != present
            return self._next_pass(seed, present if is_drawn else None, at_once=not is_drawn)
        drawn = draw(self.loader, self._limit(), seed)
        if own is None:
            restore_global(present)
        else:  # other loaders may have drawn from its generators since
            restore(self.loader, present)
        # Each rank with a sampler of its own has an order of its own.
        is_same = own is not None or self._dealing.consumer == self.consumer
        if is_same and state.world == self.consumer.count:
            _check_order(drawn, (own and own.source) or state.source)
        return NextPass(partial(self._pass, drawn, initial, state.batches, state.position))

    def _pass(self, drawn: Draw, initial: bytes, first: int = 0, position: bytes = b"") -> Pass:
        """Return a pass from a place on.

        Args:
            drawn: the numbers that were drawn for it.
            initial: generators before the draw.
            first: number of batches that this consumer has received.
            position: position in the streams of an iterable-style dataset, or the
                number of batches that all consumers together have received.
        """
        base = 0
        if position and not self._is_stream:
            base = msgspec.msgpack.decode(position, type=int)
        is_new = self._is_stream or base > 0
        self._parcel.begin(self._dealing.consumer, self._name, self._patience, is_new)
        if drawn.order is not None:
            return self._map_pass(drawn, drawn.order, initial, first, base)
        return Pass(
            self._for_consumer(self._distribute(self._pipeline(drawn, []))),
            unpack,
            self._batches,
            first=first,
            position=position,
            generators=initial,
            source=self._stream_source,
        )

    def _map_pass(
        self, drawn: Draw, order: BatchIndices, initial: bytes, first: int, base: int
    ) -> Pass:
        """Return a pass over a map-style dataset from a place on."""
        numbers = self._dealing.numbers(base, len(order))
        count = first + len(numbers)
        remainder = self._dealing.remainder(base, order)
        if self._batches is not None:
            if count < self._batches:
                raise too_few(self._batches, count)
            remainder = remainder if count == self._batches else 0
            count = self._batches
        batches = self._pipeline(drawn, numbers)
        rest_at = drawn.rest_at // self._dealing.consumer.count - asked_ahead(self.loader)
        return Pass(
            # Nothing is left of a pass whose state was taken behind its last batch.
            self._distribute(batches) if first < count else batches,
            unpack,
            count,
            padding=self._dealing.padding(base, len(order)),
            remainder=remainder,
            first=first,
            base=base,
            generators=initial,
            source=lambda: drawn.digest,
            rest=drawn.rest if first <= rest_at else None,
            rest_at=rest_at,
        )

    def _registration(self) -> Registration:
        """Return the registration of a pass without batches."""
        node = self._distribute(self._pipeline(Draw(0, BatchIndices([])), [])).node
        assert isinstance(node, DataServiceDataset)
        return node.registration

    def _pipeline(self, drawn: Draw, numbers: Sequence[int]) -> Dataset:
        """Return the pipeline that workers run for the batches of these numbers."""
        if self._is_stream:
            fetcher = StreamFetcher(self._parcel.parcel, drawn.seed)
            streams = Dataset.range(max(1, self.loader.num_workers)).flat_map(fetcher)
            return self._with_site(self._with_site(streams).map(batch_or_error))
        assert drawn.order is not None
        places = Dataset.from_tensor_slices(np.asarray(numbers, np.int64))
        batches = places.map(BatchFetcher(self._parcel.parcel, drawn.order, drawn.seed))
        return self._with_site(batches)

    def _with_site(self, dataset: Dataset) -> Dataset:
        """Return a pipeline whose errors name the line that made the loader, instead of
        that of the loop.
        """
        return Dataset(replace(dataset.node, site=self._site))

    def _distribute(self, source: Dataset) -> Dataset:
        options = {"num_tasks": self._num_tasks(), **self._options}
        read = distribute("distributed_epoch", self._service, deterministic=True, **options)
        return source.apply(read)

    def _for_consumer(self, dataset: Dataset) -> Dataset:
        consumer = self.consumer
        if consumer.is_alone:
            return dataset
        # Each pass is a job, because its pipeline holds what was drawn for it.
        self._jobs += 1
        name = f"{self._stream_name}-{self._jobs}"
        finite = cast(Finite, self._finite)  # "uneven" is refused for streams
        return for_consumer(dataset, consumer.index, consumer.count, finite, name)

    def _num_tasks(self) -> int:
        """Return a number of tasks of which each serves a single virtual worker, with
        enough of them for all real workers.
        """
        virtual = max(1, int(self.loader.num_workers))
        if self._is_stream:
            return virtual
        now = time.monotonic()
        if now - self._asked_at > ASK_AGAIN:
            self._workers = max(1, len(status(self._service, self._answers_within)["workers"]))
            self._asked_at = now
        return virtual * -(-self._workers // virtual)

    def position(self, elements: DatasetIterator, pass_: Pass, count: int) -> bytes:
        if self._is_stream:
            return msgspec.msgpack.encode(elements.state_dict())
        # The number of batches says all of a pass whose order is known.
        return msgspec.msgpack.encode(self._dealing.total_received(pass_.base, count - pass_.first))

    def settle(self, present: bytes) -> None:
        restore_global(_decoded(present))

    def present(self) -> bytes:
        return msgspec.msgpack.encode(generators(self.loader))

    def rank_states(self, generators: bytes, source: str) -> dict[str, RankState]:
        name = str(self.consumer.index)
        if self._dealing.consumer != self.consumer:  # a rank with a sampler of its own
            return {name: RankState(self.present(), generators, source)}
        if not is_first(self.consumer):
            return {}
        # Only rank 0 knows what an iterator has drawn whose pass has not begun.
        return {name: RankState(self.present(), b"" if source else generators)}

    def knows_epoch(self, is_resumed: bool) -> bool:
        # A state has the order. A dataset is sent when the pass begins.
        drawn_by = [] if is_resumed else samplers(self.loader)
        return not any(map(takes_epoch, [*drawn_by, self.loader.dataset]))

    def set_epoch(self, epoch: int) -> None:
        for sampler in filter(takes_epoch, samplers(self.loader)):
            sampler.set_epoch(epoch)
        if takes_epoch(self.loader.dataset):
            self._parcel.set_epoch(epoch)


def _shards_by_rank(sampler: Any) -> bool:
    """Return True for a sampler that yields the part of a rank."""
    names = getattr(sampler, "__dict__", {}).keys()
    return isinstance(sampler, DistributedSampler) or any(pair <= names for pair in _OF_A_RANK)


_OF_A_RANK = ({"rank", "num_replicas"}, {"process_index", "num_processes"})
"""Attributes of samplers that shard by rank: as in torch, and as in accelerate."""


def _length_of(dataset: Any) -> str:
    """Return the number of items of a dataset; "unknown" if it has no length."""
    try:
        return str(len(dataset))
    except (TypeError, NotImplementedError):
        return "unknown"


def _decoded(states: bytes) -> Generators:
    return msgspec.msgpack.decode(states, type=Generators)


def _check_order(drawn: Draw, source: str) -> None:
    """Raise an error if a state was taken from a pass with another order."""
    if drawn.is_other(source):
        raise FailedPreconditionError(
            "this state is of a loader with another order: the sampler yields other indices than "
            "in the pass that the state is from. The dataset has another length, the DataLoader "
            "another sampler, batch size or torch version, or the sampler draws from something "
            "that is not an attribute of its own. Load the state into an equal loader, or begin "
            "a new pass"
        )
