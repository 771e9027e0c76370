"""How a dataset becomes known to a dispatcher: packed, described, registered; and
looked up by its id.

Registering a dataset: the client's part of the talk in which a dispatcher says what it
lacks of a pipeline.

``Upload`` decides, without a socket and a clock; ``client.calls`` carries its messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from zmqdata import messages as m
from zmqdata.client.calls import ask_dispatcher, call, new_request
from zmqdata.config.endpoints import parse_service
from zmqdata.core.job_rules import changed_content
from zmqdata.dataset import Dataset
from zmqdata.elements.specs import UNKNOWN_CARDINALITY, decode_spec, encode_spec, specs_agree
from zmqdata.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ProtocolError,
    UnimplementedError,
)
from zmqdata.nodes import Node, known_spec, split_sources
from zmqdata.pipelines import PackedPipeline, pack_pipeline, pack_sources

log = logging.getLogger(__name__)

MOST_CARDINALITY = 2**63 - 1


@dataclass
class Registration:
    """A dataset on its way to a dispatcher, or known there by its id. ``node`` is None
    where only the id is ours.
    """

    service: str | tuple[str, str]
    timeout: float
    description: m.DatasetDescription
    packed: PackedPipeline | None = None
    dataset_id: str | None = None
    node: Node | None = None
    sources: dict[str, bytes] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def resolve(self) -> str:
        """The dataset's id; registers it the first time, and again at a dispatcher that
        has forgotten it.
        """
        with self._lock:
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
                self.dataset_id = self.register(None)
                # Hundreds of megabytes, perhaps, that are seldom needed again.
                self.packed = None
            return self.dataset_id

    def _check_unchanged(self, dataset_id: str) -> None:
        """Refuses an id that a dispatcher without a journal has given to something else
        since we asked.
        """
        found, known = describe_dataset(self.service, dataset_id, self.timeout), self.description
        if (found.element_spec, found.cardinality, found.compression) != (
            known.element_spec,
            known.cardinality,
            known.compression,
        ):
            raise FailedPreconditionError(
                f"The dataset with id {dataset_id} is not the one that it was when "
                "from_dataset_id() was called: the "
                "dispatcher was restarted, and another one was registered under this id. Call "
                "from_dataset_id() again"
            )
        if found.fingerprint != known.fingerprint:
            raise FailedPreconditionError(
                changed_content(dataset_id, known.fingerprint, found.fingerprint)
            )

    def _is_known(self, dataset_id: str) -> bool:
        """Whether the id still means this dataset: the next life of a dispatcher may
        give it to another.
        """
        try:
            found = describe_dataset(self.service, dataset_id, self.timeout)
        except NotFoundError:
            return False
        return found.fingerprint == self.description.fingerprint

    def _repack(self, node: Node) -> None:
        self.packed = pack_pipeline(node, sources=self.sources)
        self.description = msgspec.structs.replace(
            self.description, digest=self.packed.digest, parts=_parts_of(self.packed)
        )

    def __getstate__(self) -> dict[str, Any]:
        # A pipeline that reads from the service may itself be distributed.
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def tell_spec(self, dataset: Dataset) -> None:
        """Adds what elements look like, as far as it can be found out here, for those
        who know only the id.
        """
        try:
            spec = encode_spec(dataset.element_spec)
        except Exception as error:
            # Functions of the user run, with files that may be on the workers only.
            log.info(
                "the element_spec of the dataset cannot be found here and is left out: %s", error
            )
            return
        self.description = msgspec.structs.replace(self.description, element_spec=spec)

    def register(self, dataset_id: str | None, keep: bool = False) -> str:
        """Registers it under this id, or one that the dispatcher chooses; to be kept
        also while nobody uses it.
        """

        assert self.packed is not None
        encoded, contents = self.packed.encoded, self.packed.contents
        if len(encoded) > m.MOST_WHOLE_BYTES:
            encoded, contents = b"", {**contents, self.packed.digest: encoded}
        request = new_request()
        ask = m.RegisterDataset(request, dataset_id, self.description, encoded, keep)
        upload, endpoint = Upload(ask, contents), parse_service(self.service)
        return call(
            endpoint, ask, m.DatasetRegistered, request, self.timeout, upload.answer
        ).dataset_id


def describe_dataset(
    service: str | tuple[str, str], dataset_id: str, timeout: float
) -> m.DatasetDescription:
    """What a dispatcher knows of a dataset.

    Raises:
        NotFoundError: nothing is registered under this id.
        UnavailableError: no dispatcher has answered in time.
    """

    def ask(request: str) -> m.DescribeDataset:
        return m.DescribeDataset(request, dataset_id)

    return ask_dispatcher(service, ask, m.DatasetDescribed, timeout).description


def agreed_spec(given: Any, registered: bytes, dataset_id: str) -> Any:
    """What elements look like, by the user, who may leave it out, and by the
    dispatcher.

    Raises:
        InvalidArgumentError: no element can look like both, or the dispatcher's cannot
            be read.
    """
    known = _decoded(registered, dataset_id)
    if given is None:
        return known
    if not specs_agree(given, known):
        raise InvalidArgumentError(
            f"`element_spec` is {given}, but the dataset with id {dataset_id} was registered with "
            f"{known}. Leave "
            "element_spec out: it is known"
        )
    return given


def _decoded(element_spec: bytes, dataset_id: str) -> Any:
    try:
        return decode_spec(element_spec)
    except ProtocolError as error:
        raise InvalidArgumentError(
            f"Failed to parse element_spec of dataset id {dataset_id}: {error}"
        ) from None


def registration_of(
    node: Node,
    service: str | tuple[str, str],
    compression: str | None,
    timeout: float,
    ship: object,
) -> Registration:
    """A dataset that is packed and described, and not yet known to any dispatcher.

    Raises:
        TypeError: the pipeline holds something that cannot be sent to another process.
    """
    sources = pack_sources(ship)
    packed = pack_pipeline(node, sources=sources)
    description = _describe(node, packed, compression)
    return Registration(service, timeout, description, packed, node=node, sources=sources)


def _parts_of(packed: PackedPipeline) -> tuple[m.Part, ...]:
    parts = [m.Part(digest, len(content)) for digest, content in packed.contents.items()]
    if len(packed.encoded) > m.MOST_WHOLE_BYTES:
        parts.append(m.Part(packed.digest, len(packed.encoded)))
    return tuple(parts)


def _describe(node: Node, packed: PackedPipeline, compression: str | None) -> m.DatasetDescription:
    try:
        sources, reason = tuple(split_sources(node)), ""
    except (UnimplementedError, FailedPreconditionError) as error:
        sources, reason = None, str(error)
    spec = spec_without_running(node)
    return m.DatasetDescription(
        digest=packed.digest,
        fingerprint=packed.fingerprint,
        sources=sources,
        unsplittable=reason,
        element_spec=None if spec is None else encode_spec(spec),
        # What no message can carry, as of range(2**62).repeat(2**62), nobody will ever
        # count.
        cardinality=node.cardinality
        if node.cardinality <= MOST_CARDINALITY
        else UNKNOWN_CARDINALITY,
        compression=compression,
        python=packed.python,
        version=packed.version,
        parts=_parts_of(packed),
    )


def spec_without_running(node: Node) -> Any:
    """The spec as far as it follows from the nodes, None where it does not: the user's
    functions are not run here.
    """
    try:
        return known_spec(node)
    except Exception:  # inputs that do not fit together are an error where they are run
        return None


PIECES_AHEAD = 2
MOST_BROKEN = 3


class Upload:
    """Sends the parts that the dispatcher asks for.

    Args:
        ask: what registers the dataset; it is sent again when a part has arrived.
        contents: the parts' bytes by digest.
    """

    def __init__(self, ask: m.RegisterDataset, contents: Mapping[str, bytes]) -> None:
        self._ask = ask
        self._contents = contents
        self._digest = ""
        self._have = 0
        self._sent = 0
        self._broken = 0
        self._piece_bytes = m.PIECE_BYTES

    def answer(self, message: object) -> Sequence[m.Message]:
        """What to send after this message from the dispatcher.

        Raises:
            DataLossError: a part arrives with other bytes time and again, or is not one
                of ours.
        """
        if isinstance(message, m.RequestPart):
            self._digest, self._have, self._sent = message.digest, message.have, message.have
            self._piece_bytes = max(1, message.piece_bytes)
            return self._pieces()
        if not isinstance(message, m.PieceStored) or message.digest != self._digest:
            return ()
        if message.have < self._have:
            self._begin_anew()
        self._have = message.have
        if message.have == len(self._content()):
            self._digest = ""
            return (self._ask,)
        self._sent = max(self._sent, self._have)
        return self._pieces()

    def _begin_anew(self) -> None:
        self._broken += 1
        self._sent = 0
        if self._broken >= MOST_BROKEN:
            raise DataLossError(
                "The dispatcher got other bytes than were sent of a part of the pipeline "
                f"({self._digest[:16]}...), "
                f"{self._broken} times. Is its disk or memory broken?"
            )

    def _pieces(self) -> list[m.Message]:
        content, pieces = self._content(), []
        while self._sent < min(len(content), self._have + PIECES_AHEAD * self._piece_bytes):
            piece = content[self._sent : self._sent + self._piece_bytes]
            pieces.append(
                m.StorePiece(self._ask.request, self._digest, len(content), self._sent, piece)
            )
            self._sent += len(piece)
        return list(pieces)

    def _content(self) -> bytes:
        if self._digest not in self._contents:
            raise DataLossError(
                "The dispatcher asks for a part that is not of this pipeline: "
                f"{self._digest[:16]}..."
            )
        return self._contents[self._digest]
