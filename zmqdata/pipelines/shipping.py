"""Source code on its way to workers that lack it: which files belong to a module,
packed into bytes. For clients.

Nothing is imported here on behalf of a user, and nothing is run; what a worker does
with the bytes is in ``importing``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from zmqdata.failures.names import PREFIX

SOURCES = "__zmqdata_sources__"
"""Attribute of the package of a shipment: its archives, by digest."""
MOST_FILE_BYTES = 8 << 20
MOST_BYTES = 64 << 20

_COMPILED = (*EXTENSION_SUFFIXES, ".so", ".pyd", ".dll", ".dylib")
_LEFT_OUT = (".pyc", ".pyo", "~")


ShippedSource: TypeAlias = "types.ModuleType | str | os.PathLike[str]"
"""A module, its name, or a path to it."""


class SourceArchive(msgspec.Struct, frozen=True):
    """The files of one top-level module or package.

    Attributes:
        name: what it is imported as.
        files: path below the folder that would be on ``sys.path``, with ``/``, and
            content; sorted.
    """

    name: str
    files: tuple[tuple[str, bytes], ...]


def pack_sources(ship: object) -> dict[str, bytes]:
    """The sources of modules as bytes, by the SHA-256 of these bytes.

    Args:
        ship: a list of modules, of their names, or of paths to packages and to ``.py``
            files. A part of a package stands for all of it. The same files give the
            same bytes on every machine.

    Raises:
        TypeError: ``ship`` is no list, or has something else in it.
        ValueError: there is no such module, its source is not to be had, it is a part
            of Python, it holds compiled code, or it is too large.

    >>> pack_sources([])
    {}
    >>> pack_sources(["json"])
    Traceback (most recent call last):
        ...
    ValueError: `ship`: 'json' is a part of Python, which every worker has. Leave it out.
    """
    if isinstance(ship, (str, bytes, os.PathLike, types.ModuleType)) or not isinstance(
        ship, Sequence
    ):
        raise TypeError(
            f"`ship` must be a list of modules, names of modules or paths, got {ship!r}; for a "
            "single one: ship=[...]"
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
                f"`ship` names two different modules {archive.name!r}; leave one of them out."
            )
    contents = [msgspec.msgpack.encode(archives[name]) for name in sorted(archives)]
    return {**carried, **{hashlib.sha256(content).hexdigest(): content for content in contents}}


def carried_sources(module: str) -> dict[str, bytes] | None:
    """What a module came along with, by digest, if this is a worker that it was shipped
    to: all of it goes on.

    >>> carried_sources("json") is None
    True
    """
    root = module.partition(".")[0]
    sources = getattr(sys.modules.get(root), SOURCES, None) if root.startswith(PREFIX) else None
    return (
        None if sources is None else {digest: bytes(content) for digest, content in sources.items()}
    )


def _archive(wanted: Any) -> SourceArchive:
    if isinstance(wanted, os.PathLike) or (isinstance(wanted, str) and _is_path(wanted)):
        place = Path(os.path.abspath(wanted))
        return _packed(place.stem if place.suffix == ".py" else place.name, [place])
    if not isinstance(wanted, (types.ModuleType, str)):
        raise TypeError(f"`ship` must hold modules, names of modules or paths, got {wanted!r}")
    name = (wanted if isinstance(wanted, str) else wanted.__name__).partition(".")[0]
    return _packed(name, _places(name))


def _is_path(text: str) -> bool:
    return os.sep in text or "/" in text or text.endswith(".py")


def _places(name: str) -> list[Path]:
    """The file of a module, or the folders of a package: several only where it is
    spread over ``sys.path``.
    """
    if name in ("__main__", "__mp_main__"):
        raise ValueError(
            "`ship`: what the script itself defines travels by itself. Leave '__main__' out."
        )
    if name in sys.stdlib_module_names:
        raise ValueError(
            f"`ship`: {name!r} is a part of Python, which every worker has. Leave it out."
        )
    if name == "zmqdata":
        raise ValueError("`ship`: every worker has zmqdata. Leave it out.")
    spec = _spec(name)
    if spec is None:
        raise ValueError(
            f"`ship`: there is no module {name!r} here. Give the module itself after importing it, "
            "its name as in "
            "`import` (is its folder on sys.path?), or the path to its folder or .py file."
        )
    if spec.submodule_search_locations:
        return [Path(place) for place in spec.submodule_search_locations]
    if spec.origin is None or not os.path.exists(spec.origin):
        raise ValueError(
            f"`ship`: the source of {name!r} is not in a file ({spec.origin}). Install it on the "
            "workers."
        )
    return [Path(spec.origin)]


def _spec(name: str) -> ModuleSpec | None:
    module = sys.modules.get(name)
    found: ModuleSpec | None = getattr(module, "__spec__", None)
    if found is None and module is not None and getattr(module, "__file__", None):
        return importlib.util.spec_from_file_location(
            name, module.__file__
        )  # made by hand from a file
    if found is not None:
        return found
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _packed(name: str, places: list[Path]) -> SourceArchive:
    if not name.isidentifier():
        raise ValueError(
            f"`ship`: {name!r} cannot be the name of a module; {places[0]} cannot be imported as "
            "it is."
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
            raise ValueError(f"`ship`: there is no {place}.")
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
                f"`ship`: {name!r} has no .py file in it: "
                f"{', '.join(map(str, files.values())) or 'none'}"
            )
    left = MOST_BYTES
    for inside, path in sorted(files.items()):
        if path.name.endswith(_COMPILED):
            raise ValueError(
                f"`ship`: {name!r} holds compiled code ({path}), which runs only on machines like "
                "the one that it was "
                "built for. Install it on the workers (pip install), and ship only what is written "
                "in Python."
            )
        size = path.stat().st_size
        left -= size
        if size > MOST_FILE_BYTES or left < 0:
            raise ValueError(
                f"`ship`: {name!r} is too large at {path} ({size / 1e6:.0f} MB): at most "
                f"{MOST_FILE_BYTES >> 20} MiB a "
                f"file and {MOST_BYTES >> 20} MiB in all. Files of data belong where workers can "
                "read them."
            )
        yield inside, path.read_bytes()
