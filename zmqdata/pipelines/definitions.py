"""Functions and classes shipped by value: the order in which a pickle creates and fills
them.

Functions and classes that refer to each other are created empty before any of them is
filled. Then all of their definitions are set, then the members of enumerations, then
the objects that classes hold, then those that functions hold. Opening such an object
may run any definition. Decision 0049.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import pickle
import sys
import types
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any

from zmqdata.peeking import is_a
from zmqdata.pipelines import classes, functions
from zmqdata.pipelines.findable import is_importable

_DEFINITIONS, _OF_ENUMS, _OF_CLASSES, _OF_FUNCTIONS = range(4)
"""The order of the steps that complete a definition."""
_SMALL = 100
"""Number of elements of a container that is looked through."""


class Stand:
    """An object that stands for its reduction: a call that opening makes, or a
    container that is filled later.

    Args:
        function: makes the object.
        arguments: its arguments.
    """

    __slots__ = ("reduced",)

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.reduced: tuple[Any, ...] = (function, arguments)


def written(steps: Iterator[object]) -> Stand:
    """Return an object that pickle writes as a list of all steps. It asks for a step
    when it has written the steps before.
    """
    made = Stand(list)
    made.reduced = (list, (), None, steps)
    return made


class Definitions:
    """The functions and classes in a pickle.

    Args:
        pickler: writes the pickle. It reduces a ``Stand`` to what this stands for.
        shipped: top-level modules that are shipped with the pickle.

    Attributes:
        classes: classes shipped by value, by their number in the pickle.
    """

    def __init__(self, pickler: pickle.Pickler, shipped: Container[str]) -> None:
        self.classes: dict[int, type] = {}
        self._pickler, self._shipped = pickler, shipped
        self._globals: dict[int, dict[str, object]] = {}
        self._filled: set[tuple[int, str]] = set()
        self._cells: set[int] = set()
        self._hooked: list[type] = []
        self._empty = False
        self._later: tuple[deque[Iterable[object]], ...] = ()
        self._stands: dict[int, tuple[Stand, Any]] = {}
        self._saved: Container[int] | None = None

    def function(self, function: types.FunctionType) -> Any:
        """Return the reduction of a function."""
        return self._reduced(self._new_function, function)

    def kind(self, kind: Any) -> Any:
        """Return the reduction of a class."""
        return self._reduced(self._new_class, kind)

    def cell(self, cell: types.CellType) -> Any:
        """Return the reduction of a cell, without the content if a function owns it,
        which fills it.
        """
        try:
            content = None if id(cell) in self._cells else (cell.cell_contents,)
        except ValueError:  # it is empty
            content = None
        return types.CellType, (), content, None, None, functions.set_cell

    def hooks(self) -> Iterator[object]:
        """Yield the hooks of all classes: first the functions, which may bring more
        classes, then the calls that set them.
        """
        for kind in self._hooked:
            for hook in classes.hooks(kind).values():
                yield from (hook, None)
        for kind in self._hooked:
            if classes.hooks(kind):
                yield from (Stand(classes.set_attributes, kind, classes.hooks(kind)), None)

    def _reduced(self, create: Callable[[Any], tuple[Any, ...]], thing: Any) -> Any:
        if self._empty:
            return create(thing)
        return functions.first, (written(self._completed(thing)),)

    def _completed(self, thing: object) -> Iterator[object]:
        """Yield a definition, and the steps that complete it. A None follows each,
        because pickle asks for two before it writes the first.
        """
        outer, self._later = self._later, tuple(deque() for _ in range(4))
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
            memo = self._pickler.memo.copy()
            for stand, container in self._stands.values():
                memo[id(container)] = (memo.pop(id(stand))[0], container)
            self._pickler.memo = memo
            self._stands.clear()

    def _queued(self, steps: Iterable[object]) -> Iterator[object]:
        """Queue the steps that fill a definition. Pickle asks for the items of an
        object, which are none, when it has created the object.
        """
        self._later[_DEFINITIONS].append(steps)
        yield from ()

    def _new_function(self, function: types.FunctionType) -> tuple[Any, ...]:
        space = function.__globals__
        names = self._globals.setdefault(id(space), functions.named_globals(function))
        cells = function.__closure__ or ()
        self._cells.update(map(id, cells))
        # Marks set by decorators (abstract, for example) are read when a class is
        # created, before its methods are filled.
        marks = {mark: one for mark, one in vars(function).items() if classes.is_atom(one)}
        parts = (function.__code__, names, function.__name__, cells, marks)
        steps = self._queued(self._filled_function(function, names))
        return functions.new_function, parts, None, steps

    def _filled_function(
        self, function: types.FunctionType, names: dict[str, object]
    ) -> Iterator[object]:
        fields = functions.fields_of(function)
        definitions = {name: one for name, one in fields.items() if classes.is_definition(one)}
        yield Stand(functions.set_fields, function, definitions)
        for name, value in fields.items():
            if name not in definitions:
                yield from self._set(_OF_CLASSES, setattr, function, name, value)
        for cell in function.__closure__ or ():
            yield from self._filled_cell(cell)
        for name, value in functions.used_globals(function):
            if (id(names), name) not in self._filled:
                self._filled.add((id(names), name))
                yield from self._set(_OF_FUNCTIONS, functions.set_global, names, name, value)
            if is_a(value, types.ModuleType):
                yield from _submodules(value, function.__code__)

    def _filled_cell(self, cell: types.CellType) -> Iterator[object]:
        if (id(cell), "") not in self._filled:
            self._filled.add((id(cell), ""))
            # A cell that is empty in the client stays empty in the worker.
            with contextlib.suppress(ValueError):
                value = cell.cell_contents
                yield from self._set(_OF_FUNCTIONS, setattr, cell, "cell_contents", value)

    def _number(self, kind: type) -> int:
        self.classes[len(self.classes)] = kind
        return len(self.classes) - 1

    def _new_class(self, kind: Any) -> tuple[Any, ...]:
        make: Callable[..., Any]
        if classes.is_named_tuple(kind):
            make = classes.new_named_tuple
            parts = (kind.__name__, kind._fields, kind.__module__, kind.__qualname__)
        elif classes.is_struct(kind):
            make = classes.new_struct
            held = classes.struct_options(kind), classes.struct_fields(kind)
            parts = (*classes.creation(kind)[1:], written(self._with_objects(*held)))
        else:
            family = (*kind.__mro__, *type(kind).__mro__)
            by_value = [one for one in family if not is_importable(one, self._shipped)]
            classes.check_keywords(kind, by_value)
            is_bare = isinstance(kind, enum.EnumMeta) or classes.is_typed_dict(kind)
            make = classes.new_bare_class if is_bare else classes.new_class
            parts = classes.creation(kind)
        self._hooked.append(kind)
        steps = self._queued(self._filled_class(kind))
        return make, (self._number(kind), *parts), None, steps

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
        if classes.is_named_tuple(kind):
            defaults = vars(kind)["_field_defaults"]
            self._later[_OF_CLASSES].append([Stand(classes.set_defaults, kind, defaults)])
        order = _OF_ENUMS if isinstance(kind, enum.EnumMeta) else _OF_CLASSES
        held = classes.attributes(kind)
        held.pop("__class__", None)  # of the body only: later it would change the class's class
        definitions = {name: one for name, one in held.items() if classes.is_definition(one)}
        yield Stand(classes.set_attributes, kind, definitions)
        for name, value in held.items():
            if name not in definitions:
                yield from self._set(order, classes.set_attribute, kind, name, value)
        for virtual in classes.registered(kind):
            yield from self._set(_OF_CLASSES, classes.register, kind, virtual)

    def _set(self, order: int, call: Callable[..., object], *arguments: Any) -> Iterator[object]:
        """Yield a call whose last argument is a value: now if the value is simple,
        otherwise in its order. A container is created empty now and filled in its
        order.
        """
        value = arguments[-1]
        if id(value) in self._stands:
            yield Stand(call, *arguments[:-1], self._stands[id(value)][0])
        elif _is_simple(value) or self._is_written(value):
            yield Stand(call, *arguments)
        elif type(value) is dict or type(value) is list:
            stand = Stand(type(value))
            self._stands[id(value)] = stand, value
            yield from (stand, Stand(call, *arguments[:-1], stand))
            self._later[order].append(_filled_container(value))
        else:
            self._later[order].append([Stand(call, *arguments)])

    def _is_written(self, value: object) -> bool:
        """Return True for a container that was written before. A copy of the memo takes
        long if it knows millions of objects, so other objects wait.
        """
        if type(value) is not dict and type(value) is not list:
            return False
        if self._saved is None:
            self._saved = self._pickler.memo.copy()
        return id(value) in self._saved


def _is_simple(value: Any, levels: int = 3) -> bool:
    """Return True for a definition, and for a small container of definitions: it can be
    written before any of them is complete.
    """
    if not any(type(value) is kind for kind in (dict, list, tuple)):
        return classes.is_definition(value)
    if len(value) > _SMALL or not levels:
        return type(value) is list and all(map(classes.is_atom, value))
    if type(value) is dict:
        return all(map(classes.is_atom, value)) and _is_simple([*value.values()], levels)
    return all(_is_simple(one, levels - 1) for one in value)


def _filled_container(container: Any) -> Iterator[object]:
    yield Stand(functions.fill, container, container.copy())


def _submodules(module: types.ModuleType, code: types.CodeType) -> Iterator[object]:
    """Yield imports of the submodules that a function uses.
    ``xml.etree.ElementTree.parse`` names only ``xml`` as a global, but needs three
    imports.
    """
    names = {name for part in functions.codes(code) for name in part.co_names}
    prefix = f"{module.__name__}."
    for name in [name for name in sys.modules if name.startswith(prefix)]:
        if names.issuperset(name[len(prefix) :].split(".")) and sys.modules[name] is not None:
            yield Stand(importlib.import_module, name)
