"""Registration of datasets: packing, describing and registering a dataset, and looking
it up by its id.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import optree

from zmqdata import messages as m
from zmqdata.client.calls import ask_dispatcher, call, new_request
from zmqdata.client.runs import shipping
from zmqdata.client.splitting import losses_of, miscounted, units_of
from zmqdata.client.uploading import Progress, Upload
from zmqdata.config.settings import warn_user
from zmqdata.core.job_rules import changed_content
from zmqdata.dataset import Dataset
from zmqdata.dataset.seeds import fixed_seed
from zmqdata.elements.specs import (
    UNKNOWN_CARDINALITY,
    DatasetSpec,
    decode_spec,
    encode_spec,
    merge_specs,
    spec_of,
    specs_agree,
)
from zmqdata.errors import (
    DataServiceError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ProtocolError,
    UnimplementedError,
    WrongTypeError,
)
from zmqdata.files.filenames import legible
from zmqdata.machine.runkeys import name_of_process
from zmqdata.nodes.base import Node, all_nodes, every_node, kept_orders, known_spec
from zmqdata.nodes.options import ExternalStatePolicy, options_of
from zmqdata.nodes.parts import split_sources
from zmqdata.pipelines import PackedPipeline, pack_pipeline, pack_sources
from zmqdata.pipelines.fingerprints import nodes_in_order
from zmqdata.pipelines.generators import Held, generators_of, iterators_of, loader_seed
from zmqdata.pipelines.packing import ParcelContent
from zmqdata.pipelines.parcels import ParcelChangedError
from zmqdata.pipelines.unsendable import qualified_name
from zmqdata.pipelines.weighing import say_slow

log = logging.getLogger(__name__)

KEEP_EVERY = 20.0
"""Seconds between two requests that keep a dataset registered."""
MOST_OPERATIONS, MOST_LABEL = 200, 200
"""Most operations in the outline of a pipeline, and most characters of each."""
MOST_CARDINALITY = 2**63 - 1
"""Largest cardinality that a message can carry."""


@dataclass
class Registration:
    """A dataset that is to be registered at a dispatcher, or is known there by its
    id.
    """

    service: str
    """Address of the dispatcher."""
    timeout: float
    """Seconds to wait for the dispatcher."""
    description: m.DatasetDescription
    """Description of the dataset for the dispatcher."""
    packed: PackedPipeline | None = None
    """The packed pipeline, or None once it is registered."""
    dataset_id: str | None = None
    """Id of the dataset, or None before it is registered."""
    node: Node | None = None
    """The pipeline, or None if only its id is known."""
    sources: dict[str, bytes] = field(default_factory=dict)
    """Source code shipped with the pipeline, by the SHA-256 of its bytes."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def resolve(self, fixed_seed: int | None = None) -> str:
        """Return the id of the dataset.

        The first call registers the dataset. A later call does so again if the
        dispatcher has forgotten it, or if a state was loaded in which other orders were
        drawn once.

        Args:
            fixed_seed: seed of the program for what it draws once; None: the seed at
                the last call.
        """
        with self._lock:
            if self.node is not None and fixed_seed is not None:
                self._draw_by(self.node, fixed_seed)
            if self.dataset_id is not None and self.node is None:
                self._check_unchanged(self.dataset_id)
            elif (
                self.dataset_id is not None
                and self.node is not None
                and not self._is_known(self.dataset_id)
            ):
                log.info(
                    "dataset %s is registered anew: the dispatcher was restarted", self.dataset_id
                )
                self._repack(self.node)
                self.dataset_id = None
            if self.dataset_id is None:
                self.dataset_id = self._registered()
                # The packed pipeline may have hundreds of megabytes, and is seldom
                # needed again.
                self.packed = None
            return self.dataset_id

    def _registered(self) -> str:
        try:
            return self.register(None, reads=True)
        except ParcelChangedError:
            assert self.node is not None
            self._repack(self.node)
            return self.register(None, reads=True)

    def _draw_by(self, node: Node, fixed_seed: int) -> None:
        """Register the dataset anew if orders that are drawn once have changed."""
        then, drawn = self.description, drawn_once(node, fixed_seed)
        if drawn == (then.fixed_seed, then.orders):
            return
        if drawn[1] != then.orders or self.packed is None:
            self._repack(node)
        sources = then.sources
        if sources is not None:
            sources = tuple(split_sources(node, fixed_seed))
        self.description = msgspec.structs.replace(
            self.description, fixed_seed=drawn[0], orders=drawn[1], sources=sources
        )
        self.dataset_id = None

    def _check_unchanged(self, dataset_id: str) -> None:
        """Raise an error if the dispatcher, restarted without a journal, has given this
        id to another dataset.
        """
        found, known = describe_dataset(self.service, dataset_id, self.timeout), self.description
        if (found.element_spec, found.cardinality, found.compression) != (
            known.element_spec,
            known.cardinality,
            known.compression,
        ):
            raise FailedPreconditionError(
                f"The dataset with id {dataset_id} is no longer the dataset that it "
                "was when `from_dataset_id` was called: the dispatcher was "
                "restarted, and another dataset was registered under this id. Call "
                "`from_dataset_id` again."
            )
        if found.fingerprint != known.fingerprint:
            raise FailedPreconditionError(
                changed_content(dataset_id, known.fingerprint, found.fingerprint)
            )

    def _is_known(self, dataset_id: str) -> bool:
        """True if the id still means this dataset. A restarted dispatcher may give it
        to another dataset.
        """
        try:
            found = describe_dataset(self.service, dataset_id, self.timeout)
        except NotFoundError:
            return False
        return found.fingerprint == self.description.fingerprint

    def _repack(self, node: Node) -> None:
        with shipping():
            self.packed = pack_pipeline(node, sources=self.sources)
        self.description = msgspec.structs.replace(
            self.description,
            digest=self.packed.digest,
            parts=_parts_of(self.packed),
            parcel_key=_parcel_key_of(self.packed),
        )

    def __getstate__(self) -> dict[str, Any]:
        # Pickled too, because a pipeline that reads from the service may itself be
        # distributed.
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def tell_spec(self, dataset: Dataset) -> None:
        """Add the spec of the elements, if it can be found here, for processes that
        know only the id.

        Raises:
            WrongTypeError: a function returned what its operation cannot take.
        """
        try:
            spec = encode_spec(dataset.element_spec)
        except WrongTypeError:
            raise
        except Exception as error:
            # Functions of the user run here, and may need files that only workers have.
            log.info(
                "the element_spec of the dataset cannot be found here and is left out: %s", error
            )
            return
        self.description = msgspec.structs.replace(self.description, element_spec=spec)

    def register(self, dataset_id: str | None, keep: bool = False, reads: bool = False) -> str:
        """Register the dataset and return its id.

        Args:
            dataset_id: the id to register it under. None: the dispatcher chooses an id.
            keep: True to keep it even while no job uses it.
            reads: True if this process reads the dataset, and so hears of a worker that
                lacks a file. Otherwise the workers are asked now.

        Raises:
            FailedPreconditionError: a worker does not see a file that the pipeline
                maps.
        """
        assert self.packed is not None
        encoded, contents = self.packed.encoded, self.packed.contents
        if len(encoded) > m.MOST_WHOLE_BYTES:
            encoded, contents = b"", {**contents, self.packed.digest: encoded}
        request = new_request()
        maps = () if reads else self.packed.files
        ask = m.RegisterDataset(request, dataset_id, self.description, encoded, keep, maps)
        shown, began = Progress(Upload(ask, contents)), time.monotonic()
        found = call(self.service, ask, m.DatasetRegistered, request, self.timeout, shown.answer)
        for one in contents.values():
            if isinstance(one, ParcelContent):
                one.parcel.content = {}
                if one.made:
                    say_slow(one.parcel, "sending", time.monotonic() - began)
        return found.dataset_id


def describe_dataset(service: str, dataset_id: str, timeout: float) -> m.DatasetDescription:
    """Return what a dispatcher knows of a dataset.

    Raises:
        NotFoundError: no dataset is registered under this id.
        UnavailableError: no dispatcher has answered in time.
    """

    def ask(request: str) -> m.DescribeDataset:
        return m.DescribeDataset(request, dataset_id)

    return ask_dispatcher(service, ask, m.DatasetDescribed, timeout).description


def keep_registered(service: str, dataset_id: str) -> Callable[[], None]:
    """Ask for a dataset now and then, in a thread of its own, so that the dispatcher
    keeps it. Return a function that ends this.

    Args:
        service: address of the dispatcher.
        dataset_id: id of the dataset.
    """
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.wait(KEEP_EVERY):
            try:
                describe_dataset(service, dataset_id, KEEP_EVERY)
            except NotFoundError:
                return  # who reads it next notices that, too
            except DataServiceError:
                continue  # no dispatcher answers now

    threading.Thread(target=ask, name="zmqdata-keeping", daemon=True).start()
    return is_over.set


def agreed_spec(given: Any, registered: bytes, dataset_id: str) -> Any:
    """Return the spec of elements on which the user, who may leave it out, and the
    dispatcher agree.

    Raises:
        InvalidArgumentError: no element can fit both specs, or the dispatcher's spec
            cannot be read.
    """
    known = _decoded(registered, dataset_id)
    if given is None:
        return known
    if not specs_agree(given, known):
        raise InvalidArgumentError(
            f"`element_spec` is {given}, but the dataset with id {dataset_id} was "
            f"registered with {known}. Leave `element_spec` out, because the "
            "dispatcher knows it."
        )
    return given


def check_declared(element: Any, declared: Any, dataset_id: str) -> None:
    """Raise if an element does not match the spec that the user declared for a dataset
    whose spec the dispatcher does not know.

    A declared object may be any value, because elements of several kinds can be
    declared in no other way.

    Raises:
        InvalidArgumentError: it does not match.

    >>> check_declared({"x": 7}, {"x": spec_of(5)}, "numbers")
    """
    found = spec_of(element)
    try:
        fits = merge_specs(declared, found) == declared
    except TypeError:
        fits = False
    if not fits:
        raise InvalidArgumentError(
            f"`element_spec` is {declared}, but the dataset with id {dataset_id} gave an element "
            f"of {found}. Declare the spec that the registered dataset has, or register it where "
            "its `element_spec` can be found, and leave `element_spec` out."
        )


def _decoded(element_spec: bytes, dataset_id: str) -> Any:
    try:
        return decode_spec(element_spec)
    except ProtocolError as error:
        raise InvalidArgumentError(
            f"Failed to parse element_spec of dataset id {dataset_id}: {error}"
        ) from None


def registration_of(
    node: Node,
    service: str,
    compression: str | None,
    timeout: float,
    ship: object,
) -> Registration:
    """Pack and describe a dataset that no dispatcher knows yet.

    Raises:
        TypeError: the pipeline contains an object that cannot be sent to another
            process.
    """
    sources = pack_sources(ship)
    with shipping():
        packed = pack_pipeline(node, sources=sources)
    _check_copies(node)
    description = _describe(node, packed, compression)
    return Registration(service, timeout, description, packed, node=node, sources=sources)


def _check_copies(node: Node) -> None:
    """Warn if a function holds a random generator or an iterator: each task has a copy,
    which does not continue where another task is.

    Raises:
        FailedPreconditionError: a function holds one, and the options of the pipeline
            have ``ExternalStatePolicy.FAIL``.
    """
    policy = options_of(node).experimental_external_state_policy
    if policy is ExternalStatePolicy.IGNORE:
        return
    for text in _copied(node):
        if policy is ExternalStatePolicy.FAIL:
            raise FailedPreconditionError(
                f"{text}. The options of the pipeline have ExternalStatePolicy.FAIL, with "
                "which this is an error"
            )
        if text not in _warned:
            _warned.add(text)
            warn_user(text)


_warned: set[str] = set()
"""Warnings on copies that this program has had. A loader registers for each pass."""
_MOST_NAMED = 5


def _copied(node: Node) -> Iterator[str]:
    """Yield a text on the iterators that functions hold, and one on their random
    generators. Those of a DataLoader are copied and seeded there, too.
    """
    nodes = every_node(node)
    iterators = [_used(one, held) for one in nodes for held in iterators_of(one)]
    if iterators:
        yield (
            f"{_enumerated(iterators)}. Each task gets a copy of an iterator, which begins where "
            "the iterator is now, so tasks and epochs repeat its values. Create it within the "
            "function, or number elements with enumerate() before the function"
        )
    own = [one for one in nodes if loader_seed(one) is None]
    generators = [_used(one, held) for one in own for held in generators_of(one)]
    if generators:
        yield (
            f"{_enumerated(generators)}. Each task gets a copy of a generator, which would draw "
            "the same numbers in every task and epoch. Workers therefore seed it anew for each "
            "element, and its own seed has no effect. Use random_map(function, seed=...), which "
            "passes a generator to the function and draws the same with and without the service"
        )


def _used(node: Node, held: Held) -> str:
    return f"{node.label} uses `{held.path}`, a {qualified_name(type(held.generator))}"


def _enumerated(uses: list[str]) -> str:
    more = len(uses) - _MOST_NAMED
    return "; ".join(uses[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def check_parts(node: Node) -> None:
    """Refuse a ``take`` or ``skip`` that is to select from an order that stays, and
    would count what each task gets of it.

    Raises:
        InvalidArgumentError: there is one.
    """
    found = miscounted(node)
    if found is not None:
        limit, order = found
        raise InvalidArgumentError(
            f"{limit.label} selects from the order of {order.label}, which stays the same in all "
            "iterations. With ShardingPolicy.DYNAMIC each task would order and count the splits "
            "that it happens to get, whatever the `seed=`, so `take` and `skip` of the same order "
            "would overlap, as training and test data. Put `take` and `skip` behind a shuffle "
            "directly above a range, from_tensor_slices, from_source or from_list whose buffer "
            "holds all of it, or directly above list_files(..., shuffle=False), so that the "
            "names of files have an order that stays. At most `map`, `random_map` and "
            "`prefetch` may stand between them. Or use ShardingPolicy.OFF"
        )


def _parts_of(packed: PackedPipeline) -> tuple[m.Part, ...]:
    parts = [m.Part(digest, len(content)) for digest, content in packed.contents.items()]
    if len(packed.encoded) > m.MOST_WHOLE_BYTES:
        parts.append(m.Part(packed.digest, len(packed.encoded)))
    return tuple(parts)


def _describe(node: Node, packed: PackedPipeline, compression: str | None) -> m.DatasetDescription:
    fixed, orders = drawn_once(node, fixed_seed())
    try:
        check_parts(node)  # also for saves, and for readers who know the id only
        sources, reason = tuple(split_sources(node, fixed)), ""
    except (UnimplementedError, FailedPreconditionError, InvalidArgumentError) as error:
        sources, reason = None, str(error)
    _check_sendable(node)
    spec, count = spec_without_running(node), node.cardinality
    return m.DatasetDescription(
        digest=packed.digest,
        fingerprint=packed.fingerprint,
        sources=sources,
        unsplittable=reason,
        element_spec=None if spec is None else encode_spec(spec),
        # A cardinality that no message can carry, as of range(2**62).repeat(2**62), is
        # never counted to its end.
        cardinality=count if count <= MOST_CARDINALITY else UNKNOWN_CARDINALITY,
        compression=compression,
        python=packed.python,
        version=packed.version,
        parts=_parts_of(packed),
        fixed_seed=fixed,
        orders=orders,
        process=name_of_process() if orders else "",
        losses=losses_of(node),
        units=units_of(node, sources or ()),
        parcel_key=_parcel_key_of(packed),
        outline=_outline_of(node),
    )


def _outline_of(node: Node) -> tuple[str, ...]:
    nodes = nodes_in_order(node)[:MOST_OPERATIONS]
    return tuple([legible(one.label[:MOST_LABEL]) for one in nodes])


def _parcel_key_of(packed: PackedPipeline) -> str:
    held = [one.parcel.key for one in packed.contents.values() if isinstance(one, ParcelContent)]
    return max(held, default="")


def drawn_once(node: Node, fixed_seed: int) -> tuple[int, tuple[int, ...]]:
    """Return the seed of what a pipeline draws once, which is 0 if it draws nothing
    once, and the numbers of its orders that are drawn once.
    """
    if not any(one.draws_once for one in all_nodes(node)):
        return 0, ()
    return fixed_seed, tuple([order.number for order in kept_orders(node)])


def _check_sendable(node: Node) -> None:
    """Raise for elements that are known to contain datasets, as those of ``window``.

    Raises:
        WrongTypeError: a leaf is a dataset.
    """
    spec = spec_without_running(node)
    leaves = [] if spec is None else optree.tree_leaves(spec, none_is_leaf=True)
    if any(isinstance(leaf, DatasetSpec) for leaf in leaves):
        raise WrongTypeError(
            f"The elements are {spec}, and a dataset in an element cannot be sent to another "
            "process. Make arrays of windows first, for example with "
            "flat_map(lambda window: window.batch(size))"
        )


def spec_without_running(node: Node) -> Any:
    """Return the spec as far as it follows from the nodes, or None. No function of the
    user runs here.
    """
    try:
        return known_spec(node)
    except Exception:  # incompatible inputs raise their error when the pipeline runs
        return None
