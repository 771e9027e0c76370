"""Conversion of pipelines to bytes and back: the client packs, the dispatcher forwards,
and workers open.

Sockets and messages do not belong here. Only calls of ``pack_pipeline`` and
``open_pipeline`` import dill. Importing this module does not, so that every process can
describe a packed pipeline.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import platform
import sys
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from zmqdata.errors import DataServiceError, FailedPreconditionError
from zmqdata.failures.codec import missing_module
from zmqdata.failures.names import plain_name
from zmqdata.machine import UNKNOWN_VERSION, installed_version
from zmqdata.messages.identity import Fingerprint
from zmqdata.messages.parts import MappedFile
from zmqdata.peeking import is_a
from zmqdata.pipelines.findable import is_importable
from zmqdata.pipelines.fingerprints import fingerprint, nodes_in_order
from zmqdata.pipelines.holding import Step
from zmqdata.pipelines.importing import install
from zmqdata.pipelines.memorymaps import open_map
from zmqdata.pipelines.numpynames import other_numpy
from zmqdata.pipelines.ownmodules import file_of, outdated, own_sources
from zmqdata.pipelines.parcels import Parcel, ParcelChangedError, Piece, kept_parcel, open_parcel
from zmqdata.pipelines.shipping import carried_sources, names_of, pack_sources
from zmqdata.pipelines.unsendable import (
    Reached,
    deep_trail,
    describe_holder,
    describe_trail,
    qualified_name,
)

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from zmqdata.pipelines.pickler import PipelinePickler, UnsendableError


LAYOUT = 2
"""Number of the layout of packed pipelines. It increases when the classes to which
their pickles refer get other names.
"""

FindPart = Callable[[str], "bytes | memoryview | None"]
"""Function that returns the content of a part by its digest, or None."""


class PackedPipeline(msgspec.Struct, frozen=True, dict=True):
    """A pipeline as bytes, with everything that a worker must check before opening
    it.
    """

    payload: bytes
    """Pickle of the nodes, protocol 5. Only workers open it, because opening runs code.
    That of a parcel is a part.
    """
    python: str
    """Minor version of the client's Python, such as ``"3.11"``. Other minor versions
    cannot run its bytecode.
    """
    version: str
    """Version of the client's zmqdata."""
    fingerprint: str
    """``str(Fingerprint)``, equal in every run of the same script."""
    numpy: str = ""
    """Version of the client's numpy."""
    modules: tuple[str, ...] = ()
    """Top-level modules that the pipeline refers to by name, without the standard
    library and zmqdata.
    """
    sources: dict[str, str] = {}
    """SHA-256 of the loaded source of the user's own modules that it refers to and
    that are not shipped, by name.
    """
    buffers: tuple[str, ...] = ()
    """Digests of the large buffers outside the payload, in the payload's order."""
    shipped: tuple[str, ...] = ()
    """Digests of the shipped source archives."""
    files: tuple[MappedFile, ...] = ()
    """Ranges of files that it maps, which workers must see."""
    pickle: str = ""
    """Digest of the payload if that is a part."""
    layout: int = 1
    """Number of its layout. The first one had no number."""
    contents: dict[str, Any] = {}
    """Bytes of buffers and archives by digest. They are not part of the packed
    pipeline: a receiver that has them already need not receive them again.
    """

    @cached_property
    def encoded(self) -> bytes:
        """The packed pipeline as bytes, without the contents of its parts."""
        return msgspec.msgpack.encode(msgspec.structs.replace(self, contents={}))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of ``encoded`` in hex; it covers the digests of the parts. Unlike the
        fingerprint, it may differ between runs.
        """
        return hashlib.sha256(self.encoded).hexdigest()

    @classmethod
    def decode(cls, encoded: bytes | memoryview) -> PackedPipeline:
        """Decode the bytes of ``encoded``.

        Raises:
            ValueError: the bytes are not a packed pipeline.
        """
        return msgspec.msgpack.decode(encoded, type=cls)


def pack_pipeline(
    node: Any,
    ship: object = (),
    sources: Mapping[str, bytes] | None = None,
) -> PackedPipeline:
    """Convert a pipeline to bytes for workers, or raise at once if that is impossible.

    Functions and classes of the training script, lambdas and closures are shipped by
    value, with the global names that they use. Functions and classes of importable
    modules are shipped by name.

    Args:
        node: the last node of a pipeline (or any value, for example a single function).
        ship: modules whose source is shipped, see ``pack_sources``.
        sources: an earlier result of ``pack_sources``; ``ship`` is then ignored.

    Raises:
        TypeError: an object cannot leave this process; the error names the operation,
            the path to the object, and the remedy.
        ValueError: a module cannot be shipped, or the pipeline is larger than a message
            can be; the error gives the reason.

    >>> pack_pipeline(len).modules
    ()
    >>> pack_pipeline(iter([]).__next__ for _ in "a")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    TypeError: cannot send <genexpr> to workers: it is a generator, which cannot ...

    tf.data serializes a graph instead.
    """
    from zmqdata.pipelines.pickler import PickleFile
    from zmqdata.pipelines.unpickler import remember

    file = PickleFile()
    archives = dict(pack_sources(ship) if sources is None else sources)
    # Inputs first: a node then finds its inputs already pickled, and a long chain needs
    # no deep recursion.
    order = tuple(nodes_in_order(node))
    packed, pickler = pickled(order, file, archives)
    found = _fingerprint(node, order, archives)
    packed.contents.update({one.name: one.content for one in _pieces(pickler)}, **archives)
    files = list(packed.files)
    for parcel in pickler.parcels:
        made: dict[str, bytes] = {}
        contents = {name: ParcelContent(parcel, name, made) for name in parcel.sizes}
        packed.contents.update(contents, **parcel.sources)
        files += parcel.packed.files
    with file:
        packed = msgspec.structs.replace(
            packed, payload=file.getvalue(), fingerprint=found, files=tuple(dict.fromkeys(files))
        )
    remember(packed.digest, pickler.definitions.classes)
    return packed


def pickled(
    value: Any, file: Any, archives: dict[str, bytes], name: str = ""
) -> tuple[PackedPipeline, PipelinePickler]:
    """Pickle a value into a file. Return what a worker needs beside the pickle, and the
    pickler, and add to the archives those that modules of the value came with.

    Raises:
        TypeError: an object cannot leave this process.
        ValueError: the pickle is too large.
    """
    from zmqdata.pipelines.pickler import PipelinePickler, UnsendableError

    pickler = PipelinePickler(file, names_of(archives.values()), name)
    try:
        pickler.dump(value)
    except UnsendableError as error:
        raise TypeError(_why_not(error, name)) from error.__cause__
    for module in pickler.modules:
        archives.update(carried_sources(module) or {})
    packed = PackedPipeline(
        payload=b"",
        python=_minor(platform.python_version()),
        version=installed_version(),
        fingerprint="",
        numpy=np.__version__,
        modules=tuple(sorted({module.partition(".")[0] for module in pickler.modules})),
        sources=own_sources(pickler.modules, pickler.shipped),
        buffers=tuple(one.name for one in pickler.apart),
        shipped=tuple(archives),
        files=tuple(pickler.files),
        layout=LAYOUT,
        contents={},
    )
    return packed, pickler


def _fingerprint(value: Any, held: Any, archives: dict[str, bytes], name: str = "") -> str:
    from zmqdata.pipelines.pickler import UnsendableError

    try:
        return _identity(value, archives)
    except RecursionError as error:
        alone = [Reached(Step("part", ""), value)]
        deep = UnsendableError(deep_trail(held, names_of(archives.values())) or alone)
        deep.__cause__ = error
        raise TypeError(_why_not(deep, name)) from error


def _pieces(pickler: PipelinePickler) -> list[Piece]:
    """Return the buffers outside the stream. The pickler keeps none."""
    apart, pickler.apart = pickler.apart, []
    return list({one.name: one for one in apart}.values())


# --- parcels


def poll_at(parcel: Parcel, keeps: bool = False) -> bool:
    """Find the digests of what a parcel consists of. Return True if they have changed
    since the last time.

    Args:
        parcel: the parcel.
        keeps: True to let it keep the bytes until they are sent, as it does if they are
            other ones each time.

    Raises:
        TypeError: an object cannot leave this process.
        ValueError: the value is larger than a message can be.
    """
    from zmqdata.pipelines.pickler import PickleFile
    from zmqdata.pipelines.unpickler import remember

    with PickleFile(keeps or parcel.is_odd) as file:
        packed, pickler = pickled(parcel.value, file, parcel.sources, name=parcel.name)
        pieces = [file.whole(), *_pieces(pickler)]
    parcel.content = {one.name: one.content for one in pieces if one.content}
    packed, known = msgspec.structs.replace(packed, pickle=pieces[0].name), parcel.packed
    if known is not None and packed == msgspec.structs.replace(known, fingerprint=""):
        parcel.is_odd = False  # it does not change each time
        parcel.content = parcel.content if keeps else {}
        return False
    found = _fingerprint(parcel.value, parcel.value, parcel.sources, parcel.name)
    parcel.packed = msgspec.structs.replace(packed, fingerprint=found)
    parcel.sizes = {one.name: one.size for one in pieces}
    remember(parcel.packed.digest, pickler.definitions.classes)
    return True


class ParcelContent:
    """The bytes of a part of a parcel, which are made when the dispatcher lacks them.

    Args:
        parcel: the parcel.
        name: SHA-256 of the bytes.
        made: receives the bytes of all its parts.
    """

    def __init__(self, parcel: Parcel, name: str, made: dict[str, bytes]) -> None:
        self.parcel, self.made = parcel, made
        self._name, self._size = name, parcel.sizes[name]

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        if not self.made:
            self.made.update(self.parcel.content or _bytes_of(self.parcel))
        if self._name not in self.made:  # a later pass has looked at it since
            raise ParcelChangedError
        return self.made[self._name][place]


def _bytes_of(parcel: Parcel) -> dict[str, bytes]:
    """Return the bytes of a parcel, or raise if it has changed, after saying why."""
    if not poll_at(parcel, keeps=True):
        return parcel.content
    parcel.is_odd = True
    from zmqdata.pipelines.pickler import PickleFile

    def digest(thing: object) -> str:
        file = PickleFile(keeps=False)
        pickled(thing, file, dict(parcel.sources))
        return file.whole().name

    pickler = pickled(parcel.value, PickleFile(keeps=False), dict(parcel.sources))[1]
    # What an object holds comes after it.
    odd = [kind for kind, one in pickler.made_by.items() if digest(one) != digest(one)]
    log.warning(
        "%s gives other bytes each time that it is pickled, so it is packed and sent in each pass. "
        "The class %s does so: let its `__reduce__` or `__getstate__` return equal values while "
        "the object does not change"
        if odd
        else "%s was changed while it was packed: workers get it as it is now%s",
        parcel.name,
        qualified_name(odd[-1]) if odd else "",
    )
    raise ParcelChangedError


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
    packed: PackedPipeline,
    find: FindPart | None = None,
    folder: Path | None = None,
    stream: int = 0,
    opener: str = "this process",
) -> Any:
    """Return the value that was passed to ``pack_pipeline``. For processes that trust
    the sender: opening runs its code.

    Args:
        packed: the result of ``pack_pipeline``.
        find: function that returns the content of a part by its digest, or None if it
            is unavailable. Arrays are views of that content. It must therefore not
            change, and arrays are writable only if it is. The default looks in
            ``packed.contents``.
        folder: folder for shipped code until this process ends; None means a temporary
            folder.
        stream: number of the task within its job. Parcels that are kept are opened once
            for each.
        opener: name of the process for errors, such as ``this worker``.

    Raises:
        FailedPreconditionError: this process cannot run the pipeline. Python or zmqdata
            has another version, a module, a part or a name is missing, or opening fails
            otherwise. The error names both sides and the remedy.

    >>> open_pipeline(pack_pipeline(len)) is len
    True
    """
    _check_versions(packed, opener)
    take = find or packed.contents.get
    shipment = (
        install({digest: _part(digest, take, opener) for digest in packed.shipped}, folder)
        if packed.shipped
        else None
    )
    shipped = shipment.names if shipment is not None else frozenset()
    missing = [name for name in packed.modules if name not in shipped and not _can_import(name)]
    if missing:
        raise FailedPreconditionError(_missing_text(", ".join(map(repr, missing)), packed, opener))
    old = outdated(packed.sources)
    if old:
        raise FailedPreconditionError(_outdated_text(old, opener))
    from zmqdata.pipelines.unpickler import open_pickle

    def opened_parcel(encoded: bytes, key: str) -> Parcel:
        return kept_parcel(
            key,
            stream,
            lambda: Parcel(
                open_pipeline(PackedPipeline.decode(encoded), take, folder, opener=opener)
            ),
        )

    # A pipeline may write to its arrays, so each array gets its own memory, even if two
    # have the same content.
    buffers = [_writable(_part(name, take, opener)) for name in packed.buffers]
    try:
        payload = _part(packed.pickle, take, opener) if packed.pickle else packed.payload
        own = {
            (open_parcel.__module__, open_parcel.__name__): opened_parcel,
            (open_map.__module__, open_map.__name__): partial(open_map, place=f"at {opener}"),
        }
        opened = open_pickle(payload, buffers, shipment, packed.digest, own)
        opened = opened if packed.pickle else opened[-1]
        outdated(packed.sources)  # notes the source of the modules that were just imported
        return opened
    except FailedPreconditionError:
        raise
    except ModuleNotFoundError as error:
        if str(error.name).startswith("numpy."):
            raise FailedPreconditionError(_skew_text(error, packed, opener)) from error
        raise FailedPreconditionError(
            _missing_text(repr(plain_name(str(error.name))), packed, opener)
        ) from error
    except Exception as error:
        text = _skew_text if _is_skew(error) else _failed_text
        raise FailedPreconditionError(text(error, packed, opener)) from error


def _part(digest: str, find: FindPart, opener: str) -> bytes | memoryview:
    """Return the content of a part; raise if it is unavailable."""
    content = find(digest)
    if content is None:
        raise FailedPreconditionError(
            f"{opener} has a part of the pipeline no longer ({digest[:16]}...). "
            "Was its cache emptied while the pipeline ran? Read the dataset again, "
            "which sends the part again"
        )
    return content[:]


def _writable(content: bytes | memoryview) -> bytearray | memoryview:
    return (
        content if isinstance(content, memoryview) and not content.readonly else bytearray(content)
    )


def _why_not(error: UnsendableError, name: str) -> str:
    operation, path = describe_trail(error.trail)
    kind = qualified_name(type(error.trail[-1].thing))
    subject = "it" if path == operation else path
    if name:  # of which the outermost object is no part
        operation, subject = name, subject.removeprefix(f"{operation}.")
    start = f"cannot send {operation} to workers: {subject} "
    holder = describe_holder(error.trail)
    if error.reason:
        otherwise = f"Otherwise, {error.reason[:1].lower()}{error.reason[1:]}."
        remedies = f"{holder}. {otherwise}" if holder else f"{error.reason}."
        return f"{start}is {_article(kind)} {kind}, which cannot leave this process. {remedies}"
    if isinstance(error.__cause__, RecursionError):
        return (
            f"{start}is nested too deeply to be pickled. Flatten it, or build it inside "
            "the function."
        )
    if isinstance(error.__cause__, DataServiceError):
        return f"{start}({_article(kind)} {kind}) cannot be sent. {error.__cause__}."
    cause = f"{type(error.__cause__).__name__}: {error.__cause__}"
    return (
        f"{start}({_article(kind)} {kind}) cannot be pickled ({cause}). "
        + (f"{holder}. Or create" if holder else "Create")
        + " it inside the function instead."
    )


def _article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _here(opener: str) -> str:
    return (
        f"{opener} ({platform.node()}, Python {platform.python_version()}, zmqdata "
        f"{installed_version()}, numpy {np.__version__})"
    )


def _there(packed: PackedPipeline) -> str:
    return f"client: Python {packed.python}, zmqdata {packed.version}, numpy {packed.numpy}"


def _check_versions(packed: PackedPipeline, opener: str) -> None:
    if packed.python != _minor(platform.python_version()):
        raise FailedPreconditionError(
            f"the pipeline was packed by another Python than that of {_here(opener)} "
            f"({_there(packed)}). Functions are shipped as bytecode, which only the "
            f"same minor version can run. Start {opener} with Python "
            f"{packed.python}, or the training script with Python "
            f"{_minor(platform.python_version())}"
        )
    major, ours = packed.version.partition(".")[0], installed_version().partition(".")[0]
    if major != ours and UNKNOWN_VERSION not in (major, ours):
        raise FailedPreconditionError(
            f"the pipeline was packed by zmqdata {packed.version}, which {_here(opener)} "
            f"cannot open ({_there(packed)}). Install the same major version on both "
            f"sides: pip install 'zmqdata=={major}.*' for {opener}"
        )
    if packed.layout != LAYOUT:
        raise FailedPreconditionError(
            f"the pipeline was packed by another build of zmqdata: it has layout {packed.layout}, "
            f"and {_here(opener)} opens layout {LAYOUT} ({_there(packed)}). {_SAME_BUILD}"
        )


def _can_import(name: str) -> bool:
    if name in sys.modules:
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


_SAME_BUILD = "Install the same build of zmqdata on both sides."
_BY_VALUE = "or define the function in the training script, so that it is shipped by value."


def _missing_text(names: str, packed: PackedPipeline, opener: str) -> str:
    noun = "modules" if "," in names else "module"
    if names.startswith("'zmqdata."):
        return (
            f"the pipeline was packed by another build of zmqdata: it needs module {names}, which "
            f"{_here(opener)} does not have ({_there(packed)}). {_SAME_BUILD}"
        )
    return (
        f"the pipeline needs {noun} {names} which {_here(opener)} cannot import "
        f"({_there(packed)}). {missing_module(opener)}"
    )


def _outdated_text(names: list[str], opener: str) -> str:
    files = ", ".join(f"{name!r} ({file_of(name)})" for name in names)
    return (
        f"the file of a module has changed since {_here(opener)} imported it: {files}. The "
        "client has loaded its new source, and the old one would run there. Restart it, for "
        "example with a new LocalCluster, or ship the module, which always sends the present "
        f"source: distribute(..., ship={sorted({name.partition('.')[0] for name in names})})"
    )


def _is_skew(error: Exception) -> bool:
    """Return True if a module lacks a name, False if an object of the script does."""
    if not isinstance(error, AttributeError):
        return isinstance(error, ImportError)
    owner = error.obj
    return owner is None or is_importable(owner if is_a(owner, type) else type(owner))


def _skew_text(error: Exception, packed: PackedPipeline, opener: str) -> str:
    return (
        f"the pipeline refers to a name that {_here(opener)} does not have: "
        f"{plain_name(str(error))} ({_there(packed)}). "
        + (
            other_numpy(packed.numpy, opener)
            or "It has the module, probably in another version: install the client's version for "
            f"{opener}, {_BY_VALUE}"
        )
    )


def _failed_text(error: Exception, packed: PackedPipeline, opener: str) -> str:
    if isinstance(error, FileNotFoundError):
        return (
            f"the pipeline holds a file that {_here(opener)} cannot open: "
            f"{plain_name(str(error))}. Put it where {opener} finds it under this path, or open it "
            "inside the function"
        )
    return (
        f"the pipeline cannot be opened by {_here(opener)}: {type(error).__name__}: "
        f"{plain_name(str(error))} ({_there(packed)}). "
        + (
            other_numpy(packed.numpy, opener)
            or "The likely cause is an object that pickle cannot make again: a class with other "
            "arguments than its objects were stored with (define `__getnewargs__` or "
            "`__reduce__`), or a class that differs between the versions on both sides (install "
            "the same versions)."
        )
    )
