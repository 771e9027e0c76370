"""The pickler of pipelines: Python's own in C, which asks for each function, class and
object of another class than Python's values how to write it.

Only this module imports dill. The dispatcher and the consumers of elements must not
import it; ``pipelines`` imports it when a client packs and when a worker opens. dill's
global settings and tables are read, never changed. Decision 0049.

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

import abc
import collections
import contextlib
import enum
import functools
import importlib
import importlib.machinery
import io
import pickle
import sys
import types
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import dill
import numpy as np
from dill import _dill

from zmqdata.peeking import is_a, peek
from zmqdata.pipelines import functions, memorymaps
from zmqdata.pipelines.classes import (
    attributes,
    creation,
    enum_attributes,
    enum_members,
    hooks,
    is_atom,
    is_definition,
    is_made_here,
    is_named_tuple,
    is_struct,
    is_typed_dict,
    keywords_needed,
    makes_members,
    member_attributes,
    new_class,
    new_enum,
    new_member_of,
    new_named_tuple,
    new_struct,
    new_typed_dict,
    register,
    registered,
    set_attribute,
    set_attributes,
    set_defaults,
    struct_fields,
    struct_options,
)
from zmqdata.pipelines.findable import SCRIPT_MODULES, can_be_found, is_importable
from zmqdata.pipelines.functions import (
    codes,
    fields_of,
    fill,
    first,
    named_globals,
    new_function,
    set_cell,
    set_fields,
    set_global,
    used_globals,
)
from zmqdata.pipelines.holding import is_hashable
from zmqdata.pipelines.importing import Shipment
from zmqdata.pipelines.numpynames import module_here
from zmqdata.pipelines.reducing import (
    is_plain_class,
    is_tensor_class,
    reduced_array,
    reduced_tensor,
    reducer_of,
    reduction,
    set_stored_state,
    without_new,
)
from zmqdata.pipelines.unsendable import (
    Trail,
    check_making,
    deep_trail,
    describe_trail,
    remedy_for,
    trail_to,
    unhashable_text,
)

MOST_BYTES = 2 << 30
"""Maximum size in bytes of a pickle, because a message cannot be larger."""
MOST_APART = 256
"""Maximum number of buffers that are kept outside the stream."""
_ALWAYS_THERE = frozenset({"zmqdata", "dill", *SCRIPT_MODULES, *sys.stdlib_module_names})
_DEFINITIONS, _OF_CLASSES, _OF_FUNCTIONS = range(3)
"""The order of the steps that complete a definition."""
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


class _RefusedError(Exception):
    """The object that the pickler asked for last cannot be sent, for this reason."""


class _Stand:
    """An object that stands for its reduction: a call that opening makes, or a
    container that is filled later.
    """

    __slots__ = ("reduced",)

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced: tuple[Any, ...] = (function, arguments)


def _written(steps: Iterator[object]) -> _Stand:
    """Return an object that pickle writes as a list of all steps. It asks for a step
    when it has written the steps before.
    """
    made = _Stand(list)
    made.reduced = (list, (), None, steps)
    return made


class PipelinePickler(pickle.Pickler):
    """Pickler that writes a value into a file with protocol 5.

    Args:
        file: where to write.
        by_path: True to write a memory map as the path of its file, False to write its
            content.
        shipped: top-level modules that are shipped with the pickle.

    Attributes:
        modules: names of the modules that the pickle refers to and a worker may lack.
        apart: copies of large buffers, and ranges of files that are mapped, which the
            unpickler needs in this order.
        classes: classes shipped by value, by their number in the pickle.
    """

    def __init__(self, file: Any, by_path: bool = True, shipped: Container[str] = ()) -> None:
        super().__init__(file, protocol=5, buffer_callback=self._keep_apart)
        self.shipped = shipped
        self.modules: set[str] = set()
        self.apart: list[bytes | memorymaps.FilePart] = []
        self.classes: dict[int, type] = {}
        self._by_path = by_path
        self._root: object = None
        self._thing: object = None
        self._maker: object = None
        self._array: object = None
        self._ranges: dict[int, memorymaps.FilePart] = {}
        self._storages: dict[int, Any] = {}
        self._tensors: dict[int, object] = {}
        self._globals: dict[int, dict[str, object]] = {}
        self._filled: set[tuple[int, str]] = set()
        self._cells: set[int] = set()
        self._enums: set[int] = set()
        self._hooked: list[type] = []
        self._empty = False
        self._later: tuple[collections.deque[Iterable[object]], ...] = ()
        self._stands: dict[int, tuple[_Stand, Any]] = {}
        self._saved: Container[int] | None = None
        self._ways: dict[type, _Way] = {
            _Stand: lambda stand: stand.reduced,
            np.ndarray: self._write_array,
            np.memmap: self._write_array,
            types.BuiltinFunctionType: self._write_builtin_function,
            types.CellType: self._write_cell,
            types.FunctionType: self._write_function,
            types.ModuleType: self._write_module,
            importlib.machinery.ModuleSpec: self._write_spec,
            importlib.machinery.SourceFileLoader: self._write_spec,
        }

    def dump(self, value: object) -> None:
        """Write a value. The hooks of its classes come last: classes are created while
        the pickle is read, and no hook of theirs may run then.

        Raises:
            UnsendableError: the value holds an object that cannot be pickled.
        """
        self._root = value
        try:
            super().dump(_Stand(first, value, _written(self._hooks())))
        except _RefusedError as error:
            raise UnsendableError(self._trail(self._thing), str(error)) from None
        except RecursionError as error:
            trail = deep_trail(value, self.shipped) or self._trail(self._thing)
            raise UnsendableError(trail) from error
        except Exception as error:
            raise UnsendableError(self._trail(self._thing)) from error
        finally:
            self.clear_memo()

    def _trail(self, thing: object) -> Trail:
        return trail_to(self._root, thing, self._maker, self.shipped)

    def reducer_override(self, thing: Any) -> Any:
        """Return how to make an object, or NotImplemented if pickle knows it."""
        self._thing = thing
        kind = type(thing)
        try:
            way = self._ways.get(kind)
        except Exception:
            raise _RefusedError(unhashable_text(kind)) from None
        return (way or self._way_of(kind))(thing)

    def _way_of(self, kind: type) -> _Way:
        """Return the function for the objects of a class. It is found once for each
        class, because there may be millions of objects.
        """
        if remedy := remedy_for(kind):
            raise _RefusedError(remedy)
        way = self._ways[kind] = self._way_of_class(kind)
        if issubclass(kind, type) or not is_made_here(kind) or is_importable(kind, self.shipped):
            return way

        def way_of_first(thing: Any) -> Any:
            # A class that makes the object comes first. If it holds the object, it has
            # then saved it: a second call of `__new__` would make another object.
            reduced = way(thing)
            parts = reduction(thing) if reduced is NotImplemented else reduced
            makers = (parts[0], *parts[1][:1]) if type(parts) is tuple else ()
            return (first, (kind, thing)) if any(one is kind for one in makers) else reduced

        return way_of_first

    def _way_of_class(self, kind: type) -> _Way:
        if issubclass(kind, type):
            return self._write_class
        if is_tensor_class(kind):
            return self._write_tensor
        plain = _as_pickle_does if is_plain_class(kind) else self._write_by_its_methods
        if kind in _BY_DILL:
            plain = functools.partial(_written_by_dill, dill.Pickler.dispatch[kind])
        reducer = reducer_of(kind)
        if reducer is None:
            return plain

        def way(thing: Any) -> Any:
            reduced = self._checked(reducer(thing))
            return plain(thing) if reduced is NotImplemented else reduced

        return way

    def _write_by_its_methods(self, thing: Any) -> Any:
        self._maker = thing
        reduced = self._checked(reduction(thing))
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
        make, arguments = without_new(reduced[0], reduced[1], self.shipped)
        check_making(make, arguments)
        return (make, arguments, *reduced[2:])

    def _note_module(self, name: str) -> None:
        """Record a module that the worker must be able to import."""
        if name.partition(".")[0] not in _ALWAYS_THERE:
            self.modules.add(name)

    # --- arrays

    def _write_tensor(self, tensor: Any) -> Any:
        reduced = reduced_tensor(tensor, self._storages)
        if reduced is NotImplemented:
            return self._write_by_its_methods(tensor)
        self._tensors.setdefault(id(reduced[1][0]), tensor)
        return reduced

    def _write_array(self, array: Any) -> Any:
        self._array = self._tensors.get(id(array), array)
        part = memorymaps.file_part(array) if self._by_path else None
        if part is None:
            return reduced_array(array)
        buffer = pickle.PickleBuffer(bytearray(1))
        self._ranges[id(buffer)] = part
        return memorymaps.reduced_map(array, buffer)

    def _keep_apart(self, buffer: pickle.PickleBuffer) -> bool:
        """Keep a large buffer outside the stream. Return True for another one, which
        pickle then writes into the stream.
        """
        part = self._ranges.get(id(buffer))
        if part is not None:
            self.apart.append(part)
            return False
        with buffer.raw() as memory:
            if memory.nbytes >= memorymaps.MUCH:
                memorymaps.warn_of_size(memory, *describe_trail(self._trail(self._array)))
            apart = sum(type(one) is bytes for one in self.apart)
            if memory.nbytes < memorymaps.LARGE or apart >= MOST_APART:
                return True
            self.apart.append(bytes(memory))
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
            return self._definition(self._new_function, function)
        self._note_module(function.__module__)
        return NotImplemented

    def _write_class(self, kind: Any) -> Any:
        if is_importable(kind, self.shipped):
            self._note_module(kind.__module__)
            return NotImplemented
        if not is_made_here(kind):
            # Python's unnamed classes (such as that of ``None``) exist everywhere.
            is_known = kind in _dill._typemap
            return _written_by_dill(_dill.save_type, kind) if is_known else NotImplemented
        if not isinstance(kind, enum.EnumMeta):
            return self._definition(self._new_class, kind)
        if id(kind) in self._enums:
            return self._new_enum(kind)
        self._enums.add(id(kind))
        return first, (_written(self._completed_enum(kind)),)

    # --- definitions

    def _definition(self, create: Callable[[Any], tuple[Any, ...]], thing: Any) -> Any:
        """Write a function or class with everything that it needs to run.

        Functions and classes within it are created empty before any of them is filled.
        Then all of their definitions are set, then the objects that classes hold, then
        those that functions hold. Opening such an object may run any definition.
        """
        return create(thing) if self._empty else (first, (_written(self._completed(thing)),))

    def _completed(self, thing: object) -> Iterator[object]:
        """Yield a definition, and the steps that complete it. A None follows each,
        because pickle asks for two before it writes the first.
        """
        outer = self._later
        self._later = (collections.deque(), collections.deque(), collections.deque())
        self._empty = True
        yield from (thing, None)
        while any(self._later):
            steps = next(filter(None, self._later))
            if steps is not self._later[_DEFINITIONS]:
                self._hold_objects()
            for step in steps.popleft():
                yield from (step, None)
        self._hold_objects()
        self._later = outer

    def _hold_objects(self) -> None:
        """End the time in which functions and classes are created empty. Containers
        that were created meanwhile take the places of their stands.
        """
        self._empty, self._saved = False, None
        if self._stands:
            memo = self.memo.copy()
            for stand, container in self._stands.values():
                memo[id(container)] = (memo.pop(id(stand))[0], container)
            self.memo = memo
            self._stands.clear()

    def _queued(self, steps: Iterable[object]) -> Iterator[object]:
        """Queue the steps that fill a definition. Pickle asks for the items of an
        object, which are none, when it has created the object.
        """
        self._later[_DEFINITIONS].append(steps)
        yield from ()

    def _new_function(self, function: types.FunctionType) -> tuple[Any, ...]:
        names = self._globals.setdefault(id(function.__globals__), named_globals(function))
        cells = function.__closure__ or ()
        self._cells.update(map(id, cells))
        # Marks set by decorators (abstract, for example) are read when a class is
        # created, before its methods are filled.
        marks = {mark: value for mark, value in vars(function).items() if is_atom(value)}
        parts = (function.__code__, names, function.__name__, cells, marks)
        return new_function, parts, None, self._queued(self._filled_function(function, names))

    def _filled_function(
        self, function: types.FunctionType, names: dict[str, object]
    ) -> Iterator[object]:
        fields = fields_of(function)
        definitions = {field: value for field, value in fields.items() if is_definition(value)}
        yield _Stand(set_fields, function, definitions)
        for field, value in fields.items():
            if field not in definitions:
                yield from self._set(_OF_CLASSES, setattr, function, field, value)
        for cell in function.__closure__ or ():
            yield from self._filled_cell(cell)
        for name, value in used_globals(function):
            if (id(names), name) not in self._filled:
                self._filled.add((id(names), name))
                yield from self._set(_OF_FUNCTIONS, set_global, names, name, value)
            if is_a(value, types.ModuleType):
                yield from _submodules(value, function.__code__)

    def _write_cell(self, cell: types.CellType) -> Any:
        """Write an empty cell, which the function that owns it fills."""
        try:
            content = None if id(cell) in self._cells else (cell.cell_contents,)
        except ValueError:  # it is empty
            content = None
        return types.CellType, (), content, None, None, set_cell

    def _filled_cell(self, cell: types.CellType) -> Iterator[object]:
        if (id(cell), "") not in self._filled:
            self._filled.add((id(cell), ""))
            # A cell that is empty in the client stays empty in the worker.
            with contextlib.suppress(ValueError):
                value = cell.cell_contents
                yield from self._set(_OF_FUNCTIONS, setattr, cell, "cell_contents", value)

    def _new_class(self, kind: Any) -> tuple[Any, ...]:
        make: Callable[..., Any]
        if is_named_tuple(kind):
            make = new_named_tuple
            parts = (kind.__name__, kind._fields, kind.__module__, kind.__qualname__)
        elif is_struct(kind):
            make = new_struct
            options_and_fields = self._with_objects(struct_options(kind), struct_fields(kind))
            parts = (*creation(kind)[1:], _written(options_and_fields))
        else:
            family = (*kind.__mro__, *type(kind).__mro__)
            by_value = [one for one in family if not is_importable(one, self.shipped)]
            needed = keywords_needed(kind, by_value)
            if needed is not None:
                raise pickle.PicklingError(_keywords_text(kind, *needed))
            make = new_typed_dict if is_typed_dict(kind) else new_class
            parts = creation(kind)
        self._hooked.append(kind)
        steps = self._queued(self._filled_class(kind))
        return make, (self._number(kind), *parts), None, steps

    def _number(self, kind: type) -> int:
        self.classes[len(self.classes)] = kind
        return len(self.classes) - 1

    def _with_objects(self, *parts: object) -> Iterator[object]:
        """Yield None, because pickle asks for two before it writes the first, then
        parts that may hold any object.
        """
        empty = self._empty
        yield None
        self._hold_objects()
        yield from parts
        self._empty = empty

    def _filled_class(self, kind: type) -> Iterator[object]:
        if is_named_tuple(kind):
            defaults = vars(kind)["_field_defaults"]
            self._later[_OF_CLASSES].append([_Stand(set_defaults, kind, defaults)])
        held = attributes(kind)
        held.pop("__class__", None)  # of the body only: later it would change the class's class
        definitions = {name: value for name, value in held.items() if is_definition(value)}
        yield _Stand(set_attributes, kind, definitions)
        for name, value in held.items():
            if name not in definitions:
                yield from self._set(_OF_CLASSES, set_attribute, kind, name, value)
        for virtual in registered(kind):
            yield from self._set(_OF_CLASSES, register, kind, virtual)

    def _new_enum(self, kind: Any) -> tuple[Any, ...]:
        names = (kind.__name__, kind.__qualname__, kind.__module__)
        made = makes_members(kind), new_member_of(kind)
        parts = (type(kind), kind.__bases__, names, enum_members(kind), *made)
        return new_enum, (self._number(kind), *parts)

    def _completed_enum(self, kind: Any) -> Iterator[object]:
        """Yield an enumeration with its members, because each refers to its class, then
        the definitions in its body.
        """
        empty = self._empty
        self._hold_objects()
        yield from (kind, None)
        for name, held in enum_attributes(kind).items():
            yield from (_Stand(set_attributes, kind, {name: held}), None)
        for member in dict(kind.__members__).values():
            yield from (_Stand(set_stored_state, member, member_attributes(member)), None)
        self._empty = empty

    def _set(self, order: int, call: Callable[..., object], *arguments: Any) -> Iterator[object]:
        """Yield a call whose last argument is a value: now if the value is a definition,
        otherwise in its order. A container is created empty now and filled in its
        order.
        """
        value = arguments[-1]
        if is_definition(value):
            yield _Stand(call, *arguments)
            return
        if self._saved is None:
            self._saved = self.memo.copy()
        if id(value) in self._saved:
            yield _Stand(call, *arguments)
        elif id(value) in self._stands:
            yield _Stand(call, *arguments[:-1], self._stands[id(value)][0])
        elif type(value) is dict or type(value) is list:
            stand = _Stand(type(value))
            self._stands[id(value)] = stand, value
            yield from (stand, _Stand(call, *arguments[:-1], stand))
            self._later[order].append(_filled_container(value))
        else:
            self._later[order].append([_Stand(call, *arguments)])

    def _hooks(self) -> Iterator[object]:
        """Yield the hooks of all classes: first the functions, which may bring more
        classes, then the calls that set them.
        """
        for kind in self._hooked:
            for hook in hooks(kind).values():
                yield from (hook, None)
        for kind in self._hooked:
            if hooks(kind):
                yield from (_Stand(set_attributes, kind, hooks(kind)), None)


def _filled_container(container: Any) -> Iterator[object]:
    yield _Stand(fill, container, container.copy())


def _submodules(module: types.ModuleType, code: types.CodeType) -> Iterator[object]:
    """Yield imports of the submodules that a function uses.
    ``xml.etree.ElementTree.parse`` names only ``xml`` as a global, but needs three
    imports.
    """
    names = {name for part in codes(code) for name in part.co_names}
    prefix = f"{module.__name__}."
    for name in [name for name in sys.modules if name.startswith(prefix)]:
        if names.issuperset(name[len(prefix) :].split(".")) and sys.modules[name] is not None:
            yield _Stand(importlib.import_module, name)


def _keywords_text(kind: type, hook: str, names: list[str]) -> str:
    return (
        f"{hook} needs the keyword arguments {', '.join(names)} of the class statement, which "
        f"the class {kind.__qualname__} does not keep"
    )


def _as_pickle_does(thing: object) -> Any:
    return NotImplemented


class _Recorder:
    """A pickler for the functions of dill, which records what they write of an
    object.
    """

    reduced: Any = NotImplemented

    def save_reduce(self, function: Any, arguments: Any, *more: Any, obj: object = None) -> None:
        """Record the call that makes the object."""
        self.reduced = (function, arguments, *more)

    def write(self, opcode: bytes) -> None:
        """Record the name of a sentinel of ``dataclasses``, which is written as one."""
        self.reduced = opcode.split(b"\n")[1].decode()


def _written_by_dill(save: Callable[[Any, Any], None], thing: Any) -> Any:
    recorder = _Recorder()
    save(recorder, thing)
    return recorder.reduced


_MAPPING: Any = collections.OrderedDict()
_BY_DILL = {
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
    *(type(view()) for one in ({}, _MAPPING) for view in (one.keys, one.values, one.items)),
    *(kind for kind in dill.Pickler.dispatch if kind.__module__ == "dataclasses"),
} & dill.Pickler.dispatch.keys()
"""Classes whose objects dill takes apart."""


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
        if (module, name) == (functions.__name__, "new_function"):
            return functools.partial(new_function, of_globals=shipment.builtins)
        return super().find_class(shipment.placed(module), name)
