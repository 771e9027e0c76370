"""Classes that travel by value, opened where they came from: there a class is the very
same object that it was.

The pickle is the same for every worker; only its reading differs. A pickle of protocol
5 numbers what it makes, so that the process that has written it knows which numbers its
classes have, and puts them there instead of making others. No class is kept alive by
this. Like ``pickler``, which imports dill, this module is imported when it is needed.
"""

from __future__ import annotations

import collections
import enum
import io
import pickle
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from zmqdata.pipelines.importing import Shipment
from zmqdata.pipelines.pickler import PipelineUnpickler, ShippedFirst, set_state

MOST_KNOWN = 10_000
"""How many pipelines with such classes a process remembers, the newest ones."""

_known: collections.OrderedDict[str, Mapping[int, weakref.ref[type]]] = collections.OrderedDict()
_CHANGING = (setattr, set_state)


def remember(digest: str, classes: Mapping[int, type]) -> None:
    """Notes which classes a pipeline of this process holds by value.

    Args:
        digest: of the packed pipeline.
        classes: by the number that the pickle gives them.
    """
    if not classes:
        return
    _known[digest] = {number: weakref.ref(kind) for number, kind in classes.items()}
    _known.move_to_end(digest)
    while len(_known) > MOST_KNOWN:
        _known.popitem(last=False)


def classes_of(digest: str) -> dict[int, type]:
    """Those that were remembered and are still there; none for a pipeline of another
    process.
    """
    found = ((number, one()) for number, one in _known.get(digest, {}).items())
    return {number: kind for number, kind in found if kind is not None}


class HomeUnpickler(ShippedFirst, pickle._Unpickler):
    """Opens a pickle in the process that has written it.

    Args:
        file: the pickle.
        buffers: what was kept apart.
        shipment: the modules that came along.
        classes: what stands in for the classes in the pickle, by their number.
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
        """What any worker would find; dill has a name of its own for the type of
        None.
        """
        return type(None) if module == "__builtin__" else super().find_class(module, name)

    def load_reduce(self) -> None:
        """Makes what is no class of ours, and leaves those that are ours as they
        are.
        """
        stack = self.stack
        arguments = stack.pop()
        # A class is numbered as soon as it is made, and its arguments were just before
        own = self._classes.get(len(self.memo))
        if own is not None:
            stack[-1] = own
        elif any(stack[-1] is one for one in _CHANGING) and self._is_ours(arguments[0]):
            stack[-1] = None
        else:
            stack[-1] = stack[-1](*arguments)

    def _is_ours(self, target: object) -> bool:
        """A class of ours, or a member of an enumeration that is one: both have all
        that is to be set.
        """
        return id(target) in self._own or (
            isinstance(target, enum.Enum) and id(type(target)) in self._own
        )


_steps: dict[int, Any] = {**pickle._Unpickler.dispatch, pickle.REDUCE[0]: HomeUnpickler.load_reduce}
HomeUnpickler.dispatch = _steps


def open_pickle(
    payload: bytes, buffers: Iterable[Any], shipment: Shipment | None, digest: str
) -> Any:
    """What the pickle of a pipeline holds, with the classes of this process where it is
    from here.

    Args:
        payload: the pickle.
        buffers: what was kept apart.
        shipment: the modules that came along.
        digest: of the packed pipeline.
    """
    classes, file = classes_of(digest), io.BytesIO(payload)
    if classes:
        return HomeUnpickler(file, buffers, shipment, classes).load()
    return PipelineUnpickler(file, buffers, shipment).load()
