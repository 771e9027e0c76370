"""The unpickler of pipelines, for workers and for the process that packed: there,
classes shipped by value stay the same class objects.

The pickle is the same for every worker; only reading it differs. Each class carries a
number. The packing process therefore knows its classes, and substitutes them instead of
creating new ones. No class is kept alive for this. This module imports dill, and is
imported only when needed.
"""

from __future__ import annotations

import collections
import enum
import functools
import io
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import dill

from zmqdata.machine.threads import collection_rests
from zmqdata.peeking import is_a, remember_class
from zmqdata.pipelines.classes import (
    new_bare_class,
    new_class,
    new_member,
    new_named_tuple,
    new_struct,
    register,
    set_attribute,
    set_attributes,
    set_defaults,
)
from zmqdata.pipelines.functions import new_function
from zmqdata.pipelines.importing import Shipment
from zmqdata.pipelines.numpynames import module_here
from zmqdata.pipelines.reducing import set_stored_state

MOST_KNOWN = 10_000
"""Maximum number of pipelines with such classes that a process remembers; the newest
are kept.
"""

_known: collections.OrderedDict[str, Mapping[int, weakref.ref[type]]] = collections.OrderedDict()
_CREATING = (new_bare_class, new_class, new_named_tuple, new_struct)
_CHANGING = (set_attribute, set_attributes, set_defaults, register, set_stored_state)


def remember(digest: str, classes: Mapping[int, type]) -> None:
    """Remember the classes that a pipeline of this process holds by value.

    Args:
        digest: digest of the packed pipeline.
        classes: the classes by their number in the pickle.
    """
    if not classes:
        return
    for kind in classes.values():
        remember_class(kind)
    _known[digest] = {number: weakref.ref(kind) for number, kind in classes.items()}
    _known.move_to_end(digest)
    while len(_known) > MOST_KNOWN:
        _known.popitem(last=False)


def classes_of(digest: str) -> dict[int, type]:
    """Return the remembered classes that still exist; empty for a pipeline from another
    process.
    """
    found = ((number, one()) for number, one in _known.get(digest, {}).items())
    return {number: kind for number, kind in found if kind is not None}


def own_functions(classes: Mapping[int, type]) -> dict[tuple[str, str], Any]:
    """Return functions that return a class of this process instead of creating it, and
    leave it and its members unchanged, by the names of the functions that they replace.

    Args:
        classes: the classes by their number in the pickle.
    """
    own = set(map(id, classes.values()))

    def returning(create: Any) -> Any:
        return lambda number, *parts: classes.get(number) or create(number, *parts)

    def leaving(change: Any) -> Any:
        def changed(target: object, *values: object) -> None:
            # Members of an enumeration are complete, too.
            kind = type(target) if isinstance(target, enum.Enum) else target
            if id(kind) not in own:
                change(target, *values)

        return changed

    def member(kind: Any, name: str | int, base: Any, *arguments: Any) -> object:
        if id(kind) not in own:
            return new_member(kind, name, base, *arguments)
        return kind[name] if is_a(name, str) else kind(name)

    return {(new_member.__module__, new_member.__name__): member} | {
        (one.__module__, one.__name__): replaced(one)
        for replaced, replaceable in ((returning, _CREATING), (leaving, _CHANGING))
        for one in replaceable
    }


class PipelineUnpickler(dill.Unpickler):  # type: ignore[misc]  # dill has no types
    """Unpickler for the output of ``PipelinePickler``. It prefers shipped modules to
    installed modules, and reads the pickles of other versions of numpy.

    Args:
        file: the pickle.
        buffers: the buffers kept outside the pickle.
        shipment: the shipped modules.
        own: functions to call instead of others, by their modules and names.
    """

    def __init__(
        self,
        file: io.BytesIO,
        buffers: Iterable[Any],
        shipment: Shipment | None,
        own: Mapping[tuple[str, str], Any] = types.MappingProxyType({}),
    ) -> None:
        super().__init__(file, buffers=buffers)
        self._shipment, self._own = shipment, own

    def find_class(self, module: str, name: str) -> Any:
        """Return an object by its module and name."""
        if (module, name) in self._own:
            return self._own[module, name]
        module, shipment = module_here(module), self._shipment
        if shipment is None:
            return super().find_class(module, name)
        if (module, name) == ("importlib", "import_module"):
            return shipment.import_module
        if (module, name) == (new_function.__module__, new_function.__name__):
            return functools.partial(new_function, of_globals=shipment.builtins)
        return super().find_class(shipment.placed(module), name)


class _PickleReader(io.BytesIO):
    """A file whose methods are written in Python: other threads run while C code reads
    it.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size)

    def readinto(self, buffer: Any, /) -> int:
        return super().readinto(buffer)


def open_pickle(
    payload: bytes | memoryview,
    buffers: Iterable[Any],
    shipment: Shipment | None,
    digest: str,
    own: Mapping[tuple[str, str], Any] = types.MappingProxyType({}),
) -> Any:
    """Return the content of the pickle of a pipeline, with the classes of this process
    if it packed the pipeline.

    Args:
        payload: the pickle.
        buffers: the buffers kept outside the pickle.
        shipment: the shipped modules.
        digest: digest of the packed pipeline.
        own: as for ``PipelineUnpickler``.
    """
    classes = classes_of(digest)
    own = {**own, **own_functions(classes)} if classes else own
    with collection_rests():
        return PipelineUnpickler(_PickleReader(payload), buffers, shipment, own).load()
