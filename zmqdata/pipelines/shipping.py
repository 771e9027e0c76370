"""Shipping of source code to workers that lack it: the files of a module, packed into
bytes. For clients.

This module imports and runs nothing for a user. ``importing`` handles the bytes in a
worker.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterable, Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from zmqdata.failures.names import PREFIX
from zmqdata.files.filenames import portable
from zmqdata.files.paths import local_path
from zmqdata.printable import shown_size

SOURCES = "__zmqdata_sources__"
"""Attribute of a shipment's package that holds the shipment's archives by digest."""
MOST_FILE_BYTES = 8 << 20
MOST_BYTES = 64 << 20

_COMPILED = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".dll", ".dylib")
_LEFT_OUT = (".pyc", ".pyo", "~")


ShippedSource: TypeAlias = "types.ModuleType | str | os.PathLike[str]"
"""A module, its name, or a path to it."""


class SourceArchive(msgspec.Struct, frozen=True):
    """The files of a top-level module or package."""

    name: str
    """The name by which it is imported."""
    files: tuple[tuple[str, bytes], ...]
    """Paths and contents, sorted. Paths are relative to the folder that would be on
    ``sys.path``, with ``/``.
    """


def pack_sources(ship: object) -> dict[str, bytes]:
    """Return the sources of modules as bytes, by the SHA-256 of these bytes.

    Args:
        ship: a list of modules, of their names, or of paths to packages and to ``.py``
            files. A submodule stands for its whole package. The same files give the
            same bytes on every machine.

    Raises:
        TypeError: ``ship`` is not a list, or has an entry of another kind.
        ValueError: a module does not exist, its source is unavailable, it is part of
            Python, it contains compiled code, or it is too large.

    >>> pack_sources([])
    {}
    >>> pack_sources(["json"])
    Traceback (most recent call last):
        ...
    ValueError: `ship`: 'json' is part of Python. Every worker has it; leave it out
    """
    if isinstance(ship, (str, bytes, os.PathLike, types.ModuleType)) or not isinstance(
        ship, Sequence
    ):
        raise TypeError(
            "`ship` must be a list of modules, names of modules or paths, got "
            f"{ship!r}; for a single module write ship=[...]"
        )
    archives: dict[str, SourceArchive] = {}
    carried: dict[str, bytes] = {}
    for wanted in ship:
        came_along = (
            carried_sources(wanted.__name__) if isinstance(wanted, types.ModuleType) else None
        )
        if came_along is not None:
            carried.update(came_along)
            continue
        archive = _archive(wanted)
        if archives.setdefault(archive.name, archive) != archive:
            raise ValueError(
                f"`ship` names two different modules {archive.name!r}. Leave one of them out"
            )
    contents = [msgspec.msgpack.encode(archives[name]) for name in sorted(archives)]
    return {**carried, **{hashlib.sha256(content).hexdigest(): content for content in contents}}


def carried_sources(module: str) -> dict[str, bytes] | None:
    """Return the archives, by digest, that a module was shipped with; None if this
    process is not a worker that received it.

    A worker that registers a pipeline ships all of them again.

    >>> carried_sources("json") is None
    True
    """
    root = module.partition(".")[0]
    sources = getattr(sys.modules.get(root), SOURCES, None) if root.startswith(PREFIX) else None
    return (
        None if sources is None else {digest: bytes(content) for digest, content in sources.items()}
    )


def names_of(archives: Iterable[bytes]) -> frozenset[str]:
    """Return the names of the modules in archives."""
    return frozenset(
        msgspec.msgpack.decode(content, type=SourceArchive).name for content in archives
    )


def _archive(wanted: Any) -> SourceArchive:
    if isinstance(wanted, os.PathLike) or (isinstance(wanted, str) and _is_path(wanted)):
        remedy = "Copy the code here, or install it on the workers"
        place = Path(local_path("`ship`", wanted, remedy))
        return _packed(place.stem if place.suffix == ".py" else place.name, [place])
    if not isinstance(wanted, (types.ModuleType, str)):
        raise TypeError(f"`ship` must hold modules, names of modules or paths, got {wanted!r}")
    name = (wanted if isinstance(wanted, str) else wanted.__name__).partition(".")[0]
    return _packed(name, _places(name))


def _is_path(text: str) -> bool:
    return os.sep in text or "/" in text or text.endswith(".py")


def _places(name: str) -> list[Path]:
    """Return the file of a module, or the folders of a package. A package has several
    folders only if it is spread over ``sys.path``.
    """
    if name in ("__main__", "__mp_main__"):
        raise ValueError(
            "`ship`: definitions of the script itself are shipped automatically. "
            "Leave '__main__' out"
        )
    if name in sys.stdlib_module_names:
        raise ValueError(f"`ship`: {name!r} is part of Python. Every worker has it; leave it out")
    if name == "zmqdata":
        raise ValueError("`ship`: every worker has zmqdata. Leave it out")
    spec = _spec(name)
    if spec is None:
        raise ValueError(
            f"`ship`: the module {name!r} does not exist here. Pass the module itself "
            "after importing it, its name as in `import` (is its folder on "
            "sys.path?), or the path to its folder or .py file"
        )
    if spec.submodule_search_locations:
        return [Path(place) for place in spec.submodule_search_locations]
    if spec.origin is None or not os.path.exists(spec.origin):
        raise ValueError(
            f"`ship`: the source of {name!r} is not in a file ({spec.origin}). "
            "Install it on the workers"
        )
    return [Path(spec.origin)]


def _spec(name: str) -> ModuleSpec | None:
    module = sys.modules.get(name)
    found: ModuleSpec | None = getattr(module, "__spec__", None)
    if found is None and module is not None and getattr(module, "__file__", None):
        return importlib.util.spec_from_file_location(
            name, module.__file__
        )  # created by hand from a file
    if found is not None:
        return found
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _packed(name: str, places: list[Path]) -> SourceArchive:
    if not name.isidentifier():
        raise ValueError(
            f"`ship`: {name!r} cannot be the name of a module, so {places[0]} cannot "
            "be imported. Rename it"
        )
    files: dict[str, Path] = {}
    for place in places:
        if place.is_dir():
            files.update(
                (f"{name}/{path.relative_to(place).as_posix()}", path) for path in _files(place)
            )
        elif place.exists():
            files[f"{name}.py"] = place
        else:
            raise ValueError(f"`ship`: the path {place} does not exist")
    return SourceArchive(name, tuple(_contents(name, files)))


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [one for one in folders if not one.startswith(".") and one != "__pycache__"]
        yield from (
            Path(parent) / one
            for one in names
            if not one.startswith(".") and not one.endswith(_LEFT_OUT)
        )


def _contents(name: str, files: dict[str, Path]) -> Iterator[tuple[str, bytes]]:
    if not any(path.suffix == ".py" for path in files.values()):
        compiled = next((path for path in files.values() if path.name.endswith(_COMPILED)), None)
        if compiled is None:
            raise ValueError(
                f"`ship`: {name!r} contains no .py file: "
                f"{', '.join(map(str, files.values())) or 'none'}"
            )
    left = MOST_BYTES
    for inside, path in sorted(files.items()):
        if path.name.endswith(_COMPILED):
            raise ValueError(
                f"`ship`: {name!r} contains compiled code ({path}), which runs only "
                "on machines like the machine it was built for. Install it on the "
                "workers (pip install), and ship only Python code"
            )
        size = path.stat().st_size
        left -= size
        if size > MOST_FILE_BYTES or left < 0:
            raise ValueError(
                f"`ship`: {name!r} is too large at {path} ({shown_size(size)}): at "
                f"most {shown_size(MOST_FILE_BYTES)} per file and {shown_size(MOST_BYTES)} "
                "in all. Put data files where workers can read them"
            )
        yield portable(inside), path.read_bytes()
