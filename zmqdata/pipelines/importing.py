"""Modules that a pipeline brought along, importable by that pipeline only. For workers:
it runs code of the sender.

The modules of one shipment live below a package of their own,
``zmqdata_shipped_<content>``, so that two versions of a module can be in one process.
What shipped code imports by absolute name is found there because its builtins have an
``__import__`` of their own; no state of the interpreter tells who imports what, so it
holds in every thread and at every time. The same shipment in two pipelines is one set
of modules.
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
from zmqdata.pipelines.shipping import SOURCES, SourceArchive


class Shipment:
    """The modules of one shipment.

    Attributes:
        names: the top-level modules in it.
        builtins: for the globals of code that may import them.
    """

    def __init__(self, root: str, names: frozenset[str]) -> None:
        self.root = root
        self.names = names
        self.builtins: dict[str, Any] = {**vars(builtins), "__import__": self.import_name}
        self._importlib = _ScopedImportlib(self)

    def placed(self, name: str) -> str:
        """What a module is called in this process: below the shipment's package, if it
        was shipped.
        """
        return f"{self.root}.{name}" if name.partition(".")[0] in self.names else name

    def import_module(self, name: str, package: str | None = None) -> types.ModuleType:
        """``importlib.import_module`` as shipped code sees it."""
        return importlib.import_module(self.placed(importlib.util.resolve_name(name, package)))

    def import_name(
        self,
        name: str,
        names: Mapping[str, Any] | None = None,
        local: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """``__import__`` as shipped code sees it."""
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
    """``importlib`` with an ``import_module`` that knows the shipment: plug-ins are
    imported by their names.
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
    """Finds modules below the packages of shipments, for Python's import system."""

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
    """Makes shipped modules importable through the shipment that is returned; they are
    run when they are imported.

    Args:
        archives: what ``pack_sources`` has made.
        folder: where their files may lie as long as this process lives; None: a
            temporary folder.

    Raises:
        FailedPreconditionError: the files cannot be written, or are no archive.
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
        text = f"the shipped code cannot be unpacked in {parent}: {error}. Is there space left on the worker's disk?"
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
    """Writes all files, then gives their folder its name: two threads may be at it at
    once.
    """
    partial = Path(tempfile.mkdtemp(prefix=f"{root}.", dir=parent))
    try:
        for archive in archives:
            for name, content in archive.files:
                path = partial / _checked(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        if not (parent / root).exists():
            partial.rename(parent / root)
    except OSError:
        if not (parent / root).exists():  # else somebody else was faster
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
