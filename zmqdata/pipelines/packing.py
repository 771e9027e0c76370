"""Shipping a pipeline: packed by the client, carried unopened by the dispatcher, opened
by workers.

No socket and no message lives here. dill is imported only by ``pack_pipeline`` and
``open_pipeline`` when they are called: importing this module does not need it, so that
what is merely carried can be described everywhere.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import platform
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.codec import MISSING_MODULE
from zmqdata.failures.names import plain_name
from zmqdata.pipelines.fingerprints import fingerprint, nodes_in_order
from zmqdata.pipelines.identity import Fingerprint
from zmqdata.pipelines.importing import install
from zmqdata.pipelines.shipping import carried_sources, pack_sources
from zmqdata.pipelines.unsendable import describe_trail, qualified_name

if TYPE_CHECKING:
    from zmqdata.pipelines.pickler import UnsendableError


FindPart = Callable[[str], "bytes | memoryview | None"]
"""Gives the content of a part by its digest, or None."""


class PackedPipeline(msgspec.Struct, frozen=True, dict=True):
    """A pipeline as bytes, and what one must know before opening them.

    Attributes:
        payload: pickle of the nodes, protocol 5. Opened by workers only: opening runs
            code.
        python: minor version of the client's Python, ``"3.11"``: bytecode does not
            travel further.
        version: version of the client's zmqdata.
        fingerprint: ``str(Fingerprint)``, equal in every run of the same script.
        modules: top-level modules, neither standard nor zmqdata's own, that the
            pipeline refers to by name.
        buffers: digests of the large buffers that the payload takes from outside, in
            its order.
        shipped: digests of the source archives that came along.
        contents: the bytes of both by their digest. They are no part of the packed
            pipeline: who has them already need not be sent them.
    """

    payload: bytes
    python: str
    version: str
    fingerprint: str
    modules: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()
    shipped: tuple[str, ...] = ()
    contents: dict[str, bytes] = {}

    @functools.cached_property
    def encoded(self) -> bytes:
        """The packed pipeline as bytes, without the contents of its parts."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, contents={}))

    @functools.cached_property
    def digest(self) -> str:
        """SHA-256 of ``encoded`` in hex; it covers the digests of the parts. Unlike the
        fingerprint, it may differ from run to run.
        """
        return hashlib.sha256(self.encoded).hexdigest()

    @classmethod
    def decode(cls, encoded: bytes | memoryview) -> PackedPipeline:
        """Read what ``encoded`` is.

        Raises:
            ValueError: it is something else.
        """
        return msgspec.msgpack.decode(encoded, type=cls)


def zmqdata_version() -> str:
    """Version of the installed zmqdata, ``"0"`` when it runs from a folder that was
    never installed.
    """
    try:
        return metadata.version("zmqdata")
    except metadata.PackageNotFoundError:
        return "0"


def pack_pipeline(
    node: Any, ship: object = (), sources: Mapping[str, bytes] | None = None
) -> PackedPipeline:
    """Turn a pipeline into bytes for workers, or say at once why it cannot be done.

    Functions and classes of the training script, lambdas and closures travel by value, with the global names that they
    use; those of modules that can be imported travel by name.

    Args:
        node: the last node of a pipeline (or any value, for example a single function).
        ship: modules whose source goes along, see ``pack_sources``.
        sources: what ``pack_sources`` has made of them before; ``ship`` is then not looked at.

    Raises:
        TypeError: something cannot leave this process: names the operation, the path to the object, and the remedy.
        ValueError: a module cannot be shipped; the text says why.

    >>> pack_pipeline(len).modules
    ()
    >>> pack_pipeline(iter([]).__next__ for _ in "a")
    Traceback (most recent call last):
        ...
    TypeError: cannot send <genexpr> to workers: it is a generator, which cannot leave this process. Pass the function \
that makes it, for example to Dataset.from_generator, or the values as a list.

    Ours; tf.data serializes a graph instead.
    """
    from zmqdata.pipelines.ownclasses import remember
    from zmqdata.pipelines.pickler import PipelinePickler, UnsendableError

    archives = dict(pack_sources(ship) if sources is None else sources)
    file = io.BytesIO()
    pickler = PipelinePickler(file)
    try:
        # Inputs first: a node then finds its inputs already pickled, and a long chain
        # needs no deep recursion.
        pickler.dump(tuple(nodes_in_order(node)))
    except UnsendableError as error:
        raise TypeError(_why_not(error)) from error.__cause__
    for name in pickler.modules:
        archives.update(carried_sources(name) or {})
    try:
        identity = _identity(node, archives)
    except RecursionError as error:
        raise TypeError(
            "cannot send a pipeline to workers: a parameter is nested too deeply. Flatten it."
        ) from error
    packed = PackedPipeline(
        payload=file.getvalue(),
        python=_minor(platform.python_version()),
        version=zmqdata_version(),
        fingerprint=identity,
        modules=tuple(sorted(pickler.modules)),
        buffers=tuple(hashlib.sha256(buffer).hexdigest() for buffer in pickler.apart),
        shipped=tuple(archives),
        contents=archives,
    )
    for digest, buffer in zip(packed.buffers, pickler.apart, strict=True):
        packed.contents[digest] = buffer
    remember(packed.digest, pickler.classes)
    return packed


def _identity(node: Any, sources: dict[str, bytes]) -> str:
    found = fingerprint(node)
    if sources:
        code, functions = (
            _hash_of(" ".join([one, *sources])) for one in (found.code, found.functions)
        )
        found = Fingerprint(found.structure, code, functions)
    return str(found)


def _hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def open_pipeline(
    packed: PackedPipeline, find: FindPart | None = None, folder: Path | None = None
) -> Any:
    """Turn the bytes back into what ``pack_pipeline`` was given. For workers only: it
    runs code of the sender.

    Args:
        packed: what ``pack_pipeline`` has made.
        find: gives the content of a part by its digest, None where it is not to be had.
            Arrays are views of it, so that it must stay as it is, and be writable if
            they are to be. None: what ``packed.contents`` holds.
        folder: where shipped code may lie as long as this process lives; None: a
            temporary folder.

    Raises:
        FailedPreconditionError: this process cannot run the pipeline (another Python,
            another zmqdata, a module, a part or a name missing, anything else that
            fails while opening). Names both sides and the remedy.

    >>> open_pipeline(pack_pipeline(len)) is len
    True
    """
    _check_versions(packed)
    take = find or packed.contents.get
    shipment = (
        install({digest: _part(digest, take) for digest in packed.shipped}, folder)
        if packed.shipped
        else None
    )
    shipped = shipment.names if shipment is not None else frozenset()
    missing = [name for name in packed.modules if name not in shipped and not _can_import(name)]
    if missing:
        raise FailedPreconditionError(_missing_text(", ".join(map(repr, missing)), packed))
    from zmqdata.pipelines.ownclasses import open_pickle

    # Arrays may be written to, so each gets memory of its own, also where two have the
    # same content
    buffers = [_writable(_part(digest, take)) for digest in packed.buffers]
    try:
        return open_pickle(packed.payload, buffers, shipment, packed.digest)[-1]
    except ModuleNotFoundError as error:
        raise FailedPreconditionError(
            _missing_text(repr(plain_name(str(error.name))), packed)
        ) from error
    except (AttributeError, ImportError) as error:
        raise FailedPreconditionError(_skew_text(error, packed)) from error
    except Exception as error:
        raise FailedPreconditionError(_failed_text(error, packed)) from error


def _part(digest: str, find: FindPart) -> bytes | memoryview:
    content = find(digest)
    if content is None:
        raise FailedPreconditionError(
            f"a part of the pipeline is not on this worker any more ({digest[:16]}...). Was its "
            "cache emptied while it "
            "ran? Read the dataset again, which sends it anew."
        )
    return content


def _writable(content: bytes | memoryview) -> bytearray | memoryview:
    return (
        content if isinstance(content, memoryview) and not content.readonly else bytearray(content)
    )


def _why_not(error: UnsendableError) -> str:
    operation, path = describe_trail(error.trail)
    kind = qualified_name(type(error.trail[-1]))
    subject = "it" if path == operation else path
    start = f"cannot send {operation} to workers: {subject} "
    if error.reason:
        return (
            f"{start}is {_article(kind)} {kind}, which cannot leave this process. {error.reason}."
        )
    if isinstance(error.__cause__, RecursionError):
        return f"{start}is nested too deeply to be pickled. Flatten it, or build it inside the function."
    cause = f"{type(error.__cause__).__name__}: {error.__cause__}"
    return f"{start}({_article(kind)} {kind}) cannot be pickled ({cause}). Create it inside the function instead."


def _article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _here() -> str:
    return f"this worker ({platform.node()}, Python {platform.python_version()}, zmqdata {zmqdata_version()})"


def _there(packed: PackedPipeline) -> str:
    return f"client: Python {packed.python}, zmqdata {packed.version}"


def _check_versions(packed: PackedPipeline) -> None:
    if packed.python != _minor(platform.python_version()):
        raise FailedPreconditionError(
            f"the pipeline was packed by another Python than that of {_here()} ({_there(packed)}). "
            "Functions travel as "
            "bytecode, which only the same minor version can run: start the worker with Python "
            f"{packed.python}, "
            f"or the training script with Python {_minor(platform.python_version())}."
        )
    major, ours = packed.version.partition(".")[0], zmqdata_version().partition(".")[0]
    if major != ours:
        raise FailedPreconditionError(
            f"the pipeline was packed by zmqdata {packed.version}, which {_here()} cannot open "
            f"({_there(packed)}). "
            f"Install the same major version on both sides: pip install 'zmqdata=={major}.*' on "
            "the worker."
        )


def _can_import(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


_BY_VALUE = "or define the function in the training script so it travels by value."


def _missing_text(names: str, packed: PackedPipeline) -> str:
    noun = "modules" if "," in names else "module"
    return (
        f"the pipeline needs {noun} {names} which {_here()} cannot import ({_there(packed)}). "
        f"{MISSING_MODULE}"
    )


def _skew_text(error: Exception, packed: PackedPipeline) -> str:
    return (
        f"the pipeline refers to a name that {_here()} does not have: {plain_name(str(error))} "
        f"({_there(packed)}). "
        "The module is there, probably in another version: install the client's version on the "
        f"worker, {_BY_VALUE}"
    )


def _failed_text(error: Exception, packed: PackedPipeline) -> str:
    return (
        f"the pipeline cannot be opened by {_here()}: {type(error).__name__}: "
        f"{plain_name(str(error))} "
        f"({_there(packed)}). "
        "Usually an object whose class differs in its version on both sides: install the same "
        "versions."
    )
