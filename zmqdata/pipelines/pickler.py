"""The pickler of pipelines: based on dill, it ships the script's functions by value and
refuses objects that cannot be shipped.

Only this module imports dill. The dispatcher and the consumers of elements must not
import it; ``pipelines`` imports it when a client packs and when a worker opens. dill's
global settings and tables are read, never changed.

It differs from ``dill.dumps(recurse=True)`` in these points:

* A function carries exactly the global names that its bytecode uses. All functions of a
  script share them, so mutual recursion works and ``global`` is shared. A name of the
  script is not mistaken for a name of an imported module.
* Modules are shipped by name, never with their contents.
* Locks, files, sockets and similar objects are refused instead of being silently
  recreated.
* numpy arrays use protocol 5: large arrays are kept outside the stream, others are
  written into it without an intermediate copy.
"""

from __future__ import annotations

import collections
import dis
import enum
import functools
import importlib
import io
import pickle
import struct
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import dill
from dill import _dill

from zmqdata.pipelines.importing import Shipment
from zmqdata.pipelines.unsendable import remedy_for

SCRIPT_MODULES = frozenset({"__main__", "__mp_main__"})
"""Modules whose contents differ between processes."""

_ALWAYS_THERE = frozenset({"zmqdata", "dill", *SCRIPT_MODULES, *sys.stdlib_module_names})
_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
_MANY = 1000
LARGE = 1 << 20
"""Size in bytes from which buffers are kept outside the stream."""
MOST_APART = 256
_GLOBAL_OPCODES = frozenset(
    {"LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
)

_DEFINED_IN_BODY = (types.FunctionType, property, classmethod, staticmethod)
_OF_MEMBER = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_"})


class UnsendableError(Exception):
    """An object cannot be pickled.

    Attributes:
        trail: the nested objects at which the pickler was, outermost first.
        reason: the problem with the last object, or "" if ``__cause__`` is the reason.
    """

    def __init__(self, trail: list[object], reason: str = "") -> None:
        super().__init__(reason)
        self.trail = trail
        self.reason = reason


class PipelinePickler(dill.Pickler):  # type: ignore[misc]  # dill has no types
    """Pickler that writes a value into a file with protocol 5.

    Attributes:
        modules: top-level names of the modules that the pickle refers to and a worker
            may lack.
        apart: copies of large buffers, which the unpickler needs in this order.
        classes: classes shipped by value, by their number in the pickle.
    """

    dispatch: dict[type, Callable[[Any, Any], None]]

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5, recurse=True, byref=False)
        self.modules: set[str] = set()
        self.apart: list[bytes] = []
        self.classes: dict[int, type] = {}
        self._trail: list[object] = []
        self._globals: dict[int, dict[str, object]] = {}
        self._filled: set[tuple[int, str]] = set()
        self._cells: set[int] = set()
        self._open_classes = 0
        self._unfilled: list[tuple[list[object], types.FunctionType]] = []

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        """Save an object after checking its class. dill's own ``save`` is bypassed,
        because it registers numpy's types globally.
        """
        if type(obj) in _ATOMS or id(obj) in self.memo:
            pickle._Pickler.save(self, obj, save_persistent_id)  # type: ignore[attr-defined]  # not public
            return
        self._trail.append(obj)
        try:
            kind: type = type(obj)
            remedy = remedy_for(kind)
            if remedy is not None:
                raise UnsendableError(list(self._trail), remedy)
            pickle._Pickler.save(self, obj, save_persistent_id)  # type: ignore[attr-defined]  # not public
        except UnsendableError:
            raise
        except Exception as error:
            raise UnsendableError(list(self._trail)) from error
        self._trail.pop()

    def save_global(self, obj: Any, name: str | None = None) -> None:
        """Save an object by name, if the name has the same meaning in a worker."""
        module = pickle.whichmodule(obj, name or getattr(obj, "__qualname__", obj.__name__))  # type: ignore[attr-defined]  # not public
        if module in SCRIPT_MODULES:
            raise pickle.PicklingError(
                f"{obj!r} refers to itself in a way that only its name in {module} could express"
            )
        self.note_module(module)
        super().save_global(obj, name)

    def note_module(self, name: str) -> None:
        """Record a module that the worker must be able to import."""
        top = name.partition(".")[0]
        if top not in _ALWAYS_THERE:
            self.modules.add(top)

    def note_class(self, kind: type) -> None:
        """Record the number of a class that was saved by value. Python's unnamed
        classes (such as that of ``None``) exist everywhere and are skipped.
        """
        if kind not in _dill._typemap and id(kind) in self.memo:
            self.classes[self.memo[id(kind)][0]] = kind

    def save_call(self, function: Callable[..., object], *args: object) -> None:
        """Save a call of a function that unpickling makes for its side effect."""
        self.save_reduce(function, args)
        self.write(pickle.POP)

    def save_function(self, function: types.FunctionType) -> None:
        """Save an empty function first and fill it afterwards, because its content may
        refer back to it.
        """
        names = self._globals.setdefault(id(function.__globals__), _named_globals(function))
        cells = function.__closure__ or ()
        self._cells.update(map(id, cells))
        # Marks set by decorators (abstract, for example) are read when a class is
        # created, before its methods are filled.
        marks = {mark: value for mark, value in vars(function).items() if type(value) in _ATOMS}
        self.save_reduce(
            new_function, (function.__code__, names, function.__name__, cells, marks), obj=function
        )
        if self._open_classes:
            self._unfilled.append((list(self._trail), function))
        else:
            self._fill(function, names)

    def save_class(self, kind: type) -> None:
        """Save a class by value with dill; its methods are filled after the class
        exists.
        """
        self._open_classes += 1
        _dill.save_type(self, kind, postproc_list=_lost_attributes(kind))
        self._open_classes -= 1
        while self._unfilled and not self._open_classes:
            trail, function = self._unfilled.pop(0)
            self._trail, outer = trail, self._trail
            self._fill(function, self._globals[id(function.__globals__)])
            self._trail = outer

    def save_enum(self, kind: enum.EnumMeta) -> None:
        """Save an enumeration: its members first, because each refers to its class,
        then the definitions in its body.
        """
        members: dict[str, Any] = dict(kind.__members__)
        values = [(name, member._value_) for name, member in members.items()]
        names = (kind.__name__, kind.__qualname__, kind.__module__)
        self.save_reduce(new_enum, (type(kind), kind.__bases__, names, values), obj=kind)
        for name, held in vars(kind).items():
            if name not in members and name != "__new__" and isinstance(held, _DEFINED_IN_BODY):
                self.save_call(setattr, kind, name, held)
        for member in members.values():
            self.save_call(
                set_state, member, {k: v for k, v in vars(member).items() if k not in _OF_MEMBER}
            )

    def save_cell(self, cell: types.CellType) -> None:
        """Save an empty cell; the function that owns the cell fills it."""
        self.save_reduce(types.CellType, (), obj=cell)
        if id(cell) not in self._cells:
            self._fill_cell(cell)

    def _fill(self, function: types.FunctionType, names: dict[str, object]) -> None:
        self.write(self.get(self.memo[id(function)][0]))
        self.save(_function_state(function))
        self.write(pickle.BUILD + pickle.POP)
        for cell in function.__closure__ or ():
            self._fill_cell(cell)
        for name, value in _used_globals(function):
            if (id(names), name) not in self._filled:
                self._filled.add((id(names), name))
                self.save_call(set_global, names, name, value)
            if isinstance(value, types.ModuleType):
                self._save_submodules(value, function.__code__)

    def _fill_cell(self, cell: types.CellType) -> None:
        if (id(cell), "") in self._filled:
            return
        self._filled.add((id(cell), ""))
        try:
            value = cell.cell_contents
        except ValueError:  # a cell that is empty in the client stays empty in the worker
            return
        self.save_call(setattr, cell, "cell_contents", value)

    def _save_submodules(self, module: types.ModuleType, code: types.CodeType) -> None:
        """Save imports of the submodules that a function uses.
        ``xml.etree.ElementTree.parse`` names only ``xml`` as a global, but needs three
        imports.
        """
        names = {name for part in _codes(code) for name in part.co_names}
        prefix = f"{module.__name__}."
        for name in [name for name in sys.modules if name.startswith(prefix)]:
            if names.issuperset(name[len(prefix) :].split(".")) and sys.modules[name] is not None:
                self.save_call(importlib.import_module, name)


class ShippedFirst:
    """Mixin for unpicklers of pipelines that prefers shipped modules to installed
    modules.
    """

    _shipment: Shipment | None

    def find_class(self, module: str, name: str) -> Any:
        shipment, found = self._shipment, super().find_class  # type: ignore[misc]  # mixed into an unpickler
        if shipment is None:
            return found(module, name)
        if (module, name) == ("importlib", "import_module"):
            return shipment.import_module
        if (module, name) == (__name__, "new_function"):
            return functools.partial(new_function, of_globals=shipment.builtins)
        return found(shipment.placed(module), name)


class PipelineUnpickler(ShippedFirst, dill.Unpickler):  # type: ignore[misc]  # dill has no types
    """Unpickler for the output of ``PipelinePickler``.

    Args:
        file: the pickle.
        buffers: the buffers kept outside the pickle.
        shipment: the shipped modules.
    """

    def __init__(self, file: io.BytesIO, buffers: Iterable[Any], shipment: Shipment | None) -> None:
        super().__init__(file, buffers=buffers)
        self._shipment = shipment


def new_function(
    code: types.CodeType,
    names: dict[str, Any],
    name: str,
    cells: tuple[types.CellType, ...],
    marks: dict[str, object],
    of_globals: object = __builtins__,
) -> types.FunctionType:
    """Create a function whose state, cells and globals are set later. Called while
    unpickling.
    """
    names.setdefault("__builtins__", of_globals)
    function = types.FunctionType(code, names, name, None, cells)
    vars(function).update(marks)
    return function


def new_enum(
    meta: Any,
    bases: tuple[type, ...],
    names: tuple[str, str, str],
    values: list[tuple[str, object]],
) -> enum.EnumMeta:
    """Create an enumeration with given members. Called while unpickling."""
    name, qualname, module = names
    body = meta.__prepare__(name, bases)
    for key, value in [("__module__", module), ("__qualname__", qualname), *values]:
        body[key] = value
    made: enum.EnumMeta = meta(name, bases, body)
    return made


def new_type_var(name: str, constraints: tuple[Any, ...], options: dict[str, Any]) -> object:
    """Create a type variable. Called while unpickling."""
    return typing.TypeVar(name, *constraints, **options)


def set_state(thing: object, state: dict[str, object]) -> None:
    """Add attributes to an object. Called while unpickling."""
    vars(thing).update(state)


def set_global(names: dict[str, object], name: str, value: object) -> None:
    """Add a name to a function's globals. Called while unpickling."""
    names[name] = value


def is_importable(value: Any) -> bool:
    """Return True if a worker with the same modules finds this same object under its
    name.
    """
    module = getattr(value, "__module__", None)
    if not isinstance(module, str) or module in SCRIPT_MODULES or module not in sys.modules:
        return False
    found: object = sys.modules[module]
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


@functools.lru_cache(maxsize=1024)
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    used = {
        step.argval: None
        for part in _codes(code)
        for step in dis.get_instructions(part)
        if step.opname in _GLOBAL_OPCODES
    }
    return tuple(used)


def _named_globals(function: types.FunctionType) -> dict[str, object]:
    """Return the initial globals of a function: the names that relative imports
    need.
    """
    space = function.__globals__
    names: dict[str, object] = {"__name__": space.get("__name__", function.__module__)}
    if isinstance(space.get("__package__"), str) and space["__package__"]:
        names["__package__"] = space["__package__"]
    return names


def _used_globals(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    space = function.__globals__
    return ((name, space[name]) for name in _global_names(function.__code__) if name in space)


def _function_state(function: types.FunctionType) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    fields = (
        "__defaults__",
        "__kwdefaults__",
        "__doc__",
        "__qualname__",
        "__module__",
        "__annotations__",
    )
    state = {}
    for field in fields:
        try:
            state[field] = getattr(function, field)
        except NameError:  # an annotation that is evaluated only now uses an undefined name
            continue
    return function.__dict__ or None, state


def _lost_attributes(kind: type) -> list[tuple[object, tuple[object, ...]]]:
    """Return the attributes from the body of a named tuple, because dill recreates it
    from its fields alone.
    """
    if kind.__bases__ != (tuple,) or not hasattr(kind, "_fields"):
        return []
    made = {
        *kind._fields,
        *vars(collections.namedtuple("made", kind._fields)),
        "__orig_bases__",
        "__annotations__",
    }
    return [(setattr, (kind, name, held)) for name, held in vars(kind).items() if name not in made]


def _save_function(pickler: PipelinePickler, function: types.FunctionType) -> None:
    if is_importable(function):
        pickler.save_global(function)
    else:
        pickler.save_function(function)


def _save_class(pickler: PipelinePickler, kind: type) -> None:
    if is_importable(kind):
        pickler.save_global(kind)
    elif id(kind) in pickler._postproc:
        raise pickle.PicklingError(
            f"class {kind.__qualname__} holds an object that refers back to the class itself"
        )
    elif isinstance(kind, enum.EnumMeta):
        pickler.save_enum(kind)
        pickler.note_class(kind)
    else:
        pickler.save_class(kind)
        pickler.note_class(kind)


def _save_type_var(pickler: PipelinePickler, variable: typing.TypeVar) -> None:
    if variable.__module__ in SCRIPT_MODULES:
        options = {
            key: getattr(variable, f"__{key}__") for key in ("bound", "covariant", "contravariant")
        }
        pickler.save_reduce(
            new_type_var, (variable.__name__, variable.__constraints__, options), obj=variable
        )
    else:
        pickler.save_global(variable, variable.__name__)


def _save_builtin_function(pickler: PipelinePickler, function: types.BuiltinFunctionType) -> None:
    if is_importable(function):
        pickler.save_global(function)
    else:
        pickler.save_reduce(getattr, (function.__self__, function.__name__), obj=function)


def _save_module(pickler: PipelinePickler, module: types.ModuleType) -> None:
    name = module.__name__
    if name in SCRIPT_MODULES or sys.modules.get(name) is not module:
        raise pickle.PicklingError(
            f"module {name!r} exists in this process only; use its functions by their own names"
        )
    pickler.note_module(name)
    pickler.save_reduce(importlib.import_module, (name,), obj=module)


def _save_dict(pickler: PipelinePickler, items: dict[object, object]) -> None:
    name = items.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is not None and vars(module) is items:
        pickler.save_reduce(vars, (module,), obj=items)
    elif len(items) > _MANY and set(map(type, items)) | set(map(type, items.values())) <= _ATOMS:
        pickler.save_reduce(pickle.loads, (pickle.dumps(items, protocol=5),), obj=items)
    else:
        pickle._Pickler.save_dict(pickler, items)  # type: ignore[attr-defined]  # not public


def _save_plain_or(save: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return a save function that leaves a long list of plain values (a million file
    names) to the C pickler, which is 20 times faster.
    """

    def save_sequence(pickler: PipelinePickler, items: list[object] | tuple[object, ...]) -> None:
        if len(items) > _MANY and set(map(type, items)) <= _ATOMS:
            pickler.save_reduce(pickle.loads, (pickle.dumps(items, protocol=5),), obj=items)
        else:
            save(pickler, items)

    return save_sequence


def _save_buffer(pickler: PipelinePickler, buffer: pickle.PickleBuffer) -> None:
    """Write the memory of an array directly into the stream; pickle would copy it
    first.
    """
    with buffer.raw() as memory:
        if memory.nbytes >= LARGE and len(pickler.apart) < MOST_APART:
            pickler.apart.append(bytes(memory))
            pickler.write(pickle.NEXT_BUFFER + (pickle.READONLY_BUFFER if memory.readonly else b""))
            return
        opcode = pickle.BINBYTES8 if memory.readonly else pickle.BYTEARRAY8
        pickler._write_large_bytes(opcode + struct.pack("<Q", memory.nbytes), memory)


class _Dispatch(dict[type, Callable[[Any, Any], None]]):
    def get(self, kind: type, default: Any = None) -> Any:
        return super().get(kind, _save_class if issubclass(kind, type) else default)


PipelinePickler.dispatch = _Dispatch(
    {
        # dill adds entries for numpy if another user of dill ran before; these entries
        # do not support protocol 5.
        **{
            kind: save
            for kind, save in dill.Pickler.dispatch.items()
            if kind.__module__.partition(".")[0] != "numpy"
        },
        type: _save_class,
        typing.TypeVar: _save_type_var,
        types.FunctionType: _save_function,
        types.BuiltinFunctionType: _save_builtin_function,
        types.ModuleType: _save_module,
        types.CellType: PipelinePickler.save_cell,
        dict: _save_dict,
        list: _save_plain_or(pickle._Pickler.save_list),  # type: ignore[attr-defined]  # not public
        tuple: _save_plain_or(pickle._Pickler.save_tuple),  # type: ignore[attr-defined]  # not public
        pickle.PickleBuffer: _save_buffer,
    }
)
