"""The pickler of pipelines: Python's own in C. It asks how to write each function, each
class, and each object that is no plain value of Python.

Only this module and ``unpickler`` import dill. The dispatcher and the consumers of
elements must not import them; ``pipelines`` imports them when a client packs and when a
worker opens. dill's global settings and tables are read, never changed. Decision 0049.

It differs from ``dill.dumps(recurse=True)`` in these points:

* A function carries exactly the global names that its bytecode uses. All functions of a
  script share them, so mutual recursion works and ``global`` is shared. A name of the
  script is not mistaken for a name of an imported module.
* Modules are shipped by name, never with their contents.
* Files that are written, sockets and similar objects are refused instead of being
  silently recreated.
* numpy arrays use protocol 5: large arrays are kept outside the stream, others are
  written into it without an intermediate copy.
"""

from __future__ import annotations

import abc
import functools
import hashlib
import importlib
import io
import pickle
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Container
from importlib.machinery import ModuleSpec, SourceFileLoader
from typing import Any

import dill
import numpy as np
from dill import _dill

from zmqdata.messages.parts import MappedFile
from zmqdata.nodes.base import Node
from zmqdata.peeking import is_a, peek
from zmqdata.pipelines import memorymaps, reducing, unsendable
from zmqdata.pipelines.classes import is_made_here
from zmqdata.pipelines.definitions import Definitions, Stand, written
from zmqdata.pipelines.findable import SCRIPT_MODULES, can_be_found, is_importable
from zmqdata.pipelines.functions import first
from zmqdata.pipelines.handles import RefusedError
from zmqdata.pipelines.parcels import Parcel, Piece, open_parcel
from zmqdata.pipelines.unsendable import Trail
from zmqdata.printable import shown_size

MOST_BYTES = 2 << 30
"""Maximum size in bytes of a pickle, because a message cannot be larger."""
MOST_APART = 256
"""Maximum number of buffers that are kept outside the stream."""
_ALWAYS_THERE = frozenset({"zmqdata", "dill", *SCRIPT_MODULES, *sys.stdlib_module_names})
_Way = Callable[[Any], Any]
"""Returns the reduction of an object, or NotImplemented if pickle's own is right."""


class UnsendableError(Exception):
    """An object cannot be pickled.

    Attributes:
        trail: the way to the object from the outermost one.
        reason: the problem with the object, or "" if ``__cause__`` is the reason.
    """

    def __init__(self, trail: Trail, reason: str = "") -> None:
        super().__init__(reason)
        self.trail = trail
        self.reason = reason


class PickleFile(io.BytesIO):
    """A file whose method is written in Python: other threads run while C code writes
    into it.

    Args:
        keeps: True to keep what is written, False to keep its hash.
        counts: True to keep only the number of bytes.

    Attributes:
        total: number of bytes that were written, with those outside the stream.
    """

    def __init__(self, keeps: bool = True, counts: bool = False) -> None:
        super().__init__()
        self.counts = counts
        self._hash = None if keeps else hashlib.sha256()
        self._size = self.total = 0

    def write(self, content: Any, /) -> int:
        """Write bytes at the end.

        Raises:
            _TooLargeError: the file would exceed ``MOST_BYTES``.
        """
        nbytes = memoryview(content).nbytes
        self._size, self.total = self._size + nbytes, self.total + nbytes
        if self._size > MOST_BYTES:
            raise _TooLargeError
        if self._hash is None:
            return super().write(content)
        if not self.counts:
            self._hash.update(content)
        return nbytes

    def apart(self, memory: memoryview) -> Piece:
        """Return a buffer that is kept outside the stream, as a piece."""
        self.total += memory.nbytes
        if self.counts:
            return Piece("", memory.nbytes, b"")
        content = bytes(memory) if self._hash is None else b""
        # Another thread may write to the memory meanwhile, and not to the copy.
        digest = hashlib.sha256(content or memory).hexdigest()
        return Piece(digest, memory.nbytes, content)

    def whole(self) -> Piece:
        """Return all that was written, as a piece."""
        content = self.getvalue()
        digest = hashlib.sha256(content) if self._hash is None else self._hash
        return Piece(digest.hexdigest(), self._size, content)


class _TooLargeError(Exception):
    """A pickle is larger than a message can be."""


class PipelinePickler(pickle.Pickler):
    """Pickler that writes a value into a file with protocol 5.

    Args:
        file: a ``PickleFile``.
        shipped: top-level modules that are shipped with the pickle.
        name: what is pickled, if it is not a pipeline.

    Attributes:
        parcels: values that travel apart.
        made_by: an object of each class whose own methods say how it is pickled.
        modules: names of the modules that the pickle refers to and a worker may lack.
        apart: copies of large buffers, which the unpickler needs in this order.
        files: ranges of files that are mapped.
        definitions: the functions and classes shipped by value.
    """

    def __init__(self, file: Any, shipped: Container[str] = (), name: str = "") -> None:
        super().__init__(file, protocol=5, buffer_callback=self._keep_apart)
        self.shipped = shipped
        self.parcels: list[Parcel] = []
        self.made_by: dict[type, object] = {}
        self._file, self._name = file, name
        self.modules: set[str] = set()
        self.apart: list[Piece] = []
        self.files: dict[MappedFile, None] = {}
        self.definitions = Definitions(self, shipped)
        self._root: object = None
        self._thing: object = None
        self._maker: object = None
        self._array: object = None
        self._operation = name or "a pipeline"
        self._storages: dict[int, Any] = {}
        self._tensors: dict[int, object] = {}
        self._bases: dict[tuple[int, bool, int], type | None] = {}
        self._ways: dict[type, _Way] = {
            Parcel: self._write_parcel,
            Stand: lambda stand: stand.reduced,
            np.ndarray: self._write_array,
            np.memmap: self._write_array,
            types.BuiltinFunctionType: self._write_builtin_function,
            types.CellType: self.definitions.cell,
            types.FunctionType: self._write_function,
            types.ModuleType: self._write_module,
            ModuleSpec: self._write_spec,
            SourceFileLoader: self._write_spec,
        }

    def dump(self, value: object) -> None:
        """Write a value. The hooks of its classes come last: classes are created while
        the pickle is read, and no hook of theirs may run then.

        Raises:
            UnsendableError: the value holds an object that cannot be pickled.
            ValueError: the pickle would be larger than a message can be.
        """
        self._root = value
        try:
            super().dump(Stand(first, value, written(self.definitions.hooks())))
        except RefusedError as error:
            raise UnsendableError(self._trail(self._thing), str(error)) from None
        except _TooLargeError:
            raise ValueError(
                f"cannot send {self._operation} to workers: its values take more than "
                f"{shown_size(MOST_BYTES)}, and a message cannot be larger. Hold large numpy "
                "arrays, which travel apart, or keep the values in a file that workers can read, "
                "and hold its path"
            ) from None
        except RecursionError as error:
            trail = unsendable.deep_trail(value, self.shipped) or self._trail(self._thing)
            raise UnsendableError(trail) from error
        except Exception as error:
            raise UnsendableError(self._trail(self._thing)) from error
        finally:
            # The pickler refers to itself: what it holds would stay for a while.
            self.memo = {}
            self._root = self._thing = self._maker = self._array = None
            self._storages.clear()

    def _trail(self, thing: object) -> Trail:
        return unsendable.trail_to(self._root, thing, self._maker, self.shipped)

    def reducer_override(self, thing: Any) -> Any:
        """Return how to make an object, or NotImplemented if pickle knows it."""
        self._thing = thing
        kind = type(thing)
        try:
            way = self._ways.get(kind)
        except Exception:
            raise RefusedError(unsendable.unhashable_text(kind)) from None
        return (way or self._way_of(kind))(thing)

    def _way_of(self, kind: type) -> _Way:
        """Return the function for the objects of a class. It is found once for each
        class, because there may be millions of objects.
        """
        if remedy := unsendable.remedy_for(kind):
            raise RefusedError(remedy)
        way = self._ways[kind] = self._way_of_class(kind)
        if issubclass(kind, type) or not is_made_here(kind) or is_importable(kind, self.shipped):
            return way

        def way_of_first(thing: Any) -> Any:
            # A class that makes the object comes first. If it holds the object, it has
            # then saved it: a second call of `__new__` would make another object.
            reduced = way(thing)
            parts = reducing.reduction(thing) if reduced is NotImplemented else reduced
            if type(parts) is not tuple or len(parts) < 2 or type(parts[1]) is not tuple:
                return reduced
            makers = parts[0], *parts[1][:1]
            return (first, (kind, thing)) if any(one is kind for one in makers) else reduced

        return way_of_first

    def _way_of_class(self, kind: type) -> _Way:
        if issubclass(kind, type):
            return self._write_class
        if issubclass(kind, Node):
            return self._write_node
        if reducing.is_tensor_class(kind):
            return self._write_tensor
        plain = _as_pickle_does if reducing.is_plain_class(kind) else self._write_by_its_methods
        if kind in _DILL_KINDS:
            plain = _reduced_by_dill
        reducer = reducing.reducer_of(kind)
        if reducer is None:
            return plain

        def way(thing: Any) -> Any:
            reduced = self._checked(reducer(thing))
            return plain(thing) if reduced is NotImplemented else reduced

        return way

    def _write_by_its_methods(self, thing: Any) -> Any:
        self._maker = thing
        self.made_by.setdefault(type(thing), thing)
        reduced = self._checked(reducing.reduction(thing))
        if is_a(reduced, str):
            module = pickle.whichmodule(thing, reduced)  # type: ignore[attr-defined]  # not public
            if module in SCRIPT_MODULES:
                raise pickle.PicklingError(
                    f"{thing!r} refers to itself in a way that only its name in {module} could "
                    "express"
                )
            self._note_module(module)
        return reduced

    def _checked(self, reduced: Any) -> Any:
        """Return a reduction after checking that the class takes the arguments."""
        if type(reduced) is not tuple or len(reduced) < 2 or type(reduced[1]) is not tuple:
            return reduced
        make, arguments = reduced[:2]
        by_new = reducing.calls_new(make)
        kind = arguments[0] if by_new else make
        if not is_a(kind, type):
            return reduced
        key = (id(kind), by_new, len(arguments))
        if key not in self._bases:
            base = reducing.base_to_call(kind, self.shipped) if by_new else None
            if base is None:
                unsendable.check_making(kind, by_new, len(arguments))
            self._bases[key] = base
        base = self._bases[key]
        if base is None:
            return reduced
        return (reducing.bare_instance, (kind, base, *arguments[1:]), *reduced[2:])

    def _note_module(self, name: str) -> None:
        """Record a module that the worker must be able to import."""
        if name.partition(".")[0] not in _ALWAYS_THERE:
            self.modules.add(name)

    def _write_node(self, node: Node) -> Any:
        self._operation = node.label
        return NotImplemented

    def _write_parcel(self, parcel: Parcel) -> Any:
        if parcel.packed is None:  # a worker has opened it, and sends it on
            packing = importlib.import_module("zmqdata.pipelines.packing")
            packing.poll_at(parcel)
        if self._name:  # the parts of one do not hold those of another
            about = {name: getattr(parcel, name) for name in ("sources", "packed", "sizes")}
            return Parcel, (parcel.value, parcel.name, parcel.advice), about
        self.parcels.append(parcel)
        return open_parcel, (parcel.packed.encoded, parcel.key)

    # --- arrays

    def _write_tensor(self, tensor: Any) -> Any:
        reduced = reducing.reduced_tensor(tensor, self._storages)
        if reduced is NotImplemented:
            return self._write_by_its_methods(tensor)
        self._tensors.setdefault(id(reduced[1][0]), tensor)
        return reduced

    def _write_array(self, array: Any) -> Any:
        self._array = self._tensors.get(id(array), array)
        file = memorymaps.checked_map(array)
        if file is None:
            return reducing.reduced_array(array)
        self.files[file] = None
        return memorymaps.reduced_map(array, file)

    def _keep_apart(self, buffer: pickle.PickleBuffer) -> bool:
        """Keep a large buffer outside the stream. Return True for another one, which
        pickle then writes into the stream.
        """
        with buffer.raw() as memory:
            if memory.nbytes >= memorymaps.MUCH and not self._file.counts:
                operation, path = unsendable.describe_trail(self._trail(self._array))
                path = path.removeprefix(f"{operation}.") if self._name else path
                memorymaps.warn_of_size(memory, self._name or operation, path)
            if memory.nbytes < memorymaps.LARGE or len(self.apart) >= MOST_APART:
                return True
            self.apart.append(self._file.apart(memory))
            return False

    # --- names

    def _write_module(self, module: types.ModuleType) -> Any:
        name = module.__name__
        if name in SCRIPT_MODULES or sys.modules.get(name) is not module:
            raise pickle.PicklingError(
                f"module {name!r} exists in this process only; use its functions by their own names"
            )
        if not can_be_found(name, self.shipped):
            raise pickle.PicklingError(
                f"module {name!r} was loaded from {peek(module, '__file__', 'no file')}, where no "
                "`import` finds it; ship it: distribute(..., ship=[the path of the file]), or use "
                "its functions by their own names"
            )
        self._note_module(name)
        return importlib.import_module, (name,)

    def _write_spec(self, spec: Any) -> Any:
        """Refuse the names of a module, which only hold such an object."""
        module = sys.modules.get(spec.name)
        if module is not None and id(vars(module)) in self.memo.copy():
            self._thing = vars(module)
            raise pickle.PicklingError(
                f"it holds all names of module {spec.name!r}. Use the module itself, or the names "
                "that are needed"
            )
        return NotImplemented

    def _write_builtin_function(self, function: types.BuiltinFunctionType) -> Any:
        if not is_importable(function):
            return getattr, (function.__self__, function.__name__)
        self._note_module(function.__module__)
        return NotImplemented

    def _write_function(self, function: types.FunctionType) -> Any:
        if not is_importable(function, self.shipped):
            return self.definitions.function(function)
        self._note_module(function.__module__)
        return NotImplemented

    def _write_class(self, kind: Any) -> Any:
        if is_importable(kind, self.shipped):
            self._note_module(kind.__module__)
            return NotImplemented
        if is_made_here(kind):
            return self.definitions.kind(kind)
        return _reduced_by_dill(kind)  # such as the class of ``None``, which has no name


def _as_pickle_does(thing: object) -> Any:
    return NotImplemented


_MAPPINGS: tuple[Any, ...] = ({}, OrderedDict())
_DILL_KINDS = {
    types.CodeType,
    types.MethodType,
    types.MappingProxyType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    functools._lru_cache_wrapper,
    classmethod,
    property,
    staticmethod,
    super,
    abc.abstractclassmethod,
    abc.abstractproperty,
    abc.abstractstaticmethod,
    weakref.CallableProxyType,
    weakref.ProxyType,
    weakref.ReferenceType,
    *(type(view()) for one in _MAPPINGS for view in (one.keys, one.values, one.items)),
    *(kind for kind in dill.Pickler.dispatch if kind.__module__ == "dataclasses"),
} & dill.Pickler.dispatch.keys()
"""Classes whose objects dill takes apart, among them the sentinels of dataclasses."""


class _RecordingPickler:
    """Takes the place of a pickler, and records what dill would write."""

    reduced: Any = NotImplemented

    def save_reduce(self, function: Any, arguments: Any, *more: Any, obj: object = None) -> None:
        """Record the call that makes the object."""
        self.reduced = (function, arguments, *more)

    def write(self, opcode: bytes) -> None:
        """Record the name of an object that is written by its name."""
        self.reduced = opcode.split(b"\n")[1].decode()


def _reduced_by_dill(thing: Any) -> Any:
    """Return the reduction of an object of one of the kinds, or of a class of C code
    without a name; NotImplemented for another such class.
    """
    recorder = _RecordingPickler()
    if type(thing) in _DILL_KINDS:
        dill.Pickler.dispatch[type(thing)](recorder, thing)
    elif thing in _dill._typemap:
        _dill.save_type(recorder, thing)
    return recorder.reduced
