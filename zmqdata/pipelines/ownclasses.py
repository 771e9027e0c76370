"""Classes shipped by value, opened in the process that packed them: there they stay the
same class objects.

The pickle is the same for every worker; only reading it differs. A pickle of protocol 5
numbers the objects that it creates. The packing process therefore knows the numbers of
its classes, and substitutes its own classes instead of creating new ones. No class is
kept alive for this. Like ``pickler``, which imports dill, this module is imported only
when needed.
"""

from __future__ import annotations

import collections
import enum
import io
import pickle
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from zmqdata.lookup import remember_class
from zmqdata.pipelines.classes import (
    register,
    set_attribute,
    set_attributes,
    set_defaults,
)
from zmqdata.pipelines.importing import Shipment
from zmqdata.pipelines.pickler import PipelineUnpickler, ShippedFirst
from zmqdata.pipelines.reducing import set_stored_state

MOST_KNOWN = 10_000
"""Maximum number of pipelines with such classes that a process remembers; the newest
are kept.
"""

_known: collections.OrderedDict[str, Mapping[int, weakref.ref[type]]] = collections.OrderedDict()
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


class HomeUnpickler(ShippedFirst, pickle._Unpickler):
    """Unpickler for the process that wrote the pickle.

    Args:
        file: the pickle.
        buffers: the buffers kept outside the pickle.
        shipment: the shipped modules.
        classes: substitutes for the classes in the pickle, by their number.
    """

    def __init__(
        self,
        file: io.BytesIO,
        buffers: Iterable[Any],
        shipment: Shipment | None,
        classes: Mapping[int, type],
    ) -> None:
        super().__init__(file, buffers=buffers)
        self.memo: dict[int, Any]
        self.stack: list[Any]
        self._shipment = shipment
        self._classes = classes
        self._own = set(map(id, classes.values()))

    def find_class(self, module: str, name: str) -> Any:
        """Find a class as any worker does. dill uses its own name for the type of
        None.
        """
        return type(None) if module == "__builtin__" else super().find_class(module, name)

    def load_reduce(self) -> None:
        """Create an object, unless it is a class of this process: such a class is
        substituted and left unchanged.
        """
        stack = self.stack
        arguments = stack.pop()
        # A class gets its number when it is created, directly after its arguments.
        own = self._classes.get(len(self.memo))
        if own is not None:
            stack[-1] = own
        elif any(stack[-1] is one for one in _CHANGING) and self._is_ours(arguments[0]):
            stack[-1] = None
        else:
            stack[-1] = stack[-1](*arguments)

    def _is_ours(self, target: object) -> bool:
        """Return True for a class of this process, or a member of such an enumeration:
        both are already complete.
        """
        return id(target) in self._own or (
            isinstance(target, enum.Enum) and id(type(target)) in self._own
        )


_steps: dict[int, Any] = {**pickle._Unpickler.dispatch, pickle.REDUCE[0]: HomeUnpickler.load_reduce}
HomeUnpickler.dispatch = _steps


def open_pickle(
    payload: bytes, buffers: Iterable[Any], shipment: Shipment | None, digest: str
) -> Any:
    """Return the content of the pickle of a pipeline, with the classes of this process
    if it packed the pipeline.

    Args:
        payload: the pickle.
        buffers: the buffers kept outside the pickle.
        shipment: the shipped modules.
        digest: digest of the packed pipeline.
    """
    classes, file = classes_of(digest), io.BytesIO(payload)
    if classes:
        return HomeUnpickler(file, buffers, shipment, classes).load()
    return PipelineUnpickler(file, buffers, shipment).load()
