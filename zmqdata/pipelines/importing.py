"""Shipped modules, importable only by the pipeline that they came with. For workers
alone: importing them runs the sender's code.

The modules of a shipment live below their own package ``zmqdata_shipped_<content>``, so
that a process can hold two versions of a module. Shipped code finds them by absolute
name because its builtins have a special ``__import__``. This needs no interpreter-wide
state, so it works in every thread at any time. Pipelines with the same shipment share
its modules.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import hashlib
import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import types
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from zmqdata.errors import FailedPreconditionError
from zmqdata.failures.names import PREFIX
from zmqdata.files.filenames import native
from zmqdata.pipelines.shipping import SOURCES, SourceArchive


class Shipment:
    """The modules of a shipment.

    Attributes:
        names: the top-level modules in it.
        builtins: builtins for the globals of code that may import the modules.
    """

    def __init__(self, root: str, names: frozenset[str]) -> None:
        self.root = root
        self.names = names
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self.import_name}
        self._importlib = _ScopedImportlib(self)

    def placed(self, name: str) -> str:
        """Return the name of a module in this process: below the shipment's package if
        the module was shipped.
        """
        return f"{self.root}.{name}" if name.partition(".")[0] in self.names else name

    def import_module(self, name: str, package: str | None = None) -> types.ModuleType:
        """Import a module as ``importlib.import_module`` does, with shipped modules
        visible.
        """
        return importlib.import_module(self.placed(importlib.util.resolve_name(name, package)))

    def import_name(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """Import a module as ``__import__`` does, with shipped modules visible."""
        package = (names or {}).get("__package__")
        if (
            level and package and self.placed(package) != package
        ):  # a function of the script in a shipped package
            name, level = importlib.util.resolve_name("." * level + name, package), 0
        if level == 0 and name.partition(".")[0] == "importlib":
            found = __import__(name, None, None, fromlist, 0)
            return self._importlib if found is importlib else found
        if level or self.placed(name) == name:
            return __import__(name, names, local, fromlist or (), level)
        found = __import__(self.placed(name), None, None, fromlist or (), 0)
        return found if fromlist else sys.modules[self.placed(name.partition(".")[0])]


class _ScopedImportlib(types.ModuleType):
    """``importlib`` with an ``import_module`` that finds shipped modules, because
    plug-ins are imported by name.
    """

    def __init__(self, shipment: Shipment) -> None:
        super().__init__("importlib", importlib.__doc__)
        self.import_module = shipment.import_module

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib, name)


class _Loader(SourceFileLoader):
    def exec_module(self, module: types.ModuleType) -> None:
        vars(module)["__builtins__"] = _shipments[module.__name__.partition(".")[0]].builtins
        super().exec_module(module)


class _Finder:
    """Finder of modules below the packages of shipments, for Python's import system."""

    @staticmethod
    def find_spec(
        name: str, path: Iterable[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if path is None or not name.startswith(PREFIX):
            return None
        found = (FileFinder(place, (_Loader, SOURCE_SUFFIXES)).find_spec(name) for place in path)
        return next((spec for spec in found if spec is not None), None)


_shipments: dict[str, Shipment] = {}


def install(archives: Mapping[str, bytes | memoryview], folder: Path | None = None) -> Shipment:
    """Make shipped modules importable through the returned shipment. Their code runs on
    import.

    Args:
        archives: the result of ``pack_sources``.
        folder: folder for their files until this process ends; None means a temporary
            folder.

    Raises:
        FailedPreconditionError: the files cannot be written, or an archive is
            malformed.
    """
    root = PREFIX + hashlib.sha256(" ".join(sorted(archives)).encode()).hexdigest()[:16]
    if root in _shipments:
        return _shipments[root]
    parent = folder or _own_folder(os.getpid())
    try:
        opened = [
            msgspec.msgpack.decode(content, type=SourceArchive) for content in archives.values()
        ]
        _write_files(parent, root, opened)
    except (OSError, ValueError) as error:
        text = (
            f"the shipped code cannot be unpacked in {parent}: {error}. Is there space "
            "left on the worker's disk?"
        )
        raise FailedPreconditionError(text) from error
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    package = types.ModuleType(root)
    package.__path__ = [str(parent / root)]
    setattr(package, SOURCES, dict(archives))
    sys.modules.setdefault(root, package)
    return _shipments.setdefault(
        root, Shipment(root, frozenset(archive.name for archive in opened))
    )


def _write_files(parent: Path, root: str, archives: Sequence[SourceArchive]) -> None:
    """Write all files, then rename their folder to its final name, because two threads
    may unpack the same shipment.
    """
    partial = Path(tempfile.mkdtemp(prefix=f"{root}.", dir=parent))
    try:
        for archive in archives:
            for name, content in archive.files:
                path = partial / _checked(native(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        if not (parent / root).exists():
            partial.rename(parent / root)
    except OSError:
        if not (parent / root).exists():  # otherwise another thread or process was faster
            raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _checked(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"a shipped file has the name {name!r}, which leads out of its folder")
    return name


@functools.lru_cache(maxsize=1)
def _own_folder(process: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="zmqdata-code-"))
    atexit.register(_remove_own, folder, process)
    return folder


def _remove_own(folder: Path, process: int) -> None:
    if os.getpid() == process:  # a forked child leaves its parent's files alone
        shutil.rmtree(folder, ignore_errors=True)
